//! Every write of the admin API, by its effect on the answers of a process that decides: within a second, after kill -9, and with the
//! database gone.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tidegate_clock::{Clock, Stopwatch};
use tidegate_control::api::routes;

use crate::calendars::{counting_in, redis};
use crate::control::{Admin, Kept, admits};
use crate::support::messages::Descriptor;
use crate::support::{Grpc, Node, Setup, asks, descriptor, until};

/// Gates are shut: a gate that is open is in another state than it was written in.
const RULES: &str = "\
domain: api
match: path
descriptors:
  - key: api_key
    rate_limit: { limit: 3/1h, name: per-key }
    tiers:
      pro: { limit: 6/1h }
  - { key: dark, rate_limit: { limit: 0/1h, name: gate } }
  - { key: open, rate_limit: { limit: 0/1h, name: gate } }
  - { key: none, rate_limit: { limit: 0/1h, name: gate } }
  - { key: some, rate_limit: { limit: 0/1h, name: gate } }
  - { key: back, rate_limit: { limit: 0/1h, name: gate } }
  - { key: long, rate_limit: { limit: 0/1h, name: gate } }
  - { key: counted, rate_limit: { limit: 1000000/1h, name: gate } }
  - { key: soon, rate_limit: { limit: 0/1h, name: gate } }
";

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";
const CSV: &str = "text/csv";

/// An edit is promised to hold within a second; the machine of a test may stand still for two.
const PROMISED: Duration = Duration::from_secs(1);
const SLACK: Duration = Duration::from_secs(2);

/// Writes about one thing, each with what is to be seen of it then. The last of these stays.
struct Case {
    what: &'static str,
    steps: Vec<(Write, Sees)>,
}

impl Case {
    fn then(mut self, write: Write, sees: Sees) -> Self {
        self.steps.push((write, sees));
        self
    }
}

fn case(what: &'static str) -> Case {
    Case { what, steps: Vec::new() }
}

struct Write {
    method: &'static str,
    path: &'static str,
    content_type: &'static str,
    body: String,
}

fn put(path: &'static str, body: impl Into<String>) -> Write {
    Write { method: "PUT", path, content_type: JSON, body: body.into() }
}

fn post(path: &'static str, content_type: &'static str, body: impl Into<String>) -> Write {
    Write { method: "POST", path, content_type, body: body.into() }
}

fn delete(path: &'static str) -> Write {
    Write { method: "DELETE", path, content_type: JSON, body: String::new() }
}

/// What answers say. Entries are written as `key=value key=value`.
#[derive(Clone, Debug)]
enum Sees {
    /// This limit is told; none is no limit.
    Limit(&'static str, Option<u32>),
    Admits(&'static str),
    Refuses(&'static str),
    /// A request is counted.
    Counts(&'static str, &'static str),
    /// Of so many callers, so many are refused.
    RefusesSome(&'static str, RangeInclusive<usize>),
    Both(Box<[Sees; 2]>),
}

use Sees::{Admits, Counts, Limit, Refuses, RefusesSome};

const CALLERS: usize = 200;

fn both(one: Sees, other: Sees) -> Sees {
    Sees::Both(Box::new([one, other]))
}

impl Sees {
    async fn holds(&self, node: &Node) -> bool {
        let rls = &node.rls().await;
        let answer = async |entries: &str, cost| {
            let entries: Vec<_> = entries.split(' ').filter_map(|entry| entry.split_once('=')).collect();
            rls.ask(&asks("api", [Descriptor { hits_addend: Some(cost), ..descriptor(&entries) }])).await
        };
        match self {
            Limit(entries, expected) => {
                let statuses = answer(entries, 0).await.statuses;
                let limit = statuses[0].current_limit.as_ref().map(|limit| limit.requests_per_unit);
                limit == *expected
            }
            Admits(entries) => answer(entries, 1).await.overall_code == 1,
            Refuses(entries) => answer(entries, 1).await.overall_code == 2,
            Counts(key, value) => {
                let body = json!({ "descriptors": [{ "entries": [{ "key": key, "value": value }] }] });
                let before = node.used(&body.to_string()).await;
                rls.ask(&asks("api", [descriptor(&[(key, value)])])).await;
                let after = node.used(&body.to_string()).await;
                before.first().is_some_and(|before| after == [before + 1])
            }
            RefusesSome(key, range) => range.contains(&refused(rls, key).await.len()),
            Self::Both(both) => {
                let [one, other] = &**both;
                Box::pin(one.holds(node)).await && Box::pin(other.holds(node)).await
            }
        }
    }
}

/// Which callers are refused.
async fn refused(rls: &Grpc, key: &str) -> BTreeSet<usize> {
    let mut refused = BTreeSet::new();
    for caller in 0..CALLERS {
        let entries = [(key, &*format!("caller-{caller}"))];
        if rls.ask(&asks("api", [descriptor(&entries)])).await.overall_code == 2 {
            refused.insert(caller);
        }
    }
    refused
}

/// So much of an endpoint, for every key.
fn rule(endpoint: &str, amount: u32) -> String {
    format!(
        r#"{{"domain": "api", "descriptors": [{{"key": "api_key", "descriptors": [
            {{"key": "endpoint", "value": "{endpoint}", "rate_limit": {{"limit": "{amount}/1h"}}}}]}}]}}"#
    )
}

/// One more gate.
fn gate(key: &str) -> String {
    format!(r#"{{"domain": "api", "descriptors": [{{"key": "{key}", "rate_limit": {{"limit": "0/1h"}}}}]}}"#)
}

fn state(state: &str) -> String {
    format!(r#"{{"state": "{state}"}}"#)
}

fn grant(amount: u32) -> String {
    format!(
        r#"{{"overrides": [{{"descriptor": "default", "requests_per_unit": {amount}, "unit": "hour"}}]}}"#
    )
}

fn quotas() -> Vec<Case> {
    vec![
        case("a quota is written, and written over")
            .then(put("/admin/v1/quotas/put", r#"{"tier": "pro"}"#), Limit("api_key=put", Some(6)))
            .then(put("/admin/v1/quotas/put", grant(50)), Limit("api_key=put", Some(50))),
        case("a quota is deleted")
            .then(put("/admin/v1/quotas/gone", grant(51)), Limit("api_key=gone", Some(51)))
            .then(delete("/admin/v1/quotas/gone"), Limit("api_key=gone", Some(3))),
        case("quotas are imported as lines of JSON").then(
            post(
                "/admin/v1/quotas:import",
                LINES,
                "{\"api_key\": \"line-1\", \"tier\": \"pro\"}\n\
                 {\"api_key\": \"line-2\", \"overrides\": [{\"descriptor\": \"endpoint:/deep\", \
                 \"requests_per_unit\": 2, \"unit\": \"hour\"}]}\n",
            ),
            both(Limit("api_key=line-1", Some(6)), Limit("api_key=line-2 endpoint=/deep", Some(2))),
        ),
        case("quotas are imported as CSV").then(
            post(
                "/admin/v1/quotas:import",
                CSV,
                "api_key,tier,descriptor,requests_per_unit,unit,whitelisted\n\
                 cell-1,,default,52,hour,\n\
                 cell-2,pro,,,,true\n",
            ),
            both(Limit("api_key=cell-1", Some(52)), Limit("api_key=cell-2", None)),
        ),
        case("a tier is written, and written over")
            .then(put("/admin/v1/tiers/gold", grant(20)), Limit("api_key=golden", Some(3)))
            .then(put("/admin/v1/quotas/golden", r#"{"tier": "gold"}"#), Limit("api_key=golden", Some(20)))
            .then(put("/admin/v1/tiers/gold", grant(21)), Limit("api_key=golden", Some(21))),
        case("a tier is deleted")
            .then(put("/admin/v1/tiers/brass", grant(22)), Limit("api_key=brazen", Some(3)))
            .then(put("/admin/v1/quotas/brazen", r#"{"tier": "brass"}"#), Limit("api_key=brazen", Some(22)))
            .then(delete("/admin/v1/tiers/brass"), Limit("api_key=brazen", Some(3))),
    ]
}

fn rules() -> Vec<Case> {
    const WRITTEN: &str = "api_key=anybody endpoint=/written";
    const SHORT: &str = "api_key=anybody endpoint=/short";
    const DELETED: &str = "api_key=anybody endpoint=/deleted";
    const ROLLED: &str = "api_key=anybody endpoint=/rolled";
    let short = r#"{"endpoint": "/short", "maxRequests": 1, "windowSeconds": 3600}"#;
    vec![
        case("a rule is written, and written over")
            .then(put("/admin/v1/rules/written", rule("/written", 2)), Limit(WRITTEN, Some(2)))
            .then(put("/admin/v1/rules/written", rule("/written", 1)), Limit(WRITTEN, Some(1))),
        case("a rule is deleted")
            .then(put("/admin/v1/rules/deleted", rule("/deleted", 2)), Limit(DELETED, Some(2)))
            .then(delete("/admin/v1/rules/deleted"), Limit(DELETED, Some(3))),
        case("a rule is written at the other path")
            .then(put("/api/admin/rate-limit-rules/short", short), Limit(SHORT, Some(1))),
        case("a rule is deleted at the other path")
            .then(put("/admin/v1/rules/other", gate("other")), Refuses("other=a"))
            .then(delete("/api/admin/rate-limit-rules/other"), Admits("other=a")),
        case("a rule is rolled back")
            .then(put("/admin/v1/rules/rolled", rule("/rolled", 1)), Limit(ROLLED, Some(1)))
            .then(put("/admin/v1/rules/rolled", rule("/rolled", 2)), Limit(ROLLED, Some(2)))
            .then(post("/admin/v1/rules/rolled/rollback", JSON, r#"{"version": 1}"#), Limit(ROLLED, Some(1))),
    ]
}

fn states() -> Vec<Case> {
    vec![
        case("a rule of a file is put in shadow").then(
            put("/admin/v1/rules/api%7Cdark%23gate/state", state("shadow")),
            both(Admits("dark=a"), Limit("dark=a", None)),
        ),
        case("a rule of a file is turned off").then(
            put("/admin/v1/rules/api%7Copen%23gate/state", state("disabled")),
            both(Admits("open=a"), Limit("open=a", None)),
        ),
        case("a rule that was off counts in shadow")
            .then(
                put("/admin/v1/rules/api%7Ccounted%23gate/state", state("disabled")),
                Limit("counted=a", None),
            )
            .then(
                put("/admin/v1/rules/api%7Ccounted%23gate/state", state("shadow")),
                both(Limit("counted=a", None), Counts("counted", "a")),
            ),
        case("a rule of a file is enforced for nobody, for some, and for all")
            .then(put("/admin/v1/rules/api%7Cnone%23gate/state", state("enforce 0%")), Admits("none=a"))
            // A quarter of them is 50, give or take 6.
            .then(
                put("/admin/v1/rules/api%7Csome%23gate/state", state("enforce 25%")),
                RefusesSome("some", 15..=90),
            )
            .then(put("/admin/v1/rules/api%7Cback%23gate/state", state("enforce 0%")), Admits("back=a"))
            .then(put("/admin/v1/rules/api%7Cback%23gate/state", state("enforce 100%")), Refuses("back=a")),
        case("a state with an end that is far").then(
            put(
                "/admin/v1/rules/api%7Clong%23gate/state",
                r#"{"state": "disabled", "expires_at": "2099-01-01T00:00:00Z"}"#,
            ),
            Admits("long=a"),
        ),
        case("a rule by API is turned off")
            .then(put("/admin/v1/rules/off", gate("off")), Refuses("off=a"))
            .then(put("/admin/v1/rules/off/state", state("disabled")), Admits("off=a")),
        case("a rule by API is put in shadow, and its state taken away")
            .then(put("/admin/v1/rules/on", gate("on")), Refuses("on=a"))
            .then(put("/admin/v1/rules/on/state", state("shadow")), Admits("on=a"))
            .then(delete("/admin/v1/rules/on/state"), Refuses("on=a")),
    ]
}

fn cases() -> Vec<Case> {
    [quotas(), rules(), states()].into_iter().flatten().collect()
}

/// Makes all writes; each is seen as soon as is promised.
async fn all_writes_are_seen(admin: &Admin<'_>, node: &Node) {
    let mut took = Vec::new();
    for Case { what, steps } in cases() {
        for (Write { method, path, content_type, body }, sees) in steps {
            let watch = Stopwatch::start();
            let reply = admin.send(method, path, content_type, &body).await;
            assert!(reply.status < 300, "{what}: {method} {path}: {} {}", reply.status, reply.body);
            until(&format!("{what}: {sees:?}"), async || sees.holds(node).await.then_some(())).await;
            took.push((watch.elapsed(), what));
        }
    }
    took.sort_unstable();
    let (three_of_four, last) = (took[took.len() * 3 / 4], took[took.len() - 1]);
    println!("{} writes: three of four after {three_of_four:?}, the last after {last:?}", took.len());
    assert!(three_of_four.0 < PROMISED, "{took:?}");
    assert!(last.0 < PROMISED + SLACK, "{took:?}");
}

/// What was written last is in force, at once.
async fn all_writes_hold(node: &Node) {
    for Case { what, steps } in cases() {
        if let Some((_, sees)) = steps.last() {
            assert!(sees.holds(node).await, "{what}: {sees:?}");
        }
    }
}

/// Somebody who has nothing left has all of it again.
async fn a_reset_is_seen(admin: &Admin<'_>, node: &Node) {
    for admitted in [true, true, true, false] {
        assert_eq!(admits(node, "spent").await, admitted);
    }
    // The counters are those of the fleet, whoever is asked.
    let usage =
        async || admin.call("GET", "/admin/v1/usage/spent", "").await.json()["usage"]["default"].clone();
    assert_eq!(usage().await, json!({ "used": 3, "limit": 3, "remaining": 0 }));
    let watch = Stopwatch::start();
    let reply = admin.call("DELETE", "/admin/v1/usage/spent", "").await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(usage().await, json!({ "used": 0, "limit": 3, "remaining": 3 }));
    until("there is room again", async || admits(node, "spent").await.then_some(())).await;
    let took = watch.elapsed();
    assert!(took < PROMISED + SLACK, "{took:?}");
    for admitted in [true, true, false] {
        assert_eq!(admits(node, "spent").await, admitted);
    }
}

/// A state that ends after a while.
struct Ending {
    /// In microseconds, by the machine's clock.
    at: u64,
    clock: Clock,
}

impl Ending {
    const LASTS_US: u64 = 3_000_000;
    /// What two clocks of a machine may differ by.
    const APART_US: u64 = 50_000;

    async fn begins(admin: &Admin<'_>, node: &Node) -> Self {
        let clock = Clock::real();
        let at = clock.wall_now_us() + Self::LASTS_US;
        let text = Timestamp::from_microsecond(i64::try_from(at).expect("a time")).expect("a time");
        let body = format!(r#"{{"state": "disabled", "expires_at": "{text}"}}"#);
        let reply = admin.call("PUT", "/admin/v1/rules/api%7Csoon%23gate/state", &body).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        until("it is turned off", async || Admits("soon=a").holds(node).await.then_some(())).await;
        Self { at, clock }
    }

    /// Does what it is to do at this moment. Has it ended?
    async fn is_kept(&self, node: &Node) -> bool {
        let before = self.clock.wall_now_us();
        let refuses = Refuses("soon=a").holds(node).await;
        let after = self.clock.wall_now_us();
        // Only what was asked wholly before or wholly after the instant says something about it.
        assert!(!refuses || after > self.at - Self::APART_US, "it ended too soon");
        let late = SLACK.as_micros() as u64;
        assert!(refuses || before < self.at + Self::APART_US + late, "it does not end");
        refuses
    }

    async fn ends(&self, node: &Node) {
        until("it ends", async || self.is_kept(node).await.then_some(())).await;
    }
}

async fn is_ready(node: &Node) {
    until("ready", async || (node.http().await.get("/readyz").await.status == 200).then_some(())).await;
}

#[tokio::test]
async fn every_write_is_seen_by_another_process_and_holds_after_kill_9_with_the_database_gone() {
    let (kept, redis) = (Kept::on_postgres(RULES), redis());
    let postgres = kept.postgres.as_ref().expect("PostgreSQL");
    let control = counting_in(kept.setup.clone(), &redis).set("node-role", "control").start();
    let decides = Setup::new(RULES)
        .set("control-enabled", "true")
        .set("node-role", "decide")
        .set("control-database", &postgres.url("postgres"));
    let decides = counting_in(decides, &redis);
    let mut node = decides.start();
    let admin = Admin::of(&control).await;
    is_ready(&node).await;

    all_writes_are_seen(&admin, &node).await;
    a_reset_is_seen(&admin, &node).await;
    let enforced = refused(&node.rls().await, "some").await;
    let ending = Ending::begins(&admin, &node).await;

    is_ready(&node).await; // Before that it may know more than it has written down.
    node.kill();
    postgres.kill();
    let node = decides.start();
    assert_eq!(node.http().await.get("/readyz").await.status, 200, "by what it knew last");
    ending.is_kept(&node).await;
    all_writes_hold(&node).await;
    assert_eq!(refused(&node.rls().await, "some").await, enforced, "the same callers as before");
    assert!(!admits(&node, "spent").await, "what was used since the reset stays used");
    ending.ends(&node).await;
}

#[tokio::test]
async fn every_write_is_kept_by_a_node_on_sqlite_that_is_killed() {
    let kept = Kept::on_sqlite(RULES);
    let mut node = kept.setup.start();
    let admin = Admin::of(&node).await;
    all_writes_are_seen(&admin, &node).await;
    a_reset_is_seen(&admin, &node).await;
    let enforced = refused(&node.rls().await, "some").await;
    let ending = Ending::begins(&admin, &node).await;
    node.kill();
    let node = kept.setup.start();
    is_ready(&node).await;
    ending.is_kept(&node).await;
    all_writes_hold(&node).await;
    assert_eq!(refused(&node.rls().await, "some").await, enforced, "the same callers as before");
    ending.ends(&node).await;
}

/// A call that writes and is not tried here is a stub until somebody shows what it does.
#[test]
fn every_call_that_writes_is_tried() {
    const ELSEWHERE: &[(&str, &str)] = &[
        ("DELETE", "/admin/v1/usage/{api_key}"), // Above, beside the table: it needs something to reset.
        ("POST", "/admin/v1/tokens"),            // No decision depends on tokens.
        ("DELETE", "/admin/v1/tokens/{id}"),
    ];
    let fits = |pattern: &str, path: &str| {
        let (pattern, path): (Vec<_>, Vec<_>) = (pattern.split('/').collect(), path.split('/').collect());
        let same = |(part, said): (&&str, &&str)| part.starts_with('{') || part == said;
        pattern.len() == path.len() && pattern.iter().zip(&path).all(same)
    };
    let writes: Vec<Write> =
        cases().into_iter().flat_map(|case| case.steps).map(|(write, _)| write).collect();
    for route in routes() {
        let (method, path) = (route.method.as_str(), route.path);
        let is_tried = writes.iter().any(|write| write.method == method && fits(path, write.path));
        let is_elsewhere = ELSEWHERE.contains(&(method, path));
        assert!(method == "GET" || is_tried || is_elsewhere, "{method} {path} is not tried");
    }
}
