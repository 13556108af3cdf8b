//! So many names and no more. A name that is known is found without an allocation; a new one is taken in while there is room.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use hashbrown::{DefaultHashBuilder, HashMap};

use super::table::COUNTS;

/// Parts of a registry, each with a lock of its own, so that threads which meet new names seldom wait for each other.
const PARTS: usize = 16;
/// Cores that have counts of their own; more of them share.
const SHARDS_MAX: usize = 16;

/// Names and what is counted of each.
#[derive(Debug)]
pub(super) struct Registry<T> {
    parts: [RwLock<HashMap<Arc<str>, Arc<T>>>; PARTS],
    hasher: DefaultHashBuilder,
    known: AtomicUsize,
    names_max: usize,
}

impl<T> Registry<T> {
    /// Room for so many names.
    pub(super) fn new(names_max: usize) -> Self {
        let (hasher, known) = (DefaultHashBuilder::default(), AtomicUsize::new(0));
        Self { parts: std::array::from_fn(|_| RwLock::default()), hasher, known, names_max }
    }

    /// What is counted of a name, shown to `read`; none if the name is not known.
    pub(super) fn known<R>(&self, name: &str, read: impl FnOnce(&Arc<T>) -> R) -> Option<R> {
        let part = self.part(name).read().unwrap_or_else(PoisonError::into_inner);
        part.get(name).map(read)
    }

    /// The same; a name that is not known is taken in, if there is room.
    pub(super) fn known_or_new<R>(
        &self,
        name: &str,
        fresh: impl FnOnce() -> T,
        mut read: impl FnMut(&Arc<T>) -> R,
    ) -> Option<R> {
        if let Some(found) = self.known(name, &mut read) {
            return Some(found);
        }
        if self.is_full() {
            return None; // Without the lock: whoever floods the node with names holds nobody up.
        }
        let mut part = self.part(name).write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = part.get(name) {
            return Some(read(found)); // Somebody else was first.
        }
        let room = |known: usize| (known < self.names_max).then_some(known + 1);
        self.known.fetch_update(Relaxed, Relaxed, room).ok()?;
        let fresh = Arc::new(fresh());
        let shown = read(&fresh);
        part.insert(name.into(), fresh);
        Some(shown)
    }

    pub(super) fn is_full(&self) -> bool {
        self.known.load(Relaxed) >= self.names_max
    }

    /// Forgets the names that nobody but the registry holds.
    pub(super) fn forget_unused(&self) {
        for part in &self.parts {
            let mut part = part.write().unwrap_or_else(PoisonError::into_inner);
            let before = part.len();
            part.retain(|_, counted| Arc::strong_count(counted) > 1);
            self.known.fetch_sub(before - part.len(), Relaxed);
        }
    }

    /// All names. No lock is held while they are looked at.
    pub(super) fn all(&self) -> Vec<(Arc<str>, Arc<T>)> {
        let mut all = Vec::with_capacity(self.known.load(Relaxed));
        for part in &self.parts {
            let part = part.read().unwrap_or_else(PoisonError::into_inner);
            all.extend(part.iter().map(|(name, counted)| (name.clone(), counted.clone())));
        }
        all
    }

    fn part(&self, name: &str) -> &RwLock<HashMap<Arc<str>, Arc<T>>> {
        // The upper bits: the map inside uses the others.
        let hash = self.hasher.hash_one(name);
        &self.parts[(hash >> (u64::BITS - PARTS.ilog2())) as usize % PARTS]
    }
}

/// What is counted of one name, in a shard for each core or in one for all.
#[derive(Debug)]
pub(super) struct Series {
    shards: Box<[Shard]>,
}

/// In a line of its own, so that no core waits for another.
#[derive(Default, Debug)]
#[repr(align(64))]
struct Shard([AtomicU64; COUNTS]);

const _: () = assert!(size_of::<Shard>() == 64);

impl Series {
    /// For names that all cores use all the time.
    pub(super) fn of_cores(cores: usize) -> Self {
        Self { shards: (0..cores.clamp(1, SHARDS_MAX)).map(|_| Shard::default()).collect() }
    }

    /// For names of which there are many, each used now and then.
    pub(super) fn single() -> Self {
        Self::of_cores(1)
    }

    #[inline]
    pub(super) fn add(&self, core: usize, adds: &[u64; COUNTS]) {
        let Shard(counts) = &self.shards[core % self.shards.len()];
        for (count, by) in counts.iter().zip(adds).filter(|(_, by)| **by > 0) {
            count.fetch_add(*by, Relaxed);
        }
    }

    pub(super) fn sums(&self) -> [u64; COUNTS] {
        std::array::from_fn(|at| {
            self.shards.iter().fold(0, |sum: u64, Shard(counts)| sum.wrapping_add(counts[at].load(Relaxed)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_race_for_room_take_in_no_name_too_many_and_lose_no_count() {
        const NAMES_MAX: usize = 100;
        let registry = Registry::new(NAMES_MAX);
        let counted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for core in 0..4 {
                let (registry, counted) = (&registry, &counted);
                scope.spawn(move || {
                    for at in 0..1_000 {
                        let one = [1; COUNTS];
                        let add = |series: &Arc<Series>| series.add(core, &one);
                        if registry.known_or_new(&format!("name-{at}"), Series::single, add).is_some() {
                            counted.fetch_add(1, Relaxed);
                        }
                    }
                });
            }
        });
        let all = registry.all();
        assert_eq!((all.len(), registry.is_full()), (NAMES_MAX, true));
        let sum: u64 = all.iter().map(|(_, series)| series.sums()[0]).sum();
        assert_eq!(sum, counted.load(Relaxed));
    }

    #[test]
    fn names_that_nobody_holds_make_room() {
        let registry = Registry::new(2);
        let held = registry.known_or_new("held", Series::single, Arc::clone);
        assert!(registry.known_or_new("gone", Series::single, |_| ()).is_some());
        assert!(registry.known_or_new("new", Series::single, |_| ()).is_none());
        registry.forget_unused();
        assert!(registry.known_or_new("new", Series::single, |_| ()).is_some());
        assert!(registry.known("gone", |_| ()).is_none());
        assert!(held.is_some() && registry.known("held", |_| ()).is_some());
    }
}
