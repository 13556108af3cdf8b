//! The audit trail and what follows it.

use std::time::Duration;

use tidegate_clock::{Clock, ManualClock};
use tidegate_control::{
    Action, AuditFilter, AuditOrder, ControlStore, Error, Kind, Outcome, Quota, RuleState, State, Tier,
    Verification, Who,
};
use tidegate_testbed::PostgresOptions;

use crate::support::{Bed, alice, both, both_alone, limit, quota};

/// For what has to happen at all. How soon it does is asserted by what else could have made it happen: nothing, for longer than this.
const SOON: Duration = Duration::from_secs(15);
const NEVER: Duration = Duration::from_secs(3600);

#[test]
fn eight_who_write_at_once_leave_one_chain_without_gaps() {
    const EDITS: usize = 25;
    both(async |bed| {
        let reader = bed.open().await;
        let mut writers = Vec::new();
        for writer in 0..8 {
            let store = bed.open().await;
            writers.push(tokio::spawn(async move {
                let who = Who::new(format!("writer-{writer}"), "");
                for edit in 0..EDITS {
                    let key = format!("key-{}", (writer + edit) % 5);
                    let told = quota(&key, "pro", vec![limit("default", (writer * EDITS + edit) as u32)]);
                    let written = store.put_quota(&who, told, None).await.unwrap();
                    assert_ne!(written.outcome, Outcome::Unchanged);
                }
            }));
        }
        // Whoever follows meanwhile sees every revision, and each after the one before.
        let (mut seen, mut polls) = (0, 0);
        let mut is_over = false;
        while !is_over {
            // What they wrote last is read once more.
            is_over = writers.iter().all(|writer| writer.is_finished());
            let changes = reader.changes_since(seen, 1000).await.unwrap();
            for change in changes.changes {
                assert_eq!(change.seq, seen + 1);
                seen = change.seq;
            }
            assert!(changes.head >= seen);
            polls += 1;
            tokio::task::yield_now().await;
        }
        for writer in writers {
            writer.await.unwrap();
        }
        assert!(polls > 1);
        assert_eq!((seen, reader.revision().await), (200, Ok(200)));
        let head = reader.head().await.unwrap();
        assert_eq!(reader.verify(1, None).await, Ok(Verification::Intact { rows: 200, last: head }));
        assert!(matches!(reader.verify(50, Some(60)).await, Ok(Verification::Intact { rows: 11, .. })));
    });
}

#[test]
fn the_database_itself_refuses_to_change_the_trail() {
    both(async |bed| {
        let store = bed.open().await;
        store.put_quota(&alice(), Quota::of("key"), None).await.unwrap();
        let replace = "INSERT OR REPLACE INTO audit (seq, at, actor, origin, action, kind, subject, prev_hash, hash) \
                       VALUES (1, 1, 'x', '', 'x', 'x', 'x', x'00', x'00')";
        for refused in [
            "UPDATE audit SET actor = 'bob'",
            "DELETE FROM audit",
            bed.dialect(replace, "TRUNCATE audit"),
            bed.dialect("UPDATE OR REPLACE audit SET seq = 2", "TRUNCATE audit CASCADE"),
        ] {
            let error = bed.raw(refused).await.unwrap_err();
            assert!(error.contains("the audit trail is only added to"), "{refused}: {error}");
        }
        assert!(matches!(store.verify(1, None).await, Ok(Verification::Intact { rows: 1, .. })));
    });
}

async fn switch_off_triggers(bed: &Bed) {
    let sqlite = "DROP TRIGGER audit_is_not_updated; DROP TRIGGER audit_is_not_deleted; DROP TRIGGER audit_is_not_replaced";
    let postgres = "DROP TRIGGER audit_is_not_changed ON audit; DROP TRIGGER audit_is_not_emptied ON audit";
    bed.raw(bed.dialect(sqlite, postgres)).await.unwrap();
}

#[test]
fn whatever_is_changed_in_the_trail_is_found() {
    both(async |bed| {
        let store = bed.open().await;
        for number in 1..=6 {
            store
                .put_quota(&alice(), quota("key", "pro", vec![limit("default", number)]), None)
                .await
                .unwrap();
        }
        switch_off_triggers(&bed).await;
        bed.raw("CREATE TABLE good AS SELECT * FROM audit").await.unwrap();
        bed.raw("CREATE TABLE good_head AS SELECT * FROM control_head").await.unwrap();
        let (zeros, later) = bed
            .dialect("x'00'|at + 1", "'\\x00'::bytea|at + interval '1 microsecond'")
            .split_once('|')
            .unwrap();
        let zeros_32 = bed.dialect("zeroblob(32)", "decode(repeat('00', 32), 'hex')");
        let tampered = [
            (format!("UPDATE audit SET at = {later} WHERE seq = 3"), 3),
            ("UPDATE audit SET actor = 'bob' WHERE seq = 3".into(), 3),
            ("UPDATE audit SET origin = 'elsewhere' WHERE seq = 3".into(), 3),
            ("UPDATE audit SET action = 'delete' WHERE seq = 3".into(), 3),
            ("UPDATE audit SET kind = 'tier' WHERE seq = 3".into(), 3),
            ("UPDATE audit SET subject = 'other' WHERE seq = 3".into(), 3),
            ("UPDATE audit SET before = NULL WHERE seq = 3".into(), 3),
            ("UPDATE audit SET after = replace(after, '3', '9') WHERE seq = 3".into(), 3),
            (format!("UPDATE audit SET prev_hash = {zeros_32} WHERE seq = 3"), 3),
            (format!("UPDATE audit SET hash = {zeros_32} WHERE seq = 3"), 3),
            ("DELETE FROM audit WHERE seq = 3".into(), 3),
            ("DELETE FROM audit WHERE seq = 6".into(), 6),
            ("DELETE FROM audit WHERE seq = 1".into(), 1),
            ("DELETE FROM audit".into(), 1),
            ("UPDATE audit SET seq = 9 WHERE seq = 6".into(), 6),
            (
                "INSERT INTO audit SELECT 7, at, actor, origin, action, kind, subject, before, after, prev_hash, hash \
                 FROM audit WHERE seq = 6"
                    .into(),
                7,
            ),
            (format!("UPDATE control_head SET hash = {zeros_32}"), 6),
        ];
        for (change, expected) in tampered {
            bed.raw(&change).await.unwrap();
            match store.verify(1, None).await {
                Ok(Verification::Broken(broken)) => assert_eq!(broken.seq, expected, "{change}: {broken}"),
                other => panic!("{change}: {other:?}"),
            }
            bed.raw("DELETE FROM audit; INSERT INTO audit SELECT * FROM good").await.unwrap();
            bed.raw("DELETE FROM control_head; INSERT INTO control_head SELECT * FROM good_head")
                .await
                .unwrap();
            assert!(
                matches!(store.verify(1, None).await, Ok(Verification::Intact { rows: 6, .. })),
                "{change}"
            );
        }
        // What is not even as long as a hash is no row of ours.
        bed.raw(&format!("UPDATE audit SET hash = {zeros} WHERE seq = 3")).await.unwrap();
        assert!(matches!(store.verify(1, None).await, Err(Error::Unavailable { .. })));
    });
}

#[test]
fn the_trail_tells_who_did_what_to_which_and_is_searched_by_that() {
    both(async |bed| {
        let hand = ManualClock::at(1_000_000);
        let store = ControlStore::open(&bed.options().clock(Clock::from(&hand))).await.unwrap();
        let bob = Who::new("bob", "10.0.0.2:99");
        store.put_quota(&alice(), Quota::of("key"), None).await.unwrap();
        hand.advance(1_000_000);
        store.put_quota(&bob, quota("key", "pro", vec![limit("default", 5)]), None).await.unwrap();
        store.put_tier(&bob, Tier { name: "pro".into(), overrides: vec![] }, None).await.unwrap();
        hand.advance(1_000_000);
        store.delete_quota(&alice(), "key", None).await.unwrap();
        let state = RuleState { rule: "r".repeat(4000), state: State::Shadow, expires_at: None };
        store.put_rule_state(&alice(), state, None).await.unwrap();
        let before = Some(r#"{"used":5}"#.to_string());
        store.record(&bob, Action::Reset, Kind::Usage, "key", before, None).await.unwrap();

        let all =
            store.audit(&AuditFilter::default(), AuditOrder::OldestFirst, None, 100).await.unwrap().items;
        let row = &all[1];
        let told = (
            row.seq,
            row.at,
            row.actor.as_str(),
            row.origin.as_str(),
            row.action.as_str(),
            row.kind.as_str(),
        );
        assert_eq!(told, (2, 2_000_000, "bob", "10.0.0.2:99", "update", "quota"));
        let json = |text: &Option<String>| serde_json::from_str::<Quota>(text.as_deref().unwrap()).unwrap();
        assert_eq!(
            (json(&row.before), json(&row.after)),
            (Quota::of("key"), quota("key", "pro", vec![limit("default", 5)]))
        );

        let none = AuditFilter::default;
        let cases = [
            (none(), vec![1, 2, 3, 4, 5, 6]),
            (AuditFilter { since_seq: Some(3), until_seq: Some(4), ..none() }, vec![3, 4]),
            (AuditFilter { since: Some(2_000_000), until: Some(3_000_000), ..none() }, vec![2, 3]),
            (AuditFilter { actor: Some("bob".into()), ..none() }, vec![2, 3, 6]),
            (AuditFilter { kind: Some(Kind::Quota), ..none() }, vec![1, 2, 4]),
            (AuditFilter { subject: Some("key".into()), ..none() }, vec![1, 2, 4, 6]),
            (AuditFilter { subject: Some("r".repeat(4000)), ..none() }, vec![5]),
            (AuditFilter { subject: Some("r".repeat(3999)), ..none() }, vec![]),
            (
                AuditFilter {
                    kind: Some(Kind::Quota),
                    actor: Some("alice".into()),
                    since: Some(1),
                    ..none()
                },
                vec![1, 4],
            ),
        ];
        for (filter, expected) in cases {
            for (order, limit) in
                [(AuditOrder::OldestFirst, 100), (AuditOrder::OldestFirst, 1), (AuditOrder::NewestFirst, 2)]
            {
                let (mut found, mut after) = (Vec::new(), None);
                loop {
                    let page = store.audit(&filter, order, after, limit).await.unwrap();
                    found.extend(page.items.iter().map(|entry| entry.seq));
                    after = page.next.and_then(|next| next.parse().ok());
                    if after.is_none() {
                        break;
                    }
                }
                if order == AuditOrder::NewestFirst {
                    found.reverse();
                }
                assert_eq!(found, expected, "{filter:?} {order:?}");
            }
        }
        let changes = store.changes_since(2, 2).await.unwrap();
        let told: Vec<_> =
            changes.changes.iter().map(|change| (change.seq, change.kind, change.subject.as_str())).collect();
        assert_eq!(told, [(3, Kind::Tier, "pro"), (4, Kind::Quota, "key")]);
        assert_eq!(changes.head, 6);
        // A store that was put back says so.
        assert_eq!(store.changes_since(9, 2).await.unwrap().head, 6);
        assert!(matches!(
            store.put_quota(&Who::new("", ""), Quota::of("k"), None).await,
            Err(Error::Invalid { .. })
        ));
    });
}

/// Row 36.
#[test]
fn who_waits_is_woken_by_changes_of_others() {
    both_alone(PostgresOptions::new(), async |bed| {
        // Nobody looks by itself, so that it must have been told.
        let waiting = ControlStore::open(&bed.options().poll(NEVER)).await.unwrap();
        let mut wakeups = waiting.wakeups();
        // SQLite serves one node: there the other is another hand on the same store.
        let other = if bed.server().is_some() { bed.open().await } else { waiting.clone() };
        // It may be told of a change that it heard of when it began to listen.
        let mut revision = 0;
        let mut edit = async |what: &str| {
            revision += 1;
            let told = quota("key", "pro", vec![limit("default", revision)]);
            let written = other.put_quota(&alice(), told, None).await.unwrap();
            let woken = tokio::time::timeout(SOON, wakeups.changed()).await;
            assert_eq!(
                woken.unwrap_or_else(|_| panic!("not woken: {what}")),
                Some(written.now.version),
                "{what}"
            );
        };
        edit("at first").await;
        edit("and again").await;
        let Some(server) = bed.server() else { return };
        // Its ear is cut off, as by a proxy that ends idle connections.
        let listening = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'";
        bed.raw(listening).await.unwrap();
        edit("without an ear").await;
        edit("with a new ear").await;
        server.restart().unwrap();
        edit("after a restart").await;
        edit("and again").await;
    });
}

/// Row 36, when every notification is lost.
#[test]
fn who_is_told_nothing_looks_by_itself() {
    both(async |bed| {
        let waiting = ControlStore::open(&bed.options().poll(Duration::from_millis(100))).await.unwrap();
        let mut wakeups = waiting.wakeups();
        bed.raw("UPDATE control_head SET seq = 7").await.unwrap();
        let woken = tokio::time::timeout(SOON, wakeups.changed()).await;
        assert_eq!(woken.unwrap(), Some(7));
    });
}
