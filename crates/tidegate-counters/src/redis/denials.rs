//! Denials that are remembered: whoever was refused, and asks for as much again before its time, is refused at once, and costs the store
//! nothing. Shared by the threads of a node; bounded; forgotten after a second at most, because units may be given back elsewhere.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tidegate_core::{Ask, Charge, Key, Limit, Micros, Outcome, Role, Verdict};

use crate::{Answer, Mode, Take};

/// For how long a denial is remembered at most.
const REMEMBERED_MAX: Micros = Micros::from_secs(1);
/// Parts that are locked alone.
const PARTS: usize = 64;
/// How many denials each part remembers: 65 536 in all, about 10 MB.
const PART_MAX: usize = 1_024;

/// The denials that a node remembers.
pub(super) struct Denials {
    parts: [Part; PARTS],
    hits: AtomicU64,
}

type Part = Mutex<HashMap<Key, Denial>>;

/// A take that was refused.
#[derive(Clone, Copy)]
struct Denial {
    /// When it was asked, and until when the answer holds, by the node's clock.
    asked: Micros,
    until: Micros,
    /// The least cost that was refused.
    cost: u64,
    /// By which numbers.
    amount: u32,
    capacity: u32,
    verdict: Verdict,
}

impl Default for Denials {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| Part::default()), hits: AtomicU64::new(0) }
    }
}

impl Denials {
    /// How often the store was spared.
    pub(super) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// The answers to a request that is refused without the store, if one of its takes was refused a moment ago: those that were not asked
    /// say so. Not where something would be given back or charged in any case.
    pub(super) fn refuse(&self, takes: &[Take<'_>], now: Micros) -> Option<Vec<Answer>> {
        let is_plain = |take: &Take<'_>| {
            matches!(take.ask, Ask::Charge { .. } | Ask::Acquire { .. } | Ask::Peek)
                && take.limit.charge() == Charge::Admitted
        };
        if !takes.iter().all(is_plain) {
            return None;
        }
        let denied = |take: &Take<'_>| {
            let cost = cost(take).filter(|_| take.role == Role::Enforce)?;
            self.find(take.key, take.limit, cost, now)
        };
        let at = takes.iter().position(|take| denied(take).is_some())?;
        let mut answers: Vec<Answer> = takes.iter().map(unasked).collect();
        answers[at] = Answer { verdict: denied(&takes[at])?, mode: Mode::Exact };
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(answers)
    }

    fn find(&self, key: Key, limit: &Limit, cost: u64, now: Micros) -> Option<Verdict> {
        let part = self.part(key).lock().unwrap_or_else(PoisonError::into_inner);
        let denial = part.get(&key)?;
        let same = (denial.amount, denial.capacity) == (limit.amount(), limit.capacity());
        if !same || cost < denial.cost || now >= denial.until || now < denial.asked {
            return None;
        }
        let (since, mut verdict) = (now.minus(denial.asked), denial.verdict);
        if cost > u64::from(limit.capacity()) {
            return None; // It never fits, and is told so by the store.
        }
        verdict.retry_after = verdict.retry_after.map(|wait| wait.minus(since));
        verdict.reset = verdict.reset.minus(since);
        verdict.reset_after = verdict.reset_after.minus(since);
        verdict.at = verdict.at.plus(since);
        Some(verdict)
    }

    /// Remembers what was refused in a request that was asked at `asked`, and forgets what was given back.
    pub(super) fn learn(&self, takes: &[Take<'_>], answers: &[Answer], asked: Micros) {
        for (take, answer) in takes.iter().zip(answers) {
            let verdict = &answer.verdict;
            if verdict.applied < 0 {
                self.forget(take.key);
            }
            let (Some(cost), Some(wait)) = (cost(take), verdict.retry_after) else { continue };
            let is_denial = verdict.outcome == Outcome::RateLimited && answer.mode == Mode::Exact;
            if is_denial && take.limit.charge() == Charge::Admitted && take.role == Role::Enforce {
                let until = asked.plus(wait.min(REMEMBERED_MAX));
                let (amount, capacity) = (take.limit.amount(), take.limit.capacity());
                self.remember(take.key, Denial { asked, until, cost, amount, capacity, verdict: *verdict });
            }
        }
    }

    fn remember(&self, key: Key, denial: Denial) {
        let mut part = self.part(key).lock().unwrap_or_else(PoisonError::into_inner);
        if part.len() >= PART_MAX && !part.contains_key(&key) {
            part.retain(|_, other| other.until > denial.asked);
            if part.len() >= PART_MAX {
                return; // The store is asked, which is right too.
            }
        }
        part.insert(key, denial);
    }

    /// Forgets what was refused by a counter.
    pub(super) fn forget(&self, key: Key) {
        self.part(key).lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    fn part(&self, key: Key) -> &Part {
        &self.parts[(key.bits() >> 64) as usize % PARTS]
    }
}

/// What a take would charge, if a denial of it can be remembered: places may be given back at any moment.
fn cost(take: &Take<'_>) -> Option<u64> {
    match take.ask {
        Ask::Charge { cost } | Ask::Acquire { cost, .. } if cost > 0 && !take.limit.holds() => Some(cost),
        _ => None,
    }
}

/// What is said of a take that nobody was asked about.
pub(super) fn unasked(take: &Take<'_>) -> Answer {
    let limit = take.limit.amount();
    let verdict = Verdict { outcome: Outcome::Admitted, limit, remaining: u32::MAX, ..Verdict::BLANK };
    Answer { verdict, mode: Mode::Unasked }
}

#[cfg(test)]
mod tests {
    use tidegate_core::{LimitError, Tag};

    use super::*;

    const NOW: Micros = Micros::from_secs(1_800_000_000);

    fn later(ms: u64) -> Micros {
        NOW.plus(Micros::from_millis(ms))
    }

    fn charge(limit: &Limit, key: u128, cost: u64) -> Take<'_> {
        Take {
            key: Key::of_bits(key),
            tag: Tag::default(),
            name: None,
            limit,
            ask: Ask::Charge { cost },
            role: Role::Enforce,
            policy: tidegate_core::Policy::default(),
        }
    }

    fn refused(wait_ms: u64) -> Answer {
        let wait = Micros::from_millis(wait_ms);
        let verdict = Verdict { retry_after: Some(wait), reset: wait, reset_after: wait, ..Verdict::BLANK };
        Answer { verdict, mode: Mode::Exact }
    }

    #[test]
    fn it_binds_the_same_key_and_no_smaller_cost_until_its_time_but_a_second_at_most()
    -> Result<(), LimitError> {
        let limit = Limit::sliding_window(10, Micros::from_secs(60))?;
        let denials = Denials::default();
        let is_refused = |key, cost, now| denials.refuse(&[charge(&limit, key, cost)], now).is_some();
        denials.learn(&[charge(&limit, 1, 3)], &[refused(400)], NOW);
        assert!(is_refused(1, 3, later(0)) && is_refused(1, 4, later(399)), "as much, or more");
        assert!(!is_refused(1, 2, later(1)), "less may fit");
        assert!(!is_refused(1, 3, later(400)) && !is_refused(2, 3, later(1)), "its time, another key");
        denials.learn(&[charge(&limit, 1, 3)], &[refused(60_000)], NOW);
        assert!(is_refused(1, 3, later(999)) && !is_refused(1, 3, later(1_000)));
        assert_eq!(denials.hits(), 3);
        let other = Limit::sliding_window(11, Micros::from_secs(60))?;
        assert!(denials.refuse(&[charge(&other, 1, 3)], NOW).is_none(), "another amount may admit it");
        denials.forget(Key::of_bits(1));
        assert!(!is_refused(1, 3, later(1)));
        Ok(())
    }

    #[test]
    fn what_it_tells_goes_on_with_time_and_the_others_say_that_nobody_was_asked() -> Result<(), LimitError> {
        let limit = Limit::sliding_window(10, Micros::from_secs(60))?;
        let denials = Denials::default();
        denials.learn(&[charge(&limit, 1, 1)], &[refused(700)], NOW);
        let takes = [charge(&limit, 7, 1), charge(&limit, 1, 1)];
        let answers = denials.refuse(&takes, later(300)).expect("it is remembered");
        assert_eq!(answers[1].verdict.retry_after, Some(Micros::from_millis(400)));
        assert_eq!((answers[0].mode, answers[0].verdict.admitted()), (Mode::Unasked, true));
        Ok(())
    }

    #[test]
    fn who_gives_back_or_is_charged_always_asks_the_store() -> Result<(), LimitError> {
        let limit = Limit::sliding_window(10, Micros::from_secs(60))?;
        let always = limit.clone().charging(Charge::Always)?;
        let places = Limit::concurrency(10, Micros::from_secs(60))?;
        let denials = Denials::default();
        let refund = Take { ask: Ask::Refund { units: 1, receipt: None }, ..charge(&limit, 2, 1) };
        denials.learn(&[charge(&limit, 1, 1)], &[refused(700)], NOW);
        let denied = charge(&limit, 1, 1);
        assert!(denials.refuse(&[denied], NOW).is_some());
        assert!(denials.refuse(&[denied, refund], NOW).is_none());
        assert!(denials.refuse(&[denied, charge(&always, 3, 1)], NOW).is_none());
        for take in [
            charge(&places, 4, 1),
            charge(&always, 5, 1),
            Take { ask: Ask::Peek, ..charge(&limit, 6, 1) },
            Take { role: Role::Shadow, ..charge(&limit, 7, 1) },
        ] {
            denials.learn(&[take], &[refused(700)], NOW);
            assert!(
                denials.refuse(&[Take { ask: Ask::Charge { cost: 1 }, ..take }], NOW).is_none(),
                "{take:?}"
            );
        }
        denials.learn(
            &[denied],
            &[Answer { verdict: Verdict { applied: -1, ..Verdict::BLANK }, mode: Mode::Exact }],
            NOW,
        );
        assert!(denials.refuse(&[denied], NOW).is_none(), "units were given back");
        Ok(())
    }

    #[test]
    fn it_is_bounded() -> Result<(), LimitError> {
        let limit = Limit::sliding_window(10, Micros::from_secs(60))?;
        let denials = Denials::default();
        let all = || denials.parts.iter().map(|part| part.lock().expect("no panic").len()).sum::<usize>();
        for number in 0..200_000_u128 {
            denials.learn(&[charge(&limit, number << 64, 1)], &[refused(700)], NOW);
        }
        assert_eq!(all(), PARTS * PART_MAX);
        denials.learn(&[charge(&limit, 1, 1)], &[refused(700)], later(800));
        assert!(denials.refuse(&[charge(&limit, 1, 1)], later(800)).is_some(), "what has ended makes room");
        Ok(())
    }
}
