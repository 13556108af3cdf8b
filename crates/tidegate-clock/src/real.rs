//! The machine's clocks. No other module of the workspace may read them (clippy.toml).
#![expect(clippy::disallowed_methods, reason = "this is where everybody else is sent to ask for the time")]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The machine's time: the wall time at the start plus what a monotonic clock has counted since, so that it never
/// goes back. Cheap to copy; copies agree.
#[derive(Clone, Copy, Debug)]
pub struct RealClock {
    started: Instant,
    started_wall_us: u64,
}

impl RealClock {
    /// Reads the wall time once; from then on only the monotonic clock counts.
    pub fn start() -> Self {
        Self { started: Instant::now(), started_wall_us: wall_us() }
    }

    /// Microseconds since the Unix epoch; never goes back.
    #[inline]
    pub fn now_us(&self) -> u64 {
        self.started_wall_us.saturating_add(whole_us(self.started.elapsed()))
    }

    /// The wall time in microseconds since the Unix epoch, as the machine has it now; may jump either way.
    pub fn wall_now_us(&self) -> u64 {
        wall_us()
    }
}

/// Measures how long something takes. For tools and reports; a decision never needs one.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    started: Instant,
}

impl Stopwatch {
    /// Starts counting.
    pub fn start() -> Self {
        Self { started: Instant::now() }
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A wall clock set before 1970 reads as 0: it is broken, and nothing here can mend it.
fn wall_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, whole_us)
}

/// A u64 holds 584 000 years of microseconds, so the other branch is never taken.
fn whole_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
