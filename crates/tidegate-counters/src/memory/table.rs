//! The table of slots: sets of four in one cache line, two of which a key may be in.
//!
//! Whoever reads or writes a set holds its lock, a bit in its first word; several are locked in the order of their numbers. Without the
//! lock a set may be looked at for a hint, never for an answer.

use std::ops::Deref;

use tidegate_core::{Key, bring_near};

use super::slot::{TAG_BITS, Tag};
use super::sync::{AtomicU64, LOCK, Locked, Ordering, lock, try_lock, unlock};
use super::words::{LINE_WORDS, Words};

pub(crate) const SET_SLOTS: usize = 4;
/// The most sets: a slot's number has 32 bits.
pub(crate) const SET_BITS_MAX: u32 = 30;

/// Where a key may be: its tag, and two sets. They are the same set for one key in as many as there are sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Home {
    pub(crate) tag: u64,
    pub(crate) first: usize,
    pub(crate) second: usize,
}

impl Home {
    /// Its sets, in order, each once.
    pub(crate) fn sets(&self) -> Vec<usize> {
        let mut sets = vec![self.first.min(self.second), self.first.max(self.second)];
        sets.dedup();
        sets
    }
}

/// A slot of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Spot {
    pub(crate) set: usize,
    pub(crate) slot: usize,
}

impl Spot {
    /// Its number in the whole table.
    pub(crate) fn number(self) -> u32 {
        (self.set * SET_SLOTS + self.slot) as u32
    }

    pub(crate) fn of_number(number: u32) -> Self {
        Self { set: number as usize / SET_SLOTS, slot: number as usize % SET_SLOTS }
    }
}

pub(crate) struct Table {
    words: Words,
    /// There are 2^`set_bits` sets, at least two.
    set_bits: u32,
}

impl Table {
    pub(crate) fn new(set_bits: u32) -> Option<Self> {
        Some(Self { words: Words::new(LINE_WORDS << set_bits)?, set_bits })
    }

    pub(crate) fn touch_pages(&self) {
        self.words.touch_pages();
    }

    pub(crate) fn sets(&self) -> usize {
        1 << self.set_bits
    }

    pub(crate) fn set_bits(&self) -> u32 {
        self.set_bits
    }

    #[inline]
    pub(crate) fn home(&self, key: Key) -> Home {
        let (high, low) = ((key.bits() >> 64) as u64, key.bits() as u64);
        let tag = (low & ((1 << TAG_BITS) - 1)).max(1); // 0 is nobody's.
        let first = (high >> (64 - self.set_bits)) as usize;
        Home { tag, first, second: self.other(first, tag) }
    }

    /// The other set of a key that is in `set`. In a table of half as many sets it is half the number.
    #[inline]
    pub(crate) fn other(&self, set: usize, tag: u64) -> usize {
        let apart = (tag << (64 - TAG_BITS)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - self.set_bits);
        set ^ apart as usize
    }

    /// A set. Whoever holds no lock sees a hint, not an answer.
    #[inline]
    pub(crate) fn set(&self, set: usize) -> Set<'_> {
        Set { words: self.words.line(set) }
    }

    /// Where a key is in a set.
    #[inline]
    pub(crate) fn find(&self, set: usize, tag: u64) -> Option<Spot> {
        self.set(set).find(tag).map(|slot| Spot { set, slot })
    }

    /// Locks some sets, which are in order and each named once.
    #[inline]
    pub(crate) fn lock_all<S: Deref<Target = [usize]>>(&self, sets: S) -> LockedSets<'_, S> {
        let mut locked = LockedSets { table: self, sets, len: 0 };
        while let Some(set) = locked.sets.get(locked.len) {
            std::mem::forget(self.set(*set).lock()); // Unlocked by the one who holds them all.
            locked.len += 1;
        }
        locked
    }
}

/// Sets that are locked until this is dropped.
#[must_use]
pub(crate) struct LockedSets<'a, S: Deref<Target = [usize]>> {
    table: &'a Table,
    sets: S,
    len: usize,
}

impl<S: Deref<Target = [usize]>> LockedSets<'_, S> {
    pub(crate) fn numbers(&self) -> &[usize] {
        &self.sets
    }

    /// Unlocks them, and gives the room for their numbers back.
    pub(crate) fn unlock(mut self) -> S
    where
        S: Default,
    {
        self.release();
        std::mem::take(&mut self.sets)
    }

    #[inline]
    fn release(&mut self) {
        for set in self.sets.iter().take(self.len) {
            unlock(&self.table.set(*set).words[0]);
        }
        self.len = 0;
    }
}

impl<S: Deref<Target = [usize]>> Drop for LockedSets<'_, S> {
    #[inline]
    fn drop(&mut self) {
        self.release();
    }
}

/// One cache line: four tags, then four state words.
#[derive(Clone, Copy)]
pub(crate) struct Set<'a> {
    words: &'a [AtomicU64; LINE_WORDS],
}

impl<'a> Set<'a> {
    #[inline]
    pub(crate) fn bring_near(self) {
        bring_near(self.words);
    }

    #[inline]
    pub(crate) fn find(self, tag: u64) -> Option<usize> {
        (0..SET_SLOTS).find(|slot| self.tag(*slot).is_of(tag))
    }

    #[inline]
    pub(crate) fn tag(self, slot: usize) -> Tag {
        Tag::of_word(self.words[slot % SET_SLOTS].load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn word(self, slot: usize) -> u64 {
        self.words[SET_SLOTS + slot % SET_SLOTS].load(Ordering::Relaxed)
    }

    /// Writes a slot's tag; the caller holds the lock, and keeps it.
    #[inline]
    pub(crate) fn put_tag(self, slot: usize, tag: Tag) {
        let held = if slot == 0 { LOCK } else { 0 };
        self.words[slot % SET_SLOTS].store(tag.word() | held, Ordering::Relaxed);
    }

    /// Writes a slot's state word; the caller holds the lock.
    #[inline]
    pub(crate) fn put_word(self, slot: usize, word: u64) {
        self.words[SET_SLOTS + slot % SET_SLOTS].store(word, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn lock(self) -> Locked<'a> {
        lock(&self.words[0])
    }

    pub(crate) fn try_lock(self) -> Option<Locked<'a>> {
        try_lock(&self.words[0])
    }
}

/// The slots of a set.
pub(crate) fn spots(set: usize) -> impl Iterator<Item = Spot> {
    (0..SET_SLOTS).map(move |slot| Spot { set, slot })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_other_set_of_the_other_set_is_the_first() {
        let table = Table::new(10).expect("memory");
        for seed in 0..1_000_u128 {
            let home = table.home(Key::of_bits(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)));
            assert_eq!(table.other(home.second, home.tag), home.first);
        }
    }

    #[test]
    fn a_smaller_table_has_the_same_homes_cut_short() {
        let (large, small) = (Table::new(12).expect("memory"), Table::new(9).expect("memory"));
        for seed in 0..1_000_u128 {
            let key = Key::of_bits(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
            let (from, to) = (large.home(key), small.home(key));
            assert_eq!((from.first >> 3, from.second >> 3), (to.first, to.second));
        }
    }
}
