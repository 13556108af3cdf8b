//! What single callers have for themselves, each under a number, read without a lock: whoever has a number from the roll may be overtaken
//! by somebody who gives it to another caller, so what is found says whose it is.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

use crate::{Terms, bring_near};

/// What a caller has for itself.
#[derive(Debug)]
pub struct Own {
    /// Whose it is: the hash of its name.
    pub(crate) hash: u64,
    pub(crate) terms: Terms,
}

type Slot = ArcSwapOption<Own>;

/// The first part has so many slots, and each further one twice as many as the one before.
const FIRST: usize = 256;
const PARTS: usize = 25; // As many as there are numbers.

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Owns {
    /// Made when they are needed, and never moved.
    parts: [OnceLock<Box<[Slot]>>; PARTS],
}

/// Which numbers are free. Whoever changes anything has it.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    next: u32,
    returned: Vec<u32>,
}

/// The part that a number is in, and where there.
#[inline]
fn place(number: u32) -> (usize, usize) {
    let from_first = number as usize + FIRST;
    let part = (from_first / FIRST).ilog2() as usize;
    (part, from_first - (FIRST << part))
}

impl Owns {
    /// What the slots take.
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().filter_map(OnceLock::get).map(|part| size_of_val(&**part)).sum()
    }

    #[inline]
    fn slot(&self, number: u32) -> Option<&Slot> {
        let (part, at) = place(number);
        self.parts[part].get()?.get(at)
    }

    /// What a number stands for now, if it is this caller's.
    #[inline]
    pub(crate) fn get(&self, number: u32, hash: u64) -> Option<Arc<Own>> {
        self.slot(number)?.load_full().filter(|own| own.hash == hash)
    }

    /// Asks for the memory that leads to what a number stands for.
    #[inline]
    pub(crate) fn bring_slot_near(&self, number: u32) {
        self.slot(number).into_iter().for_each(bring_near);
    }

    /// Asks for the memory of what a number stands for.
    #[inline]
    pub(crate) fn bring_near(&self, number: u32) {
        let Some(slot) = self.slot(number) else { return };
        if let Some(own) = &*slot.load() {
            bring_near(&own.hash);
            bring_near(&own.terms.tier);
        }
    }

    /// Has a number stand for this; gives what it stood for.
    pub(crate) fn put(&self, number: u32, own: Option<Arc<Own>>) -> Option<Arc<Own>> {
        let (part, at) = place(number);
        let part = self.parts[part].get_or_init(|| (0..FIRST << part).map(|_| Slot::empty()).collect());
        part[at].swap(own)
    }
}

impl Numbers {
    /// A number that stands for nothing.
    pub(crate) fn take(&mut self) -> u32 {
        self.returned.pop().unwrap_or_else(|| {
            let number = self.next;
            self.next += 1; // What they stand for fills all memory long before there is none left.
            number
        })
    }

    /// Gives one back that stands for nothing any more.
    pub(crate) fn give_back(&mut self, number: u32) {
        self.returned.push(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_place_of_its_own() {
        let mut expected = (0, 0);
        for number in 0..10_000 {
            assert_eq!(place(number), expected, "{number}");
            expected.1 += 1;
            if expected.1 == FIRST << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(place(u32::MAX).0 < PARTS);
    }

    #[test]
    fn numbers_are_given_out_again() {
        let mut numbers = Numbers::default();
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [0, 1, 2]);
        numbers.give_back(1);
        assert_eq!([numbers.take(), numbers.take()], [1, 3]);
    }
}
