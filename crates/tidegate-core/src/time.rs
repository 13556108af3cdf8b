//! Instants, spans and ticks. Nobody here reads a clock: time is always told.

use std::fmt;

/// Microseconds: an instant since the Unix epoch, or a span.
///
/// Never above 2^53 − 1 (the year 2255), so that a script in Lua, whose numbers are doubles, counts the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(u64);

impl Micros {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The last instant that exists here: 2^53 − 1 µs.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// So many microseconds, at most [`Micros::MAX`].
    pub const fn new(us: u64) -> Self {
        if us > Self::MAX.0 { Self::MAX } else { Self(us) }
    }

    /// So many milliseconds, at most [`Micros::MAX`].
    pub const fn from_millis(ms: u64) -> Self {
        Self::new(ms.saturating_mul(1_000))
    }

    /// So many seconds, at most [`Micros::MAX`].
    pub const fn from_secs(s: u64) -> Self {
        Self::new(s.saturating_mul(1_000_000))
    }

    /// The number of microseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Later by `span`, at most [`Micros::MAX`].
    pub const fn plus(self, span: Self) -> Self {
        Self::new(self.0 + span.0)
    }

    /// Earlier by `span`, not before zero; also the span since `span`, if both are instants.
    pub const fn minus(self, span: Self) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// Whole seconds, rounded up: who retries early is refused again.
    pub const fn secs_up(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }
}

impl fmt::Display for Micros {
    /// With the largest unit that leaves no rest: `90s`, `1500ms`, `2h`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 6] = [
            (86_400_000_000, "d"),
            (3_600_000_000, "h"),
            (60_000_000, "m"),
            (1_000_000, "s"),
            (1_000, "ms"),
            (1, "us"),
        ];
        if self.0 == 0 {
            return out.write_str("0s");
        }
        let (size, unit) =
            UNITS.into_iter().find(|(size, _)| self.0.is_multiple_of(*size)).unwrap_or((1, "us"));
        write!(out, "{}{unit}", self.0 / size)
    }
}

impl fmt::Debug for Micros {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// The grain in which one limit tells time: a power of ten microseconds, from 1 µs to 1 s.
///
/// It divides the window, so a window is a whole number of ticks, and it is as fine as the limit's largest product
/// allows (they stay below 2^52). A decision is exact in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tick {
    exponent: u8,
}

/// Products stay below this, and sums of two of them below 2^53, where doubles stop being exact.
pub(crate) const PRODUCT_MAX: u64 = 1 << 52;

/// A tick is at most 10^6 µs = 1 s.
const EXPONENT_MAX: u8 = 6;

impl Tick {
    /// The finest tick that divides `span_us` and for which `fits(span in ticks)`.
    pub(crate) fn finest(span_us: u64, fits: impl Fn(u64) -> bool) -> Option<Self> {
        (0..=EXPONENT_MAX)
            .map(|exponent| Self { exponent })
            .find(|tick| span_us.is_multiple_of(tick.us()) && fits(span_us / tick.us()))
    }

    /// The tick of 10^`exponent` µs, if there is one.
    pub(crate) fn of_exponent(exponent: u8) -> Option<Self> {
        (exponent <= EXPONENT_MAX).then_some(Self { exponent })
    }

    /// The power of ten.
    pub const fn exponent(self) -> u8 {
        self.exponent
    }

    /// Microseconds in a tick.
    pub const fn us(self) -> u64 {
        // A table instead of `pow`: this is on the path of every decision.
        const US: [u64; EXPONENT_MAX as usize + 1] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000];
        US[self.exponent as usize]
    }

    /// Whole ticks in `us`, rounded down.
    pub(crate) const fn floor(self, us: u64) -> u64 {
        // Nearly every limit ticks in microseconds; a division by a number known only now costs 20 cycles and more.
        if self.exponent == 0 { us } else { us / self.us() }
    }

    /// Microseconds in so many ticks.
    pub(crate) const fn to_us(self, ticks: u64) -> u64 {
        if self.exponent == 0 { ticks } else { ticks * self.us() }
    }
}

/// How far ahead a stored time may be before it counts as written by a broken clock: one window, but no less than 5 s.
pub(crate) const fn patience(window_us: u64) -> u64 {
    if window_us > 5_000_000 { window_us } else { 5_000_000 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_print_with_the_largest_unit_that_leaves_no_rest() {
        let shown = [0, 1, 1_500_000, 90_000_000, 7_200_000_000].map(|us| Micros::new(us).to_string());
        assert_eq!(shown, ["0s", "1us", "1500ms", "90s", "2h"]);
    }

    #[test]
    fn time_ends_where_doubles_stop_being_exact() {
        assert_eq!(Micros::new(u64::MAX), Micros::MAX);
        assert_eq!(Micros::from_secs(u64::MAX), Micros::MAX);
        assert_eq!(Micros::MAX.plus(Micros::MAX), Micros::MAX);
    }

    #[test]
    fn the_finest_tick_divides_the_window() {
        assert_eq!(Tick::finest(1_000_000, |ticks| ticks <= 1_000).map(Tick::us), Some(1_000));
        assert_eq!(Tick::finest(1_000_001, |ticks| ticks <= 1_000), None);
    }
}
