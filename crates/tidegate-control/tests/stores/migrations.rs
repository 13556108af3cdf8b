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
