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
/// (they hold more than g or span W/20), unless the older is tied to the one before it; but then those two hold more than g, and tied
/// cells do not follow each other. So there are at most 40 tied cells and 2·(40 + 20) others, and besides them the one without a
/// partner, the one at the edge and the one that is being added.
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

/// A cell, its times told as ages: ticks before the instant at which it is looked at. So nothing is older than time.
#[derive(Clone, Copy)]
struct Aged {
    first: u64,
    last: u64,
    units: u64,
}

/// A cell log at an instant, in the limit's own ticks.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    now: u64,
    /// Now, or the last write if that is later.
    at: u64,
    /// How many of the oldest cells have left the window, and their units.
    dead: usize,
    dead_units: u64,
    used: u64,
    bound: Bound,
}

/// At most L in any W, off by less than a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CellLog {
    pub(crate) amount: u32,
    /// The window, in ticks; at most 2^31.
    pub(crate) window: u64,
    /// Fixed by the window alone, so that no change of the amount moves a stored time.
    pub(crate) tick: Tick,
    pub(crate) strict: bool,
}

/// Units that one cell of a limit takes, unless they come at one instant.
pub(crate) fn cell_units(amount: u32) -> u64 {
    u64::from(amount).div_ceil(PARTS).max(1)
}

impl CellLog {
    /// A cell as it is at `at`, which is not before the last write.
    fn cell(&self, log: &Cells<'_>, index: usize, at: u64) -> Aged {
        let cell = log.cells[index];
        let age = |low: u32| at - log.head.last + u64::from((log.head.last as u32).wrapping_sub(low));
        Aged { first: age(cell.first), last: age(cell.last), units: u64::from(cell.units) }
    }

    /// How many of the oldest cells have left the window, and their units.
    fn dead(&self, log: &Cells<'_>, at: u64) -> (usize, u64) {
        let len = log.head.len as usize;
        if at - log.head.last >= self.window {
            return (len, log.head.total); // Nothing was written for a whole window.
        }
        let mut units = 0;
        for index in 0..len {
            let cell = self.cell(log, index, at);
            if cell.last < self.window {
                return (index, units);
            }
            units += cell.units;
        }
        (len, units)
    }

    /// Does the edge of the window cut through this cell, which has not left it?
    fn at_edge(&self, cell: Aged) -> bool {
        cell.first >= self.window
    }

    /// Units of a cell that count; the cell has not left the window.
    fn live(&self, cell: Aged) -> u64 {
        if !self.at_edge(cell) || self.strict {
            return cell.units;
        }
        if cell.units <= 2 {
            return 1; // One unit is known to be at each end, and one end is out.
        }
        // To the nearest: a cell of few units that is rounded up would refuse callers who keep to their limit.
        let inside = self.window - cell.last;
        1 + mul_div_nearest(cell.units - 2, inside, cell.first - cell.last)
    }

    /// How long until a cell counts at most `target`, which is less than it counts now.
    fn falls_to(&self, cell: Aged, target: u64) -> u64 {
        if target == 0 || self.strict {
            return self.window - cell.last;
        }
        if target + 1 >= cell.units {
            return self.window - cell.first;
        }
        // The most that may be inside for the line to be rounded to `target` − 1.
        let span = u128::from(cell.first - cell.last);
        let inside = (span * u128::from(2 * target - 1)).saturating_sub(1) / u128::from(2 * (cell.units - 2));
        self.window - cell.last - inside as u64
    }

    /// A wait from the log's own time, told from the clock's.
    fn wait_of(&self, seen: Counted, ticks: u64) -> Micros {
        Micros::new(self.tick.to_us(seen.at - seen.now + ticks))
    }

    /// Does a cell begin at the instant at which the one before it ends?
    ///
    /// Such a cell takes no other instant. So all units of an instant are in one cell, or in the end of one and in a tied one that holds
    /// nothing else, and a refund knows where to take them.
    fn is_tied(&self, log: &Cells<'_>, index: usize) -> bool {
        index > 0 && log.cells[index - 1].last == log.cells[index].first
    }

    /// May units charged within so many ticks share a cell?
    pub(crate) fn is_short(&self, span: u64) -> bool {
        span * PARTS < self.window
    }

    /// Before a write at `at`: off with the cells that have left the window.
    fn prepare(&self, log: &mut Cells<'_>, at: u64, (dead, dead_units): (usize, u64)) {
        if dead > 0 {
            log.cells.copy_within(dead..log.head.len as usize, 0);
            log.head.len -= dead as u32;
            log.head.total -= dead_units;
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
            let cell = self.cell(log, index, at);
            if kept > 0 {
                let before = self.cell(log, kept - 1, at);
                let fits = before.units + cell.units <= cell_units(self.amount)
                    && self.is_short(before.first - cell.last);
                if fits && !self.at_edge(before) && !self.is_tied(log, kept - 1) {
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
        let len = log.head.len as usize;
        debug_assert!(len < log.cells.len(), "a compacted log has room for one more cell");
        if let Some(free) = log.cells.get_mut(len) {
            *free = Cell { first: at as u32, last: at as u32, units };
            log.head.len += 1;
        }
    }
}

impl Law for CellLog {
    type State<'a> = Cells<'a>;
    type Seen = Counted;

    fn amount(&self) -> u32 {
        self.amount
    }

    fn window_us(&self) -> u64 {
        self.tick.to_us(self.window)
    }

    fn repair(&self, log: &mut Cells<'_>, now: Micros) {
        let now = self.tick.floor(now.get());
        let ahead = log.head.last.saturating_sub(now);
        if ahead > self.tick.floor(patience(self.window_us())) {
            for cell in &mut log.cells[..log.head.len as usize] {
                cell.first = cell.first.wrapping_sub(ahead as u32);
                cell.last = cell.last.wrapping_sub(ahead as u32);
            }
            log.head.last = now;
        }
    }

    fn see(&self, log: &Cells<'_>, now: Micros) -> Counted {
        let now = self.tick.floor(now.get());
        let at = now.max(log.head.last);
        let (dead, dead_units) = self.dead(log, at);
        let used = log.head.total - dead_units;
        let mut seen = Counted { now, at, dead, dead_units, used, bound: Bound::EXACT };
        if dead < log.head.len as usize {
            let oldest = self.cell(log, dead, at);
            if self.at_edge(oldest) {
                // Of the cell at the edge at least one unit is in and one is out, but where a refund may have taken them.
                let live = self.live(oldest);
                let (least, most) = if log.head.refunded { (0, oldest.units) } else { (1, oldest.units - 1) };
                seen.used = seen.used - oldest.units + live;
                seen.bound = Bound::new(most.saturating_sub(live), live.saturating_sub(least));
            }
        }
        seen
    }

    fn at(&self, seen: Counted) -> Micros {
        Micros::new(self.tick.to_us(seen.at))
    }

    fn used(&self, seen: Counted) -> u64 {
        seen.used
    }

    /// Walks the cells from the oldest until enough have left, then asks when within the last of them.
    fn wait(&self, log: &Cells<'_>, seen: Counted, cost: u64) -> Micros {
        let mut excess = (seen.used + cost).saturating_sub(u64::from(self.amount));
        let mut wait = 0;
        for index in seen.dead..log.head.len as usize {
            if excess == 0 {
                break;
            }
            let cell = self.cell(log, index, seen.at);
            let live = self.live(cell);
            if excess > live {
                excess -= live;
                continue;
            }
            wait = self.falls_to(cell, live - excess);
            break;
        }
        self.wait_of(seen, wait)
    }

    fn reset_after(&self, log: &Cells<'_>, seen: Counted) -> Micros {
        let len = log.head.len as usize;
        if seen.dead == len {
            return Micros::ZERO;
        }
        let newest = self.cell(log, len - 1, seen.at);
        self.wait_of(seen, self.window - newest.last)
    }

    fn bound(&self, _log: &Cells<'_>, seen: Counted) -> Bound {
        seen.bound
    }

    fn charge(&self, log: &mut Cells<'_>, seen: Counted, units: u32) -> Counted {
        let at = seen.at;
        self.prepare(log, at, (seen.dead, seen.dead_units));
        log.head.total += u64::from(units);
        let mut rest = units;
        if let Some(index) = (log.head.len as usize).checked_sub(1) {
            let newest = self.cell(log, index, at);
            if newest.first == 0 {
                // Same instant: exact whatever the size. Cannot overflow: it is part of what is used, at most 32 bits with `units`.
                log.cells[index].units = log.cells[index].units.saturating_add(rest);
                rest = 0;
            } else {
                let room = cell_units(self.amount).saturating_sub(newest.units);
                if room > 0 && self.is_short(newest.first) && !self.is_tied(log, index) {
                    let part = u64::from(rest).min(room) as u32;
                    log.cells[index].units += part;
                    log.cells[index].last = at as u32;
                    rest -= part;
                }
            }
        }
        if rest > 0 {
            self.push(log, at, rest);
        }
        // The cell at the edge, if there is one, is the oldest now; neither it nor its bound has moved.
        Counted { dead: 0, dead_units: 0, used: seen.used + u64::from(units), ..seen }
    }

    fn refund(&self, log: &mut Cells<'_>, seen: Counted, units: u64, of: Option<Micros>) -> u64 {
        // How long ago it was charged; a time to come is nobody's.
        let of = match of.map(|of| seen.at.checked_sub(self.tick.floor(of.get()))) {
            None => None,
            Some(Some(age)) if age < self.window => Some(age),
            Some(_) => return 0, // That charge has left the window, whatever its cell still holds.
        };
        let mut given = 0;
        for index in (seen.dead..log.head.len as usize).rev() {
            let cell = self.cell(log, index, seen.at);
            if of.is_some_and(|age| age > cell.first || age < cell.last) {
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
            self.prepare(log, seen.at, (seen.dead, seen.dead_units));
            drop_empty(log);
            log.head.refunded = log.head.len > 0;
            self.compact(log, seen.at);
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
