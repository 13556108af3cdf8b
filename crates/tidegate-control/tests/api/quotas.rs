//! Records of keys, one by one and many at a time.

use serde_json::{Value, json};

use crate::rig::{Rig, assert_has};
use crate::support::both;

#[test]
fn a_quota_is_written_read_and_forgotten() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let path = "/admin/v1/quotas/a%2Fb%20c%C3%BC";
        let body = json!({
            "tier": "platinum", "clientId": "client 1", "userId": "user 1", "whitelisted": true, "domain": "shop",
            "overrides": [
                { "descriptor": "default", "requests_per_unit": 7, "unit": "minute" },
                { "descriptor": "a:b|c:d:e", "requests_per_unit": 0, "unit": "month", "expires_at": "2030-01-01T00:00:00+01:00" },
            ],
            "effective_at": "2026-01-01T00:00:00.5Z",
        });
        let put = rig.ask(&format!("PUT {path}"), body).await.is(200);
        assert_has(
            &put.json,
            &json!({
                "api_key": "a/b cü", "tier": "platinum",
                "client_id": "client 1", "user_id": "user 1", "whitelisted": true, "domain": "shop",
                "quotas": { "default": { "requests_per_unit": 7, "unit": "minute" }, "overrides": [
                    { "descriptor": "a:b|c:d:e", "requests_per_unit": 0, "unit": "month",
                      "effective_at": "2026-01-01T00:00:00.5Z", "expires_at": "2029-12-31T23:00:00Z" },
                    { "descriptor": "default", "requests_per_unit": 7, "unit": "minute", "effective_at": "2026-01-01T00:00:00.5Z" },
                ] },
            }),
        );
        assert_eq!(rig.get(path).await.is(200).json, put.json);
        rig.ask(&format!("DELETE {path}"), Value::Null).await.is(204);
        let gone = rig.get(path).await.is(404);
        assert_eq!(gone.json["type"], "urn:tidegate:problem:not-found");
        rig.ask(&format!("DELETE {path}"), Value::Null).await.is(404);
        let trail = rig.get("/admin/v1/audit?kind=quota").await.is(200);
        assert_has(
            &trail.json["items"],
            &json!([
                { "action": "delete", "subject": "a/b cü", "actor": "admin of tests", "after": null },
                { "action": "create", "subject": "a/b cü", "before": null },
            ]),
        );
        assert!(trail.json["items"][0]["origin"].as_str().unwrap().starts_with("127.0.0.1 token:"));
    });
}

/// Row 35, over HTTP.
#[test]
fn a_lost_update_is_refused_with_the_version_there_is() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let call = "PUT /admin/v1/quotas/key";
        let none = rig.ask_if(call, json!({}), &[("if-match", "*")]).await.is(412);
        assert_eq!(none.json["current_version"], 0);
        let first = rig.ask_if(call, json!({ "tier": "pro" }), &[("if-none-match", "*")]).await.is(200);
        let tag = first.header("etag").to_owned();
        let version = first.json["version"].as_u64().unwrap();
        assert_eq!(tag, format!("\"{version}\""));
        let again = rig.ask_if(call, json!({ "tier": "free" }), &[("if-none-match", "*")]).await.is(412);
        assert_eq!(
            (again.json["current_version"].as_u64(), again.header("etag")),
            (Some(version), tag.as_str())
        );
        rig.ask_if(call, json!({ "tier": "free" }), &[("if-match", &tag)]).await.is(200);
        let lost = rig.ask_if(call, json!({ "tier": "custom" }), &[("if-match", &tag)]).await.is(412);
        assert_eq!(lost.json["current_version"].as_u64(), Some(version + 1));
        rig.ask_if("DELETE /admin/v1/quotas/key", Value::Null, &[("if-match", &tag)]).await.is(412);
        // Of what was lost the trail says nothing; of what won, what it found and what it left. Row 35.
        let rows = rig.get("/admin/v1/audit?subject=key&order=oldest").await.is(200).json;
        let tier = |of: &Value| of["tier"].as_str().map(str::to_owned);
        let rows = rows["items"].as_array().unwrap().iter();
        let told: Vec<_> =
            rows.map(|row| (row["seq"].as_u64(), tier(&row["before"]), tier(&row["after"]))).collect();
        let (pro, free) = (Some("pro".to_owned()), Some("free".to_owned()));
        assert_eq!(told, [(Some(version), None, pro.clone()), (Some(version + 1), pro, free)]);
        for odd in ["x", "1", "\"x\"", "W/\"1\""] {
            assert_eq!(
                rig.ask_if(call, json!({}), &[("if-match", odd)]).await.is(400).json["field"],
                "If-Match"
            );
        }
        rig.ask_if(call, json!({ "tier": "custom" }), &[("if-match", "*")]).await.is(200);
        rig.ask_if("DELETE /admin/v1/quotas/key", Value::Null, &[("if-match", "*")]).await.is(204);
    });
}

#[test]
fn a_put_that_changes_nothing_writes_nothing() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        for (call, body) in [
            (
                "PUT /admin/v1/quotas/key",
                json!({ "tier": "pro", "overrides": [
                { "descriptor": "b:1", "requests_per_unit": 1, "unit": "day" },
                { "descriptor": "a:1", "requests_per_unit": 2, "unit": "day" }] }),
            ),
            (
                "PUT /admin/v1/tiers/gold",
                json!({ "overrides": [{ "descriptor": "default", "requests_per_unit": 9, "unit": "hour" }] }),
            ),
            ("PUT /admin/v1/rules/r", json!({ "maxRequests": 9, "windowSeconds": 3 })),
            (
                "PUT /admin/v1/rules/shop%7Capi_key%23per-key/state",
                json!({ "state": "enforce 25%", "expires_at": "2030-01-01T00:00:00Z" }),
            ),
        ] {
            let first = rig.ask(call, body.clone()).await.is(200);
            let revision = rig.revision().await;
            rig.hand.advance(1_000_000);
            let again = rig.ask(call, body).await.is(200);
            assert_eq!((again.json, rig.revision().await), (first.json, revision), "{call}");
        }
    });
}

#[test]
fn what_is_wrong_with_a_body_is_told_by_the_name_of_the_field() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let one = |name: &str, value: Value| {
            let mut one = json!({ "descriptor": "default", "requests_per_unit": 1, "unit": "minute" });
            one[name] = value;
            json!({ "overrides": [one] })
        };
        let quota = "PUT /admin/v1/quotas/key";
        let state = "PUT /admin/v1/rules/shop%7Capi_key%23per-key/state";
        let rule = "PUT /admin/v1/rules/r";
        let cases = [
            (quota, json!({ "teir": "pro" }), "teir", "tier"),
            (quota, json!({ "tier": "pt" }), "tier", "there are custom, enterprise, free, platinum, pro"),
            (quota, json!({ "tier": 7 }), "tier", "string"),
            (quota, json!({ "api_key": "other" }), "api_key", "path"),
            (quota, json!({ "overrides": 7 }), "overrides", "sequence"),
            (quota, one("unit", json!("fortnight")), "overrides[0].unit", "month"),
            (quota, one("requests_per_unit", json!(-1)), "overrides[0].requests_per_unit", "u32"),
            (
                quota,
                one("requests_per_unit", json!(4_294_967_296_u64)),
                "overrides[0].requests_per_unit",
                "u32",
            ),
            (quota, one("descriptor", json!("endpoint")), "overrides[0].descriptor", "key:value"),
            // What decisions would not understand, and pass over in silence.
            (quota, one("descriptor", json!("endpoint:/a\\")), "overrides[0].descriptor", "backslash"),
            (
                quota,
                one("descriptor", json!(vec!["a:b"; 33].join("|"))),
                "overrides[0].descriptor",
                "more than",
            ),
            (quota, json!({ "domain": "shopp" }), "domain", "no rule has the domain `shopp`"),
            (
                quota,
                one("effective_at", json!("tomorrow")),
                "overrides[0].effective_at",
                "2025-02-01T00:00:00Z",
            ),
            (quota, one("color", json!("red")), "overrides[0].color", "unit"),
            (
                quota,
                json!({ "overrides": [{ "descriptor": "default", "unit": "day" }] }),
                "overrides[0].requests_per_unit",
                "missing",
            ),
            (
                quota,
                json!({ "effective_at": "2026-01-01T00:00:00Z", "expires_at": "2025-01-01T00:00:00Z",
                "overrides": [{ "descriptor": "default", "unit": "day", "requests_per_unit": 1 }] }),
                "overrides[0].expires_at",
                "after",
            ),
            // Only overrides have times: a tier would be for good.
            (quota, json!({ "tier": "pro", "expires_at": "2020-01-01T00:00:00Z" }), "expires_at", "override"),
            (
                quota,
                json!({ "tier": "pro", "effective_at": "2030-01-01T00:00:00Z" }),
                "effective_at",
                "override",
            ),
            (
                quota,
                json!({ "expires_at": "2030-01-01T00:00:00Z", "overrides": [
                { "descriptor": "default", "unit": "day", "requests_per_unit": 1, "expires_at": "2031-01-01T00:00:00Z" }] }),
                "expires_at",
                "override",
            ),
            (
                "PUT /admin/v1/tiers/gold",
                json!({ "overrides": [
                { "descriptor": "default", "unit": "day", "requests_per_unit": 1, "expires_at": "2030-01-01T00:00:00Z" }] }),
                "overrides[0]",
                "times",
            ),
            ("PUT /admin/v1/tiers/a%20b", json!({}), "name", "' '"),
            (state, json!({ "state": "off" }), "state", "shadow"),
            (state, json!({}), "state", "missing"),
            (
                state,
                json!({ "state": "shadow", "expires_at": "2020-01-01T00:00:00Z" }),
                "expires_at",
                "passed",
            ),
            (rule, json!({ "what": 1 }), "body", "`maxRequests`"),
            (rule, json!([1]), "body", "object"),
            (rule, json!({ "maxRequests": 1 }), "windowSeconds", "missing"),
            (rule, json!({ "maxRequests": 1, "windowSeconds": 1, "endpiont": "x" }), "endpiont", "endpoint"),
            (rule, json!({ "ruleId": "x", "maxRequests": 1, "windowSeconds": 1 }), "ruleId", "path"),
            (
                rule,
                json!({ "scope": "tenant", "endpoint": "*", "capacity": 1, "refill_per_sec": 1 }),
                "scope",
                "api_key",
            ),
            (
                rule,
                json!({ "scope": "ip", "endpoint": "*", "capacity": 1, "refill_per_sec": 0 }),
                "refill_per_sec",
                "above 0",
            ),
            (
                rule,
                json!({ "scope": "ip", "endpoint": "*", "capacity": 1, "refill_per_sec": 1.666_666_666_666_666_7 }),
                "refill_per_sec",
                "text",
            ),
            (
                rule,
                json!({ "policy_id": "r", "key_type": "PLANET", "limit": 1, "window_seconds": 1 }),
                "key_type",
                "GLOBAL",
            ),
            ("PUT /admin/v1/rules/a%20b", json!({ "maxRequests": 1, "windowSeconds": 1 }), "id", "' '"),
            ("POST /admin/v1/tokens", json!({ "name": "x", "scope": "root" }), "scope", "admin"),
            ("POST /admin/v1/tokens", json!({ "name": "", "scope": "read" }), "name", "bytes"),
            (
                "POST /admin/v1/tokens",
                json!({ "name": "x", "scope": "read", "expires_at": "2020-01-01T00:00:00Z" }),
                "expires_at",
                "passed",
            ),
            ("POST /admin/v1/rules/r/rollback", json!({ "version": "1" }), "version", "u64"),
        ];
        let before = rig.revision().await;
        for (call, body, field, says) in cases {
            let got = rig.ask(call, body.clone()).await.is(422);
            assert_eq!(got.json["field"], field, "{call} {body}: {}", got.text);
            assert!(got.json["detail"].as_str().unwrap().contains(says), "{call} {body}: {}", got.text);
        }
        let long = format!("PUT /admin/v1/quotas/{}", "k".repeat(257));
        assert_eq!(rig.ask(&long, json!({})).await.is(422).json["field"], "api_key");
        for (text, says) in [("{", "EOF"), ("", "EOF"), ("{} x", "trailing"), ("\u{0}", "JSON")] {
            let got = rig.ask_as(Some(&rig.admin), quota, text).await.is(400);
            assert!(got.text.contains(says), "{}", got.text);
        }
        assert_eq!(rig.revision().await, before);
    });
}

#[test]
fn quotas_are_listed_page_by_page() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        for name in ["b-1", "a 1", "b-2", "c&d=e"] {
            let tier = if name.starts_with('b') { "pro" } else { "free" };
            let path = name.replace(' ', "%20").replace('&', "%26");
            rig.ask(&format!("PUT /admin/v1/quotas/{path}"), json!({ "tier": tier })).await.is(200);
        }
        let list = async |query: &str| {
            let (mut all, mut cursor) = (Vec::new(), String::new());
            loop {
                let page = rig.get(&format!("/admin/v1/quotas?{query}{cursor}")).await.is(200);
                all.extend(
                    page.json["items"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|key| key["api_key"].as_str().unwrap().to_owned()),
                );
                match page.json["next"].as_str() {
                    Some(next) => cursor = format!("&cursor={next}"),
                    None => return all,
                }
            }
        };
        assert_eq!(list("limit=1").await, ["a 1", "b-1", "b-2", "c&d=e"]);
        assert_eq!(list("limit=2&tier=pro").await, ["b-1", "b-2"]);
        assert_eq!(list("prefix=c%26d").await, ["c&d=e"]);
        assert_eq!(list("prefix=a+1").await, ["a 1"]);
        let timed = json!({ "userId": "ursula", "client_id": "acme", "overrides": [
            { "descriptor": "default", "requests_per_unit": 1, "unit": "day", "expires_at": "2025-02-01T00:00:00Z" }] });
        rig.ask("PUT /admin/v1/quotas/timed", timed).await.is(200);
        rig.ask("PUT /admin/v1/quotas/other", json!({ "user_id": "ursula" })).await.is(200);
        assert_eq!(list("user_id=ursula&limit=1").await, ["other", "timed"]);
        assert_eq!(list("user_id=ursula&client_id=acme").await, ["timed"]);
        assert_eq!(list("expires_before=2025-02-01T00:00:01Z").await, ["timed"]);
        assert_eq!(list("expires_before=2025-02-01T00:00:00Z").await, Vec::<String>::new());
        assert_eq!(
            list("expires_after=2025-02-01T00:00:00Z&expires_before=2026-01-01T00:00:00Z").await,
            ["timed"]
        );
        assert_eq!(list("expires_after=2025-02-01T00:00:01Z").await, Vec::<String>::new());
        let tenant = rig.token(tidegate_control::Scope::Read, Some("shop"), None).await.1;
        let of_others = rig.ask_as(Some(&tenant), "GET /admin/v1/quotas?user_id=ursula", "").await.is(200);
        assert_eq!(of_others.json["items"], json!([]), "they are of another domain");
        for (query, field) in [
            ("limit=0", "limit"),
            ("limit=1001", "limit"),
            ("limit=x", "limit"),
            ("cursor=zz", "cursor"),
            ("cursor=%FF", "query"),
            ("teir=pro", "teir"),
            ("tier=a&tier=b", "tier"),
            ("cursor=ff", "cursor"),
            ("prefix=%00", "query"),
            ("expires_before=soon", "expires_before"),
            ("expires_before=-009999-01-01T00:00:00Z", "expires_before"),
            ("expires_after=1", "expires_after"),
        ] {
            assert_eq!(
                rig.get(&format!("/admin/v1/quotas?{query}")).await.is(400).json["field"],
                field,
                "{query}"
            );
        }
    });
}

#[test]
fn what_is_exported_is_imported_again() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let odd = json!({ "tier": "pro", "user_id": "say \"hi\", you", "overrides": [
            { "descriptor": "endpoint:a,b", "requests_per_unit": 1, "unit": "day", "expires_at": "2030-01-01T00:00:00.000001Z" },
            { "descriptor": "default", "requests_per_unit": 4_294_967_295_u32, "unit": "year" }] });
        rig.ask("PUT /admin/v1/quotas/odd", odd).await.is(200);
        for number in 0..4 {
            let quota = crate::support::quota(&format!("key-{number:04}"), "free", vec![]);
            rig.store.put_quota(&crate::support::alice(), quota, None).await.unwrap();
        }
        for (format, form) in [("csv", "text/csv"), ("jsonl", "application/x-ndjson")] {
            let export = rig.get(&format!("/admin/v1/quotas:export?format={format}")).await.is(200);
            assert!(export.header("content-type").starts_with(form));
            let import = async |call: &str, text: &str| rig.ask_lines(call, text, form).await;
            let before = rig.revision().await;
            let again = import("POST /admin/v1/quotas:import", &export.text).await.is(200);
            assert_has(
                &again.json,
                &json!({ "read": 5, "created": 0, "updated": 0, "unchanged": 5, "failed": 0 }),
            );
            assert_eq!(rig.revision().await, before);
            rig.ask("DELETE /admin/v1/quotas/odd", Value::Null).await.is(204);
            let before = rig.revision().await;
            let dry = import("POST /admin/v1/quotas:import?dry_run", &export.text).await.is(200);
            assert_has(&dry.json, &json!({ "dry_run": true, "created": 1, "unchanged": 4 }));
            assert_eq!(rig.revision().await, before);
            let again = import("POST /admin/v1/quotas:import", &export.text).await.is(200);
            assert_has(&again.json, &json!({ "read": 5, "created": 1, "unchanged": 4 }));
            let exported = rig.get(&format!("/admin/v1/quotas:export?format={format}")).await.text;
            assert_eq!(exported, export.text);
        }
        // More than a page.
        let many =
            (0..1000).map(|number| (crate::support::quota(&format!("m{number:04}"), "pro", vec![]), None));
        rig.store.put_quotas(&crate::support::alice(), many.collect()).await.unwrap();
        let lines = async |query: &str| {
            rig.get(&format!("/admin/v1/quotas:export?{query}")).await.text.lines().count()
        };
        assert_eq!(lines("format=jsonl").await, 1005);
        assert_eq!(lines("format=jsonl&tier=pro").await, 1001);
        assert_eq!(lines("format=jsonl&prefix=m000").await, 10);
        let yaml = rig.get("/admin/v1/export?of=quotas").await.text;
        assert_eq!(yaml.lines().filter(|line| line.starts_with("- api_key:")).count(), 1005);
        let by_header = rig
            .ask_if("GET /admin/v1/quotas:export?prefix=odd", Value::Null, &[("accept", "text/csv")])
            .await;
        let lines: Vec<&str> = by_header.text.lines().collect();
        assert_eq!(lines[1], "odd,pro,default,4294967295,year,,,,,\"say \"\"hi\"\", you\",false");
        assert_eq!(lines.len(), 3);
    });
}

#[test]
fn many_are_imported_in_chunks_and_each_wrong_line_is_named() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let mut lines: Vec<String> =
            (0..1100).map(|number| format!("{{\"api_key\":\"k{number:04}\",\"tier\":\"pro\"}}")).collect();
        lines[700] = "{\"api_key\":\"k0700\",\"tier\":\"nobody\"}".into();
        lines[701] = "{\"api_key\":".into();
        lines[702] = "{\"api_key\":\"k0003\"}".into();
        lines[703] = "{\"tier\":\"pro\"}".into();
        lines[704] = String::new();
        let got = rig
            .ask_lines("POST /admin/v1/quotas:import", &lines.join("\r\n"), "application/x-ndjson")
            .await
            .is(422);
        let told: Vec<_> = got.json["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["line"].as_u64(), one["field"].as_str()))
            .collect();
        assert_eq!(
            told,
            [
                (Some(701), Some("tier")),
                (Some(702), Some("body")),
                (Some(703), Some("api_key")),
                (Some(704), Some("api_key"))
            ]
        );
        assert_has(&got.json["imported"], &json!({ "read": 1099, "created": 1095, "failed": 4 }));
        assert_eq!(rig.store.quota("k1099").await.unwrap().value.tier.as_deref(), Some("pro"));
        let csv = "api_key,descriptor,requests_per_unit,unit,tier\n\
                   a,default,5,minute,pro\n\
                   a,\"x:1\",6,minute,pro\n\
                   b,,,,free\n\
                   c,default,many,minute,free\n\
                   d,default,5\n\
                   e,default,,minute,free\n\
                   a,default,7,minute,pro\n";
        let got = rig.ask_lines("POST /admin/v1/quotas:import", csv, "text/csv; charset=utf-8").await.is(422);
        let told: Vec<_> = got.json["errors"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["line"].as_u64(), one["field"].as_str()))
            .collect();
        let mut sorted = told.clone();
        sorted.sort_unstable();
        let expected = [
            (Some(5), Some("requests_per_unit")),
            (Some(6), Some("line")),
            (Some(7), Some("descriptor")),
            (Some(8), Some("api_key")),
        ];
        assert_eq!(sorted, expected, "{told:?}");
        assert_eq!(rig.store.quota("a").await.unwrap().value.overrides.len(), 2);
        // Times of nothing.
        let csv = "api_key,tier,effective_at,expires_at\n\
                   g,pro,,2030-01-01T00:00:00Z\n\
                   h,pro,2020-01-01T00:00:00Z,\n\
                   i,pro,,\n";
        let got = rig.ask_lines("POST /admin/v1/quotas:import", csv, "text/csv").await.is(422);
        let errors = got.json["errors"].as_array().unwrap().iter();
        let told: Vec<_> = errors.map(|one| (one["line"].as_u64(), one["field"].as_str())).collect();
        assert_eq!(told, [(Some(2), Some("expires_at")), (Some(3), Some("effective_at"))]);
        let jsonl = r#"{"api_key":"g","tier":"pro","expires_at":"2030-01-01T00:00:00Z"}"#;
        let form = "application/x-ndjson";
        let got = rig.ask_lines("POST /admin/v1/quotas:import", jsonl, form).await.is(422);
        assert_eq!(got.json["errors"][0]["field"], "expires_at", "{}", got.text);
        // A record with a wrong line is not written, whichever line it is: that limit would be taken away.
        let csv = "api_key,descriptor,requests_per_unit,unit,tier\n\
                   b,default,5,minute,pro\n\
                   b,x:1,many,minute,pro\n\
                   b,x:2,6,minute,pro\n\
                   c,default,many,minute,pro\n\
                   c,x:1,6,minute,pro\n\
                   a,default,5,minute,pro\n\
                   a,x:1,6,minute,free\n\
                   f,default,5,minute,pro\n\
                   f,x:1,6,minute,\n";
        let got = rig.ask_lines("POST /admin/v1/quotas:import", csv, "text/csv").await.is(422);
        let errors = got.json["errors"].as_array().unwrap().iter();
        let told: Vec<_> = errors.map(|one| (one["line"].as_u64(), one["field"].as_str())).collect();
        let amount = Some("requests_per_unit");
        assert_eq!(told, [(Some(3), amount), (Some(5), amount), (Some(8), Some("tier"))]);
        assert_has(&got.json["imported"], &json!({ "read": 4, "created": 1, "failed": 3 }));
        let limits = async |key: &str| rig.store.quota(key).await.map(|key| key.value.overrides.len());
        assert_eq!((limits("a").await, limits("b").await, limits("f").await), (Ok(2), Ok(0), Ok(2)));
        assert!(limits("c").await.is_err());
        for (text, form, status) in [
            ("api_key,color\na,red\n", "text/csv", 422),
            ("", "text/csv", 422),
            ("a", "application/json", 415),
            ("api_key\n\"a\n", "text/csv", 400),
            (&"x".repeat(300 << 10), "text/csv", 413),
        ] {
            rig.ask_lines("POST /admin/v1/quotas:import", text, form).await.is(status);
        }
    });
}

impl Rig {
    async fn ask_lines(&self, call: &str, text: &str, form: &str) -> crate::rig::Got {
        let headers =
            [("authorization", format!("Bearer {}", self.admin)), ("content-type", form.to_owned())];
        self.send(call, text, &headers, std::net::Ipv4Addr::LOCALHOST.into()).await
    }
}
