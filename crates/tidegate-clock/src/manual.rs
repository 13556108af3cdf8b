//! A clock that stands still until a test moves it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A clock that anyone can set and advance. Copies share one time, so a test keeps one and gives the others away.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    now_us: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that shows this time, in microseconds since the Unix epoch.
    pub fn at(now_us: u64) -> Self {
        Self { now_us: Arc::new(AtomicU64::new(now_us)) }
    }

    /// The time it shows, in microseconds.
    #[inline]
    pub fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::SeqCst)
    }

    /// Sets the time, also back: what a broken clock does, a test must be able to do.
    pub fn set(&self, now_us: u64) {
        self.now_us.store(now_us, Ordering::SeqCst);
    }

    /// Moves the time forward and returns what it shows then. It stops at the largest time there is.
    pub fn advance(&self, by_us: u64) -> u64 {
        self.now_us.update(Ordering::SeqCst, Ordering::SeqCst, |now_us| now_us.saturating_add(by_us));
        self.now_us()
    }
}
