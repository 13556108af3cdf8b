//! Kill -9, a full disk, a database that hangs. `TIDEGATE_FAULTS_LONG=1` gives them their full length.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::Connection as _;
use tidegate_clock::Stopwatch;
use tidegate_control::{
    AuditFilter, AuditOrder, ControlStore, Error, Quota, Revision, Spending, Usage, Verification,
};
use tidegate_testbed::{Disk, PostgresOptions};

use crate::child;
use crate::support::{Bed, alice, both_alone, both_on, join_all, limit, quota};

/// How many times SQLite and PostgreSQL are killed.
fn kills(bed: &Bed) -> u32 {
    match (bed.server().is_some(), std::env::var_os("TIDEGATE_FAULTS_LONG").is_some()) {
        (false, false) => 60,
        (false, true) => 1000,
        (true, false) => 5,
        (true, true) => 50,
    }
}

/// Rows 32 and 30. SQLite dies with the process that has it open; PostgreSQL is killed itself, and waits for the disk as it does elsewhere.
#[test]
fn nothing_that_was_acknowledged_is_lost_by_kill_9() {
    both_alone(PostgresOptions::new().syncs(), async |bed| {
        let mut known = 0;
        let mut acknowledged = 0;
        for kill in 0..kills(&bed) {
            let mut storm = child::start(&format!("storm {kill}"), &bed.place());
            assert_eq!(storm.line().as_deref(), Some("ready"));
            let mut random = u64::from(kill).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            random ^= random >> 29;
            // After so many edits and a moment more.
            let mut said: Vec<String> = (0..random % 40).filter_map(|_| storm.line()).collect();
            std::thread::park_timeout(Duration::from_micros(random % 7919));
            match bed.server() {
                None => said.extend(storm.kill()),
                Some(server) => {
                    server.kill();
                    said.extend(storm.kill());
                    server.restart().unwrap_or_else(|reason| panic!("{reason}"));
                }
            }
            bed.check_integrity().await;
            let acks: Vec<Ack> = said.iter().map(|line| ack(line)).collect();
            acknowledged += said.len();
            known = check(&bed, known, &acks).await;
        }
        println!("{}: {} kills, {acknowledged} edits acknowledged, {known} written", bed.name(), kills(&bed));
        assert!(acknowledged > 0);
    });
}

/// What a storm was told that it did.
struct Ack {
    /// The revision; where an answer has none, what was done.
    at: Result<Revision, String>,
    number: String,
    kind: String,
    subject: String,
}

/// Of a line that a storm says.
fn ack(line: &str) -> Ack {
    let mut words = line.splitn(4, ' ').map(String::from);
    let mut word = || words.next().unwrap_or_default();
    let at = word();
    Ack { at: at.parse().map_err(|_| at), number: word(), kind: word(), subject: word() }
}

/// Is every edit there that was acknowledged, with its row of the trail, and none by half? Returns the revision.
async fn check(bed: &Bed, known: Revision, acks: &[Ack]) -> Revision {
    let store = bed.open().await;
    let head = store.head().await.unwrap();
    assert!(matches!(store.verify(known.max(1), None).await, Ok(Verification::Intact { .. })), "{head:?}");
    let mut rows = BTreeMap::new();
    let mut after = Some(known);
    while let Some(seq) = after {
        let filter = AuditFilter::default();
        let page = store.audit(&filter, AuditOrder::OldestFirst, Some(seq), 1000).await.unwrap();
        rows.extend(page.items.into_iter().map(|entry| (entry.seq, entry)));
        after = page.next.and_then(|next| next.parse().ok());
    }
    for Ack { at, number, kind, subject } in acks {
        let row = match at {
            Ok(revision) => rows.get(revision),
            Err(action) => rows.values().find(|row| row.subject == *subject && row.action == *action),
        };
        let row = row.unwrap_or_else(|| panic!("{at:?}, {kind} {subject} was acknowledged, and is lost"));
        assert_eq!((&row.subject, &row.kind), (subject, kind));
        let told = row.after.as_deref().unwrap_or(number);
        assert!(told.contains(number.as_str()), "{number} was acknowledged: {told}");
    }
    // The records are what the trail says: the last row about each.
    let last: BTreeMap<_, _> = rows.values().map(|row| ((&*row.kind, &*row.subject), row)).collect();
    for ((kind, subject), row) in last {
        assert_eq!(record(&store, kind, subject, row.seq).await, row.after, "{kind} {subject}");
    }
    store.close().await;
    head.seq
}

/// What is kept of something, as the trail shows it, with the revision that it was written at.
async fn record(store: &ControlStore, kind: &str, subject: &str, seq: Revision) -> Option<String> {
    fn shown<T: serde::Serialize>(read: Result<(Revision, T), Error>, seq: Revision) -> Option<String> {
        match read {
            Ok((revision, value)) => {
                assert_eq!(revision, seq);
                Some(serde_json::to_string(&value).unwrap())
            }
            Err(Error::NotFound { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }
    match kind {
        "quota" => shown(store.quota(subject).await.map(|kept| (kept.version, kept.value)), seq),
        "tier" => shown(store.tier(subject).await.map(|kept| (kept.version, kept.value)), seq),
        "rule_state" => shown(store.rule_state(subject).await.map(|kept| (kept.version, kept.value)), seq),
        "rule" => {
            let kept = store.rule(subject).await.map(|kept| {
                (kept.revision, serde_json::from_str::<serde_json::Value>(&kept.document).unwrap())
            });
            shown(kept, seq)
        }
        "token" => {
            let mut after = None;
            loop {
                let page = store.tokens(after.as_deref(), 1000).await.unwrap();
                if let Some(token) = page.items.into_iter().find(|token| token.id == subject) {
                    return Some(serde_json::to_string(&token).unwrap());
                }
                after = Some(page.next?);
            }
        }
        other => panic!("{other}"),
    }
}

/// Row 33.
#[test]
fn a_full_disk_refuses_and_is_forgiven() {
    both_on(async |small, bed| {
        let disk: &Disk = small;
        let store = bed.open().await;
        let big = |number: u32| format!(r#"{{"number": {number}, "text": "{}"}}"#, "x".repeat(50_000));
        let mut written = 0;
        for _ in 0..3 {
            store.put_rule(&alice(), "rule", big(written), None).await.unwrap();
            written += 1;
        }
        disk.fill().unwrap();
        // There may be room in files that are there.
        let refused = loop {
            match store.put_rule(&alice(), "rule", big(written), None).await {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 2000, "the disk is never full");
        };
        assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
        if bed.server().is_none() {
            // Reading goes on, and there is nothing of what was refused.
            assert_eq!(store.rule("rule").await.unwrap().document, big(written - 1));
            assert!(refused.to_string().contains("full"), "{refused}");
        }
        disk.empty();
        // PostgreSQL gives up when it has no room for its log: that is its keeper's to mend, and not ours.
        if let Some(server) = bed.server().filter(|server| server.has_ended()) {
            server.restart().unwrap_or_else(|reason| panic!("{reason}"));
        }
        let watch = Stopwatch::start();
        let last = loop {
            match store.put_rule(&alice(), "rule", big(9999), None).await {
                Ok(last) => break last.now,
                Err(error) if watch.elapsed() > Duration::from_secs(30) => panic!("{error}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        // Of PostgreSQL nobody knows what became of the one that it died of.
        let (version, unknown) = (u64::from(written) + 1, u64::from(bed.server().is_some()));
        assert!((version..=version + unknown).contains(&last.version), "{last:?}");
        assert_eq!(store.revision().await, Ok(last.version));
        assert!(matches!(store.verify(1, None).await, Ok(Verification::Intact { .. })));
        bed.check_integrity().await;
    });
}

/// Row 31. PostgreSQL is stopped; of SQLite somebody else keeps the lock.
#[test]
fn a_database_that_hangs_is_unavailable_in_time_and_comes_back() {
    const DEADLINE: Duration = Duration::from_secs(3);
    const SLACK: Duration = Duration::from_secs(2);
    both_alone(PostgresOptions::new(), async |bed| {
        let store = ControlStore::open(&bed.options().deadline(DEADLINE)).await.unwrap();
        let quiet = ControlStore::open(&bed.options().deadline(DEADLINE)).await.unwrap();
        let mut wakeups = quiet.wakeups();
        store.put_quota(&alice(), Quota::of("key"), None).await.unwrap();
        let mut lock = None;
        match bed.server() {
            Some(server) => server.stop(),
            None => {
                let mut connection = bed.sqlite_connection().await.unwrap();
                sqlx::raw_sql("BEGIN EXCLUSIVE").execute(&mut connection).await.unwrap();
                lock = Some(connection);
            }
        }
        let hangs = bed.server().is_some();
        let watch = Stopwatch::start();
        let unavailable = |what: &str, error: Option<Error>, hangs: bool| {
            let took = watch.elapsed();
            assert!(took <= DEADLINE + SLACK, "{what}: {took:?}");
            match (error, hangs) {
                (Some(Error::Unavailable { .. }), true) | (None, false) => {}
                (other, _) => panic!("{what}: {other:?}"),
            }
        };
        // More at once than there are connections.
        let reads = async {
            let calls = (0..8).map(|_| store.quota("key"));
            for read in join_all(calls).await {
                unavailable("a read", read.err(), hangs);
            }
        };
        let writes = async {
            let who = alice();
            let calls =
                (0..8).map(|n| store.put_quota(&who, quota("key", "pro", vec![limit("default", n)]), None));
            for written in join_all(calls).await {
                unavailable("a write", written.err(), true);
            }
        };
        let others = async {
            let usage = Usage { key: 1, period_start: 1, used: 1 };
            let used = [Spending { usage, given_back: 0, at: 1 }];
            unavailable("usage", store.flush_usage(&used).await.err(), true);
        };
        let snapshot = async { unavailable("a snapshot", store.snapshot().await.err(), hangs) };
        let opening = async {
            let options = bed.options().deadline(DEADLINE).poll(DEADLINE);
            // To open is to migrate, which has more time than others; here it must not even connect.
            let opened = tokio::time::timeout(DEADLINE + SLACK, ControlStore::open(&options)).await;
            if hangs {
                unavailable("opening", opened.expect("in time").err(), true);
            }
        };
        tokio::join!(reads, writes, others, snapshot, opening);

        match (bed.server(), lock) {
            (Some(server), _) => server.cont(),
            (None, Some(connection)) => connection.close().await.unwrap(),
            (None, None) => {}
        }
        let watch = Stopwatch::start();
        let version = loop {
            match store.put_quota(&alice(), quota("key", "free", vec![]), None).await {
                Ok(written) => break written.now.version,
                Err(error) if watch.elapsed() > Duration::from_secs(5) => panic!("{error}"),
                Err(_) => {}
            }
        };
        assert!(matches!(store.verify(1, None).await, Ok(Verification::Intact { .. })));
        // Who was connected all the time, and did nothing, hears of it too.
        let woken = tokio::time::timeout(Duration::from_secs(20), async {
            while wakeups.changed().await.is_some_and(|revision| revision < version) {}
        });
        woken.await.expect("woken");
    });
}
