//! Numbers, JSON and values of headers, written piece by piece: every answer has some, and none is worth an allocation.

use arrayvec::ArrayString;

/// What text is written into.
pub(super) trait Put {
    fn put(&mut self, text: &str);

    fn put_number(&mut self, number: u64) {
        self.put(itoa::Buffer::new().format(number));
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, text: &str) {
        self.extend_from_slice(text.as_bytes());
    }
}

/// The longest value of a header.
pub(super) const LINE_BYTES_MAX: usize = 2_048;

/// The value of a header. What does not fit is left out; headers see to it that everything does.
#[derive(Debug, Default)]
pub(super) struct Line(ArrayString<LINE_BYTES_MAX>);

impl Put for Line {
    fn put(&mut self, text: &str) {
        let fits = self.0.try_push_str(text);
        debug_assert!(fits.is_ok(), "{text} does not fit");
    }
}

impl Line {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

/// Writes a number, or `null`.
pub(super) fn put_or_null(out: &mut Vec<u8>, number: Option<u64>) {
    match number {
        Some(number) => out.put_number(number),
        None => out.put("null"),
    }
}

/// Writes a JSON string of what `write` puts into it.
pub(super) fn put_quoted(out: &mut Vec<u8>, write: impl FnOnce(&mut Quoted<'_>)) {
    out.push(b'"');
    write(&mut Quoted(out));
    out.push(b'"');
}

/// The inside of a JSON string.
pub(super) struct Quoted<'o>(&'o mut Vec<u8>);

impl Quoted<'_> {
    pub(super) fn text(&mut self, text: &str) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        for byte in text.bytes() {
            match byte {
                b'"' | b'\\' => self.0.extend_from_slice(&[b'\\', byte]),
                0..0x20 => {
                    self.0.put("\\u00");
                    self.0.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
                }
                _ => self.0.push(byte),
            }
        }
    }

    pub(super) fn number(&mut self, number: u64) {
        self.0.put_number(number);
    }

    /// A text of which only `left` bytes are shown, and whether there was more; takes what it shows off `left`. After the cut nothing
    /// is shown.
    pub(super) fn capped(&mut self, text: &str, left: &mut Option<usize>) {
        let Some(room) = *left else { return };
        if text.len() <= room {
            *left = Some(room - text.len());
            return self.text(text);
        }
        self.text(&text[..text.floor_char_boundary(room)]);
        self.text("…");
        *left = None;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_written_as_everybody_does() {
        for number in [0, 1, 9, 10, 99, 100, 4_294_967_295, u64::MAX] {
            let mut out = Vec::new();
            out.put_number(number);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }

    proptest! {
        #[test]
        fn every_text_comes_back_from_json(text in any::<String>()) {
            let mut out = Vec::new();
            put_quoted(&mut out, |quoted| quoted.text(&text));
            prop_assert_eq!(serde_json::from_slice::<String>(&out)?, text);
        }

        #[test]
        fn a_long_text_is_cut_between_characters(
            texts in prop::collection::vec("\\PC{0,9}", 0..6),
            room in 0_usize..40,
        ) {
            let (mut out, mut left) = (Vec::new(), Some(room));
            put_quoted(&mut out, |quoted| texts.iter().for_each(|text| quoted.capped(text, &mut left)));
            let (shown, whole) = (serde_json::from_slice::<String>(&out)?, texts.concat());
            match shown.strip_suffix('…').filter(|_| left.is_none()) {
                None => prop_assert_eq!(shown, whole),
                Some(start) => {
                    prop_assert!(start.len() <= room && room < whole.len() && whole.starts_with(start));
                    prop_assert!(room - start.len() < 4, "no more is cut off than has to be");
                }
            }
        }
    }
}
