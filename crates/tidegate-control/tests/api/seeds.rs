//! Requests and answers as the designs have them that people come with.

use serde_json::{Value, json};

use crate::rig::{Rig, assert_has, limit, locked, used};
use crate::support::both;

/// The tier alone gives the default; the override is as it was written.
#[test]
fn a_quota_is_written_and_answered_as_in_the_design() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let request = json!({
            "tier": "enterprise",
            "overrides": [{ "descriptor": "endpoint:POST /api/v1/orders", "requests_per_unit": 500, "unit": "minute" }],
            "effective_at": "2025-02-01T00:00:00Z",
            "expires_at": null,
        });
        let expected = json!({
            "api_key": "abc123",
            "tier": "enterprise",
            "quotas": {
                "default": { "requests_per_unit": 5000, "unit": "minute" },
                "overrides": [{ "descriptor": "endpoint:POST /api/v1/orders", "requests_per_unit": 500, "unit": "minute" }],
            },
            "updated_at": "2025-01-15T10:30:00Z",
        });
        let put = rig.ask("PUT /admin/v1/quotas/abc123", request).await.is(200);
        assert_has(&put.json, &expected);
        assert_eq!(put.json["quotas"], expected["quotas"], "and nothing else in there");
        assert_eq!(put.json["effective_at"], "2025-02-01T00:00:00Z", "beside it, what was said of times");
        let get = rig.get("/admin/v1/quotas/abc123").await.is(200);
        assert_eq!(get.json, put.json);
        assert_eq!(get.header("etag"), put.header("etag"));
        let kept = rig.store.quota("abc123").await.unwrap().value;
        assert_eq!(kept.overrides[0].effective_at, Some(1_738_368_000_000_000));
        assert_eq!(kept.overrides[0].expires_at, None);
    });
}

#[test]
fn usage_is_answered_as_in_the_design() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        *locked(&rig.process.used) = vec![
            used("api_platform|api_key#per-key", "default", 53, limit(5000, "tier")),
            used("api_platform|api_key|endpoint", "endpoint:POST /api/v1/orders", 18, limit(500, "override")),
        ];
        let got = rig.get("/admin/v1/usage/abc123").await.is(200);
        let expected = json!({
            "api_key": "abc123",
            "current_window": { "start": "2025-01-15T10:30:00Z", "end": "2025-01-15T10:31:00Z" },
            "usage": {
                "default": { "used": 53, "limit": 5000, "remaining": 4947 },
                "endpoint:POST /api/v1/orders": { "used": 18, "limit": 500, "remaining": 482 },
            },
        });
        assert_has(&got.json, &expected);
        assert_eq!(got.json["usage"], expected["usage"]);
        assert_eq!(got.json["rules"][1]["source"], "override");
    });
}

/// Each with what becomes of it.
fn rules() -> [(&'static str, &'static str, Value, Value); 6] {
    [
        (
            "/api/admin/rate-limit-rules/search",
            "ruleId",
            json!({ "endpoint": "/api/search", "clientTier": "free", "maxRequests": 100, "windowSeconds": 60,
                "algorithm": "sliding_window_counter" }),
            json!({ "domain": "api_platform", "descriptors": [{ "key": "api_key", "descriptors": [
                { "key": "endpoint", "value": "/api/search", "tiers": { "free": [
                    { "limit": "100/60s", "algorithm": "sliding_window_counter", "name": "search" }] } }] }] }),
        ),
        (
            "/admin/v1/rules/any-endpoint",
            "ruleId",
            json!({ "maxRequests": 5, "windowSeconds": 1 }),
            json!({ "domain": "api_platform", "descriptors": [
                { "key": "api_key", "rate_limit": { "limit": "5/1s", "name": "any-endpoint" } }] }),
        ),
        (
            "/admin/v1/rules/login",
            "id",
            json!({ "scope": "ip", "endpoint": "POST /v1/login", "capacity": 100, "refill_per_sec": 1.67 }),
            json!({ "domain": "api_platform", "descriptors": [{ "key": "remote_address", "descriptors": [
                { "key": "endpoint", "value": "POST /v1/login", "rate_limit":
                    { "limit": "167/100s", "algorithm": "token_bucket", "burst": 100, "name": "login" } }] }] }),
        ),
        (
            "/admin/v1/rules/17",
            "id",
            json!({ "id": 17, "scope": "user", "endpoint": "*", "capacity": 10, "refill_per_sec": "0.25", "domain": "shop" }),
            json!({ "domain": "shop", "descriptors": [{ "key": "user_id", "rate_limit":
                { "limit": "1/4s", "algorithm": "token_bucket", "burst": 10, "name": "17" } }] }),
        ),
        (
            "/admin/v1/rules/per-user",
            "policy_id",
            json!({ "policy_id": "per-user", "key_type": "USER", "limit": 100, "window_seconds": 60, "algorithm": "SLIDING_WINDOW_LOG" }),
            json!({ "domain": "api_platform", "descriptors": [{ "key": "user_id", "rate_limit":
                { "limit": "100/60s", "algorithm": "sliding_window_log", "name": "per-user" } }] }),
        ),
        (
            "/admin/v1/rules/ceiling",
            "policy_id",
            json!({ "policy_id": "ceiling", "key_type": "GLOBAL", "limit": 10000, "window_seconds": 1, "algorithm": "TOKEN_BUCKET" }),
            json!({ "domain": "api_platform", "descriptors": [{ "key": "global", "value": "ceiling", "always": true, "rate_limit":
                { "limit": "10000/1s", "algorithm": "token_bucket", "name": "ceiling" } }] }),
        ),
    ]
}

#[test]
fn rules_are_written_in_the_forms_of_the_designs_and_answered_in_the_same() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        for (path, id_field, sent, compiled) in rules() {
            let id = path.rsplit('/').next().unwrap();
            let put = rig.ask(&format!("PUT {path}"), sent.clone()).await.is(200);
            assert_has(
                &put.json,
                &json!({ "version": 1, "compiled": [format!("{}|…#{id}", compiled["domain"].as_str().unwrap())] }),
            );
            for (name, value) in sent.as_object().unwrap() {
                if name != "id" {
                    assert_eq!(put.json[name], *value, "{name} of {id}");
                }
            }
            assert_eq!(put.json[id_field], *id);
            assert_eq!(put.header("etag"), "\"1\"");
            let judged = locked(&rig.process.judged).clone();
            let document = judged.into_iter().find(|(other, _)| other == id).map(|(_, document)| document);
            assert_eq!(document, Some(compiled.clone()), "{id}");
            let stored = rig.store.rule(id).await.unwrap().document;
            let file: Value = serde_json::from_str(&tidegate_control::api::rule_file(&stored)).unwrap();
            assert_eq!(file, compiled, "a node finds the same in the store");
            // What is read can be sent again, and changes nothing.
            let got = rig.get(path).await.is(200);
            let before = rig.revision().await;
            let again = rig.ask(&format!("PUT {path}"), got.json.clone()).await.is(200);
            assert_eq!((again.json["version"].clone(), rig.revision().await), (json!(1), before), "{id}");
        }
    });
}
