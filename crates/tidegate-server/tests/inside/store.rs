//! A store that does not answer: every request is answered by the policy of its rules, and that is counted; the node goes on.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tidegate_clock::Stopwatch;
use tidegate_core::Query;
use tidegate_counters::{Address, Memory, MemorySize, RedisSettings, RedisStore, Store, Topology};
use tidegate_server::rls::CallError;

use crate::node::{Inside, START, http};

const RULES: &str = "
domain: shop
descriptors:
  - key: allow
    rate_limit: { limit: 3/1h, on_store_failure: allow }
    descriptors:
      - key: deny
        rate_limit: { limit: 3/1h, on_store_failure: deny }
  - key: deny
    rate_limit: { limit: 3/1h, on_store_failure: deny, name: no }
  - key: error
    rate_limit: { limit: 3/1h, on_store_failure: error }
  - key: local
    rate_limit: { limit: 3/1h, on_store_failure: local }
  - key: free
    rate_limit: { unlimited: true }
---
domain: both
match: path
descriptors:
  - key: allow
    rate_limit: { limit: 3/1h, on_store_failure: allow }
    descriptors:
      - key: deny
        rate_limit: { limit: 3/1h, on_store_failure: deny }
        descriptors:
          - key: error
            rate_limit: { limit: 3/1h, on_store_failure: error }
";

/// Where nobody listens: whoever connects is refused at once.
fn nowhere() -> Store {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    let topology = Topology::Standalone(Address::Tcp("127.0.0.1".into(), port));
    let own = Memory::new(MemorySize::of_bytes(1 << 20), START).expect("a megabyte");
    Store::Redis(RedisStore::new(RedisSettings::new(topology), Arc::new(own)))
}

fn body(domain: &str, entries: &[(&str, &str)]) -> String {
    let entries: Vec<String> =
        entries.iter().map(|(key, value)| format!(r#"{{"key":"{key}","value":"{value}"}}"#)).collect();
    format!(r#"{{"domain":"{domain}","descriptors":[{{"entries":[{}]}}]}}"#, entries.join(","))
}

#[test]
fn each_rule_says_what_holds_when_the_store_does_not_answer() {
    let node = Inside::on(nowhere(), RULES, None);
    for key in ["allow", "free", "nobody"] {
        let response = node.ask(&[(key, "alice")], 1).expect("an answer");
        assert_eq!((response.overall_code, response.statuses[0].code), (1, 1), "{key}");
        assert_eq!(response.statuses[0].current_limit, None, "nothing was counted");
    }
    let response = node.ask(&[("deny", "alice")], 1).expect("an answer");
    assert_eq!((response.overall_code, response.statuses[0].code), (2, 2));
    let reset = response.statuses[0].duration_until_reset.expect("a reset");
    assert_eq!((response.statuses[0].limit_remaining, reset.seconds), (0, 1));
    assert_eq!(node.ask(&[("error", "alice")], 1), Err(CallError::Unavailable));
    // A tenth of three is none, but one is the least: nobody knows how many nodes there are.
    for expected in [1, 2] {
        let status = node.ask(&[("local", "alice")], 1).expect("an answer").statuses.remove(0);
        let limit = status.current_limit.as_ref().map(|limit| limit.requests_per_unit);
        assert_eq!((status.code, limit, status.limit_remaining), (expected, Some(3), 0), "{status:?}");
    }
    assert_eq!(node.ask(&[("local", "bob")], 1).expect("an answer").overall_code, 1, "another caller");
}

/// How long somebody waits for a store that takes connections and then says nothing.
#[test]
fn the_answer_comes_by_the_deadline_and_in_time_for_callers_with_less_patience() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket"); // Nobody accepts: the handshake is never answered.
    let port = listener.local_addr().expect("an address").port();
    let mut settings = RedisSettings::new(Topology::Standalone(Address::Tcp("127.0.0.1".into(), port)));
    settings.timeout = Duration::from_secs(10);
    settings.connect_timeout = Duration::from_secs(10);
    settings.circuit.failures = 0;
    let own = Memory::new(MemorySize::of_bytes(1 << 20), START).expect("a megabyte");
    let node = Inside::on(Store::Redis(RedisStore::new(settings, Arc::new(own))), RULES, None);
    let took = |patience: Option<Duration>| {
        let watch = Stopwatch::start();
        let answer = node.ask_within(&[("allow", "alice")], 1, patience).expect("an answer");
        assert_eq!(answer.overall_code, 1);
        watch.elapsed()
    };
    let patience = Duration::from_millis(12);
    let (slow, quick) = (took(None), took(Some(patience)));
    // With slack: the machine may sleep. Without the timer it would be ten seconds.
    let slack = Duration::from_secs(5);
    assert!(slow >= Duration::from_millis(15) && slow < slack, "{slow:?}");
    assert!(quick >= Duration::from_millis(9) && quick < slack, "{quick:?}");
    // Before the caller gives up, whenever nobody else has the machine.
    assert!((0..300).any(|_| took(Some(patience)) < patience));
}

#[test]
fn over_http_too_and_the_strictest_of_several_rules_holds() {
    let node = Inside::on(nowhere(), RULES, None);
    let address = node.serve();
    let deny = [("allow", "a"), ("deny", "a")];
    let error = [("allow", "a"), ("deny", "a"), ("error", "a")];
    for (domain, entries, status, told) in [
        ("shop", &[("allow", "a")][..], "200", r#""allowed":true"#),
        ("shop", &[("local", "a")], "200", r#""mode":"degraded","bound":"unbounded","policy":"local""#),
        ("shop", &[("local", "a")], "429", r#""code":"RATE_LIMITED""#),
        ("shop", &[("free", "a")], "200", r#""allowed":true"#),
        ("shop", &[("deny", "a")], "503", "STORE_UNAVAILABLE"),
        ("shop", &[("error", "a")], "503", "STORE_UNAVAILABLE"),
        ("both", &deny, "503", "STORE_UNAVAILABLE"),
        ("both", &error, "503", "STORE_UNAVAILABLE"),
    ] {
        let answer = http(address, "POST", "/v1/check?enforce", &body(domain, entries));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{entries:?}: {answer}");
        assert!(answer.contains(told), "{entries:?}: {answer}");
    }
    let all: Vec<String> =
        [("allow", "a"), ("deny", "a"), ("free", "a")].map(|entry| body("shop", &[entry])).into();
    let several = http(address, "POST", "/v1/check", &format!("[{}]", all.join(",")));
    let allowed: Vec<&str> = several.split(r#""allowed":"#).skip(1).map(|rest| &rest[..4]).collect();
    assert_eq!(allowed, ["true", "fals", "true"], "{several}");

    let metrics = http(address, "GET", "/metrics", "");
    for row in [
        "ratelimit_failopen_total 2",
        "ratelimit_store_failures_total{policy=\"allow\"} 2",
        "ratelimit_store_failures_total{policy=\"local\"} 2",
        "ratelimit_store_failures_total{policy=\"deny\"} 3",
        "ratelimit_store_failures_total{policy=\"error\"} 2",
        "outcome=\"degraded\"} 2",
        "tidegate_internal_errors_total{policy=\"allow\"} 0",
        "ratelimit_store_in_flight 0",
    ] {
        assert!(metrics.contains(row), "{row} in {metrics}");
    }
    let ready = http(address, "GET", "/readyz?verbose", "");
    assert!(ready.starts_with("HTTP/1.1 200 OK"), "a node whose store is away is ready: {ready}");
    assert!(
        ready.contains("the fleet shares them") && ready.contains("degraded: it did not answer ("),
        "{ready}"
    );
}

#[test]
fn what_cannot_be_looked_at_is_an_error() {
    let node = Inside::on(nowhere(), RULES, None);
    let address = node.serve();
    let body = body("shop", &[("deny", "a")]);
    for path in ["/v1/check?explain", "/v1/inspect", "/v1/counters/reset"] {
        let answer = http(address, "POST", path, &body);
        assert!(
            answer.starts_with("HTTP/1.1 503 ") && answer.contains("STORE_UNAVAILABLE"),
            "{path}: {answer}"
        );
    }
    let free = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"free"}]}]}"#;
    let answer = http(address, "POST", "/v1/check?explain", free);
    assert!(answer.contains(r#""admitted":true"#), "nobody has to be asked: {answer}");
    let counter = "/v1/counters/000102030405060708090a0b0c0d0e0f?rule=shop%7Cdeny%23no";
    let answer = http(address, "GET", counter, "");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("tag="), "{answer}");
}

fn fault(query: &Query<'_>) {
    assert!(query.entries.iter().all(|entry| entry.value != "boom"), "broken on purpose");
}

#[test]
fn a_decision_that_breaks_beside_a_store_is_answered_by_policy_too() {
    let node = Inside::on(nowhere(), RULES, Some(fault));
    for _ in 0..3 {
        assert_eq!(node.ask(&[("allow", "boom")], 1).expect("an answer").overall_code, 1);
        assert_eq!(node.ask(&[("deny", "boom")], 1).expect("an answer").overall_code, 2);
        assert_eq!(node.ask(&[("error", "boom")], 1), Err(CallError::Unavailable));
    }
    let metrics = http(node.serve(), "GET", "/metrics", "");
    assert!(metrics.contains("tidegate_internal_errors_total{policy=\"deny\"} 3"), "{metrics}");
    assert!(metrics.contains("ratelimit_store_failures_total{policy=\"deny\"} 0"), "{metrics}");
}
