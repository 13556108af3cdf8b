//! Nodes and stores that do not answer.

use std::time::Duration;

use rustix::process::Signal;

use crate::envoy::Door;
use crate::figures::tell;
use crate::load::Load;
use crate::rig::Needs;
use crate::support::until;

#[tokio::test]
async fn without_a_node_envoy_decides() {
    let Some(mut rig) = Needs::memory().start().await else { return };
    for _ in 0..3 {
        assert_eq!(rig.get(Door::Closed, "/plain", "alice").await.status, 200);
    }
    assert_eq!(rig.get(Door::Open, "/plain", "alice").await.status, 429);
    rig.nodes.clear(); // They are killed.
    for _ in 0..3 {
        let reply = rig.get(Door::Open, "/plain", "alice").await;
        assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (200, ""), "it is let through");
        let reply = rig.get(Door::Closed, "/plain", "alice").await;
        assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (503, ""), "it is stopped");
    }
    tell("without_a_node_envoy_decides", "200 where Envoy fails open, 503 where it fails closed");
}

#[tokio::test]
async fn without_the_store_the_rule_or_envoy_decides() {
    let Some(rig) = Needs::redis().impatient().start().await else { return };
    assert_eq!(rig.get(Door::Closed, "/strict", "alice").await.status, 200);
    rig.redis.as_ref().expect("a store").kill();
    until("the store is missed", async || {
        (rig.get(Door::Closed, "/strict", "alice").await.status == 503).then_some(())
    })
    .await;
    let reply = rig.get(Door::Open, "/strict", "alice").await;
    assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (200, ""), "Envoy lets it pass");
    let errors = rig.metric("ratelimit_store_failures_total", r#"policy="error""#).await;
    assert!(errors >= 2, "{errors} calls failed");
    // Too many errors, and Envoy asks nobody for a while.
    until("the node is asked again", async || {
        let before = rig.metric("ratelimit_failopen_total", "").await;
        let passed = rig.get(Door::Closed, "/busy", "alice").await.status == 200;
        (passed && rig.metric("ratelimit_failopen_total", "").await > before).then_some(())
    })
    .await;
    tell("without_the_store_the_rule_or_envoy_decides", "`error`: 200 open, 503 closed; `allow`: 200");
}

#[tokio::test]
async fn a_node_that_pauses_keeps_its_connection_and_charges_nothing_twice() {
    let Some(rig) = Needs::memory().patience("0.05s").start().await else { return };
    let load = Load::start(rig.envoy.address(Door::Open), "/busy", "audit", 8);
    load.goes_on(100).await;
    let connections = rig.envoy.stat("cluster.tidegate.upstream_cx_total").await;
    let before = rig.envoy.stat("cluster.tidegate.upstream_rq_timeout").await;
    rig.nodes[0].signal(Signal::STOP);
    tokio::time::sleep(Duration::from_millis(100)).await;
    rig.nodes[0].signal(Signal::CONT);
    load.goes_on(200).await;
    let answers = load.finish();
    let timeouts = rig.envoy.stat("cluster.tidegate.upstream_rq_timeout").await - before;
    assert!(timeouts > 0, "Envoy gave nothing up, so nothing was shown");
    assert_eq!(rig.envoy.stat("cluster.tidegate.upstream_cx_total").await, connections, "no new connection");
    assert_eq!(rig.envoy.stat("cluster.tidegate.upstream_cx_destroy").await, 0);
    assert_eq!(answers.failed, 0, "{answers:?}");
    // What Envoy gave up may have been counted, or not; but nothing that was answered is missing, and nothing was counted twice.
    let used = rig.used("busy", "audit").await;
    let most = answers.decided + answers.undecided;
    assert!((answers.decided..=most).contains(&used), "{used} charged, {answers:?}");
    let figure = format!("{timeouts} calls given up, {used} charged, {} answered of {most}", answers.decided);
    tell("a_node_that_pauses_keeps_its_connection_and_charges_nothing_twice", &figure);
}

#[tokio::test]
async fn places_of_calls_that_envoy_gave_up_are_given_back() {
    let Some(rig) = Needs::memory().patience("0.05s").start().await else { return };
    rig.nodes[0].signal(Signal::STOP);
    for _ in 0..2 {
        let reply = rig.get(Door::Open, "/in-flight", "alice").await;
        assert_eq!(reply.status, 200, "it passes, since nobody answers");
    }
    // Envoy lets a request pass before it has told the node that it gave up. Its one thread does so before it serves the next; were the
    // node to answer in between, the place would be told to nobody, and only expire.
    until("both calls were given up", async || {
        (rig.envoy.stat("cluster.tidegate.upstream_rq_tx_reset").await >= 2).then_some(())
    })
    .await;
    assert_eq!(rig.get(Door::Bare, "/", "alice").await.status, 200);
    rig.nodes[0].signal(Signal::CONT);
    until("the node answers again", async || {
        let reply = rig.get(Door::Open, "/busy", "alice").await;
        (!reply.header("x-ratelimit-remaining").is_empty()).then_some(())
    })
    .await;
    rig.until_used("in_flight", "alice", 0).await;
    let taken = rig.metric("ratelimit_places_total", r#"event="taken""#).await;
    until("all that was taken is released", async || {
        (rig.metric("ratelimit_places_total", r#"event="released""#).await == taken).then_some(())
    })
    .await;
    let figure = format!("{taken} places taken for nobody, none left");
    tell("places_of_calls_that_envoy_gave_up_are_given_back", &figure);
}
