//! Concurrency: places, each held until released or expired.

use crate::model::Family;
use crate::numbers::Numbers;
use crate::truth::Given;

/// The places taken, in the order of taking.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    stored: i128,
    places: Vec<Place>,
}

#[derive(Debug, Clone)]
struct Place {
    /// Absent where a plain charge took it; then it can only expire.
    holder: Option<u64>,
    cost: i128,
    expires: i128,
}

impl Places {
    /// Holds a place for another life, if it is held.
    pub(crate) fn extend(&mut self, numbers: &Numbers, eff: i128, id: u64) -> bool {
        match self.places.iter_mut().find(|place| place.holder == Some(id) && place.expires > eff) {
            Some(place) => {
                place.expires = eff + numbers.window;
                true
            }
            None => false,
        }
    }

    /// Gives a place back and says what it cost, if it is held.
    pub(crate) fn release(&mut self, eff: i128, id: u64) -> Option<i128> {
        let held = self.places.iter().position(|place| place.holder == Some(id) && place.expires > eff)?;
        Some(self.places.remove(held).cost)
    }
}

impl Family for Places {
    fn copy(&self) -> Box<dyn Family> {
        Box::new(self.clone())
    }

    fn stored(&self, _numbers: &Numbers) -> i128 {
        self.stored
    }

    fn move_back(&mut self, _numbers: &Numbers, n: i128) -> i128 {
        let by = self.stored - n;
        self.stored = n;
        self.places.iter_mut().for_each(|place| place.expires -= by);
        by
    }

    fn used(&self, _numbers: &Numbers, eff: i128) -> i128 {
        self.places.iter().filter(|place| place.expires > eff).map(|place| place.cost).sum()
    }

    fn charge(&mut self, numbers: &Numbers, eff: i128, units: i128, holder: Option<u64>) {
        self.places.push(Place { holder, cost: units, expires: eff + numbers.window });
    }

    /// Places are given back by their holder alone.
    fn refund(
        &mut self,
        _numbers: &Numbers,
        _eff: i128,
        _units: i128,
        _receipt_at: Option<i128>,
    ) -> Vec<Given> {
        Vec::new()
    }

    fn keep(&mut self, _numbers: &Numbers, eff: i128) {
        self.stored = eff;
        self.places.retain(|place| place.expires > eff);
    }

    fn places(&mut self) -> Option<&mut Places> {
        Some(self)
    }
}
