//! A number that one thread writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How far apart what two cores write has to be: processors fetch lines of 64 bytes in pairs.
pub(crate) const APART_BYTES: usize = 128;

/// A count. Only one thread may add to it, so a plain load and store do, which no other core has to wait for. Were there two, counts
/// would be lost, no more.
#[derive(Default, Debug)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline(always)]
    pub(crate) fn add(&self, by: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(by), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
