//! Reservations: charges of an estimate, settled later under an id. The id carries what was charged, signed, so that nobody has to keep
//! it, and every node that has the fleet's secret can settle it.

use std::fmt::Write as _;

use crate::{Key, Micros, Receipt, Rule};

/// Digits of an id for each counter that was charged: when, how much, which reservation, and the signature, 64 bits each.
pub const RESERVATION_DIGITS: usize = 4 * WORD_DIGITS;
const WORD_DIGITS: usize = 16;
/// How many counters one id may speak of. Further ones keep the estimate.
pub const RESERVATION_COUNTERS_MAX: usize = 16;

/// A charge that an id speaks of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// What was charged.
    pub receipt: Receipt,
    /// The counter that remembers that it was settled, so that nobody does it twice.
    pub settled: Key,
}

impl Rule {
    /// Adds to an id what was charged to one of the rule's counters. `number` is the reservation's own: charges of the same size at the
    /// same instant are two.
    pub fn reserve(&self, key: Key, receipt: Receipt, number: u64, id: &mut String) {
        if id.len() < RESERVATION_COUNTERS_MAX * RESERVATION_DIGITS {
            let words = [receipt.at.get(), receipt.units, number];
            for word in words.into_iter().chain([self.signature(key, words)]) {
                let _ = write!(id, "{word:016x}"); // Writing to a string cannot fail.
            }
        }
    }

    /// What an id says was charged to a counter; none if it is not about that one, or was not made by us.
    pub fn reserved(&self, key: Key, id: &str) -> Option<Reserved> {
        let parts = id.as_bytes().chunks_exact(RESERVATION_DIGITS).take(RESERVATION_COUNTERS_MAX);
        parts.filter_map(words).find_map(|[at, units, number, signature]| {
            let words = [at, units, number];
            let receipt = Receipt { at: Micros::new(at), units };
            let settled = self.part_of(b"settled", key, words);
            (self.signature(key, words) == signature).then_some(Reserved { receipt, settled })
        })
    }

    fn signature(&self, key: Key, words: [u64; 3]) -> u64 {
        self.part_of(b"reserved", key, words).bits() as u64
    }

    fn part_of(&self, what: &[u8], key: Key, words: [u64; 3]) -> Key {
        let start = self.start.part(what).part(&key.bits().to_le_bytes());
        words.iter().fold(start, |parts, word| parts.part(&word.to_le_bytes())).key()
    }
}

/// The words of an id, if it is one.
fn words(digits: &[u8]) -> Option<[u64; 4]> {
    let mut words = [0; 4];
    for (word, digits) in words.iter_mut().zip(digits.chunks_exact(WORD_DIGITS)) {
        *word = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Book, DescriptorDraft, DomainDraft, RuleDraft, Secret};

    fn book(secret: u8) -> Book {
        let limits = vec![RuleDraft { reservation_id: Some("id".into()), ..RuleDraft::default() }];
        let descriptors = vec![DescriptorDraft { key: "k".into(), limits, ..DescriptorDraft::default() }];
        let domain = DomainDraft { name: "d".into(), descriptors, ..DomainDraft::default() };
        Book::new([domain], Secret::new([secret; 16]))
    }

    #[test]
    fn an_id_is_good_for_its_counters_and_no_others() {
        let (book, other) = (book(1), book(2));
        let (rule, receipt) =
            (&book.rules()[0], Receipt { at: Micros::from_secs(1_800_000_000), units: 400 });
        let keys = [Key::of_bits(1), Key::of_bits(2)];
        let mut id = String::new();
        keys.iter().for_each(|key| rule.reserve(*key, receipt, 7, &mut id));
        assert_eq!(id.len(), 2 * RESERVATION_DIGITS);
        for key in keys {
            assert_eq!(rule.reserved(key, &id).map(|reserved| reserved.receipt), Some(receipt));
            assert_eq!(other.rules()[0].reserved(key, &id), None, "of another fleet");
        }
        assert_eq!(rule.reserved(Key::of_bits(3), &id), None, "another counter");
        let dearer = id.replacen("0190", "0191", 1);
        assert_ne!(dearer, id);
        assert_eq!(rule.reserved(keys[0], &dearer), None, "what is charged is signed");
        for text in ["", "x", &"+".repeat(RESERVATION_DIGITS), &"é".repeat(RESERVATION_DIGITS / 2), &id[1..]]
        {
            assert_eq!(rule.reserved(keys[0], text), None, "{text}");
        }
        let mut again = String::new();
        rule.reserve(keys[0], receipt, 8, &mut again);
        let settled = |id: &str| rule.reserved(keys[0], id).map(|reserved| reserved.settled);
        assert_ne!(settled(&again), settled(&id), "two reservations are settled each for itself");
    }

    #[test]
    fn there_is_an_end_to_what_an_id_carries() {
        let book = book(1);
        let mut id = String::new();
        for bits in 0..2 * RESERVATION_COUNTERS_MAX as u128 {
            let receipt = Receipt { at: Micros::ZERO, units: 1 };
            book.rules()[0].reserve(Key::of_bits(bits), receipt, 7, &mut id);
        }
        assert_eq!(id.len(), RESERVATION_COUNTERS_MAX * RESERVATION_DIGITS);
    }
}
