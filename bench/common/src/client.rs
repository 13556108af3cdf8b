//! One connection of HTTP/2 with calls of gRPC, made by hand: what every call repeats was encoded once, and what comes back is
//! looked at only as far as it takes to know that a call has ended and how. A library that does more would use as much of the processor
//! as the servers that are measured.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use crate::speech::Speech;

/// The path of Envoy's one call.
pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
/// A frame is no longer than this unless one allows it; we do not.
const FRAME_BYTES_MAX: usize = 16 << 10;
const INPUT_BYTES: usize = 64 << 10;

// Types of frames, and the flags on them.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// What may be sent on a new connection, and what we allow the server beyond that.
const WINDOW: i64 = 65_535;
const WINDOW_MORE: u32 = (1 << 31) - 1 - WINDOW as u32;
/// After so many bytes we allow as many again.
const WINDOW_AGAIN: u32 = 1 << 28;

/// Calls that are in flight are found by their stream, modulo this. As many may be begun while the slowest is in flight.
const PLACES: usize = 1 << 12;

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// `OK`.
    Admitted,
    /// `OVER_LIMIT`.
    Refused,
    /// Either, but nothing was counted, since the store did not answer.
    Degraded,
    /// No answer, or none that is one.
    Failed,
}

/// A call that has ended.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ended {
    /// How.
    pub outcome: Outcome,
    /// What was given when it was begun.
    pub mark: u64,
}

/// Somebody's end of a connection, with calls in flight.
pub trait Connection: AsFd + Sized {
    /// Connects; what it begins with is sent by the first [`Self::flush`].
    fn connect(address: SocketAddr, speech: Speech) -> io::Result<Self>;

    /// How many calls have begun and not ended.
    fn in_flight(&self) -> usize;

    /// Begins a call, unless that is not possible now. It is sent by the next [`Self::flush`].
    fn begin(&mut self, message: &[u8], mark: u64) -> bool;

    /// Sends what can be sent now.
    fn flush(&mut self) -> io::Result<()>;

    /// Is there something that could not be sent?
    fn is_full(&self) -> bool;

    /// Reads what has come, and tells of each call that has ended.
    fn read(&mut self, ended: impl FnMut(Ended)) -> io::Result<()>;
}

/// A call in flight.
#[derive(Clone, Copy)]
struct Place {
    stream: u32,
    outcome: Outcome,
    mark: u64,
}

/// A connection.
pub struct Client {
    socket: TcpStream,
    speech: Speech,
    input: Vec<u8>,
    /// How much of `input` is filled.
    filled: usize,
    output: Vec<u8>,
    next_stream: u32,
    /// What the server allows us to send.
    window: i64,
    /// What came since we allowed the server more.
    received: u32,
    places: Vec<Option<Place>>,
    in_flight: usize,
    /// The headers of the next call.
    headers: Vec<u8>,
}

impl Connection for Client {
    fn connect(address: SocketAddr, speech: Speech) -> io::Result<Self> {
        let path = speech.path().ok_or_else(|| wrong("no call of gRPC"))?;
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let mut output = PREFACE.to_vec();
        frame(&mut output, SETTINGS, 0, 0, &[]);
        frame(&mut output, WINDOW_UPDATE, 0, 0, &WINDOW_MORE.to_be_bytes());
        Ok(Self {
            socket,
            speech,
            input: vec![0; INPUT_BYTES],
            filled: 0,
            output,
            next_stream: 1,
            window: WINDOW,
            received: 0,
            places: vec![None; PLACES],
            in_flight: 0,
            headers: first_headers(&address.to_string(), path),
        })
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Not if the server does not allow it now.
    fn begin(&mut self, message: &[u8], mark: u64) -> bool {
        let stream = self.next_stream;
        let place = &mut self.places[stream as usize / 2 % PLACES];
        if self.window < message.len() as i64 || place.is_some() {
            return false;
        }
        *place = Some(Place { stream, outcome: Outcome::Failed, mark });
        self.in_flight += 1;
        self.window -= message.len() as i64;
        self.next_stream += 2;
        frame(&mut self.output, HEADERS, END_HEADERS, stream, &self.headers);
        if stream == 1 {
            self.headers = next_headers();
        }
        frame(&mut self.output, DATA, END_STREAM, stream, message);
        true
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.output.len() {
            match self.socket.write(&self.output[sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.drain(..sent);
        Ok(())
    }

    fn is_full(&self) -> bool {
        !self.output.is_empty()
    }

    fn read(&mut self, mut ended: impl FnMut(Ended)) -> io::Result<()> {
        loop {
            let room = self.input.len() - self.filled;
            match self.socket.read(&mut self.input[self.filled..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    self.filled += bytes;
                    self.take_frames(&mut ended)?;
                    if bytes < room {
                        return Ok(()); // That was all; if not, we are told again.
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Client {
    fn take_frames(&mut self, ended: &mut impl FnMut(Ended)) -> io::Result<()> {
        // Taken out, so that what it holds can be looked at while the rest of the connection changes.
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        let mut outcome = Ok(());
        while let Some(head) = input[at..self.filled].first_chunk::<HEAD_BYTES>() {
            let [l0, l1, l2, kind, flags, stream @ ..] = *head;
            let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
            if length > FRAME_BYTES_MAX {
                outcome = Err(wrong("a frame that is too long"));
                break;
            }
            let Some(payload) = input[at..self.filled].get(HEAD_BYTES..HEAD_BYTES + length) else { break };
            at += HEAD_BYTES + length;
            outcome = self.take_frame(kind, flags, u32::from_be_bytes(stream), payload, ended);
            if outcome.is_err() {
                break;
            }
        }
        self.input = input;
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
        outcome
    }

    fn take_frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
        ended: &mut impl FnMut(Ended),
    ) -> io::Result<()> {
        match kind {
            DATA | HEADERS if flags & PADDED != 0 => return Err(wrong("a padded frame")),
            DATA => {
                self.received += payload.len() as u32;
                if self.received >= WINDOW_AGAIN {
                    frame(&mut self.output, WINDOW_UPDATE, 0, 0, &self.received.to_be_bytes());
                    self.received = 0;
                }
                let outcome = self.speech.said(payload);
                if let Some(place) = self.place(stream) {
                    place.outcome = outcome;
                }
            }
            // That a call failed is told by headers alone, so these need not be decoded.
            HEADERS if flags & END_HEADERS == 0 => return Err(wrong("headers in several frames")),
            HEADERS => {}
            RST_STREAM => {
                if let Some(place) = self.place(stream) {
                    place.outcome = Outcome::Failed;
                }
            }
            SETTINGS if flags & ACK == 0 => frame(&mut self.output, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(&mut self.output, PING, ACK, 0, payload),
            WINDOW_UPDATE if stream == 0 => {
                let more = payload.first_chunk().ok_or_else(|| wrong("a window without a size"))?;
                self.window += i64::from(u32::from_be_bytes(*more));
            }
            GOAWAY => return Err(wrong("the server says good bye")),
            _ => {}
        }
        let is_last = kind == RST_STREAM || (matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0);
        if is_last
            && let Some(place) = self.places[stream as usize / 2 % PLACES].take_if(|it| it.stream == stream)
        {
            self.in_flight -= 1;
            ended(Ended { outcome: place.outcome, mark: place.mark });
        }
        Ok(())
    }

    fn place(&mut self, stream: u32) -> Option<&mut Place> {
        self.places[stream as usize / 2 % PLACES].as_mut().filter(|place| place.stream == stream)
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
    out.extend(length);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
}

// Numbers of HPACK's static table, and the first of what a connection adds to it.
const METHOD_POST: u8 = 3;
const SCHEME_HTTP: u8 = 6;
const PATH: u8 = 4;
const AUTHORITY: u8 = 1;
const CONTENT_TYPE: u8 = 31;
const FIRST_ADDED: u8 = 62;
/// How many fields are added by the first call: authority, path, content type, te, user agent.
const ADDED: u8 = 5;

/// A field that stands in a table.
const INDEXED: u8 = 0x80;
/// A field that is added to it: its name stands in the table, or follows.
const WITH_NAME: u8 = 0x40;
const NEW_NAME: u8 = 0x40;

/// The first call of a connection spells its headers out, and has the server remember them, as clients do.
fn first_headers(authority: &str, path: &str) -> Vec<u8> {
    let mut out = vec![INDEXED | METHOD_POST, INDEXED | SCHEME_HTTP];
    let text = |out: &mut Vec<u8>, text: &str| {
        debug_assert!(text.len() < 127, "its length is one byte");
        out.push(text.len() as u8);
        out.extend(text.as_bytes());
    };
    for (name, value) in [(AUTHORITY, authority), (PATH, path), (CONTENT_TYPE, "application/grpc")] {
        out.push(WITH_NAME | name);
        text(&mut out, value);
    }
    for (name, value) in [("te", "trailers"), ("user-agent", "tidegate-bench")] {
        out.push(NEW_NAME);
        text(&mut out, name);
        text(&mut out, value);
    }
    out
}

/// All others point at them. What was added last has the first number; fields that begin with a colon have to come first.
fn next_headers() -> Vec<u8> {
    let added = (0..ADDED).rev().map(|at| INDEXED | (FIRST_ADDED + at));
    [INDEXED | METHOD_POST, INDEXED | SCHEME_HTTP].into_iter().chain(added).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn connected() -> (Client, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client =
            Client::connect(listener.local_addr().expect("an address"), Speech::Rls).expect("a connection");
        (client, listener.accept().expect("the other end").0)
    }

    /// Feeds the client, and returns what ended. The socket is not waited for: the bytes are put where a read puts them.
    fn fed(client: &mut Client, bytes: &[u8]) -> io::Result<Vec<Ended>> {
        client.input[client.filled..client.filled + bytes.len()].copy_from_slice(bytes);
        client.filled += bytes.len();
        let mut all = Vec::new();
        client.take_frames(&mut |ended| all.push(ended)).map(|()| all)
    }

    fn answered(stream: u32, code: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame(&mut bytes, HEADERS, END_HEADERS, stream, &[0x88]);
        frame(&mut bytes, DATA, 0, stream, &[0, 0, 0, 0, 2, 8, code]);
        frame(&mut bytes, HEADERS, END_HEADERS | END_STREAM, stream, &[0xbe]);
        bytes
    }

    #[test]
    fn calls_end_in_any_order_each_with_its_own_answer() {
        let (mut client, _server) = connected();
        for mark in [10, 11, 12, 13] {
            assert!(client.begin(b"message", mark));
        }
        let mut failed = Vec::new(); // Headers alone: an error of gRPC.
        frame(&mut failed, HEADERS, END_HEADERS | END_STREAM, 5, &[0x88]);
        let mut reset = Vec::new();
        frame(&mut reset, RST_STREAM, 0, 7, &[0; 4]);
        let bytes = [answered(3, 2), answered(1, 1), failed, reset].concat();
        // In two parts, cut in the middle of a frame.
        let mut all = fed(&mut client, &bytes[..20]).expect("frames");
        all.extend(fed(&mut client, &bytes[20..]).expect("frames"));
        let ended = |outcome, mark| Ended { outcome, mark };
        assert_eq!(
            all,
            [
                ended(Outcome::Refused, 11),
                ended(Outcome::Admitted, 10),
                ended(Outcome::Failed, 12),
                ended(Outcome::Failed, 13),
            ]
        );
        assert_eq!(client.in_flight, 0);
    }

    #[test]
    fn nothing_is_sent_beyond_the_servers_window() {
        let (mut client, _server) = connected();
        let large = vec![0; 60_000];
        assert!(client.begin(&large, 0) && !client.begin(&large, 0));
        let mut more = Vec::new();
        frame(&mut more, WINDOW_UPDATE, 0, 0, &60_000_u32.to_be_bytes());
        fed(&mut client, &more).expect("frames");
        assert!(client.begin(&large, 0));
    }

    #[test]
    fn what_the_generator_does_not_know_is_an_error() {
        let (mut client, _server) = connected();
        for (kind, flags) in [(GOAWAY, 0), (HEADERS, 0), (DATA, PADDED)] {
            let mut bytes = Vec::new();
            frame(&mut bytes, kind, flags, 1, &[0; 8]);
            assert!(fed(&mut client, &bytes).is_err(), "{kind}");
        }
    }
}
