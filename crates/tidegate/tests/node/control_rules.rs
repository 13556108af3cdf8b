//! Rules by API beside rule files that change, break and are repaired.

use serde_json::{Value, json};

use crate::control::{Admin, Kept, has_limit, limit, tier, who};
use crate::support::{Node, until};

/// What operators write; `more` is what they add.
fn file(more: &str) -> String {
    format!(
        "domain: api\nmatch: path\ndescriptors:\n  - key: api_key\n    rate_limit: {{ limit: 3/1h, name: per-key }}\n    \
         tiers:\n      pro: {{ limit: 6/1h }}\n{more}"
    )
}

/// With a limit that a rule by API has too.
fn collides() -> String {
    file("  - { key: o, rate_limit: { limit: 9/1h, name: other } }\n")
}

fn rule(key: &str, name: &str, amount: u32) -> String {
    let limit = json!({ "limit": format!("{amount}/1h"), "name": name });
    json!({ "domain": "api", "descriptors": [{ "key": key, "rate_limit": limit }] }).to_string()
}

async fn put(admin: &Admin<'_>, id: &str, document: &str) {
    let put = admin.call("PUT", &format!("/admin/v1/rules/{id}"), document).await;
    assert_eq!(put.status, 200, "{}", put.body);
}

async fn is_ready(node: &Node) {
    until("it is ready", async || (node.http().await.get("/readyz").await.status == 200).then_some(())).await;
}

/// Could all be loaded?
async fn is_whole(node: &Node, expected: u64) {
    let whole = async || node.metric("tidegate_config_last_reload_successful", "").await;
    until("the metric says so", async || (whole().await == expected).then_some(())).await;
}

async fn told(node: &Node) -> String {
    node.http().await.get("/readyz?verbose").await.body
}

#[tokio::test]
async fn rules_by_api_outlast_a_restart_beside_a_bad_file_and_come_back_when_it_is_repaired() {
    for kept in Kept::both_with(&file("")) {
        let mut node = kept.setup.start();
        let admin = Admin::of(&node).await;
        put(&admin, "tight", &rule("t", "tight", 1)).await;
        put(&admin, "other", &rule("o", "other", 2)).await;
        let token = admin.token.clone();
        let is = async |node: &Node, t, o| {
            has_limit(node, &[("t", "x")], t).await;
            has_limit(node, &[("o", "x")], o).await;
        };
        is(&node, Some(1), Some(2)).await;
        is_ready(&node).await;
        node.setup.write("rules/rules.yaml", &collides());
        is_whole(&node, 0).await;
        is(&node, Some(1), Some(2)).await;
        node.kill();

        let node = kept.setup.start();
        is_ready(&node).await;
        is(&node, Some(1), Some(9)).await;
        let why = "api:other is not in force: the limit `other` is there already, from ";
        assert!(told(&node).await.contains(&format!("degraded: {why}")), "{}", told(&node).await);
        assert!(node.log().contains("the limit `other` is there already"), "{}", node.log());
        is_whole(&node, 0).await;
        // It keeps no other edit away; who makes one is told.
        let admin = Admin { node: &node, token };
        let dry = admin.call("PUT", "/admin/v1/rules/third?dry_run", &rule("u", "third", 4)).await.json();
        assert_eq!(
            dry["warnings"][0]["message"].as_str().map(|told| told.starts_with(why)),
            Some(true),
            "{dry}"
        );
        put(&admin, "third", &rule("u", "third", 4)).await;
        has_limit(&node, &[("u", "x")], Some(4)).await;

        node.setup.write("rules/rules.yaml", &file(""));
        is(&node, Some(1), Some(2)).await;
        has_limit(&node, &[("u", "x")], Some(4)).await;
        is_whole(&node, 1).await;
        assert!(!told(&node).await.contains("degraded"), "{}", told(&node).await);
    }
}

#[tokio::test]
async fn rules_by_api_change_while_a_file_is_broken() {
    for kept in Kept::both_with(&file("")) {
        let node = kept.setup.start();
        let admin = Admin::of(&node).await;
        put(&admin, "tight", &rule("t", "tight", 1)).await;
        put(&admin, "tight", &rule("t", "tight", 2)).await;
        has_limit(&node, &[("t", "x")], Some(2)).await;
        node.setup.write("rules/rules.yaml", "domain: [");
        is_whole(&node, 0).await;
        let dry = admin.call("PUT", "/admin/v1/rules/more?dry_run", &rule("u", "more", 4)).await.json();
        assert_eq!(dry["warnings"][0]["code"], "files-not-in-force", "{dry}");
        let changed: Vec<&Value> =
            dry["changes"].as_array().expect("a list").iter().map(|one| &one["id"]).collect();
        assert_eq!(changed, ["api|u#more"], "beside what is in force: {dry}");
        put(&admin, "more", &rule("u", "more", 4)).await;
        has_limit(&node, &[("u", "x")], Some(4)).await;
        let back = admin.call("POST", "/admin/v1/rules/tight/rollback", r#"{"version": 1}"#).await;
        assert_eq!(back.status, 200, "{}", back.body);
        has_limit(&node, &[("t", "x")], Some(1)).await;
        let wrong = admin.call("PUT", "/admin/v1/rules/wrong", &rule("api_key", "per-key", 4)).await;
        assert_eq!(wrong.status, 422, "{}", wrong.body);
        is_whole(&node, 0).await;
        node.setup.write("rules/rules.yaml", &file(""));
        is_whole(&node, 1).await;
        has_limit(&node, &[("t", "x")], Some(1)).await;
    }
}

const SHOP: &str = r#"{"domain": "shop", "descriptors": [{"key": "k", "rate_limit": {"limit": "5/1h"}}]}"#;

#[tokio::test]
async fn a_second_domain_takes_no_quota_away_in_silence() {
    for kept in Kept::both_with(&file("")) {
        let (node, store) = (kept.setup.start(), kept.store().await);
        let admin = Admin::of(&node).await;
        store.put_quota(&who(), tier("alice", "pro"), None).await.expect("written");
        let alice = [("api_key", "alice")];
        has_limit(&node, &alice, Some(6)).await;
        for call in ["/admin/v1/rules/shop?dry_run", "/admin/v1/rules/shop"] {
            let refused = admin.call("PUT", call, SHOP).await;
            assert_eq!(
                (refused.status, refused.body.contains("http.default_domain")),
                (422, true),
                "{}",
                refused.body
            );
        }
        assert_eq!(limit(&node, &alice).await, Some(6));
        // A file cannot be refused for it; it is said.
        let lost = "quotas that name no domain hold nowhere";
        assert!(!told(&node).await.contains(lost));
        node.setup.write("rules/shop.yaml", SHOP);
        has_limit(&node, &alice, Some(3)).await;
        assert!(told(&node).await.contains(lost) && node.log().contains(lost), "{}", node.log());
        std::fs::remove_file(node.setup.path().join("rules/shop.yaml")).expect("removed");
        has_limit(&node, &alice, Some(6)).await;
        let token = admin.token;
        drop(node);
        // With a domain that is named, there may be others.
        let node = kept.setup.clone().set("http-default-domain", "api").start();
        let admin = Admin { node: &node, token };
        put(&admin, "shop", SHOP).await;
        until("it is there", async || told(&node).await.contains("2 in force").then_some(())).await;
        has_limit(&node, &alice, Some(6)).await;
        assert!(!told(&node).await.contains(lost));
    }
}
