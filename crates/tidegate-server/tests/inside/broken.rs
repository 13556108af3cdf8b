//! A decision that breaks is answered by the policy of its rules and counted; the node and its counters go on.

use tidegate_core::Query;
use tidegate_server::rls::CallError;

use crate::node::{Inside, http};

const RULES: &str = "
domain: shop
descriptors:
  - key: allow
    rate_limit: { limit: 3/1h, on_store_failure: allow }
  - key: deny
    rate_limit: { limit: 3/1h, on_store_failure: deny }
  - key: error
    rate_limit: { limit: 3/1h, on_store_failure: error }
  - key: local
    rate_limit: { limit: 3/1h, on_store_failure: local }
";

/// Breaks for one caller.
fn fault(query: &Query<'_>) {
    assert!(query.entries.iter().all(|entry| entry.value != "boom"), "broken on purpose");
}

const UNKNOWN: &str = "nobody";

#[test]
fn a_broken_decision_is_answered_by_the_policy_of_its_rules() {
    let node = Inside::new(RULES, Some(fault));
    for _ in 0..3 {
        for key in ["allow", "local", UNKNOWN] {
            let response = node.ask(&[(key, "boom")], 1).expect("an answer");
            assert_eq!((response.overall_code, response.statuses[0].code), (1, 1), "{key}");
            assert_eq!(response.statuses[0].current_limit, None, "nothing was counted");
        }
        let response = node.ask(&[("deny", "boom")], 1).expect("an answer");
        assert_eq!((response.overall_code, response.statuses[0].code), (2, 2));
        let reset = response.statuses[0].duration_until_reset.expect("a reset");
        assert_eq!((response.statuses[0].limit_remaining, reset.seconds), (0, 1));
        assert_eq!(node.ask(&[("error", "boom")], 1), Err(CallError::Unavailable));
    }
    // Everybody else is counted as ever.
    for (left, code) in [(2, 1), (1, 1), (0, 1), (0, 2)] {
        let response = node.ask(&[("deny", "alice")], 1).expect("an answer");
        assert_eq!((response.statuses[0].limit_remaining, response.overall_code), (left, code));
    }
}

#[test]
fn over_http_too_and_it_is_counted() {
    let node = Inside::new(RULES, Some(fault));
    let address = node.serve();
    let body = |key: &str, value: &str| {
        format!(r#"{{"descriptors":[{{"entries":[{{"key":"{key}","value":"{value}"}}]}}]}}"#)
    };
    let unavailable = |policy: &str| {
        format!(
            r#"{{"allowed":false,"remaining":null,"limit":null,"retryAfterMs":1000,"reset":null,"rule":null,{}{policy}{}"#,
            r#""mode":"degraded","bound":"unbounded","policy":""#, r#"","code":"STORE_UNAVAILABLE"}"#,
        )
    };
    for (key, status, told) in [
        ("allow", "HTTP/1.1 200 OK", r#""allowed":true"#),
        ("local", "HTTP/1.1 200 OK", r#""bound":"unbounded""#),
        ("deny", "HTTP/1.1 200 OK", &unavailable("deny")),
        ("error", "HTTP/1.1 200 OK", &unavailable("error")),
    ] {
        let answer = http(address, "POST", "/v1/check", &body(key, "boom"));
        assert!(answer.starts_with(status) && answer.contains(told), "{key}: {answer}");
    }
    for key in ["deny", "error"] {
        let answer = http(address, "POST", "/v1/check?enforce", &body(key, "boom"));
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains(r#""code":"STORE_UNAVAILABLE""#), "{answer}");
    }
    let answer = http(address, "POST", "/v1/check", &body("deny", "alice"));
    assert!(answer.contains(r#""allowed":true,"remaining":2"#), "{answer}");
    let metrics = http(address, "GET", "/metrics", "");
    for row in [
        "tidegate_internal_errors_total{policy=\"allow\"} 1",
        "tidegate_internal_errors_total{policy=\"local\"} 1",
        "tidegate_internal_errors_total{policy=\"deny\"} 2",
        "tidegate_internal_errors_total{policy=\"error\"} 2",
    ] {
        assert!(metrics.contains(row), "{row} in {metrics}");
    }
    assert!(http(address, "GET", "/readyz", "").ends_with("ok\n"));
}
