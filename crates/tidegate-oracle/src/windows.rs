//! Aligned windows: the fixed window, and sub-windows of which the oldest fades.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::model::Family;
use crate::numbers::{Numbers, div_ceil};
use crate::truth::Given;

/// Windows counted each alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct FixedWindow {
    counts: Counts,
}

/// A window made of parts; the part that is leaving counts by the share still inside, or whole if strict.
/// With one part this is the weighting of the current and the previous window.
#[derive(Debug, Clone, Default)]
pub(crate) struct SubWindows {
    counts: Counts,
}

impl Family for FixedWindow {
    fn copy(&self) -> Box<dyn Family> {
        Box::new(self.clone())
    }

    fn stored(&self, numbers: &Numbers) -> i128 {
        self.counts.newest * numbers.window
    }

    fn move_back(&mut self, numbers: &Numbers, n: i128) -> i128 {
        self.counts.move_back(n.div_euclid(numbers.window)) * numbers.window
    }

    fn used(&self, numbers: &Numbers, eff: i128) -> i128 {
        self.counts.of(eff.div_euclid(numbers.window))
    }

    fn charge(&mut self, numbers: &Numbers, eff: i128, units: i128, _holder: Option<u64>) {
        self.counts.add(eff.div_euclid(numbers.window), units);
    }

    fn refund(&mut self, numbers: &Numbers, eff: i128, units: i128, receipt_at: Option<i128>) -> Vec<Given> {
        let current = eff.div_euclid(numbers.window);
        let charged = receipt_at.map_or(current, |at| at.div_euclid(numbers.window));
        // The window before no longer limits anything, but the bound tells of it.
        self.counts.give_back(current - 1..=current, charged, units, numbers.window)
    }

    fn keep(&mut self, numbers: &Numbers, eff: i128) {
        let current = eff.div_euclid(numbers.window);
        self.counts.keep(current - 1..=current);
    }

    fn bound(&self, numbers: &Numbers, eff: i128) -> (i128, i128) {
        (self.counts.of(eff.div_euclid(numbers.window) - 1), 0)
    }

    fn window_end(&self, numbers: &Numbers, eff: i128) -> Option<i128> {
        Some((eff.div_euclid(numbers.window) + 1) * numbers.window)
    }
}

impl Family for SubWindows {
    fn copy(&self) -> Box<dyn Family> {
        Box::new(self.clone())
    }

    fn stored(&self, numbers: &Numbers) -> i128 {
        self.counts.newest * numbers.sub_window
    }

    fn move_back(&mut self, numbers: &Numbers, n: i128) -> i128 {
        // The next one to start: at its start the leaving sub-window counts whole, so that a wrong clock frees nothing.
        self.counts.move_back(div_ceil(n, numbers.sub_window)) * numbers.sub_window
    }

    fn used(&self, numbers: &Numbers, eff: i128) -> i128 {
        let newest = eff.div_euclid(numbers.sub_window);
        let inside = self.counts.sum(newest - numbers.sub_windows + 1..=newest);
        inside + self.leaving(numbers, eff).1
    }

    fn charge(&mut self, numbers: &Numbers, eff: i128, units: i128, _holder: Option<u64>) {
        self.counts.add(eff.div_euclid(numbers.sub_window), units);
    }

    fn refund(&mut self, numbers: &Numbers, eff: i128, units: i128, receipt_at: Option<i128>) -> Vec<Given> {
        let newest = eff.div_euclid(numbers.sub_window);
        let charged = receipt_at.map_or(newest, |at| at.div_euclid(numbers.sub_window));
        self.counts.give_back(newest - numbers.sub_windows..=newest, charged, units, numbers.sub_window)
    }

    fn keep(&mut self, numbers: &Numbers, eff: i128) {
        let newest = eff.div_euclid(numbers.sub_window);
        self.counts.keep(newest - numbers.sub_windows..=newest);
    }

    fn bound(&self, numbers: &Numbers, eff: i128) -> (i128, i128) {
        let (whole, counted) = self.leaving(numbers, eff);
        (whole - counted, counted)
    }
}

impl SubWindows {
    /// The units of the sub-window that is leaving: all of them, and those still counted.
    fn leaving(&self, numbers: &Numbers, eff: i128) -> (i128, i128) {
        let width = numbers.sub_window;
        let whole = self.counts.of(eff.div_euclid(width) - numbers.sub_windows);
        let faded = div_ceil(whole * (width - eff.rem_euclid(width)), width);
        (whole, if numbers.strict { whole } else { faded })
    }
}

/// Net units by window number.
#[derive(Debug, Clone, Default)]
struct Counts {
    /// The newest window as of the last write.
    newest: i128,
    units: BTreeMap<i128, i128>,
}

impl Counts {
    fn of(&self, window: i128) -> i128 {
        self.units.get(&window).copied().unwrap_or(0)
    }

    fn sum(&self, windows: RangeInclusive<i128>) -> i128 {
        self.units.range(windows).map(|(_, units)| units).sum()
    }

    fn add(&mut self, window: i128, units: i128) {
        *self.units.entry(window).or_insert(0) += units;
    }

    /// Gives back up to `units` of a window, if it is within reach.
    fn give_back(
        &mut self,
        reach: RangeInclusive<i128>,
        window: i128,
        units: i128,
        width: i128,
    ) -> Vec<Given> {
        let given = if reach.contains(&window) { units.min(self.of(window)) } else { 0 };
        self.add(window, -given);
        vec![Given::in_window(window, width, given)]
    }

    /// Renumbers all windows so that the newest is `window`, and says by how many.
    fn move_back(&mut self, window: i128) -> i128 {
        let by = self.newest - window;
        self.newest = window;
        self.units = self.units.iter().map(|(window, units)| (window - by, *units)).collect();
        by
    }

    /// The end of the range is the newest window from now on.
    fn keep(&mut self, windows: RangeInclusive<i128>) {
        self.newest = *windows.end();
        self.units.retain(|window, units| windows.contains(window) && *units > 0);
    }
}
