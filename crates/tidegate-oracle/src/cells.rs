//! The cell log: a log whose entries cover a few units and a short time, so that only the one crossing the edge of
//! the window is uncertain.

use crate::model::Family;
use crate::numbers::{CELLS, Numbers};
use crate::truth::Given;

/// At this many cells a new one is made only after merging those that fit together.
const CELLS_MAX: usize = 163;

/// Cells, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cells {
    stored: i128,
    cells: Vec<Cell>,
    /// Whether units were given back, so that a cell's ends need not hold a unit any more.
    refunded: bool,
}

#[derive(Debug, Clone)]
struct Cell {
    first: i128,
    last: i128,
    units: i128,
}

impl Cell {
    /// The units estimated to be after `edge`.
    fn live(&self, numbers: &Numbers, edge: i128) -> i128 {
        if self.last <= edge {
            0
        } else if self.first > edge || numbers.strict {
            self.units
        } else if self.units <= 2 {
            1
        } else {
            // To the nearest whole unit, halves up.
            let (inside, span) = (self.last - edge, self.last - self.first);
            1 + (2 * (self.units - 2) * inside + span).div_euclid(2 * span)
        }
    }

    fn crosses(&self, edge: i128) -> bool {
        self.first <= edge && edge < self.last
    }
}

/// Whether the times from `first` to `last` fit one cell.
fn is_short(numbers: &Numbers, first: i128, last: i128) -> bool {
    (last - first) * CELLS < numbers.window
}

impl Family for Cells {
    fn copy(&self) -> Box<dyn Family> {
        Box::new(self.clone())
    }

    fn stored(&self, _numbers: &Numbers) -> i128 {
        self.stored
    }

    fn floor(&mut self, numbers: &Numbers) {
        self.stored = numbers.floor(self.stored);
        for cell in &mut self.cells {
            (cell.first, cell.last) = (numbers.floor(cell.first), numbers.floor(cell.last));
        }
    }

    fn move_back(&mut self, _numbers: &Numbers, n: i128) -> i128 {
        let by = self.stored - n;
        self.stored = n;
        for cell in &mut self.cells {
            (cell.first, cell.last) = (cell.first - by, cell.last - by);
        }
        by
    }

    fn used(&self, numbers: &Numbers, eff: i128) -> i128 {
        self.cells.iter().map(|cell| cell.live(numbers, eff - numbers.window)).sum()
    }

    fn charge(&mut self, numbers: &Numbers, eff: i128, units: i128, _holder: Option<u64>) {
        let edge = eff - numbers.window;
        self.drop_left(edge);
        let mut rest = units;
        let is_tied = is_last_tied(&self.cells);
        if let Some(newest) = self.cells.last_mut() {
            if newest.first == eff {
                newest.units += units; // The same instant: exact at any size.
                return;
            }
            if !is_tied && is_short(numbers, newest.first, eff) && newest.units < numbers.cell_units {
                let fitting = rest.min(numbers.cell_units - newest.units);
                newest.units += fitting;
                newest.last = eff;
                rest -= fitting;
            }
        }
        if rest > 0 {
            if self.cells.len() >= CELLS_MAX {
                self.compact(numbers, edge);
            }
            self.cells.push(Cell { first: eff, last: eff, units: rest });
        }
    }

    fn refund(&mut self, numbers: &Numbers, eff: i128, units: i128, receipt_at: Option<i128>) -> Vec<Given> {
        let edge = eff - numbers.window;
        self.drop_left(edge);
        if receipt_at.is_some_and(|at| at <= edge) {
            return Vec::new(); // What was charged then has left the window, whatever its cell still holds.
        }
        let (mut left, mut given) = (units, Vec::new());
        for cell in self.cells.iter_mut().rev() {
            if receipt_at.is_none_or(|at| cell.first <= at && at <= cell.last) {
                let taken = cell.units.min(left);
                cell.units -= taken;
                left -= taken;
                given.push(Given::Between { from: cell.first, to: cell.last, units: taken });
            }
        }
        self.cells.retain(|cell| cell.units > 0);
        if left < units {
            self.refunded = true;
            self.compact(numbers, edge);
        }
        given
    }

    fn keep(&mut self, numbers: &Numbers, eff: i128) {
        self.stored = eff;
        self.drop_left(eff - numbers.window);
        self.refunded &= !self.cells.is_empty();
    }

    fn bound(&self, numbers: &Numbers, eff: i128) -> (i128, i128) {
        let edge = eff - numbers.window;
        let Some(cell) = self.cells.iter().find(|cell| cell.crosses(edge)) else {
            return (0, 0);
        };
        // Unless units were given back, one is at each end of the cell: the last is inside, the first is not.
        let (least, most) = if self.refunded { (0, cell.units) } else { (1, cell.units - 1) };
        let estimate = cell.live(numbers, edge);
        ((most - estimate).max(0), (estimate - least).max(0))
    }
}

impl Cells {
    fn drop_left(&mut self, edge: i128) {
        self.cells.retain(|cell| cell.last > edge);
        // In an empty log nothing is left that a refund could have touched.
        self.refunded &= !self.cells.is_empty();
    }

    /// Merges neighbours that fit one cell and are wholly inside the window.
    fn compact(&mut self, numbers: &Numbers, edge: i128) {
        let mut merged: Vec<Cell> = Vec::new();
        for cell in self.cells.drain(..) {
            let is_tied = is_last_tied(&merged);
            match merged.last_mut() {
                Some(before)
                    if !is_tied
                        && before.first > edge
                        && cell.first > edge
                        && before.units + cell.units <= numbers.cell_units
                        && is_short(numbers, before.first, cell.last) =>
                {
                    before.units += cell.units;
                    before.last = cell.last;
                }
                _ => merged.push(cell),
            }
        }
        self.cells = merged;
    }
}

/// Whether the newest cell begins when the one before it ends: then it holds that instant and nothing else.
fn is_last_tied(cells: &[Cell]) -> bool {
    matches!(cells, [.., before, newest] if before.last == newest.first)
}
