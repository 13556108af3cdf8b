//! The plain entrance: checks, places, receipts, and what operators read.

use serde_json::json;

use crate::support::{Node, Setup, at_once};

const RULES: &str = "
domain: shop
match: path
descriptors:
  - key: api_key
    rate_limit: { limit: 5/1h, name: per-key }
    descriptors:
      - key: endpoint
        value: \"POST /orders\"
        rate_limit: { limit: 2/1h, name: orders }
  - key: in_flight
    rate_limit: { limit: 2, algorithm: concurrency, ttl: 60s, name: in-flight }
";

const ALICE: &str = r#"{"clientId": "alice"}"#;

#[tokio::test]
async fn a_check_has_a_short_and_a_long_form() {
    let node = Node::start(RULES);
    let mut http = node.http().await;
    let short = http.post("/v1/check", r#"{"clientId": "alice", "endpoint": "POST /orders"}"#).await;
    assert_eq!(
        (short.status, short.body.as_str()),
        (
            200,
            concat!(
                r#"{"allowed":true,"remaining":1,"limit":2,"retryAfterMs":0,"reset":3600,"#,
                r#""rule":"shop|api_key|endpoint:POST /orders#orders","mode":"local","bound":{"over":0,"under":0}}"#,
            )
        )
    );
    assert_eq!(short.header("content-type"), "application/json");
    assert_eq!(short.header("ratelimit-policy"), "\"per-key\";q=5;w=3600, \"orders\";q=2;w=3600");
    assert_eq!(short.header("ratelimit"), "\"orders\";r=1;t=3600");
    assert_eq!((short.header("x-ratelimit-limit"), short.header("x-ratelimit-remaining")), ("2", "1"));
    assert_eq!((short.header("x-ratelimit-policy"), short.header("retry-after")), ("2;w=3600", ""));

    // The same request in the words of the protocol, as JSON of protobuf may spell it.
    for (hits, spelling) in [
        (
            2,
            r#"{"domain":"shop","descriptors":[{"entries":[{"key":"api_key","value":"alice"}],"hitsAddend":"2"}]}"#,
        ),
        (
            1,
            r#"{"descriptors":[{"entries":[{"key":"api_key","value":"alice"}],"hits_addend":1}],"hits_addend":9}"#,
        ),
        (0, r#"{"descriptors":[{"entries":[{"key":"api_key","value":"alice"}],"hitsAddend":0}]}"#),
        (1, r#"{"descriptors":[{"entries":[{"key":"api_key","value":"alice"}]}],"hitsAddend":1}"#),
    ] {
        let before = node.used(ALICE).await[0];
        assert_eq!(http.post("/v1/check", spelling).await.json()["allowed"], true, "{spelling}");
        assert_eq!(node.used(ALICE).await[0], before + hits, "{spelling}");
    }
    let refused = http.post("/v1/check", ALICE).await;
    assert_eq!((refused.status, refused.json()["allowed"] == false), (200, true), "an answer, not an error");
    assert_eq!(refused.json()["code"], "RATE_LIMITED");
    let cost = http.post("/v1/check", r#"{"client_id": "bob", "cost": 6}"#).await.json();
    assert_eq!((&cost["code"], &cost["retryAfterMs"]), (&json!("COST_EXCEEDS_LIMIT"), &json!(null)));
    let own = r#"{"descriptors":[{"entries":[{"key":"x","value":"y"}],"limit":{"requestsPerUnit":7,"unit":"MINUTE","unitMultiplier":2}}]}"#;
    let own = http.post("/v1/check", own).await.json();
    assert_eq!((&own["limit"], &own["remaining"], &own["rule"]), (&json!(7), &json!(6), &json!(null)));
}

#[tokio::test]
async fn who_enforces_gets_the_status_and_body_of_a_refusal() {
    let node = Node::start(RULES);
    let mut http = node.http().await;
    let (orders, refused) = at_once(async |turn| {
        let orders = format!(r#"{{"clientId": "alice{turn}", "endpoint": "POST /orders"}}"#);
        for query in ["?enforce", "?enforce=true"] {
            assert_eq!(http.post(&format!("/v1/check{query}"), &orders).await.status, 200);
        }
        let refused = http.post("/v1/check?enforce=1", &orders).await;
        (orders, refused)
    })
    .await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "3600"));
    assert_eq!(refused.header("ratelimit"), "\"orders\";r=0;t=3600");
    let error = &refused.json()["error"];
    assert_eq!((&error["code"], &error["limit"]), (&json!("RATE_LIMITED"), &json!(2)));
    assert_eq!(http.post("/v1/check?enforce=false", &orders).await.status, 200, "nobody enforces");

    let setup = Setup::new(RULES).set("http-body", "problem").set("http-headers", "none");
    let node = setup.start();
    let refused = node.http().await.post("/v1/check?enforce", r#"{"clientId": "a", "cost": 9}"#).await;
    assert_eq!((refused.status, refused.header("content-type")), (429, "application/problem+json"));
    assert_eq!(refused.header("ratelimit"), "");
}

#[tokio::test]
async fn a_batch_is_several_checks_each_for_itself() {
    let node = Node::start(RULES);
    let mut http = node.http().await;
    let batch = r#" [{"clientId":"a","cost":5}, {"clientId":"a"}, {"clientId":"b"}]"#;
    let answer = http.post("/v1/check", batch).await;
    let allowed: Vec<bool> =
        answer.json().as_array().expect("a list").iter().map(|one| one["allowed"] == true).collect();
    assert_eq!((answer.status, allowed), (200, vec![true, false, true]));
    // One that is wrong: none is charged.
    let answer = http.post("/v1/check", r#"[{"clientId":"c"}, {"endpoint":"x"}]"#).await;
    assert_eq!(answer.status, 400);
    assert_eq!(node.used(r#"{"clientId":"c"}"#).await, [0]);
    let many = |count: usize| format!("[{}]", vec![r#"{"clientId":"d","cost":0}"#; count].join(","));
    assert_eq!(http.post("/v1/check", &many(100)).await.json().as_array().map(Vec::len), Some(100));
    assert_eq!(http.post("/v1/check", &many(101)).await.status, 413);
}

#[tokio::test]
async fn places_are_acquired_renewed_and_released_by_an_id() {
    let node = Node::start(RULES);
    let mut http = node.http().await;
    let body = |id: &str| {
        format!(r#"{{"id":"{id}","descriptors":[{{"entries":[{{"key":"in_flight","value":"a"}}]}}]}}"#)
    };
    let used = async || node.used(r#"{"descriptors":[{"entries":[{"key":"in_flight","value":"a"}]}]}"#).await;
    for (path, id, allowed, held) in [
        ("acquire", "one", true, 1),
        ("acquire", "one", true, 1), // The same id again only renews.
        ("acquire", "two", true, 2),
        ("acquire", "three", false, 2),
        ("renew", "two", true, 2),
        ("renew", "three", false, 2),
        ("release", "one", true, 1),
        ("release", "one", true, 1),
        ("release", "three", true, 1),
        ("renew", "one", false, 1),
        ("acquire", "three", true, 2),
    ] {
        let answer = http.post(&format!("/v1/{path}"), &body(id)).await;
        assert_eq!((answer.status, answer.json()["allowed"] == true), (200, allowed), "{path} {id}");
        assert_eq!(used().await, [held], "{path} {id}");
    }
    assert_eq!(http.post("/v1/renew", &body("one")).await.json()["code"], "NOT_HELD");
    assert_eq!(http.post("/v1/acquire?enforce", &body("four")).await.status, 429);
    let nothing = http.post("/v1/acquire", r#"{"id":"x","clientId":"a"}"#).await;
    assert_eq!((nothing.status, node.used(ALICE).await), (400, vec![0]));
}

#[tokio::test]
async fn a_receipt_gives_back_or_settles_once() {
    let node = Node::start(RULES);
    let mut http = node.http().await;
    let receipt = async |client: &str, cost: u64| {
        let body = format!(r#"{{"clientId":"{client}","cost":{cost},"receipt":true}}"#);
        let answer = node.http().await.post("/v1/check", &body).await.json();
        answer["receipt"].as_str().map(String::from)
    };
    let used = async |client: &str| node.used(&format!(r#"{{"clientId":"{client}"}}"#)).await[0];

    let id = receipt("a", 4).await.expect("a receipt");
    let part = format!(r#"{{"clientId":"a","receipt":"{id}","units":3}}"#);
    for _ in 0..2 {
        assert_eq!(http.post("/v1/refund", &part).await.json()["allowed"], true);
        assert_eq!(used("a").await, 1, "given back once");
    }
    let id = receipt("b", 4).await.expect("a receipt");
    let other = format!(r#"{{"clientId":"c","receipt":"{id}"}}"#);
    http.post("/v1/check", r#"{"clientId":"c","cost":2}"#).await;
    http.post("/v1/refund", &other).await;
    assert_eq!((used("b").await, used("c").await), (4, 2), "it is of no use to others");

    let id = receipt("d", 2).await.expect("a receipt");
    let settle = format!(r#"{{"clientId":"d","receipt":"{id}","actual":5}}"#);
    for _ in 0..2 {
        assert_eq!(http.post("/v1/settle", &settle).await.json()["allowed"], true);
        assert_eq!(used("d").await, 5, "settled once, whatever the room");
    }
    let id = receipt("e", 5).await.expect("a receipt");
    http.post("/v1/settle", &format!(r#"{{"clientId":"e","receipt":"{id}","actual":1}}"#)).await;
    assert_eq!(used("e").await, 1);
    assert_eq!(receipt("e", 5).await, None, "what is refused has none");
    assert_eq!(receipt("e", 0).await, None, "nor has what charged nothing");
    for unknown in ["0123456789abcdef", "x", ""] {
        let body = format!(r#"{{"clientId":"e","receipt":"{unknown}"}}"#);
        assert_eq!(http.post("/v1/refund", &body).await.status, 200);
        assert_eq!(used("e").await, 1);
    }
}

#[tokio::test]
async fn every_error_says_how_to_mend_it() {
    let two = format!("{RULES}---\ndomain: other\ndescriptors: []\n");
    let node = Setup::new(&two).set("http-default-domain", "shop").start();
    let undecided = Node::start(&two);
    let entries = vec![r#"{"key":"a","value":"b"}"#; 513].join(",");
    let descriptors = vec![r#"{"entries":[]}"#; 65].join(",");
    let long = |list: &str| format!(r#"{{"descriptors":[{list}]}}"#);
    let many_entries = long(&format!(r#"{{"entries":[{entries}]}}"#));
    let cases = [
        (
            "POST",
            "/v1/check",
            "",
            400,
            "the body is not understood: EOF while parsing a value at line 1 column 0",
        ),
        (
            "POST",
            "/v1/check",
            "{",
            400,
            "the body is not understood: EOF while parsing an object at line 1 column 1",
        ),
        ("POST", "/v1/check", "hello", 400, "the body is not understood: expected value at line 1 column 1"),
        (
            "POST",
            "/v1/check",
            "{} x",
            400,
            "the body is not understood: trailing characters at line 1 column 4",
        ),
        ("POST", "/v1/check", "[]", 400, "an empty list asks nothing"),
        (
            "POST",
            "/v1/check",
            "{}",
            400,
            "who asks? send \"descriptors\", or \"clientId\" and perhaps \"endpoint\"",
        ),
        (
            "POST",
            "/v1/check",
            r#"{"clientID": "a"}"#,
            400,
            "the body is not understood: unknown field `clientID`, expected one of `domain`, `descriptors`, \
             `hitsAddend`, `hits_addend`, `clientId`, `client_id`, `endpoint`, `cost`, `id`, `receipt`, \
             `units`, `actual` at line 1 column 11",
        ),
        (
            "POST",
            "/v1/check",
            r#"{"clientId": "a", "descriptors": []}"#,
            400,
            "\"descriptors\" or \"clientId\", not both",
        ),
        (
            "POST",
            "/v1/check",
            r#"{"clientId": "a", "hitsAddend": 2}"#,
            400,
            "\"hitsAddend\" belongs to \"descriptors\"; with \"clientId\" it is \"cost\"",
        ),
        (
            "POST",
            "/v1/check",
            r#"{"descriptors": [], "cost": 2}"#,
            400,
            "\"endpoint\" and \"cost\" belong to \"clientId\"; with \"descriptors\" write an entry, and \"hitsAddend\"",
        ),
        ("POST", "/v1/check", r#"{"descriptors": []}"#, 400, "an empty list of descriptors asks nothing"),
        (
            "POST",
            "/v1/check",
            r#"{"descriptors": [{"hitsAddend": -1}]}"#,
            400,
            "the body is not understood: a whole number, not negative at line 1 column 35",
        ),
        (
            "POST",
            "/v1/check",
            r#"{"descriptors": [{"hitsAddend": "x"}]}"#,
            400,
            "the body is not understood: invalid digit found in string at line 1 column 36",
        ),
        (
            "POST",
            "/v1/check",
            &long(&descriptors),
            413,
            "a list is too long: it may have 64 items, at line 1 column 991",
        ),
        (
            "POST",
            "/v1/check",
            &many_entries,
            413,
            "a list is too long: it may have 512 items, at line 1 column 12340",
        ),
        ("POST", "/v1/check", r#"{"clientId": "a", "id": "x"}"#, 400, "\"id\" has no meaning here"),
        (
            "POST",
            "/v1/check",
            r#"{"clientId": "a", "receipt": "x"}"#,
            400,
            "\"receipt\" is true or false here: is one wanted?",
        ),
        (
            "POST",
            "/v1/check",
            r#"[{"clientId": "a"}, {}]"#,
            400,
            "check 2 of the list: who asks? send \"descriptors\", or \"clientId\" and perhaps \"endpoint\"",
        ),
        (
            "POST",
            "/v1/check?enforce",
            r#"[{"clientId": "a"}]"#,
            400,
            "a list of checks goes to /v1/check, without enforce or explain",
        ),
        (
            "POST",
            "/v1/acquire",
            r#"[{"clientId": "a"}]"#,
            400,
            "a list of checks goes to /v1/check, without enforce or explain",
        ),
        (
            "POST",
            "/v1/acquire?explain",
            ALICE,
            400,
            "only checks are explained: send it to /v1/check?explain",
        ),
        ("POST", "/v1/acquire", ALICE, 400, "\"id\", by which the places are known, is missing"),
        (
            "POST",
            "/v1/acquire",
            r#"{"clientId": "a", "id": "x"}"#,
            400,
            "no rule with the algorithm `concurrency` was found: there is nothing to hold",
        ),
        (
            "POST",
            "/v1/refund",
            ALICE,
            400,
            "\"receipt\", the text that a check with \"receipt\": true answered, is missing",
        ),
        (
            "POST",
            "/v1/refund",
            r#"{"clientId": "a", "receipt": true}"#,
            400,
            "\"receipt\", the text that a check with \"receipt\": true answered, is missing",
        ),
        (
            "POST",
            "/v1/settle",
            r#"{"clientId": "a", "receipt": "x"}"#,
            400,
            "\"actual\", what it turned out to cost, is missing",
        ),
        ("POST", "/v1/settle", r#"{"clientId": "a", "units": 1}"#, 400, "\"units\" has no meaning here"),
        ("POST", "/v1/inspect", "[{}]", 400, "one at a time: no list"),
        ("GET", "/v1/top?n=0", "", 400, "n is a number from 1 to 1000"),
        ("GET", "/v1/check", "", 405, "/v1/check takes POST"),
        ("HEAD", "/v1/check", "", 405, ""),
        ("DELETE", "/metrics", "", 405, "/metrics takes GET"),
        (
            "GET",
            "/",
            "",
            404,
            "there is no /; there are: /v1/check, /v1/acquire, /v1/renew, /v1/release, /v1/refund, \
             /v1/settle, /v1/inspect, /v1/counters/reset, /v1/counters/{key}, /v1/top, /livez, /readyz, /healthz, /healthcheck, /metrics",
        ),
        (
            "POST",
            "/v1/check/",
            ALICE,
            404,
            "there is no /v1/check/; there are: /v1/check, /v1/acquire, /v1/renew, /v1/release, /v1/refund, \
             /v1/settle, /v1/inspect, /v1/counters/reset, /v1/counters/{key}, /v1/top, /livez, /readyz, /healthz, /healthcheck, /metrics",
        ),
    ];
    // All on one connection: an error does not end it.
    let mut http = node.http().await;
    for (method, path, body, status, message) in cases {
        let answer = http.request(method, path, &[], body).await;
        assert_eq!(answer.status, status, "{method} {path} {body}: {}", answer.body);
        assert_eq!(answer.header("content-type"), "application/json");
        if method != "HEAD" {
            let code = match status {
                400 => "INVALID_REQUEST",
                404 => "NOT_FOUND",
                405 => "METHOD_NOT_ALLOWED",
                _ => "TOO_LARGE",
            };
            let expected = json!({ "error": { "code": code, "message": message } });
            assert_eq!(answer.json(), expected, "{method} {path} {body}");
        }
        let allow = match (status, path) {
            (405, "/v1/check") => "POST",
            (405, _) => "GET",
            _ => "",
        };
        assert_eq!(answer.header("allow"), allow);
    }
    assert_eq!(node.used(ALICE).await, [0], "nothing was charged");
    let answer = undecided.http().await.post("/v1/check", ALICE).await;
    assert_eq!(
        answer.json()["error"]["message"],
        "which domain? there are several: name one as \"domain\", or set http.default_domain for the node"
    );
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_it_is_sent() {
    let node = Node::start(RULES);
    let mut http = node.http().await;
    http.send(b"POST /v1/check HTTP/1.1\r\nhost: node\r\ncontent-length: 1048577\r\n\r\n").await;
    let answer = http.reply(true).await.expect("an answer");
    assert_eq!(
        (answer.status, answer.json()["error"]["message"].as_str()),
        (413, Some("the body may have 1048576 bytes"))
    );

    // Whoever does not say how much comes is stopped on the way.
    let mut http = node.http().await;
    http.send(b"POST /v1/check HTTP/1.1\r\nhost: node\r\ntransfer-encoding: chunked\r\n\r\n").await;
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x1_0000], b"\r\n"].concat();
    for _ in 0..17 {
        http.send(&chunk).await;
    }
    assert_eq!(http.reply(true).await.map(|answer| answer.status), Some(413));

    let mut http = node.http().await;
    let largest = format!("{ALICE}{}", " ".repeat((1 << 20) - ALICE.len()));
    assert_eq!(http.post("/v1/check", &largest).await.status, 200);
}

#[tokio::test]
async fn a_body_in_pieces_is_one_body() {
    let node = Node::start(RULES);
    let body = "{\"clientId\":\"al\u{ef}ce\",\"cost\":2}";
    // Wherever it is cut, also within a character.
    for cut in 1..body.len() - 1 {
        let mut http = node.http().await;
        let (first, rest) = body.as_bytes().split_at(cut);
        let (second, third) = rest.split_at(1);
        let mut sent =
            b"POST /v1/check HTTP/1.1\r\nhost: node\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for piece in [first, second, third, &[]] {
            sent.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            sent.extend_from_slice(piece);
            sent.extend_from_slice(b"\r\n");
        }
        http.send(&sent).await;
        let answer = http.reply(true).await.expect("an answer");
        // Two of five, twice; then there is no room for two.
        let expected = if cut == 1 { 3 } else { 1 };
        assert_eq!((answer.status, answer.json()["remaining"].as_i64()), (200, Some(expected)), "{cut}");
    }
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let node = Node::start(RULES);
    let mut http = node.http().await;
    for expected in [4, 3] {
        assert_eq!(http.post("/v1/check", ALICE).await.json()["remaining"], expected);
    }
    // Several at once are answered in order.
    let one = |cost: u64| {
        let body = format!(r#"{{"clientId":"alice","cost":{cost}}}"#);
        format!("POST /v1/check HTTP/1.1\r\nhost: node\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    http.send((one(0) + &one(2) + &one(1) + &one(1)).as_bytes()).await;
    let mut left = Vec::new();
    for _ in 0..4 {
        left.push(http.reply(true).await.expect("an answer").json()["remaining"].as_u64());
    }
    assert_eq!(left, [Some(3), Some(1), Some(0), Some(0)]);
    assert_eq!(
        node.metric("tidegate_connections", "server=\"http\"").await,
        2,
        "this one, and the one that asks"
    );
}

#[tokio::test]
async fn operators_see_how_it_is() {
    let node = Node::start(RULES);
    let mut http = node.http().await;
    for path in ["/livez", "/readyz", "/healthz", "/healthcheck"] {
        let page = http.get(path).await;
        assert_eq!((page.status, page.body.as_str()), (200, "ok\n"), "{path}");
        let head = http.request("HEAD", path, &[], "").await;
        assert_eq!(
            (head.status, head.header("content-length"), head.body.as_str()),
            (200, "3", ""),
            "{path}"
        );
    }
    let verbose = http.get("/readyz?verbose").await;
    for fact in
        ["ok\n", "3 in force, loaded 1 times, 0 loads with errors", "this node limits alone", "keys of"]
    {
        assert!(verbose.body.contains(fact), "{fact}: {}", verbose.body);
    }
    let body = |client: &str| format!(r#"{{"clientId":"{client}","cost":6}}"#);
    for client in ["a", "b", "b"] {
        http.post("/v1/check", &body(client)).await;
    }
    let top = http.get("/v1/top?n=5").await.json();
    let keys = top["keys"].as_array().expect("a list").clone();
    let refused: Vec<_> = keys.iter().map(|key| key["refused"].as_u64().unwrap_or(0)).collect();
    assert_eq!(refused, [2, 1], "{top}");
    assert!(keys.iter().all(|key| key["rule"] == "shop|api_key#per-key"));
    assert!(!top.to_string().contains("\"b\""), "values are not told, only their hashes");
    assert_eq!(http.get("/v1/top?n=1").await.json()["keys"].as_array().map(Vec::len), Some(1));

    let metrics = http.get("/metrics").await;
    assert!(metrics.header("content-type").starts_with("application/openmetrics-text"));
    assert!(metrics.body.ends_with("# EOF\n"));
    let length = metrics.body.len().to_string();
    let head = http.request("HEAD", "/metrics", &[], "").await;
    assert!(
        head.status == 200 && head.body.is_empty() && head.header("content-length").len() == length.len()
    );
    assert_eq!(node.metric("ratelimit_denied_total", "reason=\"cost_exceeds_limit\"").await, 3);
    assert_eq!(node.metric("ratelimit_requests_total", "server=\"http\",outcome=\"refused\"").await, 3);
}

#[tokio::test]
async fn heads_that_nobody_should_send_are_refused() {
    let node = Node::start(RULES);
    let body = ALICE.len();
    for (head, statuses, why) in [
        (format!("content-length: {body}\r\ncontent-length: 5\r\n"), &[400][..], "two lengths"),
        (
            format!("content-length: {body}\r\ntransfer-encoding: chunked\r\n"),
            &[400],
            "a length, and chunks that are none",
        ),
        ("transfer-encoding: gzip\r\n".to_string(), &[400], "an encoding that has no end"),
        ("content-length: -1\r\n".to_string(), &[400], "a length below nothing"),
        (format!("content-length: {body}\r\nx: {}\r\n", "y".repeat(200_000)), &[431], "a long header"),
        // With `host` and the length it is one more than a hundred.
        (format!("content-length: {body}\r\n{}", "x: y\r\n".repeat(99)), &[431], "many headers"),
        (format!("content-length: {body}\r\nx y: z\r\n"), &[400], "a name with a space"),
    ] {
        let mut http = node.http().await;
        http.send(format!("POST /v1/check HTTP/1.1\r\nhost: node\r\n{head}\r\n{ALICE}").as_bytes()).await;
        match http.reply(true).await {
            Some(answer) => assert!(statuses.contains(&answer.status), "{why}: {answer:?}"),
            None => panic!("{why}: closed without a word"),
        }
    }
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\r\n\r\n\r\n\0\0\0\0\r\n\r\n",
    ] {
        let mut http = node.http().await;
        http.send(garbage).await;
        let told = String::from_utf8_lossy(&http.closed().await).into_owned();
        assert!(told.is_empty() || told.starts_with("HTTP/1.1 4"), "{told}");
    }
    assert_eq!(node.used(ALICE).await, [0], "nobody was charged");
    let mut http = node.http().await;
    let hundred = format!("content-length: {body}\r\n{}", "x: y\r\n".repeat(98));
    http.send(format!("POST /v1/check HTTP/1.1\r\nhost: node\r\n{hundred}\r\n{ALICE}").as_bytes()).await;
    assert_eq!(http.reply(true).await.map(|answer| answer.status), Some(200), "as many as there may be");
}

#[tokio::test]
async fn no_name_of_a_rule_gets_out_of_its_header() {
    let rules = "domain: shop\ndescriptors:\n  - key: api_key\n    \
                 rate_limit: { limit: 5/1h, name: \"a\\r\\nset-cookie: b\\\"\\\\c\\0 d, e\" }\n";
    for dialects in ["ietf-11,x-epoch,retry-after", "x-delta,envoy,kong", "github,twitter"] {
        let node = Setup::new(rules).set("http-headers", dialects).start();
        let mut http = node.http().await;
        for path in ["/v1/check?enforce", "/v1/check"] {
            let cost = r#"{"clientId": "x\r\nset-cookie: b", "cost": 6}"#;
            let answer = http.post(path, cost).await;
            assert_eq!(answer.header("set-cookie"), "", "{answer:?}");
            assert!(answer.json().is_object(), "{answer:?}");
        }
        assert_eq!(http.get("/livez").await.body, "ok\n", "what follows is read as what follows");
    }
}

#[tokio::test]
async fn a_look_and_a_charge_on_one_counter_are_one_take() {
    let node = Node::start(
        "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: { limit: 3/1h, algorithm: fixed_window }\n",
    );
    let entries = json!([{ "key": "user", "value": "a" }]);
    let body = json!({ "descriptors": [{ "entries": entries }, { "entries": entries, "hitsAddend": 0 }] })
        .to_string();
    let mut http = node.http().await;
    for allowed in [true, true, true, false] {
        let explained = http.post("/v1/check?explain", &body).await.json();
        assert_eq!(explained["explanation"]["admitted"], allowed, "it says what is said then");
        assert_eq!(http.post("/v1/check", &body).await.json()["allowed"], allowed);
    }
}

#[tokio::test]
async fn what_cannot_be_done_is_not_done_by_half() {
    let node = Node::start(RULES);
    let mut http = node.http().await;
    // There is nothing to hold, so nothing is charged.
    assert_eq!(http.post("/v1/acquire", r#"{"clientId": "alice", "id": "1"}"#).await.status, 400);
    assert_eq!(node.used(ALICE).await, [0]);
    // A receipt that is sent with another request stays good for its own.
    let receipt =
        http.post("/v1/check", r#"{"clientId": "alice", "receipt": true}"#).await.json()["receipt"].clone();
    let refund = |client: &str| json!({ "clientId": client, "receipt": receipt }).to_string();
    let wrong = http.post("/v1/refund", &refund("bob")).await;
    assert!(wrong.status == 400 && wrong.body.contains("for another request"), "{}", wrong.body);
    assert_eq!(http.post("/v1/refund", &refund("alice")).await.status, 200);
    assert_eq!(node.used(ALICE).await, [0]);
}

#[tokio::test]
async fn whoever_is_admitted_by_another_quota_is_not_among_the_refused() {
    let quota = "domain: shop\ndescriptors:\n  \
                 - { key: small, quota_mode: true, rate_limit: { limit: 1/1h } }\n  \
                 - { key: large, quota_mode: true, rate_limit: { limit: 100/1h } }\n";
    let node = Node::start(quota);
    let entry = |key: &str| json!({ "entries": [{ "key": key, "value": "a" }] });
    let body = json!({ "descriptors": [entry("small"), entry("large")] }).to_string();
    let mut http = node.http().await;
    for _ in 0..4 {
        assert_eq!(http.post("/v1/check", &body).await.json()["allowed"], true);
    }
    assert_eq!(http.get("/v1/top").await.json()["keys"], json!([]));
    assert!(!node.log().contains("refused a request"), "{}", node.log());
}

#[tokio::test]
async fn explanations_and_metrics_of_many_at_once_take_turns() {
    let node = Node::start(RULES);
    let asked: Vec<_> = (0..40)
        .map(|at| {
            let address = node.http;
            tokio::spawn(async move {
                let mut http = crate::support::Http::connect(address).await;
                match at % 2 {
                    0 => http.get("/metrics").await.status,
                    _ => http.post("/v1/check?explain", ALICE).await.status,
                }
            })
        })
        .collect();
    for answer in asked {
        assert_eq!(answer.await.expect("an answer"), 200);
    }
    assert!(node.threads() < 20, "{} threads", node.threads());
}

#[tokio::test]
async fn a_domain_that_no_rule_has_is_told_of() {
    let node = Setup::new(RULES).set("http-default-domain", "shpo").start();
    let told = node.http().await.get("/readyz?verbose").await.body;
    assert!(told.contains("http.default_domain names `shpo`, which no rule has"), "{told}");
    crate::support::until("it is logged", async || node.log().contains("domain=shpo").then_some(())).await;
}
