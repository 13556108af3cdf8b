//! The judge: one limiter, one trace, every decision held against an exact log of the limiter's own admissions.

use crate::exact::ExactLog;
use crate::limiter::Limiter;

/// "Grossly" wrong means by more than this part of the limit.
pub(crate) const GROSS_PERCENT: u64 = 5;

/// What one limiter did on one trace (or on several, added up).
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) admitted: u64,
    /// What a limiter with perfect memory admits of the same requests.
    pub(crate) exact_admitted: u64,
    /// Admitted though the exact count, this request included, was then above the limit.
    pub(crate) wrong_admissions: u64,
    /// … above 1.05 limits.
    pub(crate) gross_admissions: u64,
    /// Refused though the exact count and this request together were within the limit.
    pub(crate) false_refusals: u64,
    /// … within 0.95 limits.
    pub(crate) gross_refusals: u64,
    /// Refused though the caller kept to the limit: this was at most its L-th attempt within a window.
    pub(crate) innocent_refusals: u64,
    /// The highest exact count of admissions in any window.
    pub(crate) peak: u64,
    /// Sum of |estimate − truth| ÷ truth, and over how many decisions (those with a truth above zero).
    pub(crate) error_sum: f64,
    pub(crate) error_count: u64,
    /// The most by which the estimate was above and below the truth.
    pub(crate) above_max: u64,
    pub(crate) below_max: u64,
    /// Decisions whose own stated bound did not hold.
    pub(crate) bounds_broken: u64,
    /// The widest bound stated, over and under.
    pub(crate) over_max: u64,
    pub(crate) under_max: u64,
    /// The largest state seen, in bytes as a store keeps it; looked at now and then.
    pub(crate) bytes_max: u64,
}

/// How often a state is measured. A prime, so as not to fall into step with a trace.
const MEASURE_EVERY: u64 = 97;

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.admitted += other.admitted;
        self.exact_admitted += other.exact_admitted;
        self.wrong_admissions += other.wrong_admissions;
        self.gross_admissions += other.gross_admissions;
        self.false_refusals += other.false_refusals;
        self.gross_refusals += other.gross_refusals;
        self.innocent_refusals += other.innocent_refusals;
        self.peak = self.peak.max(other.peak);
        self.error_sum += other.error_sum;
        self.error_count += other.error_count;
        self.above_max = self.above_max.max(other.above_max);
        self.below_max = self.below_max.max(other.below_max);
        self.bounds_broken += other.bounds_broken;
        self.over_max = self.over_max.max(other.over_max);
        self.under_max = self.under_max.max(other.under_max);
        self.bytes_max = self.bytes_max.max(other.bytes_max);
    }

    pub(crate) fn gross_percent(&self) -> f64 {
        self.percent(self.gross_admissions + self.gross_refusals)
    }

    pub(crate) fn percent(&self, requests: u64) -> f64 {
        100.0 * requests as f64 / self.requests.max(1) as f64
    }

    pub(crate) fn mean_error_percent(&self) -> f64 {
        100.0 * self.error_sum / self.error_count.max(1) as f64
    }

    pub(crate) fn against_exact(&self) -> f64 {
        self.admitted as f64 / self.exact_admitted.max(1) as f64
    }
}

/// The question put to a limiter: this many per window, and does its estimate claim to be a window's count?
pub(crate) struct Terms {
    pub(crate) limit: u64,
    pub(crate) estimates_window: bool,
}

/// The requests of one source: when, and how many it had then made within a window.
pub(crate) struct Requests<'a> {
    pub(crate) times_us: &'a [u64],
    pub(crate) attempts: &'a [u64],
}

/// Feeds one source's requests to an untouched limiter. `log` is only lent, to spare an allocation per source.
pub(crate) fn judge(
    terms: &Terms,
    limiter: &mut dyn Limiter,
    log: &mut ExactLog,
    requests: &Requests<'_>,
) -> Tally {
    let limit = terms.limit;
    let mut tally = Tally::default();
    limiter.reset();
    log.clear();
    for (&now_us, &attempts) in requests.times_us.iter().zip(requests.attempts) {
        let hit = limiter.hit(now_us);
        let before = log.count(now_us);
        if hit.admitted {
            log.admit(now_us);
        }
        let truth = before + u64::from(hit.admitted);

        tally.requests += 1;
        tally.admitted += u64::from(hit.admitted);
        tally.wrong_admissions += u64::from(hit.admitted && truth > limit);
        tally.gross_admissions += u64::from(hit.admitted && truth * 100 > limit * (100 + GROSS_PERCENT));
        tally.false_refusals += u64::from(!hit.admitted && truth < limit);
        tally.gross_refusals +=
            u64::from(!hit.admitted && (truth + 1) * 100 <= limit * (100 - GROSS_PERCENT));
        tally.innocent_refusals += u64::from(!hit.admitted && attempts <= limit);
        tally.peak = tally.peak.max(truth);

        if truth > 0 {
            tally.error_sum += hit.estimate.abs_diff(truth) as f64 / truth as f64;
            tally.error_count += 1;
        }
        tally.above_max = tally.above_max.max(hit.estimate.saturating_sub(truth));
        tally.below_max = tally.below_max.max(truth.saturating_sub(hit.estimate));

        // What the verdict said of itself: an admission leaves at most limit + over in the window, a refusal met more
        // than limit − under, this request included, and an estimate of the window is no further off than that.
        let decision_holds =
            if hit.admitted { truth <= limit + hit.over } else { truth + 1 + hit.under > limit };
        let estimate_holds = truth <= hit.estimate + hit.over && truth + hit.under >= hit.estimate;
        tally.bounds_broken += u64::from(!decision_holds || (terms.estimates_window && !estimate_holds));
        tally.over_max = tally.over_max.max(hit.over);
        tally.under_max = tally.under_max.max(hit.under);
        if tally.requests % MEASURE_EVERY == 1 {
            tally.bytes_max = tally.bytes_max.max(limiter.bytes());
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::count_attempts;
    use crate::limiter::Hit;

    /// Admitted, estimate, over, under.
    type Said = (bool, u64, u64, u64);

    /// Says what it is told to say, for each request in turn.
    struct Scripted {
        says: Vec<Said>,
        next: usize,
    }

    impl Limiter for Scripted {
        fn reset(&mut self) {
            self.next = 0;
        }
        fn hit(&mut self, _: u64) -> Hit {
            let (admitted, estimate, over, under) = self.says[self.next];
            self.next += 1;
            Hit { admitted, estimate, over, under }
        }
        fn used(&mut self, _: u64) -> u64 {
            0
        }
        fn bytes(&mut self) -> u64 {
            self.next as u64
        }
    }

    const WINDOW_US: u64 = 1_000;

    fn judged(limit: u64, estimates_window: bool, script: &[(u64, Said)]) -> Tally {
        let (times_us, says): (Vec<u64>, Vec<_>) = script.iter().copied().unzip();
        let mut limiter = Scripted { says, next: 0 };
        let mut log = ExactLog::new(WINDOW_US);
        let mut attempts = Vec::new();
        count_attempts(&mut log, &times_us, &mut attempts);
        let requests = Requests { times_us: &times_us, attempts: &attempts };
        judge(&Terms { limit, estimates_window }, &mut limiter, &mut log, &requests)
    }

    /// `n` true admissions, all at once, so that the next decision meets a count of `n`.
    fn filled(n: u64) -> Vec<(u64, Said)> {
        (1..=n).map(|truth| (10, (true, truth, 0, 0))).collect()
    }

    #[test]
    fn right_answers_leave_no_mark() {
        let mut script = filled(2);
        script.push((1_009, (false, 2, 0, 0)));
        script.push((1_010, (true, 1, 0, 0)));
        let tally = judged(2, true, &script);
        assert_eq!((tally.requests, tally.admitted, tally.peak), (4, 3, 2));
        let marks =
            [tally.wrong_admissions, tally.gross_admissions, tally.false_refusals, tally.gross_refusals];
        assert_eq!(marks, [0; 4]);
        assert_eq!((tally.bounds_broken, tally.above_max, tally.below_max), (0, 0, 0));
        assert_eq!(tally.mean_error_percent(), 0.0);
    }

    #[test]
    fn wrong_admissions_are_gross_only_above_105_percent() {
        let mut script = filled(100);
        script.extend((101..=106).map(|truth| (11, (true, truth, 6, 0))));
        let tally = judged(100, true, &script);
        assert_eq!((tally.wrong_admissions, tally.gross_admissions), (6, 1));
        assert_eq!(tally.peak, 106);
        assert_eq!(tally.bounds_broken, 0);
    }

    #[test]
    fn false_refusals_are_gross_only_up_to_95_percent() {
        let counts = |used: u64| {
            let mut script = filled(used);
            script.push((11, (false, used, 0, 100)));
            let tally = judged(100, true, &script);
            (tally.false_refusals, tally.gross_refusals)
        };
        assert_eq!(counts(94), (1, 1)); // 94 + this one = 95.
        assert_eq!(counts(95), (1, 0));
        assert_eq!(counts(99), (1, 0));
        assert_eq!(counts(100), (0, 0));
    }

    #[test]
    fn a_caller_that_keeps_to_the_limit_is_innocent() {
        let refused = (false, 0, 0, 2);
        // The second and the fourth are within two attempts a window; the third is the third, and no victim.
        let script = [(10, (true, 1, 0, 0)), (11, refused), (12, refused), (1_011, refused)];
        let tally = judged(2, true, &script);
        assert_eq!((tally.false_refusals, tally.innocent_refusals), (3, 2));
    }

    #[test]
    fn states_are_measured_now_and_then() {
        assert_eq!(judged(200, true, &filled(97)).bytes_max, 1);
        assert_eq!(judged(200, true, &filled(98)).bytes_max, 98);
    }

    #[test]
    fn estimates_are_held_to_the_bound_of_their_own_verdict() {
        let broken = |estimates_window, says| {
            let mut script = filled(5);
            script.push((11, says));
            judged(10, estimates_window, &script).bounds_broken
        };
        // The truth is 6 after this admission.
        assert_eq!(broken(true, (true, 4, 2, 0)), 0);
        assert_eq!(broken(true, (true, 4, 1, 0)), 1);
        assert_eq!(broken(true, (true, 8, 0, 2)), 0);
        assert_eq!(broken(true, (true, 8, 0, 1)), 1);
        assert_eq!(broken(false, (true, 8, 0, 1)), 0); // A bucket's level is no estimate of a window.
        // Refused with 5 in the window: an exact window of 10 had room for 5, so 5 is the least honest bound.
        assert_eq!(broken(false, (false, 10, 0, 5)), 0);
        assert_eq!(broken(false, (false, 10, 0, 4)), 1);
    }

    #[test]
    fn admissions_are_held_to_the_bound_of_their_own_verdict() {
        let broken = |over| {
            let mut script = filled(10);
            script.push((11, (true, 11, over, 0)));
            judged(10, false, &script).bounds_broken
        };
        assert_eq!((broken(1), broken(0)), (0, 1));
    }

    #[test]
    fn errors_are_relative_to_the_truth_and_kept_by_sign() {
        // Truths 1 and 2, estimates 2 and 1: errors of 100 % and 50 %.
        let tally = judged(10, true, &[(10, (true, 2, 0, 9)), (10, (true, 1, 9, 0))]);
        assert_eq!(tally.mean_error_percent(), 75.0);
        assert_eq!((tally.above_max, tally.below_max), (1, 1));
        assert_eq!((tally.over_max, tally.under_max), (9, 9));
    }

    #[test]
    fn tallies_add_up_and_keep_the_worst() {
        let mut sum = judged(10, true, &filled(3));
        let other = judged(10, true, &filled(5));
        sum.add(&other);
        assert_eq!((sum.requests, sum.admitted, sum.peak, sum.error_count), (8, 8, 5, 8));
    }

    #[test]
    fn each_source_meets_an_untouched_limiter_and_an_empty_log() {
        let mut limiter = Scripted { says: vec![(true, 1, 0, 0)], next: 7 };
        let mut log = ExactLog::new(WINDOW_US);
        log.admit(9);
        let requests = Requests { times_us: &[10], attempts: &[1] };
        let tally = judge(&Terms { limit: 1, estimates_window: true }, &mut limiter, &mut log, &requests);
        assert_eq!((tally.peak, tally.wrong_admissions), (1, 0));
    }
}
