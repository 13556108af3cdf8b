//! Row 5: the store forgets the scripts, again and again, and comes back empty after a restart.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::ScopedJoinHandle;

use tidegate_core::Limit;
use tidegate_counters::{Batch, Counters};
use tidegate_testbed::{Kind, until};

use crate::support::{
    Counter, HOUR, PATIENT, Stops, ask, nothing_lives_for_ever, now, server, store, troubles, used, with,
};

const THREADS: u64 = 3;
const BATCHES: u64 = 300;
const BATCH: u64 = 8;
const KEYS: u32 = 5;

/// Threads charge while the scripts are flushed without a pause. No request fails, and what was admitted is what the counters hold.
fn flushed_under_load(kind: Kind) {
    let server = server(kind);
    let store = store(&server.url(), PATIENT);
    let limits = [
        Limit::sliding_window(10_000_000, HOUR).expect("a limit"),
        Limit::fixed_window(10_000_000, HOUR).expect("a limit"),
    ];
    let admitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for thread in 0..THREADS {
            let (store, limits, admitted) = (&store, &limits, &admitted);
            threads.push(scope.spawn(move || {
                with(store, async |counters| {
                    for turn in 0..BATCHES {
                        let mut batch = Batch::new();
                        for request in 0..BATCH {
                            let number = (thread + turn + request) as u32 % KEYS;
                            // Some need one law, some the other: these are different scripts.
                            let limit = &limits[number as usize % 2];
                            batch.push([Counter::of(number).charge(limit, 1 + request % 3)]);
                        }
                        counters.take(&mut batch, now()).await;
                        for request in 0..batch.len() {
                            assert_eq!(batch.failure(request), None, "a script that is gone is no reason");
                            assert!(batch.admitted(request));
                            admitted.fetch_add(1 + request as u64 % 3, SeqCst);
                        }
                    }
                });
            }));
        }
        while !threads.iter().all(ScopedJoinHandle::is_finished) {
            server.script_flush();
        }
    });
    assert!(troubles(&store, "noscript") >= 20, "the scripts were there all the time");
    with(&store, async |counters| {
        let mut charged = 0;
        for number in 0..KEYS {
            charged += used(counters, Counter::of(number), &limits[number as usize % 2]).await;
        }
        assert_eq!(charged, admitted.load(SeqCst));
    });
    nothing_lives_for_ever(server.immortal_keys(&[]));
}

#[test]
fn row_5_no_request_fails_while_redis_forgets_the_scripts() {
    flushed_under_load(Kind::Redis);
}

#[test]
fn row_5_no_request_fails_while_valkey_forgets_the_scripts() {
    flushed_under_load(Kind::Valkey);
}

/// A restart loses the counters and the scripts. Requests fail while the server is away, and never because a script was missing; those
/// of counters that were touched only afterwards are exact.
#[test]
fn row_5_after_a_restart_only_what_was_counted_is_lost() {
    let server = server(Kind::Redis);
    let store = store(&server.url(), PATIENT / 2);
    let limit = Limit::sliding_window(10_000_000, HOUR).expect("a limit");
    let (phase, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let admitted = [0, 1].map(|_| AtomicU64::new(0));
    let failed = [0, 1].map(|_| AtomicU64::new(0));
    let well: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for well in &well {
            let (store, limit, phase, stop, admitted, failed) =
                (&store, &limit, &phase, &stop, &admitted, &failed);
            scope.spawn(move || {
                with(store, async |counters| {
                    while !stop.load(SeqCst) {
                        let now_in = phase.load(SeqCst) as usize;
                        match ask(counters, &[Counter::of(now_in as u32).charge(limit, 1)]).await {
                            Ok(told) => {
                                assert!(told.admitted);
                                admitted[now_in].fetch_add(1, SeqCst);
                                well.fetch_add(1, SeqCst);
                            }
                            Err(why) => {
                                assert!(!why.why.contains("NOSCRIPT"), "{why}");
                                failed[now_in].fetch_add(1, SeqCst);
                                tokio::task::yield_now().await;
                            }
                        }
                    }
                });
            });
        }
        let each_has_some_more = || {
            let seen: Vec<u64> = well.iter().map(|one| one.load(SeqCst)).collect();
            let all = until("requests of every thread are admitted", PATIENT, || {
                let more = || well.iter().zip(&seen).map(|(one, seen)| one.load(SeqCst) - seen);
                if more().all(|more| more >= 100) {
                    Ok(())
                } else {
                    Err(format!("{:?}", more().collect::<Vec<_>>()))
                }
            });
            all.unwrap_or_else(|error| panic!("{error}"));
        };
        let stops = Stops(&stop);
        each_has_some_more();
        server.restart().unwrap_or_else(|error| panic!("{error}"));
        each_has_some_more(); // They are connected again.
        let failed_before = failed[0].load(SeqCst);
        phase.store(1, SeqCst);
        each_has_some_more();
        drop(stops);
        assert!(failed_before > 0, "the server was away");
    });
    let unsure = failed[1].load(SeqCst);
    // A store of its own: the other one has connected as often as it may for a while.
    let count = with(&crate::support::store(&server.url(), PATIENT), async |counters| {
        used(counters, Counter::of(1), &limit).await
    });
    assert_eq!((count, unsure), (admitted[1].load(SeqCst), 0));
    nothing_lives_for_ever(server.immortal_keys(&[]));
}
