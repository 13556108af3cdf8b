//! What is explained is what is then decided: random rules, random requests, random traffic before.

#[path = "../../tidegate-core/tests/law/subject.rs"]
#[expect(dead_code, reason = "only limits are made here, no steps")]
mod subject; // limits from the oracle's words

#[path = "../../tidegate-core/tests/book/cases.rs"]
mod cases; // random trees with requests
#[path = "../../tidegate-core/tests/book/drafts.rs"]
mod drafts; // the oracle's trees and requests as the core's

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tidegate_core::{Micros, Query};
use tidegate_counters::{Counters, Memory, MemorySize};
use tidegate_server::{
    Asks, By, Decision, ExplainedCounter, Explanation, LimitFate, Room, decide, decide_as, explain,
    explain_as,
};

const START: Micros = Micros::from_secs(1_800_000_000);

/// In what order the requests of a case come, and how many milliseconds after each other.
#[derive(Clone)]
struct Traffic(Vec<(usize, u64)>);

impl std::fmt::Debug for Traffic {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let said = self.0.iter().map(|(which, wait_ms)| format!("{wait_ms}ms later request {which}"));
        out.write_str(&said.collect::<Vec<_>>().join(", "))
    }
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let wait_ms =
        prop_oneof![4 => Just(0), 3 => 1..2_000_u64, 2 => 1_000..70_000_u64, 1 => 1..90_000_000_u64];
    prop::collection::vec((0..100_usize, wait_ms), 30).prop_map(Traffic)
}

proptest! {
    // Thirty states each: more than ten thousand.
    #![proptest_config(cases::proof(350))]

    #[test]
    fn what_is_explained_is_what_is_decided(case in cases::case(), traffic in traffic()) {
        let book = drafts::book(&case.trees);
        let counters = Memory::new(MemorySize::of_bytes(1 << 20), START).expect("memory");
        let mut now = START;
        for (which, wait_ms) in traffic.0 {
            now = now.plus(Micros::from_millis(wait_ms));
            let request = &case.requests[which % case.requests.len()];
            drafts::with_query(request, |query| check(&By::rules(&book), &counters, query, now))
                .map_err(|error| TestCaseError::fail(format!("{error}\nof {request}")))?;
        }
    }

    #[test]
    fn what_is_explained_of_known_callers_is_what_is_decided(
        case in cases::case_of_callers(),
        traffic in traffic(),
    ) {
        let book = drafts::book(&case.trees).with_default_domain(Some(&case.known.default_domain));
        let quotas = drafts::quotas(&case.known);
        let by = By { book: &book, callers: quotas.at(Micros::new(case.known.now_us)) };
        let counters = Memory::new(MemorySize::of_bytes(1 << 20), START).expect("memory");
        let mut now = START;
        for (which, wait_ms) in traffic.0 {
            now = now.plus(Micros::from_millis(wait_ms));
            let request = &case.requests[which % case.requests.len()];
            drafts::with_query(request, |query| check(&by, &counters, query, now))
                .map_err(|error| TestCaseError::fail(format!("{error}\nof {request}")))?;
        }
    }
}

/// Explains a request twice, decides it, and compares.
fn check(by: &By<'_>, counters: &Memory, query: &Query<'_>, now: Micros) -> Result<(), TestCaseError> {
    let explained = explain_as(by, counters, query, now);
    prop_assert_eq!(&explained, &explain_as(by, counters, query, now), "an explanation changed something");
    check_text(&explained)?;
    check_wait(by, counters, query, now, &explained)?;
    let keys = decide_as(by, counters, query, &Asks::Planned, now, &mut Room::default(), |decision| {
        check_decision(&explained, decision)?;
        let takes = decision.plan.takes().iter();
        Ok::<_, TestCaseError>(
            takes.map(|take| (take.key, decision.plan.limit(take).clone())).collect::<Vec<_>>(),
        )
    })?;
    for ((key, limit), counter) in keys.iter().zip(counted(&explained)) {
        let seen = match pin!(counters.inspect(*key, tidegate_core::Tag::default(), limit, now))
            .poll(&mut Context::from_waker(Waker::noop()))
        {
            Poll::Ready(seen) => seen.expect("memory is always there"),
            Poll::Pending => panic!("memory answers at once"),
        };
        let after = (counter.after.used, counter.after.remaining);
        prop_assert_eq!(after, (seen.used, seen.verdict.remaining), "after: {:?}", counter);
    }
    Ok(())
}

fn counted(explained: &Explanation) -> impl Iterator<Item = &ExplainedCounter> {
    explained.limits.iter().filter_map(|limit| limit.counter.as_ref())
}

fn check_decision(explained: &Explanation, decision: &Decision<'_>) -> Result<(), TestCaseError> {
    prop_assert_eq!(explained.admitted, decision.admitted);
    prop_assert_eq!(counted(explained).count(), decision.answers.len());
    let ms_up = |span: Micros| span.get().div_ceil(1_000);
    for ((counter, answer), take) in counted(explained).zip(decision.answers).zip(decision.plan.takes()) {
        let verdict = answer.verdict;
        prop_assert_eq!(&counter.key, &take.key.to_string());
        prop_assert_eq!(&counter.role, &format!("{:?}", take.role).to_lowercase());
        prop_assert_eq!(counter.admitted, verdict.admitted());
        prop_assert_eq!(counter.code.is_none(), verdict.admitted());
        prop_assert_eq!(counter.amount, verdict.limit);
        prop_assert_eq!(counter.charged, verdict.applied);
        prop_assert_eq!(counter.forgiven, verdict.forgiven);
        prop_assert_eq!(counter.retry_after_ms, verdict.retry_after.map(ms_up));
        prop_assert_eq!(counter.reset_ms, ms_up(verdict.reset));
        prop_assert_eq!((counter.bound.over, counter.bound.under), (verdict.bound.over, verdict.bound.under));
    }
    // The limit that is said to decide does: it speaks for the request to callers too.
    let told =
        decision.told().filter(|take| decision.admitted || !decision.answers[*take].verdict.admitted());
    if let (Some(take), false) = (told, decision.plan.refused()) {
        let decides = explained.decided_by.and_then(|at| explained.limits[at].counter.as_ref());
        prop_assert_eq!(
            decides.map(|counter| &counter.key),
            Some(&decision.plan.takes()[take].key.to_string())
        );
    } else {
        prop_assert_eq!(explained.decided_by, None);
        prop_assert!(
            explained.admitted || explained.limits.iter().any(|limit| limit.fate == LimitFate::Impossible)
        );
    }
    Ok(())
}

/// When it is said to pass, it passes; and a moment before it does not.
fn check_wait(
    by: &By<'_>,
    counters: &Memory,
    query: &Query<'_>,
    now: Micros,
    explained: &Explanation,
) -> Result<(), TestCaseError> {
    let Some(wait_ms) = explained.passes_in_ms else { return Ok(()) };
    let mut keys: Vec<&str> = counted(explained).map(|counter| counter.key.as_str()).collect();
    keys.sort_unstable();
    if keys.windows(2).any(|pair| pair[0] == pair[1]) {
        return Ok(()); // Two takes on one counter: each says when it would pass alone.
    }
    let then = explain_as(by, counters, query, now.plus(Micros::from_millis(wait_ms)));
    prop_assert!(then.admitted, "{}\nand then\n{}", explained.render(), then.render());
    // A request that is charged all the same, or gives back, makes its own wait longer or shorter; an explanation does neither.
    // And limits tell the time in ticks, of a second at most.
    let is_idle = counted(explained).all(|counter| counter.charged == 0);
    if let Some(earlier_ms) = wait_ms.checked_sub(1_002).filter(|_| is_idle) {
        let then = explain_as(by, counters, query, now.plus(Micros::from_millis(earlier_ms)));
        prop_assert!(!then.admitted, "{}\nbut already\n{}", explained.render(), then.render());
    }
    Ok(())
}

/// It fits a terminal, and comes through JSON as it was.
fn check_text(explained: &Explanation) -> Result<(), TestCaseError> {
    let text = explained.render();
    for line in text.lines() {
        prop_assert!(line.chars().count() <= 100 && line.trim_end() == line, "{line:?}");
        prop_assert!(!line.contains(|letter: char| letter.is_control()), "{line:?}");
    }
    let json = serde_json::to_string(explained).expect("JSON");
    prop_assert_eq!(&serde_json::from_str::<Explanation>(&json).expect("the same"), explained);
    Ok(())
}

/// A proof on states that all look the same proves little.
#[test]
fn the_states_are_of_every_kind() {
    let mut runner = TestRunner::new(cases::proof(1));
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..100 {
        let (case, traffic) = (cases::case(), traffic()).new_tree(&mut runner).expect("a case").current();
        let book = drafts::book(&case.trees);
        let counters = Memory::new(MemorySize::of_bytes(1 << 20), START).expect("memory");
        let mut now = START;
        for (which, wait_ms) in traffic.0 {
            now = now.plus(Micros::from_millis(wait_ms));
            drafts::with_query(&case.requests[which % case.requests.len()], |query| {
                let explained = explain(&book, &counters, query, now);
                let limits = explained.limits.iter().map(|limit| format!("{:?}", limit.fate));
                let codes = explained.code.iter().map(|code| format!("refused as {code}"));
                let waits = explained.passes_in_ms.iter().map(|_| "passes later".to_owned());
                let full = counted(&explained).filter(|counter| counter.before.used > 0);
                let full =
                    full.map(|counter| format!("{} in use, admitted: {}", counter.role, counter.admitted));
                let all = limits.chain(codes).chain(waits).chain(full);
                all.for_each(|kind| *seen.entry(kind).or_default() += 1);
                decide(&book, &counters, query, now, &mut Room::default(), |_| ());
            });
        }
    }
    assert!(seen.len() >= 16 && seen.values().all(|times| *times >= 20), "{seen:#?}");
}
