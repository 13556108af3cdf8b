//! What is not left to chance: cases in which the reference server does what nobody should copy, shown on the real one, and what it
//! answers to requests that are none.

use prost::Message as _;
use serde_json::json;
use tidegate_testbed::{Kind, Options, Reply, Server};

use crate::rules::{MARKER, marker_text};
use crate::servers::{Files, Program, Running};
use crate::support::grpc::SHOULD_RATE_LIMIT;
use crate::support::messages::{Descriptor, Override, Request, Response};
use crate::support::{asks, descriptor};

fn redis() -> Server {
    Server::start(Kind::Redis, &Options::new()).unwrap_or_else(|error| panic!("{error}"))
}

fn files() -> Files {
    let rule = |key: &str, limit: serde_json::Value| json!({"key": key, "rate_limit": limit});
    let limit = |amount: u32| json!({"unit": "hour", "requests_per_unit": amount});
    let named = |name: &str, other: &str| {
        let replaces = json!([{"name": other}]);
        json!({"unit": "hour", "requests_per_unit": 0, "name": name, "replaces": replaces})
    };
    let shop = json!({"domain": "shop", "descriptors": [
        rule("large", limit(100)), rule("small", limit(1)), rule("spelt_out", limit(5)),
        rule("one", named("one", "other")), rule("other", named("other", "one")),
    ]});
    Files::write(&[("shop", shop.to_string()), (MARKER, marker_text())])
}

async fn ask(server: &Running, request: &Request) -> Response {
    let bytes = server.grpc.call(SHOULD_RATE_LIMIT, &request.encode_to_vec(), &[]).await;
    let bytes = bytes.unwrap_or_else(|error| panic!("{}: {error:?}: {}", server.name, server.log()));
    Response::decode(bytes).expect("a response")
}

/// The faults that the list of differences and its reasons are about are really there.
#[tokio::test]
async fn the_faults_that_ours_does_not_copy_are_there() {
    let Some(program) = Program::reference() else { return };
    let (redis, files) = (redis(), files());
    let mut theirs = Running::start(&program, &files, redis.address(), "", &[]).await;
    let keys = |part: &str| {
        let keys = redis.keys().into_iter().map(|key| String::from_utf8_lossy(&key).into_owned());
        keys.filter(|key| key.contains(part)).collect::<Vec<_>>()
    };
    // A refused request uses up what it does not get.
    let both = asks("shop", [descriptor(&[("large", "")]), descriptor(&[("small", "")])]);
    for overall in [1, 2, 2] {
        assert_eq!(ask(&theirs, &both).await.overall_code, overall);
    }
    let [counter] = &keys("large")[..] else { panic!("{:?}", keys("large")) };
    assert_eq!(redis.command(&["GET", counter]), Reply::Bytes(b"3".to_vec()), "three of one");
    // Key and value are one text.
    let spelt = ask(&theirs, &asks("shop", [descriptor(&[("spelt", "out")])])).await;
    assert_eq!(spelt.statuses[0].limit_remaining, 4, "found by another spelling");
    // Two limits that replace each other both vanish.
    let replaced = asks("shop", [descriptor(&[("one", "")]), descriptor(&[("other", "")])]);
    assert_eq!(ask(&theirs, &replaced).await.overall_code, 1, "nothing is left of two limits of 0");
    // A peek writes a counter.
    let peek = Descriptor { hits_addend: Some(0), ..descriptor(&[("large", "peeked")]) };
    ask(&theirs, &asks("shop", [peek])).await;
    let [counter] = &keys("peeked")[..] else { panic!("{:?}", keys("peeked")) };
    assert_eq!(redis.command(&["GET", counter]), Reply::Bytes(b"0".to_vec()));
    // One request with a unit that is none ends the process.
    let limit = Some(Override { requests_per_unit: 1, unit: 0, unit_multiplier: None });
    let deadly = asks("shop", [Descriptor { limit, ..descriptor(&[("large", "")]) }]);
    assert!(theirs.is_running());
    let answer = theirs.grpc.call(SHOULD_RATE_LIMIT, &deadly.encode_to_vec(), &[]).await;
    assert!(answer.is_err(), "{answer:?}");
    theirs.ended().await;
}

/// What `/json` and the doors answer to requests that are none: a status and a body, by which others are compared.
pub(crate) const DOORS: &[(&str, &str, &str)] = &[
    ("POST", "/json", "{"),
    ("POST", "/json", ""),
    ("POST", "/json", "[]"),
    ("POST", "/json", r#"{"domain": "shop", "unknown": 1}"#),
    ("POST", "/json", r#"{"domain": 5}"#),
    ("POST", "/json", r#"{"domain": "shop"}"#),
    ("POST", "/json", r#"{"descriptors": [{"entries": [{"key": "large"}]}]}"#),
    ("POST", "/json", r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "nobody"}]}]}"#),
    (
        "POST",
        "/json",
        r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "nobody"}], "hitsAddend": "x"}]}"#,
    ),
    (
        "POST",
        "/json",
        r#"{"domain": "shop", "descriptors": [{"entries": [{"key": "nobody"}], "hits_addend": 2}], "hits_addend": 3}"#,
    ),
    ("GET", "/healthcheck", ""),
    ("POST", "/healthcheck", ""),
];

/// Statuses and bodies; JSON as what it means, since Go sets blanks as it likes.
pub(crate) async fn doors(server: &Running) -> Vec<(u16, serde_json::Value)> {
    let mut all = Vec::new();
    for (method, path, body) in DOORS {
        let page = server.http(method, path, body).await;
        all.push((page.status, serde_json::from_str(&page.body).unwrap_or_else(|_| page.body.into())));
    }
    all
}

#[tokio::test]
async fn requests_that_are_none_are_answered_with_400_and_no_reason() {
    let Some(program) = Program::reference() else { return };
    let (redis, files) = (redis(), files());
    let theirs = Running::start(&program, &files, redis.address(), "", &[]).await;
    let answers = doors(&theirs).await;
    let statuses: Vec<u16> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [400, 400, 400, 400, 400, 400, 400, 200, 400, 200, 200, 200], "{answers:?}");
    assert!(answers.iter().all(|(status, body)| *status != 400 || body == "Bad Request\n"), "{answers:?}");
}
