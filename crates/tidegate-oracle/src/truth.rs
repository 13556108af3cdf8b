//! What an exact sliding window would hold: every charge with its time, less what was given back.

use crate::numbers::Numbers;

/// Net charges in the order in which they were made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    charges: Vec<Charge>,
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

    /// Takes from charges made exactly then, and nothing more where they do not suffice.
    pub(crate) fn take_at(&mut self, at: i128, units: i128) {
        self.take(units, |charge| charge.at == at);
    }

    /// Takes from the newest charges backwards, none from before `from`.
    pub(crate) fn take_newest(&mut self, from: i128, units: i128) {
        self.take(units, |charge| charge.at >= from);
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

    fn take(&mut self, mut units: i128, may_give: impl Fn(&Charge) -> bool) {
        for charge in self.charges.iter_mut().rev().filter(|charge| may_give(charge)) {
            let given = units.min(charge.units);
            charge.units -= given;
            units -= given;
        }
    }
}
