//! Who speaks for a request, what it is called, what it counts, and when to come back.

use tidegate_core::{
    Bound, Descriptor, Entry, Micros, OnStoreFailure, Outcome, OwnLimit, Plan, Query, Verdict,
};
use tidegate_counters::{Answer, Mode};
use tidegate_server::reply::body::BodyStyle;
use tidegate_server::reply::headers::{self, Dialect};
use tidegate_server::reply::{PolicyNames, Told, ToldLimit};
use tidegate_server::{Asks, Decision};

use crate::node::{Asked, Node, START_S, answer, check_text};

const NOW: Micros = Micros::from_secs(START_S);

fn header(told: &Told<'_>, wanted: &str) -> Option<String> {
    let mut found = None;
    headers::write(&Dialect::DEFAULT, told, NOW.get(), &mut |name, value| {
        if name == wanted {
            found = Some(value.to_owned());
        }
    });
    found
}

fn amount(limit: &ToldLimit<'_>) -> u32 {
    limit.amount
}

#[test]
fn nobody_waits_longer_than_a_second_for_a_place_but_does_for_a_window() {
    let mut node = Node::new(
        "domain: api\ndescriptors:\n\
         - { key: places, rate_limit: { limit: 3, algorithm: concurrency, ttl: 60s } }\n\
         - { key: window, rate_limit: { limit: 5/20s, algorithm: sliding_log } }\n",
    );
    let (places, window) = (Asked::one(&[("places", "a")]), Asked::one(&[("window", "a")]));
    node.spend(&places.entries, 2, NOW);
    let view = |told: &Told<'_>| (told.retry_after(), header(told, "ratelimit"));
    let admitted = node.ask(std::slice::from_ref(&places), NOW, view);
    assert_eq!(admitted, (None, Some(r#""places";r=0;t=1"#.into())));
    let refused = node.ask(std::slice::from_ref(&places), NOW, view);
    assert_eq!(refused, (Some(Micros::from_secs(1)), Some(r#""places";r=0;t=1"#.into())));
    node.spend(&window.entries, 5, NOW);
    let both = node.ask(&[places, window], NOW, view);
    assert_eq!(both, (Some(Micros::from_secs(20)), Some(r#""window";r=0;t=20"#.into())));
}

#[test]
fn of_a_quota_only_what_holds_a_request_back_speaks() {
    let mut node = Node::new(
        "domain: api\ndescriptors:\n\
         - { key: soon, quota_mode: true, rate_limit: { limit: 1/10s, algorithm: sliding_log } }\n\
         - { key: late, quota_mode: true, rate_limit: { limit: 2/1m, algorithm: sliding_log } }\n\
         - { key: open, quota_mode: true, rate_limit: { limit: 9/1m, algorithm: sliding_log } }\n\
         - { key: must, rate_limit: { limit: 3/5s, algorithm: sliding_log } }\n",
    );
    for (key, amount) in [("soon", 1), ("late", 2), ("must", 3)] {
        node.spend(&[(key, "a")], amount, NOW);
    }
    for (keys, speaks, violated) in [
        (&["soon", "late"][..], 1, &[1, 2][..]),
        (&["soon", "late", "must"], 1, &[1, 2, 3]),
        (&["soon", "open", "must"], 3, &[3]),
        (&["late", "open"], 9, &[]),
    ] {
        let asked: Vec<Asked<'_>> = keys.iter().map(|key| Asked::one(&[(key, "a")])).collect();
        node.ask(&asked, NOW, |told| {
            assert_eq!(told.speaks().map(amount), Some(speaks), "{keys:?}");
            let all: Vec<u32> = told.limits().iter().filter(|limit| limit.violated).map(amount).collect();
            assert_eq!(all, violated, "{keys:?}");
        });
    }
}

#[test]
fn limits_of_the_same_name_are_numbered() {
    let mut node = Node::new(
        "domain: api\ndescriptors:\n\
         - key: a\n  rate_limits:\n  - { limit: 1/1m }\n  - { limit: 2/1h }\n\
         - { key: b, rate_limit: { limit: 3/1m, name: a } }\n\
         - { key: c, rate_limit: { limit: 4/1m, name: a-2 } }\n\
         - { key: d, rate_limit: { limit: 5/1m, name: a-2 } }\n",
    );
    let asked = ["a", "b", "c", "d"].map(|key| Asked::one(&[(key, "x")]));
    let policy = node.ask(&asked, NOW, |told| header(told, "ratelimit-policy"));
    assert_eq!(
        policy.as_deref(),
        Some(r#""a";q=1;w=60, "a-3";q=2;w=3600, "a-4";q=3;w=60, "a-2";q=4;w=60, "a-2-2";q=5;w=60"#)
    );
}

#[test]
fn who_speaks_is_listed_however_many_there_are() {
    let mut node =
        Node::new("domain: api\ndescriptors: [{ key: a, rate_limit: { limit: 9/1m, name: n } }]\n");
    let values: Vec<String> = (0..15).map(|value| value.to_string()).collect();
    let asked: Vec<Asked<'_>> = values.iter().map(|value| Asked::one(&[("a", value)])).collect();
    let lists = |told: &Told<'_>| {
        let policy = header(told, "ratelimit-policy").unwrap_or_default();
        (policy.matches(";q=").count(), policy.contains(r#""n-13""#))
    };
    assert_eq!(node.ask(&asked, NOW, lists), (10, false));
    node.spend(&[("a", "12")], 3, NOW);
    assert_eq!(node.ask(&asked, NOW, lists), (10, true));
}

#[test]
fn who_comes_back_later_is_told_so_everywhere() {
    let mut node = Node::new("domain: api\ndescriptors: [{ key: a, rate_limit: { limit: 1/1m } }]\n");
    node.spend(&[("a", "x")], 1, NOW);
    let query = [Asked::one(&[("a", "x")])];
    let seen = node.ask(&query, NOW, |told| (told.retry_after_s(), header(told, "ratelimit")));
    assert_eq!(seen, (Some(60), Some(r#""a";r=0;t=60"#.into())));
    let told = Told::by_policy(OnStoreFailure::Deny).delayed(Micros::from_millis(2_500));
    let text = answer(&told, NOW, &Dialect::DEFAULT, BodyStyle::Short);
    assert!(text.contains("retry-after: 4\n") && text.contains(r#""retry_after_seconds":4}"#), "{text}");
}

/// The scope and the message of a refusal.
fn refusal(node: &mut Node, asked: Asked<'_>) -> [String; 2] {
    let text = node.ask(&[asked], NOW, |told| answer(told, NOW, &[], BodyStyle::Error));
    let body: serde_json::Value =
        serde_json::from_str(&text[text.find('{').unwrap_or_default()..]).expect("JSON");
    ["scope", "message"].map(|member| body["error"][member].as_str().unwrap_or("none").to_owned())
}

#[test]
fn a_scope_is_what_the_limit_counts() {
    let rules = r#"
domain: api
match: path
trust_tier: true
descriptors:
  - key: api_key
    rate_limit: { limit: 1/1h }
    descriptors:
      - { key: endpoint, rate_limit: { limit: 1/1d } }
      - { key: path, value: "/a/*", share_threshold: true, rate_limit: { limit: 1/2d } }
  - { key: all, value: requests, always: true, rate_limit: { limit: 2/1s } }
"#;
    for (entries, cost, scope, message) in [
        // Entries that are no part of the key are no part of the scope.
        (
            &[("tier", "pro"), ("api_key", "k")][..],
            1,
            "api_key:k",
            "Rate limit exceeded. Retry after 3600 seconds.",
        ),
        (
            &[("api_key", "k"), ("endpoint", "GET /"), ("more", "m")],
            1,
            "api_key:k:endpoint:GET /",
            "Rate limit exceeded for GET /. Retry after 86400 seconds.",
        ),
        (
            &[("api_key", "k"), ("path", "/a/b")],
            1,
            "api_key:k:path:/a/*",
            "Rate limit exceeded. Retry after 172800 seconds.",
        ),
        (&[("other", "o")], 2, "all:requests", "Rate limit exceeded. Retry after 1 second."),
    ] {
        let mut node = Node::new(rules);
        node.spend(entries, cost, NOW);
        assert_eq!(refusal(&mut node, Asked::one(entries)), [scope, message]);
    }
}

#[test]
fn a_scope_of_a_limit_that_was_brought_is_cut() {
    let mut node = Node::new("domain: api\ndescriptors: [{ key: a, rate_limit: { limit: 1/1m } }]\n");
    let limit = Some(OwnLimit { amount: 0, window: Micros::from_secs(9) });
    let short = Asked { limit, ..Asked::one(&[("endpoint", "GET /\n"), ("b", "\"")]) };
    assert_eq!(refusal(&mut node, short), ["endpoint:GET /\n:b:\"", "Rate limit exceeded for GET /\n."]);
    let long = "é".repeat(300);
    let long = Asked { limit, ..Asked::one(&[("endpoint", &long), ("b", "c")]) };
    let shown = |bytes: usize| format!("{}…", "é".repeat(bytes / 2));
    let (scope, message) = (shown(256 - "endpoint:".len()), shown(160));
    assert_eq!(
        refusal(&mut node, long),
        [format!("endpoint:{scope}"), format!("Rate limit exceeded for {message}.")]
    );
}

#[test]
fn an_answer_by_policy_names_it_and_states_a_bound_only_if_there_is_one() {
    let node = Node::new("domain: api\ndescriptors: [{ key: a, rate_limit: { limit: 1/1m } }]\n");
    let entries = [Entry { key: "a", value: "x" }];
    let descriptors = [Descriptor { entries: 0..1, cost: 1, limit: None, own_cost: false }];
    let query = Query { domain: "api", entries: &entries, descriptors: &descriptors, lease: None };
    let mut plan = Plan::new();
    node.book.plan(&query, &mut plan);
    let bound = Bound { over: 3, under: 4 };
    for (mode, said) in [
        (Mode::Exact, r#""mode":"exact","bound":{"over":3,"under":4}"#),
        (Mode::Leased, r#""mode":"leased","bound":{"over":3,"under":4}"#),
        (Mode::Capped, r#""mode":"capped","bound":{"over":3,"under":4}"#),
        (Mode::Degraded(OnStoreFailure::Allow), r#""mode":"degraded","bound":"unbounded","policy":"allow""#),
        (
            Mode::Degraded(OnStoreFailure::Local),
            r#""mode":"degraded","bound":{"over":3,"under":4},"policy":"local""#,
        ),
    ] {
        let verdict = Verdict { outcome: Outcome::Admitted, bound, ..Verdict::BLANK };
        let answers = [Answer { verdict, mode }];
        let decision =
            Decision { admitted: true, plan: &plan, answers: &answers, too_much: false, asks: Asks::Planned };
        let check = check_text(&Told::of(&decision, &PolicyNames::default(), &query));
        assert!(check.contains(said), "{check}");
    }
}

/// A request that gives something back only looks at its other limits; what they refuse stops nobody.
#[test]
fn who_is_admitted_is_told_of_no_refusal() {
    let node = Node::new(
        "domain: api\ndescriptors:\n\
         - { key: a, rate_limit: { limit: 1/1m } }\n- { key: b, rate_limit: { limit: 2/1m } }\n",
    );
    let entries = ["a", "b"].map(|key| Entry { key, value: "x" });
    let descriptors =
        [0..1, 1..2].map(|entries| Descriptor { entries, cost: 1, limit: None, own_cost: false });
    let query = Query { domain: "api", entries: &entries, descriptors: &descriptors, lease: None };
    let mut plan = Plan::new();
    node.book.plan(&query, &mut plan);
    let answer = |outcome, limit| {
        let verdict = Verdict { outcome, limit, retry_after: Some(Micros::from_secs(9)), ..Verdict::BLANK };
        Answer { verdict, mode: Mode::Local }
    };
    let answers = [answer(Outcome::RateLimited, 1), answer(Outcome::Admitted, 2)];
    for (admitted, speaks, violated, wait_s) in [(true, 2, 0, None), (false, 1, 1, Some(9))] {
        let decision =
            Decision { admitted, plan: &plan, answers: &answers, too_much: false, asks: Asks::Planned };
        let names = PolicyNames::default();
        let told = Told::of(&decision, &names, &query);
        let all = told.limits().iter().filter(|limit| limit.violated).count();
        let seen = (told.speaks().map(amount), all, told.retry_after_s());
        assert_eq!(seen, (Some(speaks), violated, wait_s));
    }
}
