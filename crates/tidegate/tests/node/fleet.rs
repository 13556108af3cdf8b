//! Several nodes on one store: they share every limit to the last unit, and answer by policy while the store is away.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use tidegate_testbed::{Cluster, Kind, Options, Reply, Server};
use tokio::task::JoinSet;

use crate::support::{Failed, Grpc, Http, Node, Setup, asks, descriptor, until};

const RULES: &str = "domain: shop
descriptors:
  - key: few
    rate_limit: { limit: 5/1d, name: few }
  - key: fixed
    rate_limit: { limit: 700/1d, algorithm: fixed_window }
  - key: log
    rate_limit: { limit: 500/1d, algorithm: sliding_log }
  - key: strict
    rate_limit: { limit: 600/1d, strict: true }
  - key: closed
    rate_limit: { limit: 5/1d, on_store_failure: deny }
  - key: left
    rate_limit: { limit: 5/1d, on_store_failure: error }
";

fn redis() -> Server {
    Server::start(Kind::Redis, &Options::new()).unwrap_or_else(|error| panic!("{error}"))
}

/// A node on a store. The machine of a test may be busy: nobody is to be answered by policy for that.
fn node(url: &str) -> Node {
    patient(url).start()
}

fn patient(url: &str) -> Setup {
    Setup::new(RULES)
        .set("store-url", url)
        .set("store-timeout", "10s")
        .set("node-deadline", "20s")
        .set("store-connect-timeout", "5s")
}

/// What the counter of a request is called, if the store can be asked.
async fn name(node: &Node, body: &str) -> Option<Value> {
    let told = node.http().await.post("/v1/inspect", body).await;
    (told.status == 200).then(|| told.json()["counters"][0]["key"].clone())
}

/// Waits until nodes have names for counters in common. One that a busy machine kept from asking the store at its start has its own before.
async fn agree(nodes: &[&Node]) {
    let body = body("few", "anybody");
    until("they have the secret of the fleet", async || {
        let mut names = Vec::new();
        for node in nodes {
            names.push(name(node, &body).await?);
        }
        names.iter().all(|name| *name == names[0]).then_some(())
    })
    .await;
}

fn body(key: &str, value: &str) -> String {
    format!(r#"{{"descriptors":[{{"entries":[{{"key":"{key}","value":"{value}"}}]}}]}}"#)
}

#[tokio::test]
async fn nodes_share_limits_and_who_gives_back_gives_back_to_all() {
    let server = redis();
    let nodes = [node(&server.url()), node(&server.url())];
    agree(&[&nodes[0], &nodes[1]]).await;
    let mut https = [Http::connect(nodes[0].http).await, Http::connect(nodes[1].http).await];
    let asked = body("few", "alice");
    for at in 0..5 {
        let told = https[at % 2].post("/v1/check", &asked).await.json();
        assert_eq!((&told["remaining"], &told["mode"]), (&(4 - at).into(), &"exact".into()), "{told}");
    }
    for http in &mut https {
        assert_eq!(http.post("/v1/check", &asked).await.json()["code"], "RATE_LIMITED");
        let explained = http.post("/v1/check?explain", &asked).await.json();
        let text = explained["text"].as_str().unwrap_or_default();
        assert!(text.contains("5 of 5 are used") && text.contains("mode `exact`"), "{text}");
    }
    // The same counter for both, and no name of a customer in the store.
    let mut seen = Vec::new();
    for http in &mut https {
        let counter = http.post("/v1/inspect", &asked).await.json()["counters"][0].clone();
        assert_eq!(counter["used"], 5, "{counter}");
        seen.push((counter["key"].clone(), counter["tag"].clone()));
    }
    assert_eq!(seen[0], seen[1]);
    let names: Vec<String> =
        server.keys().iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    assert!(names.iter().all(|name| name.starts_with("tg") && !name.contains("alice")), "{names:?}");
    assert_eq!(server.immortal_keys(&["tg:secret"]), Vec::<Vec<u8>>::new());
    // Reset by one, seen by the other: what it remembers of a refusal ends within a second.
    let told = https[0].post("/v1/counters/reset", &asked).await;
    assert_eq!(told.status, 200, "{}", told.body);
    until("the other admits again", async || {
        let told = https[1].post("/v1/check", &asked).await.json();
        (told["allowed"] == true).then_some(())
    })
    .await;
    let metrics = https[1].get("/metrics").await.body;
    let remembered =
        metrics.lines().find_map(|line| line.strip_prefix("ratelimit_remembered_denials_total "));
    assert!(remembered.and_then(|count| count.parse::<u64>().ok()).is_some(), "{remembered:?}");
    assert!(metrics.contains("ratelimit_store_disagreements_total 0"));
    assert!(https[0].get("/readyz?verbose").await.body.contains("the fleet shares them"));
}

/// Asks three nodes at once, from many streams, for the same few keys; tells what was admitted.
async fn rush(nodes: &[Node], keys: &'static [&'static str], each: u64) -> HashMap<&'static str, u64> {
    let counts: Arc<HashMap<&str, AtomicU64>> =
        Arc::new(keys.iter().map(|key| (*key, AtomicU64::new(0))).collect());
    let mut clients = JoinSet::new();
    for node in nodes {
        for _ in 0..2 {
            let rls = Arc::new(Grpc::connect(node.rls).await);
            for stream in 0..16 {
                let (rls, counts) = (rls.clone(), counts.clone());
                clients.spawn(async move {
                    for number in 0..each {
                        let key = keys[(stream + number) as usize % keys.len()];
                        let response = rls.ask(&asks("shop", [descriptor(&[(key, "x")])])).await;
                        counts[key].fetch_add(u64::from(response.overall_code == 1), Ordering::Relaxed);
                    }
                });
            }
        }
    }
    while let Some(client) = clients.join_next().await {
        client.expect("a client");
    }
    counts.iter().map(|(key, count)| (*key, count.load(Ordering::Relaxed))).collect()
}

/// With `TIDEGATE_PROOF=50` these are a million checks.
async fn admits_exactly(url: &str) {
    let nodes = [node(url), node(url), node(url)];
    agree(&nodes.each_ref()).await;
    let proof = std::env::var("TIDEGATE_PROOF").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    let admitted = rush(&nodes, &["fixed", "log", "strict"], 208 * proof).await;
    assert_eq!((admitted["fixed"], admitted["log"]), (700, 500));
    // A strict cell log may give back late by less than a cell of 30.
    assert!((571..=600).contains(&admitted["strict"]), "{admitted:?}");
    let mut http = Http::connect(nodes[0].http).await;
    let metrics = http.get("/metrics").await.body;
    for (key, admitted) in &admitted {
        assert_eq!(nodes[1].used(&body(key, "x")).await, [*admitted], "{key}");
    }
    assert!(metrics.contains("ratelimit_store_disagreements_total 0"));
    assert!(
        metrics.contains(r#"ratelimit_store_failures_total{policy="allow"} 0"#),
        "nobody was answered by policy"
    );
}

#[tokio::test]
async fn three_nodes_on_a_server_admit_exactly_the_limit() {
    let server = redis();
    admits_exactly(&server.url()).await;
    assert_eq!(server.immortal_keys(&["tg:secret"]), Vec::<Vec<u8>>::new());
}

#[tokio::test]
async fn three_nodes_on_a_cluster_admit_exactly_the_limit() {
    let cluster = Cluster::start(Kind::Redis, 3, 0, 5_000).unwrap_or_else(|error| panic!("{error}"));
    admits_exactly(&cluster.url()).await;
    assert_eq!(cluster.immortal_keys(&["tg:secret"]), Vec::<Vec<u8>>::new());
}

#[tokio::test]
async fn while_the_store_is_away_rules_say_what_is_answered() {
    let server = redis();
    let node = Setup::new(RULES).set("store-url", &server.url()).start();
    let (rls, mut http) = (Grpc::connect(node.rls).await, Http::connect(node.http).await);
    let ask = |key| asks("shop", [descriptor(&[(key, "x")])]);
    until("the store answers", async || {
        let told = http.post("/v1/check", &body("few", "x")).await.json();
        (told["mode"] == "exact").then_some(())
    })
    .await;
    server.kill();
    assert_eq!(rls.ask(&ask("few")).await.overall_code, 1, "allow");
    assert_eq!(rls.ask(&ask("closed")).await.overall_code, 2, "deny");
    assert!(matches!(rls.try_ask(&ask("left"), &[]).await, Err(Failed::Status(14, _))), "error");
    let told = http.post("/v1/check?enforce", &body("closed", "x")).await;
    assert_eq!((told.status, told.header("retry-after")), (503, "1"), "{}", told.body);
    let told = http.post("/v1/check", &body("few", "x")).await.json();
    assert_eq!((&told["allowed"], &told["bound"]), (&true.into(), &"unbounded".into()), "{told}");
    assert_eq!(
        http.get("/readyz").await.status,
        200,
        "a store that is away is no reason to take the node away"
    );
    until("its circuit opens", async || {
        rls.ask(&ask("few")).await;
        (node.metric("ratelimit_circuit_opened_total", "").await > 0).then_some(())
    })
    .await;
    let verbose = http.get("/readyz?verbose").await.body;
    assert!(verbose.contains("degraded: "), "{verbose}");
    server.restart().unwrap_or_else(|error| panic!("{error}"));
    until("it counts again", async || {
        let told = http.post("/v1/check", &body("few", "x")).await.json();
        let is_closed = node.metric("ratelimit_circuit_state", "").await == 0;
        (told["mode"] == "exact" && is_closed).then_some(())
    })
    .await;
    // A line for each change, and no more. They are written aside.
    until("changes are told", async || {
        let (log, opened) = (node.log(), node.metric("ratelimit_circuit_opened_total", "").await as usize);
        let lines = |words| log.matches(words).count();
        let told = (lines("of the store has opened"), lines("of the store has closed"));
        assert!(told.0 <= opened, "{log}");
        (told == (opened, opened)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_node_that_starts_before_its_store_joins_the_others() {
    let server = redis();
    let first = node(&server.url());
    agree(&[&first]).await;
    let asked = body("few", "late");
    let mut http = Http::connect(first.http).await;
    for _ in 0..5 {
        let told = http.post("/v1/check", &asked).await.json();
        assert_eq!((&told["allowed"], &told["mode"]), (&true.into(), &"exact".into()), "{told}");
    }
    server.stop(); // It hangs: connects, and answers nothing.
    let second = patient(&server.url()).start();
    server.cont();
    // Until it knows the secret of the fleet, it would find another counter in the store, and nothing in it.
    let mut http = Http::connect(second.http).await;
    until("it counts with the others", async || {
        let told = http.post("/v1/check", &asked).await.json();
        let is_exact = told["mode"] == "exact";
        assert!(!is_exact || told["allowed"] == false, "{told}");
        is_exact.then_some(())
    })
    .await;
    agree(&[&first, &second]).await;
}

#[tokio::test]
async fn a_node_counts_on_the_numbers_of_the_reference_server() {
    let server = redis();
    let node = patient(&server.url()).set("store-reference-names", "true").start();
    agree(&[&node]).await;
    let rls = Grpc::connect(node.rls).await;
    assert_eq!(
        rls.ask(&asks("shop", [descriptor(&[("fixed", "x")])])).await.statuses[0].limit_remaining,
        699
    );
    let names = server.keys();
    let name = names.iter().find(|name| name.starts_with(b"shop_fixed_x_")).expect("its name");
    assert_eq!(server.command(&[&b"INCRBY"[..], name, b"100"]), Reply::Integer(101));
    assert_eq!(
        rls.ask(&asks("shop", [descriptor(&[("fixed", "x")])])).await.statuses[0].limit_remaining,
        598
    );
}
