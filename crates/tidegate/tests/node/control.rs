//! What the control plane keeps, by its effect on the answers of nodes: the real binary on SQLite and on a real PostgreSQL.

use std::time::Duration;

use tidegate_clock::Stopwatch;
use tidegate_control::{ControlStore, Options, Override, Quota, RuleState, State, Tier, Unit, Who};
use tidegate_testbed::{Postgres, PostgresOptions};

use crate::support::messages::Descriptor;
use crate::support::{Node, Setup, asks, descriptor, until};

pub(crate) const RULES: &str = "\
domain: api
match: path
descriptors:
  - key: api_key
    rate_limit: { limit: 3/1h, name: per-key }
    tiers:
      pro: { limit: 6/1h }
    descriptors:
      - key: endpoint
        value: POST /orders
        rate_limit: { limit: 2/1h, name: writes }
  - key: user_id
    rate_limit: { limit: 4/1h, name: per-user }
";

/// Where something is kept; what keeps it lives as long as this.
pub(crate) struct Kept {
    pub(crate) setup: Setup,
    pub(crate) options: Options,
    pub(crate) postgres: Option<Postgres>,
}

impl Kept {
    pub(crate) fn sqlite() -> Self {
        Self::on_sqlite(RULES)
    }

    pub(crate) fn on_sqlite(rules: &str) -> Self {
        let setup = Setup::new(rules).controlled();
        let options = Options::sqlite(setup.path().join("data/control.sqlite"));
        Self { setup, options, postgres: None }
    }

    pub(crate) fn postgres() -> Self {
        Self::on_postgres(RULES)
    }

    pub(crate) fn on_postgres(rules: &str) -> Self {
        let postgres = Postgres::start(&PostgresOptions::new()).expect("PostgreSQL");
        let url = postgres.url("postgres");
        let setup = Setup::new(rules).controlled().set("control-database", &url);
        Self { setup, options: Options::postgres(url), postgres: Some(postgres) }
    }

    pub(crate) fn both() -> [Self; 2] {
        Self::both_with(RULES)
    }

    /// On SQLite and on PostgreSQL, by these rules.
    pub(crate) fn both_with(rules: &str) -> [Self; 2] {
        [Self::on_sqlite(rules), Self::on_postgres(rules)]
    }

    /// A hand on it that no node knows of.
    pub(crate) async fn store(&self) -> ControlStore {
        ControlStore::open(&self.options).await.expect("a store")
    }
}

pub(crate) fn who() -> Who {
    Who::new("test", "127.0.0.1")
}

pub(crate) fn tier(key: &str, tier: &str) -> Quota {
    Quota { tier: Some(tier.into()), ..Quota::of(key) }
}

pub(crate) fn grant(descriptor: &str, amount: u32) -> Override {
    Override {
        descriptor: descriptor.into(),
        requests_per_unit: amount,
        unit: Unit::Hour,
        effective_at: None,
        expires_at: None,
    }
}

/// The limit that speaks for a caller, without charging; none is no limit.
pub(crate) async fn limit(node: &Node, entries: &[(&str, &str)]) -> Option<u32> {
    let peek = Descriptor { hits_addend: Some(0), ..descriptor(entries) };
    let answer = node.rls().await.ask(&asks("api", [peek])).await;
    answer.statuses.first().and_then(|status| Some(status.current_limit.as_ref()?.requests_per_unit))
}

/// Is a request of a caller admitted? It is charged.
pub(crate) async fn admits(node: &Node, key: &str) -> bool {
    let answer = node.rls().await.ask(&asks("api", [descriptor(&[("api_key", key)])])).await;
    answer.overall_code == 1
}

/// Waits until a caller has this limit; says how long that took.
pub(crate) async fn has_limit(node: &Node, entries: &[(&str, &str)], expected: Option<u32>) -> Duration {
    let watch = Stopwatch::start();
    let what = format!("{entries:?} has {expected:?}");
    until(&what, async || (limit(node, entries).await == expected).then_some(())).await;
    watch.elapsed()
}

#[tokio::test]
async fn a_quota_holds_on_every_node_while_they_run_and_after_a_restart() {
    for kept in Kept::both() {
        let mut node = kept.setup.start();
        let store = kept.store().await;
        let alice = [("api_key", "alice")];
        assert_eq!(limit(&node, &alice).await, Some(3), "the rule's own");
        store.put_quota(&who(), tier("alice", "pro"), None).await.expect("written");
        has_limit(&node, &alice, Some(6)).await;
        let orders = [("api_key", "alice"), ("endpoint", "POST /orders")];
        let overridden = Quota {
            overrides: vec![grant("default", 50), grant("endpoint:POST /orders", 9)],
            ..tier("alice", "pro")
        };
        store.put_quota(&who(), overridden, None).await.expect("written");
        has_limit(&node, &alice, Some(50)).await;
        has_limit(&node, &orders, Some(9)).await;
        assert_eq!(limit(&node, &[("api_key", "bob")]).await, Some(3), "nobody else's changed");
        node.kill();
        let node = kept.setup.start();
        has_limit(&node, &alice, Some(50)).await;
        store.delete_quota(&who(), "alice", None).await.expect("deleted");
        has_limit(&node, &alice, Some(3)).await;
    }
}

#[tokio::test]
async fn users_lists_and_tiers_are_kept_too() {
    for kept in Kept::both() {
        let (node, store) = (kept.setup.start(), kept.store().await);
        let of_user = |key: &str| Quota { user_id: Some("ursula".into()), ..tier(key, "gold") };
        for key in ["one", "two"] {
            store.put_quota(&who(), of_user(key), None).await.expect("written");
        }
        let gold = Tier { name: "gold".into(), overrides: vec![grant("default", 100)] };
        store.put_tier(&who(), gold, None).await.expect("written");
        // A hundred by the tier, and four by the user, whom both keys belong to.
        has_limit(&node, &[("api_key", "one")], Some(4)).await;
        let mut admitted = 0;
        for key in ["one", "two", "one", "two", "one", "two"] {
            admitted += u32::from(admits(&node, key).await);
        }
        assert_eq!(admitted, 4, "counted together");
        store.put_quota(&who(), Quota { whitelisted: true, ..of_user("one") }, None).await.expect("written");
        has_limit(&node, &[("api_key", "one")], None).await;
        assert!(admits(&node, "one").await);
        store.delete_tier(&who(), "gold", None).await.expect("deleted");
        store.put_quota(&who(), tier("two", "gold"), None).await.expect("written");
        has_limit(&node, &[("api_key", "two")], Some(3)).await;
    }
}

#[tokio::test]
async fn overrides_begin_and_end_at_their_instants() {
    for kept in Kept::both() {
        let (node, store) = (kept.setup.start(), kept.store().await);
        // A clock like the node's: a machine's wall time may run away from it by milliseconds in a second.
        let clock = tidegate_clock::Clock::real();
        let now = || i64::try_from(clock.now_us()).expect("a time");
        let (from, until) = (now() + 2_000_000, now() + 4_000_000);
        let timed = Override { effective_at: Some(from), expires_at: Some(until), ..grant("default", 77) };
        let quota = Quota { overrides: vec![timed], ..Quota::of("alice") };
        store.put_quota(&who(), quota, None).await.expect("written");
        store.close().await; // Nobody tells the node anything any more.
        let mut seen = Vec::new();
        const APART: i64 = 50_000; // What the two clocks may differ by, for they began at different times.
        loop {
            let before = now();
            let limit = limit(&node, &[("api_key", "alice")]).await;
            let after = now();
            // Only what was asked wholly before or wholly after an instant says something about it.
            if after < from - APART || before > until + APART {
                assert_eq!(limit, Some(3));
            } else if before > from + APART && after < until - APART {
                assert_eq!(limit, Some(77));
                seen.push(77);
            }
            if before > until + 200_000 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(!seen.is_empty(), "the machine stood still for two seconds");
    }
}

#[tokio::test]
async fn a_rule_is_put_in_another_state_wherever_it_was_written() {
    for kept in Kept::both() {
        let (node, store) = (kept.setup.start(), kept.store().await);
        for _ in 0..3 {
            assert!(admits(&node, "alice").await);
        }
        assert!(!admits(&node, "alice").await);
        let state = |state, expires_at| RuleState { rule: "api|api_key#per-key".into(), state, expires_at };
        store.put_rule_state(&who(), state(State::Shadow, None), None).await.expect("written");
        let asked = async |admitted: bool| (admits(&node, "alice").await == admitted).then_some(());
        until("the rule is in shadow", async || asked(true).await).await;
        // The files may be broken by now: the switch works.
        kept.setup.write("rules/rules.yaml", "domain: [");
        store.put_rule_state(&who(), state(State::Enforce, None), None).await.expect("written");
        until("the rule is enforced", async || asked(false).await).await;
        let now = i64::try_from(tidegate_clock::Clock::real().wall_now_us()).expect("a time");
        store
            .put_rule_state(&who(), state(State::Disabled, Some(now + 3_000_000)), None)
            .await
            .expect("written");
        until("the rule is off", async || asked(true).await).await;
        until("and on again by itself", async || asked(false).await).await;
    }
}

#[tokio::test]
async fn decisions_go_on_without_the_database_and_so_does_a_restart() {
    let kept = Kept::postgres();
    let postgres = kept.postgres.as_ref().expect("PostgreSQL");
    let (mut node, store) = (kept.setup.start(), kept.store().await);
    store.put_quota(&who(), tier("alice", "pro"), None).await.expect("written");
    has_limit(&node, &[("api_key", "alice")], Some(6)).await;
    // Before that it may know more than it has written down.
    until("it is ready", async || (node.http().await.get("/readyz").await.status == 200).then_some(())).await;
    postgres.kill();
    assert_eq!(limit(&node, &[("api_key", "alice")]).await, Some(6));
    node.kill();
    let node = kept.setup.start();
    assert_eq!(limit(&node, &[("api_key", "alice")]).await, Some(6), "from what it knew last");
    assert_eq!(node.http().await.get("/readyz").await.status, 200);
    postgres.restart().expect("PostgreSQL again");
    let store = kept.store().await;
    store.put_quota(&who(), tier("alice", "free"), None).await.expect("written");
    has_limit(&node, &[("api_key", "alice")], Some(3)).await;
}

/// SQLite is on the node's own disk, and what is found there may be no database any more.
#[tokio::test]
async fn a_damaged_file_of_sqlite_keeps_no_node_from_deciding_by_what_it_knew() {
    let kept = Kept::sqlite();
    let (mut node, store) = (kept.setup.start(), kept.store().await);
    store.put_quota(&who(), tier("alice", "pro"), None).await.expect("written");
    has_limit(&node, &[("api_key", "alice")], Some(6)).await;
    until("it is ready", async || (node.http().await.get("/readyz").await.status == 200).then_some(())).await;
    store.close().await;
    node.kill();
    let files = ["control.sqlite", "control.sqlite-wal", "control.sqlite-shm"];
    let paths = files.map(|file| {
        [file.to_owned(), format!("{file}.whole")].map(|name| kept.setup.path().join("data").join(name))
    });
    for [there, aside] in paths.iter().filter(|[there, _]| there.exists()) {
        std::fs::rename(there, aside).expect("put aside");
    }
    std::fs::write(&paths[0][0], "no database ".repeat(1_000)).expect("damaged");
    let node = kept.setup.start();
    assert_eq!(limit(&node, &[("api_key", "alice")]).await, Some(6), "from what it knew last");
    assert_eq!(node.http().await.get("/readyz").await.status, 200);
    until("it is told", async || node.log().contains("database cannot be opened").then_some(())).await;
    for [there, aside] in &paths {
        let _ = std::fs::remove_file(there);
        let _ = std::fs::rename(aside, there); // Not all of them need be there.
    }
    let store = kept.store().await;
    store.put_quota(&who(), tier("alice", "free"), None).await.expect("written");
    has_limit(&node, &[("api_key", "alice")], Some(3)).await;
}

#[tokio::test]
async fn a_node_that_knows_no_quotas_yet_is_not_ready() {
    let kept = Kept::postgres();
    let postgres = kept.postgres.as_ref().expect("PostgreSQL");
    postgres.kill();
    let node = kept.setup.start();
    let ready = node.http().await.get("/readyz").await;
    assert_eq!((ready.status, ready.body.as_str()), (503, "quotas not loaded yet\n"));
    assert_eq!(limit(&node, &[("api_key", "alice")]).await, Some(3), "whoever asks all the same is answered");
    postgres.restart().expect("PostgreSQL again");
    until("it is ready", async || (node.http().await.get("/readyz").await.status == 200).then_some(())).await;
}

/// Somebody at the API of a node.
pub(crate) struct Admin<'n> {
    pub(crate) node: &'n Node,
    pub(crate) token: String,
}

impl<'n> Admin<'n> {
    /// With the token that the node printed when it first started.
    pub(crate) async fn of(node: &'n Node) -> Self {
        let token = until("a first token", async || {
            node.log().split_whitespace().find(|word| word.starts_with("tg_")).map(String::from)
        });
        Self { node, token: token.await }
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: &str) -> crate::support::http::Reply {
        self.send(method, path, "application/json", body).await
    }

    /// The same with a body of any type.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &str,
    ) -> crate::support::http::Reply {
        let bearer = format!("Bearer {}", self.token);
        let headers = [("authorization", bearer.as_str()), ("content-type", content_type)];
        let address = self.node.admin.expect("an API");
        // The API is there as soon as the database is.
        until("an answer", async || {
            let reply =
                crate::support::Http::connect(address).await.request(method, path, &headers, body).await;
            (reply.status != 503).then_some(reply)
        })
        .await
    }
}

#[tokio::test]
async fn what_the_api_is_told_holds_for_the_next_request() {
    for kept in Kept::both() {
        let node = kept.setup.start();
        let admin = Admin::of(&node).await;
        let quota = r#"{"tier": "pro", "overrides": [
            {"descriptor": "endpoint:POST /orders", "requests_per_unit": 500, "unit": "minute"}]}"#;
        let put = admin.call("PUT", "/admin/v1/quotas/abc123", quota).await;
        assert_eq!(put.status, 200, "{}", put.body);
        let told = put.json();
        assert_eq!((&told["api_key"], &told["tier"]), (&"abc123".into(), &"pro".into()), "{told}");
        assert_eq!(
            told["quotas"]["default"],
            serde_json::json!({"requests_per_unit": 6, "unit": "hour"}),
            "{told}"
        );
        has_limit(&node, &[("api_key", "abc123")], Some(6)).await;

        for _ in 0..2 {
            assert!(admits(&node, "abc123").await);
        }
        let usage = admin.call("GET", "/admin/v1/usage/abc123", "").await.json();
        let default = &usage["usage"]["default"];
        assert_eq!(
            (&default["used"], &default["limit"], &default["remaining"]),
            (&2.into(), &6.into(), &4.into()),
            "{usage}"
        );
        assert_eq!(usage["usage"]["endpoint:POST /orders"]["limit"], 500, "{usage}");
        let reset = admin.call("DELETE", "/admin/v1/usage/abc123", "").await;
        assert!(reset.status < 300, "{}", reset.body);
        let usage = admin.call("GET", "/admin/v1/usage/abc123", "").await.json();
        assert_eq!(usage["usage"]["default"]["used"], 0, "{usage}");

        let rule = r#"{"endpoint": "/api/search", "clientTier": "pro", "maxRequests": 4, "windowSeconds": 3600,
            "algorithm": "sliding_window_counter"}"#;
        let search = [("api_key", "abc123"), ("endpoint", "/api/search")];
        let dry = admin.call("PUT", "/api/admin/rate-limit-rules/search-pro?dry_run", rule).await;
        assert_eq!(dry.status, 200, "{}", dry.body);
        assert_eq!(limit(&node, &search).await, Some(6), "a dry run changes nothing");
        let put = admin.call("PUT", "/api/admin/rate-limit-rules/search-pro", rule).await;
        assert!(put.status < 300, "{}", put.body);
        has_limit(&node, &search, Some(4)).await;
        let state = r#"{"state": "disabled"}"#;
        let put = admin.call("PUT", "/admin/v1/rules/search-pro/state", state).await;
        assert!(put.status < 300, "{}", put.body);
        has_limit(&node, &search, Some(6)).await;
        let put = admin.call("DELETE", "/admin/v1/rules/search-pro/state", "").await;
        assert!(put.status < 300, "{}", put.body);
        has_limit(&node, &search, Some(4)).await;
        let gone = admin.call("DELETE", "/admin/v1/rules/search-pro", "").await;
        assert!(gone.status < 300, "{}", gone.body);
        has_limit(&node, &search, Some(6)).await;

        let of_file = admin.call("PUT", "/admin/v1/rules/api%7Capi_key%23per-key", rule).await;
        assert_eq!(of_file.status, 409, "{}", of_file.body);
        let verified = admin.call("GET", "/admin/v1/audit/verify", "").await;
        assert_eq!(verified.status, 200, "{}", verified.body);
        let nobody = Admin { node: &node, token: "tg_nobody".into() };
        assert_eq!(nobody.call("GET", "/admin/v1/quotas/abc123", "").await.status, 401);
    }
}

#[tokio::test]
async fn one_process_is_asked_by_people_and_two_by_envoy() {
    let kept = Kept::postgres();
    let control = kept.setup.clone().set("node-role", "control").start();
    let url = kept.postgres.as_ref().expect("PostgreSQL").url("postgres");
    let nodes = ["one", "two"].map(|_| {
        Setup::new(RULES)
            .set("control-enabled", "true")
            .set("node-role", "decide")
            .set("control-database", &url)
            .start()
    });
    let admin = Admin::of(&control).await;
    let put = admin.call("PUT", "/admin/v1/quotas/alice", r#"{"tier": "pro"}"#).await;
    assert_eq!(put.status, 200, "{}", put.body);
    for node in &nodes {
        let took = has_limit(node, &[("api_key", "alice")], Some(6)).await;
        // A second is promised; the machine of a test may stand still for as long.
        assert!(took < Duration::from_secs(3), "{took:?}");
        assert!(node.log().lines().all(|line| !line.contains("tg_")), "only whoever has the API has a token");
    }
}

/// What a dry run says would change: rule, before, after, and whether counters would start afresh.
type Told = Vec<(String, Option<String>, Option<String>, bool)>;

async fn dry_run(admin: &Admin<'_>, method: &str, call: &str, body: &str) -> Told {
    let dry = admin.call(method, &format!("/admin/v1/rules/{call}?dry_run"), body).await;
    assert_eq!(dry.status, 200, "{call}: {}", dry.body);
    let text = |value: &serde_json::Value| value.as_str().map(String::from);
    let changes = dry.json()["changes"].as_array().cloned().unwrap_or_default();
    let one = |one: &serde_json::Value| {
        let id = text(&one["id"]).expect("an id");
        (id, text(&one["before"]), text(&one["after"]), one["counters_start_afresh"] == true)
    };
    changes.iter().map(one).collect()
}

#[tokio::test]
async fn a_dry_run_tells_whatever_would_change_and_writes_nothing() {
    const ID: &str = "api|region#searches";
    const ALL: &str = "sliding_window 5/1h";
    let document = |inside: &str, beside: &str| {
        let limit = format!(r#"{{ "limit": "5/1h", "name": "searches"{inside} }}"#);
        let level = format!(r#"{{ "key": "region", "rate_limit": {limit}{beside} }}"#);
        format!(r#"{{ "domain": "api", "descriptors": [{level}] }}"#)
    };
    let (inside, beside) = (|said: &str| document(said, ""), |said: &str| document("", said));
    let shop = |said: &str, level: &str| {
        let level = format!(r#"{{ "key": "customer", "rate_limit": {{ "limit": "5/1h" }}{level} }}"#);
        format!(r#"{{ "domain": "shop"{said}, "descriptors": [{level}] }}"#)
    };
    let told = |id: &str, before: &str, after: &str| {
        let side = |said: &str| (!said.is_empty()).then(|| said.to_owned());
        (id.to_owned(), side(before), side(after), false)
    };
    let plain = || document("", "");
    let allow = inside(r#", "on_store_failure": "allow""#);
    let cases = [
        (beside(r#", "shadow_mode": true"#), plain(), " shadow_mode", ""),
        (inside(r#", "enforce": "25%""#), inside(r#", "enforce": "100%""#), " enforce=25%", " enforce=100%"),
        (allow, inside(r#", "on_store_failure": "deny""#), "", " on_store_failure=deny"),
        (plain(), inside(r#", "disabled": true"#), "", " disabled"),
        (plain(), inside(r#", "consistency": "local""#), "", " consistency=local"),
        (plain(), inside(r#", "charge": "always""#), "", " charge=always"),
    ];
    for kept in Kept::both() {
        let node = kept.setup.start();
        let admin = Admin::of(&node).await;
        let written = async |id: &str, text: &str| {
            let put = admin.call("PUT", &format!("/admin/v1/rules/{id}"), text).await;
            assert_eq!(put.status, 200, "{}", put.body);
            // What is told is told of what is in force.
            until("it is in force", async || dry_run(&admin, "PUT", id, text).await.is_empty().then_some(()))
                .await;
            put.json()
        };
        for (was, is, before, after) in &cases {
            let version = written("searches", was).await["version"].clone();
            let expected = [told(ID, &format!("{ALL}{before}"), &format!("{ALL}{after}"))];
            assert_eq!(dry_run(&admin, "PUT", "searches", is).await, expected);
            let kept = admin.call("GET", "/admin/v1/rules/searches", "").await.json();
            assert_eq!(kept["version"], version, "nothing was written: {kept}");
        }
        // Back to the first version, which was in shadow.
        let expected = [told(ID, ALL, &format!("{ALL} shadow_mode"))];
        assert_eq!(dry_run(&admin, "POST", "searches/rollback", r#"{ "version": 1 }"#).await, expected);
        let longer = plain().replace("5/1h", "5/2h");
        let expected = [(ID.to_owned(), Some(ALL.to_owned()), Some("sliding_window 5/2h".to_owned()), true)];
        assert_eq!(dry_run(&admin, "PUT", "searches", &longer).await, expected);

        // What holds for a whole domain is no rule, and matters no less.
        let put = written("shop", &shop("", "")).await;
        assert_eq!(put["compiled"], serde_json::json!(["shop|customer#shop"]), "{put}");
        let said = r#", "match": "path", "quota_key": "customer", "exempt": { "callers": ["vip"] }"#;
        let domain = told("shop", "match=leaf quota_key=api_key", "match=path quota_key=customer exempt=vip");
        let level = told("shop|customer", "", "exempt=10.0.0.0/8");
        let new = shop(said, r#", "exempt": { "cidrs": ["10.0.0.0/8"] }"#);
        assert_eq!(dry_run(&admin, "PUT", "shop", &new).await, [domain, level]);
        let gone = [told("shop", "match=leaf quota_key=api_key", ""), told("shop|customer#shop", ALL, "")];
        assert_eq!(dry_run(&admin, "DELETE", "shop", "").await, gone);
        let kept = admin.call("GET", "/admin/v1/rules/shop", "").await.json();
        assert_eq!((&kept["version"], &kept["compiled"]), (&put["version"], &put["compiled"]), "{kept}");
    }
}
