//! Denials that are remembered: whoever was refused, and asks for as much again before its time, is refused at once, and costs the store
//! nothing. Shared by the threads of a node; bounded; forgotten after a second at most, because units may be given back elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::HashMap;
use tidegate_core::{Ask, Charge, Key, Limit, Micros, Outcome, Role, Verdict};

use super::stats::DenialStats;
use crate::{Answer, Mode, Take};

/// For how long a denial is remembered at most.
const REMEMBERED_MAX: Micros = Micros::from_secs(1);
/// Parts that are locked alone.
const PARTS: usize = 64;
/// How many denials each part remembers: 65 536 in all, about 10 MB.
const PART_MAX: usize = 1_024;

/// The denials that a node remembers.
pub(super) struct Denials {
    parts: [Mutex<Part>; PARTS],
    hits: AtomicU64,
    /// How often something was forgotten.
    forgotten: AtomicU64,
}

#[derive(Default)]
struct Part {
    denials: HashMap<Key, Denial>,
    /// Which time it was that something of this part was forgotten last.
    forgotten: u64,
    /// What happened here so far; what is there now is counted when somebody asks.
    stats: DenialStats,
}

/// A moment among those at which denials were forgotten.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Moment(u64);

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
        let parts = std::array::from_fn(|_| Mutex::default());
        Self { parts, hits: AtomicU64::new(0), forgotten: AtomicU64::new(0) }
    }
}

impl Denials {
    /// How often the store was spared.
    pub(super) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// What happened so far, and how many are remembered.
    pub(super) fn stats(&self) -> DenialStats {
        let mut all = DenialStats::default();
        for part in &self.parts {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            all.entries += part.denials.len() as u64;
            all.lookups += part.stats.lookups;
            all.expired += part.stats.expired;
            all.overwritten += part.stats.overwritten;
        }
        all
    }

    /// Now: whoever asks the store from here on hears of everything that was forgotten before.
    pub(super) fn moment(&self) -> Moment {
        Moment(self.forgotten.load(Ordering::SeqCst))
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
        let (at, verdict) = takes.iter().enumerate().find_map(|(at, take)| Some((at, denied(take)?)))?;
        let mut answers: Vec<Answer> = takes.iter().map(unasked).collect();
        answers[at] = Answer { verdict, mode: Mode::Remembered };
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(answers)
    }

    fn find(&self, key: Key, limit: &Limit, cost: u64, now: Micros) -> Option<Verdict> {
        let mut part = self.part(key);
        part.stats.lookups += 1;
        let denial = part.denials.get(&key)?;
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

    /// Remembers what was refused in a request that was asked at `asked`, after the moment `since`, and forgets what was given back.
    pub(super) fn learn(&self, takes: &[Take<'_>], answers: &[Answer], asked: Micros, since: Moment) {
        for (take, answer) in takes.iter().zip(answers) {
            let verdict = &answer.verdict;
            if verdict.applied < 0 {
                self.forget(take.key);
            }
            let (Some(cost), Some(wait)) = (cost(take), verdict.retry_after) else { continue };
            let is_denial = verdict.outcome == Outcome::RateLimited && answer.mode == Mode::Exact;
            // One that shares its counter with another take of its request was judged on what that one would have charged, and has not.
            let is_alone = || takes.iter().filter(|other| other.key == take.key).count() == 1;
            if is_denial
                && take.limit.charge() == Charge::Admitted
                && take.role == Role::Enforce
                && is_alone()
            {
                let until = asked.plus(wait.min(REMEMBERED_MAX));
                let (amount, capacity) = (take.limit.amount(), take.limit.capacity());
                let denial = Denial { asked, until, cost, amount, capacity, verdict: *verdict };
                self.remember(take.key, denial, since);
            }
        }
    }

    fn remember(&self, key: Key, denial: Denial, since: Moment) {
        let mut part = self.part(key);
        if part.forgotten > since.0 {
            return; // Perhaps this counter was reset after it had refused, and before that was heard.
        }
        let Part { denials, stats, .. } = &mut *part;
        if denials.len() >= PART_MAX && !denials.contains_key(&key) {
            let before = denials.len();
            denials.retain(|_, other| other.until > denial.asked);
            stats.expired += (before - denials.len()) as u64;
            if denials.len() >= PART_MAX {
                return; // The store is asked, which is right too.
            }
        }
        if let Some(other) = denials.insert(key, denial) {
            let is_over = other.until <= denial.asked;
            *(if is_over { &mut stats.expired } else { &mut stats.overwritten }) += 1;
        }
    }

    /// Forgets what was refused by a counter, also what will only be heard of later.
    pub(super) fn forget(&self, key: Key) {
        let mut part = self.part(key);
        part.denials.remove(&key);
        part.forgotten = self.forgotten.fetch_add(1, Ordering::SeqCst) + 1;
    }

    fn part(&self, key: Key) -> MutexGuard<'_, Part> {
        let part = &self.parts[(key.bits() >> 64) as usize % PARTS];
        part.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn learn(denials: &Denials, takes: &[Take<'_>], answers: &[Answer], asked: Micros) {
        denials.learn(takes, answers, asked, denials.moment());
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
        learn(&denials, &[charge(&limit, 1, 3)], &[refused(400)], NOW);
        assert!(is_refused(1, 3, later(0)) && is_refused(1, 4, later(399)), "as much, or more");
        assert!(!is_refused(1, 2, later(1)), "less may fit");
        assert!(!is_refused(1, 3, later(400)) && !is_refused(2, 3, later(1)), "its time, another key");
        learn(&denials, &[charge(&limit, 1, 3)], &[refused(60_000)], NOW);
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
        learn(&denials, &[charge(&limit, 1, 1)], &[refused(700)], NOW);
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
        learn(&denials, &[charge(&limit, 1, 1)], &[refused(700)], NOW);
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
            learn(&denials, &[take], &[refused(700)], NOW);
            assert!(
                denials.refuse(&[Take { ask: Ask::Charge { cost: 1 }, ..take }], NOW).is_none(),
                "{take:?}"
            );
        }
        learn(
            &denials,
            &[denied],
            &[Answer { verdict: Verdict { applied: -1, ..Verdict::BLANK }, mode: Mode::Exact }],
            NOW,
        );
        assert!(denials.refuse(&[denied], NOW).is_none(), "units were given back");
        Ok(())
    }

    #[test]
    fn a_take_that_another_of_its_request_left_no_room_for_is_not_remembered() -> Result<(), LimitError> {
        let limit = Limit::sliding_window(5, Micros::from_secs(60))?;
        let denials = Denials::default();
        let admitted =
            Answer { verdict: Verdict { outcome: Outcome::Admitted, ..Verdict::BLANK }, mode: Mode::Exact };
        let three = charge(&limit, 1, 3);
        learn(&denials, &[three, three], &[admitted, refused(700)], NOW);
        assert!(denials.refuse(&[three], NOW).is_none(), "alone it fits");
        learn(&denials, &[three, charge(&limit, 2, 3)], &[refused(700), admitted], NOW);
        assert!(denials.refuse(&[three], NOW).is_some());
        Ok(())
    }

    #[test]
    fn what_was_asked_before_it_was_forgotten_is_not_remembered_after_it() -> Result<(), LimitError> {
        let limit = Limit::sliding_window(10, Micros::from_secs(60))?;
        let denials = Denials::default();
        let one = charge(&limit, 1, 1);
        let before = denials.moment();
        denials.forget(one.key);
        denials.learn(&[one], &[refused(700)], NOW, before);
        assert!(denials.refuse(&[one], NOW).is_none(), "it was reset since");
        denials.learn(&[one], &[refused(700)], NOW, denials.moment());
        assert!(denials.refuse(&[one], NOW).is_some());
        Ok(())
    }

    #[test]
    fn it_is_bounded() -> Result<(), LimitError> {
        let limit = Limit::sliding_window(10, Micros::from_secs(60))?;
        let denials = Denials::default();
        let all =
            || denials.parts.iter().map(|part| part.lock().expect("no panic").denials.len()).sum::<usize>();
        for number in 0..200_000_u128 {
            learn(&denials, &[charge(&limit, number << 64, 1)], &[refused(700)], NOW);
        }
        assert_eq!(all(), PARTS * PART_MAX);
        learn(&denials, &[charge(&limit, 1, 1)], &[refused(700)], later(800));
        assert!(denials.refuse(&[charge(&limit, 1, 1)], later(800)).is_some(), "what has ended makes room");
        Ok(())
    }
}
