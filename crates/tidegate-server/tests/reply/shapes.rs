//! Every dialect, every style of a body, every reason of a refusal, as text.

use std::fmt::Write;

use serde_json::Value;
use tidegate_core::{Micros, OnStoreFailure, OwnLimit};
use tidegate_server::reply::body::{self, BodyStyle};
use tidegate_server::reply::headers::{self, Dialect};
use tidegate_server::reply::{Code, Told};

use crate::node::{Asked, Node, START_S, assert_golden, check_text};

/// Limits of each kind, on descriptors of their own.
const RULES: &str = r#"
domain: api
descriptors:
  - { key: minute, rate_limit: { limit: 10/1m, algorithm: fixed_window } }
  - { key: hour, rate_limit: { limit: 100/1h, name: hourly } }
  - { key: short, rate_limit: { limit: 5/300ms, algorithm: sliding_log } }
  - { key: bucket, rate_limit: { limit: 2/1s, algorithm: token_bucket, burst: 20, name: "a \"bucket\"" } }
  - { key: places, rate_limit: { limit: 3, algorithm: concurrency, ttl: 60s } }
  - { key: month, rate_limit: { limit: 1000/month, algorithm: calendar } }
  - { key: closed, rate_limit: { limit: 0/1m } }
  - { key: shadow, shadow_mode: true, rate_limit: { limit: 1/1m } }
  - { key: endpoint, rate_limit: { limit: 1/1s, algorithm: fixed_window } }
"#;
const KINDS: [&str; 6] = ["minute", "hour", "short", "bucket", "places", "month"];

fn asked(key: &str) -> Asked<'_> {
    Asked::one(&[(key, "a")])
}

/// Requests that end in different ways, with a word on each.
fn situations(view: &mut dyn FnMut(&str, &Told<'_>)) {
    let mut node = Node::new(RULES);
    let now = Micros::from_millis(1_000 * (START_S + 60) + 250);
    let own = |amount, window| Some(OwnLimit { amount, window: Micros::from_secs(window) });
    let all: Vec<Asked<'_>> = KINDS.into_iter().map(asked).collect();
    let get = Asked::one(&[("endpoint", "GET /")]);
    let expensive = Asked { cost: 11, ..asked("minute") };
    let own_limit = Asked { limit: own(7, 60), ..asked("x") };
    let impossible = Asked { limit: own(1, 0), ..asked("x") };
    let many: Vec<String> = (0..300).map(|value| value.to_string()).collect();
    let many: Vec<Asked<'_>> = many.iter().map(|value| Asked::one(&[("minute", value)])).collect();
    node.spend(&[("minute", "spent")], 4, now.minus(Micros::from_secs(60))); // So that a bound is not 0.
    node.spend(&[("minute", "spent")], 10, now);
    node.spend(&[("places", "spent")], 3, now);
    node.spend(&[("endpoint", "GET /")], 1, now);
    for (what, asked) in [
        ("one of each kind", &*all),
        ("nothing counts", &[asked("unknown")]),
        ("only in shadow", &[asked("shadow")]),
        ("its own limit", &[own_limit]),
        ("a limit is used up", &[Asked::one(&[("minute", "spent")]), asked("hour")]),
        ("a second is left", &[get]),
        ("no place is free", &[Asked::one(&[("places", "spent")])]),
        ("a closed door", &[asked("closed")]),
        ("it costs too much", &[expensive]),
        ("more limits than may be", &many),
        ("a limit that cannot be counted", &[asked("minute"), impossible]),
    ] {
        node.ask(asked, now, |told| view(what, told));
    }
    view("the store is away: stop", &Told::by_policy(OnStoreFailure::Deny));
    view("the store is away: go on", &Told::by_policy(OnStoreFailure::Allow));
    view("nothing is to be counted", &Told::nothing());
}

#[test]
fn every_dialect_is_as_it_always_was() {
    let mut text = String::new();
    situations(&mut |what, told| {
        if ["one of each kind", "a limit is used up", "a limit that cannot be counted"].contains(&what) {
            for dialect in Dialect::ALL {
                text += &format!("# {what}: {}\n", dialect.name());
                let wall_us = 1_000_000 * (START_S + 60) + 250_000;
                headers::write(&[dialect], told, wall_us, &mut |name, value| {
                    text += &format!("{name}: {value}\n");
                });
                text += "\n";
            }
        }
    });
    assert_golden("dialects", &text);
}

#[test]
fn every_body_is_as_it_always_was() {
    let mut text = String::new();
    situations(&mut |what, told| {
        for style in BodyStyle::ALL.into_iter().filter(|_| !told.admitted()) {
            let mut bytes = Vec::new();
            let kind = body::write(style, told, &mut bytes);
            serde_json::from_slice::<Value>(&bytes).expect("JSON");
            let body = String::from_utf8(bytes).expect("a text");
            _ = write!(text, "# {what}: {}\n{} {kind}\n{body}\n\n", style.name(), told.status());
        }
    });
    assert_golden("bodies", &text);
}

#[test]
fn every_check_is_as_it_always_was() {
    let mut text = String::new();
    situations(&mut |what, told| {
        let check = check_text(told);
        serde_json::from_str::<Value>(&check).expect("JSON");
        _ = write!(text, "# {what}\n{check}\n\n");
    });
    assert_golden("checks", &text);
}

#[test]
fn all_reasons_are_told_apart() {
    let mut codes = Vec::new();
    situations(&mut |_, told| codes.extend(told.code()));
    codes.dedup();
    let waits = [Code::RateLimited, Code::CostExceedsLimit, Code::TooManyLimits, Code::ImpossibleLimit];
    assert_eq!(codes, [&waits[..], &[Code::StoreUnavailable]].concat());
}

#[test]
fn what_is_admitted_has_no_body() {
    let mut node = Node::new(RULES);
    node.ask(&[asked("minute")], Micros::from_secs(START_S), |told| {
        let mut bytes = Vec::new();
        body::write(BodyStyle::Error, told, &mut bytes);
        assert!(bytes.is_empty());
    });
}

/// The headers that some dialects write, without `ratelimit` ones of the draft.
fn written(dialects: &[Dialect]) -> Vec<String> {
    let mut written = Vec::new();
    situations(&mut |what, told| {
        if what == "a limit is used up" {
            headers::write(dialects, told, 1_000_000 * START_S, &mut |name, value| {
                written.push(format!("{name}: {value}"));
            });
        }
    });
    written
}

#[test]
fn a_header_is_written_once_and_the_first_dialect_says_what_it_means() {
    use Dialect::{Envoy, Github, Kong, None, RetryAfter, Twitter, XDelta, XEpoch};
    let delta = ["x-ratelimit-limit: 10", "x-ratelimit-remaining: 0", "x-ratelimit-reset: 40"];
    assert_eq!(written(&[XDelta]), delta);
    for first in [&[XDelta, XDelta][..], &[XDelta, Envoy], &[None, XDelta]] {
        assert_eq!(written(first), delta, "{first:?}");
    }
    let policy = ["x-ratelimit-policy: 10;w=60"];
    assert_eq!(written(&[XDelta, XEpoch]), [&delta[..], &policy].concat());
    let more = ["x-ratelimit-used: 10", "x-ratelimit-resource: minute"];
    assert_eq!(written(&[XDelta, Github]), [&delta[..], &more].concat());
    for dialects in [[RetryAfter, Kong], [Kong, RetryAfter]] {
        let retry = written(&dialects).into_iter().filter(|header| header.starts_with("retry-after"));
        assert_eq!(retry.count(), 1);
    }
    assert_eq!(written(&[Twitter, Twitter]).len(), 3);
    assert_eq!(written(&[None]), [""; 0]);
}

#[test]
fn of_limits_in_one_unit_kong_is_told_the_tightest() {
    let mut node = Node::new(
        "domain: api\ndescriptors:\n\
         - { key: a, rate_limit: { limit: 9/1m } }\n\
         - { key: b, rate_limit: { limit: 5/1m } }\n\
         - { key: c, rate_limit: { limit: 7/1m } }\n",
    );
    node.ask(&["a", "b", "c"].map(asked), Micros::from_secs(START_S), |told| {
        let mut minute = Vec::new();
        headers::write(&[Dialect::Kong], told, 0, &mut |name, value| {
            minute.extend(name.as_str().ends_with("-minute").then(|| value.to_owned()));
        });
        assert_eq!(minute, ["5", "4"]);
    });
}

#[test]
fn dialects_and_styles_are_found_by_their_names() {
    for dialect in Dialect::ALL {
        assert_eq!(Dialect::named(dialect.name()), Some(dialect));
    }
    for style in BodyStyle::ALL {
        assert_eq!(BodyStyle::named(style.name()), Some(style));
    }
    assert_eq!((Dialect::named("IETF-11"), BodyStyle::named("")), (None, None));
    let defaults = Dialect::DEFAULT.map(Dialect::name);
    assert_eq!((defaults, BodyStyle::default().name()), (["ietf-11", "x-epoch", "retry-after"], "error"));
}
