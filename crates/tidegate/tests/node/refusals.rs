//! What a caller was refused, in a file of its own, found by the caller's API key.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use tidegate_control::Tier;
use tidegate_testbed::Disk;

use crate::control::{Kept, RULES, grant, has_limit, tier, who};
use crate::support::{Node, Setup, until};

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
        let mut own = tier("key-of-ada", "pro");
        own.overrides = vec![grant("default", 1)];
        for quota in [own, tier("key-of-bea", "gold"), tier("key-of-cid", "pro")] {
            store.put_quota(&who(), quota, None).await.expect("written");
        }
        let callers = [
            ("key-of-ada", 1, "override", "1"),
            ("key-of-bea", 2, "api_tier", "2"),
            ("key-of-cid", 6, "rule_tier (pro)", "6"),
            ("key-of-dot", 3, "rule", "3"),
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
        let file = kept.setup.path().join("refusals.jsonl");
        let text = fs::read_to_string(&file).expect("text");
        assert!(callers.iter().all(|(key, ..)| !text.contains(key)), "no names: {text}");
        let mode = fs::metadata(&file).expect("a file").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "for its owner alone");
    }
}

#[tokio::test]
async fn a_disk_that_was_full_spoils_one_line_and_no_more() {
    let disk = match Disk::mount(1) {
        Ok(disk) => disk,
        Err(reason) => {
            return println!("not looked at, since this needs a disk that can be filled: {reason}");
        }
    };
    let file = disk.folder().join("refusals.jsonl");
    let node = Setup::new(RULES).set("log-refusals-file", &file.display().to_string()).start();
    let counts = async || {
        let written = node.metric("tidegate_refusals_file_lines_total", "").await;
        (written, node.metric("tidegate_refusals_file_lost_total", "").await)
    };
    let refused = async |times: u32| {
        for _ in 0..times {
            check(&node, "key-of-ada").await;
        }
    };
    refused(3 + 1).await;
    until("the first is written", async || (counts().await == (1, 0)).then_some(())).await;
    // The page that it stands on takes some more, and half of one.
    disk.fill().expect("it is full");
    refused(20).await;
    until("all others are counted", async || {
        let (written, lost) = counts().await;
        (written + lost == 21).then_some(())
    })
    .await;
    let (before, lost) = counts().await;
    assert!(lost > 0 && !fs::read_to_string(&file).expect("text").ends_with('\n'), "{before} {lost}");
    disk.empty();
    refused(3).await;
    until("the next are written", async || (counts().await == (before + 3, lost)).then_some(())).await;
    let text = fs::read_to_string(&file).expect("text");
    let is_whole = |line: &str| serde_json::from_str::<Value>(line).is_ok();
    let whole = text.lines().filter(|line| is_whole(line)).count() as u64;
    assert_eq!((whole, text.lines().count() as u64), (before + 3, before + 4), "{text}");
}
