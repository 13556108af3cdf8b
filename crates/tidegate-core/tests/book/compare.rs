//! A book beside the judge: do they find the same rules with the same fates, and ask the same counters the same?

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use tidegate_core::{Ask, Book, Fate, Key, Micros, Plan, Planned, Role, Rule};
use tidegate_oracle::rules::{self, Asked, Counter, Judged, LimitName, Request, RuleName, judge_for};

use crate::cases::Case;
use crate::{drafts, subject};

/// A found rule as both sides can say it: descriptor, rule with its tier, and fate without the number of a take.
type Said = (Option<usize>, Option<(RuleName, Option<String>)>, rules::Fate);

/// Which counter has which key. One book's counters and keys are the same pairs, whatever was asked.
#[derive(Default)]
struct Counters {
    keys: HashMap<Counter, Key>,
    counters: HashMap<Key, Counter>,
}

/// Fails with the rules and the first request that is planned otherwise than it is judged.
pub(crate) fn check(book: &Book, case: &Case) -> Result<(), TestCaseError> {
    let mut counters = Counters::default();
    let mut plan = Plan::new();
    let quotas = drafts::quotas(&case.known);
    let callers = quotas.at(Micros::new(case.known.now_us));
    for request in &case.requests {
        let judged = judge_for(&case.trees, &case.known, request);
        let about = request.to_string();
        drafts::with_query(request, |query| book.plan_for(query, callers.as_ref(), &mut plan));
        prop_assert_eq!(plan.domain().is_some(), judged.known, "domain of {}", about);
        prop_assert_eq!(plan.exempt(), judged.exempt, "exempt: {}", about);
        prop_assert_eq!(plan.refused(), judged.refused, "refused: {}", about);
        check_found(&plan, &judged, request, &about)?;
        check_takes(&plan, &judged, &mut counters, &about)?;
    }
    Ok(())
}

/// The rules found by each descriptor, in order; and those found by none.
fn check_found(
    plan: &Plan<'_>,
    judged: &Judged,
    request: &Request,
    about: &str,
) -> Result<(), TestCaseError> {
    let got = plan.found().iter().map(|found| {
        let rule =
            found.rule.map(|rule| (name_of(&request.domain, rule), rule.tier.as_deref().map(str::to_owned)));
        (found.descriptor, rule, fate_of(found.fate))
    });
    let expected =
        judged.found.iter().map(|found| (found.descriptor, found.rule.clone(), without_number(found.fate)));
    prop_assert_eq!(by_descriptor(got), by_descriptor(expected), "found: {}", about);
    Ok(())
}

fn by_descriptor(found: impl Iterator<Item = Said>) -> BTreeMap<Option<usize>, Vec<Said>> {
    let mut map: BTreeMap<_, Vec<Said>> = BTreeMap::new();
    for said in found {
        map.entry(said.0).or_default().push(said);
    }
    map
}

/// Each counter is asked once, for what is expected, whoever found it.
fn check_takes(
    plan: &Plan<'_>,
    judged: &Judged,
    counters: &mut Counters,
    about: &str,
) -> Result<(), TestCaseError> {
    prop_assert_eq!(plan.takes().len(), judged.asks.len(), "number of takes: {}", about);
    let mut sorted_found: Vec<_> = plan.found().iter().collect();
    // Those found by no descriptor come last with the judge.
    sorted_found.sort_by_key(|found| found.descriptor.unwrap_or(usize::MAX));
    let mut number_of: HashMap<usize, usize> = HashMap::new();
    for (found, expected) in sorted_found.into_iter().zip(&judged.found) {
        let (Fate::Counted(number), rules::Fate::Counted(expected)) = (found.fate, expected.fate) else {
            continue;
        };
        let other = number_of.entry(number).or_insert(expected);
        prop_assert_eq!(*other, expected, "merged otherwise: {}", about);
    }
    prop_assert_eq!(number_of.len(), judged.asks.len(), "takes of nobody: {}", about);
    for (number, expected) in number_of {
        check_take(plan, &plan.takes()[number], &judged.asks[expected], counters, about)?;
    }
    Ok(())
}

fn check_take(
    plan: &Plan<'_>,
    take: &Planned<'_>,
    expected: &Asked,
    counters: &mut Counters,
    about: &str,
) -> Result<(), TestCaseError> {
    let limit = plan.limit(take);
    let about = format!("{take:?}\nis not as expected\n{expected:?}\nof {about}");
    prop_assert!(is_asked(take.ask, expected), "ask: {}", about);
    let law = subject::limit(&expected.spec).expect("the judge knows what can be counted");
    prop_assert_eq!(limit, &law, "limit: {}", about);
    let roles: &[Role] = match expected.role {
        rules::Role::Enforce => &[Role::Enforce],
        rules::Role::Quota => &[Role::Quota],
        rules::Role::Shadow => &[Role::Shadow],
        rules::Role::EnforceOrShadow => &[Role::Enforce, Role::Shadow],
        rules::Role::QuotaOrShadow => &[Role::Quota, Role::Shadow],
    };
    prop_assert!(roles.contains(&take.role), "role: {}", about);
    let key = counters.keys.entry(expected.counter.clone()).or_insert(take.key);
    prop_assert_eq!(*key, take.key, "one counter with two keys: {}", about);
    let counter = counters.counters.entry(take.key).or_insert_with(|| expected.counter.clone());
    prop_assert_eq!(&*counter, &expected.counter, "two counters with one key: {}", about);
    Ok(())
}

fn is_asked(ask: Ask, expected: &Asked) -> bool {
    let units = u64::try_from(expected.cost.unsigned_abs()).unwrap_or(u64::MAX);
    let is_held = expected.lease.is_some();
    match (ask, expected.cost) {
        (Ask::Acquire { cost, id }, 1..) => cost == units && is_held && id != Ask::ANONYMOUS,
        (Ask::Release { id }, ..0) => is_held && id != Ask::ANONYMOUS,
        (Ask::Charge { cost }, 1..) => cost == units && !is_held,
        (Ask::Refund { units: back, receipt: None }, ..0) => back == units && !is_held,
        (Ask::Peek, 0) => true,
        _ => false,
    }
}

/// A rule by its place, whatever the text of its id.
pub(crate) fn name_of(domain: &str, rule: &Rule) -> RuleName {
    let path =
        rule.path.iter().map(|level| (level.key.to_string(), level.value.as_deref().map(str::to_owned)));
    let limit = match (&rule.said.name, &rule.said.limit) {
        (Some(name), _) => LimitName::Name(name.to_string()),
        (None, None) => LimitName::Unlimited,
        (None, Some(limit)) => {
            let algorithm = limit.algorithm().name().to_owned();
            match (limit.periods(), limit.window()) {
                (Some(calendar), _) => LimitName::Unit(algorithm, Some(calendar.unit().name().to_owned())),
                (None, Some(window)) if algorithm != "concurrency" => {
                    LimitName::Window(algorithm, window.get())
                }
                _ => LimitName::Unit(algorithm, None),
            }
        }
    };
    RuleName { domain: domain.to_owned(), path: path.collect(), limit }
}

fn fate_of(fate: Fate) -> rules::Fate {
    match fate {
        Fate::Counted(_) => rules::Fate::Counted(0),
        Fate::Unlimited => rules::Fate::Unlimited,
        Fate::Replaced => rules::Fate::Replaced,
        Fate::Disabled => rules::Fate::Disabled,
        Fate::Exempt => rules::Fate::Exempt,
        Fate::RefundIgnored => rules::Fate::RefundIgnored,
        Fate::Impossible => rules::Fate::Impossible,
        Fate::Open => panic!("a fate was left open"),
    }
}

fn without_number(fate: rules::Fate) -> rules::Fate {
    if let rules::Fate::Counted(_) = fate { rules::Fate::Counted(0) } else { fate }
}
