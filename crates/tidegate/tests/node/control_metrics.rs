//! What operators see of the control plane: the metrics of a real node.

use std::time::Duration;

use tidegate_control::Quota;

use crate::control::{Admin, Kept, grant, has_limit, tier, who};
use crate::support::{Http, until};

const STALE: &str = "ratelimit_config_stale_seconds";
const CALLS: &str = "tidegate_admin_calls_total";

#[tokio::test]
async fn revision_keys_bytes_and_calls_are_told() {
    for kept in Kept::both() {
        let (node, store) = (kept.setup.start(), kept.store().await);
        let admin = Admin::of(&node).await;
        for at in 0..20 {
            let overrides = vec![grant("default", 50 + at), grant("endpoint:a", 5)];
            let quota = Quota { overrides, ..tier(&format!("key-{at}"), "pro") };
            store.put_quota(&who(), quota, None).await.expect("written");
        }
        has_limit(&node, &[("api_key", "key-19")], Some(69)).await;
        let head = store.head().await.expect("a head").seq;
        until("the revision", async || {
            (node.metric("tidegate_control_revision", "").await == head).then_some(())
        })
        .await;
        assert_eq!(node.metric("tidegate_quota_keys", "").await, 20);
        let bytes = node.metric("tidegate_quota_bytes", "").await;
        assert!((20 * 100..20 * 1_000).contains(&bytes), "{bytes}");
        assert_eq!(node.metric(STALE, "").await, 0);

        let calls = async |result: &str| node.metric(CALLS, &format!("result=\"{result}\"")).await;
        let done = calls("done").await;
        assert_eq!(admin.call("GET", "/admin/v1/quotas/key-1", "").await.status, 200);
        assert_eq!(calls("done").await, done + 1);
        assert_eq!(admin.call("PUT", "/admin/v1/quotas/key-1", "{").await.status / 100, 4);
        assert_eq!(calls("refused").await, 1);
        // Ten tokens that are worth nothing may come in a minute; the eleventh is not even looked at.
        let nobody = Admin { node: &node, token: "tg_nobody".into() };
        for _ in 0..11 {
            nobody.call("GET", "/admin/v1/tiers", "").await;
        }
        assert_eq!((calls("unauthorized").await, calls("throttled").await), (10, 1));
        for key in 0..20 {
            store.delete_quota(&who(), &format!("key-{key}"), None).await.expect("deleted");
        }
        until("no key", async || (node.metric("tidegate_quota_keys", "").await == 0).then_some(())).await;
        assert!(node.metric("tidegate_quota_bytes", "").await < bytes);
    }
}

#[tokio::test]
async fn a_database_that_is_away_is_seen_and_that_it_is_back() {
    let kept = Kept::postgres();
    let postgres = kept.postgres.as_ref().expect("PostgreSQL");
    let node = kept.setup.start();
    let admin = Admin::of(&node).await;
    assert_eq!(admin.call("GET", "/admin/v1/tiers", "").await.status, 200);
    // In its first second a node that has not heard of it yet is not stale either.
    let ready = async || node.http().await.get("/readyz?verbose").await.body;
    until("it is followed", async || ready().await.contains(": followed").then_some(())).await;
    assert_eq!(node.metric(STALE, "").await, 0);
    postgres.kill();
    until("it is noticed", async || (node.metric(STALE, "").await >= 2).then_some(())).await;
    let errors = node.metric("tidegate_control_follow_errors_total", "").await;
    assert!(errors >= 1);
    let failed = node.metric(CALLS, "failed").await;
    let token = format!("Bearer {}", admin.token);
    let address = node.admin.expect("an API");
    let headers = [("authorization", token.as_str())];
    let reply = Http::connect(address).await.request("GET", "/admin/v1/tiers", &headers, "").await;
    assert_eq!(reply.status, 503, "{}", reply.body);
    assert_eq!(node.metric(CALLS, "failed").await, failed + 1);
    let before = node.metric(STALE, "").await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert!(node.metric(STALE, "").await > before, "it rises");
    let told = ready().await;
    assert!(told.contains("not heard of it for"), "{told}");
    postgres.restart().expect("PostgreSQL again");
    until("level again", async || (node.metric(STALE, "").await == 0).then_some(())).await;
}

#[tokio::test]
async fn a_database_that_was_never_there_makes_a_node_stale_from_its_start() {
    let kept = Kept::postgres();
    kept.postgres.as_ref().expect("PostgreSQL").kill();
    let node = kept.setup.start();
    until("stale", async || (node.metric(STALE, "").await >= 1).then_some(())).await;
    let failed = node.metric(CALLS, "failed").await;
    assert_eq!(Http::connect(node.admin.expect("an API")).await.get("/admin/v1/tiers").await.status, 503);
    assert_eq!(node.metric(CALLS, "failed").await, failed + 1);
    let errors = async || (node.metric("tidegate_control_follow_errors_total", "").await >= 1).then_some(());
    until("an error", errors).await;
}
