//! Reservations over RLS: an estimate is charged, and settled under its id, once, by whichever node is asked.

use tidegate_testbed::{Kind, Options, Server};

use crate::support::messages::{Descriptor, Response};
use crate::support::{Grpc, Node, Setup, asks, descriptor, until};

const RULES: &str = "
domain: shop
match: path
descriptors:
  - key: api_key
    rate_limit: { limit: 50/1h, name: requests }
    descriptors:
      - key: model
        rate_limits:
          - { limit: 1000/1h, reservation_id: reservation, name: tokens }
          - { limit: 5000/1d, reservation_id: reservation, algorithm: fixed_window, name: tokens-a-day }
  - key: everything
    value: all
    always: true
    rate_limit: { limit: 100000/1h, name: everything }
";

fn hits(entries: &[(&str, &str)], hits: u64) -> Descriptor {
    Descriptor { hits_addend: Some(hits), ..descriptor(entries) }
}

fn id_of(response: &Response) -> Option<String> {
    response.dynamic_metadata.as_ref()?.fields.get("reservation")?.text.clone()
}

/// Reserves units for a caller of a model.
async fn reserve(rls: &Grpc, caller: &str, units: u64) -> Response {
    rls.ask(&asks("shop", [hits(&[("api_key", caller), ("model", "large")], units)])).await
}

/// Settles a reservation; `negative` gives units back instead.
async fn settle(rls: &Grpc, caller: &str, id: &str, units: u64, negative: bool) {
    let entries = [("api_key", caller), ("model", "large"), ("reservation", id)];
    let one = Descriptor { is_negative_hits: negative, ..hits(&entries, units) };
    assert_eq!(rls.ask(&asks("shop", [one])).await.overall_code, 1, "it is never any trouble");
}

/// What is used of: requests, tokens, tokens a day, everything.
async fn used(node: &Node, caller: &str) -> Vec<u64> {
    let entries = format!(r#"{{"key":"api_key","value":"{caller}"}},{{"key":"model","value":"large"}}"#);
    node.used(&format!(r#"{{"domain":"shop","descriptors":[{{"entries":[{entries}]}}]}}"#)).await
}

#[tokio::test]
async fn a_reservation_is_settled_once_and_nothing_else_is_charged_for_it() {
    let node = Node::start(RULES);
    let rls = node.rls().await;
    let first = reserve(&rls, "alice", 40).await;
    let id = id_of(&first).expect("an id");
    assert_eq!(used(&node, "alice").await, [40, 40, 40, 40], "by the path, and always");
    settle(&rls, "alice", &id, 7, false).await;
    assert_eq!(used(&node, "alice").await, [40, 7, 7, 40], "only limits that know of the reservation");
    for units in [7, 0, 900] {
        settle(&rls, "alice", &id, units, false).await;
    }
    assert_eq!(used(&node, "alice").await, [40, 7, 7, 40], "the second time changes nothing");

    let second = id_of(&reserve(&rls, "alice", 10).await).expect("an id");
    for wrong in ["", "x", &"0".repeat(64), &second[1..], &second.replace('0', "1")] {
        settle(&rls, "alice", wrong, 900, false).await;
    }
    settle(&rls, "bob", &second, 900, false).await;
    assert_eq!(used(&node, "alice").await, [50, 17, 17, 50], "an id is good for its own counter");
    assert_eq!(used(&node, "bob").await, [0, 0, 0, 50]);
    settle(&rls, "alice", &second, 4, true).await;
    assert_eq!(
        used(&node, "alice").await,
        [50, 13, 13, 50],
        "a part is given back, also without `allow_refunds`"
    );

    let refused = reserve(&rls, "alice", 10).await;
    assert_eq!((refused.overall_code, id_of(&refused)), (2, None), "no charge, no id");
    let peeked = reserve(&rls, "bob", 0).await;
    assert_eq!((peeked.overall_code, id_of(&peeked)), (1, None), "no charge, no id");
    let events = ["made", "settled", "missed"];
    let mut counts = Vec::new();
    for event in events {
        counts.push(node.metric("ratelimit_reservations_total", &format!("event=\"{event}\"")).await);
    }
    assert_eq!(counts, [2, 2, 9], "{events:?}");
}

#[tokio::test]
async fn any_node_of_a_fleet_settles_a_reservation_and_only_one() {
    let server = Server::start(Kind::Redis, &Options::new()).unwrap_or_else(|error| panic!("{error}"));
    let node = || {
        let setup = Setup::new(RULES).set("store-url", &server.url()).set("store-connect-timeout", "5s");
        setup.set("store-timeout", "10s").set("node-deadline", "20s").start()
    };
    let nodes = [node(), node()];
    let clients = [nodes[0].rls().await, nodes[1].rls().await];
    for node in &nodes {
        until("a node counts in the store", async || {
            let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"api_key","value":"warm"}]}]}"#;
            (node.http().await.post("/v1/check", body).await.json()["mode"] == "exact").then_some(())
        })
        .await;
    }
    for round in 0..10 {
        let caller = format!("caller-{round}");
        let id = id_of(&reserve(&clients[round % 2], &caller, 40).await).expect("an id");
        // Both at the same time, for different costs.
        let (one, other) =
            (settle(&clients[0], &caller, &id, 7, false), settle(&clients[1], &caller, &id, 9, false));
        tokio::join!(one, other);
        let used = used(&nodes[0], &caller).await;
        assert!(used[..3] == [40, 7, 7] || used[..3] == [40, 9, 9], "one of them settles it: {used:?}");
    }
    assert_eq!(server.immortal_keys(&["tg:secret"]), Vec::<Vec<u8>>::new());
}
