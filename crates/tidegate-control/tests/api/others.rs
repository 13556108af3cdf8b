//! Tiers, usage, tokens, the audit trail, and manners.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_control::api::{ApiOptions, routes};
use tidegate_control::plane::{CountsFor, NotListed, Used};

use crate::rig::{Rig, assert_has, limit, locked, used};
use crate::support::{both, both_alone};

#[test]
fn tiers_are_those_of_the_api_and_those_of_rules() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let own =
            json!({ "overrides": [{ "descriptor": "default", "requests_per_unit": 9, "unit": "hour" }] });
        let put = rig.ask("PUT /admin/v1/tiers/gold", own.clone()).await.is(200);
        assert_has(
            &put.json,
            &json!({ "name": "gold", "sources": ["api"], "overrides": own["overrides"], "updated_at": "2025-01-15T10:30:00Z" }),
        );
        rig.ask("PUT /admin/v1/tiers/enterprise", json!({})).await.is(200);
        let list = rig.get("/admin/v1/tiers").await.is(200);
        let told: Vec<_> = list.json["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tier| (tier["name"].as_str().unwrap(), tier["sources"].to_string()))
            .collect();
        assert_eq!(
            told,
            [
                ("enterprise", r#"["api","rules"]"#.to_owned()),
                ("gold", r#"["api"]"#.into()),
                ("platinum", r#"["rules"]"#.into())
            ]
        );
        let first = rig.get("/admin/v1/tiers?limit=1").await.is(200);
        assert_eq!(first.json["items"].as_array().unwrap().len(), 1);
        let rest = rig
            .get(&format!("/admin/v1/tiers?cursor={}", first.json["next"].as_str().unwrap()))
            .await
            .is(200);
        assert_eq!(rest.json["items"].as_array().unwrap().len(), 2);
        assert_has(
            &rig.get("/admin/v1/tiers/platinum").await.is(200).json,
            &json!({ "written_in": ["rules/api.yaml:4"] }),
        );
        rig.ask("PUT /admin/v1/quotas/key", json!({ "tier": "gold" })).await.is(200);
        rig.ask("DELETE /admin/v1/tiers/gold", Value::Null).await.is(204);
        rig.get("/admin/v1/tiers/gold").await.is(404);
        let refused = rig.ask("DELETE /admin/v1/tiers/platinum", Value::Null).await.is(409);
        assert!(refused.json["detail"].as_str().unwrap().contains("rules/api.yaml:4"));
    });
}

#[test]
fn counters_are_reset_with_a_row_of_the_audit_trail() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        *locked(&rig.process.used) =
            vec![used("r", "default", 53, limit(100, "rule")), used("s", "a:b", 5, limit(100, "rule"))];
        rig.ask("PUT /admin/v1/quotas/key", json!({ "domain": "shop" })).await.is(200);
        let reset = rig.ask("DELETE /admin/v1/usage/key?descriptor=a:b", Value::Null).await.is(200);
        assert_has(&reset.json, &json!({ "api_key": "key", "reset": [{ "descriptor": "a:b", "used": 5 }] }));
        assert_eq!(
            *locked(&rig.process.resets),
            [(Some("shop".into()), "key".into(), Some("a:b".into()))],
            "in the domain of its record"
        );
        rig.ask("DELETE /admin/v1/usage/key?domain=api_platform", Value::Null).await.is(200);
        let trail = rig.get("/admin/v1/audit?kind=usage&order=oldest").await.is(200);
        assert_has(
            &trail.json["items"],
            &json!([
                { "action": "reset", "subject": "key", "before": { "domain": "shop", "counters": [{ "descriptor": "a:b", "used": 5 }] } },
                { "action": "reset", "before": { "domain": "api_platform", "counters": [{ "used": 53 }, { "used": 5 }] } },
            ]),
        );
        rig.ask("DELETE /admin/v1/usage/key?descriptor=x:y", Value::Null).await.is(404);
        // What counts for others too is shown, and stays as it is.
        let everybody =
            Used { counts_for: CountsFor::All, ..used("all", "shop|x#all", 9, limit(20, "rule")) };
        *locked(&rig.process.used) = vec![everybody];
        let not_listed = vec![NotListed { rule: "open".into(), why: "there are many".into() }];
        *locked(&rig.process.not_listed) = (not_listed, 7);
        let shown = rig.get("/admin/v1/usage/key").await.is(200);
        let expected = json!({
            "rules": [{ "descriptor": "shop|x#all", "counts_for": "all", "used": 9 }], "left_out": 7,
            "not_listed": [{ "rule": "open", "why": "there are many" }],
        });
        assert_has(&shown.json, &expected);
        let before = (rig.revision().await, locked(&rig.process.resets).len());
        for call in ["key", "key?descriptor=shop%7Cx%23all"] {
            let refused = rig.ask(&format!("DELETE /admin/v1/usage/{call}"), Value::Null).await.is(404);
            assert!(refused.text.contains("counts for others too"), "{}", refused.text);
        }
        assert_eq!((rig.revision().await, locked(&rig.process.resets).len()), before, "nothing was done");
        locked(&rig.process.used).push(used("key", "default", 3, limit(20, "rule")));
        let reset = rig.ask("DELETE /admin/v1/usage/key", Value::Null).await.is(200);
        assert_has(&reset.json, &json!({ "reset": [{ "descriptor": "default" }], "left_out": 7 }));
        let trail = rig.get("/admin/v1/audit?kind=usage&limit=1").await.is(200);
        assert_has(
            &trail.json["items"][0]["before"],
            &json!({ "counters": [{ "descriptor": "default", "used": 3 }] }),
        );
        rig.get("/admin/v1/usage/key?domain=nowhere").await.is(404);
        let down = rig.get("/admin/v1/usage/key?domain=down").await.is(503);
        assert_eq!(down.header("retry-after"), "1");
    });
}

#[test]
fn the_audit_trail_is_listed_by_what_is_asked_and_verified() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        for number in 0..5 {
            rig.hand.advance(1_000_000);
            rig.ask(&format!("PUT /admin/v1/quotas/k{number}"), json!({ "tier": "pro" })).await.is(200);
        }
        let seqs = async |query: &str| -> Vec<u64> {
            let got = rig.get(&format!("/admin/v1/audit?{query}")).await.is(200);
            got.json["items"].as_array().unwrap().iter().map(|row| row["seq"].as_u64().unwrap()).collect()
        };
        // The first row is the token's.
        assert_eq!(seqs("").await, [6, 5, 4, 3, 2, 1]);
        assert_eq!(seqs("order=oldest&limit=2").await, [1, 2]);
        assert_eq!(seqs("subject=k3").await, [5]);
        assert_eq!(seqs("kind=token").await, [1]);
        assert_eq!(seqs("actor=alice").await, [1]);
        assert_eq!(seqs("since=2025-01-15T10:30:02Z&until=2025-01-15T10:30:04Z").await, [4, 3]);
        let first = rig.get("/admin/v1/audit?limit=4").await;
        let next = first.json["next"].as_str().unwrap();
        assert_eq!(seqs(&format!("cursor={next}")).await, [2, 1]);
        for (query, field) in
            [("since=x", "since"), ("kind=x", "kind"), ("order=x", "order"), ("cursor=78", "cursor")]
        {
            assert_eq!(rig.get(&format!("/admin/v1/audit?{query}")).await.is(400).json["field"], field);
        }
        let intact = rig.get("/admin/v1/audit/verify").await.is(200);
        assert_has(
            &intact.json,
            &json!({ "intact": true, "rows": 6, "seq": 6, "hash": first.json["items"][0]["hash"] }),
        );
        assert_has(
            &rig.get("/admin/v1/audit/verify?from=2&to=3").await.json,
            &json!({ "intact": true, "rows": 2, "seq": 3 }),
        );
        let sql = bed.dialect(
            "DROP TRIGGER audit_is_not_updated; UPDATE audit SET actor = 'mallory' WHERE seq = 4",
            "ALTER TABLE audit DISABLE TRIGGER USER; UPDATE audit SET actor = 'mallory' WHERE seq = 4",
        );
        bed.raw(sql).await.unwrap();
        assert_has(
            &rig.get("/admin/v1/audit/verify").await.is(200).json,
            &json!({ "intact": false, "seq": 4 }),
        );
    });
}

#[test]
fn all_of_it_is_exported_as_yaml() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        rig.ask(
            "PUT /admin/v1/rules/search",
            json!({ "endpoint": "/s", "maxRequests": 1, "windowSeconds": 2 }),
        )
        .await
        .is(200);
        rig.ask(
            "PUT /admin/v1/rules/search2",
            json!({ "endpoint": "/s", "maxRequests": 5, "windowSeconds": 60 }),
        )
        .await
        .is(200);
        rig.ask(
            "PUT /admin/v1/tiers/gold",
            json!({ "overrides": [{ "descriptor": "default", "requests_per_unit": 9, "unit": "hour" }] }),
        )
        .await
        .is(200);
        rig.ask("PUT /admin/v1/quotas/a:b", json!({ "tier": "gold" })).await.is(200);
        let got = rig.get("/admin/v1/export").await.is(200);
        let expected = "\
# Rules by API, a document of a rule file for each domain, which decides the same there: save them alone (?of=rules) in the folder of
# rule files, with `rules.merge_domains: true` where other files name one of these domains. Where such a file has one of these descriptors
# too, or says something of the domain itself (`match`), join them by hand: files refuse that.
# Not in these documents: states that were set by the kill switch, which are told as comments.
--- # rules: search version 1, search2 version 1
domain: \"api_platform\"
descriptors:
  - key: \"api_key\"
    descriptors:
      - key: \"endpoint\"
        value: \"/s\"
        rate_limits:
          - name: \"search\"
            limit: \"1/2s\"
          - name: \"search2\"
            limit: \"5/60s\"
# Tiers and quotas of single callers. No rule file can say them: send them to /admin/v1/tiers and /admin/v1/quotas, or restore a backup.
---
tiers:
- name: \"gold\"
  overrides:
    - descriptor: \"default\"
      requests_per_unit: 9
      unit: \"hour\"
---
quotas:
- api_key: \"a:b\"
  tier: \"gold\"
";
        assert_eq!(got.text, expected);
        assert!(!rig.get("/admin/v1/export?of=rules").await.text.contains("quotas"));
    });
}

#[test]
fn what_nobody_answers_is_a_problem_too() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        rig.get("/admin/v2/quotas").await.is(404);
        rig.get("/").await.is(404);
        let refused = rig.ask("PATCH /admin/v1/quotas/key", json!({})).await.is(405);
        assert_eq!(refused.header("allow"), "GET, HEAD, PUT, DELETE");
        rig.ask("OPTIONS /admin/v1/quotas/key", Value::Null).await.is(405);
        rig.ask("PUT /livez", Value::Null).await.is(405);
        let long = json!({ "tier": "x".repeat(1 << 20) });
        rig.ask("PUT /admin/v1/quotas/key", long).await.is(413);
        let form = rig
            .send(
                "PUT /admin/v1/quotas/key",
                "a=b",
                &[
                    ("authorization", format!("Bearer {}", rig.admin)),
                    ("content-type", "application/x-www-form-urlencoded".into()),
                ],
                std::net::Ipv4Addr::LOCALHOST.into(),
            )
            .await;
        form.is(415);
        rig.get("/admin/v1/quotas/%FF").await.is(400);
        rig.get("/admin/v1/quotas/%00").await.is(400);
        let live = rig.send("GET /livez", "", &[], std::net::Ipv4Addr::LOCALHOST.into()).await;
        assert_eq!((live.status, live.text.as_str()), (200, "ok\n"));
        assert_eq!(live.header("cache-control"), "no-store");
        let head = rig.ask("HEAD /admin/v1/rules", Value::Null).await;
        assert_eq!((head.status, head.text.as_str()), (200, ""));
        let openapi =
            rig.send("GET /openapi.json", "", &[], std::net::Ipv4Addr::LOCALHOST.into()).await.is(200);
        let paths = openapi.json["paths"].as_object().unwrap();
        let operations: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(operations, routes().len());
    });
}

#[test]
fn a_database_that_is_gone_is_told_in_time() {
    both_alone(tidegate_testbed::PostgresOptions::new(), async |bed| {
        let options = ApiOptions { deadline: Duration::from_secs(2), ..ApiOptions::default() };
        let rig = Rig::with(&bed, options).await;
        rig.get("/admin/v1/quotas").await.is(200);
        rig.store.close().await;
        let gone = rig.get("/admin/v1/quotas").await.is(503);
        assert_eq!(gone.header("retry-after"), "1");
        rig.hand.advance(1_000_000);
        rig.get("/admin/v1/rules").await.is(503); // Who asks cannot be found out.
        rig.get("/livez").await;
    });
}
