//! Where an answer of HTTP/1.1 ends.

use std::io;

use crate::single::wrong;

/// An answer that is there whole.
#[derive(PartialEq, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body_at: usize,
    pub(crate) bytes: usize,
}

/// The first answer; none if not all of it is there.
pub(crate) fn answer(bytes: &[u8]) -> io::Result<Option<Answer>> {
    const END: &[u8] = b"\r\n\r\n";
    let Some(head) = bytes.windows(END.len()).position(|part| part == END) else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..head]).map_err(|_| wrong("a head that is no text"))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") { value.trim().parse::<usize>().ok() } else { None }
    });
    let (Some(status), Some(length)) = (status, length) else {
        return Err(wrong("an answer without a status or a length"));
    };
    let (body_at, bytes_all) = (head + END.len(), head + END.len() + length);
    Ok((bytes.len() >= bytes_all).then_some(Answer { status, body_at, bytes: bytes_all }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_when_all_of_it_is_there() {
        let text = b"HTTP/1.1 429 Too Many Requests\r\nServer: x\r\ncontent-Length: 3\r\n\r\nno\n";
        for cut in 0..text.len() {
            assert_eq!(answer(&text[..cut]).expect("so far"), None, "{cut}");
        }
        let whole = answer(text).expect("an answer").expect("whole");
        assert_eq!((whole.status, &text[whole.body_at..]), (429, &b"no\n"[..]));
        assert!(answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
        assert!(answer(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").is_err());
    }
}
