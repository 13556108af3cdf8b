//! What an exact sliding window would hold: every charge with its time, less what was given back.

use crate::numbers::Numbers;

/// Net charges in the order in which they were made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    charges: Vec<Charge>,
}

/// Units given back.
#[derive(Debug)]
pub(crate) enum Given {
    /// Charged between these times, both included.
    Between { from: i128, to: i128, units: i128 },
    /// Of a counter that does not know when they were charged.
    Newest { units: i128 },
}

impl Given {
    /// Units charged within the window of this number.
    pub(crate) fn in_window(number: i128, width: i128, units: i128) -> Self {
        Self::Between { from: number * width, to: (number + 1) * width - 1, units }
    }

    pub(crate) fn units(&self) -> i128 {
        match *self {
            Self::Between { units, .. } | Self::Newest { units } => units,
        }
    }
}

#[derive(Debug, Clone)]
struct Charge {
    at: i128,
    units: i128,
}

impl Ledger {
    /// The units that an exact window ending at `eff` holds.
    pub(crate) fn live(&self, window: i128, eff: i128) -> i128 {
        self.charges.iter().filter(|charge| charge.at + window > eff).map(|charge| charge.units).sum()
    }

    pub(crate) fn add(&mut self, at: i128, units: i128) {
        self.charges.push(Charge { at, units });
    }

    /// Takes what a counter gave back from the charges among which it counted it: from those made at `named`, then from
    /// the oldest. (The newest of a cell may share their instant with the next cell, whose they may be.)
    pub(crate) fn take(&mut self, given: &Given, named: Option<i128>) {
        match *given {
            Given::Newest { units } => {
                take_from(self.charges.iter_mut().rev(), units);
            }
            Given::Between { from, to, units } => {
                let is_among = |charge: &&mut Charge| from <= charge.at && charge.at <= to;
                let is_named = |charge: &&mut Charge| is_among(charge) && Some(charge.at) == named;
                let left = take_from(self.charges.iter_mut().filter(is_named), units);
                take_from(self.charges.iter_mut().filter(is_among), left);
            }
        }
    }

    pub(crate) fn floor(&mut self, numbers: &Numbers) {
        self.charges.iter_mut().for_each(|charge| charge.at = numbers.floor(charge.at));
    }

    pub(crate) fn move_back(&mut self, by: i128) {
        self.charges.iter_mut().for_each(|charge| charge.at -= by);
    }

    /// Drops what no window from `stored` on can hold.
    pub(crate) fn forget(&mut self, window: i128, stored: i128) {
        self.charges.retain(|charge| charge.units > 0 && charge.at + window > stored);
    }
}

/// Takes from one charge after the other and says how many units are left to take.
fn take_from<'a>(charges: impl Iterator<Item = &'a mut Charge>, mut units: i128) -> i128 {
    for charge in charges {
        let given = units.min(charge.units);
        charge.units -= given;
        units -= given;
    }
    units
}
