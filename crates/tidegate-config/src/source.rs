//! The files of one load, and places in them.

use std::fmt;
use std::sync::Arc;

use crate::codes::Code;
use crate::diagnostic::Diagnostic;
use crate::theirs;

/// A piece of a source, in bytes. `end` is the byte behind it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span {
    /// Which of the [`Sources`].
    pub source: u32,
    /// Its first byte.
    pub start: u32,
    /// The byte behind its last.
    pub end: u32,
}

impl Span {
    /// From the start of this to the end of the other, which stands behind it in the same source.
    pub fn to(self, end: Self) -> Self {
        Self { end: end.end.max(self.end), ..self }
    }
}

/// A place as people count it: from 1, columns in characters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineColumn {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

impl fmt::Display for LineColumn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.line, self.column)
    }
}

/// All the files of one load. Spans point into it.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<File>,
}

#[derive(Clone, Debug)]
struct File {
    name: String,
    /// Shared with the trees made from it, so that files can be added while others are read.
    text: Arc<String>,
    /// How many lines end before each block of [`BLOCK_BYTES`]. A table of all lines would be four times as large as
    /// a file of empty ones.
    lines_before: Vec<u32>,
}

const BLOCK_BYTES: usize = 512;

/// What is kept of a file behind the first byte that is no UTF-8, so that a diagnostic can show the place.
const BROKEN_TAIL_BYTES: usize = 80;

impl Sources {
    /// No file yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in a file under the name that people know it by.
    ///
    /// Whatever the bytes are, something is kept, so that the diagnostic can point into it.
    pub fn add(&mut self, name: impl Into<String>, bytes: Vec<u8>) -> Result<u32, Diagnostic> {
        let source = self.files.len() as u32;
        let at = |start: usize, end: usize| Span { source, start: start as u32, end: end as u32 };
        let (text, trouble) = match decode(bytes) {
            Ok(text) => (text, None),
            Err(Undecodable::TooLarge { bytes }) => {
                let message = format!("the file has {bytes} bytes, more than can be read");
                (String::new(), Some(Diagnostic::new(Code::TooLarge, at(0, 0), message)))
            }
            Err(Undecodable::Utf16) => {
                let trouble = Diagnostic::new(Code::NotUtf8, at(0, 0), "the file is UTF-16, not UTF-8");
                (String::new(), Some(trouble.help("save it as UTF-8, e.g. `iconv -f UTF-16 -t UTF-8 FILE`")))
            }
            Err(Undecodable::Broken { text, byte, offset }) => {
                let message = format!("byte {offset} (0x{byte:02x}) is not UTF-8");
                let end = offset + char::REPLACEMENT_CHARACTER.len_utf8();
                let trouble = Diagnostic::new(Code::NotUtf8, at(offset, end), message)
                    .theirs(theirs::loading("invalid leading UTF-8 octet"))
                    .label("the text is unreadable from here")
                    .help("save the file as UTF-8; if it is Latin-1: `iconv -f LATIN1 -t UTF-8 FILE`");
                (text, Some(trouble))
            }
        };
        let lines_before = count_lines(&text);
        self.files.push(File { name: name.into(), text: Arc::new(text), lines_before });
        match trouble {
            None => Ok(source),
            Some(trouble) => Err(trouble),
        }
    }

    /// Every file: its name and its text, in the order in which they came.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|file| (file.name.as_str(), file.text.as_str()))
    }

    /// The name of a file, as shown.
    pub fn name(&self, source: u32) -> &str {
        self.files.get(source as usize).map_or("?", |file| &file.name)
    }

    /// The text of a file.
    pub fn text(&self, source: u32) -> &str {
        self.files.get(source as usize).map_or("", |file| &file.text)
    }

    pub(crate) fn shared_text(&self, source: u32) -> Arc<String> {
        self.files.get(source as usize).map(|file| file.text.clone()).unwrap_or_default()
    }

    /// The text of a span, as written.
    pub fn slice(&self, span: Span) -> &str {
        self.text(span.source).get(span.start as usize..span.end as usize).unwrap_or("")
    }

    /// Writes over what must not be shown, without moving anything behind it.
    pub(crate) fn hide(&mut self, span: Span) {
        let Some(file) = self.files.get_mut(span.source as usize) else { return };
        let (start, end) = (floor(&file.text, span.start as usize), floor(&file.text, span.end as usize));
        if start < end {
            Arc::make_mut(&mut file.text).replace_range(start..end, &"*".repeat(end - start));
        }
    }

    /// Where a byte of a file stands.
    pub fn place(&self, source: u32, offset: u32) -> LineColumn {
        let Some(file) = self.files.get(source as usize) else { return LineColumn { line: 1, column: 1 } };
        let offset = floor(&file.text, offset as usize);
        let block = (offset / BLOCK_BYTES).min(file.lines_before.len().saturating_sub(1));
        let before = file.lines_before.get(block).copied().unwrap_or(0) as usize;
        let bytes = file.text.as_bytes();
        let since = bytes[block * BLOCK_BYTES..offset].iter().filter(|byte| **byte == b'\n').count();
        let line_start = line_start(&file.text, offset);
        // The mark at the start of a file is no character of its first line.
        let line = file.text[line_start..offset].trim_start_matches('\u{feff}');
        LineColumn { line: before + since + 1, column: line.chars().count() + 1 }
    }

    /// `file:line:column` of the start of a span.
    pub fn describe(&self, span: Span) -> String {
        format!("{}:{}", self.name(span.source), self.place(span.source, span.start))
    }
}

/// Where the line of this byte starts.
pub(crate) fn line_start(text: &str, offset: usize) -> usize {
    text[..offset].rfind('\n').map_or(0, |newline| newline + 1)
}

/// The nearest start of a character at or before this byte.
pub(crate) fn floor(text: &str, offset: usize) -> usize {
    text.floor_char_boundary(offset.min(text.len()))
}

enum Undecodable {
    TooLarge { bytes: usize },
    Utf16,
    Broken { text: String, byte: u8, offset: usize },
}

fn decode(bytes: Vec<u8>) -> Result<String, Undecodable> {
    if bytes.len() >= u32::MAX as usize {
        return Err(Undecodable::TooLarge { bytes: bytes.len() });
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(Undecodable::Utf16);
    }
    String::from_utf8(bytes).map_err(|broken| {
        let offset = broken.utf8_error().valid_up_to();
        let mut bytes = broken.into_bytes();
        let byte = bytes[offset];
        // Behind the broken byte only a little is kept: a replacement takes three bytes for one.
        let tail_end = bytes.len().min(offset + 1 + BROKEN_TAIL_BYTES);
        let tail = String::from_utf8_lossy(&bytes[offset + 1..tail_end]).into_owned();
        bytes.truncate(offset);
        let mut text = String::from_utf8(bytes).unwrap_or_default();
        text.push(char::REPLACEMENT_CHARACTER);
        text.push_str(tail.lines().next().unwrap_or(""));
        Undecodable::Broken { text, byte, offset }
    })
}

fn count_lines(text: &str) -> Vec<u32> {
    let mut lines = 0;
    let mut before = Vec::with_capacity(text.len() / BLOCK_BYTES + 1);
    for block in text.as_bytes().chunks(BLOCK_BYTES) {
        before.push(lines);
        lines += block.iter().filter(|byte| **byte == b'\n').count() as u32;
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_from_one_and_columns_in_characters() {
        let mut sources = Sources::new();
        let text = format!("{}\nä: ö\r\nx", "y\n".repeat(20_000));
        let source = sources.add("a.yaml", text.clone().into()).unwrap_or(9);
        for (needle, line, column) in [("ö", 20_002, 4), ("x", 20_003, 1), ("y", 1, 1)] {
            let offset = text.find(needle).unwrap_or(0) as u32;
            assert_eq!(sources.place(source, offset), LineColumn { line, column }, "{needle}");
        }
        assert_eq!(sources.place(source, u32::MAX), LineColumn { line: 20_003, column: 2 });
        assert_eq!(sources.place(7, 1), LineColumn { line: 1, column: 1 });
    }

    #[test]
    fn a_byte_that_is_no_utf8_is_shown_where_it_stands() {
        let mut sources = Sources::new();
        let trouble = sources.add("a.yaml", b"a: b\nc: \xe4\xff\nd".to_vec()).err();
        let at = trouble.and_then(|trouble| trouble.at).unwrap_or_default();
        assert_eq!(sources.describe(at), "a.yaml:2:4");
        assert_eq!(sources.slice(at), "\u{fffd}");
        for bom in [[0xff, 0xfe, b'a', 0], [0xfe, 0xff, 0, b'a']] {
            assert!(
                sources.add("b.yaml", bom.to_vec()).is_err_and(|trouble| trouble.message.contains("UTF-16"))
            );
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_column() {
        let mut sources = Sources::new();
        let source = sources.add("a.yaml", "\u{feff}a: b".into()).unwrap_or(9);
        assert_eq!(sources.place(source, 3), LineColumn { line: 1, column: 1 });
    }
}
