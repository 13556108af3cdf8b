//! What the tests of envoyproxy/ratelimit expect of its service, asked of ours through the real binary: limits in shadow and quota mode
//! beside others, limits that replace others, headers, errors and how they are counted, health.

use crate::drop_in::{redis, setup_with, stats};
use crate::support::messages::Request;
use crate::support::{Failed, Grpc, Node, Setup, asks, descriptor, until};
use tidegate_testbed::Server;

const RULES: &str = "domain: shop
descriptors:
  - { key: shadow, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: plain, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: many, rate_limit: { unit: year, requests_per_unit: 10 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: quota2, quota_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: detail, detailed_metric: true, rate_limit: { unit: year, requests_per_unit: 2 } }
  - { key: banned, rate_limit: { unit: year, requests_per_unit: 0, name: banned } }
  - { key: raised, rate_limit: { unit: year, requests_per_unit: 2, replaces: [{ name: banned }] } }
  - { key: once, rate_limit: { unit: year, requests_per_unit: 1, name: once } }
  - { key: twice, rate_limit: { unit: year, requests_per_unit: 2, name: twice, replaces: [{ name: once }] } }
  - { key: all, rate_limit: { unit: year, requests_per_unit: 4, replaces: [{ name: once }, { name: twice }] } }
";

fn setup(redis: &Server) -> Setup {
    setup_with(redis, RULES)
}

/// The overall code, and that of each descriptor: of each key, for one caller.
async fn codes(rls: &Grpc, keys: &[&str], caller: &str) -> (i32, Vec<i32>) {
    let answer = rls.ask(&asks("shop", keys.iter().map(|key| descriptor(&[(key, caller)])))).await;
    (answer.overall_code, answer.statuses.iter().map(|status| status.code).collect())
}

async fn stat(node: &Node, name: &str) -> u64 {
    stats(node).await.get(&format!("ratelimit.service.{name}")).copied().unwrap_or(0)
}

#[tokio::test]
async fn a_limit_in_shadow_never_refuses_and_one_beside_it_does() {
    let redis = redis();
    let node = setup(&redis).start();
    let rls = node.rls().await;
    assert_eq!(codes(&rls, &["shadow"], "a").await, (1, vec![1]));
    for _ in 0..4 {
        let answer = rls.ask(&asks("shop", [descriptor(&[("shadow", "a")])])).await;
        let status = &answer.statuses[0];
        assert_eq!((answer.overall_code, status.code, status.limit_remaining), (1, 1, 0));
        assert_eq!(status.current_limit.as_ref().map(|limit| limit.requests_per_unit), Some(1));
    }
    assert_eq!(stat(&node, "rate_limit.shop.shadow.shadow_mode").await, 4);
    assert_eq!(codes(&rls, &["plain"], "a").await, (1, vec![1]));
    for keys in [["shadow", "plain"], ["plain", "shadow"]] {
        let expected = keys.map(|key| if key == "plain" { 2 } else { 1 });
        assert_eq!(codes(&rls, &keys, "a").await, (2, expected.into()), "in any order");
    }
    assert_eq!(stat(&node, "global_shadow_mode").await, 0);
}

#[tokio::test]
async fn quotas_beside_a_limit_and_in_a_shadow() {
    let redis = redis();
    let node = setup(&redis).start();
    let rls = node.rls().await;
    assert_eq!(codes(&rls, &["plain", "quota"], "a").await, (1, vec![1, 1]));
    assert_eq!(
        codes(&rls, &["many", "quota", "quota2"], "a").await,
        (1, vec![1, 2, 1]),
        "one quota has room"
    );
    assert_eq!(codes(&rls, &["plain", "quota"], "a").await, (2, vec![2, 2]));
    assert_eq!(codes(&rls, &["quota", "quota2"], "a").await, (2, vec![2, 2]), "none has");
    drop(node);
    let node = setup(&redis).variable("SHADOW_MODE", "true").start();
    let rls = node.rls().await;
    assert_eq!(codes(&rls, &["plain", "quota"], "a").await, (1, vec![2, 2]), "told, and let through");
    assert_eq!(stat(&node, "global_shadow_mode").await, 1);
}

#[tokio::test]
async fn headers_tell_of_the_limit_that_refuses() {
    let redis = redis();
    let own = [
        ("LIMIT_LIMIT_HEADER", "A-Ratelimit-Limit"),
        ("LIMIT_REMAINING_HEADER", "A-Ratelimit-Remaining"),
        ("LIMIT_RESET_HEADER", "A-Ratelimit-Reset"),
    ];
    for (caller, variables, names) in [
        ("a", &[][..], ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"]),
        ("b", &own, own.map(|(_, name)| name)),
    ] {
        let setup = setup(&redis).variable("LIMIT_RESPONSE_HEADERS_ENABLED", "true");
        let node = variables.iter().fold(setup, |setup, (name, value)| setup.variable(name, value)).start();
        let rls = node.rls().await;
        let both = asks("shop", [descriptor(&[("plain", caller)]), descriptor(&[("nothing", caller)])]);
        rls.ask(&both).await;
        let answer = rls.ask(&both).await;
        let reset = answer.statuses[0].duration_until_reset.as_ref().map_or(0, |reset| reset.seconds);
        let headers: Vec<(&str, String)> = answer
            .response_headers_to_add
            .iter()
            .map(|header| (&*header.key, header.value.clone()))
            .collect();
        let [limit, remaining, until] = names;
        assert_eq!(headers, [(limit, "1".into()), (remaining, "0".into()), (until, reset.to_string())]);
        assert!(reset > 0);
    }
}

#[tokio::test]
async fn unlimited_ones_are_told_beside_others() {
    let redis = redis();
    let node = setup(&redis).start();
    let asked = asks("shop", ["many", "nothing", "free"].map(|key| descriptor(&[(key, "a")])));
    let answer = node.rls().await.ask(&asked).await;
    let told: Vec<_> = answer
        .statuses
        .iter()
        .map(|status| (status.code, status.current_limit.is_some(), status.limit_remaining))
        .collect();
    assert_eq!((answer.overall_code, told), (1, vec![(1, true, 9), (1, false, 0), (1, false, u32::MAX)]));
    assert_eq!(crate::drop_in::keys(&redis).len(), 1, "nothing is counted of the others");
}

/// The script of its end-to-end tests about `replaces`.
#[tokio::test]
async fn a_limit_replaces_others_and_leaves_them_as_they_were() {
    let redis = redis();
    let node = setup(&redis).start();
    let rls = node.rls().await;
    let overall = async |keys: &[&str], caller: &str| codes(&rls, keys, caller).await.0;
    assert_eq!(overall(&["banned"], "a").await, 2);
    assert_eq!(overall(&["banned", "nothing"], "a").await, 2);
    for code in [1, 1, 2] {
        assert_eq!(overall(&["banned", "raised"], "a").await, code, "a higher limit in its place");
    }
    for code in [1, 1, 2] {
        assert_eq!(overall(&["once", "twice"], "b").await, code);
    }
    for code in [1, 2] {
        assert_eq!(overall(&["once", "nothing"], "b").await, code, "the first was not counted meanwhile");
    }
    for code in [1, 1, 1, 1, 2] {
        assert_eq!(overall(&["once", "twice", "all"], "c").await, code, "several at once");
    }
    for (key, admitted) in [("once", 1), ("twice", 2)] {
        for number in 0..=admitted {
            assert_eq!(overall(&[key], "c").await, if number < admitted { 1 } else { 2 }, "{key} {number}");
        }
    }
}

#[tokio::test]
async fn stats_of_a_detailed_limit_have_the_value() {
    let redis = redis();
    let node = setup(&redis).start();
    let rls = node.rls().await;
    for code in [1, 1, 2] {
        assert_eq!(codes(&rls, &["detail"], "unspecified_value").await.0, code);
    }
    assert_eq!(stat(&node, "rate_limit.shop.detail_unspecified_value.over_limit").await, 1);
}

async fn failed(rls: &Grpc, asked: &Request, words: &str) {
    match rls.try_ask(asked, &[]).await {
        Err(Failed::Status(2, told)) => assert_eq!(told, words),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn errors_and_calls_are_counted() {
    let redis = redis();
    let setup = setup(&redis);
    setup.write("shop/config/rules", "domain: shop\nwhat: 1\n");
    let node = setup.start();
    let rls = node.rls().await;
    let asked = asks("shop", [descriptor(&[("many", "a")])]);
    failed(&rls, &asked, "no rate limit configuration loaded").await;
    assert_eq!(stat(&node, "call.should_rate_limit.service_error").await, 1);
    assert_eq!(node.http().await.get("/healthcheck").await.status, 500);
    setup.write("shop/config/rules", RULES);
    until("it is mended", async || (node.http().await.get("/healthcheck").await.status == 200).then_some(()))
        .await;
    let before = stat(&node, "call.should_rate_limit.service_error").await;
    failed(&rls, &asks("", [descriptor(&[("many", "a")])]), "rate limit domain must not be empty").await;
    failed(&rls, &asks("shop", []), "rate limit descriptor list must not be empty").await;
    assert_eq!(stat(&node, "call.should_rate_limit.service_error").await, before + 2);
    let calls = async || stats(&node).await.get("ratelimit_server.ShouldRateLimit.total_requests").copied();
    let before = calls().await.unwrap_or(0);
    let other = node.rls().await;
    let fifty = async |rls: &Grpc| {
        for _ in 0..50 {
            rls.ask(&asked).await;
        }
    };
    tokio::join!(fifty(&rls), fifty(&other));
    assert_eq!(calls().await, Some(before + 100), "over several connections at once");
}

/// What probes are told over gRPC is what `/healthcheck` says: of rules, and of the store where it is asked to.
#[tokio::test]
async fn health_is_told_over_grpc_too() {
    let redis = redis();
    let setup = setup(&redis).variable("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true");
    setup.write("shop/config/rules", "domain: shop\nwhat: 1\n");
    let node = setup.start();
    let rls = node.rls().await;
    let asked = asks("shop", [descriptor(&[("many", "a")])]);
    let told = async |what: &str, is_well: bool| {
        until(what, async || {
            let _ = rls.try_ask(&asked, &[]).await; // A store that nobody asks is not missed.
            let health =
                rls.call("/grpc.health.v1.Health/Check", b"\x0a\x09ratelimit", &[]).await.expect("a status");
            let page = node.http().await.get("/healthcheck").await.status;
            let (serving, status) = if is_well { (1, 200) } else { (2, 500) };
            (health[..] == [8, serving] && page == status).then_some(())
        })
        .await;
    };
    told("rules are missing", false).await;
    setup.write("shop/config/rules", RULES);
    told("rules are there", true).await;
    redis.kill();
    told("the store is away", false).await;
    redis.restart().unwrap_or_else(|error| panic!("{error}"));
    told("the store is back", true).await;
}
