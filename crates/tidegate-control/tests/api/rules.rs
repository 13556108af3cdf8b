//! Rules by API, their versions, and the kill switch.

use serde_json::{Value, json};
use tidegate_control::plane::RuleInForce;

use crate::rig::{Rig, assert_has, limit, locked};
use crate::support::both;

const OF_FILE: &str = "api_platform%7Capi_key%23per-key";

fn document(limit: &str) -> Value {
    json!({ "domain": "shop", "match": "path", "descriptors": [
        { "key": "api_key", "rate_limit": { "limit": limit, "algorithm": "gcra" } }] })
}

#[test]
fn a_document_is_judged_and_kept_as_it_was_sent() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let put = rig.ask("PUT /admin/v1/rules/orders", document("5/1s")).await.is(200);
        assert_has(&put.json, &document("5/1s"));
        assert_has(&put.json, &json!({ "id": "orders", "version": 1, "compiled": ["shop|…#orders"] }));
        let judged = locked(&rig.process.judged).clone();
        assert_eq!(
            judged[0].1["descriptors"][0]["rate_limit"]["name"], "orders",
            "what has no name is called like the rule"
        );
        let dry = rig.ask("PUT /admin/v1/rules/more?dry_run=true", document("6/1s")).await.is(200);
        assert_has(
            &dry.json,
            &json!({ "dry_run": true, "changes": [{ "id": "shop|…#more", "before": null, "after": "x" }, { "id": "shop|…#orders" }] }),
        );
        rig.get("/admin/v1/rules/more").await.is(404);
        let wrong = rig.ask("PUT /admin/v1/rules/more", document("6/0s")).await.is(422);
        assert_has(
            &wrong.json,
            &json!({ "field": "document", "detail": "a window of 0 s", "errors": [
                { "code": "bad_window", "file": "api:more", "line": 1 }] }),
        );
        rig.ask("PUT /admin/v1/rules/more?dry_run", document("6/0s")).await.is(422);
        rig.get("/admin/v1/rules/more").await.is(404);
        rig.ask("DELETE /admin/v1/rules/orders?dry_run", Value::Null).await.is(200);
        // What others broke keeps nobody from taking a rule away.
        rig.store
            .put_rule(&crate::support::alice(), "broken", document("6/0s").to_string(), None)
            .await
            .unwrap();
        rig.ask("PUT /admin/v1/rules/more", document("6/1s")).await.is(422);
        rig.ask("DELETE /admin/v1/rules/broken", Value::Null).await.is(204);
        rig.ask("DELETE /admin/v1/rules/orders", Value::Null).await.is(204);
        assert!(locked(&rig.process.judged).is_empty());
        rig.ask("DELETE /admin/v1/rules/orders", Value::Null).await.is(404);
    });
}

#[test]
fn a_rule_has_versions_a_history_and_a_way_back() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        for (number, expected) in [("1/1s", "\"1\""), ("2/1s", "\"2\""), ("3/1s", "\"3\"")] {
            let put = rig.ask("PUT /admin/v1/rules/r", document(number)).await.is(200);
            assert_eq!(put.header("etag"), expected);
        }
        // Row 35: one of two is told.
        let (one, other) = tokio::join!(
            rig.ask_if("PUT /admin/v1/rules/r", document("4/1s"), &[("if-match", "\"3\"")]),
            rig.ask_if("PUT /admin/v1/rules/r", document("5/1s"), &[("if-match", "\"3\"")]),
        );
        let (winner, loser) = if one.status == 200 { (one, other) } else { (other, one) };
        assert_eq!(winner.is(200).json["version"], 4);
        assert_eq!(loser.is(412).json["current_version"], 4);
        let lost = rig
            .ask_if("PUT /admin/v1/rules/r?dry_run", document("4/1s"), &[("if-match", "\"3\"")])
            .await
            .is(412);
        assert_eq!(lost.json["current_version"], 4);
        let history = rig.get("/admin/v1/rules/r/history?limit=3").await.is(200);
        assert_has(
            &history.json["items"][1],
            &json!({ "version": 3, "actor": "admin of tests", "deleted": false, "rule": document("3/1s") }),
        );
        let next = history.json["next"].as_str().unwrap();
        let rest = rig.get(&format!("/admin/v1/rules/r/history?cursor={next}")).await.is(200);
        assert_eq!((rest.json["items"].as_array().unwrap().len(), rest.json["next"].is_null()), (1, true));
        rig.get("/admin/v1/rules/nobody/history").await.is(404);
        rig.ask_if("POST /admin/v1/rules/r/rollback", json!({ "version": 1 }), &[("if-match", "\"3\"")])
            .await
            .is(412);
        rig.ask("POST /admin/v1/rules/r/rollback?dry_run", json!({ "version": 1 })).await.is(200);
        let back = rig
            .ask_if("POST /admin/v1/rules/r/rollback", json!({ "version": 1 }), &[("if-match", "\"4\"")])
            .await
            .is(200);
        assert_has(&back.json, &json!({ "version": 5, "descriptors": document("1/1s")["descriptors"] }));
        rig.ask("DELETE /admin/v1/rules/r", Value::Null).await.is(204);
        rig.ask("POST /admin/v1/rules/r/rollback", json!({ "version": 6 })).await.is(422);
        rig.ask("POST /admin/v1/rules/r/rollback", json!({ "version": 77 })).await.is(404);
        rig.ask("POST /admin/v1/rules/r/rollback", json!({ "version": 2 })).await.is(200);
        let trail = rig.get("/admin/v1/audit?kind=rule&subject=r&limit=2").await.is(200);
        let actions: Vec<_> = trail.json["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["action"].as_str().unwrap())
            .collect();
        assert_eq!(actions, ["rollback", "delete"]);
    });
}

#[test]
fn rules_of_files_are_shown_and_say_where_they_are_written() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let all = rig.get("/admin/v1/rules?limit=2").await.is(200);
        assert_has(
            &all.json["items"][0],
            &json!({
                "id": "api_platform|api_key#per-key", "origin": "rules/api.yaml:4", "writable": false, "state": "enforce",
                "limit": "sliding_window 100/1m",
            }),
        );
        let next = all.json["next"].as_str().unwrap();
        assert_eq!(
            rig.get(&format!("/admin/v1/rules?cursor={next}")).await.json["items"].as_array().unwrap().len(),
            1
        );
        assert_eq!(rig.get("/admin/v1/rules?domain=shop").await.json["items"].as_array().unwrap().len(), 1);
        let one = rig.get(&format!("/admin/v1/rules/{OF_FILE}")).await.is(200);
        assert_eq!(one.json["writable"], false);
        for (call, body) in [
            (format!("PUT /admin/v1/rules/{OF_FILE}"), document("1/1s")),
            (format!("DELETE /admin/v1/rules/{OF_FILE}"), Value::Null),
            (format!("POST /admin/v1/rules/{OF_FILE}/rollback"), json!({ "version": 1 })),
        ] {
            let refused = rig.ask(&call, body).await.is(409);
            assert_has(&refused.json, &json!({ "written_in": ["rules/api.yaml:4"] }));
            assert!(refused.json["detail"].as_str().unwrap().contains("rules/api.yaml:4"));
        }
        rig.ask("PUT /admin/v1/rules/own", document("1/1s")).await.is(200);
        let own = rig.get("/admin/v1/rules?source=api").await.is(200);
        assert_has(&own.json["items"], &json!([{ "id": "own", "version": 1, "rule": document("1/1s") }]));
    });
}

#[test]
fn the_kill_switch_acts_on_any_rule_in_force() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let path = format!("/admin/v1/rules/{OF_FILE}/state");
        let before = rig.get(&path).await.is(200);
        assert_has(
            &before.json,
            &json!({ "rule": "api_platform|api_key#per-key", "state": "enforce", "is_set": false, "version": 0 }),
        );
        for state in ["enforce 12.50%", "shadow", "disabled", "enforce"] {
            let put = rig
                .ask(&format!("PUT {path}"), json!({ "state": state, "expires_at": "2025-01-15T10:31:00Z" }))
                .await
                .is(200);
            assert_has(
                &put.json,
                &json!({ "state": state, "expires_at": "2025-01-15T10:31:00Z", "is_set": true }),
            );
            assert_eq!(put.json["rules"].as_array().unwrap().len(), 2, "with that for a tier");
            assert_eq!(rig.get(&path).await.json, put.json);
        }
        let tag = rig.get(&path).await.header("etag").to_owned();
        rig.ask_if(&format!("PUT {path}"), json!({ "state": "shadow" }), &[("if-match", &tag)]).await.is(200);
        rig.ask_if(&format!("PUT {path}"), json!({ "state": "disabled" }), &[("if-match", &tag)])
            .await
            .is(412);
        rig.ask(&format!("DELETE {path}"), Value::Null).await.is(204);
        rig.ask(&format!("DELETE {path}"), Value::Null).await.is(404);
        rig.ask("PUT /admin/v1/rules/nobody/state", json!({ "state": "shadow" })).await.is(404);
        // One that was written a moment ago is not in force yet.
        rig.ask("PUT /admin/v1/rules/fresh", document("1/1s")).await.is(200);
        rig.ask("PUT /admin/v1/rules/fresh/state", json!({ "state": "disabled" })).await.is(200);
        // A rule by API is named by its own id: all that comes of it.
        let of_api = RuleInForce {
            id: "shop|api_key|endpoint#own".into(),
            domain: "shop".into(),
            tier: None,
            name: None,
            limit: Some(limit(5, "rule")),
            origin: "api:own".into(),
            api_id: Some("own".into()),
            written_state: "enforce".into(),
            state: "enforce".into(),
        };
        locked(&rig.process.rules).push(of_api);
        let put = rig.ask("PUT /admin/v1/rules/own/state", json!({ "state": "disabled" })).await.is(200);
        assert_has(&put.json["rules"], &json!([{ "id": "shop|api_key|endpoint#own", "origin": "api:own" }]));
    });
}

#[test]
fn a_switch_goes_with_its_rule() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        rig.ask("PUT /admin/v1/rules/r", document("1/1s")).await.is(200);
        rig.ask("PUT /admin/v1/rules/r/state", json!({ "state": "disabled" })).await.is(200);
        rig.ask("DELETE /admin/v1/rules/r", Value::Null).await.is(204);
        assert!(rig.store.rule_state("r").await.is_err(), "nobody is surprised by it later");
        let trail = rig.get("/admin/v1/audit?subject=r&limit=2").await.is(200);
        let told =
            |at: usize| (trail.json["items"][at]["kind"].clone(), trail.json["items"][at]["action"].clone());
        assert_eq!(
            [told(0), told(1)],
            [("rule_state".into(), "delete".into()), ("rule".into(), "delete".into())]
        );
        rig.ask("PUT /admin/v1/rules/r", document("1/1s")).await.is(200);
        assert!(rig.store.rule_state("r").await.is_err());
        // The same for one that comes back.
        rig.ask("DELETE /admin/v1/rules/r", Value::Null).await.is(204);
        rig.ask("POST /admin/v1/rules/r/rollback", json!({ "version": 1 })).await.is(200);
        assert!(rig.store.rule_state("r").await.is_err());
    });
}

#[test]
fn who_is_bound_to_a_domain_is_told_nothing_of_others() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let shop = rig.token(tidegate_control::Scope::Write, Some("shop"), None).await.1;
        let other = |limit: &str| {
            let document = document(limit).to_string().replace("\"shop\"", "\"api_platform\"");
            serde_json::from_str::<Value>(&document).expect("a document")
        };
        let as_shop = async |call: &str, body: Value| rig.ask_as(Some(&shop), call, &body.to_string()).await;
        let put = async |id: &str, document: Value| {
            rig.store
                .put_rule(&crate::support::alice(), id, document.to_string(), None)
                .await
                .expect("written")
        };
        // What others would change is not told, what is their own is.
        put("theirs", other("7/1s")).await;
        put("ours", document("7/1s")).await;
        let dry = as_shop("PUT /admin/v1/rules/mine?dry_run", document("1/1s")).await.is(200);
        let ids: Vec<&Value> =
            dry.json["changes"].as_array().expect("a list").iter().map(|change| &change["id"]).collect();
        assert_eq!(ids, ["shop|…#mine", "shop|…#ours"]);
        // Nor what is wrong with it.
        put("theirs", other("7/0s")).await;
        let wrong = as_shop("PUT /admin/v1/rules/mine", document("1/1s")).await.is(422);
        assert!(!wrong.text.contains("theirs") && !wrong.text.contains("0 s"), "{}", wrong.text);
        assert!(
            wrong.json["detail"].as_str().is_some_and(|why| why.contains("other rules")),
            "{}",
            wrong.text
        );
        let wrong = as_shop("PUT /admin/v1/rules/mine", document("1/0s")).await.is(422);
        let files: Vec<&Value> =
            wrong.json["errors"].as_array().expect("a list").iter().map(|error| &error["file"]).collect();
        assert_eq!(files, ["api:mine"]);
        let wrong = rig.ask("PUT /admin/v1/rules/mine", document("1/1s")).await.is(422);
        assert!(wrong.text.contains("api:theirs"), "whoever has all rules is told: {}", wrong.text);
        // Nor where it is written.
        let taken = as_shop(&format!("PUT /admin/v1/rules/{OF_FILE}"), document("1/1s")).await.is(409);
        assert!(!taken.text.contains("rules/api.yaml"), "{}", taken.text);
    });
}

/// As a domain that is no longer the only one.
#[test]
fn an_edit_that_would_leave_quotas_without_a_domain_is_refused() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        *locked(&rig.process.lost_default) = Some("api_platform".into());
        rig.ask("PUT /admin/v1/rules/one", document("1/1s")).await.is(200);
        rig.ask("PUT /admin/v1/quotas/named", json!({ "tier": "pro", "domain": "shop" })).await.is(200);
        rig.ask("PUT /admin/v1/rules/one", document("2/1s")).await.is(200);
        rig.ask("PUT /admin/v1/quotas/alice", json!({ "tier": "pro" })).await.is(200);
        for call in ["PUT /admin/v1/rules/one", "PUT /admin/v1/rules/one?dry_run"] {
            let refused = rig.ask(call, document("3/1s")).await.is(422);
            assert_eq!(refused.json["field"], "domain");
            let detail = refused.json["detail"].as_str().unwrap_or_default().to_owned();
            assert!(detail.contains("`api_platform`") && detail.contains("http.default_domain"), "{detail}");
        }
        let shop = rig.token(tidegate_control::Scope::Write, Some("shop"), None).await.1;
        let refused =
            rig.ask_as(Some(&shop), "PUT /admin/v1/rules/one", &document("3/1s").to_string()).await.is(422);
        assert!(!refused.text.contains("api_platform"), "{}", refused.text);
        rig.ask("DELETE /admin/v1/rules/one", Value::Null).await.is(204);
        rig.ask("DELETE /admin/v1/quotas/alice", Value::Null).await.is(204);
        rig.ask("PUT /admin/v1/rules/one", document("3/1s")).await.is(200);
    });
}
