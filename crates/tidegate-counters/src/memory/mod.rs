//! Counters in this process's memory: bounded, exact under any number of threads, and as fast as the machine's memory.
//!
//! A state that fits 73 bits lives in a slot of 16 bytes; a larger one in the arena, and its slot says where. The memory is fixed at the
//! start. When a key finds both of its sets full, what matters least is forgotten: first what is dead; then what was not touched
//! again, what has used least, what is dead soonest; last what is being refused. What was forgotten alive is counted.
//!
//! Reading order: `slot` (the bits), `table` (sets and their locks), `arena`, then `request`, `few` and `desk` (one decision from lock to
//! lock), `keep` (how a state is stored and who makes room for it), `sweep` (how idle keys leave), `snapshot`.

mod arena; // room for states that do not fit a slot
mod classes; // what has to be known to read a state
mod desk; // a request laid out: its sets locked, all takes judged, what changed written
mod few; // a request of a few takes, without a desk
mod ghosts; // who was evicted last, and comes back
mod keep; // storing a state, and making room for it
mod pages; // large pages for large tables
mod request; // one request, from takes to answers
mod slot; // the bits of a slot
mod snapshot; // all counters as a file
mod stats; // what happened to the counters
mod sweep; // idle keys leave
mod sync; // atomics and locks, or loom's
mod table; // sets of slots
mod words; // memory that begins at a cache line

#[cfg(all(test, loom))]
mod models; // what the model checker tries in every order

use std::future::{Future, ready};

use tidegate_core::{Era, Key, Limit, Micros, Tag};

use crate::{Batch, Counters, Inspection, Rehearsed, Unavailable};

use arena::Arena;
use classes::Classes;
use ghosts::Ghosts;
pub use pages::ask_for_large_pages;
use request::NEAR;
pub use snapshot::{Loaded, SnapshotError};
use stats::Counts;
pub use stats::Stats;
use sweep::Sweeper;
use sync::{AtomicU64, Ordering};
use table::{SET_BITS_MAX, SET_SLOTS, Table};
use words::LINE_WORDS;

/// A set is a cache line.
const SET_BYTES: usize = LINE_WORDS * size_of::<u64>();

/// How much memory the counters may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemorySize {
    /// Bytes for slots: 16 for each key. Rounded down to a power of two. A 64th comes on top, for what is remembered of the evicted.
    pub slots: usize,
    /// Bytes for the states that do not fit a slot: `sliding_window`, `sub_window`, `sliding_log`, `concurrency`, and unusual numbers.
    /// Simple keys need some too: after a limit was changed, or after a day on which nobody called [`Memory::sweep`].
    pub arena: usize,
}

impl MemorySize {
    const SLOTS_MIN: usize = 2 * SET_BYTES;

    /// At most so many bytes in all: a quarter for slots or less, the rest for the arena.
    pub fn of_bytes(bytes: usize) -> Self {
        let slots = floor_power_of_two(bytes / 4).max(Self::SLOTS_MIN);
        Self { slots, arena: bytes.saturating_sub(Self { slots, arena: 0 }.bytes()) }
    }

    /// All of it.
    pub fn bytes(self) -> usize {
        self.slots.saturating_add(self.slots / SET_BYTES).saturating_add(self.arena)
    }

    fn set_bits(self) -> u32 {
        let sets = floor_power_of_two(self.slots.max(Self::SLOTS_MIN)) / SET_BYTES;
        sets.ilog2().min(SET_BITS_MAX)
    }
}

/// 256 MiB: 4 million slots, and an arena of 191 MiB.
impl Default for MemorySize {
    fn default() -> Self {
        Self::of_bytes(256 << 20)
    }
}

fn floor_power_of_two(n: usize) -> usize {
    n.checked_ilog2().map_or(0, |bits| 1 << bits)
}

/// Why there are no counters in memory.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// The machine does not have it.
    #[error("{bytes} bytes for counters could not be had: use a smaller memory size")]
    OutOfMemory {
        /// How much was asked for.
        bytes: usize,
    },
}

/// Counters in memory.
pub struct Memory {
    table: Table,
    ghosts: Ghosts,
    arena: Arena,
    classes: Classes,
    counts: Counts,
    sweeper: Sweeper,
    /// From where packed times are read, and from where next; written by the sweeper alone.
    reference: AtomicU64,
    next_reference: AtomicU64,
    /// How many snapshots are being written.
    snapshots: AtomicU64,
}

impl Memory {
    /// Counters without any count, around the time `now`.
    pub fn new(size: MemorySize, now: Micros) -> Result<Self, MemoryError> {
        let parts = || {
            let table = Table::new(size.set_bits())?;
            let ghosts = Ghosts::new(table.sets())?;
            Some((table, ghosts, Arena::new(size.arena)?, Classes::new()?))
        };
        let out_of_memory = MemoryError::OutOfMemory { bytes: size.bytes() };
        let (table, ghosts, arena, classes) = parts().ok_or(out_of_memory)?;
        Ok(Self {
            table,
            ghosts,
            arena,
            classes,
            counts: Counts::default(),
            sweeper: Sweeper::default(),
            reference: AtomicU64::new(now.get()),
            next_reference: AtomicU64::new(now.get()),
            snapshots: AtomicU64::new(0),
        })
    }

    /// Has the system hand out all of its memory now. It would do so when a page is first written to, and clear it before: a large page
    /// takes as long as many decisions, and somebody would wait for it. Any thread may do this at any time.
    pub fn touch_pages(&self) {
        self.table.touch_pages();
        self.arena.touch_pages();
    }

    /// The same as [`Counters::take`], without a future around it.
    pub fn take_now(&self, batch: &mut Batch<'_>, now: Micros) {
        self.keep_up(now);
        let mut near = 0; // How many takes were brought near and not judged yet.
        batch.judge(|takes, ahead, answers| {
            if near < takes.len() && ahead.len() > 1 {
                near = ahead.len().min(NEAR.max(takes.len()));
                self.bring_near(&ahead[..near]);
            }
            near = near.saturating_sub(takes.len());
            self.request(takes, now, answers)
        });
    }

    /// The same as [`Counters::rehearse`], without a future around it. Tells besides what each take found and would leave, in the order of
    /// requests and takes: seen under the same locks, so that the numbers agree with the answers.
    pub fn rehearse_now(&self, batch: &mut Batch<'_>, now: Micros) -> Vec<Rehearsed> {
        let mut seen = Vec::new();
        batch.judge(|takes, _, answers| self.rehearse_on_desk(takes, now, answers, &mut seen));
        seen
    }

    /// What happened so far, and what there is now.
    pub fn stats(&self) -> Stats {
        let arena_used = self.arena.used_units() * arena::UNIT_WORDS * size_of::<u64>();
        let slots = self.table.sets() * SET_SLOTS;
        Stats {
            slots: slots as u64,
            arena_bytes: self.arena.bytes() as u64,
            arena_used: arena_used as u64,
            ..self.counts.read()
        }
    }

    /// The years that packed times speak of. Read under the lock of a set, so it is at least as new as what was written there; and the
    /// next reference first: where that is new, the reference is the one before it.
    #[inline]
    fn era(&self) -> Era {
        let next = Micros::new(self.next_reference.load(Ordering::Acquire));
        Era { reference: Micros::new(self.reference.load(Ordering::Relaxed)), next }
    }
}

impl Counters for Memory {
    fn take(&self, batch: &mut Batch<'_>, now: Micros) -> impl Future<Output = ()> {
        self.take_now(batch, now);
        ready(())
    }

    fn rehearse(&self, batch: &mut Batch<'_>, now: Micros) -> impl Future<Output = ()> {
        self.rehearse_now(batch, now);
        ready(())
    }

    fn inspect(
        &self,
        key: Key,
        _: Tag,
        limit: &Limit,
        now: Micros,
    ) -> impl Future<Output = Result<Inspection, Unavailable>> {
        ready(Ok(self.inspect_now(key, limit, now)))
    }

    fn reset(&self, key: Key, _: Tag) -> impl Future<Output = Result<bool, Unavailable>> {
        ready(Ok(self.reset_now(key)))
    }
}
