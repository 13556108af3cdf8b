//! A node in the place of envoyproxy/ratelimit: started as it is, by its variables alone. What it answers is compared with the real one in
//! `tests/reference_server`; here is what that one cannot show.

use std::collections::BTreeMap;

use tidegate_testbed::{Kind, Options, Server};

use crate::support::certificates::{Authority, TlsClient};
use crate::support::{Failed, Grpc, Http, Node, Setup, asks, descriptor, until};

const RULES: &str = "domain: shop
descriptors:
  - key: few
    rate_limit: { unit: day, requests_per_unit: 2, name: few }
    metadata: { tier: gold }
  - key: quick
    rate_limit: { unit: second, requests_per_unit: 1000 }
  - key: other
    rate_limit: { unit: day, requests_per_unit: 3 }
";

pub(crate) fn redis() -> Server {
    Server::start(Kind::Redis, &Options::new()).unwrap_or_else(|error| panic!("{error}"))
}

/// A node as its users start it. The machine of a test may be busy: no answer is late.
fn setup(redis: &Server) -> Setup {
    setup_with(redis, RULES)
}

/// The same by other rules.
pub(crate) fn setup_with(redis: &Server, rules: &str) -> Setup {
    let setup = Setup::demo().verb("ratelimit");
    setup.write("shop/config/rules", rules); // Any name will do.
    let root = setup.path().display().to_string();
    setup
        .set("store-timeout", "10s")
        .set("node-deadline", "20s")
        .variable("REDIS_SOCKET_TYPE", "tcp")
        .variable("REDIS_URL", &redis.address().to_string())
        .variable("REDIS_TIMEOUT", "5s")
        .variable("RUNTIME_ROOT", &root)
        .variable("RUNTIME_SUBDIRECTORY", "shop")
        .variable("DEBUG_HOST", "127.0.0.1")
        .variable("DEBUG_PORT", "0")
        .variable("USE_STATSD", "false")
        .variable("LOG_LEVEL", "info")
}

fn body(key: &str) -> String {
    format!(r#"{{"domain":"shop","descriptors":[{{"entries":[{{"key":"{key}","value":"a"}}]}}]}}"#)
}

async fn json(node: &Node, key: &str) -> (u16, serde_json::Value) {
    let reply = node.http().await.post("/json", &body(key)).await;
    (reply.status, reply.json())
}

pub(crate) async fn page(node: &Node, path: &str) -> String {
    Http::connect(node.debug.expect("a debug port")).await.get(path).await.body
}

pub(crate) async fn stats(node: &Node) -> BTreeMap<String, u64> {
    let page = page(node, "/stats").await;
    let pair =
        |line: &str| Some((line.split_once(": ")?.0.to_owned(), line.split_once(": ")?.1.parse().ok()?));
    page.lines().filter_map(pair).collect()
}

/// The names of all counters.
pub(crate) fn keys(redis: &Server) -> Vec<String> {
    let keys = redis
        .command(&["KEYS", "*"])
        .items()
        .iter()
        .filter_map(tidegate_testbed::Reply::text)
        .collect::<Vec<_>>();
    let mut keys: Vec<String> = keys.into_iter().filter(|key| !key.starts_with("tg:")).collect();
    keys.sort();
    keys
}

#[tokio::test]
async fn it_answers_over_json_and_counts_under_the_names_that_others_use() {
    let redis = redis();
    let node = setup(&redis).variable("CACHE_KEY_PREFIX", "mine:").start();
    let (status, told) = json(&node, "few").await;
    assert_eq!((status, &told["overallCode"]), (200, &"OK".into()), "{told}");
    let limit = serde_json::json!({ "requestsPerUnit": 2, "unit": "DAY", "name": "few" });
    assert_eq!(
        (&told["statuses"][0]["currentLimit"], &told["statuses"][0]["limitRemaining"]),
        (&limit, &1.into())
    );
    assert_eq!(json(&node, "few").await.0, 200);
    let (status, told) = json(&node, "few").await;
    assert_eq!((status, &told["statuses"][0]["code"]), (429, &"OVER_LIMIT".into()), "{told}");
    let names = keys(&redis);
    assert!(names.len() == 1 && names[0].starts_with("mine:shop_few_a_"), "{names:?}");
    assert_eq!(
        redis.command(&["GET", &names[0]]).text().as_deref(),
        Some("2"),
        "refused requests charge nothing"
    );
    for wrong in ["", "{", r#"{"domain":"","descriptors":[]}"#, r#"{"domain":"shop","what":1}"#] {
        let reply = node.http().await.post("/json", wrong).await;
        assert_eq!((reply.status, reply.body.as_str()), (400, "Bad Request\n"), "{wrong}");
    }
    let stats = stats(&node).await;
    let of = |name: &str| stats.get(&format!("ratelimit.service.rate_limit.shop.few.{name}")).copied();
    assert_eq!([of("total_hits"), of("over_limit"), of("within_limit")], [Some(3), Some(1), Some(2)]);
    assert_eq!(stats["ratelimit.service.config_load_success"], 1);
    let rules = page(&node, "/rlconfig").await;
    assert!(
        rules.contains("shop.few: unit=DAY requests_per_unit=2, shadow_mode: false, quota_mode: false\n"),
        "{rules}"
    );
    let health = node.http().await.get("/healthcheck").await;
    assert_eq!((health.status, health.body.as_str()), (200, "OK"));
}

#[tokio::test]
async fn it_listens_at_a_socket_in_place_of_a_port() {
    let redis = redis();
    let setup =
        setup(&redis).without("rls-listen").variable("GRPC_PORT", "1").variable("GRPC_UDS", "rls.sock");
    let node = setup.start();
    let path = node.rls_socket.clone().expect("a socket");
    let told = node.rls().await.ask(&asks("shop", [descriptor(&[("few", "a")])])).await;
    assert_eq!((told.overall_code, told.statuses[0].limit_remaining), (1, 1));
    assert_eq!(node.stop().await.0, 0);
    assert!(!path.exists());
    let none = setup.variable("GRPC_UDS", "@hidden").run_node();
    assert_eq!(none.code, 78, "{}", none.err);
    assert!(none.err.contains("GRPC_UDS") && none.err.contains("a socket without a file"), "{}", none.err);
}

/// What is remembered of refusals, as its local cache tells it.
#[tokio::test]
async fn refusals_that_are_remembered_are_told_as_its_local_cache() {
    let redis = redis();
    let node = setup(&redis).variable("LOCAL_CACHE_SIZE_IN_BYTES", "1000000").start();
    let of = async |name: &str| stats(&node).await.get(&format!("ratelimit.localcache.{name}")).copied();
    for _ in 0..3 {
        json(&node, "few").await;
    }
    assert_eq!(
        [of("entryCount").await, of("lookupCount").await, of("missCount").await],
        [Some(1), Some(3), Some(3)]
    );
    assert_eq!([of("evacuateCount").await, of("averageAccessTime").await], [Some(0), Some(0)]);
    // Each further one is found, or was over and is written again: a machine may stand still in between.
    for _ in 0..5 {
        json(&node, "few").await;
    }
    let [hits, expired] = [of("hitCount").await, of("expiredCount").await].map(Option::unwrap_or_default);
    assert_eq!((of("lookupCount").await, of("missCount").await), (Some(8), Some(8 - hits)));
    assert_eq!((hits + expired, of("entryCount").await), (5, Some(1)), "{hits} found, {expired} over");
}

#[tokio::test]
async fn modes_of_the_whole_node_are_honoured() {
    let redis = redis();
    let shadow = setup(&redis).variable("SHADOW_MODE", "true").start();
    for _ in 0..3 {
        json(&shadow, "few").await;
    }
    let (status, told) = json(&shadow, "few").await;
    assert_eq!((status, &told["overallCode"]), (200, &"OK".into()));
    assert_eq!(told["statuses"][0]["code"], "OVER_LIMIT", "{told}");
    assert_eq!(stats(&shadow).await["ratelimit.service.global_shadow_mode"], 2);
    drop(shadow);
    let quota = setup(&redis)
        .variable("QUOTA_MODE", "true")
        .variable("LIMIT_RESPONSE_HEADERS_ENABLED", "true")
        .variable("LIMIT_REMAINING_HEADER", "X-Left")
        .variable("RESPONSE_DYNAMIC_METADATA", "true")
        .start();
    let rls = quota.rls().await;
    let both = || {
        asks(
            "shop",
            [descriptor(&[("few", "a")]), descriptor(&[("other", "a")]), descriptor(&[("none", "a")])],
        )
    };
    let told = rls.ask(&both()).await;
    let codes: Vec<i32> = told.statuses.iter().map(|status| status.code).collect();
    assert_eq!((told.overall_code, codes), (1, vec![2, 1, 1]), "one of them has room");
    let headers: Vec<_> = told
        .response_headers_to_add
        .iter()
        .map(|header| (header.key.as_str(), header.value.as_str()))
        .collect();
    assert_eq!((headers[0], headers[1]), (("RateLimit-Limit", "2"), ("X-Left", "0")));
    for _ in 0..2 {
        rls.ask(&both()).await;
    }
    let told = rls.ask(&both()).await;
    assert_eq!(told.overall_code, 2, "none has, and one without a limit has no say");
}

#[tokio::test]
async fn limits_per_second_have_a_store_of_their_own() {
    let (main, second) = (redis(), redis());
    let node = setup(&main)
        .variable("REDIS_PERSECOND", "true")
        .variable("REDIS_PERSECOND_SOCKET_TYPE", "tcp")
        .variable("REDIS_PERSECOND_URL", &second.address().to_string())
        .start();
    let rls = node.rls().await;
    let both = asks("shop", [descriptor(&[("quick", "a")]), descriptor(&[("few", "a")])]);
    for code in [1, 1, 2] {
        let told = rls.ask(&both).await;
        assert_eq!(told.overall_code, code);
    }
    let names = keys(&main);
    assert!(names.len() == 1 && names[0].starts_with("shop_few_a_"), "{names:?}");
    assert_eq!(main.command(&["GET", &names[0]]).text().as_deref(), Some("2"));
    // A window of a second may have ended since; nothing else can be there.
    assert!(keys(&second).iter().all(|name| name.starts_with("shop_quick_a_")), "{:?}", keys(&second));
    let stats = stats(&node).await;
    assert!(stats["ratelimit.redis_per_second_pool.cx_total"] > 0, "{stats:?}");
}

#[tokio::test]
async fn rules_that_cannot_be_loaded_fail_calls_until_they_can() {
    let redis = redis();
    let setup = setup(&redis);
    setup.write("shop/config/rules", "domain: shop\ndescriptors: [{ key: few, what: 1 }]\n");
    let node = setup.start();
    let rls = node.rls().await;
    let asked = asks("shop", [descriptor(&[("few", "a")])]);
    match rls.try_ask(&asked, &[]).await {
        Err(Failed::Status(2, words)) => assert_eq!(words, "no rate limit configuration loaded"),
        other => panic!("{other:?}"),
    }
    assert_eq!(node.http().await.get("/healthcheck").await.status, 500);
    assert_eq!(stats(&node).await["ratelimit.service.config_load_error"], 1);
    setup.write("shop/config/rules", RULES);
    until("it is mended", async || rls.try_ask(&asked, &[]).await.ok().map(drop)).await;
    for (asked, words) in [
        (asks("", [descriptor(&[("few", "a")])]), "rate limit domain must not be empty"),
        (asks("shop", []), "rate limit descriptor list must not be empty"),
    ] {
        match rls.try_ask(&asked, &[]).await {
            Err(Failed::Status(2, told)) => assert_eq!(told, words),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(node.http().await.get("/healthcheck").await.status, 200);
}

/// Whoever looks for the words of the reference server in the log finds them, with the place and the remedy beside them.
#[tokio::test]
async fn bad_rules_are_told_in_the_words_that_operators_look_for() {
    let redis = redis();
    for (watch_root, file) in [("true", "config.rules"), ("false", "rules")] {
        let setup = setup(&redis).variable("RUNTIME_WATCH_ROOT", watch_root).variable("LOG_FORMAT", "json");
        let bad = "domain: shop\ndescriptors: [{ key: few, value: a }, { key: few, value: a }]\n";
        setup.write("shop/config/rules", bad);
        let node = setup.start();
        let line = |message: &str| {
            let log = node.log();
            let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            lines.into_iter().find(|line| line["@message"] == message)
        };
        let first = format!(
            "Error loading new configuration: {file}: duplicate descriptor composite key 'shop.few_a'"
        );
        let told = until("it is told at the start", async || line(&first)).await;
        assert_eq!(
            (&told["level"], &told["code"]),
            (&"error".into(), &"duplicate-descriptor".into()),
            "{told}"
        );
        let place = told["place"].as_str().unwrap_or_default();
        assert!(place.ends_with("shop/config/rules:2:46"), "{told}");
        assert!(told["help"].as_str().is_some_and(|help| help.contains("`rate_limits`")), "{told}");
        setup.write("shop/config/rules", RULES);
        until("they are loaded", async || line("rules in force")).await;
        setup.write("shop/config/rules", "domain: shop\ndescriptors: [{ key: few, what: 1 }]\n");
        let second = format!("Error loading new configuration: {file}: config error, unknown key 'what'");
        until("it is told again", async || line(&second)).await;
        assert_eq!(json(&node, "few").await.0, 200, "the rules before stay");
        assert!(stats(&node).await["ratelimit.service.config_load_error"] >= 2);
    }
}

#[tokio::test]
async fn without_its_store_calls_fail_so_that_envoy_decides() {
    let redis = redis();
    let node = setup(&redis).variable("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true").start();
    assert_eq!(json(&node, "few").await.0, 200);
    redis.kill();
    let rls = node.rls().await;
    let asked = asks("shop", [descriptor(&[("few", "a")])]);
    until("it notices", async || match rls.try_ask(&asked, &[]).await {
        Err(Failed::Status(14, _)) => Some(()),
        _ => None,
    })
    .await;
    until("it is ill", async || (node.http().await.get("/healthcheck").await.status == 500).then_some(()))
        .await;
    assert!(stats(&node).await["ratelimit.service.call.should_rate_limit.redis_error"] > 0);
}

#[tokio::test]
async fn one_setting_ends_twice_as_much_at_the_edge_of_a_window() {
    let redis = redis();
    let node = setup(&redis).variable("TIDEGATE_DEFAULTS_ALGORITHM", "sliding_window").start();
    assert_eq!(json(&node, "few").await.0, 200);
    assert!(keys(&redis).iter().all(|name| !name.starts_with("shop_")), "{:?}", keys(&redis));
    let told = node.http().await.post("/v1/inspect", &body("few")).await.json();
    assert!(told.to_string().contains("sliding_window"), "{told}");
}

/// The rules of the worked examples: an address per second, exact before wildcard before any; nested ones without a way back; one without a
/// limit.
const WORKED: &str = "domain: d
descriptors:
  - { key: ip, rate_limit: { unit: hour, requests_per_unit: 10 } }
  - { key: ip, value: 50.0.0.5, rate_limit: { unit: hour, requests_per_unit: 0 } }
  - { key: ip, value: '50.*', rate_limit: { unit: hour, requests_per_unit: 5 } }
  - key: k
    value: v
    rate_limit: { unit: day, requests_per_unit: 15 }
    descriptors: [{ key: s, value: w, rate_limit: { unit: day, requests_per_unit: 25 } }]
  - { key: k, value: x }
  - { key: u, rate_limit: { unlimited: true } }
  - { key: p, value: '1', descriptors: [{ key: a, rate_limit: { unit: minute, requests_per_unit: 3 } }] }
  - { key: p, descriptors: [{ key: b, rate_limit: { unit: minute, requests_per_unit: 4 } }] }
  - { key: files, value: 'files/*', share_threshold: true, rate_limit: { unit: hour, requests_per_unit: 10 } }
  - { key: svc, value: '1', quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: svc, value: '2', quota_mode: true, rate_limit: { unit: day, requests_per_unit: 2 } }
  - { key: a_b, rate_limit: { unit: day, requests_per_unit: 1 } }
";

/// What one descriptor is told: its code, the limit's amount and unit, what remains.
type Told = (i32, Option<(u32, i32)>, u32);

#[tokio::test]
async fn the_worked_examples_come_out_as_they_do_there() {
    const NONE: Told = (1, None, 0);
    let redis = redis();
    let setup = setup(&redis);
    setup.write("shop/config/rules", WORKED);
    let node = setup.start();
    let rls = node.rls().await;
    let ask = async |domain: &str, entries: &[&[(&str, &str)]]| {
        let answer = rls.ask(&asks(domain, entries.iter().map(|entries| descriptor(entries)))).await;
        let told = answer.statuses.iter().map(|status| {
            let limit = status.current_limit.as_ref().map(|limit| (limit.requests_per_unit, limit.unit));
            (status.code, limit, status.limit_remaining)
        });
        (answer.overall_code, told.collect::<Vec<Told>>())
    };
    let (hour, day) = (3, 4);
    let nested = |last| [("k", "v"), ("s", last)];
    for (number, domain, entries, told) in [
        (1, "d", &[("ip", "8.8.8.8")][..], (1, Some((10, hour)), 9)),
        (2, "d", &[("ip", "50.0.0.5")], (2, Some((0, hour)), 0)),
        (3, "d", &[("ip", "50.0.0.9")], (1, Some((5, hour)), 4)),
        (4, "d", &[("k", "v")], (1, Some((15, day)), 14)),
        (4, "d", &nested("w"), (1, Some((25, day)), 24)),
        (4, "d", &nested("zzz"), NONE),
        (5, "d", &[("k", "x")], NONE),
        (5, "d", &[("nope", "1")], NONE),
        (5, "other", &[("ip", "1")], NONE),
        (6, "d", &[("u", "any")], (1, None, u32::MAX)),
        (7, "d", &[("p", "1"), ("b", "z")], NONE),
        (14, "d", &[("a", "b")], NONE),
    ] {
        assert_eq!(ask(domain, &[entries]).await, (told.0, vec![told]), "example {number}: {entries:?}");
    }
    // Example 12: whatever fits the pattern is one counter.
    for left in (0..10).rev() {
        assert_eq!(ask("d", &[&[("files", "files/a")]]).await.1[0].2, left);
    }
    assert_eq!(ask("d", &[&[("files", "files/b")]]).await.0, 2);
    assert!(keys(&redis).iter().any(|name| name.starts_with("d_files_files/*_")), "{:?}", keys(&redis));
    // Example 13: of two quotas one has to have room.
    let both: [&[(&str, &str)]; 2] = [&[("svc", "1")], &[("svc", "2")]];
    let codes = async || {
        let (overall, told) = ask("d", &both).await;
        (overall, told[0].0, told[1].0)
    };
    assert_eq!(codes().await, (1, 1, 1));
    assert_eq!(codes().await, (1, 2, 1));
    assert_eq!(codes().await, (2, 2, 2));
    // Example 9 as it is here: what is refused takes nothing from the others.
    for _ in 0..10 {
        ask("d", &[&[("ip", "9.9.9.9")]]).await;
    }
    let (overall, told) = ask("d", &[&[("k", "v")], &[("ip", "9.9.9.9")]]).await;
    assert_eq!((overall, told[0], told[1].0), (2, (1, Some((15, day)), 14), 2));
}

/// Clients have to show a certificate that is made out to a name.
#[tokio::test]
async fn only_clients_of_the_right_name_are_let_in() {
    let (redis, ours) = (redis(), Authority::new());
    let setup = setup(&redis);
    let own = ours.sign("node.test");
    for (name, text) in [("chain.pem", &own.chain), ("key.pem", &own.key), ("roots.pem", &ours.root())] {
        setup.write(name, text);
    }
    let path = |name: &str| setup.path().join(name).display().to_string();
    let node = setup
        .clone()
        .variable("GRPC_SERVER_USE_TLS", "true")
        .variable("GRPC_SERVER_TLS_CERT", &path("chain.pem"))
        .variable("GRPC_SERVER_TLS_KEY", &path("key.pem"))
        .variable("GRPC_CLIENT_TLS_CACERT", &path("roots.pem"))
        .variable("GRPC_CLIENT_TLS_SAN", "envoy.test")
        .start();
    for (name, is_served) in [("envoy.test", true), ("other.test", false)] {
        let shows = ours.sign(name);
        let client = TlsClient { trusts: &ours, shows: Some(&shows), protocol: b"h2" };
        let answered = async {
            let stream = client.connect(node.rls, "node.test").await.ok()?;
            let rls = Grpc::over(stream).await.ok()?;
            rls.try_ask(&asks("shop", [descriptor(&[("few", "a")])]), &[]).await.ok()
        };
        assert_eq!(answered.await.is_some(), is_served, "{name}");
    }
}

#[test]
fn what_cannot_be_honoured_is_refused_with_a_way_out() {
    let setup = Setup::demo().verb("ratelimit");
    let told = setup.clone().variable("BACKEND_TYPE", "memcache").run_node();
    assert_eq!(told.code, 78, "{}", told.err);
    assert!(told.err.contains("BACKEND_TYPE=`memcache` cannot be honoured"), "{}", told.err);
    assert!(told.err.contains("set REDIS_URL and leave BACKEND_TYPE out"), "{}", told.err);
    let told = setup.variable("PORT", "http").variable("NEAR_LIMIT_RATIO", "80").run_node();
    for words in
        ["PORT=`http` is not the number of a port", "NEAR_LIMIT_RATIO=`80` is not a number from 0 to 1"]
    {
        assert!(told.err.contains(words), "{}", told.err);
    }
}

/// As an image has it: `/bin/ratelimit`, without a verb.
#[tokio::test]
async fn a_binary_that_is_called_ratelimit_is_one() {
    let setup = Setup::demo();
    let link = setup.path().join("ratelimit");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidegate"), &link).expect("a link");
    let told = std::process::Command::new(&link).arg("--help").output().expect("it runs");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("in the place of envoyproxy/ratelimit"), "{told}");
}
