//! What a caller was refused, in a file of its own, found by the caller's API key.

use std::fs;

use serde_json::Value;
use tidegate_control::Tier;

use crate::control::{Kept, grant, has_limit, tier, who};
use crate::support::{Node, until};

async fn check(node: &Node, key: &str) -> Value {
    let body = format!(
        r#"{{"domain": "api", "descriptors": [{{"entries": [{{"key": "api_key", "value": "{key}"}}]}}]}}"#
    );
    node.http().await.post("/v1/check", &body).await.json()
}

#[tokio::test]
async fn a_callers_refusals_are_found_by_its_key_with_the_limit_and_what_said_so() {
    for mut kept in Kept::both() {
        kept.setup =
            kept.setup.set("log-refusals-file", "refusals.jsonl").set("log-refusals-per-second", "0");
        let (node, store) = (kept.setup.start(), kept.store().await);
        let gold = Tier { name: "gold".into(), overrides: vec![grant("default", 2)] };
        store.put_tier(&who(), gold, None).await.expect("written");
        let mut own = tier("own", "pro");
        own.overrides = vec![grant("default", 1)];
        for quota in [own, tier("golden", "gold"), tier("paying", "pro")] {
            store.put_quota(&who(), quota, None).await.expect("written");
        }
        let callers = [
            ("own", 1, "override", "1"),
            ("golden", 2, "api_tier", "2"),
            ("paying", 6, "rule_tier (pro)", "6"),
            ("nobody", 3, "rule", "3"),
        ];
        for (key, amount, ..) in callers {
            has_limit(&node, &[("api_key", key)], Some(amount)).await;
            for _ in 0..=amount {
                check(&node, key).await;
            }
        }
        until("all are written", async || {
            (node.metric("tidegate_refusals_file_lines_total", "").await == 4).then_some(())
        })
        .await;
        assert_eq!(node.metric("tidegate_refusals_file_lost_total", "").await, 0);
        for (key, _, source, amount) in callers {
            let words =
                ["refusals", &format!("api_key={key}"), "--domain", "api", "--file", "refusals.jsonl"];
            let found = node.ask(&words);
            assert_eq!(found.code, 0, "{}{}", found.out, found.err);
            let rows: Vec<&str> = found.out.lines().skip(1).collect();
            assert_eq!(rows.len(), 1, "{}", found.out);
            for word in [
                "api|api_key#per-key",
                source,
                "enforce",
                "rate_limited",
                &format!("sliding_window {amount}/1h"),
            ] {
                assert!(rows[0].contains(word), "{word} in {}", found.out);
            }
            let json = node.ask(&[&words[..], &["--output", "json"]].concat());
            let line: Value = serde_json::from_str(&json.out).expect("JSON");
            assert_eq!((&line["domain"], &line["remaining"]), (&"api".into(), &0.into()), "{line}");
            assert!(line["retry_after_ms"].as_u64().is_some_and(|wait| wait > 0), "{line}");
        }
        let words = ["refusals", "api_key=stranger", "--domain", "api", "--file", "refusals.jsonl"];
        let none = node.ask(&words);
        assert_eq!(
            (none.code, none.out.as_str()),
            (3, "no refusal of this caller is in there\n"),
            "{}",
            none.err
        );
        let nameless = node.ask(&["refusals", "trial=x", "--domain", "api", "--file", "refusals.jsonl"]);
        assert!(nameless.code == 1 && nameless.err.contains("name no caller"), "{}", nameless.err);
        let text = fs::read_to_string(kept.setup.path().join("refusals.jsonl")).expect("text");
        assert!(callers.iter().all(|(key, ..)| !text.contains(&format!("\"{key}\""))), "no names: {text}");
    }
}
