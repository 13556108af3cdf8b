//! What a request says before its body, and what of it is none.

use crate::bounds::{BLOCK_KEPT_BYTES, HEADER_BYTES_ENDLESS, HEADER_BYTES_MAX};
use crate::hpack::ENTRY_BYTES;

/// The headers of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Head {
    /// All texts, one behind the other.
    text: Vec<u8>,
    /// Where the name and the value of each field end.
    fields: Vec<(u32, u32)>,
    pseudo: [Option<u16>; PSEUDO.len()],
    pub(crate) content_length: Option<u64>,
}

/// The fields that say what is asked for.
const PSEUDO: [&[u8]; 4] = [b":method", b":scheme", b":path", b":authority"];
const METHOD: usize = 0;
const SCHEME: usize = 1;
const PATH: usize = 2;
const AUTHORITY: usize = 3;

impl Head {
    /// What is asked for; empty if that is not said.
    pub fn path(&self) -> &[u8] {
        self.pseudo(PATH)
    }

    /// In which way it is asked for.
    pub fn method(&self) -> &[u8] {
        self.pseudo(METHOD)
    }

    /// Of whom it is asked; empty if that is not said.
    pub fn authority(&self) -> &[u8] {
        self.pseudo(AUTHORITY)
    }

    /// All other fields, name and value.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.fields.len()).map(|at| self.field(at)).filter(|(name, _)| !name.starts_with(b":"))
    }

    fn pseudo(&self, which: usize) -> &[u8] {
        self.pseudo[which].map_or(b"", |at| self.field(usize::from(at)).1)
    }

    #[inline]
    fn field(&self, at: usize) -> (&[u8], &[u8]) {
        let (name_end, end) = self.fields[at];
        let start = at.checked_sub(1).map_or(0, |before| self.fields[before].1);
        self.text[start as usize..end as usize].split_at((name_end - start) as usize)
    }

    /// What it takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len() + size_of_val(&*self.fields)
    }

    fn clear(&mut self) {
        self.text.clear();
        self.text.shrink_to(BLOCK_KEPT_BYTES);
        self.fields.clear();
        (self.pseudo, self.content_length) = ([None; PSEUDO.len()], None);
    }
}

/// What came of reading a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Good,
    /// It is none, or forbidden.
    Malformed,
    /// It would be, but is too large.
    TooLarge,
}

/// A head that is read, field by field.
pub(crate) struct Reading<'h> {
    head: &'h mut Head,
    /// Fields behind a body: they say nothing about what is asked for.
    is_trailer: bool,
    is_malformed: bool,
    bytes: usize,
}

impl<'h> Reading<'h> {
    pub(crate) fn new(head: &'h mut Head, is_trailer: bool) -> Self {
        head.clear();
        Self { head, is_trailer, is_malformed: false, bytes: 0 }
    }

    /// Takes one; says whether it is worth while to go on.
    pub(crate) fn field(&mut self, name: &[u8], value: &[u8]) -> bool {
        self.bytes += name.len() + value.len() + ENTRY_BYTES;
        // What is too large is read to its end, but not kept.
        if self.bytes <= HEADER_BYTES_MAX && !self.is_malformed {
            self.keep(name, value);
        }
        !self.is_endless()
    }

    /// Is it so large that its end does not matter?
    pub(crate) fn is_endless(&self) -> bool {
        self.bytes > HEADER_BYTES_ENDLESS
    }

    fn keep(&mut self, name: &[u8], value: &[u8]) {
        // What says what is asked for is looked at last: then it is there.
        let fits = value.iter().all(|byte| is_value(*byte))
            && if name.first() == Some(&b':') { self.pseudo(name) } else { self.regular(name, value) };
        if !fits {
            self.is_malformed = true;
            return;
        }
        self.head.text.extend_from_slice(name);
        let name_end = self.head.text.len() as u32; // All texts together are bounded.
        self.head.text.extend_from_slice(value);
        self.head.fields.push((name_end, self.head.text.len() as u32));
    }

    pub(crate) fn end(self) -> Outcome {
        if self.is_malformed {
            return Outcome::Malformed;
        }
        let has = |which: usize| self.head.pseudo[which].is_some();
        let is_whole = match self.head.method() {
            _ if self.is_trailer => true,
            b"" => false,
            b"CONNECT" => !has(SCHEME) && !has(PATH),
            _ => has(SCHEME) && !self.head.path().is_empty(),
        };
        if self.bytes > HEADER_BYTES_MAX {
            Outcome::TooLarge
        } else if is_whole {
            Outcome::Good
        } else {
            Outcome::Malformed
        }
    }

    /// They come first, and each once.
    fn pseudo(&mut self, name: &[u8]) -> bool {
        let so_far = self.head.pseudo.iter().flatten().count();
        let Some(which) = PSEUDO.iter().position(|known| *known == name) else { return false };
        if self.is_trailer || so_far < self.head.fields.len() || self.head.pseudo[which].is_some() {
            return false;
        }
        self.head.pseudo[which] = Some(so_far as u16);
        true
    }

    fn regular(&mut self, name: &[u8], value: &[u8]) -> bool {
        match name {
            b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => false,
            b"te" => value == b"trailers",
            b"content-length" => {
                let length = std::str::from_utf8(value).ok().filter(|text| !text.starts_with('+'));
                let length = length.and_then(|text| text.parse().ok());
                let is_news = self.head.content_length.is_none_or(|before| Some(before) == length);
                self.head.content_length = length;
                length.is_some() && is_news
            }
            _ => !name.is_empty() && name.iter().all(|byte| is_name(*byte)),
        }
    }
}

/// May it stand in a name? Capital letters may not.
fn is_name(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9')
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// May it stand in a value?
fn is_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 3] = [(":method", "POST"), (":scheme", "http"), (":path", "/a")];

    fn read(fields: &[(&str, &str)], is_trailer: bool) -> (Outcome, Head) {
        let mut head = Head::default();
        let mut reading = Reading::new(&mut head, is_trailer);
        let goes_on = fields.iter().all(|(name, value)| reading.field(name.as_bytes(), value.as_bytes()));
        assert_eq!(goes_on, !reading.is_endless());
        (reading.end(), head)
    }

    fn with(more: &[(&str, &str)]) -> Outcome {
        read(&[&GOOD[..], more].concat(), false).0
    }

    #[test]
    fn a_request_is_read() {
        let fields = [
            &GOOD[..],
            &[(":authority", "node"), ("te", "trailers"), ("content-length", "12"), ("x-a", "ä\t")],
        ];
        let (outcome, head) = read(&fields.concat(), false);
        assert_eq!(outcome, Outcome::Good);
        assert_eq!((head.method(), head.path(), head.authority()), (&b"POST"[..], &b"/a"[..], &b"node"[..]));
        assert_eq!(head.content_length, Some(12));
        let fields: Vec<_> = head.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        let expected = [("te", "trailers"), ("content-length", "12"), ("x-a", "ä\t")];
        assert_eq!(
            fields,
            expected.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        );
        assert_eq!(read(&[("grpc-status", "0")], true).0, Outcome::Good);
        assert_eq!(read(&[(":method", "CONNECT"), (":authority", "a:1")], false).0, Outcome::Good);
    }

    #[test]
    fn what_is_no_request_is_told_apart() {
        assert_eq!(with(&[]), Outcome::Good);
        for more in [
            ("X-Large", "a"),
            ("", "a"),
            ("a b", "c"),
            ("a", "b\r\nc: d"),
            ("a", "\0"),
            ("a", "\x7f"),
            ("connection", "close"),
            ("keep-alive", "1"),
            ("proxy-connection", "a"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "a"),
            ("te", "gzip"),
            ("content-length", "many"),
            ("content-length", "+1"),
            ("content-length", "-1"),
            (":status", "200"),
            (":path", "/b"),
            (":protocol", "a"),
            (":authority", "\0"),
            (":", "a"),
        ] {
            assert_eq!(with(&[more]), Outcome::Malformed, "{more:?}");
        }
        assert_eq!(with(&[("content-length", "1"), ("content-length", "1")]), Outcome::Good);
        assert_eq!(with(&[("content-length", "1"), ("content-length", "2")]), Outcome::Malformed);
        assert_eq!(with(&[("a", "b"), (":authority", "c")]), Outcome::Malformed, "behind another");
        for (wrong, field) in GOOD.iter().enumerate() {
            let mut fields = GOOD;
            fields[wrong].1 = "\n";
            assert_eq!(read(&fields, false).0, Outcome::Malformed, "a wrong {}", field.0);
        }
        for (missing, field) in GOOD.iter().enumerate() {
            let mut fields = GOOD.to_vec();
            fields.remove(missing);
            assert_eq!(read(&fields, false).0, Outcome::Malformed, "without {}", field.0);
        }
        assert_eq!(read(&[(":method", "CONNECT"), (":path", "/")], false).0, Outcome::Malformed);
        let nowhere = [GOOD[0], GOOD[1], (":path", "")];
        assert_eq!(read(&nowhere, false).0, Outcome::Malformed, "a path of nothing");
        assert_eq!(read(&[(":path", "/")], true).0, Outcome::Malformed, "behind the body");
    }

    #[test]
    fn what_is_too_large_is_not_kept() {
        let large = "x".repeat(1_000);
        let fields = [&GOOD[..], &vec![("a", &*large); 70][..]].concat();
        let (outcome, head) = read(&fields, false);
        assert_eq!(outcome, Outcome::TooLarge);
        assert!(head.text.len() <= HEADER_BYTES_MAX);
        let many = [&GOOD[..], &vec![("a", ""); 3_000][..]].concat();
        assert_eq!(read(&many, false).0, Outcome::TooLarge, "each counts for more than its texts");
        let mut head = Head::default();
        let mut reading = Reading::new(&mut head, false);
        let read = (0..1_000).take_while(|_| reading.field(b"a", large.as_bytes())).count();
        assert_eq!(read, HEADER_BYTES_ENDLESS / 1_033, "and there is an end to it");
    }
}
