//! Notifications are not believed: they make a store look.

use std::time::Duration;

use tidegate_control::ControlStore;

use crate::support::{alice, both, limit, quota};

const SOON: Duration = Duration::from_secs(15);
const NEVER: Duration = Duration::from_secs(3600);

#[test]
fn who_is_nudged_looks_whether_there_is_something() {
    both(async |bed| {
        let waiting = ControlStore::open(&bed.options().poll(NEVER)).await.unwrap();
        let mut wakeups = waiting.wakeups();
        // Written behind everybody's back: nobody is told of it.
        bed.raw("UPDATE control_head SET seq = 7").await.unwrap();
        waiting.nudge();
        assert_eq!(tokio::time::timeout(SOON, wakeups.changed()).await.unwrap(), Some(7));
        // However often it is said, there is nothing new.
        for _ in 0..1_000 {
            waiting.nudge();
        }
        bed.raw("UPDATE control_head SET seq = 8").await.unwrap();
        waiting.nudge();
        assert_eq!(tokio::time::timeout(SOON, wakeups.changed()).await.unwrap(), Some(8));
    });
}

/// A restore may put a database back to a lower revision: what is written from then on is told as before.
#[test]
fn a_database_that_was_put_back_tells_what_is_written_next() {
    both(async |bed| {
        let store = ControlStore::open(&bed.options().poll(NEVER)).await.unwrap();
        let (mut all, mut own) = (store.wakeups(), store.own_writes());
        let put = async |amount| {
            let told = quota("key", "pro", vec![limit("default", amount)]);
            store.put_quota(&alice(), told, None).await.unwrap().now.version
        };
        for seq in [40, 30, 20] {
            bed.raw(&format!("UPDATE control_head SET seq = {seq}")).await.unwrap();
            store.nudge();
            assert_eq!(tokio::time::timeout(SOON, all.changed()).await.unwrap(), Some(seq));
        }
        let written = put(1).await;
        assert_eq!(written, 21);
        assert_eq!(tokio::time::timeout(SOON, all.changed()).await.unwrap(), Some(written));
        assert_eq!(tokio::time::timeout(SOON, own.changed()).await.unwrap(), Some(written));
        bed.raw("UPDATE control_head SET seq = 10").await.unwrap();
        let written = put(2).await;
        assert_eq!(written, 11);
        assert_eq!(tokio::time::timeout(SOON, all.changed()).await.unwrap(), Some(written));
        assert_eq!(tokio::time::timeout(SOON, own.changed()).await.unwrap(), Some(written));
    });
}

/// Row 36: whoever may connect to PostgreSQL may notify, and a revision that nobody ever reaches would be the last that is told.
#[test]
fn a_notification_that_lies_keeps_nobody_from_hearing_the_next() {
    both(async |bed| {
        let waiting = ControlStore::open(&bed.options().poll(NEVER)).await.unwrap();
        let other = if bed.server().is_some() { bed.open().await } else { waiting.clone() };
        let mut wakeups = waiting.wakeups();
        let mut edit = async |amount| {
            let told = quota("key", "pro", vec![limit("default", amount)]);
            let written = other.put_quota(&alice(), told, None).await.unwrap().now.version;
            let woken = tokio::time::timeout(SOON, wakeups.changed()).await;
            assert_eq!(woken.unwrap_or_else(|_| panic!("not woken of {amount}")), Some(written));
        };
        edit(1).await;
        if bed.server().is_some() {
            for lie in ["18446744073709551615", "9000000000000000000", "-1", "", "no number"] {
                bed.raw(&format!("SELECT pg_notify('tidegate_changes', '{lie}')")).await.unwrap();
            }
        }
        edit(2).await;
        edit(3).await;
    });
}

#[test]
fn what_is_written_by_one_hand_is_told_apart_from_what_others_write() {
    both(async |bed| {
        let (ours, theirs) = (bed.open().await, bed.open().await);
        let (mut own, mut all) = (ours.own_writes(), ours.wakeups());
        let put = async |store: &ControlStore, amount| {
            let told = quota("key", "pro", vec![limit("default", amount)]);
            store.put_quota(&alice(), told, None).await.unwrap().now.version
        };
        let other = put(&theirs, 1).await;
        ours.nudge();
        assert_eq!(tokio::time::timeout(SOON, all.changed()).await.unwrap(), Some(other));
        let told = tokio::time::timeout(Duration::ZERO, own.changed()).await;
        assert!(told.is_err(), "of theirs: {told:?}");
        let mine = put(&ours, 2).await;
        assert_eq!(tokio::time::timeout(SOON, own.changed()).await.unwrap(), Some(mine));
    });
}
