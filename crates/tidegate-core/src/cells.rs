//! The cell log: the default sliding window.
//!
//! A log whose entries, the cells, hold up to g = ⌈L/20⌉ units over up to W/20 of time. Everything inside the window is known
//! exactly; only the one cell that the window's edge cuts through is estimated, by the line from its first unit to its last. So the
//! estimate is never off by as much as a cell, 5 % of the limit, whatever the traffic does. A strict cell log counts that cell in
//! full: it never over-admits, and gives budget back late by less than a cell.

use crate::math::mul_div_nearest;
use crate::step::Law;
use crate::time::patience;
use crate::{Bound, Micros, Tick};

/// Parts into which a limit and its window are cut.
pub(crate) const PARTS: u64 = 20;

/// The most cells a state can need.
///
/// Within a debt of one limit there are 2L units, at most 40 g. After compaction two neighbours inside the window do not fit one cell
/// (they hold more than g or span W/20), unless the older is tied to the one before it; but then those two hold more than g. So there
/// are at most 40 tied cells and 2·(40 + 20) others, and besides them the one without a partner, the one at the edge and the one
/// that is being added.
pub(crate) const CELLS_MAX: usize = 8 * PARTS as usize + 3;

/// Units charged close together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cell {
    /// When the first was charged: the low 32 bits of the tick number. All cells lie within 2^31 ticks of the head's `last`.
    pub(crate) first: u32,
    /// When the last was charged, likewise.
    pub(crate) last: u32,
    /// How many; never 0.
    pub(crate) units: u32,
}

/// What a cell log knows besides its cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CellHead {
    /// Time of the last write, in ticks.
    pub(crate) last: u64,
    /// Units of all cells.
    pub(crate) total: u64,
    /// Cells in use.
    pub(crate) len: u32,
    /// The tick in which times are written: it changes with amounts of hundreds of millions.
    pub(crate) tick: Tick,
    /// Units were given back since the log was last empty: the ends of a cell may be empty places.
    pub(crate) refunded: bool,
}

/// A cell log: its head, and cells oldest first, of which the first `head.len` are in use.
#[derive(Debug)]
pub(crate) struct Cells<'a> {
    /// What it knows besides its cells.
    pub(crate) head: &'a mut CellHead,
    /// Room for at least one cell more than are in use, or for [`CELLS_MAX`].
    pub(crate) cells: &'a mut [Cell],
}

/// A cell with its times in a limit's own ticks.
#[derive(Clone, Copy)]
struct Timed {
    first: u64,
    last: u64,
    units: u64,
}

/// At most L in any W, off by less than a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CellLog {
    pub(crate) amount: u32,
    /// The window, in ticks; at most 2^31.
    pub(crate) window: u64,
    pub(crate) tick: Tick,
    pub(crate) strict: bool,
}

/// Units that one cell of a limit takes, unless they come at one instant.
pub(crate) fn cell_units(amount: u32) -> u64 {
    u64::from(amount).div_ceil(PARTS).max(1)
}

impl CellLog {
    /// The log's own time, in ticks.
    fn now(&self, log: &Cells<'_>, now: Micros) -> u64 {
        self.tick.floor(now.get()).max(self.ticks(log, log.head.last))
    }

    /// A stored tick number in this limit's ticks.
    fn ticks(&self, log: &Cells<'_>, stored: u64) -> u64 {
        if log.head.tick == self.tick { stored } else { self.tick.floor(log.head.tick.to_us(stored)) }
    }

    fn cell(&self, log: &Cells<'_>, index: usize) -> Timed {
        let cell = log.cells[index];
        // Only a clock set to 1970 can make a cell older than time: it counts as old as time.
        let whole =
            |low: u32| log.head.last.saturating_sub(u64::from((log.head.last as u32).wrapping_sub(low)));
        Timed {
            first: self.ticks(log, whole(cell.first)),
            last: self.ticks(log, whole(cell.last)),
            units: u64::from(cell.units),
        }
    }

    /// How many of the oldest cells have left the window, and their units.
    fn dead(&self, log: &Cells<'_>, at: u64) -> (usize, u64) {
        let len = log.head.len as usize;
        if self.ticks(log, log.head.last) + self.window <= at {
            return (len, log.head.total); // Nothing was written for a whole window.
        }
        let mut units = 0;
        for index in 0..len {
            let cell = self.cell(log, index);
            if cell.last + self.window > at {
                return (index, units);
            }
            units += cell.units;
        }
        (len, units)
    }

    /// Does the edge of the window at `at` cut through this cell, which has not left it?
    fn at_edge(&self, cell: Timed, at: u64) -> bool {
        cell.first + self.window <= at
    }

    /// Units of a cell that count at `at`; the cell has not left the window.
    fn live(&self, cell: Timed, at: u64) -> u64 {
        if !self.at_edge(cell, at) || self.strict {
            return cell.units;
        }
        if cell.units <= 2 {
            return 1; // One unit is known to be at each end, and one end is out.
        }
        // To the nearest: a cell of few units that is rounded up would refuse callers who keep to their limit.
        let inside = cell.last + self.window - at;
        let span = cell.last - cell.first;
        1 + mul_div_nearest(cell.units - 2, inside, span)
    }

    /// Does a cell begin at the instant at which the one before it ends?
    ///
    /// Such a cell takes no other instant. So all units of an instant are in one cell, or in the end of one and in a tied one that holds
    /// nothing else, and a refund knows where to take them.
    fn is_tied(&self, log: &Cells<'_>, index: usize) -> bool {
        index > 0 && log.cells[index - 1].last == log.cells[index].first
    }

    /// May units charged from `first` to `last` share a cell?
    fn spans_one(&self, first: u64, last: u64) -> bool {
        (last - first) * PARTS < self.window
    }

    /// Units in use, and the index of the oldest cell that counts.
    fn count(&self, log: &Cells<'_>, at: u64) -> (u64, usize) {
        let (dead, dead_units) = self.dead(log, at);
        let mut used = log.head.total - dead_units;
        if dead < log.head.len as usize {
            let oldest = self.cell(log, dead);
            used = used - oldest.units + self.live(oldest, at);
        }
        (used, dead)
    }

    /// Before a write: the times into this limit's ticks, and off with what has left the window.
    fn prepare(&self, log: &mut Cells<'_>, at: u64) {
        let (dead, units) = self.dead(log, at);
        if dead > 0 {
            log.cells.copy_within(dead..log.head.len as usize, 0);
            log.head.len -= dead as u32;
            log.head.total -= units;
        }
        if log.head.tick != self.tick {
            for index in 0..log.head.len as usize {
                let cell = self.cell(log, index);
                log.cells[index] =
                    Cell { first: cell.first as u32, last: cell.last as u32, ..log.cells[index] };
            }
            log.head.last = self.ticks(log, log.head.last);
            log.head.tick = self.tick;
        }
        log.head.last = at;
        if log.head.len == 0 {
            log.head.refunded = false;
        }
    }

    /// Joins neighbours that fit one cell. The cell at the edge stays as it is, so that the estimate does not move.
    fn compact(&self, log: &mut Cells<'_>, at: u64) {
        let mut kept = 0;
        for index in 0..log.head.len as usize {
            let cell = self.cell(log, index);
            if kept > 0 {
                let before = self.cell(log, kept - 1);
                let fits = before.units + cell.units <= cell_units(self.amount)
                    && self.spans_one(before.first, cell.last);
                if fits && !self.at_edge(before, at) && !self.is_tied(log, kept - 1) {
                    log.cells[kept - 1].last = log.cells[index].last;
                    log.cells[kept - 1].units += log.cells[index].units;
                    continue;
                }
            }
            log.cells[kept] = log.cells[index];
            kept += 1;
        }
        log.head.len = kept as u32;
    }

    fn push(&self, log: &mut Cells<'_>, at: u64, units: u32) {
        if log.head.len as usize == CELLS_MAX {
            self.compact(log, at);
        }
        debug_assert!(
            (log.head.len as usize) < log.cells.len(),
            "a compacted log has room for one more cell"
        );
        if let Some(free) = log.cells.get_mut(log.head.len as usize) {
            *free = Cell { first: at as u32, last: at as u32, units };
            log.head.len += 1;
        }
    }
}

impl Law for CellLog {
    type State<'a> = Cells<'a>;

    fn amount(&self) -> u32 {
        self.amount
    }

    fn window_us(&self) -> u64 {
        self.tick.to_us(self.window)
    }

    fn repair(&self, log: &mut Cells<'_>, now: Micros) {
        let now = self.tick.floor(now.get());
        let last = self.ticks(log, log.head.last);
        if self.tick.to_us(last.saturating_sub(now)) > patience(self.window_us()) {
            self.prepare(log, last); // Only what a window still holds can be told in 32 bits.
            let ahead = (last - now) as u32;
            for cell in &mut log.cells[..log.head.len as usize] {
                cell.first = cell.first.wrapping_sub(ahead);
                cell.last = cell.last.wrapping_sub(ahead);
            }
            log.head.last = now;
        }
    }

    fn at(&self, log: &Cells<'_>, now: Micros) -> Micros {
        Micros::new(self.tick.to_us(self.now(log, now)))
    }

    fn used(&self, log: &Cells<'_>, now: Micros) -> u64 {
        self.count(log, self.now(log, now)).0
    }

    /// Walks the cells from the oldest until enough have left, then asks when within the last of them.
    fn wait(&self, log: &Cells<'_>, now: Micros, cost: u64) -> Micros {
        let at = self.now(log, now);
        let (used, oldest) = self.count(log, at);
        let mut excess = (used + cost).saturating_sub(u64::from(self.amount));
        let mut edge = at; // Where the window's edge has to be, plus a window.
        for index in oldest..log.head.len as usize {
            if excess == 0 {
                break;
            }
            let cell = self.cell(log, index);
            let live = self.live(cell, at);
            if excess > live {
                excess -= live;
                continue;
            }
            let target = live - excess;
            let start = if target == 0 || self.strict {
                cell.last
            } else if target + 1 >= cell.units {
                cell.first
            } else {
                // The most that may be inside for the line to be rounded to `target` − 1.
                let span = u128::from(cell.last - cell.first);
                let inside =
                    (span * u128::from(2 * target - 1)).saturating_sub(1) / u128::from(2 * (cell.units - 2));
                cell.last - inside as u64
            };
            edge = start + self.window;
            break;
        }
        Micros::new(self.tick.to_us(edge - self.tick.floor(now.get())))
    }

    fn reset_after(&self, log: &Cells<'_>, now: Micros) -> Micros {
        let Some(newest) = (log.head.len as usize).checked_sub(1).map(|index| self.cell(log, index)) else {
            return Micros::ZERO;
        };
        if newest.last + self.window <= self.now(log, now) {
            return Micros::ZERO;
        }
        Micros::new(self.tick.to_us(newest.last + self.window - self.tick.floor(now.get())))
    }

    /// Of the cell at the edge at least one unit is in and one is out, but where a refund may have taken them.
    fn bound(&self, log: &Cells<'_>, now: Micros) -> Bound {
        let at = self.now(log, now);
        let (dead, _) = self.dead(log, at);
        if dead == log.head.len as usize {
            return Bound::EXACT;
        }
        let cell = self.cell(log, dead);
        if !self.at_edge(cell, at) {
            return Bound::EXACT;
        }
        let (least, most) = if log.head.refunded { (0, cell.units) } else { (1, cell.units - 1) };
        let counted = self.live(cell, at);
        Bound::new(most.saturating_sub(counted), counted.saturating_sub(least))
    }

    fn charge(&self, log: &mut Cells<'_>, now: Micros, units: u32) {
        let at = self.now(log, now);
        self.prepare(log, at);
        log.head.total += u64::from(units);
        let mut rest = units;
        if let Some(index) = (log.head.len as usize).checked_sub(1) {
            let newest = self.cell(log, index);
            if newest.first == at {
                // Same instant: exact whatever the size. Cannot overflow: it is part of what is used, at most 32 bits with `units`.
                log.cells[index].units = log.cells[index].units.saturating_add(rest);
                return;
            }
            let room = cell_units(self.amount).saturating_sub(newest.units);
            if room > 0 && self.spans_one(newest.first, at) && !self.is_tied(log, index) {
                let part = u64::from(rest).min(room) as u32;
                log.cells[index].units += part;
                log.cells[index].last = at as u32;
                rest -= part;
            }
        }
        if rest > 0 {
            self.push(log, at, rest);
        }
    }

    fn refund(&self, log: &mut Cells<'_>, now: Micros, units: u64, of: Option<Micros>) -> u64 {
        let at = self.now(log, now);
        let of = of.map(|of| self.tick.floor(of.get()));
        if of.is_some_and(|of| of + self.window <= at) {
            return 0; // That charge has left the window, whatever its cell still holds.
        }
        let (dead, _) = self.dead(log, at);
        let mut given = 0;
        for index in (dead..log.head.len as usize).rev() {
            let cell = self.cell(log, index);
            if of.is_some_and(|of| of < cell.first || of > cell.last) {
                continue;
            }
            let part = (units - given).min(cell.units);
            log.cells[index].units -= part as u32;
            given += part;
            if given == units {
                break;
            }
        }
        if given > 0 {
            log.head.total -= given;
            self.prepare(log, at);
            drop_empty(log);
            log.head.refunded = log.head.len > 0;
            self.compact(log, at);
        }
        given
    }
}

/// Closes the gaps that a refund left.
fn drop_empty(log: &mut Cells<'_>) {
    let mut kept = 0;
    for index in 0..log.head.len as usize {
        if log.cells[index].units > 0 {
            log.cells[kept] = log.cells[index];
            kept += 1;
        }
    }
    log.head.len = kept as u32;
}
