//! Counts per aligned window: the fixed window, the two-window counter and k sub-windows.
//!
//! All three keep the same thing: how much was charged in the newest window and in those before it, newest first. A fixed
//! window decides by the newest alone and keeps the one before only to say how far off it may be.

use crate::math::{mul_div_down, mul_div_up};
use crate::step::Law;
use crate::time::patience;
use crate::{Bound, Micros, Tick};

/// Counts of the newest window (number `index` since the epoch) and of those before it, newest first.
#[derive(Debug)]
pub(crate) struct Windows<'a> {
    /// Number of the newest window: time ÷ its width.
    pub(crate) index: &'a mut u64,
    /// Units charged per window, newest first.
    pub(crate) counts: &'a mut [u32],
}

impl Windows<'_> {
    /// Units charged in the window `age` before window `newest`, which is not before `self.index`; 0 for those out of reach.
    #[inline(always)]
    fn count(&self, newest: u64, age: u64) -> u64 {
        let unseen = newest - *self.index; // Windows since the last write: nothing was charged in them.
        if age < unseen || age >= self.counts.len() as u64 {
            return 0;
        }
        usize::try_from(age - unseen).ok().and_then(|age| self.counts.get(age)).copied().map_or(0, u64::from)
    }

    /// Makes `newest` the newest window; the oldest fall off.
    fn roll(&mut self, newest: u64) {
        let unseen = usize::try_from(newest - *self.index).unwrap_or(usize::MAX).min(self.counts.len());
        if unseen > 0 {
            self.counts.copy_within(..self.counts.len() - unseen, unseen);
            self.counts[..unseen].fill(0);
        }
        *self.index = newest;
    }

    #[inline(always)]
    fn charge(&mut self, newest: u64, units: u32) {
        if newest != *self.index {
            self.roll(newest);
        }
        // Cannot overflow: a count is part of what is used, which with `units` is at most the ceiling of 32 bits.
        self.counts[0] = self.counts[0].saturating_add(units);
    }

    /// Takes up to `units` from the window `age` before `newest`; says how many.
    fn refund(&mut self, newest: u64, age: u64, units: u64) -> u64 {
        let given = units.min(self.count(newest, age));
        if given > 0 {
            self.roll(newest);
            self.counts[age as usize] -= given as u32; // Given > 0, so the window of that age is there and holds as much.
        }
        given
    }

    /// Was the newest window written by a clock that must have been broken?
    fn is_from_the_future(&self, width_us: u64, window_us: u64, now_us: u64) -> bool {
        self.index.saturating_mul(width_us).saturating_sub(now_us) > patience(window_us)
    }
}

/// At most L in each aligned window; up to twice that in a window across an edge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FixedWindow {
    pub(crate) amount: u32,
    pub(crate) window_us: u64,
}

/// A fixed window's counter at an instant.
#[derive(Clone, Copy)]
pub(crate) struct InWindow {
    now_us: u64,
    /// Number of the window that counts.
    index: u64,
    used: u64,
}

impl FixedWindow {
    fn end(&self, seen: InWindow) -> Micros {
        Micros::new((seen.index + 1) * self.window_us - seen.now_us)
    }
}

impl Law for FixedWindow {
    type State<'a> = Windows<'a>;
    type Seen = InWindow;

    fn amount(&self) -> u32 {
        self.amount
    }

    fn window_us(&self) -> u64 {
        self.window_us
    }

    #[inline(always)]
    fn repair(&self, state: &mut Windows<'_>, now: Micros) {
        if state.is_from_the_future(self.window_us, self.window_us, now.get()) {
            *state.index = now.get() / self.window_us;
        }
    }

    #[inline(always)]
    fn see(&self, state: &Windows<'_>, now: Micros) -> InWindow {
        let index = (now.get() / self.window_us).max(*state.index);
        InWindow { now_us: now.get(), index, used: state.count(index, 0) }
    }

    fn at(&self, seen: InWindow) -> Micros {
        Micros::new(seen.now_us.max(seen.index * self.window_us))
    }

    fn used(&self, seen: InWindow) -> u64 {
        seen.used
    }

    #[inline(always)]
    fn wait(&self, _state: &Windows<'_>, seen: InWindow, cost: u64) -> Micros {
        if seen.used + cost <= u64::from(self.amount) { Micros::ZERO } else { self.end(seen) }
    }

    #[inline(always)]
    fn reset_after(&self, _state: &Windows<'_>, seen: InWindow) -> Micros {
        if seen.used == 0 { Micros::ZERO } else { self.end(seen) }
    }

    /// Until the bound has forgotten it too.
    fn keep_for(&self, state: &Windows<'_>, seen: InWindow) -> Micros {
        let Some(age) = (0..2).find(|age| state.count(seen.index, *age) > 0) else { return Micros::ZERO };
        Micros::new((seen.index + 2 - age) * self.window_us - seen.now_us)
    }

    fn window_end(&self, seen: InWindow) -> Option<Micros> {
        Some(self.end(seen))
    }

    /// What the window before holds may all lie within the last W, and this one has not seen it.
    #[inline(always)]
    fn bound(&self, state: &Windows<'_>, seen: InWindow) -> Bound {
        Bound::new(state.count(seen.index, 1), 0)
    }

    #[inline(always)]
    fn charge(&self, state: &mut Windows<'_>, seen: InWindow, units: u32) -> InWindow {
        state.charge(seen.index, units);
        InWindow { used: seen.used + u64::from(units), ..seen }
    }

    fn refund(&self, state: &mut Windows<'_>, seen: InWindow, units: u64, of: Option<Micros>) -> u64 {
        let charged = of.map_or(seen.index, |at| at.get() / self.window_us);
        seen.index.checked_sub(charged).map_or(0, |age| state.refund(seen.index, age, units))
    }
}

/// The last W as k sub-windows of width W/k plus a part of the one that is leaving. With k = 1, the two-window counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SubWindows {
    pub(crate) amount: u32,
    pub(crate) k: u32,
    /// Width of a sub-window, in ticks.
    pub(crate) width: u64,
    pub(crate) tick: Tick,
    /// Counts the leaving sub-window in full: never over-admits, but gives budget back up to a width late.
    pub(crate) strict: bool,
}

/// A sub-window counter at an instant, in ticks.
#[derive(Clone, Copy)]
pub(crate) struct InSubWindow {
    now: u64,
    /// Number of the newest sub-window.
    newest: u64,
    /// How far into it.
    offset: u64,
    /// Units in the k newest.
    whole: u64,
    /// Units in the one that is leaving, and how many of them still count.
    leaving: u64,
    counted: u64,
}

impl SubWindows {
    fn width_us(&self) -> u64 {
        self.tick.to_us(self.width)
    }

    fn wait_until(&self, seen: InSubWindow, tick: u64) -> Micros {
        Micros::new(self.tick.to_us(tick - seen.now))
    }
}

impl Law for SubWindows {
    type State<'a> = Windows<'a>;
    type Seen = InSubWindow;

    fn amount(&self) -> u32 {
        self.amount
    }

    fn window_us(&self) -> u64 {
        self.width_us() * u64::from(self.k)
    }

    fn repair(&self, state: &mut Windows<'_>, now: Micros) {
        let now_us = self.tick.to_us(self.tick.floor(now.get()));
        if state.is_from_the_future(self.width_us(), self.window_us(), now_us) {
            // The next one to start: at its start the leaving sub-window counts in full, so that a broken clock frees nothing.
            *state.index = now_us.div_ceil(self.width_us());
        }
    }

    fn see(&self, state: &Windows<'_>, now: Micros) -> InSubWindow {
        let now = self.tick.floor(now.get());
        let (mut newest, mut offset) = (now / self.width, now % self.width);
        if newest < *state.index {
            (newest, offset) = (*state.index, 0);
        }
        let seen = u64::from(self.k).saturating_sub(newest - *state.index) as usize;
        let whole = state.counts.iter().take(seen).map(|count| u64::from(*count)).sum();
        let leaving = state.count(newest, u64::from(self.k));
        let counted =
            if self.strict { leaving } else { mul_div_up(leaving, self.width - offset, self.width) };
        InSubWindow { now, newest, offset, whole, leaving, counted }
    }

    fn at(&self, seen: InSubWindow) -> Micros {
        Micros::new(self.tick.to_us(seen.newest * self.width + seen.offset))
    }

    fn used(&self, seen: InSubWindow) -> u64 {
        seen.whole + seen.counted
    }

    /// Looks one sub-window after the other into the future: which first instant of it, if any, has room? The estimate never
    /// rises without traffic, so the first such instant is the answer, and it stays one.
    fn wait(&self, state: &Windows<'_>, seen: InSubWindow, cost: u64) -> Micros {
        let k = u64::from(self.k);
        let room = u64::from(self.amount) - cost;
        let mut whole = seen.whole;
        for ahead in 0..=k {
            let leaving = state.count(seen.newest, k - ahead);
            if ahead > 0 {
                whole -= leaving; // It was the oldest whole one, and now is the one that leaves.
            }
            if whole > room {
                continue;
            }
            // The least x with leaving·(width − x) ≤ (room − whole)·width.
            let faded = match leaving {
                0 => 0,
                _ if self.strict && leaving > room - whole => continue,
                _ if self.strict => 0,
                _ => self.width.saturating_sub(mul_div_down(room - whole, self.width, leaving)),
            };
            if faded < self.width {
                let earliest = if ahead == 0 { faded.max(seen.offset) } else { faded };
                return self.wait_until(seen, (seen.newest + ahead) * self.width + earliest);
            }
        }
        self.wait_until(seen, (seen.newest + k + 1) * self.width) // By then nothing counts any more.
    }

    fn reset_after(&self, state: &Windows<'_>, seen: InSubWindow) -> Micros {
        let k = u64::from(self.k);
        let Some(age) = (0..=k).find(|age| state.count(seen.newest, *age) > 0) else { return Micros::ZERO };
        self.wait_until(seen, (seen.newest + k + 1 - age) * self.width)
    }

    /// Nobody knows where in the leaving sub-window its units were: all or none of them may still count.
    fn bound(&self, _state: &Windows<'_>, seen: InSubWindow) -> Bound {
        Bound::new(seen.leaving - seen.counted, seen.counted)
    }

    fn charge(&self, state: &mut Windows<'_>, seen: InSubWindow, units: u32) -> InSubWindow {
        state.charge(seen.newest, units);
        InSubWindow { whole: seen.whole + u64::from(units), ..seen }
    }

    fn refund(&self, state: &mut Windows<'_>, seen: InSubWindow, units: u64, of: Option<Micros>) -> u64 {
        let charged = of.map_or(seen.newest, |at| at.get() / self.width_us());
        seen.newest.checked_sub(charged).map_or(0, |age| state.refund(seen.newest, age, units))
    }
}
