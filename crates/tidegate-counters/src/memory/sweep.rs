//! Idle keys leave: a hand goes round the table, a few sets with every new key, and empties slots whose state is dead.
//!
//! With every round the reference of packed times moves on to where the round began ([`tidegate_core::Era`]). A round in which a state is
//! seen that could not be read from there leaves it where it is; then new states are kept in the arena until a later round succeeds.

use tidegate_core::{Era, Micros};

use super::Memory;
use super::stats::Removed;
use super::sync::{AtomicU64, Ordering, try_lock};
use super::table::spots;

/// Sets that are swept with each new key: twice as many slots as keys come in.
pub(crate) const SETS_PER_INSERT: usize = 2;

/// Once in so many rounds it is forgotten which keys were touched: about as often as a flood could fill the table.
const ROUNDS_TOUCHED: u64 = 8;

/// Sets that are swept with each batch while a round is late.
const SETS_WHEN_LATE: usize = 16;

/// Where the hand is. One thread sweeps at a time; others go on with their work.
#[derive(Default)]
pub(crate) struct Sweeper {
    lock: AtomicU64,
    /// The next set.
    hand: AtomicU64,
    /// How many rounds it has made.
    rounds: AtomicU64,
    /// Was a state seen in this round that cannot be read from the next reference?
    unreadable: AtomicU64,
}

impl Memory {
    /// Sweeps a part of the table, a few milliseconds of work at most. Whoever calls it every second or so sees to it that idle keys
    /// leave also while no new ones come.
    pub fn sweep(&self, now: Micros) {
        self.sweep_sets((self.table.sets() / 64).clamp(1, 1 << 14), now);
    }

    /// Sweeps a few sets if the last round began long ago: so packed times stay within reach also if nobody calls [`Memory::sweep`].
    #[inline]
    pub(crate) fn keep_up(&self, now: Micros) {
        let began = self.next_reference.load(Ordering::Relaxed);
        if now.get().abs_diff(began) > Era::REACH.get() / 4 {
            self.sweep_sets(SETS_WHEN_LATE, now);
        }
    }

    pub(crate) fn sweep_sets(&self, sets: usize, now: Micros) {
        let sweeper = &self.sweeper;
        let Some(_locked) = try_lock(&sweeper.lock) else { return };
        for _ in 0..sets {
            let hand = sweeper.hand.load(Ordering::Relaxed) as usize;
            if hand == 0 {
                self.next_reference.store(now.get(), Ordering::Release);
                sweeper.unreadable.store(0, Ordering::Relaxed);
            }
            self.sweep_set(hand, now);
            let next = (hand + 1) % self.table.sets();
            sweeper.hand.store(next as u64, Ordering::Relaxed);
            if next == 0 {
                sweeper.rounds.fetch_add(1, Ordering::Relaxed);
            }
            if next == 0 && sweeper.unreadable.load(Ordering::Relaxed) == 0 {
                self.reference.store(self.next_reference.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    fn sweep_set(&self, set: usize, now: Micros) {
        let forgets_touch = self.sweeper.rounds.load(Ordering::Relaxed).is_multiple_of(ROUNDS_TOUCHED);
        let _locked = self.table.set(set).lock();
        for found in spots(set).map(|spot| self.read(spot)).filter(|found| !found.tag.is_empty()) {
            if self.is_dead(&found, now) {
                self.remove(&found, Removed::Expired);
                continue;
            }
            if !self.settle(&found, now) {
                self.sweeper.unreadable.store(1, Ordering::Relaxed);
            }
            if forgets_touch {
                self.untouch(found.spot);
            }
        }
    }
}
