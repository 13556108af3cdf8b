//! The rules that all algorithms share: who is admitted, what is charged, which numbers are told.
//!
//! An algorithm says how much is used and how long until something fits ([`Law`]); everything else is decided here, once.

use crate::{Ask, Bound, Micros, Outcome, Receipt, Verdict};

/// What one algorithm knows about one counter.
///
/// A step repairs the state, then sees it once: `Seen` is what the algorithm worked out about this instant, so that the numbers
/// of a verdict do not work it out again.
pub(crate) trait Law {
    /// The counter.
    type State<'a>;
    /// The counter at an instant.
    type Seen: Copy;

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
    /// Looks at a repaired state.
    fn see(&self, state: &Self::State<'_>, now: Micros) -> Self::Seen;

    /// The counter's own time: now, floored to the tick, never before the last write.
    fn at(&self, seen: Self::Seen) -> Micros;
    /// Units in use, as this algorithm estimates them, in whole units.
    fn used(&self, seen: Self::Seen) -> u64;
    /// Least wait until `cost` fits if nothing else happens, for 1 ≤ cost ≤ capacity.
    fn wait(&self, state: &Self::State<'_>, seen: Self::Seen, cost: u64) -> Micros;
    /// How long until the counter is as if never touched.
    fn reset_after(&self, state: &Self::State<'_>, seen: Self::Seen) -> Micros;
    /// How long until nothing in the state can change an answer.
    fn keep_for(&self, state: &Self::State<'_>, seen: Self::Seen) -> Micros {
        self.reset_after(state, seen)
    }
    /// For windows aligned to the clock or a calendar: how long until this one ends.
    fn window_end(&self, _seen: Self::Seen) -> Option<Micros> {
        None
    }
    /// How far this answer may be off an exact window.
    fn bound(&self, state: &Self::State<'_>, seen: Self::Seen) -> Bound;

    /// Charges so many units (at least one), whatever the room: the rules here have seen to it. Returns the counter as it is now.
    fn charge(&self, state: &mut Self::State<'_>, seen: Self::Seen, units: u32) -> Self::Seen;
    /// Gives units back, to the charge made at `of` or, blindly, to the newest; says how many there were to give.
    fn refund(&self, state: &mut Self::State<'_>, seen: Self::Seen, units: u64, of: Option<Micros>) -> u64;
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
#[inline]
pub(crate) fn step<L: Law>(
    law: &L,
    charge: Charge,
    state: &mut L::State<'_>,
    ask: Ask,
    now: Micros,
) -> Verdict {
    law.repair(state, now);
    let seen = law.see(state, now);
    match ask {
        Ask::Charge { cost: 0 } | Ask::Acquire { cost: 0, .. } | Ask::Peek => judge(law, state, seen, 0),
        Ask::Charge { cost } | Ask::Acquire { cost, .. } => charge_seen(law, charge, state, seen, cost),
        Ask::Refund { units, receipt } => {
            let units = receipt.map_or(units, |receipt| units.min(receipt.units));
            give_back(law, state, seen, now, units, receipt)
        }
        Ask::Settle { receipt, actual } if actual <= receipt.units => {
            give_back(law, state, seen, now, receipt.units - actual, Some(receipt))
        }
        Ask::Settle { receipt, actual } => {
            let (seen, applied) = force(law, state, seen, actual - receipt.units);
            numbers(law, state, seen, Outcome::Admitted, 1, applied)
        }
        Ask::Renew { .. } | Ask::Release { .. } => {
            numbers(law, state, seen, Outcome::Admitted, 1, Applied::default())
        }
    }
}

/// The same as [`step`] for a charge of at least one unit. Everything that it needs becomes one piece of code, with no call in it: that
/// is worth it where a table is asked millions of times a second.
#[inline(always)]
pub(crate) fn charge_inline<L: Law>(
    law: &L,
    charge: Charge,
    state: &mut L::State<'_>,
    cost: u64,
    now: Micros,
) -> Verdict {
    law.repair(state, now);
    let seen = law.see(state, now);
    charge_seen(law, charge, state, seen, cost)
}

/// Charges `cost`, at least one unit, if it fits, or if refusals are charged too.
#[inline(always)]
fn charge_seen<L: Law>(
    law: &L,
    charge: Charge,
    state: &mut L::State<'_>,
    seen: L::Seen,
    cost: u64,
) -> Verdict {
    let outcome = outcome_of(law, seen, cost);
    if outcome == Outcome::Admitted {
        // At most the capacity, which is 32 bits wide.
        let seen = law.charge(state, seen, cost as u32);
        return within(law, state, seen, Outcome::Admitted, cost, Applied::charged(cost));
    }
    let (seen, applied) = match charge {
        Charge::Always => force(law, state, seen, cost),
        Charge::Admitted => (seen, Applied::default()),
    };
    numbers(law, state, seen, outcome, cost, applied)
}

/// Judges `ask` and carries nothing out: what a take shows in a request that was refused elsewhere.
pub(crate) fn show<L: Law>(law: &L, state: &mut L::State<'_>, ask: Ask, now: Micros) -> Verdict {
    law.repair(state, now);
    let seen = law.see(state, now);
    match ask {
        Ask::Charge { cost } | Ask::Acquire { cost, .. } => judge(law, state, seen, cost),
        Ask::Peek => judge(law, state, seen, 0),
        Ask::Refund { .. } | Ask::Settle { .. } | Ask::Renew { .. } | Ask::Release { .. } => {
            numbers(law, state, seen, Outcome::Admitted, 1, Applied::default())
        }
    }
}

/// The numbers of a repaired state after something that is not up to the room.
pub(crate) fn look<L: Law>(
    law: &L,
    state: &L::State<'_>,
    outcome: Outcome,
    applied: i64,
    now: Micros,
) -> Verdict {
    numbers(law, state, law.see(state, now), outcome, 1, Applied { units: applied, forgiven: 0 })
}

/// Judges a charge of `cost` (0: a peek, which passes exactly where a charge of one unit does).
fn judge<L: Law>(law: &L, state: &L::State<'_>, seen: L::Seen, cost: u64) -> Verdict {
    let cost = cost.max(1);
    numbers(law, state, seen, outcome_of(law, seen, cost), cost, Applied::default())
}

#[inline(always)]
fn outcome_of<L: Law>(law: &L, seen: L::Seen, cost: u64) -> Outcome {
    let capacity = u64::from(law.capacity());
    if capacity == 0 {
        Outcome::RateLimited // A limit of zero is a closed door, not a cost that is too large.
    } else if cost > capacity {
        Outcome::CostExceedsLimit
    } else if law.used(seen) + cost <= capacity {
        Outcome::Admitted
    } else {
        Outcome::RateLimited
    }
}

/// The most that forced charges may bring a counter to: a debt of one limit, and what 32 bits hold.
pub(crate) fn ceiling(capacity: u32) -> u64 {
    (2 * u64::from(capacity)).min(u64::from(u32::MAX))
}

/// What an ask did to a counter.
#[derive(Clone, Copy, Default)]
pub(crate) struct Applied {
    pub(crate) units: i64,
    pub(crate) forgiven: u64,
}

impl Applied {
    fn charged(units: u64) -> Self {
        Self { units: units as i64, forgiven: 0 } // At most 32 bits.
    }
}

/// Charges what the debt allows of `cost`. Inline although it is seldom wanted: a call would need the state in memory, also for all others.
#[inline(always)]
fn force<L: Law>(law: &L, state: &mut L::State<'_>, seen: L::Seen, cost: u64) -> (L::Seen, Applied) {
    let forced = cost.min(ceiling(law.capacity()).saturating_sub(law.used(seen)));
    let seen = if forced > 0 { law.charge(state, seen, forced as u32) } else { seen };
    (seen, Applied { forgiven: cost - forced, ..Applied::charged(forced) })
}

fn give_back<L: Law>(
    law: &L,
    state: &mut L::State<'_>,
    seen: L::Seen,
    now: Micros,
    units: u64,
    receipt: Option<Receipt>,
) -> Verdict {
    let given =
        if units == 0 { 0 } else { law.refund(state, seen, units, receipt.map(|receipt| receipt.at)) };
    look(law, state, Outcome::Admitted, -(given as i64), now)
}

/// The numbers of a verdict, on a state after the decision.
#[inline(always)]
pub(crate) fn numbers<L: Law>(
    law: &L,
    state: &L::State<'_>,
    seen: L::Seen,
    outcome: Outcome,
    cost: u64,
    applied: Applied,
) -> Verdict {
    let debt = law.used(seen).saturating_sub(law.capacity().into()).min(u32::MAX.into()) as u32;
    Verdict { debt, ..within(law, state, seen, outcome, cost, applied) }
}

/// The same where the limit holds what is in use, as after a charge that fitted: nobody pays for a debt that cannot be.
#[inline(always)]
fn within<L: Law>(
    law: &L,
    state: &L::State<'_>,
    seen: L::Seen,
    outcome: Outcome,
    cost: u64,
    applied: Applied,
) -> Verdict {
    let remaining = u64::from(law.capacity()).saturating_sub(law.used(seen)) as u32;
    let reset_after = law.reset_after(state, seen);
    // Where no wait cures: the end of an aligned window, else a whole window.
    let without_retry = || law.window_end(seen).unwrap_or(Micros::new(law.window_us()));
    let (retry_after, reset) = match outcome {
        Outcome::RateLimited if law.capacity() > 0 => {
            let wait = law.wait(state, seen, cost);
            (Some(wait), wait)
        }
        Outcome::RateLimited | Outcome::CostExceedsLimit => (None, without_retry()),
        Outcome::Admitted | Outcome::NotHeld if remaining > 0 => {
            (None, law.window_end(seen).unwrap_or(reset_after))
        }
        Outcome::Admitted | Outcome::NotHeld if law.capacity() > 0 => (None, law.wait(state, seen, 1)),
        Outcome::Admitted | Outcome::NotHeld => (None, without_retry()),
    };
    Verdict {
        outcome,
        limit: law.amount(),
        remaining,
        debt: 0,
        reset_after,
        retry_after,
        reset,
        bound: law.bound(state, seen),
        applied: applied.units,
        forgiven: applied.forgiven,
        at: law.at(seen),
    }
}
