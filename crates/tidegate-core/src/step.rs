//! The rules that all algorithms share: who is admitted, what is charged, which numbers are told.
//!
//! An algorithm says how much is used and how long until something fits ([`Law`]); everything else is decided here, once.

use crate::{Ask, Bound, Micros, Outcome, Receipt, Verdict};

/// What one algorithm knows about one counter. Every method but `repair` may trust that the state was repaired for `now`.
pub(crate) trait Law {
    /// The counter.
    type State<'a>;

    /// The limit's amount.
    fn amount(&self) -> u32;
    /// The largest cost that can ever fit: the amount, or a bucket's burst.
    fn capacity(&self) -> u32 {
        self.amount()
    }
    /// The window, in µs.
    fn window_us(&self) -> u64;

    /// If the stored time is so far ahead that only a broken clock can have written it, moves all stored times back to `now`
    /// and keeps the counts: no free budget, no frozen key.
    fn repair(&self, state: &mut Self::State<'_>, now: Micros);
    /// The counter's own time at `now`: floored to the tick, never before the last write.
    fn at(&self, state: &Self::State<'_>, now: Micros) -> Micros;
    /// Units in use, as this algorithm estimates them, rounded up.
    fn used(&self, state: &Self::State<'_>, now: Micros) -> u64;
    /// Least wait until `cost` fits if nothing else happens, for 1 ≤ cost ≤ capacity.
    fn wait(&self, state: &Self::State<'_>, now: Micros, cost: u64) -> Micros;
    /// How long until the counter is as if never touched.
    fn reset_after(&self, state: &Self::State<'_>, now: Micros) -> Micros;
    /// How long until nothing in the state can change an answer.
    fn keep_for(&self, state: &Self::State<'_>, now: Micros) -> Micros {
        self.reset_after(state, now)
    }
    /// For windows aligned to the clock or a calendar: how long until this one ends.
    fn window_end(&self, _state: &Self::State<'_>, _now: Micros) -> Option<Micros> {
        None
    }
    /// How far the estimate may be off.
    fn bound(&self, state: &Self::State<'_>, now: Micros) -> Bound;

    /// Charges so many units (at least one), whatever the room: the rules here have seen to it.
    fn charge(&self, state: &mut Self::State<'_>, now: Micros, units: u32);
    /// Gives units back, to the charge made at `of` or, blindly, to the newest; says how many there were to give.
    fn refund(&self, state: &mut Self::State<'_>, now: Micros, units: u64, of: Option<Micros>) -> u64;
}

/// Whether refusals charge too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Charge {
    /// Only what is admitted is charged.
    #[default]
    Admitted,
    /// What does not fit is charged all the same, up to a debt of one limit.
    Always,
}

/// Judges `ask` and carries it out.
pub(crate) fn step<L: Law>(
    law: &L,
    charge: Charge,
    state: &mut L::State<'_>,
    ask: Ask,
    now: Micros,
) -> Verdict {
    law.repair(state, now);
    match ask {
        Ask::Charge { cost: 0 } | Ask::Acquire { cost: 0, .. } | Ask::Peek => judge(law, state, 0, now),
        Ask::Charge { cost } | Ask::Acquire { cost, .. } => {
            let used = law.used(state, now);
            let outcome = outcome_of(law, used, cost);
            if outcome == Outcome::Admitted {
                // An admitted cost is at most the capacity, which is 32 bits wide.
                law.charge(state, now, cost as u32);
                return numbers(law, state, outcome, cost, now, used + cost, cost as i64, 0);
            }
            let forced = if charge == Charge::Always { force(law, state, used, cost, now) } else { 0 };
            let forgiven = if charge == Charge::Always { cost - forced } else { 0 };
            numbers(law, state, outcome, cost, now, used + forced, forced as i64, forgiven)
        }
        Ask::Refund { units, receipt } => {
            give_back(law, state, receipt.map_or(units, |receipt| units.min(receipt.units)), receipt, now)
        }
        Ask::Settle { receipt, actual } if actual <= receipt.units => {
            give_back(law, state, receipt.units - actual, Some(receipt), now)
        }
        Ask::Settle { receipt, actual } => {
            let more = actual - receipt.units;
            let used = law.used(state, now);
            let forced = force(law, state, used, more, now);
            numbers(law, state, Outcome::Admitted, 1, now, used + forced, forced as i64, more - forced)
        }
        Ask::Renew { .. } | Ask::Release { .. } => give_back(law, state, 0, None, now),
    }
}

/// Judges a charge of `cost` (0: a peek) and carries nothing out: what a take that passed shows in a request refused elsewhere.
pub(crate) fn judge<L: Law>(law: &L, state: &mut L::State<'_>, cost: u64, now: Micros) -> Verdict {
    law.repair(state, now);
    let used = law.used(state, now);
    // A peek passes exactly where a charge of one unit does.
    let cost = cost.max(1);
    let outcome = outcome_of(law, used, cost);
    numbers(law, state, outcome, cost, now, used, 0, 0)
}

/// The answer to an ask that changed nothing and is content with any room.
pub(crate) fn look<L: Law>(
    law: &L,
    state: &L::State<'_>,
    outcome: Outcome,
    applied: i64,
    now: Micros,
) -> Verdict {
    numbers(law, state, outcome, 1, now, law.used(state, now), applied, 0)
}

fn outcome_of<L: Law>(law: &L, used: u64, cost: u64) -> Outcome {
    let capacity = u64::from(law.capacity());
    if capacity == 0 {
        Outcome::RateLimited // A limit of zero is a closed door, not a cost that is too large.
    } else if cost > capacity {
        Outcome::CostExceedsLimit
    } else if used + cost <= capacity {
        Outcome::Admitted
    } else {
        Outcome::RateLimited
    }
}

/// The most that forced charges may bring a counter to: a debt of one limit, and what 32 bits hold.
pub(crate) fn ceiling(capacity: u32) -> u64 {
    (2 * u64::from(capacity)).min(u64::from(u32::MAX))
}

/// Charges what the debt allows of `cost`; says how much that was.
fn force<L: Law>(law: &L, state: &mut L::State<'_>, used: u64, cost: u64, now: Micros) -> u64 {
    let forced = cost.min(ceiling(law.capacity()).saturating_sub(used));
    if forced > 0 {
        law.charge(state, now, forced as u32); // The ceiling is 32 bits wide.
    }
    forced
}

fn give_back<L: Law>(
    law: &L,
    state: &mut L::State<'_>,
    units: u64,
    receipt: Option<Receipt>,
    now: Micros,
) -> Verdict {
    let given = if units == 0 { 0 } else { law.refund(state, now, units, receipt.map(|receipt| receipt.at)) };
    look(law, state, Outcome::Admitted, -(given as i64), now)
}

/// The numbers of a verdict, on a state with `used` units in use after the decision.
#[expect(
    clippy::too_many_arguments,
    reason = "one call site per outcome; a struct would only rename the arguments"
)]
#[inline]
fn numbers<L: Law>(
    law: &L,
    state: &L::State<'_>,
    outcome: Outcome,
    cost: u64,
    now: Micros,
    used: u64,
    applied: i64,
    forgiven: u64,
) -> Verdict {
    let remaining = u64::from(law.capacity()).saturating_sub(used) as u32;
    let reset_after = law.reset_after(state, now);
    let (retry_after, reset) = match outcome {
        Outcome::RateLimited if law.capacity() > 0 => {
            let wait = law.wait(state, now, cost);
            (Some(wait), wait)
        }
        Outcome::RateLimited | Outcome::CostExceedsLimit => (None, without_retry(law, state, now)),
        Outcome::Admitted | Outcome::NotHeld if remaining > 0 => {
            (None, law.window_end(state, now).unwrap_or(reset_after))
        }
        Outcome::Admitted | Outcome::NotHeld if law.capacity() > 0 => (None, law.wait(state, now, 1)),
        Outcome::Admitted | Outcome::NotHeld => (None, without_retry(law, state, now)),
    };
    Verdict {
        outcome,
        limit: law.amount(),
        remaining,
        reset_after,
        retry_after,
        reset,
        bound: law.bound(state, now),
        applied,
        forgiven,
        at: law.at(state, now),
    }
}

/// What is shown as reset where no wait cures: the end of an aligned window, else a whole window.
fn without_retry<L: Law>(law: &L, state: &L::State<'_>, now: Micros) -> Micros {
    law.window_end(state, now).unwrap_or(Micros::new(law.window_us()))
}
