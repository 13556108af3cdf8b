//! Who may do what. The matrix is made from the table of calls: a call that is added is in it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_clock::Stopwatch;
use tidegate_control::api::{ApiOptions, Route, auth, routes};
use tidegate_control::{NewToken, Quota, RuleState, Scope, State, Tier};

use crate::rig::{Rig, used};
use crate::support::{alice, both, from_one_to_the_other, join_all, limit, quota};

const CANARY: &str = "canary-of-api-platform";

fn many_tries() -> ApiOptions {
    ApiOptions { deadline: Duration::from_secs(30), failed_tries_per_minute: 100_000 }
}

/// What each path is asked about, so that there is something.
async fn there(rig: &Rig) -> String {
    rig.store.put_quota(&alice(), quota(CANARY, "pro", vec![limit("default", 7)]), None).await.unwrap();
    let tier = Tier { name: "canary-tier".into(), overrides: vec![limit("default", 7)] };
    rig.store.put_tier(&alice(), tier, None).await.unwrap();
    let document = json!({ "domain": "api_platform", "descriptors": [
        { "key": "canary", "rate_limit": { "limit": "1/1s", "name": "canary-rule" } }] });
    rig.store.put_rule(&alice(), "canary-rule", document.to_string(), None).await.unwrap();
    let rule = "api_platform|api_key#per-key";
    let state = RuleState { rule: rule.into(), state: State::Shadow, expires_at: None };
    rig.store.put_rule_state(&alice(), state, None).await.unwrap();
    let token =
        rig.store.tokens(None, 1000).await.unwrap().items.into_iter().find(|token| token.name == "victim");
    match token.filter(|token| token.revoked_at.is_none()) {
        Some(token) => token.id,
        None => {
            let prefix = format!("{:08x}", rig.revision().await);
            let new = NewToken {
                prefix,
                hash: [1; 32],
                scope: Scope::Read,
                tenant: None,
                name: "victim".into(),
                expires_at: None,
            };
            rig.store.create_token(&alice(), new).await.unwrap().id
        }
    }
}

fn asked(route: &Route, victim: &str) -> (String, String) {
    let path = route
        .path
        .replace("{api_key}", CANARY)
        .replace("{name}", "canary-tier")
        .replace("{id}/state", "api_platform%7Capi_key%23per-key/state")
        .replace("tokens/{id}", &format!("tokens/{victim}"))
        .replace("{id}", "canary-rule")
        .replace("{ruleId}", "canary-rule");
    let body = match (route.method.as_str(), route.path) {
        ("PUT", path) if path.contains("/quotas/") => json!({ "tier": "free" }).to_string(),
        ("PUT", path) if path.contains("/tiers/") => json!({ "overrides": [] }).to_string(),
        ("PUT", path) if path.ends_with("/state") => json!({ "state": "disabled" }).to_string(),
        ("PUT", _) => json!({ "maxRequests": 1, "windowSeconds": 1, "domain": "api_platform" }).to_string(),
        ("POST", path) if path.ends_with(":import") => {
            json!({ "api_key": CANARY, "tier": "free", "domain": "api_platform" }).to_string()
        }
        ("POST", path) if path.ends_with("/rollback") => json!({ "version": 1 }).to_string(),
        ("POST", _) => json!({ "name": "made", "scope": "read" }).to_string(),
        _ => String::new(),
    };
    (format!("{} {path}", route.method), body)
}

#[test]
fn every_call_is_closed_to_all_but_those_it_is_for() {
    both(async |bed| {
        let rig = Rig::with(&bed, many_tries()).await;
        *crate::rig::locked(&rig.process.used) = vec![used("r", "default", 1, crate::rig::limit(5, "rule"))];
        let revoked = rig.token(Scope::Admin, None, None).await;
        rig.store.revoke_token(&alice(), &revoked.0).await.unwrap();
        let expired = rig.token(Scope::Admin, None, Some(crate::rig::NOW_US as i64)).await.1;
        let garbage = format!("tg_01234567_{}", "0".repeat(64));
        let mut wrong_secret = rig.admin.clone();
        let last = if wrong_secret.pop() == Some('0') { '1' } else { '0' };
        wrong_secret.push(last);
        let nobodies = [
            ("none", None),
            ("garbage", Some("x y")),
            ("unknown", Some(garbage.as_str())),
            ("revoked", Some(revoked.1.as_str())),
            ("expired", Some(expired.as_str())),
            ("wrong secret", Some(wrong_secret.as_str())),
        ];
        let mut counted = 0;
        for route in routes() {
            let victim = there(&rig).await;
            let (call, body) = asked(route, &victim);
            let before = rig.revision().await;
            for (name, token) in nobodies {
                let got = rig.ask_as(token, &call, &body).await;
                match route.scope() {
                    None => assert_eq!(got.status, 200, "{call} as {name}"),
                    Some(_) => {
                        assert_eq!(got.status, 401, "{call} as {name}: {}", got.text);
                        assert!(
                            got.header("www-authenticate").starts_with("Bearer realm=\"tidegate\""),
                            "{call}"
                        );
                    }
                }
            }
            assert_eq!(rig.revision().await, before, "{call} changed something");
            for scope in [Scope::Read, Scope::Write, Scope::Admin] {
                let victim = there(&rig).await;
                let (call, body) = asked(route, &victim);
                let (own, foreign) =
                    (rig.token(scope, None, None).await.1, rig.token(scope, Some("shop"), None).await.1);
                let tenant = rig.token(scope, Some("api_platform"), None).await.1;
                let is_enough = route.scope().is_none_or(|needed| scope >= needed);
                let before = rig.revision().await;
                // Somebody else's: whatever is answered, nothing is told and nothing is changed.
                let got = rig.ask_as(Some(&foreign), &call, &body).await;
                let is_open = is_enough && (route.scope().is_none() || route.is_open_to_tenants());
                let told = format!("{call} as {scope:?} of shop: {} {}", got.status, got.text);
                let expected: &[u16] =
                    match (is_open, route.path.contains('{') || route.path.ends_with(":import")) {
                        (false, _) => &[403],
                        (true, true) if route.path.contains("/usage/") => &[200],
                        (true, true) => &[403, 404, 422],
                        (true, false) => &[200],
                    };
                assert!(expected.contains(&got.status), "{told}");
                assert!(
                    !got.text.contains("\"pro\"")
                        && !got.text.contains(
                            "rules/api.yaml:4\",\"api_id\":null,\"writable\":false,\"state\":\"shadow"
                        ),
                    "{told}"
                );
                if !route.path.contains("/usage/") {
                    assert_eq!(rig.revision().await, before, "{told}");
                }
                // Bound to the domain that it is about.
                if is_open {
                    let got = rig.ask_as(Some(&tenant), &call, &body).await;
                    assert!(
                        ![401, 403, 404].contains(&got.status) && got.status < 500,
                        "{call} as {scope:?} of its domain: {}",
                        got.text
                    );
                }
                let victim = there(&rig).await;
                let (call, body) = asked(route, &victim);
                let got = rig.ask_as(Some(&own), &call, &body).await;
                if is_enough {
                    assert!(
                        (200..300).contains(&got.status),
                        "{call} as {scope:?}: {} {}",
                        got.status,
                        got.text
                    );
                } else {
                    assert_eq!(got.status, 403, "{call} as {scope:?}: {}", got.text);
                    assert!(
                        got.json["detail"].as_str().unwrap().contains(route.scope().unwrap().as_str()),
                        "{}",
                        got.text
                    );
                }
                counted += 3;
            }
        }
        assert!(counted >= 9 * routes().len());
    });
}

#[test]
fn a_token_that_is_bound_writes_what_is_of_its_domain() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let shop = rig.token(Scope::Write, Some("shop"), None).await.1;
        rig.store.put_quota(&alice(), quota("other", "pro", vec![]), None).await.unwrap();
        let put = rig.ask_as(Some(&shop), "PUT /admin/v1/quotas/mine", r#"{"tier":"free"}"#).await.is(200);
        assert_eq!(put.json["domain"], "shop", "without a word it is about the token's own");
        let refused = rig
            .ask_as(Some(&shop), "PUT /admin/v1/quotas/mine", r#"{"domain":"api_platform"}"#)
            .await
            .is(403);
        assert_eq!(refused.json["field"], "domain");
        rig.ask_as(Some(&shop), "PUT /admin/v1/quotas/other", r#"{"domain":"shop"}"#).await.is(403);
        rig.ask_as(Some(&shop), "GET /admin/v1/quotas/other", "").await.is(404);
        let list = rig.ask_as(Some(&shop), "GET /admin/v1/quotas", "").await.is(200);
        assert_eq!(
            (list.json["items"].as_array().unwrap().len(), list.json["items"][0]["api_key"].as_str()),
            (1, Some("mine"))
        );
        let export = rig.ask_as(Some(&shop), "GET /admin/v1/quotas:export", "").await.is(200);
        assert!(export.text.contains("mine") && !export.text.contains("other"));
        let lines = "{\"api_key\":\"new\"}\n{\"api_key\":\"other\"}\n{\"api_key\":\"third\",\"domain\":\"api_platform\"}\n";
        let import = rig.ask_as(Some(&shop), "POST /admin/v1/quotas:import", lines).await.is(422);
        let failed: Vec<&Value> =
            import.json["errors"].as_array().unwrap().iter().map(|error| &error["line"]).collect();
        assert_eq!(failed, [&json!(3), &json!(2)], "{}", import.text);
        assert_eq!(rig.store.quota("new").await.unwrap().value.domain.as_deref(), Some("shop"));
        assert_eq!(rig.store.quota("other").await.unwrap().value, quota("other", "pro", vec![]));
        let rules = rig.ask_as(Some(&shop), "GET /admin/v1/rules", "").await.is(200);
        assert_eq!(rules.json["items"].as_array().unwrap().len(), 1);
        let rule = r#"{"maxRequests":1,"windowSeconds":1,"domain":"shop"}"#;
        rig.ask_as(Some(&shop), "PUT /admin/v1/rules/own", rule).await.is(200);
        rig.ask_as(Some(&shop), "PUT /admin/v1/rules/own", r#"{"maxRequests":1,"windowSeconds":1}"#)
            .await
            .is(403);
        let state = r#"{"state":"disabled"}"#;
        rig.ask_as(Some(&shop), "PUT /admin/v1/rules/shop%7Capi_key%23per-key/state", state).await.is(200);
        rig.ask_as(Some(&shop), "PUT /admin/v1/rules/api_platform%7Capi_key%23per-key/state", state)
            .await
            .is(404);
    });
}

#[test]
fn the_first_token_is_made_once_however_many_nodes_start() {
    both(async |bed| {
        let (here, there, third) = (bed.open().await, bed.open().await, bed.open().await);
        let (one, two, three) =
            tokio::join!(auth::bootstrap(&here), auth::bootstrap(&there), auth::bootstrap(&third));
        let made: Vec<_> = [one, two, three].into_iter().filter_map(|made| made.unwrap()).collect();
        assert_eq!(made.len(), 1);
        assert_eq!(auth::bootstrap(&here).await, Ok(None));
        let tokens = here.tokens(None, 10).await.unwrap().items;
        assert_eq!((tokens.len(), tokens[0].scope, tokens[0].name.as_str()), (1, Scope::Admin, "bootstrap"));
        let rig = Rig::new(&bed).await;
        rig.ask_as(Some(made[0].reveal()), "GET /admin/v1/tokens", "").await.is(200);
        assert_eq!(bed.texts("SELECT 'x' FROM audit WHERE after LIKE '%_hash%'").await, Vec::<String>::new());
        // Even a store whose tokens are all revoked has had its first.
        here.revoke_token(&alice(), &tokens[0].id).await.unwrap();
        assert_eq!(auth::bootstrap(&here).await, Ok(None));
        // Who has lost them all, and has the database, gets in again.
        bed.raw("DELETE FROM tokens").await.unwrap();
        let again = auth::bootstrap(&here).await.unwrap().expect("another first token");
        assert_ne!(again.reveal(), made[0].reveal());
        rig.ask_as(Some(again.reveal()), "GET /admin/v1/tokens", "").await.is(200);
    });
}

#[test]
fn a_token_that_is_revoked_elsewhere_is_worth_nothing_within_a_second() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let (id, token) = rig.token(Scope::Read, None, None).await;
        let read = async || rig.ask_as(Some(&token), "GET /admin/v1/rules", "").await.status;
        assert_eq!(read().await, 200);
        rig.store.revoke_token(&alice(), &id).await.unwrap();
        rig.hand.advance(1_000_000);
        assert_eq!(read().await, 401);
        // Revoked here: at once.
        let (id, token) = rig.token(Scope::Read, None, None).await;
        let read = async || rig.ask_as(Some(&token), "GET /admin/v1/rules", "").await.status;
        assert_eq!(read().await, 200);
        rig.ask(&format!("DELETE /admin/v1/tokens/{id}"), Value::Null).await.is(204);
        assert_eq!(read().await, 401);
        // One that expires does so at its time.
        let (_, token) = rig.token(Scope::Read, None, Some(rig.hand.now_us() as i64 + 100)).await;
        let read = async || rig.ask_as(Some(&token), "GET /admin/v1/rules", "").await.status;
        assert_eq!(read().await, 200);
        rig.hand.advance(100);
        assert_eq!(read().await, 401);
    });
}

#[test]
fn tries_are_limited_by_the_law_that_everybody_else_is() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let guess =
            |number: u32| vec![("authorization", format!("Bearer tg_{number:08x}_{}", "0".repeat(64)))];
        let (bad, good) = (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));
        let own = vec![("authorization", format!("Bearer {}", rig.admin))];
        for number in 0..10 {
            rig.send("GET /admin/v1/tokens", "", &guess(number), bad).await.is(401);
        }
        let refused = rig.send("GET /admin/v1/tokens", "", &guess(11), bad).await.is(429);
        let wait: u64 = refused.header("retry-after").parse().unwrap();
        assert!((1..=63).contains(&wait), "{wait}");
        rig.send("GET /admin/v1/tokens", "", &own, bad).await.is(429);
        rig.send("GET /admin/v1/tokens", "", &own, good).await.is(200);
        rig.send("GET /livez", "", &[], bad).await.is(200);
        rig.hand.advance(wait * 1_000_000);
        rig.send("GET /admin/v1/tokens", "", &own, bad).await.is(200);
    });
}

/// Guesses that come together are looked at together, and no more of them are told what they are worth.
#[test]
fn tries_are_limited_also_where_many_come_at_once() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let from = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        let own = format!("Bearer {}", rig.admin);
        let guess =
            |number: u32| vec![("authorization", format!("Bearer tg_{number:08x}_{}", "0".repeat(64)))];
        let all = (0..48).map(|number| {
            let rig = &rig;
            async move { rig.send("GET /admin/v1/tokens", "", &guess(number), from).await.status }
        });
        let told = join_all(all).await;
        let count = |status: u16| told.iter().filter(|told| **told == status).count();
        assert_eq!((count(401), count(429)), (10, 38), "{told:?}");
        let own = [("authorization", own)];
        rig.send("GET /admin/v1/tokens", "", &own, from).await.is(429);
        // Good ones may be as many as they like.
        let from = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
        let all = (0..48).map(|_| rig.send("GET /admin/v1/tokens", "", &own, from));
        assert!(join_all(all).await.iter().all(|got| got.status == 200));
    });
}

/// A13. Every refusal is told at one time after it was asked for, whatever it took to find out, so that nothing is learnt from when.
#[test]
fn a_refusal_tells_nothing_by_its_time() {
    both(async |bed| {
        let rig = Rig::with(&bed, many_tries()).await;
        let known = rig.admin[..12].to_owned();
        let tokens = [
            format!("{known}{}", "0".repeat(64)),
            format!("{}{}", &rig.admin[..40], "0".repeat(36)),
            format!("tg_00000000_{}", "0".repeat(64)),
            "x".into(),
        ];
        // In turns, so that what disturbs the machine disturbs all alike.
        let mut took = tokens.each_ref().map(|_| Vec::new());
        for _ in 0..21 {
            for (token, took) in tokens.iter().zip(&mut took) {
                let watch = Stopwatch::start();
                let got = rig.ask_as(Some(token), "GET /admin/v1/tokens", "").await.is(401);
                took.push(watch.elapsed());
                assert_eq!(got.json["detail"], "the token is not known here", "and nothing by its words");
            }
        }
        took.iter_mut().for_each(|took| took.sort_unstable());
        assert!(took.iter().all(|took| took[0] >= Duration::from_millis(24)), "{took:?}");
        let medians = took.each_ref().map(|took| took[took.len() / 2]);
        let (least, most) = (medians.iter().min().expect("four"), medians.iter().max().expect("four"));
        assert!(*most - *least < Duration::from_millis(15), "{medians:?} of {tokens:?}");
    });
}

/// A database that is restored while a node runs on it has the tokens of the backup, under another key.
#[test]
fn tokens_of_a_restored_backup_open_a_node_that_ran_meanwhile() {
    from_one_to_the_other(async |from, to| {
        let (theirs, ours) = (Rig::new(&from).await, Rig::new(&to).await);
        let asks = async |token: &str| ours.ask_as(Some(token), "GET /admin/v1/tokens", "").await.status;
        assert_eq!((asks(&ours.admin).await, asks(&theirs.admin).await), (200, 401));
        let (mut backup, mut text) = (theirs.store.backup().await.expect("a backup"), String::new());
        while let Some(lines) = backup.next().await.expect("lines") {
            text += &lines;
        }
        ours.store.restore(&alice(), text.as_bytes(), true).await.expect("restored");
        assert_eq!((asks(&theirs.admin).await, asks(&ours.admin).await), (200, 401));
    });
}

#[test]
fn what_is_secret_or_names_somebody_is_in_no_log_and_no_trail() {
    both(async |bed| {
        let rig = Rig::new(&bed).await;
        let made = rig
            .ask("POST /admin/v1/tokens", json!({ "name": "ci", "scope": "write", "tenant": "shop" }))
            .await
            .is(201);
        let token = made.json["token"].as_str().unwrap().to_owned();
        assert!(token.starts_with("tg_") && token.len() == 3 + 8 + 1 + 64);
        rig.ask_as(Some(&token), "PUT /admin/v1/quotas/k", "{}").await.is(200);
        let list = rig.get("/admin/v1/tokens").await.is(200);
        let secret = &token[12..];
        assert!(!list.text.contains(secret) && list.text.contains(&token[3..11]));
        assert!(!rig.get("/admin/v1/audit").await.text.contains(secret));
        let kept = rig.store.tokens(None, 10).await.unwrap().items;
        assert!(!format!("{kept:?}").contains(secret));
        assert_eq!(
            rig.store.quota("k").await.unwrap().value,
            Quota { domain: Some("shop".into()), ..Quota::of("k") }
        );
    });
}
