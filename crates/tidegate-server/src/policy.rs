//! What is answered when a decision breaks: the policy of the rules. And what was wrong with the store, without a flood. (What is answered
//! when the store does not answer, is decided where it is asked: in `tidegate-counters`.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tidegate_core::{Fate, Micros, OnStoreFailure, Plan};
use tidegate_counters::Unavailable;

/// How long a failure is told of as the last one.
const LATELY: Micros = Micros::from_secs(15);

/// What the rules of a request say about answers that cannot be had, the strictest of them; none if they say nothing. It is one answer for
/// the whole request: nobody knows which of its takes failed.
pub(crate) fn of_plan(plan: &Plan<'_>) -> Option<OnStoreFailure> {
    let counted = plan.found().iter().filter(|found| matches!(found.fate, Fate::Counted(_)));
    let said = counted.filter_map(|found| Some(found.rule?.said.policy.on_store_failure));
    said.max_by_key(|said| said.strictness())
}

/// Failures of the store, told of without a flood: at most one line a second, however many requests fail.
#[derive(Debug, Default)]
pub struct StoreFailures {
    /// The second of the last line; 0 before the first.
    told_s: AtomicU64,
    /// Those that had no line since.
    left_out: AtomicU64,
    /// The last that was told, and when.
    last: Mutex<Option<(Micros, String)>>,
}

impl StoreFailures {
    /// The store did not answer. Says how many were left out before, if it is time for a line.
    pub fn line(&self, why: &Unavailable, now: Micros) -> Option<u64> {
        let (second, told_s) = (now.get() / 1_000_000, self.told_s.load(Ordering::Relaxed));
        let swapped = || self.told_s.compare_exchange(told_s, second, Ordering::Relaxed, Ordering::Relaxed);
        if second == told_s || swapped().is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, why.why.clone()));
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }

    /// What was wrong with the store a moment ago, if anything was.
    pub fn lately(&self, now: Micros) -> Option<String> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(at, _)| now.minus(*at) < LATELY).map(|(_, why)| why.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_once_a_second_with_how_many_were_left_out() {
        let (failures, why) = (StoreFailures::default(), Unavailable { why: "gone".into() });
        let noon = Micros::from_secs(1_800_000_000);
        let after = |us| noon.plus(Micros::new(us));
        let told = [0, 1, 999_999, 1_000_000, 1_500_000, 3_000_000];
        let told = told.map(|us| failures.line(&why, after(us)));
        assert_eq!(told, [Some(0), None, None, Some(2), None, Some(1)]);
        assert_eq!(failures.lately(after(4_000_000)).as_deref(), Some("gone"));
        assert_eq!(failures.lately(after(18_000_000)), None);
    }
}
