//! The judge's own memory: every admitted time, kept in full. It shares no code with what is judged.

use std::collections::VecDeque;

/// Admissions of the last window, (now − W, now]: an admission at t still counts while t + W > now.
pub(crate) struct ExactLog {
    window_us: u64,
    admitted_us: VecDeque<u64>,
}

impl ExactLog {
    pub(crate) fn new(window_us: u64) -> Self {
        Self { window_us, admitted_us: VecDeque::new() }
    }

    pub(crate) fn clear(&mut self) {
        self.admitted_us.clear();
    }

    /// Admissions within the window that ends at `now_us`, which never goes back.
    pub(crate) fn count(&mut self, now_us: u64) -> u64 {
        while let Some(&oldest_us) = self.admitted_us.front() {
            if oldest_us + self.window_us > now_us {
                break;
            }
            self.admitted_us.pop_front();
        }
        self.admitted_us.len() as u64
    }

    pub(crate) fn admit(&mut self, now_us: u64) {
        debug_assert!(self.admitted_us.back().is_none_or(|&last_us| last_us <= now_us));
        self.admitted_us.push_back(now_us);
    }
}

/// How many of these requests a limiter with perfect memory admits.
pub(crate) fn exact_admissions(log: &mut ExactLog, limit: u64, times_us: &[u64]) -> u64 {
    log.clear();
    let mut admitted = 0;
    for &now_us in times_us {
        if log.count(now_us) < limit {
            log.admit(now_us);
            admitted += 1;
        }
    }
    admitted
}

/// For each request, how many the source has made within the window that ends with it, itself included.
pub(crate) fn count_attempts(log: &mut ExactLog, times_us: &[u64], attempts: &mut Vec<u64>) {
    log.clear();
    attempts.clear();
    for &now_us in times_us {
        log.admit(now_us);
        attempts.push(log.count(now_us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admission_counts_for_one_window_and_not_a_microsecond_longer() {
        let mut log = ExactLog::new(10);
        log.admit(100);
        log.admit(100);
        log.admit(105);
        assert_eq!(log.count(105), 3);
        assert_eq!(log.count(109), 3);
        assert_eq!(log.count(110), 1);
        assert_eq!(log.count(114), 1);
        assert_eq!(log.count(115), 0);
    }

    #[test]
    fn perfect_memory_admits_again_exactly_when_the_oldest_leaves() {
        let mut log = ExactLog::new(10);
        // Two fit; 108 and 109 do not; at 110 the first has left, at 111 nothing more has.
        assert_eq!(exact_admissions(&mut log, 2, &[100, 105, 108, 109, 110, 111]), 3);
        assert_eq!(exact_admissions(&mut log, 0, &[100, 200]), 0);
    }

    #[test]
    fn attempts_are_counted_whatever_becomes_of_them() {
        let mut attempts = vec![7];
        count_attempts(&mut ExactLog::new(10), &[1, 2, 3, 11, 12, 30], &mut attempts);
        assert_eq!(attempts, [1, 2, 3, 3, 3, 1]);
    }
}
