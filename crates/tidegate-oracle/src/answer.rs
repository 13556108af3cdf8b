//! What a counter says to one question.

use std::fmt;

use crate::duration;

/// The answer to one question; all numbers hold after the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The decision.
    pub outcome: Outcome,
    /// The largest cost that would still fit.
    pub remaining: u64,
    /// By how much more is in use than the limit can hold.
    pub debt: u64,
    /// The least wait after which nothing counts any more.
    pub reset_after_us: u64,
    /// The least wait after which the same request alone would pass.
    pub retry_after_us: Option<u64>,
    /// The wait that callers are shown.
    pub reset_us: u64,
    /// The units charged, negative where given back.
    pub applied: i64,
    /// The units that should have been charged but would have exceeded the largest debt.
    pub forgiven: u64,
    /// The time at which the counter took the question to be asked.
    pub at_us: u64,
    /// By how many units an exact window may hold more than is counted.
    pub over: u64,
    /// By how many units an exact window may hold less than is counted.
    pub under: u64,
}

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It fits.
    Admitted,
    /// It does not fit now.
    RateLimited,
    /// It can never fit.
    CostExceedsLimit,
    /// The place to renew is not held.
    NotHeld,
}

impl Outcome {
    /// Whether units were refused.
    pub fn is_refusal(self) -> bool {
        matches!(self, Self::RateLimited | Self::CostExceedsLimit)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Admitted => "admitted",
            Self::RateLimited => "rate_limited",
            Self::CostExceedsLimit => "cost_exceeds_limit",
            Self::NotHeld => "not_held",
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} remaining={}", self.outcome, self.remaining)?;
        match self.retry_after_us {
            Some(us) => write!(f, " retry={}", duration::print(us))?,
            None => write!(f, " retry=-")?,
        }
        write!(f, " reset={}", duration::print(self.reset_us))?;
        write!(f, " reset_after={}", duration::print(self.reset_after_us))?;
        write!(f, " applied={} forgiven={} debt={}", self.applied, self.forgiven, self.debt)?;
        write!(f, " at={} over={} under={}", duration::print(self.at_us), self.over, self.under)
    }
}
