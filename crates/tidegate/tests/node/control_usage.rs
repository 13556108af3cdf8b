//! What a caller has used, by every rule that counts for it: of the real binary, on both databases.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_control::Quota;

use crate::control::{Admin, Kept, tier, who};
use crate::support::{Node, asks, descriptor, until};

const RULES: &str = "\
domain: api
match: path
descriptors:
  - key: api_key
    rate_limit: { limit: 30/1h, name: per-key }
    tiers:
      pro: { limit: 60/1h }
    descriptors:
      - key: endpoint
        value: POST /orders
        rate_limit: { limit: 20/1h, name: writes }
      - key: endpoint
        rate_limit: { limit: 25/1h, name: each-endpoint }
      - key: file
        value: images/*
        rate_limit: { limit: 26/1h, name: images }
        tiers:
          gold: { limit: 27/1h }
      - key: host
        tiers:
          gold: { limit: 28/1h }
      - key: off
        rate_limit: { limit: 29/1h, name: off, disabled: true }
      - key: user_id
        rate_limit: { limit: 31/1h, name: key-and-user }
  - key: user_id
    rate_limit: { limit: 40/1h, name: per-user }
    descriptors:
      - key: endpoint
        value: POST /orders
        rate_limit: { limit: 21/1h, name: user-writes }
        descriptors:
          - key: file
            rate_limit: { limit: 22/1h, name: user-files }
  - key: user_id
    value: somebody else
    rate_limit: { limit: 1/1h, name: somebody-else }
  - key: client_id
    rate_limit: { limit: 50/1h, name: per-client }
  - key: region
    value: eu
    rate_limit: { limit: 90/1h, name: region }
    descriptors:
      - key: api_key
        rate_limit: { limit: 70/1h, name: in-region }
      - key: user_id
        rate_limit: { limit: 71/1h, name: user-in-region }
  - key: service
    value: all
    always: true
    rate_limit: { limit: 100/1h, name: everything }
";

/// What each rule counts for, and how much of it is used, by the names of rules.
fn told(usage: &Value) -> BTreeMap<String, (String, u64)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rules = usage["rules"].as_array().cloned().unwrap_or_default();
    let name = |rule: &Value| text(rule).rsplit('#').next().unwrap_or_default().to_owned();
    let one =
        |one: &Value| (name(&one["rule"]), (text(&one["counts_for"]), one["used"].as_u64().unwrap_or(99)));
    rules.iter().map(one).collect()
}

fn expected(all: &[(&str, &str, u64)]) -> BTreeMap<String, (String, u64)> {
    all.iter().map(|(name, whose, used)| ((*name).to_owned(), ((*whose).to_owned(), *used))).collect()
}

async fn charge(node: &Node, entries: &[(&str, &str)]) {
    assert_eq!(
        node.rls().await.ask(&asks("api", [descriptor(entries)])).await.overall_code,
        1,
        "{entries:?}"
    );
}

#[tokio::test]
async fn usage_has_every_rule_that_counts_for_a_caller() {
    for kept in Kept::both_with(RULES) {
        let node = kept.setup.start();
        let (admin, store) = (Admin::of(&node).await, kept.store().await);
        let (user_id, client_id) = (Some("ursula".into()), Some("acme".into()));
        let alice = Quota { user_id, client_id, ..tier("alice", "pro") };
        store.put_quota(&who(), alice, None).await.expect("written");
        store.put_quota(&who(), tier("bob", "pro"), None).await.expect("written");
        let usage = async |key: &str| admin.call("GET", &format!("/admin/v1/usage/{key}"), "").await.json();
        until("the record holds", async || {
            told(&usage("alice").await).contains_key("per-user").then_some(())
        })
        .await;

        charge(&node, &[("api_key", "alice"), ("endpoint", "POST /orders")]).await;
        charge(&node, &[("region", "eu"), ("api_key", "alice")]).await;
        charge(&node, &[("api_key", "bob")]).await;
        let before = usage("alice").await;
        let all = [
            ("per-key", "caller", 1),
            ("writes", "caller", 1),
            ("key-and-user", "caller", 0),
            ("in-region", "caller", 1),
            ("per-user", "user_id", 1),
            ("user-writes", "user_id", 1),
            ("user-in-region", "user_id", 1),
            ("per-client", "client_id", 1),
            ("region", "all", 1),
            ("everything", "all", 3),
        ];
        assert_eq!(told(&before), expected(&all), "{before:#}");
        assert_eq!(before["usage"]["default"]["limit"], 60, "{before:#}");
        assert_eq!(before["usage"]["endpoint:POST /orders"]["used"], 1, "{before:#}");
        assert_eq!(before["left_out"], 0, "{before:#}");
        // What cannot be listed is named: of her tier and state, and of nobody else.
        let not_listed = before["not_listed"].as_array().cloned().unwrap_or_default();
        let not_listed: BTreeMap<&str, &str> = not_listed
            .iter()
            .filter_map(|one| Some((one["rule"].as_str()?.rsplit('#').next()?, one["why"].as_str()?)))
            .collect();
        let names: Vec<&str> = not_listed.keys().copied().collect();
        assert_eq!(names, ["each-endpoint", "images", "user-files"], "{before:#}");
        assert!(not_listed["each-endpoint"].contains("`endpoint` has no fixed value"), "{before:#}");
        assert!(not_listed["images"].contains("fits `images/*`"), "{before:#}");
        assert!(not_listed.values().all(|why| why.contains("tidegate inspect")), "{before:#}");
        // Bob has no other names.
        let of_bob = usage("bob").await;
        let all_of_bob = [
            ("per-key", "caller", 1),
            ("writes", "caller", 0),
            ("in-region", "caller", 0),
            ("region", "all", 1),
            ("everything", "all", 3),
        ];
        assert_eq!(told(&of_bob), expected(&all_of_bob), "{of_bob:#}");

        // A reset is about the caller, and whoever it is, and nobody else.
        let reset = admin.call("DELETE", "/admin/v1/usage/alice", "").await;
        assert_eq!(reset.status, 200, "{}", reset.body);
        assert!(!reset.body.contains("everything") && !reset.body.contains("#region"), "{}", reset.body);
        assert_eq!(reset.json()["reset"].as_array().map(Vec::len), Some(8), "{}", reset.body);
        let after = all.map(|(name, whose, used)| (name, whose, if whose == "all" { used } else { 0 }));
        assert_eq!(told(&usage("alice").await), expected(&after));
        let id = "api%7Cservice%3Aall%23everything";
        let refused = admin.call("DELETE", &format!("/admin/v1/usage/alice?descriptor={id}"), "").await;
        assert!(refused.status == 404 && refused.body.contains("counts for others too"), "{}", refused.body);

        // Whoever is never limited is counted by nothing.
        let free = Quota { whitelisted: true, ..tier("bob", "pro") };
        store.put_quota(&who(), free, None).await.expect("written");
        until("nothing counts", async || {
            let usage = usage("bob").await;
            (told(&usage).is_empty() && usage["not_listed"] == serde_json::json!([])).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn usage_says_what_it_leaves_out() {
    const ENDPOINTS: usize = 1_100;
    let mut rules = String::from(
        "domain: api\nmatch: path\ndescriptors:\n\
         \x20 - { key: service, value: all, always: true, rate_limit: { limit: 100/1h } }\n\
         \x20 - key: api_key\n    descriptors:\n",
    );
    for endpoint in 0..ENDPOINTS {
        rules += &format!("      - {{ key: endpoint, value: /{endpoint}, rate_limit: {{ limit: 5/1h }} }}\n");
    }
    let kept = Kept::on_sqlite(&rules);
    let node = kept.setup.start();
    let admin = Admin::of(&node).await;
    let usage = admin.call("GET", "/admin/v1/usage/alice", "").await.json();
    let listed = usage["rules"].as_array().map(Vec::len);
    assert_eq!((listed, &usage["left_out"]), (Some(1_000), &101.into()));
    assert!(!usage["rules"].to_string().contains("service"), "the caller's own come first");
    let one = admin.call("GET", "/admin/v1/usage/alice?descriptor=endpoint:/1099", "").await.json();
    let listed = one["rules"].as_array().map(Vec::len);
    assert_eq!((listed, &one["left_out"]), (Some(1), &0.into()), "{one}");
    let reset = admin.call("DELETE", "/admin/v1/usage/alice", "").await.json();
    assert_eq!((reset["reset"].as_array().map(Vec::len), &reset["left_out"]), (Some(1_000), &100.into()));
    let trail = admin.call("GET", "/admin/v1/audit?kind=usage", "").await.json();
    let recorded = &trail["items"][0]["before"]["counters"];
    let names = |all: &Value| -> Vec<Value> {
        all.as_array().into_iter().flatten().map(|one| one["descriptor"].clone()).collect()
    };
    assert_eq!(
        names(recorded),
        names(&reset["reset"]),
        "what was reset is what the trail says: {trail:.500}"
    );
    let last = admin.call("DELETE", "/admin/v1/usage/alice?descriptor=endpoint:/1099", "").await;
    assert_eq!(last.status, 200, "what was left out is reached by its name: {}", last.body);
}
