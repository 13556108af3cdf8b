//! Requests in flight: a place for each, told in dynamic metadata and given back at the end of the stream.

use crate::envoy::Door;
use crate::figures::tell;
use crate::rig::{Counters, Needs, Rig};
use crate::support::{Http, until};

/// Of the rule.
const LIMIT: usize = 2;
const CLIENTS: usize = 8;
const REQUESTS: usize = 20;
const ABORTS: usize = 3;

#[tokio::test]
async fn requests_in_flight_are_exact_on_memory() {
    in_flight(Counters::Memory, "requests_in_flight_are_exact_on_memory").await;
}

#[tokio::test]
async fn requests_in_flight_are_exact_on_redis() {
    in_flight(Counters::Redis, "requests_in_flight_are_exact_on_redis").await;
}

async fn in_flight(counters: Counters, test: &str) {
    let Some(rig) = Needs::of(counters).start().await else { return };
    let clients = (0..CLIENTS).map(|_| tokio::spawn(client(rig.envoy.address(Door::Closed))));
    let (mut granted, mut refused) = (0, 0);
    for client in clients.collect::<Vec<_>>() {
        for status in client.await.expect("a client") {
            match status {
                200 => granted += 1,
                429 => refused += 1,
                other => panic!("{other}"),
            }
        }
    }
    assert!(granted > 0 && refused > 0, "{granted} granted, {refused} refused: nothing was shown");
    abort(&rig).await;
    // Long before the places expire.
    rig.until_used("in_flight", "alice", 0).await;
    let seen = rig.upstream.seen("alice");
    assert!(seen.most <= LIMIT, "{seen:?}");
    assert_eq!(seen.all, granted + ABORTS, "who is refused does not pass");
    let event =
        async |event: &str| rig.metric("ratelimit_places_total", &format!(r#"event="{event}""#)).await;
    let events = (event("taken").await, event("released").await, event("missed").await);
    let all = (granted + ABORTS) as u64;
    assert_eq!(events, (all, all, 0), "taken, released, released in vain: who was refused releases nothing");
    let figure = format!(
        "{granted} granted, {refused} refused, {ABORTS} broken off; at most {} at once, 0 left",
        seen.most
    );
    tell(test, &figure);
}

async fn client(address: std::net::SocketAddr) -> Vec<u16> {
    let mut http = Http::connect(address).await;
    let mut statuses = Vec::new();
    for _ in 0..REQUESTS {
        let reply = http.request("GET", "/in-flight?delay_ms=20", &[("x-api-key", "alice")], "").await;
        statuses.push(reply.status);
    }
    statuses
}

/// Callers that go away in the middle.
async fn abort(rig: &Rig) {
    for _ in 0..ABORTS {
        rig.until_used("in_flight", "alice", 0).await;
        let mut http = Http::connect(rig.envoy.address(Door::Closed)).await;
        http.send(b"GET /in-flight?delay_ms=60000 HTTP/1.1\r\nhost: api\r\nx-api-key: alice\r\n\r\n").await;
        until("the request is there", async || (rig.upstream.seen("alice").in_flight == 1).then_some(()))
            .await;
        assert_eq!(rig.used("in_flight", "alice").await, 1);
    }
}
