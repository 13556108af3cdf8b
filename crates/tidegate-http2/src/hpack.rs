//! Header blocks as clients send them (RFC 7541): fields by their numbers in a table that both sides keep, or written out.

use std::collections::VecDeque;

use crate::bounds::{BLOCK_KEPT_BYTES, TABLE_BYTES_MAX};
use crate::huffman;

/// What every table begins with.
#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

/// What an entry counts for besides its texts.
pub(crate) const ENTRY_BYTES: usize = 32;
/// No number in a block has to be larger: what is counted by them is shorter.
const NUMBER_MAX: usize = 1 << 24;

/// A block that means nothing, or that nobody wants to hear to its end. What both sides keep differs from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Corrupt;

/// Reads header blocks.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    table: Table,
    /// The texts of the field that is read.
    text: Vec<u8>,
}

/// What the client has us remember.
#[derive(Debug)]
struct Table {
    /// The newest first.
    entries: VecDeque<Entry>,
    bytes: usize,
    bytes_max: usize,
    /// How often it was changed.
    changes: u64,
}

#[derive(Debug)]
struct Entry {
    text: Box<[u8]>,
    name_bytes: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self { entries: VecDeque::new(), bytes: 0, bytes_max: TABLE_BYTES_MAX, changes: 0 }
    }
}

impl Table {
    fn get(&self, number: usize) -> Result<(&[u8], &[u8]), Corrupt> {
        if let Some((name, value)) = number.checked_sub(1).and_then(|at| STATIC.get(at)) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let at = number.checked_sub(1 + STATIC.len()).ok_or(Corrupt)?;
        let entry = self.entries.get(at).ok_or(Corrupt)?;
        Ok(entry.text.split_at(entry.name_bytes))
    }

    fn add(&mut self, text: &[u8], name_bytes: usize) {
        self.changes += 1;
        let bytes = text.len() + ENTRY_BYTES;
        self.shrink(self.bytes_max.saturating_sub(bytes));
        if bytes <= self.bytes_max {
            self.entries.push_front(Entry { text: text.into(), name_bytes });
            self.bytes += bytes;
        }
    }

    fn resize(&mut self, bytes_max: usize) -> Result<(), Corrupt> {
        if bytes_max > TABLE_BYTES_MAX {
            return Err(Corrupt);
        }
        self.changes += 1;
        self.bytes_max = bytes_max;
        self.shrink(bytes_max);
        Ok(())
    }

    /// Forgets the oldest until no more than this is kept.
    fn shrink(&mut self, bytes: usize) {
        while self.bytes > bytes
            && let Some(oldest) = self.entries.pop_back()
        {
            self.bytes -= oldest.text.len() + ENTRY_BYTES;
        }
    }
}

impl Decoder {
    /// How often it was told something to remember: until that changes, the same bytes mean the same.
    pub(crate) fn changes(&self) -> u64 {
        self.table.changes
    }

    /// Reads a block, and tells each field of it, name and value, as long as somebody wants to hear more.
    pub(crate) fn read(
        &mut self,
        block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Corrupt> {
        let (mut rest, mut may_resize) = (block, true);
        while let Some(&first) = rest.first() {
            let goes_on;
            if first & 0x80 != 0 {
                let number = number(&mut rest, 7)?;
                let (name, value) = self.table.get(number)?;
                goes_on = field(name, value);
            } else if first & 0xe0 == 0x20 {
                // Only before the first field.
                let bytes_max = number(&mut rest, 5)?;
                if !may_resize {
                    return Err(Corrupt);
                }
                self.table.resize(bytes_max)?;
                continue;
            } else {
                let keep = first & 0x40 != 0;
                let number = number(&mut rest, if keep { 6 } else { 4 })?;
                self.text.clear();
                if number == 0 {
                    text(&mut rest, &mut self.text)?;
                } else {
                    self.text.extend_from_slice(self.table.get(number)?.0);
                }
                let name_bytes = self.text.len();
                text(&mut rest, &mut self.text)?;
                let (name, value) = self.text.split_at(name_bytes);
                goes_on = field(name, value);
                if keep {
                    self.table.add(&self.text, name_bytes);
                }
            }
            if !goes_on {
                return Err(Corrupt);
            }
            may_resize = false;
        }
        self.text.clear();
        self.text.shrink_to(BLOCK_KEPT_BYTES);
        Ok(())
    }
}

/// A number that begins in the last bits of a byte.
fn number(rest: &mut &[u8], bits: u32) -> Result<usize, Corrupt> {
    let mut next = || {
        let (&first, behind) = rest.split_first().ok_or(Corrupt)?;
        *rest = behind;
        Ok(usize::from(first))
    };
    let mask = (1 << bits) - 1;
    let mut number = next()? & mask;
    if number < mask {
        return Ok(number);
    }
    let mut shift = 0;
    loop {
        let byte = next()?;
        number += (byte & 0x7f) << shift;
        if number > NUMBER_MAX {
            return Err(Corrupt);
        }
        if byte & 0x80 == 0 {
            return Ok(number);
        }
        shift += 7;
        if shift > 28 {
            return Err(Corrupt);
        }
    }
}

/// Reads a text, and appends it.
fn text(rest: &mut &[u8], to: &mut Vec<u8>) -> Result<(), Corrupt> {
    let is_short = rest.first().ok_or(Corrupt)? & 0x80 != 0;
    let bytes = number(rest, 7)?;
    let (text, behind) = rest.split_at_checked(bytes).ok_or(Corrupt)?;
    *rest = behind;
    if is_short {
        return huffman::read(text, to).ok_or(Corrupt);
    }
    to.extend_from_slice(text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16);
        digits.chunks(2).map(|pair| byte(pair).expect("digits")).collect()
    }

    fn read(decoder: &mut Decoder, hex: &str) -> Result<String, Corrupt> {
        let mut fields = Vec::new();
        decoder.read(&bytes(hex), |name, value| {
            fields.push(format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
            true
        })?;
        Ok(fields.join(", "))
    }

    fn table(decoder: &Decoder) -> (usize, usize) {
        (decoder.table.entries.len(), decoder.table.bytes)
    }

    /// RFC 7541, C.2 to C.4: one by one, then three requests on a connection, as they are and shortened.
    #[test]
    fn the_examples_of_the_standard_are_read() {
        let alone = |hex| {
            let mut decoder = Decoder::default();
            (read(&mut decoder, hex).expect("a block"), table(&decoder))
        };
        let custom = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
        assert_eq!(alone(custom), ("custom-key: custom-header".into(), (1, 55)));
        assert_eq!(alone("040c 2f73 616d 706c 652f 7061 7468"), (":path: /sample/path".into(), (0, 0)));
        assert_eq!(alone("1008 7061 7373 776f 7264 0673 6563 7265 74"), ("password: secret".into(), (0, 0)));
        assert_eq!(alone("82"), (":method: GET".into(), (0, 0)));

        let plain = [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ];
        let short = [
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ];
        for blocks in [plain, short] {
            let mut decoder = Decoder::default();
            let head = ":method: GET, :scheme: http, :path: /, :authority: www.example.com";
            let told: Vec<_> = blocks.iter().map(|block| read(&mut decoder, block)).collect();
            assert_eq!(told[0].as_deref(), Ok(head));
            assert_eq!(told[1].as_deref(), Ok(&*format!("{head}, cache-control: no-cache")));
            let third = ":method: GET, :scheme: https, :path: /index.html, :authority: www.example.com, custom-key: custom-value";
            assert_eq!(told[2].as_deref(), Ok(third));
            assert_eq!(table(&decoder), (3, 164));
        }
    }

    /// RFC 7541, C.5: a table of 256 bytes forgets the oldest.
    #[test]
    fn the_oldest_is_forgotten() {
        let mut decoder = Decoder::default();
        decoder.table.resize(256).expect("small");
        let date = "611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d 54";
        let place = "6e17 6874 7470 733a 2f2f 7777 772e 6578 616d 706c 652e 636f 6d";
        let told = read(&mut decoder, &format!("4803 3330 3258 0770 7269 7661 7465 {date} {place}"));
        let fields =
            "cache-control: private, date: Mon, 21 Oct 2013 20:13:21 GMT, location: https://www.example.com";
        assert_eq!(told.as_deref(), Ok(&*format!(":status: 302, {fields}")));
        assert_eq!(table(&decoder), (4, 222));
        let told = read(&mut decoder, "4803 3330 37c1 c0bf");
        assert_eq!(told.as_deref(), Ok(&*format!(":status: 307, {fields}")));
        assert_eq!(table(&decoder), (4, 222));
        // What is larger than the table empties it; a smaller table keeps the newest.
        read(&mut decoder, "3f11").expect("48 bytes");
        assert_eq!(table(&decoder), (1, 42));
        read(&mut decoder, &format!("4001 61 20 {}", "62".repeat(32))).expect("a large field");
        assert_eq!(table(&decoder), (0, 0));
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for (hex, why) in [
            ("80", "the number 0"),
            ("be", "a number that nothing has"),
            ("7e00", "a name that nothing has"),
            ("ff", "a number that does not end"),
            ("ffffffffffff7f", "a number that is too large"),
            ("ff808080808080808080808000", "a number without end"),
            ("3fe21f", "a larger table than was offered"),
            ("8220", "a new size behind a field"),
            ("0005 6162", "a text that does not end"),
            ("00", "a field without a name"),
            ("0001 61", "a field without a value"),
            ("0001 61 81 00", "a short text that is none"),
        ] {
            assert_eq!(read(&mut Decoder::default(), hex), Err(Corrupt), "{why}");
        }
    }

    proptest! {
        /// Whatever comes, no more is kept than was promised, and it is counted right.
        #[test]
        fn anything_is_read_or_refused(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..20)) {
            let mut decoder = Decoder::default();
            for block in blocks {
                let before = decoder.changes();
                let mut told = Vec::new();
                let read = decoder.read(&block, |name, value| {
                    told.push((name.to_vec(), value.to_vec()));
                    true
                });
                let bytes: usize = decoder.table.entries.iter().map(|entry| entry.text.len() + ENTRY_BYTES).sum();
                prop_assert_eq!(decoder.table.bytes, bytes);
                prop_assert!(bytes <= decoder.table.bytes_max && decoder.table.bytes_max <= TABLE_BYTES_MAX);
                if read.is_ok() && decoder.changes() == before {
                    let mut again = Vec::new();
                    let read = decoder.read(&block, |name, value| {
                        again.push((name.to_vec(), value.to_vec()));
                        true
                    });
                    prop_assert_eq!((read, again), (Ok(()), told), "the same bytes mean the same");
                }
            }
        }
    }
}
