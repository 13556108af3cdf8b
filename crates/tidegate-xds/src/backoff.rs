//! How long to wait before the next attempt: twice as long each time up to a bound, and never exactly that long, so that a fleet which lost
//! its server does not come back as one.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// A wait that grows.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new((first, longest): (Duration, Duration)) -> Self {
        let longest = longest.max(first);
        Self { first, longest, next: first }
    }

    /// The next wait: from half of the bound of its turn to all of it.
    pub(crate) fn wait(&mut self) -> Duration {
        let bound = self.next;
        self.next = bound.saturating_mul(2).min(self.longest);
        let lot = RandomState::new().hash_one(0_u8) % 1_001; // Keyed anew each time.
        bound / 2 + (bound / 2).mul_f64(lot as f64 / 1_000.0)
    }

    /// All is well: the next wait is short again.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_bound_and_start_again() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new((ms(100), ms(450)));
        for _ in 0..3 {
            for bound in [100, 200, 400, 450, 450] {
                let wait = backoff.wait();
                assert!(ms(bound) / 2 <= wait && wait <= ms(bound), "{wait:?} of {bound} ms");
            }
            backoff.reset();
        }
    }

    #[test]
    fn waits_differ_from_each_other() {
        let first = Duration::from_secs(10);
        let waits: std::collections::HashSet<Duration> =
            (0..50).map(|_| Backoff::new((first, first)).wait()).collect();
        assert!(waits.len() > 10, "{waits:?}");
    }

    #[test]
    fn a_bound_below_the_first_wait_is_that_wait() {
        let mut backoff = Backoff::new((Duration::from_secs(4), Duration::from_secs(1)));
        assert!(backoff.wait() >= Duration::from_secs(2));
        assert!(backoff.wait() <= Duration::from_secs(4));
    }
}
