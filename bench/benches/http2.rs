//! Instructions of one call on a connection of HTTP/2: from its frames to the frames of the answer. Without sockets, and without what a
//! node does between.
//!
//! The frames are those of a real client, h2, because what a call costs depends on what its client has the server remember.

#![expect(missing_docs, reason = "the macros of gungraun write public items")]

use std::hint::black_box;

use bytes::Bytes;
use gungraun::{library_benchmark, library_benchmark_group, main};
use http::Request;
use tidegate_http2::{Connection, Event, Field, Then};
use tidegate_server::at_once;
use tidegate_server::rls::SHOULD_RATE_LIMIT;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

/// As long as those of one descriptor. What they say, nobody reads here.
const MESSAGE: &[u8] = &[0; 64];
const ANSWER: &[u8] = &[0; 32];

const CONTENT_TYPE: Field<'static> = (b"content-type", b"application/grpc");
const WELL: Then<'static> = Then::Trailers(&[(b"grpc-status", b"0")]);

/// Calls before the one that is counted: enough to fill what a client may have the server remember, so that the oldest leaves for the new.
const CALLS_BEFORE: usize = 64;
const PIPE_BYTES: usize = 64 << 10;

/// One call, ready to be heard. Leaked on purpose: nothing is dropped while it counts.
struct Prepared {
    server: Connection<()>,
    came: Vec<u8>,
}

#[library_benchmark]
#[bench::http2_call_like_the_last(prepared(false))]
#[bench::http2_call_with_new_headers(prepared(true))]
fn hear(prepared: &'static mut Prepared) -> usize {
    let Prepared { server, came } = black_box(prepared);
    answer(server, came);
    let bytes = server.output().len();
    server.output().clear();
    server.written();
    bytes
}

library_benchmark_group!(name = http2, benchmarks = hear);
main!(library_benchmark_groups = http2);

/// Answers what came, with what a server asks about a call on the way.
fn answer(server: &mut Connection<()>, mut came: &[u8]) {
    while let Ok(Some(event)) = server.next(&mut came) {
        let (Event::Head { stream, .. } | Event::Data { stream, .. }) = event;
        let Some(head) = server.call(stream).map(|(head, ())| head.clone()) else { continue };
        match event {
            Event::Data { data, .. } => {
                server.release(stream, data.len());
                server.respond(stream, 200, &[CONTENT_TYPE], false);
                server.send(stream, ANSWER, WELL, None);
            }
            Event::Head { .. } if head.path() == SHOULD_RATE_LIMIT.as_bytes() => {}
            Event::Head { .. } => server.respond(stream, 404, &[], true),
        }
    }
}

/// A connection on which some calls were answered, and the frames of one more. With `news` each belongs to another trace.
fn prepared(news: bool) -> &'static mut Prepared {
    let (mut server, mut client) = (Connection::new(), Client::new());
    let mut came = client.hear(server.output());
    let mut before = Vec::new();
    for number in 0..=CALLS_BEFORE {
        server.output().clear();
        answer(&mut server, &came);
        client.hear(server.output());
        server.output().clear();
        before = came;
        came = client.call(if news { number } else { 0 });
    }
    // Behind a head of nine bytes, the last of which are the number of the call.
    let headers = |frames: &[u8]| frames[9..][..usize::from(frames[2])].to_vec();
    assert_eq!(headers(&came) == headers(&before), !news, "the same, or others");
    assert_eq!(server.calls(), 0, "all that began were answered");
    Box::leak(Box::new(Prepared { server, came }))
}

/// A client, and the end of the pipe that it speaks into.
struct Client {
    calls: h2::client::SendRequest<Bytes>,
    connection: h2::client::Connection<DuplexStream, Bytes>,
    pipe: DuplexStream,
    /// Calls under way: whoever drops one takes it back.
    answers: Vec<h2::client::ResponseFuture>,
}

impl Client {
    fn new() -> Self {
        let (pipe, end) = duplex(PIPE_BYTES);
        let greeted = at_once(h2::client::handshake(end)).expect("the pipe has room");
        let (calls, connection) = greeted.expect("a connection");
        Self { calls, connection, pipe, answers: Vec::new() }
    }

    /// Tells it what the server says; gives what it says.
    fn hear(&mut self, said: &[u8]) -> Vec<u8> {
        let told = at_once(self.pipe.write_all(said));
        assert!(told.is_some_and(|told| told.is_ok()), "the pipe has room");
        assert!(at_once(&mut self.connection).is_none(), "it goes on");
        let mut says = Vec::new();
        while at_once(self.pipe.read_buf(&mut says)).is_some() {}
        says
    }

    /// The frames of a call that belongs to a trace.
    fn call(&mut self, trace: usize) -> Vec<u8> {
        let request = Request::post(format!("http://rate-limits:8081{SHOULD_RATE_LIMIT}"))
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .header("grpc-timeout", "20m")
            .header("traceparent", format!("00-4bf92f3577b34da6a3ce929d0e0e{trace:04x}-00f067aa0ba902b7-01"))
            .body(())
            .expect("a request");
        let (answer, mut body) = self.calls.send_request(request, false).expect("a call");
        body.send_data(MESSAGE.into(), true).expect("a message");
        self.answers.push(answer);
        self.hear(&[])
    }
}
