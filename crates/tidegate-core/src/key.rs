//! Keys: the identity of one counter in 128 bits. Strings end here.
//!
//! The values of a descriptor are chosen by clients, so a key is a keyed hash (SipHash-1-3, 128 bits) under a secret of the fleet:
//! nobody without it can find two descriptors that share a counter. Every part is hashed with its length, so no values, whatever
//! bytes they hold, can be mistaken for others that are cut elsewhere.

use std::fmt;

use crate::sip::Sip;

/// The identity of one counter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(u128);

impl Key {
    /// The key with these bits: one that was made before.
    pub const fn of_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// Its bits.
    pub const fn bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:032x}", self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// What a counter is kept near to: counters with the same tag are on the same server of a store that has several, so that one request on
/// all of them is one step there. As much of a keyed hash as it takes to spread over any number of servers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tag(u32);

impl Tag {
    /// The tag with these bits.
    pub const fn of_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Its bits.
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:08x}", self.0)
    }
}

impl Key {
    /// The tag of whatever this key is made from.
    pub const fn tag(self) -> Tag {
        Tag(self.0 as u32)
    }
}

/// What the fleet's keys are hashed under. Another secret means other keys: counters start fresh.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u8; 16]);

impl Secret {
    /// The secret with these bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes, for whoever keeps it.
    pub const fn bytes(&self) -> [u8; 16] {
        self.0
    }

    /// Starts a key.
    pub fn start(&self) -> KeyParts {
        KeyParts(Sip::new(self.0))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(…)") // Never in a log.
    }
}

/// A key in the making. A clone goes on from the same parts: what all keys of a rule share is hashed once.
#[derive(Clone, Copy)]
pub struct KeyParts(Sip);

impl KeyParts {
    /// Adds a part: its length, then its bytes, filled up with zeroes to whole words, which are hashed fastest.
    #[must_use]
    #[inline]
    pub fn part(mut self, bytes: &[u8]) -> Self {
        self.0.write(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.0.write(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            self.0.write(last_word(bytes, rest));
        }
        self
    }

    /// The key of all parts so far.
    #[inline]
    pub fn key(&self) -> Key {
        Key(self.0.finish())
    }
}

/// What is left of some bytes behind their whole words, filled up with zeroes.
#[inline(always)]
fn last_word(bytes: &[u8], rest: &[u8]) -> u64 {
    // The last eight bytes without those that are hashed already: cheaper than to gather the rest.
    match bytes.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last) >> (8 * (8 - rest.len())),
        None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

impl fmt::Debug for KeyParts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("KeyParts(…)") // Holds the secret.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Secret = Secret::new([7; 16]);

    fn key(parts: &[&str]) -> Key {
        parts.iter().fold(SECRET.start(), |start, part| start.part(part.as_bytes())).key()
    }

    #[test]
    fn parts_cannot_be_cut_elsewhere() {
        let keys =
            [key(&["ab", "c"]), key(&["a", "bc"]), key(&["abc"]), key(&["abc", ""]), key(&["", "abc"])];
        for (at, one) in keys.iter().enumerate() {
            assert!(!keys[at + 1..].contains(one), "{keys:?}");
        }
    }

    #[test]
    fn every_byte_of_a_part_counts_whatever_its_length() {
        let bytes: Vec<u8> = (1..=40).collect();
        for len in 0..=bytes.len() {
            let mut padded = bytes[..len].to_vec();
            padded.resize(len.next_multiple_of(8), 0);
            let mut sip = SECRET.start().0;
            sip.write(len as u64);
            for word in padded.as_chunks::<8>().0 {
                sip.write(u64::from_le_bytes(*word));
            }
            assert_eq!(SECRET.start().part(&bytes[..len]).key(), Key(sip.finish()), "{len}");
        }
    }

    #[test]
    fn a_secret_never_shows() {
        assert!(!format!("{SECRET:?} {:?}", SECRET.start()).contains('7'));
    }

    /// Counters outlive a release: these bits are in stores and snapshots.
    #[test]
    fn keys_do_not_change_unnoticed() {
        assert_eq!(key(&["api", "rule", "alice"]).to_string(), "ed8710d9720d91b4510c39d5ee7f8e4c");
    }
}
