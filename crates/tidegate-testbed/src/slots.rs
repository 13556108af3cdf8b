//! Which slot of a cluster a key is in.

/// How many there are.
pub const SLOTS: u16 = 16_384;

/// The slot of a key: of what stands in its first `{…}` if that is not empty, else of all of it.
pub fn slot_of(key: impl AsRef<[u8]>) -> u16 {
    let key = key.as_ref();
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|byte| *byte == b'}').map(|close| &rest[..close])
    });
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM, bit by bit: this is the slow twin of whatever the product does.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(
            crc ^ u16::from(*byte) << 8,
            |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, slot) in [
            ("", 0),
            ("foo", 12_182),
            ("{foo}bar", 12_182),
            ("bar{foo}{zap}", 12_182),
            ("foo{}{bar}", crc16(b"foo{}{bar}") % SLOTS),
            ("foo{{bar}}zap", slot_of("{bar")),
            ("foo{", crc16(b"foo{") % SLOTS),
        ] {
            assert_eq!(slot_of(key), slot, "{key}");
        }
    }
}
