//! What holds for any rule and any request, whatever they are called and whoever asks. Headers are judged by parsers that others wrote.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use sfv::{BareItem, Item, List, ListEntry, Parser};
use tidegate_core::{
    Algorithm, Calendar, DescriptorDraft, DomainDraft, Limit, Micros, OwnLimit, Role, RuleDraft, Unit,
    Weekday,
};
use tidegate_server::Decision;
use tidegate_server::reply::Told;
use tidegate_server::reply::body::{self, BodyStyle};
use tidegate_server::reply::headers::{self, Dialect};

use crate::node::{Asked, Node, START_S, check_text};

/// A descriptor of a rule file.
#[derive(Clone, Debug)]
struct Written {
    key: String,
    limits: Vec<RuleDraft>,
}

/// A descriptor of a request: which of the written ones, its value, its cost, perhaps a limit of its own.
type Wanted = (usize, String, i64, Option<(u64, u64)>);

fn limit() -> impl Strategy<Value = Limit> {
    let amount = prop_oneof![9 => 0_u64..30, 1 => Just(u64::from(u32::MAX))];
    let window_ms = prop_oneof![1_u64..3_000, 1_u64..40_000_000];
    (0..Algorithm::ALL.len(), amount, window_ms, prop::option::of(1_u64..40)).prop_filter_map(
        "not every number makes a limit",
        |(at, amount, window_ms, burst)| {
            let window = Micros::from_millis(window_ms);
            let limit = match Algorithm::ALL[at] {
                Algorithm::SlidingWindow => Limit::sliding_window(amount, window),
                Algorithm::SlidingLog => Limit::sliding_log(amount, window),
                Algorithm::SlidingWindowCounter => Limit::sliding_window_counter(amount, window),
                Algorithm::SubWindow => Limit::sub_window(amount, window, None, false),
                Algorithm::FixedWindow => Limit::fixed_window(amount, window),
                Algorithm::TokenBucket => Limit::token_bucket(amount, window, burst),
                Algorithm::Gcra => Limit::gcra(amount, window, burst),
                Algorithm::LeakyBucket => Limit::leaky_bucket(amount, window, burst),
                Algorithm::Concurrency => Limit::concurrency(amount.min(99), window),
                Algorithm::Calendar => Calendar::new(Unit::Day, "UTC", Weekday::Monday)
                    .and_then(|calendar| Limit::calendar(amount, calendar)),
            };
            limit.ok()
        },
    )
}

/// Some names are the same, and some look as if numbered.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[ab](-[23]){0,2}", "\\PC{60,70}"]
}

fn written() -> impl Strategy<Value = Written> {
    let rule = (limit(), prop::option::of(name()), prop::bool::weighted(0.1), prop::bool::weighted(0.2));
    let rule = rule.prop_map(|(limit, name, shadow, quota)| RuleDraft {
        name: name.map(Box::from),
        limit: Some(limit),
        shadow,
        quota,
        ..RuleDraft::default()
    });
    (name(), prop::collection::vec(rule, 1..4)).prop_map(|(key, limits)| Written { key, limits })
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let own = prop::option::weighted(0.1, (0_u64..9, 0_u64..5_000));
    (0_usize..8, "[ab]|\\PC{0,9}|é{200,300}", -1_i64..35, own)
}

fn node(written: &[Written]) -> Node {
    let descriptors = written.iter().map(|Written { key, limits }| DescriptorDraft {
        key: key.clone(),
        limits: limits.clone(),
        ..DescriptorDraft::default()
    });
    Node::of([DomainDraft {
        name: "api".into(),
        descriptors: descriptors.collect(),
        ..DomainDraft::default()
    }])
}

fn asked<'a>(written: &'a [Written], wanted: &'a [Wanted]) -> Vec<Asked<'a>> {
    let asked = wanted.iter().map(|(at, value, cost, own)| {
        let key = &*written[at % written.len()].key;
        let limit = own.map(|(amount, ms)| OwnLimit { amount, window: Micros::from_millis(ms) });
        Asked { entries: vec![(key, value)], cost: *cost, limit }
    });
    asked.collect()
}

type Headers = Vec<(&'static str, String)>;

fn headers_of(dialects: &[Dialect], told: &Told<'_>, now: Micros) -> Headers {
    let mut headers = Headers::new();
    headers::write(dialects, told, now.get(), &mut |name, value| headers.push((name.as_str(), value.into())));
    headers
}

fn find<'h>(headers: &'h Headers, name: &str) -> Option<&'h str> {
    headers.iter().find(|header| header.0 == name).map(|header| &*header.1)
}

/// The items of a list of structured fields, each with its text.
fn items(header: Option<&str>) -> Result<Vec<(String, Item)>, TestCaseError> {
    let list: List = Parser::new(header.unwrap_or_default())
        .parse()
        .map_err(|error| TestCaseError::fail(format!("{header:?}: {error}")))?;
    let item = |entry| match entry {
        ListEntry::Item(item) => {
            let name = item.bare_item.as_string().map(|name| name.as_str().to_owned());
            name.map(|name| (name, item)).ok_or(TestCaseError::fail("its name is no String"))
        }
        ListEntry::InnerList(_) => Err(TestCaseError::fail("a list in the list")),
    };
    list.into_iter().map(item).collect()
}

fn parameters(item: &Item) -> Vec<(&str, BareItem)> {
    item.params.iter().map(|(key, value)| (key.as_str(), value.clone())).collect()
}

fn integer(number: u64) -> BareItem {
    BareItem::Integer(
        i64::try_from(number).ok().and_then(|number| number.try_into().ok()).expect("15 digits"),
    )
}

/// Any header of any dialect can be sent, and none is there twice.
fn assert_sendable(told: &Told<'_>, now: Micros) -> Result<(), TestCaseError> {
    for dialect in Dialect::ALL {
        headers_are_sound(&headers_of(&[dialect], told, now))?;
    }
    headers_are_sound(&headers_of(&Dialect::ALL, told, now))
}

fn headers_are_sound(headers: &Headers) -> Result<(), TestCaseError> {
    for (at, (name, value)) in headers.iter().enumerate() {
        prop_assert!(http::HeaderName::from_lowercase(name.as_bytes()).is_ok(), "{name}");
        prop_assert!(value.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{name}: {value:?}");
        prop_assert!(!value.is_empty() && value.len() <= 2_048, "{name}: {value:?}");
        prop_assert!(headers[..at].iter().all(|other| other.0 != *name), "{name} is there twice");
    }
    Ok(())
}

/// The fields of the draft say what was decided.
fn assert_fields(told: &Told<'_>, decision: &Decision<'_>, now: Micros) -> Result<(), TestCaseError> {
    let headers = &headers_of(&Dialect::DEFAULT, told, now);
    let takes = decision.plan.takes().iter().enumerate().take(decision.answers.len());
    let takes: Vec<(usize, &Limit)> = takes
        .filter(|(_, take)| take.role != Role::Shadow)
        .map(|(at, take)| (at, decision.plan.limit(take)))
        .collect();
    let policies = items(find(headers, "ratelimit-policy"))?;
    prop_assert_eq!(policies.len(), takes.len().min(10));
    let mut names: Vec<&str> = policies.iter().map(|(name, _)| &**name).collect();
    names.sort_unstable();
    prop_assert!(names.windows(2).all(|two| two[0] != two[1]), "{:?}", names);

    for ((_, item), (_, limit)) in policies.iter().take(9).zip(&takes) {
        let mut expected = vec![("q", integer(limit.amount().into()))];
        match limit.algorithm() {
            Algorithm::Concurrency => {
                let unit = sfv::String::from_string("concurrent-requests".into()).expect("ASCII");
                expected.push(("qu", BareItem::String(unit)));
            }
            Algorithm::Calendar => {}
            _ => expected.push(("w", integer(limit.window().unwrap_or_default().secs_up()))),
        }
        if limit.capacity() != limit.amount() {
            expected.push(("tidegate-burst", integer(limit.capacity().into())));
        }
        prop_assert_eq!(parameters(item), expected);
    }

    let current = items(find(headers, "ratelimit"))?;
    prop_assert_eq!(current.len(), usize::from(told.speaks().is_some()));
    if let (Some((name, item)), Some(take)) = (current.first(), decision.told()) {
        prop_assert!(names.contains(&&**name), "{} is not among {:?}", name, names);
        let (verdict, limit) =
            (decision.answers[take].verdict, decision.plan.limit(&decision.plan.takes()[take]));
        let place = limit.algorithm() == Algorithm::Concurrency;
        let reset_s = if place { verdict.reset.secs_up().min(1) } else { verdict.reset.secs_up() };
        let remaining = verdict.remaining.min(limit.amount());
        prop_assert_eq!(parameters(item), [("r", integer(remaining.into())), ("t", integer(reset_s))]);
        let reset_us = if place { verdict.reset.get().min(1_000_000) } else { verdict.reset.get() };
        let epoch_s = (now.get() + reset_us).div_ceil(1_000_000);
        prop_assert_eq!(find(headers, "x-ratelimit-reset"), Some(&*epoch_s.to_string()));
        if let Some(wait_s) = find(headers, "retry-after") {
            prop_assert!(wait_s.parse::<u64>().is_ok_and(|wait_s| wait_s >= reset_s.max(1)));
        }
    }
    Ok(())
}

/// Bodies and checks are JSON of a bounded size, and say the same as the headers.
fn assert_bodies(told: &Told<'_>, headers: &Headers) -> Result<(), TestCaseError> {
    let check: serde_json::Value = serde_json::from_str(&check_text(told))?;
    prop_assert_eq!(check["allowed"].as_bool(), Some(told.admitted()));
    if told.admitted() {
        prop_assert_eq!(find(headers, "retry-after"), None);
        return Ok(());
    }
    let wait_s = find(headers, "retry-after").and_then(|wait_s| wait_s.parse::<u64>().ok());
    let wait_ms = check["retryAfterMs"].as_u64();
    prop_assert_eq!(wait_ms.map(|ms| ms.div_ceil(1_000)), wait_s);
    let enough = |ms: u64| told.retry_after().is_some_and(|wait| wait <= Micros::from_millis(ms));
    prop_assert!(wait_ms.is_none_or(|ms| enough(ms) && !enough(ms - 1)), "{wait_ms:?}");
    for style in BodyStyle::ALL {
        let mut bytes = Vec::new();
        body::write(style, told, &mut bytes);
        prop_assert!(bytes.len() < 2_048, "{} bytes", bytes.len());
        let body: serde_json::Value = serde_json::from_slice(&bytes)?;
        let said = match style {
            BodyStyle::Error => &body["error"]["retry_after"],
            BodyStyle::Short => &body["retry_after_seconds"],
            BodyStyle::Problem => &body["retry_after"],
            BodyStyle::Flat | BodyStyle::FlatUpper => {
                prop_assert_eq!(
                    body["message"].as_str().is_some_and(|text| text.contains("second")),
                    wait_s.is_some()
                );
                continue;
            }
        };
        prop_assert_eq!(said.as_u64(), wait_s);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_answer_can_be_sent_and_read(
        written in prop::collection::vec(written(), 1..8),
        requests in prop::collection::vec((0_u64..5_000_000, prop::collection::vec(wanted(), 0..9)), 1..5),
    ) {
        let (mut node, mut now) = (node(&written), Micros::from_secs(START_S));
        for (later_us, wanted) in &requests {
            now = now.plus(Micros::new(*later_us));
            node.decide(&asked(&written, wanted), now, |told, decision| {
                assert_sendable(told, now)?;
                assert_fields(told, decision, now)?;
                assert_bodies(told, &headers_of(&Dialect::DEFAULT, told, now))
            })?;
        }
    }

    #[test]
    fn who_waits_as_told_is_admitted_and_who_does_not_is_not(
        written in prop::collection::vec(written(), 1..8),
        spent in prop::collection::vec(wanted(), 0..9),
        wanted in prop::collection::vec(wanted(), 1..9),
    ) {
        let (mut node, now) = (node(&written), Micros::from_secs(START_S));
        // Nothing gives places back but time, which is not what is told.
        let places = |decision: &Decision<'_>| {
            let takes = decision.plan.takes().iter();
            takes.map(|take| decision.plan.limit(take).algorithm()).any(|one| one == Algorithm::Concurrency)
        };
        for spent in &spent {
            node.ask(&asked(&written, std::slice::from_ref(spent)), now, |_| ());
        }
        let asked = asked(&written, &wanted);
        let wait = node.decide(&asked, now, |told, decision| told.retry_after().filter(|_| !places(decision)));
        if let Some(wait) = wait {
            let early = now.plus(wait.minus(Micros::new(1)));
            prop_assert!(!node.ask(&asked, early, |told| told.admitted()), "admitted before {wait}");
            prop_assert!(node.ask(&asked, now.plus(wait), |told| told.admitted()), "refused after {wait}");
        }
    }
}
