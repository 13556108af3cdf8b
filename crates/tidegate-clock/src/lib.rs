//! The one place that reads a clock: everything else is told the time, so that every run can be replayed.
//!
//! A node holds one [`Clock`] and hands out copies. Tests hold a [`ManualClock`] and move it themselves.
//! Tools that measure how long something took use a [`Stopwatch`].
//!
//! ```
//! use tidegate_clock::{Clock, ManualClock};
//!
//! let hand = ManualClock::at(1_000);
//! let clock = Clock::from(&hand);
//! hand.advance(500);
//! assert_eq!(clock.now_us(), 1_500);
//! ```

mod manual; // time that stands still until a test moves it
mod real; // time as the machine has it; the only module that may ask

pub use manual::ManualClock;
pub use real::{RealClock, Stopwatch};

/// Where the time comes from. An enum and not a trait: reading it is one branch, and no type parameter spreads
/// through everything that holds a clock.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's time.
    Real(RealClock),
    /// A time that stands still until somebody moves it.
    Manual(ManualClock),
}

impl Clock {
    /// A clock that starts at the machine's wall time.
    pub fn real() -> Self {
        Self::Real(RealClock::start())
    }

    /// Microseconds since the Unix epoch. The real clock never goes back, so it drifts away from the wall time
    /// when that is set by hand: use it to count, and [`Clock::wall_now_us`] to show a date.
    #[inline]
    pub fn now_us(&self) -> u64 {
        match self {
            Self::Real(clock) => clock.now_us(),
            Self::Manual(clock) => clock.now_us(),
        }
    }

    /// The wall time in microseconds since the Unix epoch, for people and calendars. It may jump either way.
    pub fn wall_now_us(&self) -> u64 {
        match self {
            Self::Real(clock) => clock.wall_now_us(),
            Self::Manual(clock) => clock.now_us(),
        }
    }
}

impl From<&ManualClock> for Clock {
    fn from(hand: &ManualClock) -> Self {
        Self::Manual(hand.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_real_clock_starts_at_the_wall_time_and_never_goes_back() {
        let clock = Clock::real();
        let mut last_us = clock.now_us();
        let off_us = clock.wall_now_us().abs_diff(last_us);
        assert!(off_us < 60_000_000, "{off_us} µs from the wall time");
        for _ in 0..10_000 {
            let now_us = clock.now_us();
            assert!(now_us >= last_us, "went back from {last_us} to {now_us}");
            last_us = now_us;
        }
    }

    #[test]
    fn copies_of_the_real_clock_agree() {
        let clock = Clock::real();
        let copy = clock.clone();
        let (before_us, between_us, after_us) = (clock.now_us(), copy.now_us(), clock.now_us());
        assert!(before_us <= between_us && between_us <= after_us);
    }

    #[test]
    fn the_manual_clock_stands_still_until_it_is_moved() {
        let hand = ManualClock::at(7);
        let clock = Clock::from(&hand);
        assert_eq!((clock.now_us(), clock.now_us()), (7, 7));
        hand.advance(3);
        assert_eq!((clock.now_us(), clock.wall_now_us()), (10, 10));
        hand.set(2); // Back: a broken clock is something that tests must be able to show.
        assert_eq!(clock.now_us(), 2);
    }

    #[test]
    fn every_copy_of_a_manual_clock_moves_together() {
        let hand = ManualClock::at(0);
        let (one, other) = (Clock::from(&hand), Clock::from(&hand.clone()));
        let elsewhere = std::thread::spawn(move || hand.advance(5));
        assert!(elsewhere.join().is_ok());
        assert_eq!((one.now_us(), other.now_us()), (5, 5));
    }

    #[test]
    fn the_manual_clock_stops_at_the_end_of_time() {
        let hand = ManualClock::at(u64::MAX - 1);
        assert_eq!(hand.advance(5), u64::MAX);
    }

    #[test]
    fn a_stopwatch_only_counts_up() {
        let watch = Stopwatch::start();
        let first = watch.elapsed();
        assert!(watch.elapsed() >= first);
    }
}
