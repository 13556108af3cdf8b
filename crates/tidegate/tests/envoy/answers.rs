//! Admissions and refusals, as callers see them.

use crate::envoy::Door;
use crate::figures::tell;
use crate::rig::Needs;
use crate::support::{Http, until};

const HOUR: std::ops::RangeInclusive<u64> = 1..=3_600;

fn seconds(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no number of seconds"))
}

#[tokio::test]
async fn who_is_over_the_limit_gets_429_with_envoys_headers() {
    let Some(rig) = Needs::memory().start().await else { return };
    for left in ["2", "1", "0"] {
        let reply = rig.get(Door::Open, "/plain", "alice").await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("x-ratelimit-limit"), r#"3, 3;w=3600;name="per-key""#);
        assert_eq!(reply.header("x-ratelimit-remaining"), left);
        assert!(HOUR.contains(&seconds(reply.header("x-ratelimit-reset"))), "{reply:?}");
        assert_eq!((reply.header("x-envoy-ratelimited"), reply.header("retry-after")), ("", ""));
    }
    let reply = rig.get(Door::Open, "/plain", "alice").await;
    assert_eq!((reply.status, reply.header("x-envoy-ratelimited")), (429, "true"));
    assert_eq!(reply.header("x-ratelimit-remaining"), "0");
    let (reset, retry) = (seconds(reply.header("x-ratelimit-reset")), seconds(reply.header("retry-after")));
    assert!(HOUR.contains(&reset) && retry == reset, "{reply:?}");
    assert_eq!(rig.get(Door::Open, "/plain", "bob").await.status, 200, "everybody has a limit of their own");
    assert_eq!(rig.used("api_key", "alice").await, 3, "who was refused is not charged");
    assert_eq!(rig.upstream.seen("alice").all, 3);
    tell(
        "who_is_over_the_limit_gets_429_with_envoys_headers",
        &format!("3 of 4 pass, retry after {retry} s"),
    );
}

#[tokio::test]
async fn a_node_is_asked_at_a_socket_of_the_file_system() {
    let Some(rig) = Needs::memory().sockets().start().await else { return };
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(rig.get(Door::Open, "/plain", "alice").await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
    tell("a_node_is_asked_at_a_socket_of_the_file_system", "3 of 4 pass");
}

#[tokio::test]
async fn headers_of_the_ietf_and_our_body_pass_through_envoy() {
    let needs = Needs::memory().set("rls-headers", "ietf-11,retry-after").set("rls-body", "error");
    let Some(rig) = needs.start().await else { return };
    for left in [2, 1, 0] {
        let reply = rig.get(Door::Open, "/plain", "alice").await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("ratelimit-policy"), r#""per-key";q=3;w=3600"#);
        assert!(reply.header("ratelimit").starts_with(&format!(r#""per-key";r={left};t="#)), "{reply:?}");
    }
    let reply = rig.get(Door::Open, "/plain", "alice").await;
    assert_eq!((reply.status, reply.header("content-type")), (429, "application/json"));
    assert!(reply.header("ratelimit").starts_with(r#""per-key";r=0;t="#), "{reply:?}");
    let error = &reply.json()["error"];
    assert_eq!(
        (&error["code"], &error["limit"], &error["window"]),
        (&"RATE_LIMITED".into(), &3.into(), &"1h".into())
    );
    assert_eq!(error["retry_after"].as_u64(), Some(seconds(reply.header("retry-after"))));
    tell("headers_of_the_ietf_and_our_body_pass_through_envoy", &reply.body);
}

#[tokio::test]
async fn callers_of_grpc_get_a_status_of_grpc() {
    let Some(rig) = Needs::memory().start().await else { return };
    let headers = [("x-api-key", "alice"), ("content-type", "application/grpc"), ("te", "trailers")];
    for _ in 0..3 {
        rig.get(Door::Open, "/plain", "alice").await;
    }
    for (door, status) in [(Door::Open, "14"), (Door::Closed, "8")] {
        let mut http = Http::connect(rig.envoy.address(door)).await;
        let reply = http.request("POST", "/plain", &headers, "\0\0\0\0\0").await;
        assert_eq!((reply.status, reply.header("grpc-status")), (200, status), "{door:?}");
    }
    tell("callers_of_grpc_get_a_status_of_grpc", "UNAVAILABLE, or RESOURCE_EXHAUSTED where Envoy says so");
}

#[tokio::test]
async fn weights_come_from_a_header_and_have_a_default() {
    let Some(rig) = Needs::memory().start().await else { return };
    let ask = async |weight: Option<&str>| {
        let headers = [Some(("x-api-key", "alice")), weight.map(|weight| ("x-weight", weight))];
        rig.get_with(Door::Open, "/weight", &headers.into_iter().flatten().collect::<Vec<_>>()).await
    };
    for (weight, status, used, why) in [
        (Some("7"), 200, 7, "as the header says"),
        (None, 200, 9, "two, if it is missing"),
        (Some("2"), 429, 9, "one is left"),
        (Some("0"), 200, 9, "a look"),
        (Some("1"), 200, 10, "the last"),
        (Some("0"), 429, 10, "a look where nothing is left"),
    ] {
        let reply = ask(weight).await;
        assert_eq!((reply.status, rig.used("weight", "alice").await), (status, used), "{why}");
    }
    tell("weights_come_from_a_header_and_have_a_default", "7 + 2 + 1 of 10");
}

#[tokio::test]
async fn a_limit_from_metadata_replaces_the_rule() {
    let Some(rig) = Needs::memory().start().await else { return };
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let reply = rig.get(Door::Closed, "/plan", "alice").await;
        assert_eq!(reply.header("x-ratelimit-limit"), "2, 2;w=3600", "{reply:?}");
        statuses.push(reply.status);
    }
    assert_eq!(statuses, [200, 200, 429, 429]);
    assert_eq!(rig.used("plan", "alice").await, 0, "the rule's own counter is not touched");
    tell("a_limit_from_metadata_replaces_the_rule", "2 of 4 pass, where the rule has 1000");
}

#[tokio::test]
async fn descriptors_without_entries_are_answered_ok() {
    let Some(rig) = Needs::memory().start().await else { return };
    for _ in 0..5 {
        let reply = rig.get_with(Door::Closed, "/optional", &[]).await;
        assert_eq!((reply.status, reply.header("x-ratelimit-limit")), (200, ""), "nothing is counted");
    }
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(rig.get(Door::Closed, "/optional", "alice").await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 429], "the other descriptor counts");
    assert_eq!(rig.envoy.stat("cluster.upstream.ratelimit.closed.error").await, 0);
    tell("descriptors_without_entries_are_answered_ok", "5 of 5 pass");
}

#[tokio::test]
async fn an_empty_value_is_a_value() {
    let Some(rig) = Needs::memory().start().await else { return };
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(rig.get(Door::Closed, "/plain", "").await.status);
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert_eq!(rig.used("api_key", "").await, 3);
    tell("an_empty_value_is_a_value", "3 of 4 pass");
}

#[tokio::test]
async fn a_rule_in_shadow_is_seen_by_operators_alone() {
    let Some(rig) = Needs::memory().start().await else { return };
    for _ in 0..3 {
        let reply = rig.get(Door::Closed, "/trial", "alice").await;
        assert_eq!((reply.status, reply.header("x-envoy-ratelimited")), (200, ""));
    }
    let refused = rig.metric("ratelimit_decisions_total", r#"outcome="shadow_refused""#).await;
    assert_eq!(refused, 2, "the limit is one");
    assert_eq!(rig.envoy.stat("cluster.upstream.ratelimit.closed.over_limit").await, 0);
    tell("a_rule_in_shadow_is_seen_by_operators_alone", "3 of 3 pass, 2 would not");
}

#[tokio::test]
async fn the_access_log_can_say_which_rule_spoke() {
    let Some(rig) = Needs::memory().set("rls-metadata", "true").start().await else { return };
    for _ in 0..4 {
        rig.get(Door::Open, "/plain", "alice").await;
    }
    let lines: Vec<String> = until("all requests are in the access log", async || {
        let log = rig.envoy.access_log();
        let lines: Vec<String> =
            log.lines().filter(|line| line.contains("/plain")).map(str::to_owned).collect();
        (lines.len() == 4).then_some(lines)
    })
    .await;
    let said = r#""rule":"gateway|api_key#per-key""#;
    assert!(lines.iter().all(|line| line.contains(said) && line.contains(r#""mode":"local""#)), "{lines:#?}");
    assert!(lines[3].starts_with("open /plain 429 RL "), "on both outcomes: {lines:#?}");
    tell("the_access_log_can_say_which_rule_spoke", &lines[3]);
}
