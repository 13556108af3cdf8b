//! What became of calls, each counted once.

use crate::client::Outcome;

/// So many of each.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize, serde::Deserialize)]
pub struct Tally {
    /// Let through by those who count.
    pub allowed: u64,
    /// Refused by them.
    pub refused: u64,
    /// Answered either way without being counted: the store did not answer. The answer has to say so.
    pub degraded: u64,
    /// Not answered, or not by an answer.
    pub failed: u64,
}

impl Tally {
    /// One more.
    pub fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Admitted => self.allowed += 1,
            Outcome::Refused => self.refused += 1,
            Outcome::Degraded => self.degraded += 1,
            Outcome::Failed => self.failed += 1,
        }
    }

    /// All of them.
    pub fn calls(&self) -> u64 {
        self.allowed + self.refused + self.degraded + self.failed
    }

    /// What came to it since.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            allowed: self.allowed.saturating_sub(before.allowed),
            refused: self.refused.saturating_sub(before.refused),
            degraded: self.degraded.saturating_sub(before.degraded),
            failed: self.failed.saturating_sub(before.failed),
        }
    }

    /// Both.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            allowed: self.allowed + other.allowed,
            refused: self.refused + other.refused,
            degraded: self.degraded + other.degraded,
            failed: self.failed + other.failed,
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { allowed, refused, degraded, failed } = self;
        write!(out, "{allowed} allowed, {refused} refused, {degraded} degraded, {failed} failed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_counted_once() {
        let mut tally = Tally::default();
        for outcome in
            [Outcome::Admitted, Outcome::Refused, Outcome::Refused, Outcome::Degraded, Outcome::Failed]
        {
            tally.add(outcome);
        }
        assert_eq!(tally.to_string(), "1 allowed, 2 refused, 1 degraded, 1 failed");
        assert_eq!((tally.calls(), tally.plus(&tally).calls()), (5, 10));
        assert_eq!(tally.plus(&tally).since(&tally), tally);
    }
}
