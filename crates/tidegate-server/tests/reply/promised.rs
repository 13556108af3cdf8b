//! The header blocks and bodies that Tidegate was asked to answer with, each made by a real decision at a time at which the numbers are
//! the same. Ours may say more, never something else.

use serde_json::Value;
use tidegate_core::Micros;
use tidegate_server::reply::body::BodyStyle;
use tidegate_server::reply::headers::Dialect;

use crate::node::{Node, assert_golden};

const ORDERS: [(&str, &str); 2] = [("api_key", "abc123"), ("endpoint", "POST /api/v1/orders")];
const DEFAULTS: (&[Dialect], BodyStyle) = (&Dialect::DEFAULT, BodyStyle::Error);

/// Does our answer hold all that was asked for, and is it as it always was?
#[track_caller]
fn assert_answer(name: &str, ours: &str, promised: &str) {
    assert_golden(name, ours);
    let (ours, promised) = (Parsed::of(ours), Parsed::of(promised));
    assert!(promised.status.is_none_or(|status| Some(status) == ours.status), "{promised:?}");
    for header in &promised.headers {
        assert!(ours.headers.contains(header), "{header:?} is not in {ours:?}");
    }
    assert!(promised.body.is_none() || promised.body == ours.body, "{ours:?}");
}

#[derive(Debug)]
struct Parsed<'a> {
    status: Option<&'a str>,
    headers: Vec<(String, &'a str)>,
    body: Option<Value>,
}

impl<'a> Parsed<'a> {
    fn of(text: &'a str) -> Self {
        let (head, body) = text.split_at(text.find('{').unwrap_or(text.len()));
        let status = head.lines().find_map(|line| line.trim().strip_prefix("HTTP/1.1 "));
        let headers = head.lines().filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.trim().to_lowercase(), value)).collect();
        let body = (!body.is_empty()).then(|| serde_json::from_str(body).expect("JSON"));
        Self { status, headers, body }
    }
}

fn at(unix_s: u64) -> Micros {
    Micros::from_secs(unix_s)
}

/// One limit for each API key, per aligned minute.
fn per_key(amount: u32) -> Node {
    Node::new(&format!(
        "domain: api\ndescriptors:\n  \
         - {{ key: api_key, rate_limit: {{ limit: {amount}/1m, algorithm: fixed_window, name: per-key }} }}\n"
    ))
}

/// What is left after `used` units and one request.
fn answer_after(used: i64, amount: u32, now: Micros, style: BodyStyle) -> String {
    let mut node = per_key(amount);
    node.spend(&ORDERS[..1], used, now);
    node.answer(&ORDERS[..1], now, (&Dialect::DEFAULT, style))
}

#[test]
fn the_headers_that_everybody_knows() {
    let mut node = Node::new(
        "domain: api\ndescriptors:\n  \
         - { key: api_key, rate_limit: { limit: 100/1m, algorithm: sliding_log, name: default } }\n",
    );
    node.spend(&ORDERS[..1], 52, at(1_706_000_000));
    assert_answer(
        "promised-legacy",
        &node.answer(&ORDERS[..1], at(1_706_000_000), DEFAULTS),
        "X-RateLimit-Limit: 100
         X-RateLimit-Remaining: 47
         X-RateLimit-Reset: 1706000060",
    );
}

#[test]
fn the_headers_of_the_draft() {
    let mut node = Node::new(
        r#"
domain: api
match: path
descriptors:
  - key: api_key
    rate_limit: { limit: 100/1m, algorithm: sliding_log, name: default }
    descriptors:
      - key: endpoint
        value: "POST /api/v1/orders"
        rate_limit: { limit: 20/1m, algorithm: sliding_log, name: writes }
"#,
    );
    node.spend(&ORDERS, 20, at(1_706_000_000));
    assert_answer(
        "promised-ietf",
        &node.answer(&ORDERS, at(1_706_000_018), DEFAULTS),
        r#"RateLimit-Policy: "default";q=100;w=60, "writes";q=20;w=60
           RateLimit: "writes";r=0;t=42
           Retry-After: 42"#,
    );
}

#[test]
fn a_refusal_says_all_about_itself() {
    let mut node = Node::new(
        r#"
domain: api
descriptors:
  - key: api_key
    descriptors:
      - key: endpoint
        rate_limit: { limit: 20/1m, algorithm: sliding_log, name: writes }
"#,
    );
    node.spend(&ORDERS, 20, at(1_706_000_000));
    let only = (&[Dialect::RetryAfter, Dialect::Ietf11][..], BodyStyle::Error);
    assert_answer(
        "promised-error",
        &node.answer(&ORDERS, at(1_706_000_018), only),
        r#"HTTP/1.1 429 Too Many Requests
           Content-Type: application/json
           Retry-After: 42
           RateLimit-Policy: "writes";q=20;w=60
           RateLimit: "writes";r=0;t=42

           {
             "error": {
               "code": "RATE_LIMITED",
               "message": "Rate limit exceeded for POST /api/v1/orders. Retry after 42 seconds.",
               "retry_after": 42,
               "limit": 20,
               "window": "1m",
               "scope": "api_key:abc123:endpoint:POST /api/v1/orders"
             }
           }"#,
    );
}

#[test]
fn a_policy_and_a_flat_body() {
    assert_answer(
        "promised-policy",
        &answer_after(152, 1_000, at(1_748_823_018), BodyStyle::Flat),
        "HTTP/1.1 200 OK
         X-RateLimit-Limit: 1000
         X-RateLimit-Remaining: 847
         X-RateLimit-Reset: 1748823060
         X-RateLimit-Policy: 1000;w=60",
    );
    assert_answer(
        "promised-flat",
        &answer_after(1_000, 1_000, at(1_748_823_018), BodyStyle::Flat),
        r#"HTTP/1.1 429 Too Many Requests
           X-RateLimit-Limit: 1000
           X-RateLimit-Remaining: 0
           X-RateLimit-Reset: 1748823060
           Retry-After: 42
           Content-Type: application/json

           {"error": "rate_limit_exceeded", "message": "Too many requests. Retry after 42 seconds."}"#,
    );
}

#[test]
fn a_client_can_pace_itself() {
    assert_answer(
        "promised-pacing",
        &answer_after(76, 100, at(1_714_066_883), BodyStyle::Short),
        "HTTP/1.1 200 OK
         X-RateLimit-Limit: 100
         X-RateLimit-Remaining: 23
         X-RateLimit-Reset: 1714066920",
    );
    assert_answer(
        "promised-short",
        &answer_after(100, 100, at(1_714_066_883), BodyStyle::Short),
        r#"HTTP/1.1 429 Too Many Requests
           Retry-After: 37
           X-RateLimit-Limit: 100
           X-RateLimit-Remaining: 0

           { "error": "rate_limited", "retry_after_seconds": 37 }"#,
    );
}

#[test]
fn a_flat_body_in_capitals() {
    assert_answer(
        "promised-normal",
        &answer_after(12, 100, at(1_705_312_815), BodyStyle::FlatUpper),
        "HTTP/1.1 200 OK
         X-RateLimit-Limit: 100
         X-RateLimit-Remaining: 87
         X-RateLimit-Reset: 1705312860",
    );
    assert_answer(
        "promised-flat-upper",
        &answer_after(100, 100, at(1_705_312_815), BodyStyle::FlatUpper),
        r#"HTTP/1.1 429 Too Many Requests
           X-RateLimit-Limit: 100
           X-RateLimit-Remaining: 0
           X-RateLimit-Reset: 1705312860
           Retry-After: 45
           Content-Type: application/json

           {
             "error": "RATE_LIMIT_EXCEEDED",
             "message": "Rate limit exceeded. Try again in 45 seconds."
           }"#,
    );
}

#[test]
fn a_check_has_four_numbers_first() {
    let mut node = per_key(100);
    let now = at(1_705_312_815);
    node.spend(&ORDERS[..1], 12, now);
    let admitted = node.check(&ORDERS[..1], now);
    assert!(admitted.starts_with(r#"{"allowed":true,"remaining":87,"limit":100,"retryAfterMs":0,"#));
    node.spend(&ORDERS[..1], 87, now);
    let refused = node.check(&ORDERS[..1], now);
    assert!(refused.starts_with(r#"{"allowed":false,"remaining":0,"limit":100,"retryAfterMs":45000,"#));
    assert_golden("promised-checks", &format!("{admitted}\n{refused}\n"));
}

#[test]
fn when_to_come_back() {
    assert_answer(
        "promised-retry",
        &answer_after(100, 100, at(1_714_066_890), BodyStyle::Flat),
        r#"HTTP/1.1 429 Too Many Requests
           Retry-After: 30
           Content-Type: application/json

           {"error": "rate_limit_exceeded", "message": "Too many requests. Retry after 30 seconds."}"#,
    );
}
