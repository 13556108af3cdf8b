//! Accuracy in the style of Cloudflare's published figures: nothing is refused, every attempt is counted, and the question
//! at each request is only whether the estimate and the truth are on the same side of the limit.

use crate::exact::ExactLog;
use crate::limiter::{Algorithm, CELL_LOG, Limiter, SUB_WINDOW_10, SUB_WINDOW_60, Shipped, TWO_WINDOW};

pub(crate) struct Estimator {
    pub(crate) algorithm: Algorithm,
    /// Units per request. The counters are linear, so a thousand units each show their estimate to a thousandth of a
    /// request before it is rounded up; the cell log counts whole requests by design.
    pub(crate) units: u64,
}

pub(crate) const ESTIMATORS: [Estimator; 4] = [
    Estimator { algorithm: TWO_WINDOW, units: 1_000 },
    Estimator { algorithm: SUB_WINDOW_10, units: 1_000 },
    Estimator { algorithm: SUB_WINDOW_60, units: 1_000 },
    Estimator { algorithm: CELL_LOG, units: 1 },
];

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Attempts {
    pub(crate) requests: u64,
    /// Estimate and truth on different sides of the limit.
    pub(crate) wrong: u64,
    /// Sum of |estimate − truth| ÷ truth.
    pub(crate) error_sum: f64,
}

impl Attempts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.wrong += other.wrong;
        self.error_sum += other.error_sum;
    }

    pub(crate) fn wrong_percent(&self) -> f64 {
        100.0 * self.wrong as f64 / self.requests.max(1) as f64
    }

    pub(crate) fn mean_error_percent(&self) -> f64 {
        100.0 * self.error_sum / self.requests.max(1) as f64
    }
}

impl Estimator {
    /// A limiter that will not refuse a source whose busiest window holds `peak` attempts. A counter's estimate does not
    /// depend on its limit, so it gets more than it can ever count; the size of a cell does, so the cell log keeps the
    /// limit itself where that suffices, and else gets a tenth more than the peak.
    pub(crate) fn limiter(&self, limit: u64, peak: u64) -> Result<Shipped, String> {
        let amount = match self.units {
            1 if peak <= limit * 9 / 10 => limit,
            1 => u64::max(limit, peak + peak / 10 + 2),
            _ => u64::max(limit, 2 * peak + 1),
        };
        Shipped::new((self.algorithm.limit)(amount * self.units), self.units)
            .map_err(|error| format!("{} of {amount}: {error}", self.algorithm.title()))
    }
}

/// Counts every attempt of one source.
pub(crate) fn count(
    limit: u64,
    units: u64,
    limiter: &mut dyn Limiter,
    log: &mut ExactLog,
    times_us: &[u64],
) -> Result<Attempts, String> {
    let mut attempts = Attempts::default();
    limiter.reset();
    log.clear();
    for &now_us in times_us {
        let hit = limiter.hit(now_us);
        if !hit.admitted {
            return Err("an attempt was refused by a limiter that must count them all".into());
        }
        log.admit(now_us);
        let truth = log.count(now_us);
        attempts.requests += 1;
        attempts.wrong += u64::from((hit.estimate > limit * units) != (truth > limit));
        attempts.error_sum += hit.estimate.abs_diff(truth * units) as f64 / (truth * units) as f64;
    }
    Ok(attempts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::Hit;

    /// Believes that everything it ever saw is still there.
    struct NeverForgets(u64);

    impl Limiter for NeverForgets {
        fn reset(&mut self) {
            self.0 = 0;
        }
        fn hit(&mut self, _: u64) -> Hit {
            self.0 += 10;
            Hit { admitted: self.0 <= 40, estimate: self.0, over: 0, under: 0 }
        }
        fn used(&mut self, _: u64) -> u64 {
            self.0
        }
        fn bytes(&mut self) -> u64 {
            0
        }
    }

    #[test]
    fn sides_and_errors_by_hand() {
        // Window 100 µs, limit 2, ten units each. Truths 1, 2, 1, 2; estimates 1, 2, 3, 4.
        let counted = count(2, 10, &mut NeverForgets(0), &mut ExactLog::new(100), &[0, 1, 101, 102]).unwrap();
        assert_eq!(counted, Attempts { requests: 4, wrong: 2, error_sum: 2.0 + 1.0 });
        assert_eq!((counted.wrong_percent(), counted.mean_error_percent()), (50.0, 75.0));
    }

    #[test]
    fn a_refusal_is_an_error_not_a_figure() {
        assert!(count(2, 10, &mut NeverForgets(0), &mut ExactLog::new(100), &[0, 1, 2, 3, 4]).is_err());
    }
}
