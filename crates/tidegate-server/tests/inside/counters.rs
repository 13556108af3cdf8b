//! Counters that are looked at and reset, on counters in memory.

use crate::node::{Inside, http};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { limit: 3/1h, name: a b }
  - key: free
    rate_limit: { unlimited: true, name: none }
";

const ALICE: &str = r#"{"descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}"#;

/// What stands behind a name in an answer.
fn field<'a>(answer: &'a str, name: &str) -> &'a str {
    let (_, rest) =
        answer.split_once(&format!(r#""{name}":"#)).unwrap_or_else(|| panic!("no {name} in {answer}"));
    rest.split([',', '}']).next().unwrap_or_default().trim_matches('"')
}

#[test]
fn the_counters_of_a_request_are_reset_together() {
    let node = Inside::new(RULES, None);
    let address = node.serve();
    for _ in 0..3 {
        assert_eq!(field(&http(address, "POST", "/v1/check", ALICE), "allowed"), "true");
    }
    assert_eq!(field(&http(address, "POST", "/v1/check", ALICE), "allowed"), "false");
    let reset = || http(address, "POST", "/v1/counters/reset", ALICE);
    let first = reset();
    assert_eq!((field(&first, "rule"), field(&first, "wasStored")), ("shop|user#a b", "true"));
    assert_eq!(field(&reset(), "wasStored"), "false");
    assert_eq!(field(&http(address, "POST", "/v1/check", ALICE), "remaining"), "2");
}

#[test]
fn one_counter_is_found_by_its_key_and_rule() {
    let node = Inside::new(RULES, None);
    let address = node.serve();
    http(address, "POST", "/v1/check", ALICE);
    let inspected = http(address, "POST", "/v1/inspect", ALICE);
    let path = format!("/v1/counters/{}?rule=shop%7Cuser%23a%20b", field(&inspected, "key"));
    let one = http(address, "GET", &path, "");
    assert_eq!((field(&one, "used"), field(&one, "remaining"), field(&one, "stored")), ("1", "2", "true"));
    assert_eq!(field(&http(address, "DELETE", &path, ""), "wasStored"), "true");
    assert_eq!(field(&http(address, "GET", &path, ""), "used"), "0");
    let key = "0".repeat(32);
    for (path, status, words) in [
        (format!("/v1/counters/{key}"), "400", "by which rule?"),
        (format!("/v1/counters/{key}?rule=nobody"), "400", "there is no rule `nobody`"),
        (format!("/v1/counters/{key}?rule=shop%7Cuser%23a%20b&tier=pro"), "400", "for the tier `pro`"),
        (format!("/v1/counters/{key}?rule=shop%7Cfree%23none"), "400", "has no counters"),
        (format!("/v1/counters/{key}?rule=shop%7Cuser%23a%20b&tag=5"), "400", "8 hexadecimal digits"),
        ("/v1/counters/abc?rule=x".into(), "400", "32 hexadecimal digits"),
        ("/v1/counters/".into(), "404", "/v1/counters/{key}"),
    ] {
        let answer = http(address, "GET", &path, "");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")) && answer.contains(words),
            "{path}: {answer}"
        );
    }
    let answer = http(address, "POST", &path, "");
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("allow: GET, DELETE"), "{answer}");
    let answer = http(address, "GET", "/v1/counters/reset", "");
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("allow: POST"), "{answer}");
}
