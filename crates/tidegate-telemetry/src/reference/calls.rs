//! How long calls take: for statsd in whole milliseconds, for Prometheus as a histogram.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A method of gRPC that is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReferenceMethod {
    /// A request for a decision.
    ShouldRateLimit,
    /// A question for health.
    Check,
}

impl ReferenceMethod {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::ShouldRateLimit, Self::Check];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ShouldRateLimit => "ShouldRateLimit",
            Self::Check => "Check",
        }
    }
}

/// The upper bounds of the histogram, in ms: those of the Prometheus library that the reference uses.
pub(super) const BOUNDS_MS: [u64; 11] = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000];

/// Milliseconds that are told to the last one. An answer is due after 15.
const EXACT_MS: u64 = 128;
/// Above them there are so many classes for each power of two: a duration is told as at most 3 % less than it was.
const CLASSES_OF_POWER: u64 = 32;
/// Powers of two above [`EXACT_MS`]: up to 131 seconds, and what is longer is told as that.
const POWERS: u64 = 10;
pub(super) const CLASSES: usize = (EXACT_MS + POWERS * CLASSES_OF_POWER) as usize;

const _: () = assert!(EXACT_MS.is_power_of_two() && EXACT_MS >= CLASSES_OF_POWER);

/// The calls of one method on one core.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Calls {
    /// One for each bound, and one for what is longer.
    buckets: [AtomicU64; BOUNDS_MS.len() + 1],
    sum_us: AtomicU64,
    classes: Box<[AtomicU64]>,
}

impl Calls {
    pub(super) fn new() -> Self {
        let classes = (0..CLASSES).map(|_| AtomicU64::new(0)).collect();
        Self { buckets: Default::default(), sum_us: AtomicU64::new(0), classes }
    }

    #[inline]
    pub(super) fn add(&self, took: Duration) {
        let bucket = BOUNDS_MS.iter().position(|bound_ms| took <= Duration::from_millis(*bound_ms));
        self.buckets[bucket.unwrap_or(BOUNDS_MS.len())].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(took.as_micros().try_into().unwrap_or(u64::MAX), Relaxed);
        let took_ms = took.as_millis().try_into().unwrap_or(u64::MAX); // Down, as there.
        self.classes[class_of(took_ms)].fetch_add(1, Relaxed);
    }

    pub(super) fn add_to(&self, sums: &mut CallSums) {
        for (sum, bucket) in sums.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.load(Relaxed);
        }
        for (sum, class) in sums.classes.iter_mut().zip(&self.classes) {
            *sum += class.load(Relaxed);
        }
        sums.sum_us = sums.sum_us.wrapping_add(self.sum_us.load(Relaxed));
    }
}

/// The calls of one method.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CallSums {
    pub(super) buckets: [u64; BOUNDS_MS.len() + 1],
    pub(super) sum_us: u64,
    /// By [`class_of`].
    pub(super) classes: Vec<u64>,
}

impl CallSums {
    pub(super) fn none() -> Self {
        Self { buckets: Default::default(), sum_us: 0, classes: vec![0; CLASSES] }
    }

    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// How many took at most so many microseconds, by their whole milliseconds.
    pub(super) fn up_to_us(&self, bound_us: u64) -> u64 {
        let below =
            self.classes.iter().enumerate().take_while(|(class, _)| class_ms(*class) * 1_000 <= bound_us);
        below.map(|(_, count)| count).sum()
    }
}

fn class_of(took_ms: u64) -> usize {
    if took_ms < EXACT_MS {
        return took_ms as usize;
    }
    let power = took_ms.ilog2();
    let within = (took_ms >> (power - CLASSES_OF_POWER.ilog2())) - CLASSES_OF_POWER;
    let class = EXACT_MS + u64::from(power - EXACT_MS.ilog2()) * CLASSES_OF_POWER + within;
    (class as usize).min(CLASSES - 1)
}

/// The shortest duration of a class.
pub(super) fn class_ms(class: usize) -> u64 {
    let class = class as u64;
    let Some(above) = class.checked_sub(EXACT_MS) else { return class };
    let (power, within) = (above / CLASSES_OF_POWER, above % CLASSES_OF_POWER);
    (CLASSES_OF_POWER + within) << (power + u64::from(EXACT_MS.ilog2() - CLASSES_OF_POWER.ilog2()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_told_in_whole_milliseconds_and_never_as_longer() {
        for took_ms in (0..200_000).chain([1 << 40, u64::MAX]) {
            let told_ms = class_ms(class_of(took_ms));
            assert!(told_ms <= took_ms, "{took_ms}");
            if took_ms < 128 {
                assert_eq!(told_ms, took_ms);
            } else if took_ms < 131_072 {
                assert!((took_ms - told_ms) * 32 < took_ms, "{took_ms} told as {told_ms}");
            }
        }
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
    }

    #[test]
    fn a_call_counts_in_the_bucket_whose_bound_it_does_not_exceed() {
        let micros = Duration::from_micros;
        for (took, bucket) in [
            (micros(0), 0),
            (micros(5_000), 0),
            (micros(5_001), 1),
            (micros(10_000_000), 10),
            (micros(10_000_001), 11),
            (Duration::MAX, 11),
        ] {
            let (calls, mut sums) = (Calls::new(), CallSums::none());
            calls.add(took);
            calls.add_to(&mut sums);
            assert_eq!(sums.buckets.iter().position(|count| *count == 1), Some(bucket), "{took:?}");
            assert_eq!((sums.count(), sums.classes.iter().sum::<u64>()), (1, 1));
        }
    }
}
