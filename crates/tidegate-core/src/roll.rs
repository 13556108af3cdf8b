//! The roll: all callers of whom anything is kept, sixteen bytes a place, and nearly always one cache line to look at. It is read without
//! a lock while it is written: every decision reads it, and an edit is rare.
//!
//! Names are not kept, only their hashes. A hash is in the cache line that is its home, or in one behind it if all from its home to there
//! are full. A place that a hash has once it keeps, also when nothing is kept about its caller any more; so who reads may be overtaken by
//! any change and still finds either what was there or what came. Whoever writes makes a new roll when too few places are free, and puts
//! it in place of this one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Grant, QuotaUnit, bring_near};

/// Where that is which is kept about a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// Others have it too, under this number; and how much the one limit is that is its own, if that is all that it has for itself.
    Shared(u16, Option<Grant>),
    /// Nobody else has it; it has this number among such.
    Own(u32),
}

// An entry as a word: a number of the caller's own or an amount in the lower half, the rest above. None of them is zero.
const SHARED_AT: u32 = 32;
const UNIT_AT: u32 = 48;
const UNIT_MASK: u64 = 0xff;
const IS_SHARED: u64 = 1 << 60;
const IS_OWN: u64 = 1 << 61;
const IS_GRANTED: u64 = 1 << 62;
/// Was it made since everything was last doubted? A bit beside it.
const CONFIRMED: u64 = 1 << 63;

impl Entry {
    #[inline]
    fn of_word(word: u64) -> Option<Self> {
        if word & IS_SHARED != 0 {
            let unit = || QuotaUnit::ALL.get((word >> UNIT_AT & UNIT_MASK) as usize);
            let grant = if word & IS_GRANTED != 0 { unit() } else { None };
            let grant = grant.map(|unit| Grant { amount: word as u32, unit: *unit });
            return Some(Self::Shared((word >> SHARED_AT) as u16, grant));
        }
        if word & IS_OWN != 0 { Some(Self::Own(word as u32)) } else { None }
    }

    fn word(self) -> u64 {
        match self {
            Self::Shared(number, grant) => {
                let granted = grant.map_or(0, |Grant { amount, unit }| {
                    IS_GRANTED | (unit as u64) << UNIT_AT | u64::from(amount)
                });
                IS_SHARED | u64::from(number) << SHARED_AT | granted
            }
            Self::Own(number) => IS_OWN | u64::from(number),
        }
    }
}

/// Asks the system for large pages, in which nearly all places of a large table are found without a wait.
pub type AskForLargePages = fn(&[AtomicU64]);

/// The hash of a name, which is not zero, and its entry. Free while both are zero.
type Place = [AtomicU64; 2];

/// Places in a cache line.
const LINE: usize = 4;

/// The table.
#[derive(Debug)]
pub(crate) struct Roll {
    places: Box<[Place]>,
    /// Where the first whole cache line is, and what a line's number is masked by: a power of two less one.
    start: usize,
    mask: usize,
}

impl Roll {
    /// One that so many have room in.
    pub(crate) fn with_room(callers: usize, pages: AskForLargePages) -> Self {
        let lines = (callers / (LINE / 4 * 3) + 1).next_power_of_two();
        let places: Box<[Place]> = bytemuck::allocation::zeroed_slice_box((lines + 1) * LINE);
        pages(places.as_flattened()); // Before anything is written there.
        let into_line = places.as_ptr().addr() / size_of::<Place>() % LINE;
        Self { places, start: (LINE - into_line) % LINE, mask: lines - 1 }
    }

    /// What it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.places)
    }

    /// Is there room for another hash, so many places being taken? A quarter stays free.
    pub(crate) fn has_room(&self, taken: usize) -> bool {
        (taken + 1) * 4 <= (self.mask + 1) * LINE * 3
    }

    /// Asks for the memory in which a hash would be.
    #[inline]
    pub(crate) fn bring_near(&self, hash: u64) {
        bring_near(&self.line(hash as usize)[0]);
    }

    #[inline]
    pub(crate) fn get(&self, hash: u64) -> Option<Entry> {
        let [_, word] = self.find(hash).ok()?;
        Entry::of_word(word.load(Ordering::Acquire))
    }

    #[inline]
    fn line(&self, number: usize) -> &[Place] {
        let first = self.start + (number & self.mask) * LINE;
        &self.places[first..first + LINE]
    }

    /// Its place, or the free one that it would have.
    #[inline]
    fn find(&self, hash: u64) -> Result<&Place, &Place> {
        let mut line = hash as usize;
        // There is a free one, so it ends.
        loop {
            for place in self.line(line) {
                match place[0].load(Ordering::Acquire) {
                    found if found == hash => return Ok(place),
                    0 => return Err(place),
                    _ => {}
                }
            }
            line = line.wrapping_add(1);
        }
    }
}

/// Changes, of which one is made at a time.
impl Roll {
    /// Enters this for a hash; gives what was entered before, and whether a place was taken for it. There has to be room.
    pub(crate) fn put(&self, hash: u64, entry: Entry) -> (Option<Entry>, bool) {
        let word = entry.word() | CONFIRMED;
        match self.find(hash) {
            Ok([_, before]) => (Entry::of_word(before.swap(word, Ordering::AcqRel)), false),
            Err(free) => {
                take(free, hash, word);
                (None, true)
            }
        }
    }

    /// Takes away what is entered for a hash.
    pub(crate) fn remove(&self, hash: u64) -> Option<Entry> {
        let [_, word] = self.find(hash).ok()?;
        Entry::of_word(word.swap(0, Ordering::AcqRel))
    }

    /// From now on only what is put is confirmed.
    pub(crate) fn doubt_all(&self) {
        for [_, word] in &self.places {
            word.fetch_and(!CONFIRMED, Ordering::AcqRel);
        }
    }

    /// Takes away what is not confirmed, and shows it to `gone`.
    pub(crate) fn drop_doubtful(&self, mut gone: impl FnMut(Entry)) {
        for [_, word] in &self.places {
            let kept = word.load(Ordering::Acquire);
            if let Some(entry) = Entry::of_word(kept).filter(|_| kept & CONFIRMED == 0) {
                word.store(0, Ordering::Release);
                gone(entry);
            }
        }
    }

    /// The same entries in a roll with room for so many.
    pub(crate) fn moved(&self, callers: usize, pages: AskForLargePages) -> Self {
        let to = Self::with_room(callers, pages);
        for [hash, word] in &self.places {
            let (hash, word) = (hash.load(Ordering::Acquire), word.load(Ordering::Acquire));
            if Entry::of_word(word).is_some()
                && let Err(free) = to.find(hash)
            {
                take(free, hash, word);
            }
        }
        to
    }
}

fn take([hash, word]: &Place, new_hash: u64, new_word: u64) {
    word.store(new_word, Ordering::Release);
    hash.store(new_hash, Ordering::Release); // Whoever sees it sees the entry too.
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const NO_PAGES: AskForLargePages = |_| ();

    #[derive(Clone, Copy, Debug)]
    enum Act {
        Put(u64, Entry),
        Remove(u64),
        DoubtAll,
        DropDoubtful,
        Move,
    }

    /// Hashes that share few homes, so that they get into each other's way, also over the end of the table.
    fn hash() -> impl Strategy<Value = u64> {
        (0..6_u64, 0..12_u64).prop_map(|(home, other)| other << 40 | home << 30 | (home + 60))
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let unit = prop::sample::select(QuotaUnit::ALL.to_vec());
        let grant = (any::<u32>(), unit).prop_map(|(amount, unit)| Grant { amount, unit });
        let shared = (any::<u16>(), prop::option::of(grant));
        prop_oneof![
            shared.prop_map(|(number, grant)| Entry::Shared(number, grant)),
            any::<u32>().prop_map(Entry::Own)
        ]
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            12 => (hash(), entry()).prop_map(|(hash, entry)| Act::Put(hash, entry)),
            5 => hash().prop_map(Act::Remove),
            1 => Just(Act::DoubtAll),
            1 => Just(Act::DropDoubtful),
            1 => Just(Act::Move),
        ]
    }

    proptest! {
        #[test]
        fn it_keeps_what_a_map_keeps(acts in prop::collection::vec(act(), 0..300)) {
            let (mut roll, mut taken) = (Roll::with_room(0, NO_PAGES), 0);
            let mut model: BTreeMap<u64, (Entry, bool)> = BTreeMap::new();
            for act in acts {
                match act {
                    Act::Put(hash, entry) => {
                        if !roll.has_room(taken) {
                            (roll, taken) = (roll.moved(model.len() + 1, NO_PAGES), model.len());
                        }
                        let before = model.insert(hash, (entry, true)).map(|(entry, _)| entry);
                        let (was, is_new) = roll.put(hash, entry);
                        prop_assert_eq!(was, before);
                        taken += usize::from(is_new);
                    }
                    Act::Remove(hash) => {
                        prop_assert_eq!(roll.remove(hash), model.remove(&hash).map(|(entry, _)| entry));
                    }
                    Act::DoubtAll => {
                        roll.doubt_all();
                        model.values_mut().for_each(|(_, confirmed)| *confirmed = false);
                    }
                    Act::DropDoubtful => {
                        let (mut gone, mut expected) = (Vec::new(), Vec::new());
                        roll.drop_doubtful(|entry| gone.push(entry.word()));
                        model.retain(|_, (entry, confirmed)| {
                            if !*confirmed {
                                expected.push(entry.word());
                            }
                            *confirmed
                        });
                        gone.sort_unstable();
                        expected.sort_unstable();
                        prop_assert_eq!(gone, expected);
                    }
                    Act::Move => (roll, taken) = (roll.moved(model.len(), NO_PAGES), model.len()),
                }
                for home in 0..6_u64 {
                    for other in 0..12_u64 {
                        let hash = other << 40 | home << 30 | (home + 60);
                        prop_assert_eq!(roll.get(hash), model.get(&hash).map(|(entry, _)| *entry), "{}", hash);
                    }
                }
            }
        }
    }

    #[test]
    fn nobody_s_home_is_in_two_cache_lines() {
        for callers in [0, 3, 100, 5_000] {
            let roll = Roll::with_room(callers, NO_PAGES);
            for hash in 0..100 {
                assert_eq!(roll.line(hash).as_ptr().addr() % 64, 0, "{callers}");
            }
            assert!(roll.has_room(callers.saturating_sub(1)), "{callers}");
        }
    }
}
