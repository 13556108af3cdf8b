//! Where an answer of RESP ends: the five numbers of throttlecrab's `THROTTLE`, or an error.

use std::io;

use crate::single::wrong;

/// How many numbers an answer has: whether it is an admission, the limit, what is left, and two times.
pub(crate) const NUMBERS: usize = 5;

/// An answer that is there whole.
#[derive(PartialEq, Debug)]
pub(crate) struct Answer {
    pub(crate) bytes: usize,
    /// None if it is an error.
    pub(crate) numbers: Option<[i64; NUMBERS]>,
}

/// The first answer; none if not all of it is there.
pub(crate) fn answer(bytes: &[u8]) -> io::Result<Option<Answer>> {
    let mut lines = Lines { bytes, at: 0 };
    match lines.next() {
        Some(b"*5") => {}
        Some([b'-', ..]) => return Ok(Some(Answer { bytes: lines.at, numbers: None })),
        Some(_) => return Err(wrong("no five numbers, and no error")),
        None => return Ok(None),
    }
    let mut numbers = [0; NUMBERS];
    for number in &mut numbers {
        let Some(line) = lines.next() else { return Ok(None) };
        let text = line.strip_prefix(b":").and_then(|digits| std::str::from_utf8(digits).ok());
        *number = text.and_then(|text| text.parse().ok()).ok_or_else(|| wrong("no number"))?;
    }
    Ok(Some(Answer { bytes: lines.at, numbers: Some(numbers) }))
}

/// Those that have come to their end.
struct Lines<'a> {
    bytes: &'a [u8],
    /// Where the next one begins.
    at: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        const END: &[u8] = b"\r\n";
        let rest = &self.bytes[self.at..];
        let length = rest.windows(END.len()).position(|part| part == END)?;
        self.at += length + END.len();
        Some(&rest[..length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_when_all_of_it_is_there() {
        for (text, numbers) in [
            (&b"*5\r\n:1\r\n:1000\r\n:999\r\n:1\r\n:0\r\n"[..], Some([1, 1_000, 999, 1, 0])),
            (b"*5\r\n:0\r\n:1000\r\n:0\r\n:-1\r\n:86400\r\n", Some([0, 1_000, 0, -1, 86_400])),
            (b"-ERR invalid key\r\n", None),
        ] {
            for cut in 0..text.len() {
                assert_eq!(answer(&text[..cut]).expect("so far"), None, "{cut}");
            }
            let whole = Answer { bytes: text.len(), numbers };
            assert_eq!(answer(text).expect("an answer"), Some(whole));
            // Of two answers the first.
            let two = [text, b":1\r\n"].concat();
            assert_eq!(answer(&two).expect("an answer").expect("whole").bytes, text.len());
        }
    }

    #[test]
    fn what_is_no_answer_is_an_error_and_not_waited_for() {
        for text in [
            &b"+PONG\r\n"[..],
            b":1\r\n",
            b"\r\n",
            b"*4\r\n:1\r\n",
            b"*6\r\n:1\r\n",
            b"*-1\r\n",
            b"*5\r\n$1\r\n1\r\n",
            b"*5\r\n:\r\n",
            b"*5\r\n:1 \r\n",
            b"*5\r\n:9223372036854775808\r\n",
            b"*5\r\n:1\r\n-ERR late\r\n",
        ] {
            assert!(answer(text).is_err(), "{}", text.escape_ascii());
        }
    }
}
