//! Header blocks as answers have them. The two fields that every answer of gRPC has are told once and then by their numbers; the others are
//! written out. So there is nothing to look up, and little for clients to read.

use crate::bounds::TABLE_BYTES_MAX;
use crate::stream::Field;

/// What is told once. Together they fit a table of the usual size many times over.
const KEPT: [Field<'static>; 2] = [(b"content-type", b"application/grpc"), (b"grpc-status", b"0")];
/// How many entries a table begins with, and which of them these names have.
const STATIC_ENTRIES: u8 = 61;
const STATUS_200: u8 = 8;
const STATUS: u8 = 8;

/// Writes header blocks.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    /// As the how-manieth each of them was told.
    told: [Option<u8>; KEPT.len()],
    count: u8,
    /// The client wants a smaller table: it gets none, and is told so in the next block.
    is_plain: bool,
    tells_size: bool,
}

impl Encoder {
    /// The client's table has so many bytes from now on.
    pub(crate) fn resize(&mut self, bytes: usize) {
        if bytes < TABLE_BYTES_MAX && !self.is_plain {
            (self.is_plain, self.tells_size) = (true, true);
        }
    }

    /// Begins a block.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.tells_size) {
            out.push(0x20); // From here on, no bytes.
        }
    }

    pub(crate) fn status(&mut self, out: &mut Vec<u8>, status: u16) {
        if status == 200 {
            out.push(0x80 | STATUS_200);
        } else {
            out.push(STATUS);
            text(out, status.to_string().as_bytes());
        }
    }

    pub(crate) fn field(&mut self, out: &mut Vec<u8>, field: Field<'_>) {
        let kept = KEPT.iter().position(|kept| *kept == field).filter(|_| !self.is_plain);
        match kept.map(|at| (at, self.told[at])) {
            // The newest has the lowest number.
            Some((_, Some(told))) => out.push(0x80 | (STATIC_ENTRIES + 1 + self.count - told)),
            Some((at, None)) => {
                self.count += 1;
                self.told[at] = Some(self.count);
                out.push(0x40);
                text(out, field.0);
                text(out, field.1);
            }
            None => {
                out.push(0);
                text(out, field.0);
                text(out, field.1);
            }
        }
    }
}

/// Writes a text as it is.
fn text(out: &mut Vec<u8>, text: &[u8]) {
    const MASK: usize = 0x7f;
    if text.len() < MASK {
        out.push(text.len() as u8);
    } else {
        out.push(MASK as u8);
        let mut rest = text.len() - MASK;
        while rest >= 0x80 {
            out.push(0x80 | (rest & 0x7f) as u8);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::Decoder;

    /// What a client reads.
    fn told(decoder: &mut Decoder, block: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut fields = Vec::new();
        let keep = |name: &[u8], value: &[u8]| {
            fields.push((name.to_vec(), value.to_vec()));
            true
        };
        decoder.read(block, keep).expect("a block");
        fields
    }

    #[test]
    fn a_client_reads_what_was_meant() {
        let long = vec![b'x'; 1_000];
        let long: Field<'_> = (b"grpc-message", &long);
        let blocks: [(Option<u16>, &[Field<'_>]); 8] = [
            (None, &[KEPT[1]]),
            (Some(200), &[KEPT[0]]),
            (None, &[KEPT[1]]),
            (Some(431), &[]),
            (Some(200), &[KEPT[0], (b"grpc-status", b"14"), long]),
            (Some(200), &[KEPT[0], KEPT[1]]),
            (None, &[KEPT[1], (b"content-type", b"text/plain")]),
            (Some(200), &[(b"", b""), KEPT[0]]),
        ];
        // The client's table may become smaller at any time, and larger again.
        for smaller_at in 0..=blocks.len() {
            let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
            for (at, (status, fields)) in blocks.iter().enumerate() {
                if at == smaller_at {
                    encoder.resize(100);
                    encoder.resize(TABLE_BYTES_MAX);
                }
                let mut block = Vec::new();
                encoder.begin(&mut block);
                if let Some(status) = status {
                    encoder.status(&mut block, *status);
                }
                fields.iter().for_each(|field| encoder.field(&mut block, *field));
                assert_eq!(block.first() == Some(&0x20), at == smaller_at, "it is told, once");
                let status = status.map(|status| (b":status".to_vec(), status.to_string().into_bytes()));
                let fields = fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
                let expected: Vec<_> = status.into_iter().chain(fields).collect();
                assert_eq!(told(&mut decoder, &block), expected, "block {at}, smaller at {smaller_at}");
            }
        }
    }

    #[test]
    fn the_second_answer_is_three_bytes() {
        let mut encoder = Encoder::default();
        let mut block = Vec::new();
        for expected in [47, 3] {
            block.clear();
            encoder.begin(&mut block);
            encoder.status(&mut block, 200);
            KEPT.iter().for_each(|field| encoder.field(&mut block, *field));
            assert_eq!(block.len(), expected);
        }
    }
}
