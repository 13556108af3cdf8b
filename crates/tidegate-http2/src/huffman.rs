//! Texts in the code of RFC 7541, Appendix B. It is canonical: its lengths say all.

/// The bits of each byte, and of the end.
const BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, //
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, //
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, //
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, //
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, //
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, //
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, //
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, //
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, //
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, //
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, //
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, //
    30,
];
const END: u16 = 256;
const BITS_MIN: usize = 5;
const BITS_MAX: usize = 30;

/// The code, by lengths: the codes of one length follow each other, and those of the next length follow them.
struct Codes {
    /// The first code of each length.
    first: [u32; BITS_MAX + 1],
    /// Behind the last of each length, with zeros behind up to 32 bits. (It may be one bit more.)
    end: [u64; BITS_MAX + 1],
    /// Where the symbols of each length begin.
    at: [usize; BITS_MAX + 1],
    symbols: [u16; 257],
}

static CODES: Codes = {
    let mut codes =
        Codes { first: [0; BITS_MAX + 1], end: [0; BITS_MAX + 1], at: [0; BITS_MAX + 1], symbols: [0; 257] };
    let (mut bits, mut code, mut count) = (BITS_MIN, 0_u32, 0);
    while bits <= BITS_MAX {
        codes.first[bits] = code;
        codes.at[bits] = count;
        let mut symbol = 0;
        while symbol < BITS.len() {
            if BITS[symbol] as usize == bits {
                codes.symbols[count] = symbol as u16;
                count += 1;
                code += 1;
            }
            symbol += 1;
        }
        codes.end[bits] = (code as u64) << (32 - bits);
        code <<= 1;
        bits += 1;
    }
    codes
};

/// What is read by its first byte, as nearly all of a header is: the bits of the code, and the symbol. No bits where it is longer.
static SHORT: [(u8, u8); 256] = {
    let (mut short, mut byte) = ([(0, 0); 256], 0);
    while byte < short.len() {
        let mut bits = BITS_MIN;
        while bits <= 8 && (byte as u64) << 24 >= CODES.end[bits] {
            bits += 1;
        }
        if bits <= 8 {
            let code = byte as u32 >> (8 - bits);
            short[byte] =
                (bits as u8, CODES.symbols[CODES.at[bits] + (code - CODES.first[bits]) as usize] as u8);
        }
        byte += 1;
    }
    short
};

/// Reads a text, and appends it; none if it is not one.
pub(crate) fn read(mut bytes: &[u8], text: &mut Vec<u8>) -> Option<()> {
    text.reserve(bytes.len() * 8 / BITS_MIN);
    // The next bits, the first of them highest, and how many there are.
    let (mut window, mut have) = (0_u64, 0_usize);
    loop {
        if have <= 32
            && let Some((four, rest)) = bytes.split_first_chunk()
        {
            window |= u64::from(u32::from_be_bytes(*four)) << (32 - have);
            have += 32;
            bytes = rest;
        }
        while have < BITS_MAX
            && let Some((&byte, rest)) = bytes.split_first()
        {
            window |= u64::from(byte) << (56 - have);
            have += 8;
            bytes = rest;
        }
        let (bits, symbol) = SHORT[(window >> 56) as usize];
        if bits != 0 && usize::from(bits) <= have {
            text.push(symbol);
            window <<= bits;
            have -= usize::from(bits);
            continue;
        }
        let next = window >> 32;
        let mut bits = BITS_MIN;
        while bits <= BITS_MAX && next >= CODES.end[bits] {
            bits += 1;
        }
        if bits > have || bits > BITS_MAX {
            // What fills up the last byte is the beginning of the end: ones, and fewer than a byte.
            return (have < 8 && window == !(u64::MAX >> have)).then_some(());
        }
        let code = (next >> (32 - bits)) as u32;
        match CODES.symbols[CODES.at[bits] + (code - CODES.first[bits]) as usize] {
            END => return None,
            symbol => text.push(symbol as u8),
        }
        window <<= bits;
        have -= bits;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A text in this code, bit by bit.
    fn written(text: &[u8]) -> Vec<u8> {
        let mut bits = Vec::new();
        for byte in text {
            let length = usize::from(BITS[usize::from(*byte)]);
            let at = CODES.symbols.iter().position(|symbol| *symbol == u16::from(*byte)).expect("a symbol");
            let code = CODES.first[length] + (at - CODES.at[length]) as u32;
            bits.extend((0..length).rev().map(|bit| code >> bit & 1));
        }
        bits.resize(bits.len().next_multiple_of(8), 1);
        bits.chunks(8).map(|byte| byte.iter().fold(0, |all, bit| all << 1 | *bit as u8)).collect()
    }

    fn read_all(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        read(bytes, &mut text).map(|()| text)
    }

    /// RFC 7541, C.4 and C.6.
    #[test]
    fn the_examples_of_the_standard_are_read() {
        for (bytes, text) in [
            (
                &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff][..],
                "www.example.com",
            ),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f], "custom-key"),
            (&[0x64, 0x02], "302"),
            (
                &[
                    0xd0, 0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44, 0xa8, 0x20, 0x05, 0x95, 0x04, 0x0b, 0x81,
                    0x66, 0xe0, 0x82, 0xa6, 0x2d, 0x1b, 0xff,
                ],
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
        ] {
            assert_eq!(read_all(bytes).as_deref(), Some(text.as_bytes()), "{text}");
        }
        assert_eq!(read_all(&[]), Some(vec![]));
    }

    #[test]
    fn what_is_no_text_is_refused() {
        // The last bits are not ones; there is a whole byte of them; the end itself.
        for bytes in
            [&[0x64, 0x02, 0xff][..], &[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xb0], &[0xff; 4], &[0xff], &[0]]
        {
            assert_eq!(read_all(bytes), None, "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(text in prop::collection::vec(any::<u8>(), 0..50)) {
            prop_assert_eq!(read_all(&written(&text)), Some(text));
        }

        #[test]
        fn anything_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            if let Some(text) = read_all(&bytes) {
                prop_assert_eq!(written(&text), bytes, "there is one way to write a text");
            }
        }
    }
}
