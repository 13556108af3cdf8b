//! Clients of HTTP/2 who say anything. The first byte says how their words are cut into pieces, the rest is what they say once they have
//! greeted.

use tidegate_http2::{Connection, Event, STREAMS_MAX, Then};

const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Has a server hear it, whole and in pieces: the same is heard and said, nothing breaks, and no more is kept than may be.
pub fn converse(bytes: &[u8]) {
    let Some((piece, bytes)) = bytes.split_first() else { return };
    let whole = hear(bytes, usize::MAX);
    let pieces = hear(bytes, usize::from(*piece).max(1));
    assert_eq!(whole, pieces, "pieces make a difference");
}

/// What was heard, what was said, and whether the connection broke.
fn hear(bytes: &[u8], piece: usize) -> (Vec<String>, Vec<u8>, bool) {
    let mut server: Connection<()> = Connection::new();
    let (mut events, mut waiting) = (Vec::new(), GREETING.to_vec());
    let mut pieces = bytes.chunks(piece);
    loop {
        let mut rest = &waiting[..];
        loop {
            match server.next(&mut rest) {
                Ok(Some(event)) => {
                    events.push(format!("{event:?}"));
                    answer(&mut server, event);
                }
                Ok(None) => break,
                Err(_) => return (events, std::mem::take(server.output()), true),
            }
        }
        assert!(server.calls() <= STREAMS_MAX);
        waiting = rest.to_vec();
        match pieces.next() {
            Some(piece) => waiting.extend_from_slice(piece),
            None => return (events, std::mem::take(server.output()), false),
        }
    }
}

/// Answers some calls at once, others not at all, some in two parts.
fn answer(server: &mut Connection<()>, event: Event<'_>) {
    let Event::Data { stream, data, end } = event else { return };
    if stream % 8 != 3 {
        server.release(stream, data.len());
    }
    if let Some((head, ())) = server.call(stream) {
        assert!(head.fields().all(|(name, _)| !name.is_empty() && !name.starts_with(b":")));
    }
    match stream % 8 {
        1 if end => {
            server.respond(stream, 200, &[(b"content-type", b"application/grpc")], false);
            server.send(stream, data, Then::Trailers(&[(b"grpc-status", b"0")]), None);
        }
        5 => {
            server.respond(stream, 200, &[], false);
            server.send(stream, data, Then::More, None);
            server.send(stream, data, Then::End, None);
        }
        _ => {}
    }
}
