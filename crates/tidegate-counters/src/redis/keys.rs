//! What counters are called in the store: `<prefix>{<tag>}<key>`, and which slot of a cluster that is.

use tidegate_core::{Key, Tag};

/// The digits of keys and tags: six bits each, and safe in any shell and log.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// How many slots a cluster has.
const SLOTS: u16 = 16_384;
/// 128 bits, and 32.
const KEY_DIGITS: usize = 22;
const TAG_DIGITS: usize = 6;

/// The name of a counter. Its key alone says which it is; the tag only where it is kept.
pub(super) fn name(prefix: &str, tag: Tag, key: Key) -> Vec<u8> {
    let mut name = Vec::with_capacity(prefix.len() + TAG_DIGITS + KEY_DIGITS + 2);
    name.extend_from_slice(prefix.as_bytes());
    name.push(b'{');
    name.extend_from_slice(&digits::<TAG_DIGITS>(tag.bits().into()));
    name.push(b'}');
    name.extend_from_slice(&digits::<KEY_DIGITS>(key.bits()));
    name
}

/// The slot of all counters with a tag.
pub(super) fn slot(tag: Tag) -> u16 {
    slot_of(&digits::<TAG_DIGITS>(tag.bits().into()))
}

/// The slot of a name. What stands between its first brackets alone says which, if anything does.
pub(super) fn slot_of(name: &[u8]) -> u16 {
    let open = name.iter().position(|byte| *byte == b'{').map(|at| &name[at + 1..]);
    let tag = open.and_then(|rest| Some(&rest[..rest.iter().position(|byte| *byte == b'}')?]));
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(name)) % SLOTS
}

/// The lowest six bits first.
fn digits<const COUNT: usize>(mut bits: u128) -> [u8; COUNT] {
    std::array::from_fn(|_| {
        let digit = DIGITS[bits as usize & 63];
        bits >>= 6;
        digit
    })
}

/// CRC-16/XMODEM, by which clusters place keys.
fn crc16(bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = {
        let mut table = [0; 256];
        let mut at = 0;
        while at < 256 {
            let (mut crc, mut bit) = ((at as u16) << 8, 0);
            while bit < 8 {
                crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
                bit += 1;
            }
            table[at] = crc;
            at += 1;
        }
        table
    };
    bytes.iter().fold(0, |crc, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_a_cluster() {
        assert_eq!(crc16(b"123456789"), 0x31c3, "the check value of the standard");
        assert_eq!(slot_of(b"foo"), 12_182, "as `CLUSTER KEYSLOT foo` says");
        assert_eq!(slot_of(b"a{foo}b{bar}"), 12_182);
        // What is between brackets is nothing, or there is no end to it: all of it counts.
        assert_eq!(
            [slot_of(b"{}foo"), slot_of(b"a{foo")],
            [crc16(b"{}foo") % SLOTS, crc16(b"a{foo") % SLOTS]
        );
    }

    #[test]
    fn names_are_made_of_all_bits_and_never_change() {
        let named = |tag, key| {
            String::from_utf8(name("tg", Tag::of_bits(tag), Key::of_bits(key))).expect("they are letters")
        };
        assert_eq!(named(0, 0), "tg{AAAAAA}AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(named(u32::MAX, u128::MAX), "tg{_____D}_____________________D");
        assert_ne!(named(0, 1), named(0, 1 << 127));
        assert_eq!(slot(Tag::of_bits(7)), slot_of(b"HAAAAA"));
    }
}
