//! Ghosts: of each set, a trace of the key that was last evicted from it alive.
//!
//! A key that comes back to where its ghost is was asked about twice, as the keys of a flood are not: it is stored as touched, and stays.
//! Without that, two busy keys that are new where all others are live push each other out for as long as they take turns.
//!
//! The trace is 8 bits of the key's tag, so a new key is taken for the one that left about once in 128 times; it is then as hard to push
//! out as one that was asked about twice. A set's cache line has three bits to spare, with which that would be once in 4 times, and a flood
//! would gain by it. So traces lie beside the table, a byte for each set, and are only looked at when a key is new or leaves.

use super::sync::{AtomicU8, Ordering, zeroed};
use super::table::Home;

pub(crate) struct Ghosts {
    /// Guarded by the lock of the set; 0 where nobody was evicted yet.
    traces: Box<[AtomicU8]>,
}

impl Ghosts {
    pub(crate) fn new(sets: usize) -> Option<Self> {
        Some(Self { traces: zeroed(sets)? })
    }

    /// Remembers who was evicted from a set whose lock is held.
    pub(crate) fn leave(&self, set: usize, tag: u64) {
        self.traces[set].store(trace(tag), Ordering::Relaxed);
    }

    /// Was a key that is new now evicted from one of its sets, the last one to be? The locks of both are held. Its ghost is gone then.
    pub(crate) fn comes_back(&self, home: Home) -> bool {
        let is_its = |set: &usize| self.traces[*set].load(Ordering::Relaxed) == trace(home.tag);
        let left = [home.first, home.second].into_iter().find(is_its);
        if let Some(set) = left {
            self.traces[set].store(0, Ordering::Relaxed);
        }
        left.is_some()
    }
}

fn trace(tag: u64) -> u8 {
    (tag as u8).max(1)
}
