//! A table of what is kept under hashes: sixteen bytes for each, and nearly always one cache line to look at.
//!
//! Names are not kept, only their hashes. Linear probing: a hash is at its home, or behind it without a gap between. A table of a library
//! keeps what it compares apart from what it finds, which is one more place in memory for each probe: among a hundred thousand callers that
//! is one more wait.

#[derive(Debug)]
struct Kept<T> {
    hash: u64,
    value: T,
}

/// Where a hash would be if nobody else were there, in a table of so many slots.
fn home(hash: u64, slots: usize) -> usize {
    hash as usize & (slots - 1)
}

/// The table.
#[derive(Debug)]
pub(crate) struct Shelf<T> {
    /// A power of two of them, at least a quarter empty; or none at all.
    slots: Box<[Option<Kept<T>>]>,
    len: usize,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { slots: Box::default(), len: 0 }
    }
}

impl<T> Shelf<T> {
    const SLOTS_MIN: usize = 4;

    #[cfg(test)]
    fn len(&self) -> usize {
        self.len
    }

    /// What its slots take.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.slots)
    }

    #[inline]
    pub(crate) fn get(&self, hash: u64) -> Option<&T> {
        let at = self.find(hash).ok()?;
        self.slots[at].as_ref().map(|kept| &kept.value)
    }

    /// Puts a value there; gives the one that was there before.
    pub(crate) fn put(&mut self, hash: u64, value: T) -> Option<T> {
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let kept = Some(Kept { hash, value });
        match self.find(hash) {
            Ok(at) => std::mem::replace(&mut self.slots[at], kept).map(|before| before.value),
            Err(free) => {
                self.slots[free] = kept;
                self.len += 1;
                None
            }
        }
    }

    /// Takes a value away.
    pub(crate) fn remove(&mut self, hash: u64) -> Option<T> {
        let mut gap = self.find(hash).ok()?;
        let gone = self.slots[gap].take();
        self.len -= 1;
        // Whoever is behind the gap and could not be found past it moves into it, and leaves one behind.
        let mask = self.slots.len() - 1;
        let mut at = (gap + 1) & mask;
        while let Some(kept) = &self.slots[at] {
            let home = home(kept.hash, self.slots.len());
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(gap) & mask {
                self.slots[gap] = self.slots[at].take();
                gap = at;
            }
            at = (at + 1) & mask;
        }
        gone.map(|gone| gone.value)
    }

    /// Where a hash is, or the free slot that it would have.
    #[inline]
    fn find(&self, hash: u64) -> Result<usize, usize> {
        if self.slots.is_empty() {
            return Err(0);
        }
        let mask = self.slots.len() - 1;
        let mut at = home(hash, self.slots.len());
        // There is a free one, so it ends.
        while let Some(kept) = &self.slots[at & mask] {
            if kept.hash == hash {
                return Ok(at & mask);
            }
            at += 1;
        }
        Err(at & mask)
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(Self::SLOTS_MIN);
        let before = std::mem::replace(&mut self.slots, (0..slots).map(|_| None).collect());
        for kept in before.into_iter().flatten() {
            if let Err(free) = self.find(kept.hash) {
                self.slots[free] = Some(kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn four_are_in_a_cache_line() {
        assert_eq!(size_of::<Option<Kept<Arc<str>>>>(), 24);
        assert_eq!(size_of::<Option<Kept<Arc<u8>>>>(), 16);
    }

    #[test]
    fn a_mark_is_near_the_address_that_is_told() {
        let mut shelf = Shelf::default();
        for number in 0..40_u64 {
            let mark = Mark::of_hash(number << 1);
            shelf.put(mark, Arc::new(number));
            let at = shelf.find(mark).expect("it was put");
            let address = std::ptr::from_ref(&shelf.slots[at]).addr();
            assert_eq!(shelf.whereabouts().home_of::<Arc<u64>>(mark), address, "nobody is in its way");
        }
        let empty = Shelf::<Arc<u64>>::default().whereabouts();
        assert_eq!(empty.home_of::<Arc<u64>>(Mark::of_hash(2)), empty.start);
    }

    #[derive(Clone, Copy, Debug)]
    enum Act {
        Put(u64),
        Remove(u64),
        DoubtAll,
        DropDoubtful,
    }

    /// Hashes that share few homes, so that they get into each other's way, also over the end of the table.
    fn hash() -> impl Strategy<Value = u64> {
        (0..24_u64, 0..3_u64).prop_map(|(home, other)| other << 60 | home << 1)
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            8 => hash().prop_map(Act::Put),
            5 => hash().prop_map(Act::Remove),
            1 => Just(Act::DoubtAll),
            1 => Just(Act::DropDoubtful),
        ]
    }

    proptest! {
        #[test]
        fn it_keeps_what_a_map_keeps(acts in prop::collection::vec(act(), 0..200)) {
            let (mut shelf, mut model) = (Shelf::default(), BTreeMap::new());
            for (number, act) in acts.into_iter().enumerate() {
                match act {
                    Act::Put(hash) => {
                        let before = model.insert(hash, (Arc::new(number), true)).map(|(value, _)| value);
                        let value = model[&hash].0.clone();
                        prop_assert_eq!(shelf.put(Mark::of_hash(hash), value), before);
                    }
                    Act::Remove(hash) => {
                        let before = model.remove(&hash).map(|(value, _)| value);
                        prop_assert_eq!(shelf.remove(Mark::of_hash(hash)), before);
                    }
                    Act::DoubtAll => {
                        shelf.doubt_all();
                        model.values_mut().for_each(|(_, confirmed)| *confirmed = false);
                    }
                    Act::DropDoubtful => {
                        let mut gone = Vec::new();
                        shelf.drop_doubtful(|value| gone.push(**value));
                        gone.sort_unstable();
                        let mut expected: Vec<usize> =
                            model.values().filter(|(_, confirmed)| !confirmed).map(|(value, _)| **value).collect();
                        expected.sort_unstable();
                        prop_assert_eq!(gone, expected);
                        model.retain(|_, (_, confirmed)| *confirmed);
                    }
                }
                prop_assert_eq!(shelf.len(), model.len());
                for home in 0..24 {
                    for other in 0..3 {
                        let hash = other << 60 | home << 1;
                        let kept = model.get(&hash).map(|(value, _)| value);
                        prop_assert_eq!(shelf.get(Mark::of_hash(hash)), kept, "{}", hash);
                    }
                }
            }
        }
    }
}
