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

    fn charge(&mut self, newest: u64, units: u32) {
        self.roll(newest);
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

impl FixedWindow {
    fn index(&self, state: &Windows<'_>, now: Micros) -> u64 {
        (now.get() / self.window_us).max(*state.index)
    }

    fn end(&self, state: &Windows<'_>, now: Micros) -> Micros {
        Micros::new((self.index(state, now) + 1) * self.window_us - now.get())
    }
}

impl Law for FixedWindow {
    type State<'a> = Windows<'a>;

    fn amount(&self) -> u32 {
        self.amount
    }

    fn window_us(&self) -> u64 {
        self.window_us
    }

    fn repair(&self, state: &mut Windows<'_>, now: Micros) {
        if state.is_from_the_future(self.window_us, self.window_us, now.get()) {
            *state.index = now.get() / self.window_us;
        }
    }

    fn at(&self, state: &Windows<'_>, now: Micros) -> Micros {
        now.max(Micros::new(*state.index * self.window_us))
    }

    fn used(&self, state: &Windows<'_>, now: Micros) -> u64 {
        state.count(self.index(state, now), 0)
    }

    fn wait(&self, state: &Windows<'_>, now: Micros, cost: u64) -> Micros {
        if self.used(state, now) + cost <= u64::from(self.amount) {
            Micros::ZERO
        } else {
            self.end(state, now)
        }
    }

    fn reset_after(&self, state: &Windows<'_>, now: Micros) -> Micros {
        if self.used(state, now) == 0 { Micros::ZERO } else { self.end(state, now) }
    }

    /// Until the bound has forgotten it too.
    fn keep_for(&self, state: &Windows<'_>, now: Micros) -> Micros {
        let newest = self.index(state, now);
        let Some(age) = (0..2).find(|age| state.count(newest, *age) > 0) else { return Micros::ZERO };
        Micros::new((newest + 2 - age) * self.window_us - now.get())
    }

    fn window_end(&self, state: &Windows<'_>, now: Micros) -> Option<Micros> {
        Some(self.end(state, now))
    }

    /// What the window before holds may all lie within the last W, and this one has not seen it.
    fn bound(&self, state: &Windows<'_>, now: Micros) -> Bound {
        Bound::new(state.count(self.index(state, now), 1), 0)
    }

    fn charge(&self, state: &mut Windows<'_>, now: Micros, units: u32) {
        state.charge(self.index(state, now), units);
    }

    fn refund(&self, state: &mut Windows<'_>, now: Micros, units: u64, of: Option<Micros>) -> u64 {
        let newest = self.index(state, now);
        let charged = of.map_or(newest, |at| at.get() / self.window_us);
        newest.checked_sub(charged).map_or(0, |age| state.refund(newest, age, units))
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

/// Where a counter stands: the newest sub-window and how far into it, in ticks.
#[derive(Clone, Copy)]
struct Position {
    newest: u64,
    offset: u64,
}

impl SubWindows {
    fn width_us(&self) -> u64 {
        self.tick.to_us(self.width)
    }

    fn position(&self, state: &Windows<'_>, now: Micros) -> Position {
        let ticks = self.tick.floor(now.get());
        let newest = ticks / self.width;
        if newest < *state.index {
            return Position { newest: *state.index, offset: 0 };
        }
        Position { newest, offset: ticks % self.width }
    }

    /// How much of the leaving sub-window's count still counts.
    fn leaving(&self, count: u64, offset: u64) -> u64 {
        if self.strict { count } else { mul_div_up(count, self.width - offset, self.width) }
    }

    /// Units in the k newest sub-windows.
    fn whole(&self, state: &Windows<'_>, newest: u64) -> u64 {
        let unseen = newest - *state.index;
        let seen = u64::from(self.k).saturating_sub(unseen) as usize;
        state.counts.iter().take(seen).map(|count| u64::from(*count)).sum()
    }
}

impl Law for SubWindows {
    type State<'a> = Windows<'a>;

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

    fn at(&self, state: &Windows<'_>, now: Micros) -> Micros {
        let position = self.position(state, now);
        Micros::new(self.tick.to_us(position.newest * self.width + position.offset))
    }

    fn used(&self, state: &Windows<'_>, now: Micros) -> u64 {
        let Position { newest, offset } = self.position(state, now);
        let leaving = state.count(newest, u64::from(self.k));
        self.whole(state, newest) + self.leaving(leaving, offset)
    }

    /// Looks one sub-window after the other into the future: which first instant of it, if any, has room? The estimate never
    /// rises without traffic, so the first such instant is the answer, and it stays one.
    fn wait(&self, state: &Windows<'_>, now: Micros, cost: u64) -> Micros {
        let Position { newest, offset } = self.position(state, now);
        let k = u64::from(self.k);
        let room = u64::from(self.amount) - cost;
        let mut whole = self.whole(state, newest);
        let mut ticks = (newest + k + 1) * self.width; // By then nothing counts any more.
        for ahead in 0..=k {
            let leaving = state.count(newest, k - ahead);
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
                let earliest = if ahead == 0 { faded.max(offset) } else { faded };
                ticks = (newest + ahead) * self.width + earliest;
                break;
            }
        }
        Micros::new(self.tick.to_us(ticks - self.tick.floor(now.get())))
    }

    fn reset_after(&self, state: &Windows<'_>, now: Micros) -> Micros {
        let Position { newest, .. } = self.position(state, now);
        let k = u64::from(self.k);
        let Some(age) = (0..=k).find(|age| state.count(newest, *age) > 0) else { return Micros::ZERO };
        Micros::new(self.tick.to_us((newest + k + 1 - age) * self.width - self.tick.floor(now.get())))
    }

    /// Nobody knows where in the leaving sub-window its units were: all or none of them may still count.
    fn bound(&self, state: &Windows<'_>, now: Micros) -> Bound {
        let Position { newest, offset } = self.position(state, now);
        let leaving = state.count(newest, u64::from(self.k));
        let counted = self.leaving(leaving, offset);
        Bound::new(leaving - counted, counted)
    }

    fn charge(&self, state: &mut Windows<'_>, now: Micros, units: u32) {
        state.charge(self.position(state, now).newest, units);
    }

    fn refund(&self, state: &mut Windows<'_>, now: Micros, units: u64, of: Option<Micros>) -> u64 {
        let Position { newest, .. } = self.position(state, now);
        let charged = of.map_or(newest, |at| at.get() / self.width_us());
        newest.checked_sub(charged).map_or(0, |age| state.refund(newest, age, units))
    }
}
