//! All of it, out and in: between both databases, in every direction.

use std::io::Cursor;
use std::time::Duration;

use tidegate_clock::Clock;
use tidegate_control::{
    AuditFilter, AuditOrder, ControlStore, Error, Follow, Kind, LastGood, NewToken, Override, Quota,
    RuleState, Scope, Sink, Spending, State, Tier, Usage, Verification, Who,
};

use crate::child;
use crate::support::{Bed, alice, both, from_one_to_the_other, limit, quota};

async fn backup(store: &ControlStore) -> String {
    let (mut backup, mut text) = (store.backup().await.expect("a backup"), String::new());
    while let Some(lines) = backup.next().await.expect("lines") {
        text += &lines;
    }
    text
}

async fn restore(store: &ControlStore, text: &str, replace: bool) -> Result<u64, Error> {
    let who = Who::new("cli", "operator@host");
    store.restore(&who, Cursor::new(text.as_bytes()), replace).await.map(|restored| restored.held.rows)
}

/// The rows of a backup, without header and trailer; but for the last row of the audit trail, if the restore wrote that.
fn rows(text: &str, but_last: bool) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    lines[1..lines.len() - 1 - usize::from(but_last)].to_vec()
}

/// Something of everything.
async fn fill(store: &ControlStore) {
    let who = alice();
    let timed = Override {
        effective_at: Some(1),
        expires_at: Some(7_000_000),
        ..limit("endpoint:POST /\u{1F600}", 9)
    };
    let full = Quota {
        domain: Some("api".into()),
        client_id: Some("client".into()),
        user_id: Some("user".into()),
        whitelisted: true,
        ..quota("key-full", "pro", vec![limit("default", u32::MAX), timed])
    };
    store.put_quota(&who, full, None).await.unwrap();
    // More than a page.
    for some in 0..3 {
        let puts =
            (0..700).map(|n| (quota(&format!("key-{some}-{n}"), "free", vec![limit("default", n)]), None));
        store.put_quotas(&who, puts.collect()).await.unwrap();
    }
    let tier = Tier { name: "gold".into(), overrides: vec![limit("default", 7)] };
    store.put_tier(&who, tier, None).await.unwrap();
    for version in 0..70 {
        let document = format!(r#"{{"b": {version}, "a": [1.50]}}"#);
        store.put_rule(&who, "kept", document, None).await.unwrap();
    }
    store.put_rule(&who, "gone", r#"{"x": 1}"#.into(), None).await.unwrap();
    store.delete_rule(&who, "gone", None).await.unwrap();
    store.roll_back_rule(&who, "kept", 3, None).await.unwrap();
    let share = State::EnforceShare { basis_points: 1250 };
    for (rule, state) in [("api|a#1", State::Shadow), ("api|b#2", share)] {
        let state = RuleState { rule: rule.into(), state, expires_at: Some(9_000_000) };
        store.put_rule_state(&who, state, None).await.unwrap();
    }
    store.token_key().await.unwrap();
    for (prefix, tenant) in [("aaaaaaaa", None), ("bbbbbbbb", Some("api".to_owned()))] {
        let (hash, name) = ([prefix.as_bytes()[0]; 32], prefix.to_owned());
        let token =
            NewToken { prefix: name.clone(), hash, scope: Scope::Write, tenant, name, expires_at: Some(5) };
        let token = store.create_token(&who, token).await.unwrap();
        if prefix == "bbbbbbbb" {
            store.revoke_token(&who, &token.id).await.unwrap();
        }
    }
    let usage: Vec<Spending> = (0..1500)
        .map(|n| Usage { key: u128::from(n as u64) << 70, period_start: 5 * n, used: n + 1 })
        .map(|usage| Spending { usage, given_back: 0, at: 1 })
        .collect();
    store.flush_usage(&usage).await.unwrap();
    store.delete_quota(&who, "key-0-0", None).await.unwrap();
}

#[test]
fn what_is_restored_is_to_the_letter_what_was_backed_up() {
    from_one_to_the_other(async |from, to| {
        let (store, other) = (from.open().await, to.open().await);
        fill(&store).await;
        let text = backup(&store).await;
        for kind in ["meta", "tier", "rule", "rule_version", "rule_state", "quota", "token", "usage", "audit"]
        {
            assert!(text.contains(&format!("\n{{\"{kind}\":")), "nothing of {kind}");
        }
        let restored = restore(&other, &text, false).await.unwrap();
        assert_eq!(restored, text.lines().count() as u64 - 2);
        assert!(rows(&backup(&other).await, true) == rows(&text, false), "it is another");
        assert_eq!(other.token_key().await, store.token_key().await);
        let head = store.head().await.unwrap();
        let ended = other.head().await.unwrap();
        assert_eq!(ended.seq, head.seq + 1, "the restore is a row too");
        assert_eq!(other.verify(1, None).await, Ok(Verification::Intact { rows: ended.seq, last: ended }));
        // And it goes on from there.
        let written = other.put_quota(&alice(), Quota::of("new"), None).await.unwrap();
        assert_eq!(written.now.version, ended.seq + 1);
        let error = restore(&other, &text, false).await.unwrap_err();
        assert!(error.to_string().contains("is not empty"), "{error}");
        assert_eq!(other.revision().await, Ok(ended.seq + 1));
        restore(&other, &text, true).await.unwrap();
        assert!(
            rows(&backup(&other).await, true) == rows(&text, false),
            "what was there before was replaced"
        );
        let refused = to.raw("DELETE FROM audit").await.unwrap_err();
        assert!(refused.contains("only added to"), "the guards are there again: {refused}");
        // A store that was open all the time writes on.
        other.put_tier(&alice(), Tier { name: "late".into(), overrides: Vec::new() }, None).await.unwrap();
        to.check_integrity().await;
    });
}

/// There is no way to change something without a row of the audit trail.
#[test]
fn a_restore_is_a_row_of_the_audit_trail() {
    from_one_to_the_other(async |from, to| {
        let (store, other) = (from.open().await, to.open().await);
        let empty = backup(&store).await;
        for key in ["one", "two"] {
            let told = quota(key, "pro", vec![limit("default", 5)]);
            store.put_quota(&alice(), told, None).await.unwrap();
        }
        store.put_tier(&alice(), Tier { name: "gold".into(), overrides: Vec::new() }, None).await.unwrap();
        let (text, head) = (backup(&store).await, store.head().await.unwrap());
        let hex = |hash: [u8; 32]| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let trailer: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let mut there: Option<tidegate_control::Head> = None;
        for replace in [false, true] {
            restore(&other, &text, replace).await.unwrap();
            let filter = AuditFilter { kind: Some(Kind::Database), ..AuditFilter::default() };
            let rows = other.audit(&filter, AuditOrder::OldestFirst, None, 10).await.unwrap().items;
            let [row] = &rows[..] else { panic!("{rows:?}") };
            let told = (row.seq, &*row.actor, &*row.origin, &*row.action, &*row.subject);
            assert_eq!(told, (head.seq + 1, "cli", "operator@host", "restore", "all"));
            let json = |text: &Option<String>| {
                text.as_deref().map(|text| serde_json::from_str::<serde_json::Value>(text).unwrap())
            };
            let trail = |head: tidegate_control::Head| (head.seq, hex(head.hash));
            let expected = serde_json::json!({
                "revision": head.seq, "head": hex(head.hash), "sha256": trailer["end"]["sha256"],
                "rows": { "quota": 2, "tier": 1, "audit": 3 },
            });
            assert_eq!(json(&row.after), Some(expected));
            let before = there.map(trail);
            let before = before.map(|(seq, head)| serde_json::json!({ "revision": seq, "head": head }));
            assert_eq!(json(&row.before), before, "what was replaced");
            let ended = other.head().await.unwrap();
            assert_eq!((row.seq, row.hash, row.prev_hash), (ended.seq, ended.hash, head.hash));
            assert_eq!(other.verify(1, None).await, Ok(Verification::Intact { rows: 4, last: ended }));
            there = Some(ended);
        }
        // Of nothing, too; and it was somebody.
        restore(&other, &empty, true).await.unwrap();
        assert_eq!(other.revision().await, Ok(1));
        let nobody = other.restore(&Who::new("", ""), Cursor::new(empty.as_bytes()), true).await;
        assert!(matches!(nobody, Err(Error::Invalid { .. })), "{nobody:?}");
    });
}

/// Says which tier a key has, by what it was told.
#[derive(Clone, Default)]
struct Tiers(std::sync::Arc<std::sync::Mutex<std::collections::BTreeMap<String, Option<String>>>>);

impl Tiers {
    fn of(&self, key: &str) -> Option<String> {
        self.0.lock().unwrap().get(key).cloned().flatten()
    }
}

impl Sink for Tiers {
    fn quota(&self, quota: &Quota) {
        self.0.lock().unwrap().insert(quota.api_key.clone(), quota.tier.clone());
    }

    fn no_quota(&self, api_key: &str) {
        self.0.lock().unwrap().remove(api_key);
    }

    fn quotas_begin(&self) {
        self.0.lock().unwrap().clear();
    }

    fn quotas_end(&self) {}
    fn tiers(&self, _: &std::collections::BTreeMap<String, Tier>) {}
    fn rules(&self, _: &std::collections::BTreeMap<String, String>) {}
    fn states(&self, _: &[RuleState]) {}
    fn is_at(&self, _: u64) {}
    fn heard(&self) {}
    fn heard_nothing(&self) {}
}

/// Follows until a key has this tier.
async fn follows(follow: &mut Follow<Tiers>, seen: &Tiers, store: &ControlStore, tier: &str) {
    let reached = async {
        while seen.of("key").as_deref() != Some(tier) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let run = async {
        tokio::select! { () = follow.run(store) => {}, () = reached => {} }
    };
    let soon = tokio::time::timeout(Duration::from_secs(15), run).await;
    soon.unwrap_or_else(|_| panic!("it has {:?}, not {tier}", seen.of("key")));
}

/// The row of a restore makes the revision one more than the backup's: as many as there were before, if only one change is undone.
#[test]
fn whoever_follows_sees_a_restore_at_whatever_revision() {
    both(async |bed| {
        let store = bed.open().await;
        let folder = tempfile::tempdir().unwrap();
        let put = async |tier: &str| {
            store.put_quota(&alice(), quota("key", tier, vec![]), None).await.unwrap();
        };
        let begin = || {
            let seen = Tiers::default();
            let file = LastGood::new(folder.path().join("last-good"), "db");
            let mut follow = Follow::new(seen.clone(), Clock::real(), Some(file));
            follow.load_last_good();
            (follow, seen)
        };
        put("one").await;
        let text = backup(&store).await;
        let (mut follow, seen) = begin();
        for undone in 1..=3 {
            for n in 1..=undone {
                put(&format!("later-{n}")).await;
            }
            follows(&mut follow, &seen, &store, &format!("later-{undone}")).await;
            restore(&store, &text, true).await.unwrap();
            follows(&mut follow, &seen, &store, "one").await;
        }
        // A node that was down meanwhile, and begins with what it knew last.
        put("two").await;
        follows(&mut follow, &seen, &store, "two").await;
        drop(follow);
        restore(&store, &text, true).await.unwrap();
        let (mut follow, seen) = begin();
        assert_eq!(seen.of("key").as_deref(), Some("two"), "what it knew last");
        follows(&mut follow, &seen, &store, "one").await;
        // And one that was further behind than the backup is old.
        let late = Tiers::default();
        let mut behind = Follow::new(late.clone(), Clock::real(), None);
        put("three").await;
        put("four").await;
        let text = backup(&store).await;
        restore(&store, &text, true).await.unwrap();
        follows(&mut behind, &late, &store, "four").await;
    });
}

#[test]
fn a_backup_that_is_not_whole_or_not_as_it_was_written_is_refused() {
    both(async |bed| {
        let store = bed.open().await;
        for n in 0..4 {
            store
                .put_quota(&alice(), quota(&format!("key-{n}"), "pro", vec![limit("default", 5)]), None)
                .await
                .unwrap();
        }
        let text = backup(&store).await;
        let other = bed.another().await;
        let empty = other.open().await;
        let nothing = backup(&empty).await;
        let mut wrong: Vec<(String, String)> = Vec::new();
        let mut ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
        ends.extend([0, 1, 50, text.len() - 2]);
        for end in ends {
            wrong.push((format!("cut at {end}"), text[..end].to_owned()));
            wrong.push((format!("cut after {end}"), text[..(end + 1).min(text.len() - 1)].to_owned()));
        }
        let lines: Vec<&str> = text.lines().collect();
        for at in 1..lines.len() - 1 {
            let without: Vec<&str> =
                lines.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, line)| *line).collect();
            wrong.push((format!("without line {at}"), without.join("\n") + "\n"));
        }
        for (what, other) in [
            ("\"pro\"", "\"prx\""),
            ("\"tidegate_backup\"", "\"tidegate\""),
            ("\"format\":1", "\"format\":2"),
            ("\"quota\":", "\"planet\":"),
            ("\"requests_per_unit\":5", "\"requests_per_unit\":-5"),
        ] {
            assert!(text.contains(what), "{what}");
            wrong.push((format!("{other} for {what}"), text.replace(what, other)));
        }
        for (what, text) in &wrong {
            let refused = restore(&empty, text, false).await;
            assert!(matches!(refused, Err(Error::Invalid { .. })), "{what}: {refused:?}");
        }
        assert_eq!(backup(&empty).await, nothing, "nothing of any of them is there");
        restore(&empty, &text, false).await.unwrap();
        println!("{} wrong ones refused", wrong.len());
    });
}

/// A change to a row that the trailer was written for: the audit trail itself does not verify.
#[test]
fn an_audit_trail_that_does_not_verify_is_not_restored() {
    both(async |bed| {
        let store = bed.open().await;
        for n in 0..3 {
            store.put_quota(&alice(), Quota::of(format!("key-{n}")), None).await.unwrap();
        }
        bed.raw(
            bed.dialect("DROP TRIGGER audit_is_not_updated", "DROP TRIGGER audit_is_not_changed ON audit"),
        )
        .await
        .unwrap();
        bed.raw("UPDATE audit SET actor = 'mallory' WHERE seq = 2").await.unwrap();
        let text = backup(&store).await;
        let other = bed.another().await;
        let error = restore(&other.open().await, &text, false).await.unwrap_err();
        assert!(error.to_string().contains("row 2 of the audit trail was changed"), "{error}");
    });
}

#[test]
fn a_backup_is_of_one_moment_while_others_write() {
    both(async |bed| {
        let store = bed.open().await;
        let mut storm = child::start("storm 1", &bed.place());
        assert_eq!(storm.line().as_deref(), Some("ready"));
        let mut revisions = Vec::new();
        for _ in 0..5 {
            for _ in 0..20 {
                storm.line().expect("it writes");
            }
            let mut backup = store.backup().await.unwrap();
            let mut text = backup.next().await.unwrap().unwrap_or_default();
            // Others write between any two pages.
            let mut before = store.revision().await.unwrap();
            while let Some(lines) = backup.next().await.unwrap() {
                text += &lines;
                let deadline = tidegate_clock::Stopwatch::start();
                while store.revision().await.unwrap() == before && deadline.elapsed() < Duration::from_secs(5)
                {
                    storm.line();
                }
                before = store.revision().await.unwrap();
            }
            let another = bed.another().await;
            let other = another.open().await;
            restore(&other, &text, false).await.unwrap();
            assert!(matches!(other.verify(1, None).await, Ok(Verification::Intact { .. })));
            check_against_trail(&other).await;
            revisions.push(other.revision().await.unwrap());
        }
        storm.kill();
        assert!(revisions.windows(2).all(|two| two[0] < two[1]), "{revisions:?}");
    });
}

/// The records are those that the audit trail says there are.
async fn check_against_trail(store: &ControlStore) {
    let mut expected = std::collections::BTreeMap::new();
    let mut after = None;
    loop {
        let page = store.audit(&Default::default(), Default::default(), after, 1000).await.unwrap();
        for entry in page.items.into_iter().filter(|entry| entry.kind == "quota") {
            match entry.after {
                Some(text) => expected.insert(entry.subject, text),
                None => expected.remove(&entry.subject),
            };
        }
        match page.next {
            Some(next) => after = next.parse().ok(),
            None => break,
        }
    }
    let mut found = std::collections::BTreeMap::new();
    let quotas = store.quotas(&Default::default(), None, 1000).await.unwrap();
    assert!(quotas.next.is_none());
    for quota in quotas.items {
        found.insert(quota.value.api_key.clone(), serde_json::to_string(&quota.value).unwrap());
    }
    assert_eq!(found, expected);
}

/// A table that somebody adds later belongs into backups too.
#[test]
fn every_table_is_backed_up() {
    both(async |bed: Bed| {
        bed.open().await;
        let tables = bed.dialect(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
            "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename::text COLLATE \"C\"",
        );
        let known = [
            "audit",
            "calendar_usage",
            "control_head",
            "control_meta",
            "quota_keys",
            "quota_overrides",
            "quota_tiers",
            "rule_states",
            "rule_versions",
            "rules",
            "tokens",
        ];
        assert_eq!(bed.texts(tables).await, known, "add it to store/backup.rs, and then here");
    });
}

#[test]
fn a_store_that_only_reads_changes_nothing() {
    both(async |bed| {
        assert!(
            bed.server().is_some() || ControlStore::open(&bed.options().only_reads()).await.is_err(),
            "nothing is made by looking"
        );
        let store = bed.open().await;
        store.put_quota(&alice(), Quota::of("key"), None).await.unwrap();
        let reader = ControlStore::open(&bed.options().only_reads()).await.unwrap();
        assert!(reader.quota("key").await.is_ok());
        assert!(reader.put_quota(&alice(), Quota::of("other"), None).await.is_err());
        assert_eq!(store.revision().await, Ok(1));
    });
}
