//! Token bucket, GCRA and leaky bucket: one level that charges raise and time lowers.

use crate::model::Family;
use crate::numbers::{Numbers, div_ceil};
use crate::truth::Given;

/// A level in unit·µs, so that a unit weighs one window and every µs takes away one amount.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bucket {
    stored: i128,
    level: i128,
    /// Whether the level has been above the burst since it was last empty.
    owed: bool,
}

impl Family for Bucket {
    fn copy(&self) -> Box<dyn Family> {
        Box::new(self.clone())
    }

    fn stored(&self, _numbers: &Numbers) -> i128 {
        self.stored
    }

    fn floor(&mut self, numbers: &Numbers) {
        self.stored = numbers.floor(self.stored);
        self.level = div_ceil(self.level, numbers.tick) * numbers.tick;
    }

    fn move_back(&mut self, _numbers: &Numbers, n: i128) -> i128 {
        let by = self.stored - n;
        self.stored = n;
        by
    }

    fn used(&self, numbers: &Numbers, eff: i128) -> i128 {
        div_ceil(self.seen_at(numbers, eff).level, numbers.window)
    }

    fn charge(&mut self, numbers: &Numbers, eff: i128, units: i128, _holder: Option<u64>) {
        *self = self.seen_at(numbers, eff);
        self.set_level(numbers, self.level + units * numbers.window);
    }

    fn refund(&mut self, numbers: &Numbers, eff: i128, units: i128, receipt_at: Option<i128>) -> Vec<Given> {
        let fullest = if self.seen_at(numbers, eff).owed { numbers.ceiling } else { numbers.burst };
        if receipt_at.is_some_and(|at| (eff - at) * numbers.amount >= fullest * numbers.window) {
            return Vec::new(); // The fullest bucket would have leaked it by now.
        }
        let given = units.min(self.used(numbers, eff));
        if given > 0 {
            *self = self.seen_at(numbers, eff);
            self.set_level(numbers, (self.level - units * numbers.window).max(0));
        }
        vec![Given::Newest { units: given }]
    }

    fn keep(&mut self, numbers: &Numbers, eff: i128) {
        *self = self.seen_at(numbers, eff);
    }

    fn bound(&self, numbers: &Numbers, eff: i128) -> (i128, i128) {
        if numbers.amount == 0 {
            return (0, 0);
        }
        let owed = self.seen_at(numbers, eff).owed;
        (numbers.burst, if owed { numbers.amount } else { (numbers.amount - numbers.burst).max(0) })
    }
}

impl Bucket {
    /// The bucket as a limit sees it at `eff`: no deeper in debt than allowed, and leaked at that limit's rate.
    fn seen_at(&self, numbers: &Numbers, eff: i128) -> Self {
        let before = self.level.min(numbers.ceiling * numbers.window);
        let level = (before - numbers.amount * (eff - self.stored)).max(0);
        let owed = self.owed || before > numbers.burst * numbers.window;
        Self { stored: eff, level, owed: owed && level > 0 }
    }

    fn set_level(&mut self, numbers: &Numbers, level: i128) {
        self.level = level;
        self.owed = (self.owed || level > numbers.burst * numbers.window) && level > 0;
    }
}
