//! The arena: room for states that do not fit a slot, in blocks that are as long as the state.
//!
//! It is cut into regions of 4 KiB, each with a lock and a map of its units of 32 bytes. A block lies in one region, so what is freed is
//! free for blocks of any length, and nobody waits for anybody but in one region. A state longer than a region is a chain of blocks.
//!
//! ```text
//! region   unit 0: lock, map of used units (128 bits) · units 1..127: blocks
//! block    39..32 units · 31..0 owner (the slot that names it); its class, if that has no number; the words of the state; in a block
//!          of 127 units, at its end, the next
//! ```
//!
//! A block belongs to whoever holds the lock of its owner's set; the lock of a region is for its map alone.

use tidegate_core::{Class, State, bring_near};

use super::sync::{AtomicU64, Ordering, lock};
use super::words::{LINE_WORDS, Words};

pub(crate) const UNIT_WORDS: usize = 4;
/// Fewer for the model checker, which looks at every word.
pub(crate) const REGION_UNITS: usize = if cfg!(loom) { 4 } else { 128 };
pub(crate) const REGION_WORDS: usize = REGION_UNITS * UNIT_WORDS;
/// The longest block; one of this length is part of a chain.
const CHAINED_UNITS: usize = REGION_UNITS - 1;
/// Words of a state in a chained block: all but its head and the number of the next.
const CHAINED_WORDS: usize = CHAINED_UNITS * UNIT_WORDS - 2;
/// The most words of a state in a block that is alone.
const ALONE_WORDS: usize = (CHAINED_UNITS - 1) * UNIT_WORDS - 1;
/// How many regions are looked at for room before somebody has to make some.
const PROBES: usize = 32;
/// In how many of them blocks are moved together, and in how many somebody is forgotten.
const COMPACTIONS: usize = 2;
const EVICTION_PROBES: usize = 4;

/// The number of a block: its first unit, counted from the start of the arena. 0 is no block: it is the head of a region.
pub(crate) type BlockId = u32;

/// A block as its region sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    pub(crate) block: BlockId,
    pub(crate) units: usize,
    /// The slot that names it.
    pub(crate) owner: u32,
}

/// Who knows the owners of blocks, and so can make room.
pub(crate) trait MakeRoom {
    /// Tries to free so many units in a row; says whether anything was freed.
    fn make_room(&mut self, arena: &Arena, region: usize, units: usize) -> bool;

    /// Moves a block to `to`, which is free but for the block itself, and tells its owner; says whether it did. The caller holds the lock
    /// of the region.
    fn relocate(&mut self, arena: &Arena, resident: &Resident, to: BlockId) -> bool;
}

/// What is kept in a block: a state and, in front of it, its class if that has no number.
pub(crate) struct Kept<'a> {
    pub(crate) state: &'a State,
    pub(crate) unnumbered: Option<Class>,
}

impl Kept<'_> {
    fn words(&self) -> usize {
        lead(self.unnumbered.is_none()) + self.state.words()
    }

    fn write(&self, mut put: impl FnMut(usize, u64)) {
        if let Some(class) = self.unnumbered {
            put(0, class.bits());
        }
        let lead = lead(self.unnumbered.is_none());
        self.state.write_words(|at, word| put(lead + at, word));
    }
}

/// Words in front of a state.
fn lead(numbered: bool) -> usize {
    usize::from(!numbered)
}

pub(crate) struct Arena {
    words: Words,
    regions: usize,
}

impl Arena {
    pub(crate) fn new(bytes: usize) -> Option<Self> {
        // A block's number has 32 bits.
        let most = u32::MAX as usize / REGION_UNITS;
        let regions = (bytes / (REGION_WORDS * size_of::<u64>())).min(most);
        Some(Self { words: Words::new(regions * REGION_WORDS)?, regions })
    }

    pub(crate) fn touch_pages(&self) {
        self.words.touch_pages();
    }

    /// Reads the state in a block, by its class or, if that has no number, by the one that is written there.
    pub(crate) fn load(&self, block: BlockId, class: Option<Class>, state: &mut State) -> Class {
        let lead = lead(class.is_some());
        let class = class.unwrap_or_else(|| Class::trusted(self.first_word(block, true)));
        if self.units(block) < CHAINED_UNITS {
            let words = &self.block_words(block)[1 + lead..];
            class.read_words(state, |at| words[at].load(Ordering::Relaxed));
        } else {
            let chain = self.chain(block);
            let word = |at: usize| &self.block_words(chain[at / CHAINED_WORDS])[1 + at % CHAINED_WORDS];
            class.read_words(state, |at| word(lead + at).load(Ordering::Relaxed));
        }
        class
    }

    /// Brings the first words of a block near, in as many cache lines as most blocks have. What is told to be one may be none: it was seen
    /// without a lock.
    #[inline]
    pub(crate) fn bring_near(&self, block: BlockId) {
        if block as usize / REGION_UNITS < self.regions {
            let start = block as usize * UNIT_WORDS;
            let left = REGION_WORDS - start % REGION_WORDS;
            let words = self.words.get(start, left.min(LINE_WORDS + 1));
            words.first().into_iter().chain(words.last()).for_each(bring_near);
        }
    }

    /// The first word of the state in a block; `numbered` says that no class is written in front of it.
    pub(crate) fn first_word(&self, block: BlockId, numbered: bool) -> u64 {
        self.block_words(block)[1 + lead(numbered)].load(Ordering::Relaxed)
    }

    /// Writes a state where `old` is (0: nowhere yet) or, if it does not fit there, elsewhere, starting to look for room at the region
    /// `home`. Says where it is now, or nothing if there is no room: then `old` is as it was.
    pub(crate) fn store(
        &self,
        kept: &Kept<'_>,
        old: BlockId,
        owner: u32,
        home: u64,
        room: &mut impl MakeRoom,
    ) -> Option<BlockId> {
        let words = kept.words();
        if words > ALONE_WORDS {
            return self.store_chained(kept, words.div_ceil(CHAINED_WORDS), old, owner, home, room);
        }
        let needed = (1 + words).div_ceil(UNIT_WORDS);
        let held = if old == 0 { 0 } else { self.units(old) };
        let alone = held > 0 && held < CHAINED_UNITS;
        let block = if alone && needed <= held {
            // Not for the odd unit: it will be wanted again.
            if held > 2 * needed + 1 {
                self.shrink(old, needed);
            }
            old
        } else if alone && self.extend(old, needed) {
            old
        } else if let Some(block) = self.allocate(needed, owner, home, room) {
            block
        } else if held == CHAINED_UNITS {
            return self.store_chained(kept, 1, old, owner, home, room); // There is room enough in its own first block.
        } else {
            return None;
        };
        let into = &self.block_words(block)[1..];
        kept.write(|at, word| into[at].store(word, Ordering::Relaxed));
        if old != 0 && block != old {
            self.free(old);
        }
        Some(block)
    }

    fn store_chained(
        &self,
        kept: &Kept<'_>,
        blocks: usize,
        old: BlockId,
        owner: u32,
        home: u64,
        room: &mut impl MakeRoom,
    ) -> Option<BlockId> {
        let is_chain = old != 0 && self.units(old) == CHAINED_UNITS;
        let mut chain = if is_chain { self.chain(old) } else { Vec::new() };
        let before = chain.len();
        while chain.len() < blocks {
            let Some(block) =
                self.allocate(CHAINED_UNITS, owner, home.wrapping_add(chain.len() as u64), room)
            else {
                chain[before..].iter().for_each(|block| self.release(*block));
                return None;
            };
            chain.push(block);
        }
        for block in chain.drain(blocks..) {
            self.release(block);
        }
        for (at, block) in chain.iter().enumerate() {
            let next = chain.get(at + 1).copied().unwrap_or(0);
            self.block_words(*block)[CHAINED_WORDS + 1].store(next.into(), Ordering::Relaxed);
        }
        let word = |at: usize| &self.block_words(chain[at / CHAINED_WORDS])[1 + at % CHAINED_WORDS];
        kept.write(|at, value| word(at).store(value, Ordering::Relaxed));
        if old != 0 && !is_chain {
            self.release(old);
        }
        chain.first().copied()
    }

    /// Gives a state's block or blocks back.
    pub(crate) fn free(&self, block: BlockId) {
        if self.units(block) < CHAINED_UNITS {
            self.release(block);
        } else {
            self.chain(block).into_iter().for_each(|block| self.release(block));
        }
    }

    /// Says that another slot names a state from now on.
    pub(crate) fn give_to(&self, block: BlockId, owner: u32) {
        let blocks = if self.units(block) < CHAINED_UNITS { vec![block] } else { self.chain(block) };
        for block in blocks {
            self.set_head(block, self.units(block), owner);
        }
    }

    /// Is `block` the one, or one of those, that a state is in?
    pub(crate) fn holds(&self, state: BlockId, block: BlockId) -> bool {
        state == block || (self.units(state) == CHAINED_UNITS && self.chain(state).contains(&block))
    }

    /// The blocks of a region.
    pub(crate) fn residents(&self, region: usize) -> Vec<Resident> {
        let mut residents = Vec::new();
        self.with_map(region, |map| {
            residents = self.residents_of(region, map);
            map
        });
        residents
    }

    fn residents_of(&self, region: usize, map: u128) -> Vec<Resident> {
        let mut residents = Vec::with_capacity(REGION_UNITS);
        let mut unit = 1;
        while unit < REGION_UNITS {
            if map >> unit & 1 == 0 {
                unit += 1;
                continue;
            }
            let block = (region * REGION_UNITS + unit) as BlockId;
            let head = self.head(block);
            let units = (head >> 32) as usize;
            residents.push(Resident { block, units, owner: head as u32 });
            unit += units.max(1);
        }
        residents
    }

    /// How many units are taken.
    pub(crate) fn used_units(&self) -> usize {
        (0..self.regions).map(|region| REGION_UNITS - 1 - self.free_units(region)).sum()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.regions * REGION_WORDS * size_of::<u64>()
    }

    fn allocate(&self, units: usize, owner: u32, home: u64, room: &mut impl MakeRoom) -> Option<BlockId> {
        if self.regions == 0 {
            return None;
        }
        let region = |probe: usize| (home as usize).wrapping_add(probe) % self.regions;
        let probes = || 0..PROBES.min(self.regions);
        let found = probes().find_map(|probe| self.take(region(probe), units, owner));
        let found = found.or_else(|| {
            let enough = probes().filter(|probe| self.free_units(region(*probe)) >= units);
            enough.take(COMPACTIONS).find_map(|probe| {
                self.compact(region(probe), room);
                self.take(region(probe), units, owner)
            })
        });
        found.or_else(|| {
            (0..EVICTION_PROBES.min(self.regions)).find_map(|probe| {
                let freed = room.make_room(self, region(probe), units);
                if freed { self.take(region(probe), units, owner) } else { None }
            })
        })
    }

    fn free_units(&self, region: usize) -> usize {
        let words = self.words.get(region * REGION_WORDS, UNIT_WORDS);
        let used = |at: usize| words[at].load(Ordering::Relaxed).count_ones() as usize;
        REGION_UNITS.saturating_sub(1 + used(1) + used(2))
    }

    /// Moves the blocks of a region together, as far as their owners let themselves be told.
    fn compact(&self, region: usize, room: &mut impl MakeRoom) {
        self.with_map(region, |map| {
            let (mut next, mut compacted) = (1, 0);
            for resident in self.residents_of(region, map) {
                let mut at = resident.block as usize % REGION_UNITS;
                let to = (region * REGION_UNITS + next) as BlockId;
                if next < at && room.relocate(self, &resident, to) {
                    at = next;
                }
                compacted |= ones(resident.units) << at;
                next = at + resident.units;
            }
            compacted
        });
    }

    /// Copies a block, head and all, to where it may overlap itself from below.
    pub(crate) fn copy_down(&self, resident: &Resident, to: BlockId) {
        let words = resident.units * UNIT_WORDS;
        let from = self.words.get(resident.block as usize * UNIT_WORDS, words);
        let into = self.words.get(to as usize * UNIT_WORDS, words);
        for (into, from) in into.iter().zip(from) {
            into.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Takes so many units in a row.
    fn take(&self, region: usize, units: usize, owner: u32) -> Option<BlockId> {
        let mut taken = None;
        self.with_map(region, |map| {
            // Unit 0 is the region's own.
            let Some(first) = first_run(!(map | 1), units) else { return map };
            let block = (region * REGION_UNITS + first) as BlockId;
            self.set_head(block, units, owner);
            taken = Some(block);
            map | ones(units) << first
        });
        taken
    }

    /// Gives the end of a block back.
    fn shrink(&self, block: BlockId, units: usize) {
        let (region, first) = (block as usize / REGION_UNITS, block as usize % REGION_UNITS);
        let rest = ones(self.units(block) - units) << (first + units);
        self.with_map(region, |map| {
            self.set_head(block, units, self.head(block) as u32);
            map & !rest
        });
    }

    fn set_head(&self, block: BlockId, units: usize, owner: u32) {
        let head = &self.words.get(block as usize * UNIT_WORDS, 1)[0];
        head.store((units as u64) << 32 | u64::from(owner), Ordering::Relaxed);
    }

    /// Makes a block longer where it is, if what comes after it is free.
    fn extend(&self, block: BlockId, units: usize) -> bool {
        let (region, first) = (block as usize / REGION_UNITS, block as usize % REGION_UNITS);
        let held = self.units(block);
        if first + units > REGION_UNITS || held >= CHAINED_UNITS {
            return false;
        }
        let more = ones(units - held) << (first + held);
        let mut extended = false;
        self.with_map(region, |map| {
            extended = map & more == 0;
            if !extended {
                return map;
            }
            self.set_head(block, units, self.head(block) as u32);
            map | more
        });
        extended
    }

    fn release(&self, block: BlockId) {
        let (region, first) = (block as usize / REGION_UNITS, block as usize % REGION_UNITS);
        let units = self.units(block);
        self.with_map(region, |map| map & !(ones(units) << first));
    }

    /// Shows the map of a region's used units, under its lock, and keeps what is returned.
    fn with_map(&self, region: usize, change: impl FnOnce(u128) -> u128) {
        let words = self.words.get(region * REGION_WORDS, UNIT_WORDS);
        let _locked = lock(&words[0]);
        let map =
            u128::from(words[2].load(Ordering::Relaxed)) << 64 | u128::from(words[1].load(Ordering::Relaxed));
        let changed = change(map);
        if changed != map {
            words[1].store(changed as u64, Ordering::Relaxed);
            words[2].store((changed >> 64) as u64, Ordering::Relaxed);
        }
    }

    fn head(&self, block: BlockId) -> u64 {
        self.words.get(block as usize * UNIT_WORDS, 1)[0].load(Ordering::Relaxed)
    }

    fn units(&self, block: BlockId) -> usize {
        (self.head(block) >> 32) as usize
    }

    fn block_words(&self, block: BlockId) -> &[AtomicU64] {
        self.words.get(block as usize * UNIT_WORDS, self.units(block) * UNIT_WORDS)
    }

    fn chain(&self, first: BlockId) -> Vec<BlockId> {
        let next = |block: &BlockId| {
            let next = self.block_words(*block)[CHAINED_WORDS + 1].load(Ordering::Relaxed);
            (next != 0).then_some(next as BlockId)
        };
        std::iter::successors(Some(first), next).collect()
    }
}

/// Where the first run of so many ones begins, among the units of a region.
fn first_run(free: u128, units: usize) -> Option<usize> {
    let mut starts = free & ones(REGION_UNITS); // Where a run of `len` begins.
    let mut len = 1;
    while len < units {
        let step = len.min(units - len);
        starts &= starts >> step;
        len += step;
    }
    (starts != 0).then(|| starts.trailing_zeros() as usize)
}

fn ones(units: usize) -> u128 {
    u128::MAX >> (128 - units)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use tidegate_core::{Ask, Limit, Micros};

    use super::*;

    /// Nobody makes room.
    struct NoRoom;

    impl MakeRoom for NoRoom {
        fn make_room(&mut self, _arena: &Arena, _region: usize, _units: usize) -> bool {
            false
        }

        fn relocate(&mut self, _arena: &Arena, _resident: &Resident, _to: BlockId) -> bool {
            false
        }
    }

    /// A log of so many entries.
    fn log(entries: u64) -> (Limit, State) {
        let limit = Limit::sliding_log(10_000, Micros::from_secs(60)).expect("a limit");
        let mut state = limit.state();
        for at in 0..entries {
            limit.step(&mut state, Ask::Charge { cost: 1 }, Micros::new(at));
        }
        (limit, state)
    }

    #[test]
    fn runs_are_found_where_they_are() {
        assert_eq!(first_run(0, 1), None);
        assert_eq!(first_run(0b1011_1000, 3), Some(3));
        assert_eq!(first_run(0b1011_1000, 4), None);
        assert_eq!(first_run(u128::MAX - 1, 127), Some(1));
        assert_eq!(first_run(u128::MAX - 1, 128), None);
    }

    #[test]
    fn states_of_every_length_come_back_and_leave_nothing_behind() {
        let arena = Arena::new(64 * 4_096).expect("memory");
        let mut block = 0;
        // Up and down again, across the length at which a state becomes a chain.
        for entries in [1, 2, 3, 10, 100, 333, 334, 335, 336, 400, 5_000, 10_000, 700, 336, 335, 30, 1] {
            let (limit, state) = log(entries);
            let unnumbered = (entries % 2 == 0).then_some(limit.class());
            block = arena.store(&Kept { state: &state, unnumbered }, block, 7, 3, &mut NoRoom).expect("room");
            let mut back = limit.state();
            let numbered = if unnumbered.is_some() { None } else { Some(limit.class()) };
            assert_eq!(arena.load(block, numbered, &mut back), limit.class());
            assert_eq!(back, state, "{entries}");
        }
        arena.free(block);
        assert_eq!(arena.used_units(), 0);
    }

    #[test]
    fn without_room_the_state_stays_as_it_was() {
        let arena = Arena::new(2 * 4_096).expect("memory");
        let (limit, small) = log(100);
        let kept = |state| Kept { state, unnumbered: None };
        let block = arena.store(&kept(&small), 0, 7, 0, &mut NoRoom).expect("room");
        assert_eq!(arena.store(&kept(&log(10_000).1), block, 7, 0, &mut NoRoom), None);
        let mut back = limit.state();
        arena.load(block, Some(limit.class()), &mut back);
        assert_eq!(back, small);
        arena.free(block);
        assert_eq!(arena.used_units(), 0, "what was taken on the way is given back");
    }

    /// Shrinking needs nobody's room, not even to stop being a chain.
    #[test]
    fn a_state_shrinks_where_it_is() {
        let arena = Arena::new(2 * 4_096).expect("memory");
        let store = |entries, block| {
            arena.store(&Kept { state: &log(entries).1, unnumbered: None }, block, 7, 0, &mut NoRoom)
        };
        let block = store(334, 0).expect("room");
        let other = store(334, 0).expect("room");
        assert_eq!(store(1, block), Some(block));
        arena.free(other);
        arena.free(block);
        let chain = store(600, 0).expect("room for two blocks");
        assert_eq!(store(1, chain), Some(chain));
        arena.free(chain);
        assert_eq!(arena.used_units(), 0);
    }

    #[test]
    fn residents_are_the_blocks_with_their_owners() {
        let arena = Arena::new(4_096).expect("memory");
        let blocks: Vec<BlockId> = (1..=3)
            .map(|n| {
                let kept = Kept { state: &log(10 * n).1, unnumbered: None };
                arena.store(&kept, 0, n as u32, 0, &mut NoRoom).expect("room")
            })
            .collect();
        arena.free(blocks[1]);
        arena.give_to(blocks[2], 9);
        let owners: Vec<(BlockId, u32)> =
            arena.residents(0).iter().map(|resident| (resident.block, resident.owner)).collect();
        assert_eq!(owners, [(blocks[0], 1), (blocks[2], 9)]);
    }
}
