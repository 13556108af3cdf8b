//! Token bucket, GCRA and leaky bucket: one algorithm under three names.
//!
//! A level rises by each charge and leaks at L per W; what would lift it above the burst is refused. Token bucket tokens are
//! burst − level, GCRA's theoretical arrival time is now + level ÷ rate. The level is kept in units × window, an integer that
//! leaks by exactly L per tick: there is no drift and no float.

use crate::math::gcd;
use crate::step::{Law, ceiling};
use crate::time::patience;
use crate::{Bound, Micros, Tick};

/// How full a bucket, or how long a shaper's queue, is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Level {
    /// Units × window in ticks, as of `last`.
    pub(crate) used: u64,
    /// Time of the last write, in µs.
    pub(crate) last_us: u64,
    /// The tick in which `used` is written: it changes with the limit's amount.
    pub(crate) tick: Tick,
    /// Since it was last empty the bucket has been above its burst: a debt, or a limit that was lowered.
    pub(crate) owed: bool,
}

impl Level {
    /// `used` in a limit's own tick, rounded up: in a finer one the window has more ticks.
    pub(crate) fn used_in(&self, tick: Tick) -> u64 {
        if self.tick == tick {
            return self.used;
        }
        let (from, to) = (self.tick.us(), tick.us());
        if from > to { self.used.saturating_mul(from / to) } else { self.used.div_ceil(to / from) }
    }
}

/// L units per window, up to B at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bucket {
    pub(crate) amount: u32,
    pub(crate) burst: u32,
    /// The window, in ticks.
    pub(crate) window: u64,
    pub(crate) tick: Tick,
    /// By how much a unit lifts the level, and by how much that leaks in a tick: window and amount or, in a table's slots, both divided
    /// by what they have in common. Every level is a multiple of that.
    per_unit: u64,
    rate: u64,
}

/// A level at an instant, in a bucket's own ticks.
#[derive(Clone, Copy)]
pub(crate) struct Leaked {
    now: u64,
    /// Now, or the last write if that is later.
    at: u64,
    used: u64,
    /// That in whole units, rounded up.
    units: u64,
    owed: bool,
}

impl Bucket {
    pub(crate) fn new(amount: u32, burst: u32, window: u64, tick: Tick) -> Self {
        Self { amount, burst, window, tick, per_unit: window, rate: amount.into() }
    }

    /// What all levels of this bucket are multiples of.
    pub(crate) fn step(&self) -> u64 {
        gcd(self.rate, self.per_unit)
    }

    /// The same bucket, its levels divided by [`Bucket::step`].
    pub(crate) fn reduced(self) -> Self {
        let step = self.step();
        Self { per_unit: self.per_unit / step, rate: self.rate / step, ..self }
    }

    /// The same bucket, if its tick is 1 µs, as those in a table's slots are: so the compiler knows.
    #[inline(always)]
    pub(crate) fn in_micros(self) -> Self {
        debug_assert!(self.tick == Tick::default());
        Self { tick: Tick::default(), ..self }
    }

    /// How far so many units lift the level.
    fn scaled(&self, units: u64) -> u64 {
        units * self.per_unit
    }

    /// Puts the level at `used`, whatever it was; that is so many units, rounded up.
    #[inline(always)]
    fn write(&self, level: &mut Level, seen: Leaked, used: u64, units: u64) -> Leaked {
        let owed = used > 0 && (seen.owed || used > self.scaled(u64::from(self.burst)));
        *level = Level { used, last_us: self.tick.to_us(seen.at), tick: self.tick, owed };
        Leaked { used, units, owed, ..seen }
    }

    /// How long until so much has leaked.
    #[inline(always)]
    fn leaks_in(&self, seen: Leaked, scaled: u64) -> Micros {
        // In a slot nearly every bucket leaks one step in a tick; a division costs 20 cycles and more.
        let ticks = if self.rate == 1 { scaled } else { scaled.div_ceil(self.rate.max(1)) };
        Micros::new(self.tick.to_us(seen.at - seen.now + ticks))
    }
}

impl Law for Bucket {
    type State<'a> = &'a mut Level;
    type Seen = Leaked;

    fn amount(&self) -> u32 {
        self.amount
    }

    fn capacity(&self) -> u32 {
        if self.amount == 0 { 0 } else { self.burst }
    }

    fn window_us(&self) -> u64 {
        self.tick.to_us(self.window)
    }

    #[inline(always)]
    fn repair(&self, level: &mut &mut Level, now: Micros) {
        let now_us = self.tick.to_us(self.tick.floor(now.get()));
        if self.tick.to_us(self.tick.floor(level.last_us)).saturating_sub(now_us) > patience(self.window_us())
        {
            level.last_us = now_us;
        }
    }

    /// Whatever a level was charged under, it counts for at most one limit of debt under this one.
    #[inline(always)]
    fn see(&self, level: &&mut Level, now: Micros) -> Leaked {
        let now = self.tick.floor(now.get());
        let last = self.tick.floor(level.last_us);
        let at = now.max(last);
        let stored = level.used_in(self.tick).min(self.scaled(ceiling(self.capacity())));
        let used = stored.saturating_sub((at - last).saturating_mul(self.rate));
        let owed = used > 0 && (level.owed || stored > self.scaled(u64::from(self.burst)));
        Leaked { now, at, used, units: used.div_ceil(self.per_unit), owed }
    }

    fn at(&self, seen: Leaked) -> Micros {
        Micros::new(self.tick.to_us(seen.at))
    }

    fn used(&self, seen: Leaked) -> u64 {
        seen.units
    }

    #[inline(always)]
    fn wait(&self, _level: &&mut Level, seen: Leaked, cost: u64) -> Micros {
        let excess = (seen.used + self.scaled(cost)).saturating_sub(self.scaled(u64::from(self.capacity())));
        if excess == 0 { Micros::ZERO } else { self.leaks_in(seen, excess) }
    }

    #[inline(always)]
    fn reset_after(&self, _level: &&mut Level, seen: Leaked) -> Micros {
        match seen.used {
            0 => Micros::ZERO,
            _ if self.amount == 0 => Micros::new(self.window_us()), // It never leaks: say what a closed door says.
            used => self.leaks_in(seen, used),
        }
    }

    /// What leaks within a window may be charged again: B + L in any W. Too little is admitted where the burst is below the
    /// limit, or while a debt is paid.
    #[inline(always)]
    fn bound(&self, _level: &&mut Level, seen: Leaked) -> Bound {
        if self.amount == 0 {
            return Bound::EXACT;
        }
        let under = if seen.owed { self.amount } else { self.amount.saturating_sub(self.burst) };
        Bound { over: self.burst, under }
    }

    #[inline(always)]
    fn charge(&self, level: &mut &mut Level, seen: Leaked, units: u32) -> Leaked {
        let units = u64::from(units);
        self.write(level, seen, seen.used + self.scaled(units), seen.units + units)
    }

    /// A bucket does not remember when it was charged: units go back to the level as it is, unless they must have leaked since.
    fn refund(&self, level: &mut &mut Level, seen: Leaked, units: u64, of: Option<Micros>) -> u64 {
        let fullest = if seen.owed { ceiling(self.capacity()) } else { u64::from(self.burst) };
        let leaked =
            |of: Micros| (seen.at.saturating_sub(self.tick.floor(of.get()))).saturating_mul(self.rate);
        if of.is_some_and(|of| leaked(of) >= self.scaled(fullest)) {
            return 0;
        }
        let given = units.min(self.used(seen));
        if given > 0 {
            self.write(level, seen, seen.used.saturating_sub(self.scaled(given)), seen.units - given);
        }
        given
    }
}
