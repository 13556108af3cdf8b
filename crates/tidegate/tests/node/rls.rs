//! Envoy's protocol, every field of it both ways.

use prost::Message as _;

use crate::support::frames::{DATA, Frames, SETTINGS, call, frame, reset, streams};
use crate::support::grpc::{SHOULD_RATE_LIMIT, framed};
use crate::support::messages::{Descriptor, Override, Request, Response, Status, Value};
use crate::support::{Grpc, Node, Setup, asks, at_once, descriptor, until};

const OK: i32 = 1;
const OVER: i32 = 2;

const RULES: &str = "
domain: shop
allow_refunds: true
descriptors:
  - key: user
    rate_limit: { limit: 5/1h, name: per-user }
  - key: ten
    rate_limit: { limit: 50/10m }
  - key: blink
    rate_limit: { limit: 3/500ms }
  - key: month
    rate_limit: { limit: 7/month, algorithm: calendar }
  - key: week
    rate_limit: { limit: 7/14d }
  - key: short
    rate_limit: { limit: 1/10s }
  - key: many
    rate_limit: { limit: 4000000000/1h }
  - key: shadow
    shadow_mode: true
    rate_limit: { limit: 1/1h }
  - key: small
    quota_mode: true
    rate_limit: { limit: 1/1h }
  - key: large
    quota_mode: true
    rate_limit: { limit: 2/1h }
  - key: free
    rate_limit: { unlimited: true }
  - key: in_flight
    rate_limit: { limit: 2, algorithm: concurrency, ttl: 60s, lease_id: request_id }
  - key: a
    descriptors:
      - key: b
        rate_limit: { limit: 3/1h }
---
domain: strict
descriptors:
  - key: user
    rate_limit: { limit: 5/1h }
";

fn codes(response: &Response) -> (i32, Vec<i32>) {
    (response.overall_code, response.statuses.iter().map(|status| status.code).collect())
}

fn hits(entries: &[(&str, &str)], hits: u64) -> Descriptor {
    Descriptor { hits_addend: Some(hits), ..descriptor(entries) }
}

fn refund(entries: &[(&str, &str)], units: u64) -> Descriptor {
    Descriptor { is_negative_hits: true, ..hits(entries, units) }
}

fn with_limit(entries: &[(&str, &str)], amount: u32, unit: i32, multiplier: Option<u32>) -> Descriptor {
    let limit = Override { requests_per_unit: amount, unit, unit_multiplier: multiplier };
    Descriptor { limit: Some(limit), ..descriptor(entries) }
}

/// The one status of a request with one descriptor.
async fn status(rls: &Grpc, one: Descriptor) -> Status {
    let response = rls.ask(&asks("shop", [one])).await;
    assert_eq!(response.statuses.len(), 1);
    assert_eq!(response.statuses[0].code, response.overall_code);
    response.statuses[0].clone()
}

async fn remaining(rls: &Grpc, one: Descriptor) -> (i32, u32) {
    let status = status(rls, one).await;
    (status.code, status.limit_remaining)
}

#[tokio::test]
async fn hits_are_charged_peeked_at_and_given_back() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    let alice = [("user", "alice")];
    for (one, expected, why) in [
        (descriptor(&alice), (OK, 4), "one, if nobody says how many"),
        (hits(&alice, 3), (OK, 1), "as many as the descriptor says"),
        (hits(&alice, 0), (OK, 1), "nothing: a peek"),
        (hits(&alice, 2), (OVER, 1), "nothing, since it does not fit"),
        (hits(&alice, 1), (OK, 0), "the last one"),
        (hits(&alice, 0), (OVER, 0), "a peek where nothing is left"),
        (refund(&alice, 2), (OK, 2), "two are given back"),
        (refund(&alice, 100), (OK, 5), "never more than was used"),
        (hits(&alice, 6), (OVER, 5), "more than the limit can ever hold"),
        (hits(&alice, u64::MAX), (OVER, 5), "any number"),
        (refund(&alice, u64::MAX), (OK, 5), "any number"),
    ] {
        assert_eq!(remaining(&rls, one).await, expected, "{why}");
    }
}

#[tokio::test]
async fn hits_of_the_request_hold_for_descriptors_without_their_own() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    let request =
        Request { hits_addend: 2, ..asks("shop", [descriptor(&[("user", "a")]), hits(&[("ten", "a")], 7)]) };
    let response = rls.ask(&request).await;
    let left: Vec<u32> = response.statuses.iter().map(|status| status.limit_remaining).collect();
    assert_eq!((codes(&response), left), ((OK, vec![OK, OK]), vec![3, 43]));
    let of_request = Request { hits_addend: 4_000_000_000, ..asks("shop", [descriptor(&[("many", "a")])]) };
    assert_eq!(rls.ask(&of_request).await.statuses[0].limit_remaining, 0, "all 32 bits");
}

#[tokio::test]
async fn refunds_are_ignored_and_counted_where_the_domain_does_not_allow_them() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    let alice = [("user", "alice")];
    let ask = async |one| rls.ask(&asks("strict", [one])).await.statuses[0].clone();
    assert_eq!(ask(hits(&alice, 3)).await.limit_remaining, 2);
    assert_eq!(ask(refund(&alice, 3)).await.code, OK);
    assert_eq!(ask(hits(&alice, 0)).await.limit_remaining, 2, "nothing was given back");
    assert_eq!(node.metric("ratelimit_refunds_ignored_total", "").await, 1);
}

#[tokio::test]
async fn a_request_is_all_or_nothing_and_its_statuses_are_in_order() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    rls.ask(&asks("shop", [hits(&[("user", "full")], 5)])).await;
    let request = asks(
        "shop",
        [
            descriptor(&[("ten", "a")]),
            descriptor(&[]),
            descriptor(&[("user", "full")]),
            descriptor(&[("nobody", "knows")]),
            descriptor(&[("user", "other")]),
        ],
    );
    let response = rls.ask(&request).await;
    assert_eq!(codes(&response), (OVER, vec![OK, OK, OVER, OK, OK]));
    let limits: Vec<Option<u32>> = response
        .statuses
        .iter()
        .map(|status| status.current_limit.as_ref().map(|limit| limit.requests_per_unit))
        .collect();
    assert_eq!(limits, [Some(50), None, Some(5), None, Some(5)]);
    assert_eq!(remaining(&rls, hits(&[("ten", "a")], 0)).await, (OK, 50), "nobody was charged");
    assert_eq!(remaining(&rls, hits(&[("user", "other")], 0)).await, (OK, 5));
}

#[tokio::test]
async fn what_no_rule_is_about_is_let_through() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    let blank = Status { code: OK, ..Status::default() };
    for (domain, one, why) in [
        ("shop", descriptor(&[]), "a descriptor without entries"),
        ("shop", descriptor(&[("nobody", "knows")]), "no rule"),
        ("shop", descriptor(&[("a", "x")]), "a path that has no limit at its end"),
        ("nowhere", descriptor(&[("user", "alice")]), "an unknown domain"),
        ("nowhere", with_limit(&[("user", "alice")], 1, 2, None), "a limit of its own there"),
    ] {
        for _ in 0..3 {
            let response = rls.ask(&asks(domain, [one.clone()])).await;
            assert_eq!((response.overall_code, &response.statuses), (OK, &vec![blank.clone()]), "{why}");
        }
    }
    assert_eq!(
        status(&rls, descriptor(&[("free", "x")])).await,
        Status { limit_remaining: u32::MAX, ..blank }
    );
}

#[tokio::test]
async fn empty_values_and_any_bytes_have_counters_of_their_own() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    // Separators, control characters and texts that another spelling could be taken for.
    let values = ["", " ", "a", "a\0", "{a}", "a|b", "a\r\nx: y", "é", "e\u{301}", "\u{10ffff}", "a_b", "*"];
    for value in values {
        assert_eq!(remaining(&rls, descriptor(&[("user", value)])).await, (OK, 4), "{value:?}");
    }
    for (one, other) in [("a|b", "c"), ("a", "b|c"), ("", "a|b|c"), ("a\0b", "c"), ("a", "\0bc")] {
        assert_eq!(
            remaining(&rls, descriptor(&[("a", one), ("b", other)])).await,
            (OK, 2),
            "{one:?} {other:?}"
        );
    }
    for value in values {
        assert_eq!(
            remaining(&rls, descriptor(&[("user", value)])).await,
            (OK, 3),
            "the same again: {value:?}"
        );
    }
}

#[tokio::test]
async fn a_descriptor_may_bring_its_own_limit() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    let own = status(&rls, with_limit(&[("user", "alice")], 2, 2, Some(3))).await;
    let limit = own.current_limit.expect("a limit");
    assert_eq!((limit.requests_per_unit, limit.unit, limit.unit_multiplier), (2, 2, Some(3)));
    assert_eq!((limit.name.as_str(), own.limit_remaining), ("", 1));
    assert_eq!(remaining(&rls, descriptor(&[("user", "alice")])).await, (OK, 4), "the rule was not asked");
    assert_eq!(
        remaining(&rls, with_limit(&[("user", "alice")], 9, 2, Some(3))).await,
        (OK, 7),
        "another amount, the same counter"
    );
    assert_eq!(remaining(&rls, with_limit(&[("no", "rule")], 2, 3, None)).await, (OK, 1));
    assert_eq!(
        remaining(&rls, with_limit(&[("user", "bob")], 2, 0, None)).await,
        (OK, 4),
        "an unknown unit: the rule holds"
    );
    assert_eq!(
        remaining(&rls, with_limit(&[("user", "bob")], 2, 99, None)).await,
        (OK, 3),
        "so does any other"
    );
    for (amount, unit, multiplier, why) in
        [(5, 6, Some(2), "two years"), (5, 1, Some(0), "no time"), (5, 6, Some(u32::MAX), "eternity")]
    {
        let refused = status(&rls, with_limit(&[("user", "carol")], amount, unit, multiplier)).await;
        assert_eq!(refused, Status { code: OVER, ..Status::default() }, "{why} cannot be counted");
    }
    assert_eq!(status(&rls, with_limit(&[("user", "dave")], 0, 2, None)).await.code, OVER, "none is none");
}

#[tokio::test]
async fn a_limit_is_told_in_its_largest_unit() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    for (key, told) in [
        ("user", Some((5, 3, None))),
        ("ten", Some((50, 2, Some(10)))),
        ("week", Some((7, 7, Some(2)))),
        ("short", Some((1, 1, Some(10)))),
        ("month", Some((7, 5, None))),
        ("blink", None),
        ("in_flight", None),
    ] {
        let status = status(&rls, descriptor(&[(key, "x")])).await;
        let limit = status.current_limit.as_ref();
        assert_eq!(
            limit.map(|limit| (limit.requests_per_unit, limit.unit, limit.unit_multiplier)),
            told,
            "{key}"
        );
        let reset = status.duration_until_reset.expect("a reset");
        assert!(reset.seconds >= 1 && reset.nanos == 0, "{key}: {reset:?}");
        assert_eq!(limit.map_or("", |limit| &limit.name), if key == "user" { "per-user" } else { "" });
    }
    // A moment later less than ten seconds are left: Envoy rounds down, so it has to be told ten.
    let refused = at_once(async |turn| {
        let who = format!("x{turn}");
        status(&rls, descriptor(&[("short", &who)])).await;
        status(&rls, descriptor(&[("short", &who)])).await
    })
    .await;
    assert_eq!((refused.code, refused.duration_until_reset.map(|reset| reset.seconds)), (OVER, Some(10)));
}

#[tokio::test]
async fn of_a_quota_one_limit_has_to_have_room() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    let request = asks("shop", [descriptor(&[("small", "a")]), descriptor(&[("large", "a")])]);
    for expected in [(OK, vec![OK, OK]), (OK, vec![OVER, OK]), (OVER, vec![OVER, OVER])] {
        assert_eq!(codes(&rls.ask(&request).await), expected);
    }
}

#[tokio::test]
async fn a_shadow_counts_and_never_refuses() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    for _ in 0..3 {
        assert_eq!(status(&rls, descriptor(&[("shadow", "a")])).await.code, OK);
    }
    assert_eq!(node.metric("ratelimit_decisions_total", "outcome=\"shadow_refused\"").await, 2);
}

#[tokio::test]
async fn places_are_held_by_an_id_that_comes_as_metadata() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    let held = [("in_flight", "alice")];
    let take = async || rls.ask(&asks("shop", [descriptor(&held)])).await;
    let id = |response: &Response| -> Option<String> {
        response.dynamic_metadata.as_ref()?.fields.get("request_id")?.text.clone()
    };
    let (first, second, third) = (take().await, take().await, take().await);
    let (first_id, second_id) = (id(&first).expect("an id"), id(&second).expect("an id"));
    assert_ne!(first_id, second_id);
    assert_eq!((third.overall_code, third.dynamic_metadata), (OVER, None), "no place, no id");
    let give_back = |id: &str| asks("shop", [refund(&[("in_flight", "alice"), ("request_id", id)], 1)]);
    assert_eq!(rls.ask(&give_back("0123456789abcdef")).await.overall_code, OK);
    assert_eq!(take().await.overall_code, OVER, "nobody holds that one");
    for _ in 0..2 {
        assert_eq!(rls.ask(&give_back(&first_id)).await.overall_code, OK);
    }
    assert_eq!(take().await.overall_code, OK);
    assert_eq!(take().await.overall_code, OVER, "given back twice, it is free once");
    // An id of the caller's own is kept.
    assert_eq!(rls.ask(&give_back(&second_id)).await.overall_code, OK);
    let named = rls.ask(&asks("shop", [descriptor(&[("in_flight", "alice"), ("request_id", "mine")])])).await;
    assert_eq!(named.overall_code, OK);
    rls.ask(&give_back("mine")).await;
    assert_eq!(take().await.overall_code, OK);
}

#[tokio::test]
async fn headers_bodies_and_metadata_come_where_they_are_wanted() {
    let quiet = Node::start(RULES);
    let response = quiet.rls().await.ask(&asks("shop", [hits(&[("user", "a")], 6)])).await;
    assert_eq!((response.response_headers_to_add.len(), response.raw_body.len()), (0, 0));
    assert_eq!((response.request_headers_to_add.len(), response.dynamic_metadata), (0, None));

    let setup = Setup::new(RULES).set("rls-headers", "ietf-11,retry-after");
    let node = setup.set("rls-body", "error").set("rls-metadata", "true").start();
    let rls = node.rls().await;
    let headers = |response: &Response| -> Vec<String> {
        let headers = response.response_headers_to_add.iter();
        headers.map(|header| format!("{}: {}", header.key, header.value)).collect()
    };
    let (admitted, refused) = at_once(async |turn| {
        let asked = asks("shop", [hits(&[("user", &format!("a{turn}"))], 3)]);
        (rls.ask(&asked).await, rls.ask(&asked).await)
    })
    .await;
    assert_eq!(
        headers(&admitted),
        ["ratelimit-policy: \"per-user\";q=5;w=3600", "ratelimit: \"per-user\";r=2;t=3600"]
    );
    assert_eq!(admitted.raw_body, b"");
    let told = admitted.dynamic_metadata.expect("metadata").fields;
    let told = told["tidegate"].fields.as_ref().expect("fields").fields.clone();
    let text = |text: &str| Value { text: Some(text.into()), ..Value::default() };
    let number = |number: f64| Value { number: Some(number), ..Value::default() };
    assert_eq!((&told["rule"], &told["mode"]), (&text("shop|user#per-user"), &text("local")));
    assert_eq!((&told["bound_over"], &told["bound_under"]), (&number(0.0), &number(0.0)));

    assert_eq!(
        headers(&refused),
        [
            "ratelimit-policy: \"per-user\";q=5;w=3600",
            "ratelimit: \"per-user\";r=2;t=3600",
            "retry-after: 3600",
            "content-type: application/json",
        ]
    );
    let body = crate::support::process::parse(std::str::from_utf8(&refused.raw_body).expect("text"));
    assert_eq!((&body["error"]["code"], &body["error"]["limit"]), (&"RATE_LIMITED".into(), &5.into()));
    assert_eq!((&body["error"]["retry_after"], &body["error"]["window"]), (&3_600.into(), &"1h".into()));
}

#[tokio::test]
async fn health_and_reflection_are_served_beside() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    let check = async |service: &str| {
        let mut message = vec![10, service.len() as u8];
        message.extend(service.as_bytes());
        rls.call("/grpc.health.v1.Health/Check", &message, &[]).await
    };
    for service in ["", "envoy.service.ratelimit.v3.RateLimitService"] {
        assert_eq!(check(service).await.expect("a status")[..], [8, 1], "serving: {service:?}");
    }
    assert!(check("nobody").await.is_err());
    for version in ["v1", "v1alpha"] {
        // `list_services`, the seventh field.
        let path = format!("/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo");
        let listed = rls.call(&path, &[7 << 3 | 2, 0], &[]).await.expect("a list");
        let listed = String::from_utf8_lossy(&listed).into_owned();
        for service in ["envoy.service.ratelimit.v3.RateLimitService", "grpc.health.v1.Health"] {
            assert!(listed.contains(service), "{version}: {listed}");
        }
    }
}

#[tokio::test]
async fn places_are_given_back_if_nobody_reads_the_answer() {
    let rules = "domain: shop\ndescriptors:\n  \
                 - { key: conc, rate_limit: { limit: 2, algorithm: concurrency, ttl: 1h, lease_id: lease } }\n";
    let node = Node::start(rules);
    let body = r#"{"descriptors": [{"entries": [{"key": "conc", "value": "a"}]}]}"#;
    // A client that takes no byte of an answer, so that it is decided and not sent.
    let stream = tokio::net::TcpStream::connect(node.rls).await.expect("a connection");
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(0);
    let (sender, connection) = builder.handshake::<_, bytes::Bytes>(stream).await.expect("a greeting");
    let connection = tokio::spawn(connection);
    let mut sender = sender.ready().await.expect("a connection");
    let request = http::Request::post(format!("http://node{SHOULD_RATE_LIMIT}"))
        .header("content-type", "application/grpc")
        .body(())
        .expect("a request");
    let (answer, mut send) = sender.send_request(request, false).expect("a stream");
    let message = asks("shop", [descriptor(&[("conc", "a")])]).encode_to_vec();
    send.send_data(framed(&message), true).expect("sent");
    until("the place is taken", async || (node.used(body).await == [1]).then_some(())).await;
    drop((answer, send)); // It gives up: the stream is reset.
    until("the place is free", async || (node.used(body).await == [0]).then_some(())).await;
    connection.abort();
}

#[tokio::test]
async fn places_of_calls_that_are_taken_back_at_once_are_given_back() {
    let rules = "domain: shop\ndescriptors:\n  \
                 - { key: conc, rate_limit: { limit: 1000, algorithm: concurrency, ttl: 1h, lease_id: lease } }\n";
    let node = Node::start(rules);
    let body = r#"{"descriptors": [{"entries": [{"key": "conc", "value": "a"}]}]}"#;
    let message = asks("shop", [descriptor(&[("conc", "a")])]).encode_to_vec();
    let mut frames = Frames::connect(node.rls).await;
    // Calls and their ends come together, as they do from Envoy when a node has paused.
    let both: Vec<u8> =
        streams().take(100).flat_map(|stream| [call(stream, &message), reset(stream)].concat()).collect();
    assert!(frames.send(&[both, call(201, &message)].concat()).await);
    assert!(frames.find(DATA, 201).await.is_some());
    until("all places but the last are free", async || (node.used(body).await == [1]).then_some(())).await;
    // A connection that ends with its answers unread gives them back too, as far as they were not sent.
    assert!(frames.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await);
    let calls: Vec<u8> = (203..303).step_by(2).flat_map(|stream| call(stream, &message)).collect();
    assert!(frames.send(&calls).await);
    until("places are taken", async || (node.used(body).await == [51]).then_some(())).await;
    drop(frames);
    until("they are free", async || (node.used(body).await == [1]).then_some(())).await;
}

#[tokio::test]
async fn whoever_names_an_id_is_not_told_another() {
    let rules = "domain: shop\ndescriptors:\n  \
                 - { key: conc, rate_limit: { limit: 2, algorithm: concurrency, ttl: 1h, lease_id: lease } }\n";
    let node = Node::start(rules);
    let rls = node.rls().await;
    let told = rls.ask(&asks("shop", [descriptor(&[("conc", "a")])])).await;
    assert!(told.dynamic_metadata.is_some(), "somebody has to be told: {told:?}");
    let named = rls.ask(&asks("shop", [descriptor(&[("conc", "a"), ("lease", "mine")])])).await;
    assert_eq!((named.overall_code, named.dynamic_metadata), (1, None));
}
