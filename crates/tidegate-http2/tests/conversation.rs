//! What a client may say, what it may not, and what it is told.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};

use proptest::prelude::*;
use tidegate_http2::{Broken, Code, Connection, Delivery, Event, STREAMS_MAX, StreamId, Then};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITIZED: u8 = 32;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const GRPC: (&[u8], &[u8]) = (b"content-type", b"application/grpc");
const WELL: Then<'static> = Then::Trailers(&[(b"grpc-status", b"0")]);

/// What is remembered of a call: how much of it came.
type Server = Connection<usize>;

fn frame(kind: u8, flags: u8, stream: StreamId, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).expect("a length").to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn greeting() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

fn setting(name: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            bytes.push(u8::try_from(text.len()).expect("a short text"));
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}

/// `POST http /`, by the numbers that every table has.
const SHORT: [u8; 3] = [0x83, 0x86, 0x84];

fn head(stream: StreamId) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &SHORT)
}

fn call(stream: StreamId, message: &[u8]) -> Vec<u8> {
    [head(stream), frame(DATA, END_STREAM, stream, message)].concat()
}

fn window(stream: StreamId, more: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes())
}

fn reset(stream: StreamId) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])
}

/// What the client did, as text; of data, how much.
fn told(event: &Event<'_>) -> String {
    match event {
        Event::Head { stream, end } => format!("{stream}{}", if *end { "." } else { "" }),
        Event::Data { stream, data, end } => {
            format!("{stream}:{}{}", data.len(), if *end { "." } else { "" })
        }
    }
}

/// Has a server hear something; what it heard, and how that ended.
fn hear(server: &mut Server, mut bytes: &[u8]) -> (Vec<String>, Result<usize, Broken>) {
    let mut events = Vec::new();
    loop {
        match server.next(&mut bytes) {
            Ok(Some(event)) => {
                events.push(told(&event));
                if let Event::Data { stream, data, .. } = event {
                    server.release(stream, data.len());
                }
            }
            Ok(None) => return (events, Ok(bytes.len())),
            Err(broken) => return (events, Err(broken)),
        }
    }
}

/// The same where nothing goes wrong and nothing is left.
fn heard(server: &mut Server, bytes: &[u8]) -> Vec<String> {
    let (events, ended) = hear(server, bytes);
    assert_eq!(ended, Ok(0));
    events
}

/// A server that was greeted, and whose own greeting was read.
fn greeted() -> Server {
    let mut server = Server::new();
    assert!(heard(&mut server, &greeting()).is_empty());
    server.output().clear();
    server
}

/// What was said to the client: kind, flags, stream and payload of each frame.
fn said(server: &mut Server) -> Vec<(u8, u8, StreamId, Vec<u8>)> {
    let out = std::mem::take(server.output());
    let (mut rest, mut frames) = (&out[..], Vec::new());
    while let Some((head, behind)) = rest.split_first_chunk::<9>() {
        let bytes = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        frames.push((head[3], head[4], stream, behind[..bytes].to_vec()));
        rest = &behind[bytes..];
    }
    assert!(rest.is_empty(), "whole frames");
    frames
}

fn kinds(server: &mut Server) -> Vec<(u8, u8, StreamId)> {
    said(server).into_iter().map(|(kind, flags, stream, _)| (kind, flags, stream)).collect()
}

fn answer(server: &mut Server, stream: StreamId, message: &[u8]) {
    server.respond(stream, 200, &[GRPC], false);
    server.send(stream, message, WELL, None);
}

#[test]
fn a_call_is_heard_and_answered() {
    let mut server = Server::new();
    let greeting_of_ours = kinds(&mut server);
    assert_eq!(greeting_of_ours, [(SETTINGS, 0, 0), (WINDOW_UPDATE, 0, 0)]);
    assert!(!server.is_greeted());
    assert!(heard(&mut server, &greeting()).is_empty());
    assert!(server.is_greeted());
    assert_eq!(kinds(&mut server), [(SETTINGS, ACK, 0)]);
    assert_eq!(heard(&mut server, &call(1, b"hello")), ["1", "1:5."]);
    let (head, _) = server.call(1).expect("a call");
    assert_eq!((head.method(), head.path()), (&b"POST"[..], &b"/"[..]));
    answer(&mut server, 1, b"world");
    let frames = said(&mut server);
    assert_eq!(frames[0].0, HEADERS);
    assert_eq!(frames[1], (DATA, 0, 1, b"world".to_vec()));
    assert_eq!((frames[2].0, frames[2].1), (HEADERS, END_HEADERS | END_STREAM));
    assert_eq!(server.calls(), 0, "it is forgotten");
    // The next is shorter: what was told once has a number.
    assert_eq!(heard(&mut server, &call(3, b"hello")), ["3", "3:5."]);
    answer(&mut server, 3, b"world");
    let frames = said(&mut server);
    assert_eq!((&frames[0].3[..], &frames[2].3[..]), (&[0x88, 0xbf][..], &[0xbe][..]));
    // An answer to nobody is none.
    answer(&mut server, 3, b"world");
    assert!(said(&mut server).is_empty());
}

#[test]
fn headers_come_in_parts_padded_and_with_priorities() {
    let mut server = greeted();
    let fields = block(&[(":method", "POST"), (":scheme", "http"), (":path", "/a"), ("te", "trailers")]);
    let (one, two) = fields.split_at(20);
    let parts = [
        frame(HEADERS, END_STREAM, 1, one),
        frame(CONTINUATION, 0, 1, two),
        frame(CONTINUATION, END_HEADERS, 1, &[]),
    ];
    assert_eq!(heard(&mut server, &parts.concat()), ["1."]);
    assert_eq!(server.call(1).expect("a call").0.path(), b"/a");
    let padded = [&[4, 0, 0, 0, 9, 16][..], &fields, &[0; 4]].concat();
    assert_eq!(heard(&mut server, &frame(HEADERS, END_HEADERS | PADDED | PRIORITIZED, 3, &padded)), ["3"]);
    assert_eq!(heard(&mut server, &frame(DATA, PADDED, 3, &[2, b'a', b'b', b'c', 0, 0])), ["3:3"]);
    // Trailers end it.
    let trailers = block(&[("a", "b")]);
    assert_eq!(heard(&mut server, &frame(HEADERS, END_HEADERS | END_STREAM, 3, &trailers)), ["3:0."]);
    assert!(said(&mut server).is_empty());
}

/// Headers that are told by what the table has are those that were meant, also when it changes in between.
#[test]
fn headers_like_those_before_are_read_again_when_they_mean_something_else() {
    let mut server = greeted();
    let path = |server: &mut Server, stream, block: &[u8]| {
        assert_eq!(heard(server, &frame(HEADERS, END_HEADERS | END_STREAM, stream, block)).len(), 1);
        String::from_utf8(server.call(stream).expect("a call").0.path().to_vec()).expect("text")
    };
    // A path that is kept: number 62. The next one takes that number.
    let keep = |path: &str| [&[0x83, 0x86, 0x44, path.len() as u8][..], path.as_bytes()].concat();
    let newest = [0x83, 0x86, 0xbe];
    assert_eq!(path(&mut server, 1, &keep("/a")), "/a");
    assert_eq!(path(&mut server, 3, &newest), "/a");
    assert_eq!(path(&mut server, 5, &newest), "/a");
    assert_eq!(path(&mut server, 7, &keep("/b")), "/b");
    assert_eq!(path(&mut server, 9, &newest), "/b");
    assert_eq!(path(&mut server, 11, &keep("/b")), "/b");
    assert_eq!(path(&mut server, 13, &[0x83, 0x86, 0xbf]), "/b", "it was told again, and kept again");
    assert_eq!(
        String::from_utf8_lossy(server.call(3).expect("a call").0.path()),
        "/a",
        "who waits keeps its own"
    );
    // Trailers tell the table something as well.
    assert_eq!(heard(&mut server, &frame(HEADERS, END_HEADERS, 15, &newest)), ["15"]);
    let trailers = [&[0x40, 1, b'x', 1][..], b"y"].concat();
    assert_eq!(heard(&mut server, &frame(HEADERS, END_HEADERS | END_STREAM, 15, &trailers)), ["15:0."]);
    let (events, _) = hear(&mut server, &frame(HEADERS, END_HEADERS | END_STREAM, 17, &newest));
    assert!(events.is_empty(), "62 is no path any more");
    assert_eq!(said(&mut server), [(RST_STREAM, 0, 17, vec![0, 0, 0, 1])]);
}

#[test]
fn what_ends_a_connection() {
    let fields = block(&[(":method", "POST"), (":scheme", "http"), (":path", "/")]);
    let many = [frame(HEADERS, 0, 1, &fields), frame(CONTINUATION, 0, 1, &[0; 5_000]).repeat(30)].concat();
    for (bytes, code, what) in [
        (frame(DATA, 0, 0, b"a"), Code::Protocol, "data of no call"),
        (frame(DATA, 0, 1, b"a"), Code::Protocol, "data of a call that did not begin"),
        (frame(DATA, 0, 2, b"a"), Code::Protocol, "data of a call that the server would begin"),
        ([head(1), frame(DATA, PADDED, 1, &[9, 1])].concat(), Code::Protocol, "too much padding"),
        (frame(HEADERS, END_HEADERS, 0, &SHORT), Code::Protocol, "headers of no call"),
        (frame(HEADERS, END_HEADERS, 2, &SHORT), Code::Protocol, "an even number"),
        ([head(3), call(1, b"")].concat(), Code::StreamClosed, "a number below the last"),
        (frame(HEADERS, END_HEADERS | PADDED, 1, &[200, 0x83]), Code::Protocol, "too much padding"),
        (frame(HEADERS, END_HEADERS | PRIORITIZED, 1, &[0, 0, 0]), Code::FrameSize, "half a priority"),
        (
            frame(HEADERS, END_HEADERS | PRIORITIZED, 1, &[0, 0, 0, 1, 0]),
            Code::Protocol,
            "it depends on itself",
        ),
        (frame(HEADERS, END_HEADERS, 1, &[0x80]), Code::Compression, "a block that means nothing"),
        (
            [frame(HEADERS, 0, 1, &SHORT), frame(PING, 0, 0, &[0; 8])].concat(),
            Code::Protocol,
            "a frame within headers",
        ),
        (
            [frame(HEADERS, 0, 1, &SHORT), frame(CONTINUATION, 0, 3, &[])].concat(),
            Code::Protocol,
            "of another call",
        ),
        (frame(CONTINUATION, END_HEADERS, 1, &SHORT), Code::Protocol, "the rest of nothing"),
        (many, Code::EnhanceYourCalm, "headers without end"),
        (
            [frame(HEADERS, 0, 1, &[]), frame(CONTINUATION, 0, 1, &[]).repeat(40)].concat(),
            Code::EnhanceYourCalm,
            "in no bytes",
        ),
        (frame(PRIORITY, 0, 0, &[0; 5]), Code::Protocol, "a priority of no call"),
        (frame(RST_STREAM, 0, 0, &[0; 4]), Code::Protocol, "a reset of no call"),
        (reset(1), Code::Protocol, "a reset of a call that did not begin"),
        ([head(1), frame(RST_STREAM, 0, 1, &[0; 3])].concat(), Code::FrameSize, "three bytes of a reset"),
        (frame(SETTINGS, 0, 1, &[]), Code::Protocol, "settings of a call"),
        (frame(SETTINGS, 0, 0, &[0; 5]), Code::FrameSize, "five bytes of a setting"),
        (frame(SETTINGS, ACK, 0, &[0; 6]), Code::FrameSize, "an acknowledgement that says something"),
        (setting(2, 2), Code::Protocol, "push: two"),
        (setting(4, 1 << 31), Code::FlowControl, "a window beyond all bounds"),
        ([head(1), window(1, 1 << 30), setting(4, i32::MAX as u32)].concat(), Code::FlowControl, "together"),
        (setting(5, 16_383), Code::Protocol, "frames too small"),
        (setting(5, 1 << 24), Code::Protocol, "frames too large"),
        (setting(4, 1).repeat(1_025), Code::EnhanceYourCalm, "settings without end"),
        (frame(PUSH_PROMISE, 0, 1, &[0; 4]), Code::Protocol, "a promise"),
        (frame(PING, 0, 1, &[0; 8]), Code::Protocol, "a ping of a call"),
        (frame(PING, 0, 0, &[0; 7]), Code::FrameSize, "seven bytes of a ping"),
        (frame(GOAWAY, 0, 1, &[0; 8]), Code::Protocol, "the end of a call"),
        (frame(GOAWAY, 0, 0, &[0; 7]), Code::FrameSize, "seven bytes of an end"),
        (window(0, 0), Code::Protocol, "no more window"),
        (window(0, i32::MAX as u32), Code::FlowControl, "too much window"),
        (window(1, 1), Code::Protocol, "a window of a call that did not begin"),
        (frame(WINDOW_UPDATE, 0, 0, &[0; 3]), Code::FrameSize, "three bytes of a window"),
        (frame(DATA, 0, 1, &[0; 16_385]), Code::FrameSize, "a frame that is too large"),
        (frame(77, 0, 0, &[0; 16_385]), Code::FrameSize, "of whatever kind"),
    ] {
        let mut server = greeted();
        let (_, ended) = hear(&mut server, &bytes);
        assert_eq!(ended.map_err(|broken| broken.code), Err(code), "{what}");
        let last = said(&mut server).pop().expect("a last word");
        assert_eq!((last.0, last.3[7]), (GOAWAY, code as u8), "{what}");
    }
    for (bytes, what) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "another protocol"),
        ([PREFACE, &frame(PING, 0, 0, &[0; 8])].concat(), "no settings"),
        ([PREFACE, &frame(SETTINGS, ACK, 0, &[])].concat(), "an answer to settings"),
    ] {
        let (_, ended) = hear(&mut Server::new(), &bytes);
        assert_eq!(ended.map_err(|broken| broken.code), Err(Code::Protocol), "{what}");
    }
}

#[test]
fn what_ends_a_call_and_no_other() {
    let head_of = |fields: &[(&str, &str)], flags| frame(HEADERS, END_HEADERS | flags, 1, &block(fields));
    let good = [(":method", "POST"), (":scheme", "http"), (":path", "/")];
    let long = |length| [&good[..], &[("content-length", length)]].concat();
    for (bytes, code, what) in [
        (head_of(&[(":method", "POST")], 0), Code::Protocol, "no path"),
        (head_of(&[good[0], good[1], good[2], ("Large", "a")], 0), Code::Protocol, "a capital letter"),
        (head_of(&long("1"), END_STREAM), Code::Protocol, "a body that does not come"),
        (
            [head_of(&long("1"), 0), frame(DATA, 0, 1, b"ab")].concat(),
            Code::Protocol,
            "more than was announced",
        ),
        (
            [head_of(&long("3"), 0), frame(DATA, END_STREAM, 1, b"ab")].concat(),
            Code::Protocol,
            "less than was announced",
        ),
        ([head(1), head(1)].concat(), Code::Protocol, "headers twice"),
        (
            [head(1), frame(HEADERS, END_HEADERS | END_STREAM, 1, &SHORT)].concat(),
            Code::Protocol,
            "trailers that ask",
        ),
        (
            [head(1), frame(HEADERS, END_HEADERS, 1, &block(&[("a", "b")]))].concat(),
            Code::Protocol,
            "trailers without end",
        ),
        ([call(1, b"a"), frame(DATA, 0, 1, b"b")].concat(), Code::StreamClosed, "data behind the end"),
        ([call(1, b"a"), head(1)].concat(), Code::StreamClosed, "headers behind the end"),
        ([head(1), window(1, 0)].concat(), Code::Protocol, "no more window"),
        ([head(1), window(1, i32::MAX as u32)].concat(), Code::FlowControl, "too much window"),
        ([head(1), frame(PRIORITY, 0, 1, &[0; 4])].concat(), Code::FrameSize, "four bytes of a priority"),
        ([head(1), frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0])].concat(), Code::Protocol, "it depends on itself"),
        ([head(1), reset(1), frame(DATA, 0, 1, b"a")].concat(), Code::StreamClosed, "data behind a reset"),
    ] {
        let mut server = greeted();
        heard(&mut server, &bytes);
        let expected = (RST_STREAM, 0, 1, u32::to_be_bytes(code as u32).to_vec());
        assert_eq!(said(&mut server), [expected], "{what}");
        assert_eq!(server.calls(), 0, "{what}");
        assert_eq!(heard(&mut server, &call(3, b"a")), ["3", "3:1."], "{what}");
    }
}

#[test]
fn what_means_nothing_is_passed_over() {
    let mut server = greeted();
    for bytes in [
        frame(77, 255, 9, b"whatever"),
        frame(PRIORITY, 0, 7, &[0; 5]),
        setting(99, 1),
        [head(1), reset(1), window(1, 5), reset(1)].concat(),
    ] {
        hear(&mut server, &bytes).1.expect("nothing wrong");
    }
    assert_eq!(kinds(&mut server), [(SETTINGS, ACK, 0)]);
}

#[test]
fn more_calls_than_may_be_are_refused_and_what_they_say_is_passed_over() {
    let mut server = greeted();
    let last = 2 * STREAMS_MAX as u32 - 1;
    for stream in (1..=last).step_by(2) {
        assert_eq!(heard(&mut server, &head(stream)).len(), 1);
    }
    assert!(heard(&mut server, &call(last + 2, b"a")).is_empty());
    assert_eq!(
        said(&mut server),
        [(RST_STREAM, 0, last + 2, vec![0, 0, 0, 7])],
        "once, and it may be tried again"
    );
    assert_eq!(heard(&mut server, &frame(DATA, END_STREAM, 1, b"a")), ["1:1."]);
    answer(&mut server, 1, b"b");
    assert_eq!(heard(&mut server, &head(last + 4)).len(), 1, "there is a place again");
}

#[test]
fn calls_taken_back_end_the_connection_only_without_end() {
    let taken_back = |stream| [call(stream, b"a"), reset(stream)].concat();
    let mut server = greeted();
    let mut streams = (1..).step_by(2);
    for round in 0..3 {
        for stream in streams.by_ref().take(16_000) {
            assert_eq!(hear(&mut server, &taken_back(stream)).1, Ok(0), "round {round}");
        }
        for stream in streams.by_ref().take(16_000) {
            heard(&mut server, &call(stream, b"a"));
            answer(&mut server, stream, b"b");
        }
        server.output().clear();
    }
    let ended = streams.take(20_000).find_map(|stream| hear(&mut server, &taken_back(stream)).1.err());
    assert_eq!(ended.map(|broken| broken.code), Some(Code::EnhanceYourCalm));
}

#[test]
fn who_is_answered_before_its_end_may_go_on_for_a_while() {
    let mut server = greeted();
    heard(&mut server, &[head(1), frame(DATA, 0, 1, b"a")].concat());
    answer(&mut server, 1, b"b");
    assert_eq!(server.calls(), 1, "its end is awaited");
    server.output().clear();
    assert!(heard(&mut server, &frame(DATA, END_STREAM, 1, &[])).is_empty());
    assert_eq!((server.calls(), kinds(&mut server)), (0, vec![]));
    // Who goes on is told once that nobody listens, and then passed over.
    heard(&mut server, &[head(3), frame(DATA, 0, 3, b"a")].concat());
    answer(&mut server, 3, b"b");
    server.output().clear();
    assert!(heard(&mut server, &frame(DATA, 0, 3, b"abc").repeat(10)).is_empty());
    assert_eq!(said(&mut server), [(RST_STREAM, 0, 3, vec![0, 0, 0, 0])]);
    assert!(
        heard(&mut server, &frame(HEADERS, END_HEADERS | END_STREAM, 3, &block(&[("a", "b")]))).is_empty()
    );
    assert!(said(&mut server).is_empty());
}

/// Says when it is delivered, and when it is dropped.
#[derive(Debug)]
struct Parcel(Rc<Cell<&'static str>>);

impl Delivery for Parcel {
    fn delivered(self: Box<Self>) {
        self.0.set("delivered");
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        if self.0.get() != "delivered" {
            self.0.set("dropped");
        }
    }
}

#[test]
fn headers_of_an_answer_are_one_frame() {
    let mut server = greeted();
    heard(&mut server, &call(1, b"a"));
    let (long, short) = (vec![b'x'; 20_000], vec![b'y'; 300]);
    server.respond(1, 200, &[(b"long", &long), (b"short", &short)], true);
    let frames = said(&mut server);
    assert_eq!((frames.len(), frames[0].0), (1, HEADERS));
    assert!((300..400).contains(&frames[0].3.len()), "what does not fit is left out");
    heard(&mut server, &head(3));
    server.close();
    assert_eq!(server.calls(), 0);
}

#[test]
fn an_answer_waits_for_the_window_of_its_call() {
    let mut server = greeted();
    heard(&mut server, &[setting(4, 3), call(1, b"a")].concat());
    let state = Rc::new(Cell::new("on its way"));
    server.respond(1, 200, &[GRPC], false);
    assert!(server.send(1, b"abcdefgh", WELL, Some(Box::new(Parcel(state.clone())))));
    let waits = |server: &mut Server, bytes: &[u8]| {
        assert!(heard(server, bytes).is_empty());
        let frames = said(server).into_iter().filter(|frame| frame.0 == DATA);
        (frames.map(|frame| String::from_utf8(frame.3).expect("text")).collect::<Vec<_>>(), state.get())
    };
    assert_eq!(waits(&mut server, &[]), (vec!["abc".into()], "on its way"));
    assert_eq!(waits(&mut server, &window(0, 5)), (vec![], "on its way"));
    assert_eq!(waits(&mut server, &window(1, 1)), (vec!["d".into()], "on its way"));
    assert_eq!(
        waits(&mut server, &setting(4, 5)),
        (vec!["ef".into()], "on its way"),
        "two more for every call"
    );
    assert_eq!(waits(&mut server, &setting(4, 2)), (vec![], "on its way"), "three less: it is below nothing");
    assert_eq!(waits(&mut server, &window(1, 3)), (vec![], "on its way"));
    assert_eq!(waits(&mut server, &window(1, 9)), (vec!["gh".into()], "on its way"));
    assert_eq!(server.calls(), 0);
    server.written();
    assert_eq!(state.get(), "delivered");

    // Parts of an answer use up one window.
    let mut server = greeted();
    heard(&mut server, &[setting(4, 8), call(1, b"a")].concat());
    server.respond(1, 200, &[GRPC], false);
    server.send(1, b"abcde", Then::More, None);
    server.send(1, b"fghij", Then::End, None);
    assert_eq!(said(&mut server)[2..], [(DATA, 0, 1, b"abcde".to_vec()), (DATA, 0, 1, b"fgh".to_vec())]);
    heard(&mut server, &window(1, 8));
    assert_eq!(said(&mut server), [(DATA, END_STREAM, 1, b"ij".to_vec())]);

    // It goes on waiting when the client has said everything, and while it still speaks.
    heard(&mut server, &[setting(4, 3), head(3)].concat());
    server.respond(3, 200, &[GRPC], false);
    server.send(3, b"abcde", WELL, None);
    server.output().clear();
    assert!(heard(&mut server, &frame(DATA, 0, 3, b"more")).is_empty());
    assert!(heard(&mut server, &frame(DATA, END_STREAM, 3, b"and more")).is_empty());
    assert!(said(&mut server).is_empty());
    heard(&mut server, &window(3, 8));
    assert_eq!(said(&mut server)[0], (DATA, 0, 3, b"de".to_vec()));
    assert_eq!(server.calls(), 0);

    // Taken back, it is not delivered.
    let state = Rc::new(Cell::new("on its way"));
    heard(&mut server, &call(5, b"a"));
    server.respond(5, 200, &[GRPC], false);
    server.send(5, b"abcdefgh", WELL, Some(Box::new(Parcel(state.clone()))));
    heard(&mut server, &reset(5));
    assert_eq!(state.get(), "dropped");
    assert!(!server.send(5, b"more", Then::More, None));

    // Also if it waited for nothing but to be written; and if it never is.
    let answered = |server: &mut Server, stream| {
        let state = Rc::new(Cell::new("on its way"));
        heard(server, &call(stream, b"a"));
        server.respond(stream, 200, &[GRPC], false);
        server.send(stream, b"abc", WELL, Some(Box::new(Parcel(state.clone()))));
        state
    };
    let states = [7, 9, 11].map(|stream| answered(&mut server, stream));
    heard(&mut server, &reset(9));
    assert_eq!(states.each_ref().map(|state| state.get()), ["on its way", "dropped", "on its way"]);
    server.written();
    assert_eq!(states.map(|state| state.get()), ["delivered", "dropped", "delivered"]);
    let state = answered(&mut server, 13);
    server.close();
    assert_eq!(state.get(), "dropped");
}

#[test]
fn few_bytes_that_stand_for_many_are_not_kept() {
    // A value of 4000 bytes has a number: 15 references to it are nearly as much as a request may have.
    let mut server = greeted();
    let long = [&[0x83, 0x86, 0x84, 0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'y'; 4_000]].concat();
    assert_eq!(heard(&mut server, &frame(HEADERS, END_HEADERS | END_STREAM, 1, &long)), ["1."]);
    let heads = |stream: StreamId| {
        let references = vec![0xbe; 14 + (stream / 2 % 2) as usize];
        frame(HEADERS, END_HEADERS | END_STREAM, stream, &[&SHORT[..], &references].concat())
    };
    let taken =
        (3..2_000).step_by(2).filter(|stream| !heard(&mut server, &heads(*stream)).is_empty()).count();
    assert!((60..80).contains(&taken), "{taken} of 60 kB each");
    assert!(said(&mut server).iter().all(|frame| (frame.0, &frame.3[..]) == (RST_STREAM, &[0, 0, 0, 7][..])));
    // Those that are answered need no room, whether they are over or not.
    assert!(heard(&mut server, &setting(4, 0)).is_empty());
    (1..2_000).step_by(2).for_each(|stream| answer(&mut server, stream, b"a"));
    assert!(server.calls() >= 60);
    assert_eq!(heard(&mut server, &heads(2_001)), ["2001."]);
    // And more than four times what a request may have is not even read to its end.
    let references = vec![0xbe; 70];
    let (_, ended) =
        hear(&mut server, &frame(HEADERS, END_HEADERS, 2_003, &[&SHORT[..], &references].concat()));
    assert_eq!(ended.map_err(|broken| broken.code), Err(Code::EnhanceYourCalm));
}

#[test]
fn answers_that_nobody_takes_are_bounded() {
    let mut server = greeted();
    heard(&mut server, &setting(4, 0));
    server.output().clear();
    let large = vec![b'x'; 1 << 20];
    for stream in [1, 3, 5, 7, 9] {
        heard(&mut server, &call(stream, b"a"));
        answer(&mut server, stream, &large);
    }
    let frames = kinds(&mut server);
    assert_eq!(frames.last(), Some(&(RST_STREAM, 0, 9)), "four fit");
    assert_eq!(server.calls(), 4);
    // Who takes some, or takes one back, makes room.
    heard(&mut server, &[reset(1), window(3, 20), call(11, b"a")].concat());
    server.output().clear();
    answer(&mut server, 11, &large);
    assert_eq!(kinds(&mut server), [(HEADERS, END_HEADERS, 11)]);
}

/// Remembers that somebody was woken.
#[derive(Default)]
struct Alarm(AtomicBool);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn who_waits_until_all_is_sent_is_woken() {
    let mut server = greeted();
    heard(&mut server, &[setting(4, 3), call(1, b"a")].concat());
    let alarm = Arc::new(Alarm::default());
    let waker = alarm.clone().into();
    let mut context = Context::from_waker(&waker);
    server.respond(1, 200, &[GRPC], false);
    server.send(1, b"abcdef", Then::More, None);
    assert_eq!(server.poll_sent(1, &mut context), Poll::Pending);
    heard(&mut server, &window(1, 2));
    assert!(!alarm.0.load(Ordering::Relaxed));
    heard(&mut server, &window(1, 2));
    assert!(alarm.0.load(Ordering::Relaxed));
    assert_eq!(server.poll_sent(1, &mut context), Poll::Ready(true));
    heard(&mut server, &reset(1));
    assert_eq!(server.poll_sent(1, &mut context), Poll::Ready(false));
}

#[test]
fn answers_wait_in_line_for_the_window_of_the_connection() {
    let mut server = greeted();
    heard(&mut server, &setting(4, 1 << 20));
    server.output().clear();
    let streams = [1, 3, 5, 7];
    streams.iter().for_each(|stream| drop(heard(&mut server, &call(*stream, b"a"))));
    let large = vec![b'x'; 30_000];
    streams.iter().for_each(|stream| answer(&mut server, *stream, &large));
    let sizes = |server: &mut Server| -> Vec<(StreamId, usize)> {
        said(server)
            .into_iter()
            .filter(|frame| frame.0 == DATA)
            .map(|frame| (frame.2, frame.3.len()))
            .collect()
    };
    let now = sizes(&mut server);
    assert_eq!(now.iter().map(|(_, bytes)| bytes).sum::<usize>(), 65_535);
    assert_eq!(now.last(), Some(&(5, 5_535)));
    heard(&mut server, &reset(5));
    heard(&mut server, &window(0, 10_000));
    assert_eq!(sizes(&mut server), [(7, 10_000)], "who is gone takes nothing");
    heard(&mut server, &window(0, 1 << 20));
    assert_eq!(sizes(&mut server), [(7, 16_384), (7, 3_616)]);
    assert_eq!(server.calls(), 0);
}

#[test]
fn a_client_sends_no_more_than_was_released() {
    // Nothing is released, so all windows are used up.
    let mut server = greeted();
    let mut hear_only = |bytes: &[u8]| {
        let mut bytes = bytes;
        loop {
            match server.next(&mut bytes) {
                Ok(Some(_)) => {}
                Ok(None) => return (kinds(&mut server), Ok(())),
                Err(broken) => return (vec![], Err(broken.code)),
            }
        }
    };
    let piece = |stream| frame(DATA, 0, stream, &[0; 16_000]);
    assert_eq!(hear_only(&[head(1), piece(1).repeat(4)].concat()), (vec![], Ok(())));
    assert_eq!(hear_only(&piece(1)), (vec![(RST_STREAM, 0, 1)], Ok(())));
    let others: Vec<u8> =
        (0..15).flat_map(|at| [head(3 + 2 * at), piece(3 + 2 * at).repeat(4)].concat()).collect();
    assert_eq!(hear_only(&others), (vec![], Ok(())));
    assert_eq!(hear_only(&[head(101), piece(101).repeat(4)].concat()).1, Err(Code::FlowControl));
    // What nobody released is, when its call is gone.
    let mut server = greeted();
    for stream in (1..200).step_by(2) {
        let mut bytes = &[head(stream), piece(stream).repeat(4), reset(stream)].concat()[..];
        while server.next(&mut bytes).expect("there is room").is_some() {}
    }
    // Released, they are told so before they have to wait.
    let mut server = greeted();
    heard(&mut server, &head(1));
    for _ in 0..1_000 {
        assert_eq!(heard(&mut server, &piece(1)), ["1:16000"]);
    }
    let updates = kinds(&mut server);
    assert!(updates.contains(&(WINDOW_UPDATE, 0, 0)) && updates.contains(&(WINDOW_UPDATE, 0, 1)));
    assert!(updates.len() < 700, "not one for every frame: {}", updates.len());
    // What only fills up is released by itself, also where nothing else comes.
    let filled = [&[250][..], &[0; 250]].concat();
    for _ in 0..10_000 {
        assert!(heard(&mut server, &frame(DATA, PADDED, 1, &filled)).is_empty());
    }
    let told = |server: &mut Server, stream| -> u32 {
        let updates = said(server).into_iter().filter(|frame| (frame.0, frame.2) == (WINDOW_UPDATE, stream));
        updates.map(|frame| u32::from_be_bytes(frame.3.try_into().expect("four bytes"))).sum()
    };
    assert!(told(&mut server, 1).abs_diff(2_510_000) < 65_536);
    // Who has said everything needs no more room.
    let last = frame(DATA, END_STREAM, 3, &[0; 16_000]);
    heard(&mut server, &[head(3), frame(DATA, 0, 3, &[0; 16_000]).repeat(2), last].concat());
    assert_eq!(told(&mut server, 3), 0);
}

#[test]
fn mistakes_end_the_connection_only_without_end() {
    let wrong = |stream| [head(stream), window(stream, 0)].concat();
    let mut server = greeted();
    let mut streams = (1..).step_by(2);
    for round in 0..3 {
        for stream in streams.by_ref().take(8_000) {
            assert_eq!(hear(&mut server, &wrong(stream)).1, Ok(0), "round {round}");
        }
        for stream in streams.by_ref().take(8_000) {
            heard(&mut server, &call(stream, b"a"));
            answer(&mut server, stream, b"b");
        }
        server.output().clear();
    }
    let ended = streams.take(10_000).find_map(|stream| hear(&mut server, &wrong(stream)).1.err());
    assert_eq!(ended.map(|broken| broken.code), Some(Code::EnhanceYourCalm));
}

#[test]
fn an_end_is_told_and_what_is_on_its_way_is_answered() {
    let mut server = greeted();
    heard(&mut server, &call(1, b"a"));
    server.leave();
    let frames = said(&mut server);
    assert_eq!(frames[0], (GOAWAY, 0, 0, vec![0x7f, 255, 255, 255, 0, 0, 0, 0]));
    let ping = frames[1].clone();
    assert_eq!((ping.0, ping.1), (PING, 0));
    // A call that was under way before the client heard it is taken.
    assert_eq!(heard(&mut server, &call(3, b"a")), ["3", "3:1."]);
    heard(&mut server, &frame(PING, ACK, 0, &ping.3));
    assert_eq!(said(&mut server), [(GOAWAY, 0, 0, vec![0, 0, 0, 3, 0, 0, 0, 0])]);
    assert!(heard(&mut server, &call(5, b"a")).is_empty(), "a later one is not");
    assert!(!server.is_over());
    answer(&mut server, 1, b"b");
    answer(&mut server, 3, b"b");
    assert!(server.is_over());
    server.leave();
    // An answer to what nobody asked is none.
    let mut server = greeted();
    heard(&mut server, &frame(PING, ACK, 0, &ping.3));
    assert!(!server.is_over());
    // Who has not even greeted is not waited for.
    let mut server = Server::new();
    server.leave();
    assert!(server.is_over());
    // A client may end it as well.
    let mut server = greeted();
    heard(&mut server, &[head(1), frame(GOAWAY, 0, 0, &[0; 8])].concat());
    assert!(!server.is_over());
    server.reset(1, Code::Internal);
    assert!(server.is_over());
}

/// Things that clients do, some of them wrong.
fn act() -> impl Strategy<Value = Vec<u8>> {
    let stream = (0..12_u32).prop_map(|number| 2 * number + 1);
    let data = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        6 => (stream.clone(), data.clone()).prop_map(|(stream, data)| call(stream, &data)),
        3 => stream.clone().prop_map(head),
        3 => (stream.clone(), data.clone(), any::<bool>()).prop_map(|(stream, data, end)| frame(DATA, u8::from(end), stream, &data)),
        2 => stream.clone().prop_map(reset),
        2 => (stream.clone(), 0..100_u32).prop_map(|(stream, more)| window(stream - 1, more)),
        1 => (1..7_u16, 0..70_000_u32).prop_map(|(name, value)| setting(name, value)),
        1 => Just(frame(PING, 0, 0, &[7; 8])),
        1 => (0..11_u8, any::<u8>(), stream, data).prop_map(|(kind, flags, stream, data)| frame(kind, flags, stream, &data)),
    ]
}

/// Has a server hear something in pieces of such lengths, answering every call as soon as it is whole; what it heard and said.
fn in_pieces(bytes: &[u8], lengths: &[usize]) -> (Vec<String>, Vec<u8>, Option<Code>, usize) {
    let (mut server, mut events, mut waiting) = (Server::new(), Vec::new(), Vec::new());
    let mut from = 0_usize;
    for length in lengths.iter().copied().chain([usize::MAX]) {
        let to = from.saturating_add(length).min(bytes.len());
        waiting.extend_from_slice(&bytes[from..to]);
        from = to;
        let mut rest = &waiting[..];
        loop {
            match server.next(&mut rest) {
                Ok(Some(event)) => {
                    events.push(told(&event));
                    if let Event::Data { stream, data, end } = event {
                        server.release(stream, data.len());
                        if end {
                            answer(&mut server, stream, b"an answer");
                        }
                    }
                }
                Ok(None) => break,
                Err(broken) => {
                    let out = std::mem::take(server.output());
                    return (events, out, Some(broken.code), server.calls());
                }
            }
        }
        waiting = rest.to_vec();
    }
    let out = std::mem::take(server.output());
    (events, out, None, server.calls())
}

proptest! {
    /// However the bytes come, they mean the same.
    #[test]
    fn pieces_make_no_difference(
        acts in prop::collection::vec(act(), 0..60),
        lengths in prop::collection::vec(1..60_usize, 0..60),
    ) {
        let bytes = [greeting(), acts.concat()].concat();
        prop_assert_eq!(in_pieces(&bytes, &lengths), in_pieces(&bytes, &[]));
    }

    /// Whatever comes, nothing breaks, and what is said is not much more than what was heard.
    #[test]
    fn anything_may_come(
        acts in prop::collection::vec(act(), 0..30),
        noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
    ) {
        let mut bytes = [greeting(), acts.concat()].concat();
        for (at, byte) in noise {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let (events, out, _, calls) = in_pieces(&bytes, &[]);
        prop_assert!(calls <= events.len());
        prop_assert!(out.len() <= 200 + 12 * bytes.len(), "{} for {}", out.len(), bytes.len());
    }
}
