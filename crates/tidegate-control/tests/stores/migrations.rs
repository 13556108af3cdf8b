//! The schema, by one of many and interrupted: row 34.

use tidegate_control::{Quota, SCHEMA_VERSION, Verification};

use crate::child;
use crate::support::{alice, both, quota};

#[test]
fn of_several_that_start_at_once_one_migrates() {
    both(async |bed| {
        for round in 0..3 {
            let bed = bed.another().await;
            let starters: Vec<_> = (0..4).map(|_| child::start("open", &bed.place())).collect();
            let ran: Vec<u32> = starters
                .into_iter()
                .map(|starter| starter.end().and_then(|said| said.first()?.parse().ok()).expect("it opens"))
                .collect();
            // Each migration once; whoever comes between two may run the second.
            assert_eq!(ran.iter().sum::<u32>(), SCHEMA_VERSION, "round {round}: {ran:?}");
            assert_eq!(bed.open().await.migrations_run(), 0);
        }
    });
}

#[test]
fn a_migration_that_is_killed_at_any_statement_is_finished_by_the_next() {
    both(async |bed| {
        let mut kills = 0;
        for step in 0.. {
            let bed = bed.another().await;
            if child::start(&format!("migrate {step}"), &bed.place()).end().is_some() {
                break;
            }
            kills += 1;
            let store = bed.open().await;
            assert!(store.migrations_run() > 0, "step {step}");
            assert_eq!(store.schema_version().await, Ok(SCHEMA_VERSION));
            store.put_quota(&alice(), quota("key", "pro", vec![]), Some(0)).await.unwrap();
            store.put_quota(&alice(), Quota::of("key"), Some(1)).await.unwrap();
            assert!(matches!(store.verify(1, None).await, Ok(Verification::Intact { rows: 2, .. })));
            bed.check_integrity().await;
        }
        assert!(kills >= 25, "only {kills} steps");
    });
}

/// A program of the version before that writes takes the head of the trail first, and then a table: a migration likewise, or each would
/// wait for the other.
#[test]
fn a_migration_and_a_writer_of_the_version_before_wait_for_each_other_in_turn() {
    const WRITES: &str = "BEGIN; SELECT 1 FROM control_head FOR UPDATE; SELECT pg_sleep(2); UPDATE quota_keys SET tier = 'gold'; \
                          UPDATE control_head SET seq = seq; COMMIT";
    const HOLDS_HEAD: &str = "SELECT count(*)::text FROM pg_locks WHERE relation = 'control_head'::regclass AND mode = 'RowShareLock'";
    both(async |bed| {
        bed.open().await.put_quota(&alice(), quota("key", "pro", vec![]), None).await.unwrap();
        for index in ["quota_keys_user", "quota_keys_client", "quota_overrides_end"] {
            bed.raw(&format!("DROP INDEX {index}")).await.unwrap();
        }
        bed.raw("UPDATE control_head SET schema_version = 3").await.unwrap();
        let writes = bed.raw(bed.dialect("UPDATE quota_keys SET tier = 'gold'", WRITES));
        let migrates = async {
            while bed.server().is_some() && bed.texts(HOLDS_HEAD).await != ["1"] {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            bed.open().await
        };
        let (written, store) = tokio::join!(writes, migrates);
        assert!(written.is_ok(), "{written:?}");
        assert_eq!((store.migrations_run(), store.schema_version().await), (1, Ok(SCHEMA_VERSION)));
        assert_eq!(store.quota("key").await.unwrap().value.tier.as_deref(), Some("gold"));
    });
}
