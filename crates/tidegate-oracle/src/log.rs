//! The sliding log: every charge is remembered until it leaves the window.

use crate::model::Family;
use crate::numbers::Numbers;
use crate::truth::Given;

/// Charges, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log {
    stored: i128,
    charges: Vec<Charge>,
}

#[derive(Debug, Clone)]
struct Charge {
    at: i128,
    units: i128,
}

impl Charge {
    fn lives(&self, numbers: &Numbers, eff: i128) -> bool {
        self.at + numbers.window > eff
    }
}

impl Family for Log {
    fn copy(&self) -> Box<dyn Family> {
        Box::new(self.clone())
    }

    fn stored(&self, _numbers: &Numbers) -> i128 {
        self.stored
    }

    fn floor(&mut self, numbers: &Numbers) {
        self.stored = numbers.floor(self.stored);
        self.charges.iter_mut().for_each(|charge| charge.at = numbers.floor(charge.at));
    }

    fn move_back(&mut self, _numbers: &Numbers, n: i128) -> i128 {
        let by = self.stored - n;
        self.stored = n;
        self.charges.iter_mut().for_each(|charge| charge.at -= by);
        by
    }

    fn used(&self, numbers: &Numbers, eff: i128) -> i128 {
        self.charges.iter().filter(|charge| charge.lives(numbers, eff)).map(|charge| charge.units).sum()
    }

    fn charge(&mut self, _numbers: &Numbers, eff: i128, units: i128, _holder: Option<u64>) {
        self.charges.push(Charge { at: eff, units });
    }

    fn refund(&mut self, numbers: &Numbers, eff: i128, units: i128, receipt_at: Option<i128>) -> Vec<Given> {
        let (mut left, mut given) = (units, Vec::new());
        for charge in self.charges.iter_mut().rev() {
            let is_named = receipt_at.is_none_or(|at| charge.at == at);
            if is_named && charge.lives(numbers, eff) {
                let taken = charge.units.min(left);
                charge.units -= taken;
                left -= taken;
                given.push(Given::Between { from: charge.at, to: charge.at, units: taken });
            }
        }
        given
    }

    fn keep(&mut self, numbers: &Numbers, eff: i128) {
        self.stored = eff;
        self.charges.retain(|charge| charge.units > 0 && charge.lives(numbers, eff));
    }
}
