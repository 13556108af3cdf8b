//! How many were admitted in the worst window of a limit, as somebody can tell who stands outside: an admission was decided at some instant
//! between the sending of its request and the coming of its answer.

/// A call that was let through: when it was sent, and when its answer was here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admission {
    /// On the generator's clock.
    pub sent_ns: u64,
    /// On the same.
    pub answered_ns: u64,
}

/// The most that were certainly admitted within some window of this length: sent and answered within it.
pub fn at_least(admissions: &[Admission], window_ns: u64) -> u64 {
    // The worst window can begin at a sending. Those that were sent later are taken up from the last to the first, and for each
    // beginning it is asked how many of them were answered in time.
    let mut by_sent = admissions.to_vec();
    by_sent.sort_unstable_by_key(|admission| admission.sent_ns);
    let mut answers: Vec<u64> = admissions.iter().map(|admission| admission.answered_ns).collect();
    answers.sort_unstable();
    let mut taken = Sums::new(answers.len());
    let mut most = 0;
    for admission in by_sent.iter().rev() {
        taken.add(answers.partition_point(|answered| *answered < admission.answered_ns));
        // An admission counts for a window and not a moment longer.
        let in_time = answers.partition_point(|answered| *answered < admission.sent_ns + window_ns);
        most = most.max(taken.first(in_time));
    }
    most
}

/// The most that can have been: those that were under way or done within some window of this length.
pub fn at_most(admissions: &[Admission], window_ns: u64) -> u64 {
    // The worst window can end just after a sending: there everything is under way that was sent by then, and was not answered before it.
    let mut sent: Vec<u64> = admissions.iter().map(|admission| admission.sent_ns).collect();
    let mut answered: Vec<u64> = admissions.iter().map(|admission| admission.answered_ns).collect();
    sent.sort_unstable();
    answered.sort_unstable();
    let ends = sent.iter().enumerate().map(|(at, end_ns)| {
        let begins_ns = end_ns.saturating_sub(window_ns);
        let before = answered.partition_point(|answered| *answered < begins_ns);
        (at + 1).saturating_sub(before) as u64
    });
    ends.max().unwrap_or(0)
}

/// Fenwick's tree: counts at places, and how many there are at the first so many.
struct Sums(Vec<u64>);

impl Sums {
    fn new(places: usize) -> Self {
        Self(vec![0; places + 1])
    }

    fn add(&mut self, place: usize) {
        let mut at = place + 1;
        while at < self.0.len() {
            self.0[at] += 1;
            at += at & at.wrapping_neg();
        }
    }

    fn first(&self, places: usize) -> u64 {
        let (mut at, mut sum) = (places, 0);
        while at > 0 {
            sum += self.0[at];
            at &= at - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Random;

    fn admissions(pairs: &[(u64, u64)]) -> Vec<Admission> {
        pairs.iter().map(|&(sent_ns, answered_ns)| Admission { sent_ns, answered_ns }).collect()
    }

    #[test]
    fn only_what_was_sent_and_answered_within_a_window_is_certain() {
        for (pairs, least, most) in [
            (&[][..], 0, 0),
            (&[(5, 6)], 1, 1),
            (&[(0, 1), (99, 99)], 2, 2),
            (&[(0, 1), (99, 100)], 1, 2), // The last may have been decided at the very end, or just after.
            (&[(0, 1), (102, 103)], 1, 1),
            (&[(0, 60), (50, 120), (110, 149)], 2, 3),
            (&[(0, 500), (0, 500), (10, 20)], 1, 3),
        ] {
            let admissions = admissions(pairs);
            assert_eq!((at_least(&admissions, 100), at_most(&admissions, 100)), (least, most), "{pairs:?}");
        }
    }

    /// Every window that could be the worst, one after the other.
    #[test]
    fn it_is_what_one_counts_window_by_window() {
        let mut random = Random(3);
        for round in 0..200 {
            let pairs: Vec<(u64, u64)> = (0..40)
                .map(|_| {
                    let sent = random.next() % 1_000;
                    (sent, sent + random.next() % (1 + round))
                })
                .collect();
            let all = admissions(&pairs);
            let certain = |from: u64| {
                all.iter().filter(|it| it.sent_ns >= from && it.answered_ns < from + 100).count() as u64
            };
            let possible = |to: u64| {
                let from = to.saturating_sub(100);
                all.iter().filter(|it| it.sent_ns <= to && it.answered_ns >= from).count() as u64
            };
            assert_eq!(at_least(&all, 100), (0..1_200).map(certain).max().unwrap_or(0));
            assert_eq!(at_most(&all, 100), (0..1_300).map(possible).max().unwrap_or(0));
        }
    }
}
