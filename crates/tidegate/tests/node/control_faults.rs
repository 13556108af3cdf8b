//! The database of the control plane is away, hangs, tells nothing, or has no room: rows 31, 33 and 36 of the faults.
//!
//! `TIDEGATE_FAULT_SECONDS=300` makes the outages as long as the row says; without it they are as short as what has to be seen allows.

use std::time::Duration;

use tidegate_clock::Stopwatch;
use tidegate_control::{ControlStore, Options, Quota};
use tidegate_testbed::{Disk, Kind, Postgres, PostgresOptions, Server};

use crate::control::{Admin, Kept, RULES, admits, grant, has_limit, limit, tier, who};
use crate::support::{Grpc, Http, Node, Setup, asks, descriptor, until};

const STALE: &str = "ratelimit_config_stale_seconds";
/// The machine of a test may stand still for a second, and everybody on it with it.
const SLACK: Duration = Duration::from_secs(2);

fn outage() -> Duration {
    let said = std::env::var("TIDEGATE_FAULT_SECONDS").ok().and_then(|said| said.parse().ok());
    Duration::from_secs(said.unwrap_or(9))
}

/// Decisions, one after the other.
#[derive(Debug)]
struct Load {
    decisions: usize,
    /// How long the slowest hundredth took. A few that hang are not in it: while one does, no other is asked for.
    p99: Duration,
    slowest: Duration,
}

/// Asks for decisions for a while.
async fn load(node: &Node, lasts: Duration) -> Load {
    let (rls, watch, mut took) = (Grpc::connect(node.rls).await, Stopwatch::start(), Vec::new());
    while watch.elapsed() < lasts {
        let one = Stopwatch::start();
        let key = format!("caller-{}", took.len() % 100);
        let answer = rls.ask(&asks("api", [descriptor(&[("api_key", &key), ("endpoint", "GET /")])])).await;
        took.push(one.elapsed());
        assert_eq!(answer.statuses.len(), 1);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    took.sort_unstable();
    Load { decisions: took.len(), p99: took[took.len() * 99 / 100], slowest: took[took.len() - 1] }
}

/// Row 31.
#[tokio::test]
async fn decisions_do_not_notice_a_database_that_is_away_or_hangs() {
    for hangs in [true, false] {
        let kept = Kept::postgres();
        let postgres = kept.postgres.as_ref().expect("PostgreSQL");
        let (node, store) = (kept.setup.start(), kept.store().await);
        let admin = Admin::of(&node).await;
        store.put_quota(&who(), tier("alice", "pro"), None).await.expect("written");
        has_limit(&node, &[("api_key", "alice")], Some(6)).await;
        until("level", async || (node.metric(STALE, "").await == 0).then_some(())).await;
        let before = load(&node, outage().min(Duration::from_secs(5))).await;

        if hangs {
            postgres.stop()
        } else {
            postgres.kill()
        }
        let bearer = format!("Bearer {}", admin.token);
        let address = node.admin.expect("an API");
        let admin_calls = async {
            for call in 0..2 {
                let (watch, headers) = (Stopwatch::start(), [("authorization", bearer.as_str())]);
                let path = "/admin/v1/quotas/alice";
                let reply = Http::connect(address).await.request("GET", path, &headers, "").await;
                let took = watch.elapsed();
                assert_eq!(reply.status, 503, "hangs: {hangs}, call {call}: {}", reply.body);
                assert!(took < Duration::from_secs(3) + SLACK, "hangs: {hangs}, call {call}: {took:?}");
            }
        };
        let ((), during) = tokio::join!(admin_calls, load(&node, outage()));
        until("stale", async || (node.metric(STALE, "").await >= 1).then_some(())).await;
        let stale = node.metric(STALE, "").await;
        let known = load(&node, Duration::from_millis(1_500)).await;
        assert!(node.metric(STALE, "").await > stale, "it rises");
        for (when, load) in [("before", &before), ("meanwhile", &during), ("when it was known", &known)] {
            let Load { decisions, p99, slowest } = load;
            println!("hangs: {hangs}, {when}: {decisions} decisions, p99 {p99:?}, slowest {slowest:?}");
        }
        // Speed is not asserted; that nobody waits for the database is: its deadline is 2.5 s.
        for load in [&during, &known] {
            assert!(load.p99 < before.p99 * 3 + Duration::from_millis(100), "{before:?} {load:?}");
            assert!(load.slowest < SLACK, "{before:?} {load:?}");
        }
        assert_eq!(limit(&node, &[("api_key", "alice")]).await, Some(6), "what is known stays in force");

        if hangs {
            postgres.cont()
        } else {
            postgres.restart().expect("PostgreSQL again")
        }
        let watch = Stopwatch::start();
        let store = kept.store().await;
        store.put_quota(&who(), tier("alice", "free"), None).await.expect("written");
        has_limit(&node, &[("api_key", "alice")], Some(3)).await;
        let took = watch.elapsed();
        assert!(took < Duration::from_secs(5) + SLACK, "hangs: {hangs}: caught up after {took:?}");
        until("level again", async || (node.metric(STALE, "").await == 0).then_some(())).await;
    }
}

/// Three nodes that count in one Redis and follow one PostgreSQL.
struct Fleet {
    nodes: Vec<Node>,
    store: ControlStore,
    /// The first token, which one of them has printed.
    token: String,
    redis: Server,
    _postgres: Postgres,
}

impl Fleet {
    async fn start(notifies: bool, publishes: bool) -> Self {
        let postgres = Postgres::start(&PostgresOptions::new()).expect("PostgreSQL");
        let redis = Server::start(Kind::Redis, &tidegate_testbed::Options::new()).expect("Redis");
        let url = postgres.url("postgres");
        if !notifies {
            // As behind a pooler: whoever notifies is told that it was done.
            let swallows = "CREATE SCHEMA deaf; \
                CREATE FUNCTION deaf.pg_notify(text, text) RETURNS void LANGUAGE sql AS $$ $$; \
                ALTER ROLE tidegate SET search_path = deaf, public, pg_catalog";
            postgres.say("postgres", swallows).expect("said");
        }
        let setup = || {
            Setup::new(RULES)
                .controlled()
                .set("control-database", &url)
                .set("control-publish", if publishes { "true" } else { "false" })
                .set("store-url", &redis.url())
                .set("store-timeout", "10s")
                .set("node-deadline", "20s")
                .set("store-connect-timeout", "5s")
                .start()
        };
        let nodes: Vec<Node> = (0..3).map(|_| setup()).collect();
        for node in &nodes {
            let ready = async || (node.http().await.get("/readyz").await.status == 200).then_some(());
            until("ready", ready).await;
        }
        let store = ControlStore::open(&Options::postgres(url)).await.expect("a store");
        let printed = async || {
            let words = nodes.iter().map(Node::log).collect::<String>();
            words.split_whitespace().find(|word| word.starts_with("tg_")).map(String::from)
        };
        let token = until("a first token", printed).await;
        Self { nodes, store, token, redis, _postgres: postgres }
    }

    /// Raises the limit of somebody whom all nodes refuse, and remember that they do; says how long it took until all admit.
    async fn raise(&self, edit: u32) -> Duration {
        let key = format!("caller-{edit}");
        for node in &self.nodes {
            until("refused", async || (!admits(node, &key).await).then_some(())).await;
        }
        let raised = format!(
            r#"{{"overrides": [{{"descriptor": "default", "requests_per_unit": {}, "unit": "hour"}}]}}"#,
            100 + edit
        );
        let admin = Admin { node: &self.nodes[0], token: self.token.clone() };
        let path = format!("/admin/v1/quotas/{key}");
        let watch = Stopwatch::start();
        let put = admin.call("PUT", &path, &raised).await;
        assert!(put.status < 300, "{}", put.body);
        let entries = [("api_key", key.as_str())];
        for node in &self.nodes {
            has_limit(node, &entries, Some(100 + edit)).await;
            until("admitted", async || admits(node, &key).await.then_some(())).await;
        }
        watch.elapsed()
    }

    /// So many edits, sorted by how long each took. Meanwhile the revision of no node goes back.
    async fn edits(&self, edits: u32) -> Vec<Duration> {
        let watched = async {
            let mut seen = vec![0; self.nodes.len()];
            loop {
                for (node, seen) in self.nodes.iter().zip(&mut seen) {
                    let revision = node.metric("tidegate_control_revision", "").await;
                    assert!(revision >= *seen, "{revision} after {seen}");
                    *seen = revision;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let edited = async {
            let mut took = Vec::new();
            for edit in 0..edits {
                took.push(self.raise(edit).await);
            }
            took
        };
        tokio::select! {
            () = watched => unreachable!("it never ends"),
            mut took = edited => {
                took.sort_unstable();
                println!("{took:?}");
                took
            }
        }
    }
}

/// All but two of seven edits were everywhere within a second: the machine may stand still. Where nobody tells, every other edit is found
/// so soon by chance, since a node that has found one looks again at once.
fn is_told(took: &[Duration], at_most: Duration) {
    assert!(took[4] < Duration::from_secs(1), "{took:?}");
    assert!(took[6] < at_most + SLACK, "{took:?}");
}

/// Row 36, with notifications.
#[tokio::test]
async fn an_edit_is_on_every_node_within_a_second() {
    let fleet = Fleet::start(true, false).await;
    is_told(&fleet.edits(7).await, Duration::from_secs(1));
}

/// Row 36, without any.
#[tokio::test]
async fn an_edit_that_nobody_tells_of_is_on_every_node_within_five_seconds() {
    let fleet = Fleet::start(false, false).await;
    let took = fleet.edits(4).await;
    assert!(took[3] < Duration::from_secs(5) + SLACK, "{took:?}");
    assert!(took.iter().sum::<Duration>() > Duration::from_secs(1), "somebody told: {took:?}");
}

/// Row 36, where only Redis tells.
#[tokio::test]
async fn an_edit_is_told_over_redis_where_postgresql_tells_nothing() {
    let fleet = Fleet::start(false, true).await;
    is_told(&fleet.edits(7).await, Duration::from_secs(5));
    // Whoever can reach Redis can say anything there, as often as they like.
    for lie in 0..2_000 {
        fleet.redis.command(&["PUBLISH", "tg:control", &format!("{lie} {}", u64::MAX)]);
    }
    let quota = Quota { overrides: vec![grant("default", 77)], ..Quota::of("liar") };
    fleet.store.put_quota(&who(), quota, None).await.expect("written");
    for node in &fleet.nodes {
        has_limit(node, &[("api_key", "liar")], Some(77)).await;
    }
    // What listens is cut off, and comes back.
    fleet.redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let listeners = async || {
        let told = fleet.redis.command(&["PUBSUB", "NUMSUB", "tg:control"]);
        (told.items().get(1).and_then(tidegate_testbed::Reply::integer) == Some(3)).then_some(())
    };
    until("they listen again", listeners).await;
}

/// A12. What a token is worth is known to every process within a second, and by those that were killed.
#[tokio::test]
async fn a_token_is_worth_the_same_on_every_node_within_a_second_and_after_kill_9() {
    let kept = Kept::postgres();
    let url = kept.postgres.as_ref().expect("PostgreSQL").url("postgres");
    let setups = [kept.setup.clone(), Setup::new(RULES).controlled().set("control-database", &url)];
    let one = setups[0].start();
    let first = Admin::of(&one).await.token; // Printed by one of them, before the other is there.
    let nodes = [one, setups[1].start()];
    let path = "/admin/v1/quotas";
    let status = async |node: &Node, token: &str| {
        let admin = Admin { node, token: token.to_owned() };
        admin.call("GET", path, "").await.status
    };
    let make = async |node: &Node, name: &str| {
        let admin = Admin { node, token: first.clone() };
        let made =
            admin.call("POST", "/admin/v1/tokens", &format!(r#"{{"name":"{name}","scope":"read"}}"#)).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let text = |field: &str| made.json()[field].as_str().expect("a text").to_owned();
        (text("id"), text("token"))
    };
    let (_, kept_token) = make(&nodes[0], "kept").await;
    let mut revoked = Vec::new();
    for (here, there) in [(0, 1), (1, 0)] {
        let (id, token) = make(&nodes[here], "revoked").await;
        let watch = Stopwatch::start();
        assert_eq!(status(&nodes[there], &token).await, 200, "at once: it is looked up");
        assert_eq!(status(&nodes[here], &token).await, 200);
        assert!(watch.elapsed() < Duration::from_secs(1) + SLACK);
        let admin = Admin { node: &nodes[here], token: first.clone() };
        let gone = admin.call("DELETE", &format!("/admin/v1/tokens/{id}"), "").await;
        assert!(gone.status < 300, "{}", gone.body);
        let watch = Stopwatch::start();
        assert_eq!(status(&nodes[here], &token).await, 401, "here at once");
        let is_worth_nothing = async || (status(&nodes[there], &token).await == 401).then_some(());
        until("it is worth nothing there", is_worth_nothing).await;
        let took = watch.elapsed();
        assert!(took < Duration::from_secs(1) + SLACK, "{took:?}");
        revoked.push(token);
    }
    for mut node in nodes {
        node.kill();
    }
    for setup in &setups {
        let node = setup.start();
        assert_eq!(status(&node, &kept_token).await, 200);
        for token in &revoked {
            assert_eq!(status(&node, token).await, 401, "revoked before it was killed");
        }
    }
}

/// Who watches a process by its API is not to restart it for a database that is away.
#[tokio::test]
async fn an_api_without_its_database_is_alive_and_says_what_it_would_be() {
    let kept = Kept::postgres();
    let postgres = kept.postgres.as_ref().expect("PostgreSQL");
    postgres.kill();
    let node = kept.setup.start();
    let address = node.admin.expect("an API");
    let ask =
        async |method: &str, path: &str| Http::connect(address).await.request(method, path, &[], "").await;
    for is_there in [false, true] {
        let live = ask("GET", "/livez").await;
        assert_eq!((live.status, live.body.as_str()), (200, "ok\n"), "{is_there}");
        let refused = ask("POST", "/livez").await;
        assert_eq!((refused.status, refused.header("allow")), (405, "GET, HEAD"), "{}", refused.body);
        let document = ask("GET", "/openapi.json").await;
        assert_eq!(document.status, 200);
        assert_eq!(document.json(), tidegate_control::api::openapi());
        let quota = ask("GET", "/admin/v1/quotas/alice").await;
        assert_eq!(quota.status, if is_there { 401 } else { 503 }, "{}", quota.body);
        assert_eq!(quota.header("content-type"), "application/problem+json");
        if !is_there {
            assert_eq!(quota.json()["type"], "urn:tidegate:problem:unavailable", "{}", quota.body);
            assert_eq!(quota.header("retry-after"), "1");
            postgres.restart().expect("PostgreSQL again");
            Admin::of(&node).await;
            let served = async || (ask("GET", "/admin/v1/quotas/alice").await.status != 503).then_some(());
            until("the API is there", served).await;
        }
    }
}

/// Row 33: the disk that has the database and everything else that the node keeps.
#[tokio::test]
async fn a_node_whose_disk_is_full_decides_and_keeps_edits_again_when_there_is_room() {
    let disk = match Disk::mount(8) {
        Ok(disk) => disk,
        Err(reason) => {
            return println!("not looked at, since this needs a disk that can be filled: {reason}");
        }
    };
    let setup = Kept::sqlite().setup.set("node-data", &disk.folder().join("data").display().to_string());
    let mut node = setup.start();
    let token = Admin::of(&node).await.token;
    // Without the patience of others: that it is refused is what is looked for.
    let put = async |node: &Node, key: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let path = format!("/admin/v1/quotas/{key}");
        let mut http = Http::connect(node.admin.expect("an API")).await;
        http.request("PUT", &path, &headers, r#"{"tier": "pro"}"#).await
    };
    assert_eq!(put(&node, "alice").await.status, 200);
    has_limit(&node, &[("api_key", "alice")], Some(6)).await;

    disk.fill().expect("full");
    // There may be room in files that are there.
    let mut written = Vec::new();
    let refused = loop {
        let key = format!("edit-{}", written.len());
        let reply = put(&node, &key).await;
        if reply.status != 200 {
            break reply;
        }
        written.push(key);
        assert!(written.len() < 2_000, "the disk is never full");
    };
    assert_eq!((refused.status, refused.body.contains("full")), (503, true), "{}", refused.body);
    assert_eq!(limit(&node, &[("api_key", "alice")]).await, Some(6));
    for number in 0..3 {
        assert!(admits(&node, "bob").await, "{number}");
    }
    assert!(!admits(&node, "bob").await, "counters count");
    if let Some(last) = written.last() {
        has_limit(&node, &[("api_key", last)], Some(6)).await;
    }
    assert_eq!(node.http().await.get("/readyz").await.status, 200);

    disk.empty();
    until("edits are kept again", async || (put(&node, "carol").await.status == 200).then_some(())).await;
    has_limit(&node, &[("api_key", "carol")], Some(6)).await;
    node.kill();
    let node = setup.start();
    written.extend(["alice", "carol"].map(String::from));
    for key in &written {
        has_limit(&node, &[("api_key", key)], Some(6)).await;
    }
    let last = format!("edit-{}", written.len() - 2);
    assert_eq!(limit(&node, &[("api_key", &last)]).await, Some(3), "nothing of what was refused");
}
