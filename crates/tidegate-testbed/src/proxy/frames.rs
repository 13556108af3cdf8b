//! Where one message ends and the next begins: RESP2 and RESP3, without looking at what they say.

/// One message as it came, or bytes that are none.
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    pub(super) kind: FrameKind,
}

/// What the message is.
#[derive(PartialEq, Debug)]
pub(super) enum FrameKind {
    /// A command of this name, in capitals.
    Command(Vec<u8>),
    /// A reply to one.
    Reply,
    /// Nothing that is answered or answers: a push message, an empty line, or bytes that are no RESP.
    Other,
}

/// Commands after which a connection is no longer questions and answers.
const STREAMS: &[&[u8]] = &[b"PSYNC", b"SYNC", b"MONITOR", b"SUBSCRIBE", b"PSUBSCRIBE", b"SSUBSCRIBE"];

/// A message that is longer is passed on as bytes.
const FRAME_MAX: usize = 64 << 20;

/// No message follows these bytes.
#[derive(PartialEq, Debug)]
pub(super) struct NoFrame;

impl FrameKind {
    /// Ends the time of questions and answers.
    pub(super) fn starts_stream(&self) -> bool {
        matches!(self, Self::Command(name) if STREAMS.contains(&name.as_slice()))
    }
}

/// Takes the first command off the bytes, if it is there as a whole.
pub(super) fn command(bytes: &mut Vec<u8>) -> Result<Option<Frame>, NoFrame> {
    let Some(first) = bytes.first() else { return Ok(None) };
    let (end, name) = match first {
        b'*' => {
            let Some(end) = frame_end(bytes)? else { return too_long(bytes) };
            (end, first_bulk(&bytes[..end]))
        }
        // What somebody types, a line; but never what TLS begins with.
        b'\r' | b'\n' | b' '..=b'~' => {
            let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return too_long(bytes) };
            (end + 1, bytes[..end].split(u8::is_ascii_whitespace).find(|word| !word.is_empty()))
        }
        _ => return Err(NoFrame),
    };
    let kind = name.map_or(FrameKind::Other, |name| FrameKind::Command(name.to_ascii_uppercase()));
    let rest = bytes.split_off(end);
    Ok(Some(Frame { bytes: std::mem::replace(bytes, rest), kind }))
}

/// Takes the first reply off the bytes, if it is there as a whole.
pub(super) fn reply(bytes: &mut Vec<u8>) -> Result<Option<Frame>, NoFrame> {
    let Some(first) = bytes.first() else { return Ok(None) };
    let kind = if *first == b'>' { FrameKind::Other } else { FrameKind::Reply };
    let Some(end) = frame_end(bytes)? else { return too_long(bytes) };
    let rest = bytes.split_off(end);
    Ok(Some(Frame { bytes: std::mem::replace(bytes, rest), kind }))
}

fn too_long(bytes: &[u8]) -> Result<Option<Frame>, NoFrame> {
    if bytes.len() > FRAME_MAX { Err(NoFrame) } else { Ok(None) }
}

/// Where the first value ends, if it does.
fn frame_end(bytes: &[u8]) -> Result<Option<usize>, NoFrame> {
    let (mut at, mut values) = (0_usize, 1_u64);
    while values > 0 {
        values -= 1;
        let Some(length) = bytes[at..].iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line = &bytes[at..at + length];
        at += length + 1;
        let count = || {
            let digits = line.get(1..).and_then(|rest| rest.strip_suffix(b"\r")).ok_or(NoFrame)?;
            let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<i64>().ok());
            // Less than none is how RESP2 says that there is nothing.
            number.map(|number| number.max(-1)).ok_or(NoFrame)
        };
        match line.first() {
            Some(b'+' | b'-' | b':' | b',' | b'#' | b'(' | b'_') => {}
            Some(b'$' | b'=' | b'!') => {
                if let Ok(length) = usize::try_from(count()?) {
                    at = at.checked_add(length).and_then(|at| at.checked_add(2)).ok_or(NoFrame)?;
                }
                if at > bytes.len() {
                    return Ok(None);
                }
            }
            Some(b'*' | b'~' | b'>') => values = sum(values, count()?, 1, 0)?,
            Some(b'%') => values = sum(values, count()?, 2, 0)?,
            // What it is about follows it.
            Some(b'|') => values = sum(values, count()?, 2, 1)?,
            _ => return Err(NoFrame),
        }
    }
    Ok(Some(at))
}

fn sum(values: u64, count: i64, each: u64, more: u64) -> Result<u64, NoFrame> {
    let inner = u64::try_from(count).unwrap_or(0).checked_mul(each).ok_or(NoFrame)?;
    values.checked_add(inner).and_then(|values| values.checked_add(more)).ok_or(NoFrame)
}

/// The first word of a command.
fn first_bulk(frame: &[u8]) -> Option<&[u8]> {
    let mut lines = frame.splitn(4, |byte| *byte == b'\n');
    let name = lines.nth(2)?;
    Some(name.strip_suffix(b"\r").unwrap_or(name)).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits the bytes, given one after the other, so that every place where a message can be torn is tried.
    fn split(
        text: &str,
        next: fn(&mut Vec<u8>) -> Result<Option<Frame>, NoFrame>,
    ) -> Vec<(String, FrameKind)> {
        let (mut bytes, mut frames) = (Vec::new(), Vec::new());
        for byte in text.bytes() {
            bytes.push(byte);
            while let Some(frame) = next(&mut bytes).expect("frames") {
                frames.push((String::from_utf8_lossy(&frame.bytes).into_owned(), frame.kind));
            }
        }
        assert!(bytes.is_empty(), "{bytes:?} is left");
        frames
    }

    #[test]
    fn commands_are_told_apart_wherever_they_are_torn() {
        let text = "*1\r\n$4\r\nping\r\n*2\r\n$3\r\nGET\r\n$4\r\n\r\n*1\r\nget a\r\n\r\n*0\r\n";
        let frames = split(text, command);
        let kinds: Vec<_> = frames.iter().map(|(_, kind)| kind).collect();
        let named = |name: &[u8]| FrameKind::Command(name.to_vec());
        let expected = [named(b"PING"), named(b"GET"), named(b"GET"), FrameKind::Other, FrameKind::Other];
        assert_eq!(kinds, expected.iter().collect::<Vec<_>>());
        assert_eq!(frames.iter().map(|(text, _)| text.as_str()).collect::<String>(), text);
    }

    #[test]
    fn replies_of_every_type_are_told_apart_wherever_they_are_torn() {
        let replies = [
            "+OK\r\n",
            "-ERR no\r\n",
            ":1\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "$0\r\n\r\n",
            "$3\r\n\r\n+\r\n",
            "*0\r\n",
            "*2\r\n:1\r\n*1\r\n$1\r\na\r\n",
            ">2\r\n+a\r\n+b\r\n",
            "%1\r\n+a\r\n:1\r\n",
            "~1\r\n_\r\n",
            "|1\r\n+a\r\n:1\r\n#t\r\n",
            "=5\r\ntxt:a\r\n",
            ",1.5\r\n",
            "(12\r\n",
        ];
        let frames = split(&replies.concat(), reply);
        assert_eq!(frames.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>(), replies);
        assert_eq!(
            frames.iter().filter(|(_, kind)| *kind == FrameKind::Other).count(),
            1,
            "the push message"
        );
    }

    #[test]
    fn what_is_no_message_is_noticed() {
        let is_no_command = |bytes: &[u8]| command(&mut bytes.to_vec()).is_err();
        assert!(is_no_command(b"\x16\x03\x01\x02"), "how TLS begins");
        assert!(is_no_command(b"*x\r\n"));
        assert!(reply(&mut b"hello\r\n".to_vec()).is_err());
        assert!(reply(&mut b"*9223372036854775807\r\n%9223372036854775807\r\n".to_vec()).is_err());
    }
}
