//! The roll: all callers of whom anything is kept, sixteen bytes for each, and nearly always one cache line to look at. It is read without
//! a lock while it is written: every decision reads it, and an edit is rare.
//!
//! Names are not kept, only their hashes. Linear probing: a hash is at its home, or behind it without a gap between. A place that a hash
//! has once it keeps, also when nothing is kept about its caller any more; so who reads may be overtaken by any change and still finds
//! either what was there or what came. Whoever writes makes a new roll when too few places are free, and puts it in place of this one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::bring_near;

/// What is kept about a caller: the number of what it shares with others, or one of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(u32);

impl Entry {
    /// Nothing, any more.
    const NOTHING: Self = Self(0);
    /// What nobody else has: it is kept elsewhere.
    pub(crate) const OWN: Self = Self(u32::MAX);

    /// What others have too, by its number.
    pub(crate) fn shared(number: u16) -> Self {
        Self(u32::from(number) + 1)
    }

    /// The number of what others have too.
    #[inline]
    pub(crate) fn number(self) -> Option<u16> {
        u16::try_from(self.0.wrapping_sub(1)).ok()
    }
}

/// Was an entry made since everything was last doubted? A bit beside it.
const CONFIRMED: u64 = 1 << 32;

/// Asks the system for large pages, in which nearly all places of a large table are found without a wait.
pub type AskForLargePages = fn(&[AtomicU64]);

/// The hash of a name, which is not zero, and its entry. Free while both are zero.
type Place = [AtomicU64; 2];

/// The table.
#[derive(Debug)]
pub(crate) struct Roll {
    /// A power of two of them, at least a quarter free.
    places: Box<[Place]>,
}

impl Roll {
    /// One that so many have room in.
    pub(crate) fn with_room(callers: usize, pages: AskForLargePages) -> Self {
        let places = (callers * 4 / 3 + 1).next_power_of_two().max(4);
        let places: Box<[Place]> = bytemuck::allocation::zeroed_slice_box(places);
        pages(places.as_flattened()); // Before anything is written there.
        Self { places }
    }

    /// What it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.places)
    }

    /// Is there room for another hash, so many places being taken?
    pub(crate) fn has_room(&self, taken: usize) -> bool {
        (taken + 1) * 4 <= self.places.len() * 3
    }

    /// Asks for the memory in which a hash would be.
    #[inline]
    pub(crate) fn bring_near(&self, hash: u64) {
        bring_near(&self.places[hash as usize & (self.places.len() - 1)]);
    }

    #[inline]
    pub(crate) fn get(&self, hash: u64) -> Option<Entry> {
        let [_, word] = self.find(hash).ok()?;
        entry(word.load(Ordering::Acquire))
    }

    /// Its place, or the free one that it would have.
    #[inline]
    fn find(&self, hash: u64) -> Result<&Place, &Place> {
        let mut at = hash as usize;
        // There is a free one, so it ends.
        loop {
            let place = &self.places[at & (self.places.len() - 1)];
            match place[0].load(Ordering::Acquire) {
                found if found == hash => return Ok(place),
                0 => return Err(place),
                _ => at = at.wrapping_add(1),
            }
        }
    }
}

#[inline]
fn entry(word: u64) -> Option<Entry> {
    Some(Entry(word as u32)).filter(|entry| *entry != Entry::NOTHING)
}

/// Changes, of which one is made at a time.
impl Roll {
    /// Enters this for a hash; gives what was entered before, and whether a place was taken for it. There has to be room.
    pub(crate) fn put(&self, hash: u64, entry: Entry) -> (Option<Entry>, bool) {
        let word = u64::from(entry.0) | CONFIRMED;
        match self.find(hash) {
            Ok([_, before]) => (self::entry(before.swap(word, Ordering::AcqRel)), false),
            Err(free) => {
                take(free, hash, word);
                (None, true)
            }
        }
    }

    /// Takes away what is entered for a hash.
    pub(crate) fn remove(&self, hash: u64) -> Option<Entry> {
        let [_, word] = self.find(hash).ok()?;
        entry(word.swap(0, Ordering::AcqRel))
    }

    /// From now on only what is put is confirmed.
    pub(crate) fn doubt_all(&self) {
        for [_, word] in &self.places {
            word.fetch_and(!CONFIRMED, Ordering::AcqRel);
        }
    }

    /// Takes away what is not confirmed, and shows it to `gone`.
    pub(crate) fn drop_doubtful(&self, mut gone: impl FnMut(u64, Entry)) {
        for [hash, word] in &self.places {
            let kept = word.load(Ordering::Acquire);
            if let Some(entry) = entry(kept).filter(|_| kept & CONFIRMED == 0) {
                word.store(0, Ordering::Release);
                gone(hash.load(Ordering::Acquire), entry);
            }
        }
    }

    /// The same entries in a roll with room for so many.
    pub(crate) fn moved(&self, callers: usize, pages: AskForLargePages) -> Self {
        let to = Self::with_room(callers, pages);
        for [hash, word] in &self.places {
            let (hash, word) = (hash.load(Ordering::Acquire), word.load(Ordering::Acquire));
            if entry(word).is_some()
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
