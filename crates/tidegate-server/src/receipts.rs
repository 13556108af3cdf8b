//! Receipts for charges that may be given back or settled later: handed to the caller as an id, used once, kept for at most an hour.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tidegate_core::{Key, Micros, Receipt};

/// How many charges of receipts are kept. One takes some 50 bytes, and a receipt 100.
pub const CHARGES_MAX: usize = 1 << 18;
/// The longest that one is kept.
pub(crate) const KEPT_MAX: Micros = Micros::from_secs(3_600);
/// Threads do not wait for each other unless their ids meet in the same part.
const PARTS: usize = 16;

/// What was charged for one request, counter by counter.
pub type Charges = SmallVec<[(Key, Receipt); 2]>;

/// The receipts that were handed out.
#[derive(Debug, Default)]
pub struct Receipts {
    parts: [Mutex<Part>; PARTS],
}

#[derive(Debug, Default)]
struct Part {
    kept: HashMap<u64, Kept>,
    /// How many charges those have.
    charges: usize,
    /// In the order in which they were handed out, which is about the order in which they end.
    ends: VecDeque<(Micros, u64)>,
}

#[derive(Debug)]
struct Kept {
    ends: Micros,
    charges: Charges,
}

impl Receipts {
    /// Keeps what was charged, for a window that long. Says whether there was room; without, there is no receipt.
    pub fn keep(&self, id: u64, charges: Charges, window: Micros, now: Micros) -> bool {
        let mut part = self.part(id);
        while let Some((ends, old)) = part.ends.front().copied()
            && ends <= now
        {
            part.ends.pop_front();
            part.forget(old);
        }
        if part.charges + charges.len() > CHARGES_MAX / PARTS {
            return false;
        }
        // Those that were used are still in line.
        let Part { kept, ends, .. } = &mut *part;
        if ends.len() > 2 * kept.len() + 64 {
            ends.retain(|(_, id)| kept.contains_key(id));
        }
        let ends = now.plus(window.min(KEPT_MAX));
        part.ends.push_back((ends, id));
        part.charges += charges.len();
        part.kept.insert(id, Kept { ends, charges });
        true
    }

    /// What a receipt is for; none if it was used, has ended or never was.
    pub fn get(&self, id: u64, now: Micros) -> Option<Charges> {
        self.part(id).kept.get(&id).filter(|kept| now < kept.ends).map(|kept| kept.charges.clone())
    }

    /// Uses a receipt up. Says whether it was there: of two who use it at the same time, one.
    pub fn use_up(&self, id: u64) -> bool {
        self.part(id).forget(id)
    }

    fn part(&self, id: u64) -> MutexGuard<'_, Part> {
        self.parts[id as usize % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Part {
    fn forget(&mut self, id: u64) -> bool {
        let kept = self.kept.remove(&id);
        self.charges -= kept.as_ref().map_or(0, |kept| kept.charges.len());
        kept.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charges(units: u64) -> Charges {
        SmallVec::from_iter([(Key::of_bits(1), Receipt { at: Micros::ZERO, units })])
    }

    #[test]
    fn a_receipt_is_used_once_and_ends() {
        let (receipts, minute) = (Receipts::default(), Micros::from_secs(60));
        assert!(receipts.keep(7, charges(3), minute, Micros::ZERO));
        assert_eq!(receipts.get(7, Micros::from_secs(59)), Some(charges(3)));
        assert!(receipts.use_up(7));
        assert!(!receipts.use_up(7));
        assert!(receipts.keep(16 + 7, charges(1), minute, Micros::ZERO));
        assert_eq!(receipts.get(16 + 7, minute), None, "it has ended");
    }

    #[test]
    fn there_is_an_end_to_them() {
        let (receipts, day) = (Receipts::default(), Micros::from_secs(86_400));
        let ids = 0..CHARGES_MAX as u64 + 16;
        let all = |now| ids.clone().filter(|id| receipts.keep(*id, charges(1), day, now)).count();
        assert_eq!(all(Micros::ZERO), CHARGES_MAX);
        assert_eq!(all(Micros::from_secs(3_599)), 0);
        assert_eq!(all(KEPT_MAX), CHARGES_MAX, "after an hour all were forgotten, whatever the window");
        assert!(receipts.use_up(0));
        let two = SmallVec::from_iter([charges(1)[0], charges(1)[0]]);
        assert!(!receipts.keep(16, two, day, KEPT_MAX), "there is room for one charge");
    }
}
