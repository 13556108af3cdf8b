//! What happened to the counters.

use super::sync::{AtomicU64, Ordering};

/// What happened to the counters since the start, and what there is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Keys that are stored.
    pub keys: u64,
    /// Keys that there are slots for.
    pub slots: u64,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Bytes of the arena that are in use.
    pub arena_used: u64,
    /// Keys that were forgotten to make room while they still counted.
    pub evicted_live: u64,
    /// Those among them that had been refused when they were last asked about.
    pub evicted_refused: u64,
    /// Idle keys that left by themselves or made room when they were dead.
    pub expired: u64,
    /// Places that expired because nobody gave them back, in units, as far as that was noticed.
    pub places_expired: u64,
    /// Charges that were judged but could not be remembered, since no room could be made.
    pub unremembered: u64,
}

const STRIPES: usize = 8;

/// The numbers, in cache lines of their own: threads that insert at the same time shall not wait for each other's count.
#[derive(Default)]
pub(crate) struct Counts {
    stripes: [Stripe; STRIPES],
}

#[derive(Default)]
#[repr(align(64))]
struct Stripe {
    inserted: AtomicU64,
    removed: AtomicU64,
    evicted_live: AtomicU64,
    evicted_refused: AtomicU64,
    expired: AtomicU64,
    places_expired: AtomicU64,
    unremembered: AtomicU64,
}

/// Why a key was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Removed {
    Expired,
    EvictedLive,
    EvictedRefused,
    Reset,
}

impl Counts {
    pub(crate) fn inserted(&self, set: usize) {
        add(&self.stripe(set).inserted);
    }

    pub(crate) fn removed(&self, set: usize, why: Removed) {
        let stripe = self.stripe(set);
        add(&stripe.removed);
        match why {
            Removed::Expired => add(&stripe.expired),
            Removed::EvictedLive => add(&stripe.evicted_live),
            Removed::EvictedRefused => {
                add(&stripe.evicted_live);
                add(&stripe.evicted_refused);
            }
            Removed::Reset => {}
        }
    }

    pub(crate) fn places_expired(&self, set: usize, units: u64) {
        if units > 0 {
            self.stripe(set).places_expired.fetch_add(units, Ordering::Relaxed);
        }
    }

    pub(crate) fn unremembered(&self, set: usize) {
        add(&self.stripe(set).unremembered);
    }

    pub(crate) fn read(&self) -> Stats {
        let mut stats = Stats::default();
        let (mut inserted, mut removed) = (0, 0);
        for stripe in &self.stripes {
            let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
            removed += read(&stripe.removed);
            inserted += read(&stripe.inserted);
            stats.evicted_live += read(&stripe.evicted_live);
            stats.evicted_refused += read(&stripe.evicted_refused);
            stats.expired += read(&stripe.expired);
            stats.places_expired += read(&stripe.places_expired);
            stats.unremembered += read(&stripe.unremembered);
        }
        stats.keys = inserted.saturating_sub(removed);
        stats
    }

    fn stripe(&self, set: usize) -> &Stripe {
        &self.stripes[set % STRIPES]
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}
