//! What follows from a limit: capacity, debt, tick, sub-windows, cell size.

use crate::spec::{Algorithm, Spec};

/// The most units any state may hold.
const UNITS_MAX: i128 = u32::MAX as i128;
/// Products of units and ticks stay below this, so that every implementation can hold them exactly.
const PRODUCT_MAX: i128 = 1 << 52;
/// A window is spread over this many cells of full size.
pub(crate) const CELLS: i128 = 20;
/// A tick is at most 10^6 µs.
const TICK_EXPONENT_MAX: u32 = 6;
const SUB_WINDOWS_MAX: i128 = 60;

/// A limit, ready to compute with; times in µs.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    pub(crate) amount: i128,
    /// The window; for concurrency the life of a place.
    pub(crate) window: i128,
    pub(crate) burst: i128,
    /// The most that may be admitted.
    pub(crate) capacity: i128,
    /// The most that forced charges may bring `used` to.
    pub(crate) ceiling: i128,
    pub(crate) tick: i128,
    pub(crate) sub_windows: i128,
    /// The length of one sub-window.
    pub(crate) sub_window: i128,
    /// The units that fill a cell.
    pub(crate) cell_units: i128,
    /// A bucket only knows how much is in it, not since when.
    pub(crate) is_bucket: bool,
    pub(crate) strict: bool,
    pub(crate) always: bool,
}

impl Numbers {
    /// Panics where the limit has no tick: such limits are refused before they reach a counter.
    pub(crate) fn of(spec: &Spec) -> Self {
        Self::try_of(spec).unwrap_or_else(|| panic!("no tick up to 1 s suits the limit {spec}"))
    }

    /// None where the limit has no tick.
    pub(crate) fn try_of(spec: &Spec) -> Option<Self> {
        let amount = i128::from(spec.amount);
        let window = window_of(spec);
        let burst = if spec.algorithm.is_bucket() { spec.burst.map_or(amount, i128::from) } else { amount };
        let capacity = if amount == 0 { 0 } else { burst };
        let sub_windows = sub_windows_of(spec, window);
        let mut numbers = Self {
            amount,
            window,
            burst,
            capacity,
            ceiling: (2 * capacity).min(UNITS_MAX),
            tick: 1,
            sub_windows,
            sub_window: window / sub_windows,
            cell_units: div_ceil(amount, CELLS).max(1),
            is_bucket: spec.algorithm.is_bucket(),
            strict: spec.strict && spec.algorithm != Algorithm::SlidingWindowCounter,
            always: spec.always,
        };
        numbers.tick = (0..=TICK_EXPONENT_MAX)
            .map(|exponent| 10_i128.pow(exponent))
            .find(|tick| numbers.holds_with(spec.algorithm, *tick))?;
        Some(numbers)
    }

    fn holds_with(&self, algorithm: Algorithm, tick: i128) -> bool {
        let divides = |time: i128| time % tick == 0;
        match algorithm {
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::Concurrency | Algorithm::Calendar => {
                tick == 1
            }
            Algorithm::SlidingWindowCounter | Algorithm::SubWindow => {
                divides(self.sub_window) && self.amount * (self.sub_window / tick) < PRODUCT_MAX
            }
            Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => {
                divides(self.window) && self.amount.max(self.burst) * (self.window / tick) < PRODUCT_MAX
            }
            Algorithm::SlidingWindow => {
                // By the window alone, for the largest amount there is, so that no change of amount changes the tick.
                let largest_cell = div_ceil(i128::from(u32::MAX), CELLS);
                divides(self.window) && largest_cell * div_ceil(self.window / tick, CELLS) < PRODUCT_MAX
            }
        }
    }

    /// The last tick at or before `time`.
    pub(crate) fn floor(&self, time: i128) -> i128 {
        time.div_euclid(self.tick) * self.tick
    }
}

/// Rounds up; both are at least 0.
pub(crate) fn div_ceil(dividend: i128, divisor: i128) -> i128 {
    (dividend + divisor - 1) / divisor
}

fn window_of(spec: &Spec) -> i128 {
    match spec.algorithm {
        Algorithm::Concurrency => i128::from(spec.ttl_us),
        Algorithm::Calendar => 0,
        _ => {
            assert!(spec.window_us > 0, "the limit {spec} has no window");
            i128::from(spec.window_us)
        }
    }
}

fn sub_windows_of(spec: &Spec, window: i128) -> i128 {
    if spec.algorithm != Algorithm::SubWindow {
        return 1;
    }
    let largest =
        || (1..=SUB_WINDOWS_MAX).rev().find(|count| window % count == 0).expect("1 divides every window");
    let count = spec.sub_windows.map_or_else(largest, i128::from);
    assert!(count > 0 && window % count == 0, "the window of {spec} cannot be cut into {count}");
    count
}
