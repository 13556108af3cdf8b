//! What a counter answers.

use crate::{Micros, Receipt};

/// The answer to one [`crate::Ask`]. All numbers describe the counter after the decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Admitted, or why not.
    pub outcome: Outcome,
    /// The limit's amount.
    pub limit: u32,
    /// The largest cost that would be admitted at the same instant.
    pub remaining: u32,
    /// Units in use above what the limit can hold: what was charged whatever the room, or before the limit was lowered.
    pub debt: u32,
    /// How long until the counter is as if never touched.
    pub reset_after: Micros,
    /// On a refusal that waiting can cure: the least wait after which the same ask alone is admitted.
    pub retry_after: Option<Micros>,
    /// What callers are shown as reset: on a refusal the retry; on an admission that leaves nothing, the wait for one
    /// unit; else the end of an aligned window, or `reset_after`.
    pub reset: Micros,
    /// How far the counter's estimate may be off an exact window, at this answer.
    pub bound: Bound,
    /// Units charged (positive) or given back (negative).
    pub applied: i64,
    /// Units that should have been charged but would have made the debt larger than one limit.
    pub forgiven: u64,
    /// The counter's own time: `now` in ticks, but never before its last write.
    pub at: Micros,
}

impl Verdict {
    /// Says nothing: a place for a verdict.
    pub const BLANK: Self = Self {
        outcome: Outcome::RateLimited,
        limit: 0,
        remaining: 0,
        debt: 0,
        reset_after: Micros::ZERO,
        retry_after: None,
        reset: Micros::ZERO,
        bound: Bound::EXACT,
        applied: 0,
        forgiven: 0,
        at: Micros::ZERO,
    };

    /// May the request go on, as far as this counter is concerned?
    pub fn admitted(&self) -> bool {
        self.outcome == Outcome::Admitted
    }

    /// The receipt for what was charged, if anything was.
    pub fn receipt(&self) -> Option<Receipt> {
        let units = u64::try_from(self.applied).ok().filter(|units| *units > 0)?;
        Some(Receipt { at: self.at, units })
    }
}

/// Admitted, or why not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It fits.
    Admitted,
    /// It does not fit now.
    RateLimited,
    /// It can never fit: the cost is above what the limit can hold.
    CostExceedsLimit,
    /// A renewal of places that are not held any more: acquire anew.
    NotHeld,
}

/// How far this answer may be off what an exact window of the same length would have said, in units.
///
/// An admission leaves at most limit + `over` units of the counter's own net charges in the window; a refusal had more than
/// limit − `under` used or asked for. Algorithms that estimate the window (all but the buckets) also promise that the truth
/// lies between estimate − `under` and estimate + `over`. A bucket gives back to its level, so for its bound a refund counts when it is
/// made, not when the charge was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bound {
    /// The most by which more may have been admitted than an exact window would.
    pub over: u32,
    /// The most by which less may have been admitted.
    pub under: u32,
}

impl Bound {
    /// The estimate is the truth.
    pub const EXACT: Self = Self { over: 0, under: 0 };

    pub(crate) fn new(over: u64, under: u64) -> Self {
        let units = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Self { over: units(over), under: units(under) }
    }
}
