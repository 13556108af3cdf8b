//! What is an error over RLS, and what must not be one: Envoy lets requests pass whose call failed, so a client that can cause errors
//! can pass every limit.

use bytes::{Bytes, BytesMut};
use prost::Message as _;

use crate::support::frames::{DATA, END_STREAM, Frames, frame, head, streams};
use crate::support::grpc::{SHOULD_RATE_LIMIT, framed};
use crate::support::messages::{Descriptor, Response};
use crate::support::{Failed, Grpc, Node, asks, descriptor, until};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { limit: 2/1h }
";

const INVALID_ARGUMENT: i32 = 3;
const DEADLINE_EXCEEDED: i32 = 4;
const UNIMPLEMENTED: i32 = 12;

async fn call(rls: &Grpc, path: &str, bytes: Bytes) -> (i32, String) {
    match rls.call_framed(path, bytes, &[]).await {
        Ok(_) => (0, String::new()),
        Err(Failed::Status(code, message)) => (code, message),
        Err(Failed::Broken(error)) => panic!("{error}"),
    }
}

#[tokio::test]
async fn errors_are_few_and_say_what_is_wrong() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    let alice = asks("shop", [descriptor(&[("user", "alice")])]).encode_to_vec();
    let mut compressed = BytesMut::from(&framed(&alice)[..]);
    compressed[0] = 1;
    let mut cut = framed(&alice);
    cut.truncate(cut.len() - 1);
    for (path, bytes, code, message) in [
        (
            SHOULD_RATE_LIMIT,
            framed(&[0xff; 9]),
            INVALID_ARGUMENT,
            "not a protobuf message: it ends too early",
        ),
        (
            SHOULD_RATE_LIMIT,
            framed(&alice[..9]),
            INVALID_ARGUMENT,
            "not a protobuf message: it ends too early",
        ),
        (
            SHOULD_RATE_LIMIT,
            framed(&asks("", [descriptor(&[])]).encode_to_vec()),
            INVALID_ARGUMENT,
            "the domain must not be empty",
        ),
        (
            SHOULD_RATE_LIMIT,
            framed(&asks("shop", []).encode_to_vec()),
            INVALID_ARGUMENT,
            "the list of descriptors must not be empty",
        ),
        (SHOULD_RATE_LIMIT, framed(&[]), INVALID_ARGUMENT, "the domain must not be empty"),
        (SHOULD_RATE_LIMIT, Bytes::new(), INVALID_ARGUMENT, "the message ends too early"),
        (SHOULD_RATE_LIMIT, cut, INVALID_ARGUMENT, "the message ends too early"),
        (SHOULD_RATE_LIMIT, compressed.freeze(), UNIMPLEMENTED, "compressed messages are not understood"),
        (
            "/envoy.service.ratelimit.v3.RateLimitService/Other",
            framed(&alice),
            UNIMPLEMENTED,
            "there is no method /envoy.service.ratelimit.v3.RateLimitService/Other",
        ),
        ("/", framed(&alice), UNIMPLEMENTED, "there is no method /"),
    ] {
        assert_eq!(call(&rls, path, bytes).await, (code, message.to_string()));
    }
    assert_eq!(node.metric("ratelimit_requests_total", "outcome=\"invalid\"").await, 8);
    let response = rls.ask(&asks("shop", [descriptor(&[("user", "alice")])])).await;
    assert_eq!(response.statuses[0].limit_remaining, 1, "the connection lives, and nothing was charged");
}

#[tokio::test]
async fn a_message_that_does_not_come_ends_by_the_deadline_of_the_client() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    let mut sender = rls.sender();
    let request = http::Request::post(format!("http://node{SHOULD_RATE_LIMIT}"))
        .header("grpc-timeout", "20m")
        .body(())
        .expect("a request");
    let (response, _never_ended) = sender.send_request(request, false).expect("a stream");
    let response = crate::support::soon("an answer", response).await.expect("an answer");
    assert_eq!(response.headers()["grpc-status"], DEADLINE_EXCEEDED.to_string());
}

#[tokio::test]
async fn messages_that_never_came_take_no_room_from_others() {
    let node = crate::support::Setup::new(RULES).set("node-threads", "1").start();
    let mut frames = Frames::connect(node.rls).await;
    // Forty parts of 900 kB are more than is gathered at once. Nobody ends them, and nobody takes them back.
    let mut numbers = streams();
    for stream in numbers.by_ref().take(40) {
        assert!(frames.send(&head(stream)).await);
        let mut part = [&[0, 0, 14, 0, 0][..], &vec![b'x'; 900_000]].concat();
        for piece in part.chunks_mut(16_000) {
            assert!(frames.send_and_read(&frame(DATA, 0, stream, piece)).await);
        }
    }
    // Their time is over after five seconds; then there is room for another message that comes in two parts.
    until("room", async || {
        let stream = numbers.next()?;
        let message = framed(&asks("shop", [descriptor(&[("user", &format!("u{stream}"))])]).encode_to_vec());
        let (one, two) = message.split_at(9);
        let parts = [head(stream), frame(DATA, 0, stream, one), frame(DATA, END_STREAM, stream, two)];
        assert!(frames.send(&parts.concat()).await);
        let answer = frames.find(DATA, stream).await?;
        let response = Response::decode(&answer.payload[5..]).expect("a response");
        (response.overall_code == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_cap_is_no_way_around_a_limit() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    let long = "x".repeat(900_000);
    let left = async |value: &str| {
        let response = rls.ask(&asks("shop", [descriptor(&[("user", value)])])).await;
        (response.overall_code, response.statuses[0].limit_remaining)
    };
    for expected in [(1, 1), (1, 0), (2, 0)] {
        assert_eq!(left(&long).await, expected, "a long value is a value");
    }
    assert_eq!(left(&format!("{long}y")).await, (1, 1), "of which every byte counts");

    let refused = |response: &Response, statuses: usize| {
        assert_eq!((response.overall_code, response.statuses.len()), (2, statuses));
        assert!(response.statuses.iter().all(|status| status.code == 2 && status.current_limit.is_none()));
    };
    let many = |count: usize| -> Vec<Descriptor> {
        (0..count).map(|at| descriptor(&[("user", &format!("many-{at}"))])).collect()
    };
    let response = rls.ask(&asks("shop", many(64))).await;
    assert_eq!((response.overall_code, response.statuses.len()), (1, 64));
    refused(&rls.ask(&asks("shop", many(65))).await, 65);
    let entries = |count: usize| asks("shop", [descriptor(&vec![("user", "x"); count])]);
    assert_eq!(rls.ask(&entries(512)).await.overall_code, 1);
    refused(&rls.ask(&entries(513)).await, 1);

    // A message that is too large is not read, whether all of it comes or not; nobody knows how many descriptors it has.
    let large = "x".repeat((1 << 20) + 1);
    refused(&rls.ask(&asks("shop", [descriptor(&[("user", &large)])])).await, 0);
    let response =
        rls.call_framed(SHOULD_RATE_LIMIT, Bytes::from_static(&[0, 255, 255, 255, 255]), &[]).await;
    refused(&Response::decode(response.expect("an answer")).expect("a response"), 0);
    assert_eq!(left("after").await, (1, 1), "the connection lives");
    assert_eq!(node.metric("ratelimit_requests_total", "outcome=\"invalid\"").await, 0);
}

#[tokio::test]
async fn a_message_in_pieces_is_one_message() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    let request = http::Request::post(format!("http://node{SHOULD_RATE_LIMIT}")).body(()).expect("a request");
    let (response, mut stream) = rls.sender().send_request(request, false).expect("a stream");
    for byte in framed(&asks("shop", [descriptor(&[("user", "alice")])]).encode_to_vec()) {
        stream.send_data(Bytes::copy_from_slice(&[byte]), false).expect("sent");
    }
    // Its end is not awaited: the message is whole.
    let mut body = crate::support::soon("an answer", response).await.expect("an answer").into_body();
    let data = crate::support::soon("a body", body.data()).await.expect("a body").expect("a body");
    assert_eq!(Response::decode(&data[5..]).expect("a response").statuses[0].limit_remaining, 1);
}
