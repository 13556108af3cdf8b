//! What the integration tests of envoyproxy/ratelimit ask of a server, on every kind of store and source that they ask it on: through the
//! real binary, started by its variables. Units are longer than there, so that no window ends while a test runs.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_testbed::{Cluster, Kind, Options, Sentinels, Server};

use crate::drop_in::{page, redis, stats};
use crate::support::{Grpc, Node, Setup, asks, descriptor, until};

const SECOND: i32 = 1;
const DAY: i32 = 4;
const YEAR: i32 = 6;
/// Requests of the first loop, and of the second.
const ALONE: u32 = 25;
const TOGETHER: u32 = 15;

const BASIC: &str = "domain: basic
descriptors:
  - { key: key1, rate_limit: { unit: second, requests_per_unit: 50 } }
";
const ANOTHER: &str = "domain: another
descriptors:
  - { key: key2, rate_limit: { unit: year, requests_per_unit: 20 } }
  - { key: key3, rate_limit: { unit: year, requests_per_unit: 10 } }
  - { key: key4, rate_limit: { unit: day, requests_per_unit: 20 } }
";

/// A node on stores that the variables name.
fn setup(variables: &[(&str, &str)]) -> Setup {
    let setup = started(variables);
    setup.write("ratelimit/config/basic.yaml", BASIC);
    setup.write("ratelimit/config/another.yaml", ANOTHER);
    let root = setup.path().display().to_string();
    setup.variable("RUNTIME_ROOT", &root).variable("RUNTIME_SUBDIRECTORY", "ratelimit")
}

/// The same without rules.
fn started(variables: &[(&str, &str)]) -> Setup {
    let setup = Setup::demo()
        .verb("ratelimit")
        .set("store-timeout", "10s")
        .set("node-deadline", "20s")
        .variable("REDIS_SOCKET_TYPE", "tcp")
        .variable("REDIS_PERSECOND_SOCKET_TYPE", "tcp")
        .variable("REDIS_TIMEOUT", "5s")
        .variable("DEBUG_HOST", "127.0.0.1")
        .variable("DEBUG_PORT", "0")
        .variable("USE_STATSD", "false");
    variables.iter().fold(setup, |setup, (name, value)| setup.variable(name, value))
}

fn url(server: &Server) -> String {
    server.address().to_string()
}

/// The number of a stat; none was counted where there is none.
fn of(stats: &BTreeMap<String, u64>, name: &str) -> u64 {
    stats.get(&format!("ratelimit.{name}")).copied().unwrap_or(0)
}

/// What a descriptor is told: its code, the limit, what remains.
type Told = (i32, Option<(u32, i32)>, u32);

async fn ask(rls: &Grpc, domain: &str, entries: &[(&str, &str)]) -> (i32, Vec<Told>) {
    let answer = rls.ask(&asks(domain, entries.iter().map(|entry| descriptor(&[*entry])))).await;
    let told = answer.statuses.iter().map(|status| {
        let limit = status.current_limit.as_ref().map(|limit| (limit.requests_per_unit, limit.unit));
        (status.code, limit, status.limit_remaining)
    });
    (answer.overall_code, told.collect())
}

/// Asks all of it. With a local cache, refusals that are remembered are counted apart, where they are: for a second at most.
pub(crate) async fn holds_on(node: &Node, local_cache: bool) {
    let rls = node.rls().await;
    let hit = async |key: &str, name: &str| {
        of(&stats(node).await, &format!("service.rate_limit.another.{key}.{name}"))
    };

    assert_eq!(ask(&rls, "foo", &[("hello", "world")]).await, (1, vec![(1, None, 0)]), "an unknown domain");
    assert_eq!(of(&stats(node).await, "service.rate_limit.foo.domain_not_found"), 1);
    let first = ask(&rls, "basic", &[("key1", "foo")]).await;
    assert_eq!(first, (1, vec![(1, Some((50, SECOND)), 49)]));
    assert_eq!(of(&stats(node).await, "service.rate_limit.basic.key1.total_hits"), 1);

    for number in 1..=ALONE {
        let over = number.saturating_sub(20);
        let code = if over > 0 { 2 } else { 1 };
        let told = ask(&rls, "another", &[("key2", "alone")]).await;
        assert_eq!(told, (code, vec![(code, Some((20, YEAR)), 20_u32.saturating_sub(number))]), "{number}");
        assert_eq!(hit("key2", "total_hits").await, u64::from(number));
        assert_eq!(hit("key2", "over_limit").await, u64::from(over));
        remembered(node, local_cache, u64::from(over.saturating_sub(1))).await;
    }
    for number in 1..=TOGETHER {
        let over = number.saturating_sub(10);
        let code = if over > 0 { 2 } else { 1 };
        // What is refused takes nothing from the other one: as there with STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT.
        let (left, other_left) = (20 - number.min(10), 10_u32.saturating_sub(number));
        let told = ask(&rls, "another", &[("key2", "both"), ("key3", "both")]).await;
        // Beside a refusal that is remembered nothing else is looked at.
        let other =
            if told.1[0].1.is_none() && local_cache { (1, None, 0) } else { (1, Some((20, YEAR)), left) };
        assert_eq!(told, (code, vec![other, (code, Some((10, YEAR)), other_left)]), "{number}");
        assert_eq!(hit("key3", "total_hits").await, u64::from(number));
        assert_eq!(hit("key3", "over_limit").await, u64::from(over));
        assert_eq!(hit("key2", "over_limit").await, 5);
        if !local_cache {
            assert_eq!(hit("key2", "total_hits").await, u64::from(ALONE + number));
        }
    }
    let reset = async || {
        let answer = rls.ask(&asks("another", [descriptor(&[("key4", "reset")])])).await;
        assert_eq!(answer.statuses[0].current_limit.as_ref().map(|limit| limit.unit), Some(DAY));
        answer.statuses[0].duration_until_reset.as_ref().map_or(0, |reset| reset.seconds)
    };
    let before = reset().await;
    // A day may end meanwhile: then it is long again, and shrinks once more.
    until("the reset comes nearer", async || {
        tokio::time::sleep(Duration::from_millis(200)).await;
        (reset().await < before).then_some(())
    })
    .await;
}

async fn remembered(node: &Node, local_cache: bool, max: u64) {
    let stats = stats(node).await;
    let told = of(&stats, "service.rate_limit.another.key2.over_limit_with_local_cache");
    assert!(told <= if local_cache { max } else { 0 }, "{told} of {max}");
    assert_eq!(of(&stats, "localcache.hitCount"), told, "{stats:?}");
}

/// Their sub-tests of one server: with and without a store for limits per second, a local cache, a prefix, and the flag that keeps others'
/// counters from growing.
#[tokio::test]
async fn it_holds_on_one_redis() {
    let (main, second) = (redis(), redis());
    let (main_url, second_url) = (url(&main), url(&second));
    for (number, more) in [
        &[][..],
        &[("REDIS_PERSECOND", "true")],
        &[("LOCAL_CACHE_SIZE_IN_BYTES", "1000")],
        &[("REDIS_PERSECOND", "true"), ("LOCAL_CACHE_SIZE_IN_BYTES", "1000")],
        &[("CACHE_KEY_PREFIX", "prefix:")],
        &[("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true")],
        &[("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true"), ("REDIS_PERSECOND", "true")],
        &[("RUNTIME_WATCH_ROOT", "false")],
    ]
    .into_iter()
    .enumerate()
    {
        main.command(&["FLUSHALL"]);
        second.command(&["FLUSHALL"]);
        let stores = [("REDIS_URL", main_url.as_str()), ("REDIS_PERSECOND_URL", second_url.as_str())];
        let node = setup(&[&stores, more].concat()).start();
        holds_on(&node, more.iter().any(|(name, _)| name.starts_with("LOCAL_CACHE"))).await;
        let names = crate::drop_in::keys(&main);
        let prefix =
            more.iter().find(|(name, _)| *name == "CACHE_KEY_PREFIX").map_or("", |(_, prefix)| prefix);
        assert!(
            names.iter().any(|name| name.starts_with(&format!("{prefix}another_key2_alone_"))),
            "{number}: {names:?}"
        );
        let on_second = stats(&node).await.get("ratelimit.redis_per_second_pool.cx_total").copied();
        assert_eq!(
            on_second.is_some_and(|count| count > 0),
            more.contains(&("REDIS_PERSECOND", "true")),
            "{number}"
        );
    }
}

#[tokio::test]
async fn it_holds_with_passwords_and_certificates() {
    let start =
        |options: Options| Server::start(Kind::Redis, &options).unwrap_or_else(|error| panic!("{error}"));
    let (main, second) =
        (start(Options::new().password("password123")), start(Options::new().password("password123")));
    let node = setup(&[
        ("REDIS_URL", &url(&main)),
        ("REDIS_AUTH", "password123"),
        ("REDIS_PERSECOND", "true"),
        ("REDIS_PERSECOND_URL", &url(&second)),
        ("REDIS_PERSECOND_AUTH", "password123"),
    ])
    .start();
    holds_on(&node, false).await;
    let main = start(Options::new().mutual_tls());
    let files = main.tls().expect("certificates");
    let path = |path: &std::path::Path| path.display().to_string();
    let node = setup(&[
        ("REDIS_URL", &url(&main)),
        ("REDIS_TLS", "true"),
        ("REDIS_TLS_CACERT", &path(&files.ca)),
        ("REDIS_TLS_CLIENT_CERT", &path(&files.client_certificate)),
        ("REDIS_TLS_CLIENT_KEY", &path(&files.client_key)),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "1000"),
    ])
    .start();
    holds_on(&node, true).await;
}

#[tokio::test]
async fn it_holds_on_a_cluster() {
    let cluster = Cluster::start(Kind::Redis, 3, 0, 5_000).unwrap_or_else(|error| panic!("{error}"));
    let second = redis();
    let second_url = url(&second);
    let main = cluster.url().trim_start_matches("redis+cluster://").to_owned();
    let per_second = ("REDIS_PERSECOND", "true");
    for more in [&[][..], &[per_second], &[per_second, ("REDIS_AUTH", "password123")]] {
        for server in cluster.servers() {
            server.command(&["FLUSHALL"]);
            if let Some((_, password)) = more.get(1) {
                server.command(&["CONFIG", "SET", "requirepass", password]);
            }
        }
        let stores = [("REDIS_TYPE", "cluster"), ("REDIS_URL", &*main), ("REDIS_PIPELINE_WINDOW", "150us")];
        let second = [("REDIS_PERSECOND_URL", &*second_url)];
        let node = setup(&[&stores[..], &second[..], more].concat()).start();
        holds_on(&node, false).await;
    }
}

#[tokio::test]
async fn it_holds_behind_sentinels() {
    let sentinels = Sentinels::start(Kind::Redis, 5_000).unwrap_or_else(|error| panic!("{error}"));
    let told = sentinels.url();
    let (addresses, name) = told.trim_start_matches("redis+sentinel://").split_once('/').expect("a name");
    let node = setup(&[("REDIS_TYPE", "sentinel"), ("REDIS_URL", &format!("{name},{addresses}"))]).start();
    holds_on(&node, false).await;
}

/// For the test of rules that come from a server.
pub(crate) fn setup_by_xds(server: &str, redis: &Server) -> Setup {
    started(&[
        ("REDIS_URL", &url(redis)),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", server),
        ("CONFIG_GRPC_XDS_NODE_ID", "init-test-node"),
        ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10ms"),
    ])
}

/// A file that comes is a domain more, and one that goes is one less; each is a load.
#[tokio::test]
async fn files_that_come_and_go_are_loaded() {
    let redis = redis();
    let setup = setup(&[("REDIS_URL", &url(&redis)), ("RUNTIME_WATCH_ROOT", "false")]);
    let node = setup.start();
    let rls = node.rls().await;
    let loads = async || of(&stats(&node).await, "service.config_load_success");
    assert_eq!(ask(&rls, "reload", &[("key1", "foo")]).await, (1, vec![(1, None, 0)]));
    let before = loads().await;
    let file = "ratelimit/config/reload.yaml";
    setup.write(file, &BASIC.replace("basic", "reload"));
    let limited = (1, vec![(1, Some((50, SECOND)), 49)]);
    // A value of its own each time: nobody has asked for it in this second.
    let mut number = 0;
    until("the new domain", async || {
        number += 1;
        (ask(&rls, "reload", &[("key1", &format!("foo{number}"))]).await == limited).then_some(())
    })
    .await;
    let between = loads().await;
    assert!(between > before, "{between} loads, {before} before");
    std::fs::remove_file(setup.path().join(file)).expect("removed");
    until("the domain goes", async || {
        (ask(&rls, "reload", &[("key1", "foo")]).await == (1, vec![(1, None, 0)])).then_some(())
    })
    .await;
    assert!(loads().await > between);
}

#[tokio::test]
async fn stats_have_the_tags_that_were_given() {
    let redis = redis();
    let node = setup(&[("REDIS_URL", &url(&redis)), ("EXTRA_TAGS", "foo:bar,a:b")]).start();
    let rls = node.rls().await;
    for _ in 0..2 {
        ask(&rls, "basic", &[("key1", "foo")]).await;
    }
    let stats = page(&node, "/stats").await;
    for line in [
        "ratelimit.service.config_load_success.__a=b.__foo=bar: 1\n",
        "ratelimit.service.rate_limit.basic.key1.total_hits.__a=b.__foo=bar: 2\n",
    ] {
        assert!(stats.contains(line), "{stats}");
    }
}

/// Values that fit one pattern share a limit where that is asked for, and have one each elsewhere.
#[tokio::test]
async fn a_threshold_is_shared_where_it_says_so() {
    let redis = redis();
    let setup = setup(&[("REDIS_URL", &url(&redis))]);
    setup.write(
        "ratelimit/config/share.yaml",
        "domain: share
descriptors:
  - { key: files, value: 'files/*', share_threshold: true, rate_limit: { unit: year, requests_per_unit: 10 } }
  - { key: own, value: 'own/*', rate_limit: { unit: year, requests_per_unit: 10 } }
",
    );
    let node = setup.start();
    let rls = node.rls().await;
    for left in (0..10).rev() {
        assert_eq!(
            ask(&rls, "share", &[("files", "files/a.pdf")]).await,
            (1, vec![(1, Some((10, YEAR)), left)])
        );
    }
    assert_eq!(ask(&rls, "share", &[("files", "files/b.csv")]).await, (2, vec![(2, Some((10, YEAR)), 0)]));
    for number in 0..10 {
        let told = ask(&rls, "share", &[("own", &format!("own/{number}"))]).await;
        assert_eq!(told, (1, vec![(1, Some((10, YEAR)), 9)]), "{number}");
    }
}
