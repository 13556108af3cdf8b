//! Places whose holder is gone, and places that are kept: row 29 of the table of faults.

use std::time::Duration;

use serde_json::Value;
use tidegate_clock::Stopwatch;

use crate::drop_in;
use crate::support::{Http, Node, Setup};

const RULES: &str = "domain: shop
descriptors:
  - key: in_flight
    rate_limit: { limit: 2, algorithm: concurrency, ttl: 3s }
";

const TTL: Duration = Duration::from_secs(3);
/// What the row allows beside the time to live.
const SOON_AFTER: Duration = Duration::from_secs(1);
/// A machine that sleeps for longer than this between two looks says nothing about the node.
const PAUSE_MAX: Duration = Duration::from_millis(700);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const ATTEMPTS: usize = 5;

#[tokio::test]
async fn row_29_places_of_who_is_gone_come_back_and_those_that_are_renewed_stay_on_memory() {
    play(&Setup::new(RULES).start()).await;
}

#[tokio::test]
async fn row_29_places_of_who_is_gone_come_back_and_those_that_are_renewed_stay_on_redis() {
    let redis = drop_in::redis();
    let setup = Setup::new(RULES).set("store-timeout", "10s").set("node-deadline", "20s");
    play(&setup.set("store-url", &redis.url()).set("store-connect-timeout", "5s").start()).await;
}

async fn play(node: &Node) {
    for attempt in 0..ATTEMPTS {
        if is_shown(node, attempt).await {
            return;
        }
    }
    println!("undecided: the machine slept during every attempt");
}

/// Two hold both places. One is never heard of again, the other keeps its own. Says whether the machine let that be seen.
async fn is_shown(node: &Node, attempt: usize) -> bool {
    let mut http = node.http().await;
    let caller = format!("caller-{attempt}");
    let watch = Stopwatch::start();
    assert!(is_allowed(&mut http, "acquire", &caller, "gone").await);
    assert!(is_allowed(&mut http, "acquire", &caller, "kept").await);
    let (mut taken_after, mut looked) = (None, watch.elapsed());
    // Until the one that is kept has lived for twice its time.
    while watch.elapsed() < 2 * TTL + SOON_AFTER {
        tokio::time::sleep(LOOK_EVERY).await;
        let is_kept = is_allowed(&mut http, "renew", &caller, "kept").await;
        let is_taken = taken_after.is_none() && is_allowed(&mut http, "acquire", &caller, "next").await;
        let now = watch.elapsed();
        if now - looked > PAUSE_MAX {
            return false;
        }
        looked = now;
        assert!(is_kept, "a place that is renewed is kept, after {now:?}");
        if is_taken {
            assert!(now >= TTL, "nobody gets a place before its time is over: after {now:?}");
            assert!(now <= TTL + SOON_AFTER + PAUSE_MAX, "it comes back in time: after {now:?}");
            taken_after = Some(now);
        }
        if taken_after.is_some() {
            assert!(is_allowed(&mut http, "renew", &caller, "next").await);
            assert!(!is_allowed(&mut http, "acquire", &caller, "third").await, "never more than the limit");
        }
    }
    assert!(taken_after.is_some(), "the place of who is gone never came back");
    let expired = node.metric("ratelimit_places_total", r#"event="expired""#).await;
    assert!(
        expired > attempt as u64 && expired <= 3 * (attempt as u64 + 1),
        "{expired} of attempt {attempt}"
    );
    true
}

async fn is_allowed(http: &mut Http, verb: &str, caller: &str, id: &str) -> bool {
    let entries = format!(r#"[{{"entries":[{{"key":"in_flight","value":"{caller}"}}]}}]"#);
    let answer =
        http.post(&format!("/v1/{verb}"), &format!(r#"{{"id":"{id}","descriptors":{entries}}}"#)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["allowed"] == Value::Bool(true)
}
