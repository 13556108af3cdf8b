//! Rules that come from an xDS server, seen through a node that follows it: what it answers, and what the server is told.

#[path = "../../../tidegate-xds/tests/xds/support/server.rs"]
#[allow(dead_code, reason = "the tests of the client need more of it")]
pub(crate) mod server;

use std::net::SocketAddr;
use std::sync::Arc;

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use rustix::process::Signal;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tidegate_xds::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy};

use self::server::{Asked, XdsServer, domain, limited};
use crate::support::certificates::Authority;
use crate::support::{Failed, Grpc, Setup, asks, descriptor, until};
use crate::{common_body, drop_in};

const SECOND: i32 = 1;
pub(crate) const DAY: i32 = 4;
const YEAR: i32 = 6;

/// A node that follows a server, and does not wait long for one that is away.
pub(crate) fn setup(server: SocketAddr) -> Setup {
    Setup::demo()
        .set("xds-server", &server.to_string())
        .set("xds-node-id", "envoy-ratelimit")
        .set("xds-backoff-initial", "10ms")
        .set("xds-backoff-max", "200ms")
        .set("xds-connect-timeout", "20s")
}

/// A domain whose descriptor `user` may come so often each day.
pub(crate) fn shop(amount: u32) -> RateLimitConfig {
    domain("shop", vec![limited("user", amount, DAY)])
}

/// Waits for a request of the node to the server.
async fn told(server: &XdsServer, what: &str, fits: impl Fn(&Asked) -> bool) -> Asked {
    until(what, async || server.asked().into_iter().find(&fits)).await
}

async fn accepted(server: &XdsServer, version: &str) {
    let fits = |asked: &Asked| asked.request.version_info == version && asked.error().is_none();
    told(server, &format!("{version} is accepted"), fits).await;
}

/// Asks once for a user: is it admitted, and what is its limit?
pub(crate) async fn ask(rls: &Grpc, domain: &str, user: &str) -> (bool, Option<u32>) {
    let answer = rls.ask(&asks(domain, [descriptor(&[("user", user)])])).await;
    let limit = answer.statuses[0].current_limit.as_ref().map(|limit| limit.requests_per_unit);
    (answer.overall_code == 1, limit)
}

async fn is_healthy(rls: &Grpc) -> bool {
    let health = rls.call("/grpc.health.v1.Health/Check", &[], &[]).await.expect("a status");
    *health == [0x08, 0x01]
}

/// As Envoy Gateway starts it.
#[tokio::test]
async fn a_node_in_the_place_of_envoyproxy_ratelimit_follows_it_too() {
    let (server, redis) = (XdsServer::start().await, drop_in::redis());
    let node = Setup::demo()
        .verb("ratelimit")
        .set("store-timeout", "10s")
        .set("node-deadline", "20s")
        .variable("CONFIG_TYPE", "GRPC_XDS_SOTW")
        .variable("CONFIG_GRPC_XDS_SERVER_URL", &server.address.to_string())
        .variable("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit")
        .variable("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")
        .variable("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10ms")
        .variable("REDIS_SOCKET_TYPE", "tcp")
        .variable("REDIS_URL", &redis.address().to_string())
        .variable("REDIS_TIMEOUT", "5s")
        .variable("DEBUG_HOST", "127.0.0.1")
        .variable("DEBUG_PORT", "0")
        .variable("USE_STATSD", "false")
        .start();
    let subscribed = told(&server, "a subscription", |_| true).await;
    assert_eq!(subscribed.request.node.map(|node| node.id).as_deref(), Some("envoy-ratelimit"));
    let rls = node.rls().await;
    match rls.try_ask(&asks("shop", [descriptor(&[("user", "a")])]), &[]).await {
        Err(Failed::Status(2, message)) => assert_eq!(message, "no rate limit configuration loaded"),
        other => panic!("{other:?}"),
    }
    assert_eq!(node.http().await.get("/healthcheck").await.status, 500);
    server.set("1", &[shop(2)]);
    accepted(&server, "1").await;
    assert_eq!(node.http().await.get("/healthcheck").await.status, 200);
    assert_eq!(ask(&rls, "shop", "a").await, (true, Some(2)));
    let names = drop_in::keys(&redis);
    assert!(names.len() == 1 && names[0].starts_with("shop_user_a_"), "{names:?}");
    let rules = drop_in::page(&node, "/rlconfig").await;
    assert_eq!(rules, "shop.user: unit=DAY requests_per_unit=2, shadow_mode: false, quota_mode: false\n");
    let stats = drop_in::page(&node, "/stats").await;
    assert!(stats.contains("ratelimit.service.config_load_success: 1\n"), "{stats}");

    // In the words of the one whose place it has, to the server and in the log, and counted.
    for (version, bad, why) in [
        ("2", domain("shop", vec![limited("user", 9, 0)]), "shop: invalid rate limit unit 'UNKNOWN'"),
        (
            "3",
            domain("shop", vec![limited("", 9, DAY)]),
            "shop: descriptor has empty key (a descriptor with an empty key)",
        ),
    ] {
        server.set(version, &[bad]);
        let rejected = told(&server, "a rejection", |asked| asked.error() == Some(why)).await;
        assert_eq!(rejected.request.version_info, "1");
        let line = format!("Error loading new configuration: {why}");
        until("it is in the log", async || node.log().contains(&line).then_some(())).await;
    }
    let stats = drop_in::page(&node, "/stats").await;
    assert!(stats.contains("ratelimit.service.config_load_error: 2\n"), "{stats}");
    assert_eq!(ask(&rls, "shop", "b").await, (true, Some(2)), "the rules before stay");
}

/// What the tests of envoyproxy/ratelimit ask, with rules from a server in place of files: the first ones, then others.
#[tokio::test]
async fn what_its_own_tests_ask_holds_by_xds_too() {
    let (server, redis) = (XdsServer::start().await, drop_in::redis());
    let node = common_body::setup_by_xds(&server.address.to_string(), &redis).start();
    let another = || {
        let limits = [("key2", 20, YEAR), ("key3", 10, YEAR), ("key4", 20, DAY)];
        domain("another", limits.map(|(key, amount, unit)| limited(key, amount, unit)).into())
    };
    server.set("1", &[domain("basic", vec![limited("key1", 50, SECOND)]), another()]);
    accepted(&server, "1").await;
    common_body::holds_on(&node, false).await;

    // All at once, several domains, deeper ones: each state replaces the one before, and `/rlconfig` shows it.
    let shown = async |version: &str, domains: &[RateLimitConfig]| {
        server.set(version, domains);
        accepted(&server, version).await;
        let page = drop_in::page(&node, "/rlconfig").await;
        let mut lines: Vec<String> = page.lines().map(String::from).collect();
        lines.sort();
        lines
    };
    let line = |name: &str, amount: u32| {
        format!("{name}: unit=DAY requests_per_unit={amount}, shadow_mode: false, quota_mode: false")
    };
    let foo = |amount| domain("foo", vec![limited("k1", amount, DAY)]);
    assert_eq!(shown("2", &[foo(3)]).await, [line("foo.k1", 3)]);
    assert_eq!(shown("3", &[foo(5)]).await, [line("foo.k1", 5)]);
    let bar = domain("bar", vec![limited("k2", 7, DAY)]);
    assert_eq!(shown("4", &[foo(5), bar]).await, [line("bar.k2", 7), line("foo.k1", 5)]);
    let deep = RateLimitDescriptor {
        key: "k1".into(),
        value: "v1".into(),
        descriptors: vec![limited("k2", 9, DAY)],
        ..RateLimitDescriptor::default()
    };
    assert_eq!(shown("5", &[domain("foo", vec![deep])]).await, [line("foo.k1_v1.k2", 9)]);
    // The same domain twice is none.
    server.set("6", &[foo(1), RateLimitConfig { name: "other".into(), ..foo(2) }]);
    let rejected = told(&server, "a rejection", |asked| asked.error().is_some()).await;
    let why = rejected.error().unwrap_or_default();
    assert!(why.starts_with("other: duplicate domain 'foo' in config file ("), "{why}");
}

#[tokio::test]
async fn rules_are_in_force_as_the_server_has_them_and_wrong_ones_never_are() {
    let server = XdsServer::start().await;
    let node = setup(server.address).start();
    let rls = node.rls().await;
    let subscribed = told(&server, "a subscription", |_| true).await;
    assert_eq!(subscribed.request.node.map(|node| node.id).as_deref(), Some("envoy-ratelimit"));

    // Nobody knows yet what is allowed.
    let asked = asks("shop", [descriptor(&[("user", "a")])]);
    match rls.try_ask(&asked, &[]).await {
        Err(Failed::Status(14, message)) => assert_eq!(message, "no rate limit configuration loaded"),
        other => panic!("{other:?}"),
    }
    let mut http = node.http().await;
    let check = http.post("/v1/check", r#"{"domain":"shop","descriptors":[{"entries":[]}]}"#).await;
    assert_eq!((check.status, &check.json()["error"]["code"]), (503, &"NO_RULES".into()));
    let ready = http.get("/readyz").await;
    assert_eq!((ready.status, &*ready.body), (503, "no rate limit configuration loaded\n"));
    assert_eq!(http.get("/livez").await.status, 200);
    assert!(!is_healthy(&rls).await);
    until("it is connected", async || (node.metric("tidegate_xds_connected", "").await == 1).then_some(()))
        .await;

    server.set("1", &[shop(2)]);
    accepted(&server, "1").await;
    assert_eq!(http.get("/readyz").await.status, 200);
    assert!(is_healthy(&rls).await);
    assert_eq!(ask(&rls, "shop", "a").await, (true, Some(2)));
    assert_eq!(ask(&rls, "shop", "a").await, (true, Some(2)));
    assert_eq!(ask(&rls, "shop", "a").await, (false, Some(2)));
    let explained = node.ask(&["explain", "--domain", "shop", "user=a"]);
    assert!(explained.out.contains("xds:shop:"), "{}{}", explained.out, explained.err);

    // Counters go on where rules stay.
    server.set("2", &[shop(3), domain("other", vec![limited("user", 1, DAY)])]);
    accepted(&server, "2").await;
    assert_eq!(ask(&rls, "shop", "a").await, (true, Some(3)));
    assert_eq!(ask(&rls, "shop", "a").await, (false, Some(3)));
    assert_eq!(ask(&rls, "other", "a").await, (true, Some(1)));

    // Half of it is good, and none of it is taken.
    let twice = domain("other", vec![limited("user", 9, DAY), limited("user", 9, DAY)]);
    server.set("3", &[shop(9), twice]);
    let rejected = told(&server, "a rejection", |asked| asked.error().is_some()).await;
    assert_eq!(rejected.request.version_info, "2");
    let why = rejected.error().unwrap_or_default();
    assert!(why.starts_with("other: duplicate descriptor composite key 'other.user' ("), "{why}");
    assert!(why.contains("`user` without a value stands twice"), "{why}");
    assert_eq!(ask(&rls, "shop", "a").await, (false, Some(3)));
    server.set("4", &[domain("shop", vec![limited("user", 9, 0)])]);
    let why = "shop: invalid rate limit unit 'UNKNOWN'";
    told(&server, "a rejection", |asked| asked.error() == Some(why)).await;
    assert_eq!(ask(&rls, "shop", "a").await, (false, Some(3)));
    assert_eq!(node.metric("tidegate_xds_updates_total", "accepted").await, 2);
    assert_eq!(node.metric("tidegate_xds_updates_total", "rejected").await, 2);
    let verbose = http.get("/readyz?verbose").await.body;
    let last = format!(
        "from the xDS server {}, connected\n          its last rules were rejected: {why}",
        server.address
    );
    assert!(verbose.starts_with("ok\n") && verbose.contains(&last), "{verbose}");

    // A domain that is gone limits nobody, and none at all is fine.
    server.set("5", &[domain("other", vec![limited("user", 1, DAY)])]);
    accepted(&server, "5").await;
    assert_eq!(ask(&rls, "shop", "a").await, (true, None));
    assert_eq!(ask(&rls, "other", "a").await, (false, Some(1)));
    server.set("6", &[]);
    accepted(&server, "6").await;
    assert_eq!(ask(&rls, "other", "a").await, (true, None));
    assert_eq!(http.get("/readyz").await.status, 200);
    node.signal(Signal::HUP);
    until("it says so", async || node.log().contains("there is nothing to load again").then_some(())).await;
    let (code, log) = node.stop().await;
    assert_eq!(code, 0, "{log}");
}

#[tokio::test]
async fn a_node_is_ready_where_there_are_no_rules_yet() {
    // As Envoy Gateway before the first policy is written.
    let server = XdsServer::start().await;
    server.set("", &[]);
    let node = setup(server.address).start();
    until("it is ready", async || {
        let ready = node.http().await.get("/readyz").await.status;
        (ready == 200).then_some(())
    })
    .await;
    assert_eq!(ask(&node.rls().await, "shop", "a").await, (true, None));
}

#[tokio::test]
async fn a_node_whose_first_rules_are_wrong_is_not_ready() {
    let server = XdsServer::start().await;
    server.insist();
    server.set("1", &[domain("shop", vec![limited("", 1, DAY)])]);
    let node = setup(server.address).start();
    let rls = node.rls().await;
    let rejections = || server.asked().iter().filter(|asked| asked.error().is_some()).count();
    // The server insists, and the node says once what is wrong.
    until("it is rejected again and again", async || (rejections() >= 3).then_some(())).await;
    assert_eq!(node.log().matches("rules from the xDS server rejected").count(), 1, "{}", node.log());
    assert_eq!(node.http().await.get("/readyz").await.status, 503);
    let asked = asks("shop", [descriptor(&[("user", "a")])]);
    assert!(matches!(rls.try_ask(&asked, &[]).await, Err(Failed::Status(14, _))));
    server.set("2", &[shop(1)]);
    accepted(&server, "2").await;
    assert_eq!(ask(&rls, "shop", "a").await, (true, Some(1)));
}

#[tokio::test]
async fn rules_stay_while_the_server_is_away_and_the_next_start_has_them_too() {
    let server = XdsServer::start().await;
    let address = server.address;
    server.set("1", &[shop(2)]);
    let setup = setup(address);
    let node = setup.start();
    accepted(&server, "1").await;
    let rls = node.rls().await;
    assert_eq!(ask(&rls, "shop", "a").await, (true, Some(2)));
    server.stop().await;
    until("it is noticed", async || (node.metric("tidegate_xds_connected", "").await == 0).then_some(()))
        .await;
    assert_eq!(ask(&rls, "shop", "b").await, (true, Some(2)));
    let verbose = node.http().await.get("/readyz?verbose").await;
    assert_eq!(verbose.status, 200);
    assert!(verbose.body.contains("not connected ("), "{}", verbose.body);
    let (code, log) = node.stop().await;
    assert_eq!(code, 0, "{log}");

    // The file is a rule file like any other.
    let checked = setup.run(&["config", "check", "data/xds-rules.yaml"]);
    assert!(checked.code == 0 && checked.out.contains("1 domain, 1 rule"), "{checked:?}");

    // Rules and counters of the last run, without any server.
    let node = setup.start();
    let rls = node.rls().await;
    until("it is ready", async || {
        let ready = node.http().await.get("/readyz").await.status;
        (ready == 200).then_some(())
    })
    .await;
    until("it is healthy", async || is_healthy(&rls).await.then_some(())).await;
    assert_eq!(ask(&rls, "shop", "a").await, (true, Some(2)));
    assert_eq!(ask(&rls, "shop", "a").await, (false, Some(2)));
    assert!(node.log().contains("the rules of the last run are in force"), "{}", node.log());

    // The server is back, and what it says holds.
    let server = XdsServer::at(address, None).await;
    server.set("1", &[shop(5)]);
    accepted(&server, "1").await;
    assert_eq!(ask(&rls, "shop", "a").await, (true, Some(5)));
    node.stop().await;

    // A server that answers is not waited for, and one that only has wrong rules does not count.
    server.set("2", &[domain("shop", vec![limited("user", 7, 0)])]);
    let node = setup.start();
    let rls = node.rls().await;
    until("it is ready", async || {
        let ready = node.http().await.get("/readyz").await.status;
        (ready == 200).then_some(())
    })
    .await;
    assert_eq!(ask(&rls, "shop", "c").await, (true, Some(5)));
    node.stop().await;

    // Rules that were meant for somebody else are not ours.
    server.stop().await;
    let node = setup.clone().set("xds-node-id", "another").start();
    until("it is said", async || node.log().contains("are left alone").then_some(())).await;
    assert_eq!(node.http().await.get("/readyz").await.status, 503);
}

#[tokio::test]
async fn rules_of_envoy_gateway_do_what_they_say() {
    let server = XdsServer::start().await;
    let node = setup(server.address).start();
    let exact = |key: &str, value: &str, descriptors: Vec<RateLimitDescriptor>| RateLimitDescriptor {
        key: key.into(),
        value: value.into(),
        descriptors,
        ..RateLimitDescriptor::default()
    };
    let with = |descriptor: RateLimitDescriptor, requests_per_unit, unit| RateLimitDescriptor {
        rate_limit: Some(RateLimitPolicy { unit, requests_per_unit, ..RateLimitPolicy::default() }),
        ..descriptor
    };
    let metadata =
        Struct { fields: [("team".into(), Value { kind: Some(Kind::StringValue("a/b".into())) })].into() };
    // As its translator writes them: a listener with routes, each rule one level below, and a policy that routes share.
    let by_address = exact(
        "masked_remote_address",
        "0.0.0.0/0",
        vec![with(exact("remote_address", "", Vec::new()), 2, DAY)],
    );
    let route = "httproute/default/orders/rule/0/match/0/www_example_com";
    let listener = domain(
        "default/eg/http",
        vec![exact(
            route,
            route,
            vec![
                with(exact("rule-0-match-0", "rule-0-match-0", Vec::new()), 1, DAY),
                exact("rule-1-match--1", "rule-1-match--1", vec![by_address]),
                RateLimitDescriptor {
                    quota_mode: true,
                    metadata: Some(metadata),
                    ..with(exact("rule-2-match-0", "rule-2-match-0", Vec::new()), 1, DAY)
                },
                RateLimitDescriptor {
                    shadow_mode: true,
                    detailed_metric: true,
                    ..with(exact("rule-3-match-0", "", Vec::new()), 1, DAY)
                },
            ],
        )],
    );
    let rule = "default/shared-policy/rule/0";
    let shared = domain(
        "default/shared-policy",
        vec![exact(rule, rule, vec![with(exact("rule-0-match-0", "rule-0-match-0", Vec::new()), 3, 7)])],
    );
    server.set("1", &[listener, shared]);
    accepted(&server, "1").await;
    assert_eq!(node.metric("tidegate_rules", "").await, 5);
    let rls = node.rls().await;
    let ask = async |domain: &str, entries: &[(&str, &str)], times: usize| {
        let mut codes = Vec::new();
        for _ in 0..times {
            codes.push(rls.ask(&asks(domain, [descriptor(entries)])).await.overall_code);
        }
        codes
    };
    let (http, top) = ("default/eg/http", (route, route));
    assert_eq!(ask(http, &[top, ("rule-0-match-0", "rule-0-match-0")], 2).await, [1, 2]);
    let address = |ip| {
        [
            top,
            ("rule-1-match--1", "rule-1-match--1"),
            ("masked_remote_address", "0.0.0.0/0"),
            ("remote_address", ip),
        ]
    };
    assert_eq!(ask(http, &address("10.0.0.1"), 3).await, [1, 1, 2]);
    assert_eq!(ask(http, &address("10.0.0.2"), 1).await, [1], "each address for itself");
    assert_eq!(ask(http, &[top, ("rule-2-match-0", "rule-2-match-0")], 2).await, [1, 2], "the only quota");
    assert_eq!(ask(http, &[top, ("rule-3-match-0", "x")], 3).await, [1, 1, 1], "in shadow");
    assert_eq!(ask(http, &[top, ("rule-9-match-0", "x")], 1).await, [1], "no such rule");
    let weekly = [(rule, rule), ("rule-0-match-0", "rule-0-match-0")];
    assert_eq!(ask("default/shared-policy", &weekly, 4).await, [1, 1, 1, 2]);
}

#[tokio::test]
async fn rules_come_over_mutual_tls() {
    let (ours, other) = (Authority::new(), Authority::new());
    let certificate = ours.sign("envoy-gateway");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ours.root().as_bytes()).expect("a root")).expect("a root");
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(certificate.chain.as_bytes()).expect("a certificate")],
            PrivateKeyDer::from_pem_slice(certificate.key.as_bytes()).expect("a key"),
        )
        .expect("a certificate");
    config.alpn_protocols = vec![b"h2".to_vec()];
    let server = XdsServer::at(([127, 0, 0, 1], 0).into(), Some(config)).await;
    server.set("1", &[shop(1)]);

    let setup = setup(server.address)
        .set("xds-tls-enabled", "true")
        .set("xds-tls-ca", "certs/ca.crt")
        .set("xds-tls-certificate", "certs/tls.crt")
        .set("xds-tls-key", "certs/tls.key")
        .set("xds-tls-server-name", "envoy-gateway");
    setup.write("certs/ca.crt", &ours.root());
    let show = |authority: &Authority| {
        let shown = authority.sign("envoy-ratelimit");
        setup.write("certs/tls.crt", &shown.chain);
        setup.write("certs/tls.key", &shown.key);
    };
    show(&other);
    let stranger =
        setup.clone().set("xds-tls-server-name", "somebody-else").set("node-data", "other").start();
    until("the name is wrong", async || stranger.log().contains("not valid for name").then_some(())).await;
    let node = setup.start();
    until("it is not let in", async || node.log().contains("received fatal alert").then_some(())).await;
    assert_eq!(node.http().await.get("/readyz").await.status, 503);
    // The right certificate comes while it runs, as when a volume is mounted late.
    show(&ours);
    accepted(&server, "1").await;
    assert_eq!(ask(&node.rls().await, "shop", "a").await, (true, Some(1)));
    assert_eq!(stranger.http().await.get("/readyz").await.status, 503);
}

#[test]
fn a_source_of_rules_that_is_none_is_refused_at_the_start() {
    let (folder, server) = (Setup::new("domain: a\n"), "127.0.0.1:1");
    for (flags, words) in [
        (
            &[("xds-server", server), ("rules-path", "rules")][..],
            &["bad-xds", "from files or from an xDS server"][..],
        ),
        (&[("xds-server", "nowhere")], &["bad-xds", "`nowhere` is no host and port"]),
        (&[("xds-server", "http://host:1")], &["bad-xds"]),
        (&[("xds-server", server), ("xds-headers", "name")], &["bad-xds", "`name:value`"]),
        (
            &[("xds-server", server), ("xds-headers", "na me:secret")],
            &["bad-xds", "no header can be made of `na me`"],
        ),
        (&[("xds-server", server), ("xds-node-metadata", "a=b,c")], &["bad-xds", "`name=value`"]),
        (&[("xds-server", server), ("xds-tls-ca", "ca.crt")], &["half-of-tls", "`xds.tls.enabled`"]),
        (
            &[("xds-server", server), ("xds-tls-enabled", "true"), ("xds-tls-key", "tls.key")],
            &["half-of-tls", "`xds.tls.certificate`"],
        ),
    ] {
        let setup = flags.iter().fold(folder.clone(), |setup, (flag, value)| setup.set(flag, value));
        let answer = setup.run_node();
        assert_eq!((answer.code, answer.out.as_str()), (78, ""), "{flags:?}: {}", answer.err);
        for word in words {
            assert!(answer.err.contains(word), "no `{word}` in\n{}", answer.err);
        }
        assert!(!answer.err.contains("secret"), "{}", answer.err);
    }
}
