//! The classes of all states in the table, numbered: a slot has 10 bits for the name of its class.

use tidegate_core::Class;

use super::sync::{AtomicU64, Ordering, zeroed};

/// The number of a class; 0 is nobody's.
pub(crate) type ClassId = u16;

/// How many bits a slot has for it.
pub(crate) const CLASS_BITS: u32 = 10;

/// Fewer for the model checker, which looks at every word.
const NUMBERS: usize = if cfg!(loom) { 16 } else { 1 << CLASS_BITS };

/// The class of states that came when there was no number for theirs. Such a state is in the arena, and its class with it.
pub(crate) const UNNAMED: ClassId = 1;

/// How many numbers are looked at for a class.
const PROBES: u16 = 16;

/// A class keeps its number for good: there are as many as different windows and rates, not as keys.
pub(crate) struct Classes {
    /// The bits of each class, at its number; 0 where there is none yet.
    bits: Box<[AtomicU64]>,
}

impl Classes {
    pub(crate) fn new() -> Option<Self> {
        Some(Self { bits: zeroed(NUMBERS)? })
    }

    /// The class with this number.
    pub(crate) fn get(&self, id: ClassId) -> Option<Class> {
        let bits = self.bits.get(usize::from(id))?.load(Ordering::Acquire);
        (bits != 0).then(|| Class::trusted(bits))
    }

    /// Is this the number of the class?
    #[inline]
    pub(crate) fn is(&self, id: ClassId, class: Class) -> bool {
        self.bits.get(usize::from(id)).is_some_and(|bits| bits.load(Ordering::Acquire) == class.bits())
    }

    /// The number of a class, the next free one if it is new.
    pub(crate) fn id(&self, class: Class) -> ClassId {
        const FIRST: u16 = UNNAMED + 1;
        const FREE: u16 = NUMBERS as u16 - FIRST;
        let bits = class.bits();
        let start = (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16 % FREE;
        for step in 0..PROBES.min(FREE) {
            let id = FIRST + (start + step) % FREE;
            let entry = &self.bits[usize::from(id)];
            let mut found = entry.load(Ordering::Acquire);
            if found == 0 {
                found = match entry.compare_exchange(0, bits, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => bits,
                    Err(other) => other,
                };
            }
            if found == bits {
                return id;
            }
        }
        UNNAMED
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use tidegate_core::{Limit, Micros};

    use super::*;

    fn class(window_ms: u64) -> Class {
        Limit::fixed_window(1, Micros::from_millis(window_ms)).expect("a limit").class()
    }

    #[test]
    fn a_class_keeps_its_number_and_late_ones_have_none() {
        let classes = Classes::new().expect("memory");
        let ids: Vec<ClassId> = (1..=5_000).map(|ms| classes.id(class(ms))).collect();
        let mut named: Vec<ClassId> = ids.iter().copied().filter(|id| *id > UNNAMED).collect();
        assert!(named.len() > 900 && named.len() <= 1_022, "{}", named.len());
        for (at, id) in ids.iter().enumerate() {
            let class = class(at as u64 + 1);
            assert_eq!(classes.id(class), *id);
            assert_eq!(classes.get(*id), (*id > UNNAMED).then_some(class));
        }
        named.sort_unstable();
        assert!(named.windows(2).all(|pair| pair[0] < pair[1]), "no number is given twice");
    }
}
