//! Clients that send too much: resets, pings, headers without end, keys without number. What real clients do must not hurt them, and what
//! attackers do must not hurt others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prost::Message as _;
use rustix::process::Signal;

use crate::support::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, Frames, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    call, call_in_two, field, frame, head, reset, streams,
};
use crate::support::{Node, Setup, asks, descriptor};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { limit: 4000000000/1h }
";

/// Memory moves by itself, with how many calls happened to be in flight; a leak of a hundred bytes for each of 200 000 would show.
const SLACK_BYTES: u64 = 16 << 20;

/// A node with one thread: each keeps some memory for itself, and which of them serves a connection is chance.
fn start() -> Node {
    Setup::new(RULES).set("node-threads", "1").start()
}

fn message(user: &str) -> Vec<u8> {
    asks("shop", [descriptor(&[("user", user)])]).encode_to_vec()
}

/// Asks on another connection, again and again, until told to end; gives how often it was answered.
fn bystander(node: &Node, done: &Arc<AtomicBool>) -> tokio::task::JoinHandle<u64> {
    let (address, done) = (node.rls, done.clone());
    tokio::spawn(async move {
        let rls = crate::support::Grpc::connect(address).await;
        let mut answered = 0;
        while !done.load(Ordering::Relaxed) || answered == 0 {
            let response = rls.ask(&asks("shop", [descriptor(&[("user", "bystander")])])).await;
            assert_eq!(response.overall_code, 1);
            answered += 1;
        }
        answered
    })
}

/// So many calls may be taken back before the node has looked at them; with more it may send the client away.
const RESETS_AT_LEAST: usize = 4_096;

/// Sends so many of what `make` makes for a stream, on as many connections as it takes; gives how many.
async fn flood(node: &Node, count: usize, make: impl Fn(u32) -> Vec<u8>) -> usize {
    let (mut sent, mut connections) = (0, 0);
    while sent < count {
        connections += 1;
        let mut frames = Frames::connect(node.rls).await;
        let mut numbers = streams();
        while sent < count {
            let burst: Vec<u8> = numbers.by_ref().take(500).flat_map(&make).collect();
            if !frames.send_and_read(&burst).await {
                break;
            }
            sent += 500;
        }
    }
    connections
}

const FLOOD: usize = 200_000;

/// A flood that must not make the node grow; gives how many connections it took.
async fn stays_small(node: &Node, make: impl Fn(u32) -> Vec<u8>) -> usize {
    flood(node, FLOOD / 4, &make).await;
    let before = node.rss_bytes();
    let connections = flood(node, FLOOD, &make).await;
    let after = node.rss_bytes();
    assert!(after < before + SLACK_BYTES, "from {before} to {after} bytes");
    connections
}

/// Otherwise the first callers wait while the system clears it.
#[test]
fn the_memory_of_counters_is_there_before_anybody_is_let_in() {
    const BYTES: u64 = 128 << 20; // So little that a second is enough on any machine.
    let node = Setup::new(RULES).set("counters-memory", &BYTES.to_string()).start();
    let there = node.rss_bytes();
    assert!(there >= BYTES, "{there} of {BYTES}");
}

#[tokio::test]
async fn a_thousand_calls_and_their_resets_at_once_do_not_end_the_connection() {
    let node = start();
    let mut frames = Frames::connect(node.rls).await;
    let message = message("alice");
    let mut numbers = streams();
    // As Envoy does: the node pauses for longer than its patience, and it takes back every call that is in flight. Several times: what is
    // counted against a client must not add up over the life of the connection.
    for round in 1..=10 {
        let call = if round % 2 == 0 { call } else { call_in_two };
        let taken_back: Vec<u32> = numbers.by_ref().take(1_000).collect();
        let calls: Vec<u8> = taken_back.iter().flat_map(|number| call(*number, &message)).collect();
        let resets: Vec<u8> = taken_back.iter().flat_map(|number| reset(*number)).collect();
        node.signal(Signal::STOP);
        let sent = frames.send(&[calls, resets].concat()).await;
        node.signal(Signal::CONT);
        assert!(sent, "round {round}");
        let next = numbers.next().expect("a number");
        assert!(frames.send(&call(next, &message)).await);
        loop {
            let frame = frames.next().await.expect("the connection lives");
            assert_ne!(frame.kind, GOAWAY, "{frame:?}");
            if (frame.kind, frame.stream) == (DATA, next) {
                break;
            }
        }
    }
    let used = node.used(r#"{"descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}"#).await;
    assert!((10..=10_010).contains(&used[0]), "{used:?}");
}

#[tokio::test]
async fn a_flood_of_resets_takes_no_memory_and_hurts_nobody_else() {
    let node = start();
    let done = Arc::new(AtomicBool::new(false));
    let bystander = bystander(&node, &done);
    let message = message("alice");
    let both = |number| {
        let call = if number % 4 == 1 { call } else { call_in_two };
        [call(number, &message), reset(number)].concat()
    };
    let connections = stays_small(&node, both).await;
    done.store(true, Ordering::Relaxed);
    let answered = bystander.await.expect("the bystander");
    assert!(answered > 0);
    assert!(connections <= 1 + FLOOD / RESETS_AT_LEAST, "{connections} connections");
}

#[tokio::test]
async fn resets_of_calls_whose_message_never_comes_take_no_memory() {
    let node = start();
    let both = |number| [head(number), reset(number)].concat();
    stays_small(&node, both).await;
    assert_eq!(node.rls().await.ask(&asks("shop", [descriptor(&[("user", "a")])])).await.overall_code, 1);
}

#[tokio::test]
async fn calls_that_the_node_has_to_reset_take_no_memory() {
    let node = start();
    // A window that grows beyond all bounds is an error of the stream.
    let wrong = |number| [head(number), frame(WINDOW_UPDATE, 0, number, &i32::MAX.to_be_bytes())].concat();
    let connections = stays_small(&node, wrong).await;
    assert!(connections <= 1 + FLOOD / RESETS_AT_LEAST, "{connections} connections");
}

#[tokio::test]
async fn pings_and_window_updates_with_every_call_do_not_end_the_connection() {
    let node = start();
    let mut frames = Frames::connect(node.rls).await;
    let message = message("alice");
    let pings: Vec<u8> =
        (0..10_000_u64).flat_map(|number| frame(PING, 0, 0, &number.to_be_bytes())).collect();
    assert!(frames.send_and_read(&pings).await);
    for number in streams().take(2_000) {
        let update = frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes());
        let ping = frame(PING, 0, 0, &[7; 8]);
        assert!(frames.send(&[update, call(number, &message), ping].concat()).await);
        assert!(frames.find(DATA, number).await.is_some(), "call {number}");
    }
    // The last ping is answered as well.
    assert!(frames.send(&frame(PING, 0, 0, b"the last")).await);
    while frames.find(PING, 0).await.is_some_and(|frame| frame.flags != ACK || frame.payload != b"the last") {
    }
    let used = node.used(r#"{"descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}"#).await;
    assert_eq!(used, [2_000]);
}

#[tokio::test]
async fn headers_without_end_end_the_connection() {
    let node = start();
    let before = node.rss_bytes();
    let mut frames = Frames::connect(node.rls).await;
    assert!(frames.send(&frame(HEADERS, 0, 1, &field(":method", "POST"))).await);
    let piece = frame(CONTINUATION, 0, 1, &field("x-flood", &"y".repeat(100)));
    let burst = piece.repeat(100);
    // 120 MB, if nobody stopped it.
    let mut bursts = 0;
    while bursts < 10_000 && frames.send_and_read(&burst).await {
        bursts += 1;
    }
    assert!(bursts < 10_000, "it was never stopped");
    assert!(node.rss_bytes() < before + SLACK_BYTES);
    // A large header that ends is too large for a request, and for no more than that.
    let mut frames = Frames::connect(node.rls).await;
    let large: Vec<u8> = (0..800).flat_map(|_| field("x-large", &"y".repeat(100))).collect();
    let mut bytes = head(1);
    bytes[4] = 0; // Not the end of the headers.
    let pieces: Vec<&[u8]> = large.chunks(16_000).collect();
    for (at, piece) in pieces.iter().enumerate() {
        let flags = if at + 1 == pieces.len() { END_HEADERS } else { 0 };
        bytes.extend(frame(CONTINUATION, flags, 1, piece));
    }
    bytes.extend(call(3, &message("alice")));
    assert!(frames.send(&bytes).await);
    assert!(frames.find(DATA, 3).await.is_some(), "the next call is answered");
}

#[tokio::test]
async fn more_calls_at_once_than_may_be_are_refused_one_by_one() {
    let node = start();
    let mut frames = Frames::connect(node.rls).await;
    let heads: Vec<u8> = streams().take(1_200).flat_map(head).collect();
    assert!(frames.send(&heads).await);
    // The first 1024 wait for their messages; the others are refused, and may be tried again elsewhere.
    let mut refused = 0;
    while refused < 1_200 - 1_024 {
        let frame = frames.next().await.expect("the connection lives");
        assert_ne!(frame.kind, GOAWAY);
        if frame.kind == RST_STREAM {
            assert_eq!(frame.payload, [0, 0, 0, 7], "refused");
            refused += 1;
        }
    }
    let data = frame(DATA, 1, 1, &crate::support::grpc::framed(&message("alice")));
    assert!(frames.send(&data).await);
    assert!(frames.find(DATA, 1).await.is_some());
}

#[tokio::test]
async fn a_client_that_takes_no_answers_is_given_no_more_memory() {
    let node = start();
    let message = message("alice");
    let closed = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]); // Windows of no bytes.
    let attack = async |count: usize| {
        let (mut sent, mut connections) = (0, 0);
        while sent < count {
            connections += 1;
            let mut frames = Frames::connect(node.rls).await;
            let (mut numbers, mut goes_on) = (streams(), frames.send(&closed).await);
            while sent < count && goes_on {
                let calls = numbers.by_ref().take(500).flat_map(|number| call(number, &message));
                goes_on = frames.send_and_read(&calls.collect::<Vec<u8>>()).await;
                sent += 500;
            }
        }
        connections
    };
    let mut connections = attack(50_000).await;
    let before = node.rss_bytes();
    connections += attack(100_000).await;
    let after = node.rss_bytes();
    assert!(after < before + SLACK_BYTES, "from {before} to {after} bytes");
    assert_eq!(node.rls().await.ask(&asks("shop", [descriptor(&[("user", "b")])])).await.overall_code, 1);
    let used = node.used(r#"{"descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}"#).await;
    assert!(
        used[0] <= 1_024 * connections,
        "on each connection so many wait, and what is refused is not charged"
    );
    // Who takes its answers later gets them later.
    let mut frames = Frames::connect(node.rls).await;
    assert!(frames.send(&[closed, call(1, &message)].concat()).await);
    assert!(frames.send(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255])).await);
    assert!(frames.find(DATA, 1).await.is_some());
}

#[tokio::test]
async fn a_million_keys_make_no_more_rows_and_no_more_memory() {
    let node = start();
    let flood = async |from: usize, to: usize| {
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let address = node.rls;
                tokio::spawn(async move {
                    let rls = crate::support::Grpc::connect(address).await;
                    for request in (from..to).skip(task).step_by(8) {
                        let users = (0..64).map(|at| format!("{request}-{at}"));
                        let descriptors = users.map(|user| descriptor(&[("user", &user)]));
                        assert_eq!(rls.ask(&asks("shop", descriptors)).await.overall_code, 1);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("answers");
        }
    };
    let rows = async || node.http().await.get("/metrics").await.body.lines().count();
    flood(0, 6_000).await;
    let (rows_before, before) = (rows().await, node.rss_bytes());
    flood(6_000, 16_000).await;
    let (rows_after, after) = (rows().await, node.rss_bytes());
    assert_eq!(rows_before, rows_after);
    assert!(after < before + SLACK_BYTES, "from {before} to {after} bytes");
    assert_eq!(node.metric("ratelimit_decisions_total", "outcome=\"allowed\"").await, 16_000 * 64);
}

#[tokio::test]
async fn messages_that_are_too_large_do_not_end_the_connection_for_the_others() {
    let node = start();
    let mut frames = Frames::connect(node.rls).await;
    let mut numbers = streams();
    let large = [&[0, 0, 32, 0, 0][..], &[b'x'; 16_000]].concat();
    for number in numbers.by_ref().take(1_500) {
        // The rest comes when it is answered already: the client has not seen that yet.
        assert!(frames.send(&[head(number), frame(DATA, 0, number, &large)].concat()).await);
        assert!(frames.find(DATA, number).await.is_some(), "call {number}");
        let rest = frame(DATA, 0, number, &[b'x'; 1_000]).repeat(3);
        assert!(frames.send(&rest).await);
    }
    let next = numbers.next().expect("a number");
    assert!(frames.send(&call(next, &message("alice"))).await);
    assert!(frames.find(DATA, next).await.is_some(), "the next call is answered");
}
