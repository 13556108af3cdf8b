use tidegate_core::{LimitError, Tag};

use super::*;
use crate::MemorySize;

const NOW: Micros = Micros::from_secs(1_800_000_000);

fn alone() -> Alone {
    Alone::new(Arc::new(Memory::new(MemorySize::of_bytes(1 << 20), NOW).expect("memory")))
}

fn why() -> Unavailable {
    Unavailable { why: "gone".into() }
}

fn take(limit: &Limit, key: u128, role: Role, on_store_failure: OnStoreFailure) -> Take<'_> {
    Take {
        key: Key::of_bits(key),
        tag: Tag::default(),
        name: None,
        limit,
        ask: Ask::Charge { cost: 1 },
        role,
        policy: Policy { on_store_failure, ..Policy::default() },
    }
}

fn by_store(admitted: bool) -> Answer {
    let outcome = if admitted { Outcome::Admitted } else { Outcome::RateLimited };
    Answer { verdict: Verdict { outcome, ..Verdict::BLANK }, mode: Mode::Exact }
}

/// What a request comes to: of each take its role, and what the store said or, where it did not, the policy.
fn decided(takes: &[(Role, Result<bool, OnStoreFailure>)]) -> Result<bool, Unavailable> {
    let limit = Limit::sliding_log(100, Micros::from_secs(60)).expect("a limit");
    let policy = |said: &Result<bool, OnStoreFailure>| said.err().unwrap_or_default();
    let all: Vec<Take<'_>> =
        takes.iter().zip(1..).map(|((role, said), key)| take(&limit, key, *role, policy(said))).collect();
    let missing: Vec<bool> = takes.iter().map(|(_, said)| said.is_err()).collect();
    let mut answers: Vec<Answer> = takes.iter().map(|(_, said)| by_store(said.unwrap_or(false))).collect();
    alone().decide(&all, &missing, &why(), NOW, &mut answers)
}

#[test]
fn a_refusal_by_the_store_comes_first_then_error_deny_local_allow() {
    use OnStoreFailure::{Allow, Deny, Error, Local};
    use Role::{Enforce, Quota, Shadow};
    let error = Err(why());
    for (takes, expected) in [
        (vec![(Enforce, Err(Allow))], Ok(true)),
        (vec![(Enforce, Err(Local))], Ok(true)),
        (vec![(Enforce, Err(Deny))], Ok(false)),
        (vec![(Enforce, Err(Error))], error.clone()),
        (vec![(Enforce, Ok(false)), (Enforce, Err(Error))], Ok(false)),
        (vec![(Enforce, Ok(true)), (Enforce, Err(Error)), (Enforce, Err(Deny))], error.clone()),
        (vec![(Enforce, Ok(true)), (Enforce, Err(Deny)), (Enforce, Err(Local))], Ok(false)),
        (vec![(Enforce, Ok(true)), (Enforce, Err(Allow)), (Enforce, Err(Local))], Ok(true)),
        // What is in shadow decides nothing.
        (vec![(Shadow, Err(Error)), (Shadow, Err(Deny)), (Shadow, Ok(false))], Ok(true)),
        // Of a quota one has to pass.
        (vec![(Quota, Ok(true)), (Quota, Err(Error))], Ok(true)),
        (vec![(Quota, Ok(false)), (Quota, Err(Error))], error.clone()),
        (vec![(Quota, Ok(false)), (Quota, Err(Deny))], Ok(false)),
        (vec![(Quota, Err(Deny)), (Quota, Err(Allow)), (Quota, Err(Error))], Ok(true)),
        (vec![(Quota, Err(Deny)), (Quota, Err(Local))], Ok(true)),
        (vec![(Quota, Err(Deny)), (Quota, Err(Error))], Ok(false)),
        (vec![(Quota, Ok(true)), (Enforce, Err(Deny))], Ok(false)),
    ] {
        assert_eq!(decided(&takes), expected, "{takes:?}");
    }
}

#[test]
fn a_node_spends_its_share_and_no_more_whatever_else_is_asked() -> Result<(), LimitError> {
    let limit = Limit::sliding_log(100, Micros::from_secs(60))?;
    let spent = |alone: &Alone, local_share: Option<Share>, key| {
        let mut take = take(&limit, key, Role::Enforce, OnStoreFailure::Local);
        take.policy.local_share = local_share;
        let mut answers = [Answer::BLANK];
        let mut admitted = 0;
        while alone.decide(&[take], &[true], &why(), NOW, &mut answers) == Ok(true) {
            admitted += 1;
        }
        let refusal = answers[0];
        assert_eq!(refusal.mode, Mode::Degraded(OnStoreFailure::Local));
        assert_eq!((refusal.verdict.limit, refusal.verdict.remaining), (100, 0));
        assert!(refusal.verdict.retry_after.is_some(), "its share comes back with the window");
        (admitted, refusal.verdict.bound)
    };
    let alone = alone();
    assert_eq!(
        spent(&alone, None, 1),
        (10, Bound { over: u32::MAX, under: 100 }),
        "nobody knows how many nodes there are"
    );
    alone.saw_nodes(3);
    assert_eq!(spent(&alone, None, 2), (33, Bound { over: 99, under: 100 }), "a third each");
    alone.saw_nodes(1);
    assert_eq!(spent(&alone, None, 3).0, 33, "those that left a moment ago may still serve");
    assert_eq!(spent(&alone, Some(Share::of_basis_points(500)), 4), (5, Bound { over: 15, under: 100 }));
    assert_eq!(spent(&alone, Some(Share::of_basis_points(1)), 5).0, 1, "one at least");
    Ok(())
}

#[test]
fn nothing_is_spent_here_for_a_request_that_is_refused() -> Result<(), LimitError> {
    let limit = Limit::sliding_log(100, Micros::from_secs(60))?;
    let alone = alone();
    alone.saw_nodes(100);
    let local = |key| take(&limit, key, Role::Enforce, OnStoreFailure::Local);
    let denied = take(&limit, 9, Role::Enforce, OnStoreFailure::Deny);
    let mut answers = [Answer::BLANK; 2];
    let mut decide = |takes: [Take<'_>; 2], missing: [bool; 2], known: Answer| {
        answers = [known; 2];
        alone.decide(&takes, &missing, &why(), NOW, &mut answers).expect("no error is wanted")
    };
    assert!(!decide([local(1), local(2)], [true, false], by_store(false)), "the store refuses");
    assert!(!decide([local(1), denied], [true, true], Answer::BLANK), "a policy refuses");
    assert!(decide([local(1), local(2)], [true, true], Answer::BLANK), "so the one unit is there still");
    assert!(!decide([local(1), local(3)], [true, true], Answer::BLANK));
    assert!(decide([local(3), local(4)], [true, true], Answer::BLANK), "all or none here too");
    Ok(())
}

#[test]
fn a_cost_above_the_share_is_told_to_come_back_and_one_above_the_limit_is_not() -> Result<(), LimitError> {
    let limit = Limit::token_bucket(100, Micros::from_secs(60), None)?;
    let alone = alone();
    let asks = |cost| {
        let take =
            Take { ask: Ask::Charge { cost }, ..take(&limit, 1, Role::Enforce, OnStoreFailure::Local) };
        let mut answers = [Answer::BLANK];
        assert_eq!(alone.decide(&[take], &[true], &why(), NOW, &mut answers), Ok(false));
        (answers[0].verdict.outcome, answers[0].verdict.retry_after)
    };
    assert_eq!(asks(50), (Outcome::RateLimited, Some(COME_BACK)));
    assert_eq!(asks(101), (Outcome::CostExceedsLimit, None));
    Ok(())
}

#[test]
fn places_that_were_taken_here_are_given_back_here_and_renewals_are_believed() -> Result<(), LimitError> {
    let limit = Limit::concurrency(10, Micros::from_secs(60))?;
    let alone = alone();
    let asks = |ask| Take { ask, ..take(&limit, 1, Role::Enforce, OnStoreFailure::Local) };
    let decide = |ask| alone.decide(&[asks(ask)], &[true], &why(), NOW, &mut [Answer::BLANK]);
    assert_eq!(decide(Ask::Acquire { id: 7, cost: 1 }), Ok(true));
    assert_eq!(decide(Ask::Acquire { id: 8, cost: 1 }), Ok(false), "its share is one place");
    assert_eq!(decide(Ask::Renew { id: 9 }), Ok(true), "only the store knows of that one");
    alone.release(&[asks(Ask::Release { id: 7 })], NOW);
    assert_eq!(decide(Ask::Acquire { id: 8, cost: 1 }), Ok(true));
    assert_eq!(decide(Ask::Release { id: 8 }), Ok(true));
    assert_eq!(decide(Ask::Acquire { id: 9, cost: 1 }), Ok(true));
    Ok(())
}

#[test]
fn nodes_that_were_seen_count_on_for_a_minute_or_two() {
    let from = Instant::now();
    let mut seen = Seen { from, most: 0, before: 0 };
    let mut at = |secs, nodes| seen.most_lately(nodes, from + Duration::from_secs(secs));
    assert_eq!([at(0, 3), at(10, 5), at(59, 2), at(61, 2), at(119, 2)], [3, 5, 5, 5, 5]);
    assert_eq!([at(122, 2), at(400, 1)], [2, 1]);
}
