//! Protobuf as bytes: fields read by borrowing, and written straight into a buffer. Knows no message.

/// Bytes that are no protobuf message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a protobuf message: {0}")]
pub struct Undecodable(pub(super) &'static str);

/// The value of a field, as it stands on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a kind that no field here has.
    Other,
}

impl<'a> Value<'a> {
    pub(super) fn number(self) -> Result<u64, Undecodable> {
        if let Self::Number(number) = self { Ok(number) } else { Err(Undecodable("a field is not a number")) }
    }

    pub(super) fn bytes(self) -> Result<&'a [u8], Undecodable> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(Undecodable("a field is not bytes")) }
    }

    pub(super) fn text(self) -> Result<&'a str, Undecodable> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Undecodable("a text is not UTF-8"))
    }

    pub(super) fn message(self) -> Result<Fields<'a>, Undecodable> {
        self.bytes().map(Fields)
    }
}

/// The fields of a message, in the order of its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next field: its number and value. None is the end.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Undecodable> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Undecodable("a field number is too large"))?;
        if number == 0 {
            return Err(Undecodable("a field has the number 0"));
        }
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => self.take(8).map(|_| Value::Other)?,
            2 => {
                let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Other)?,
            _ => return Err(Undecodable("a field has a kind that does not exist")),
        };
        Ok(Some((number, value)))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Undecodable> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Undecodable("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Undecodable> {
        match self.0 {
            // Tags and lengths nearly always have one byte.
            [byte @ ..0x80, rest @ ..] => {
                self.0 = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Undecodable> {
        let mut number = 0_u64;
        for (at, byte) in self.0.iter().enumerate().take(10) {
            // The tenth byte has room for one bit.
            if at == 9 && *byte > 1 {
                return Err(Undecodable("a number has more than 64 bits"));
            }
            number |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.0 = &self.0[at + 1..];
                return Ok(number);
            }
        }
        Err(Undecodable(if self.0.len() < 10 {
            "it ends too early"
        } else {
            "a number has more than 64 bits"
        }))
    }
}

/// Writes a field with a number; 0 is what is meant without it.
#[inline]
pub(super) fn put_number(out: &mut Vec<u8>, field: u32, number: u64) {
    if number != 0 {
        put_varint(out, u64::from(field << 3));
        put_varint(out, number);
    }
}

/// Writes a field with a number, be it 0.
pub(super) fn put_always(out: &mut Vec<u8>, field: u32, number: u64) {
    put_varint(out, u64::from(field << 3));
    put_varint(out, number);
}

/// Writes a field with a number that may have a fraction, be it 0.
pub(super) fn put_double(out: &mut Vec<u8>, field: u32, number: f64) {
    put_varint(out, u64::from(field << 3 | 1));
    out.extend_from_slice(&number.to_le_bytes());
}

/// Writes a field with bytes, unless there are none.
#[inline]
pub(super) fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_varint(out, u64::from(field << 3 | 2));
        put_varint(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
}

/// Writes a field with a message, be it empty.
#[inline]
pub(super) fn put_message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    put_varint(out, u64::from(field << 3 | 2));
    let start = out.len();
    out.push(0); // Most messages are shorter than 128 bytes, and their length is one.
    write(out);
    let length = out.len() - start - 1;
    if length < 0x80 {
        out[start] = length as u8;
        return;
    }
    let mut varint = Vec::with_capacity(10);
    put_varint(&mut varint, length as u64);
    out.splice(start..=start, varint);
}

#[inline]
fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
