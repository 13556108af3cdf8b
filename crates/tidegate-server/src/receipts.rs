//! Receipts for charges that may be given back or settled later: handed to the caller as an id, used once, kept for at most an hour.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use smallvec::SmallVec;
use tidegate_core::{Key, Micros, Receipt};

/// How many are kept. One takes some 150 bytes.
pub const RECEIPTS_MAX: usize = 1 << 17;
/// The longest that one is kept.
const KEPT_MAX: Micros = Micros::from_secs(3_600);
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
    kept: HashMap<u64, Charges>,
    /// In the order in which they were handed out, which is about the order in which they end.
    ends: VecDeque<(Micros, u64)>,
}

impl Receipts {
    /// Keeps what was charged, for a window that long. Says whether there was room; without, there is no receipt.
    pub fn keep(&self, id: u64, charges: Charges, window: Micros, now: Micros) -> bool {
        let mut part = self.part(id);
        while let Some((end, old)) = part.ends.front().copied()
            && end <= now
        {
            part.ends.pop_front();
            part.kept.remove(&old);
        }
        if part.kept.len() >= RECEIPTS_MAX / PARTS {
            return false;
        }
        // Those that were used are still in line.
        let Part { kept, ends } = &mut *part;
        if ends.len() > 2 * kept.len() + 64 {
            ends.retain(|(_, id)| kept.contains_key(id));
        }
        part.ends.push_back((now.plus(window.min(KEPT_MAX)), id));
        part.kept.insert(id, charges);
        true
    }

    /// Takes a receipt out: it is used once. None if it was used, has ended or never was.
    pub fn take(&self, id: u64) -> Option<Charges> {
        self.part(id).kept.remove(&id)
    }

    fn part(&self, id: u64) -> std::sync::MutexGuard<'_, Part> {
        self.parts[id as usize % PARTS].lock().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!(receipts.take(7), Some(charges(3)));
        assert_eq!(receipts.take(7), None);
        assert!(receipts.keep(16 + 7, charges(1), minute, Micros::ZERO));
        assert!(receipts.keep(32 + 7, charges(1), minute, minute), "the same part");
        assert_eq!(receipts.take(16 + 7), None, "it has ended");
    }

    #[test]
    fn there_is_an_end_to_them() {
        let (receipts, day) = (Receipts::default(), Micros::from_secs(86_400));
        let all =
            |now| (0..RECEIPTS_MAX as u64 + 16).filter(|id| receipts.keep(*id, charges(1), day, now)).count();
        assert_eq!(all(Micros::ZERO), RECEIPTS_MAX);
        assert_eq!(all(Micros::from_secs(3_599)), 0);
        assert_eq!(all(KEPT_MAX), RECEIPTS_MAX, "after an hour all were forgotten, whatever the window");
    }
}
