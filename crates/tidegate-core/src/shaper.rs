//! The leaky bucket as a shaper: it lets requests go one after the other at the limit's rate, and says how long each has to wait.

use crate::time::{PRODUCT_MAX, patience};
use crate::{Bound, Level, LimitError, Micros, Tick, limit};

/// L requests per window, evenly spaced; who would wait longer than the longest delay is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shaper {
    amount: u32,
    /// The window, in ticks.
    window: u64,
    /// The longest delay, in ticks.
    delay_max: u64,
    tick: Tick,
}

/// The answer of a shaper.
#[derive(PartialEq, Eq, Debug)]
pub enum Shaped {
    /// Go after `delay`.
    Go {
        /// How long to wait first.
        delay: Micros,
        /// To cancel with, should the caller leave while waiting.
        reservation: Reservation,
        /// How far the departures may be off an exact window: less than this request over.
        bound: Bound,
    },
    /// The queue is too long.
    Refused {
        /// When it will be short enough, unless the cost can never fit.
        retry_after: Option<Micros>,
        /// An exact window might have let a whole limit go at once.
        bound: Bound,
    },
}

/// A place in a shaper's queue. It can be left once, so it cannot be copied.
#[derive(PartialEq, Eq, Debug)]
pub struct Reservation {
    units: u32,
    /// When the queue is empty behind it: units × window at the rate, from the epoch.
    clear_at: u128,
}

impl Shaper {
    /// `amount` per `window`, evenly spaced, waiting at most `delay_max`.
    pub fn new(amount: u64, window: Micros, delay_max: Micros) -> Result<Self, LimitError> {
        let amount = limit::amount(amount)?;
        let window_us = limit::window(window)?;
        if delay_max > limit::WINDOW_MAX {
            return Err(LimitError::DelayTooLong { delay: delay_max });
        }
        // The longest queue: who waits the longest delay takes at most a whole limit.
        let fits = |tick_us: u64| {
            let ticks = window_us / tick_us + delay_max.get() / tick_us;
            u64::from(amount).saturating_mul(ticks) < PRODUCT_MAX
        };
        let tick = Tick::finest(window_us, |ticks| fits(window_us / ticks));
        let tick = tick.ok_or(LimitError::TickTooCoarse { amount: amount.into(), window })?;
        Ok(Self { amount, window: window_us / tick.us(), delay_max: tick.floor(delay_max.get()), tick })
    }

    /// Takes a place at the end of the queue, if the wait there is short enough. Everybody takes at least one unit.
    pub fn reserve(&self, level: &mut Level, cost: u64, now: Micros) -> Shaped {
        let cost = cost.max(1);
        self.repair(level, now);
        if self.amount == 0 || cost > u64::from(self.amount) {
            return self.refused(None);
        }
        let (used, at) = self.see(level, now);
        let delay = at - self.tick.floor(now.get()) + used.div_ceil(u64::from(self.amount));
        if delay > self.delay_max {
            return self.refused(Some(Micros::new(self.tick.to_us(delay - self.delay_max))));
        }
        let used = used + cost * self.window;
        *level = Level { used, last_us: self.tick.to_us(at), tick: self.tick, owed: false };
        Shaped::Go {
            delay: Micros::new(self.tick.to_us(delay)),
            reservation: Reservation { units: cost as u32, clear_at: self.clear_at(used, at) },
            bound: Bound::new(cost - 1, u64::from(self.amount)),
        }
    }

    /// Gives a place back, unless somebody has queued behind it, who was told a delay; then the reservation comes back.
    pub fn cancel(
        &self,
        level: &mut Level,
        reservation: Reservation,
        now: Micros,
    ) -> Result<(), Reservation> {
        self.repair(level, now);
        let (used, at) = self.see(level, now);
        if used == 0 || self.clear_at(used, at) != reservation.clear_at {
            return Err(reservation);
        }
        let used = used.saturating_sub(u64::from(reservation.units) * self.window);
        *level = Level { used, last_us: self.tick.to_us(at), tick: self.tick, owed: false };
        Ok(())
    }

    fn refused(&self, retry_after: Option<Micros>) -> Shaped {
        Shaped::Refused { retry_after, bound: Bound { over: 0, under: self.amount } }
    }

    /// What is queued at `now`, in units × window, and the queue's own time in ticks.
    fn see(&self, level: &Level, now: Micros) -> (u64, u64) {
        let last = self.tick.floor(level.last_us);
        let at = self.tick.floor(now.get()).max(last);
        let stored = level.used_in(self.tick).min(u64::from(self.amount) * (self.window + self.delay_max));
        (stored.saturating_sub((at - last).saturating_mul(u64::from(self.amount))), at)
    }

    fn clear_at(&self, used: u64, at: u64) -> u128 {
        u128::from(at) * u128::from(self.amount) + u128::from(used)
    }

    fn repair(&self, level: &mut Level, now: Micros) {
        let (now, last) = (self.tick.floor(now.get()), self.tick.floor(level.last_us));
        if self.tick.to_us(last.saturating_sub(now)) > patience(self.tick.to_us(self.window)) {
            level.last_us = self.tick.to_us(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Micros = Micros::from_secs(1_800_000_000);

    #[test]
    fn a_queue_outlives_a_change_of_its_shaper() {
        let (second, hour) = (Micros::from_secs(1), Micros::from_secs(3_600));
        let fine = Shaper::new(10, second, second).expect("a shaper");
        let coarse = Shaper::new(4_000_000_000, hour, second).expect("a shaper");
        assert!(coarse.tick.us() > fine.tick.us());
        // A queue that is hardly there is still there.
        let level = Level { used: 1, last_us: START.get(), ..Level::default() };
        assert_eq!(coarse.see(&level, START).0, 1, "rounded up to a tick");
        // However long it was, it counts for the longest delay and a whole limit.
        let mut level = Level { used: (1 << 53) - 1, last_us: START.get(), ..Level::default() };
        let refused = fine.reserve(&mut level, 1, START);
        assert!(matches!(refused, Shaped::Refused { retry_after: Some(wait), .. } if wait == second));
    }

    #[test]
    fn a_long_delay_takes_a_coarser_tick() {
        // 100 000 000 per second can be told in microseconds, but not with a queue of a year behind it.
        let (second, year) = (Micros::from_secs(1), Micros::from_secs(366 * 86_400));
        assert_eq!(Shaper::new(100_000_000, second, second).expect("a shaper").tick.us(), 1);
        assert!(Shaper::new(100_000_000, second, year).expect("a shaper").tick.us() > 1);
        assert!(Shaper::new(10, second, year).is_ok(), "the longest delay is allowed");
    }
}
