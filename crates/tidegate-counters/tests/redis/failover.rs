//! Row 8: every replica becomes a primary, by agreement, and the old primaries again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use tidegate_clock::Stopwatch;
use tidegate_core::Limit;
use tidegate_testbed::{Cluster, Kind, Server, until};

use crate::support::{
    Counter, Dice, HOUR, PATIENT, Stops, ask, cluster, nothing_lives_for_ever, store, used, with,
};

const THREADS: u64 = 3;
const KEYS: u32 = 24;

/// A primary that hands over holds its clients back until the replica has all, and then sends them away: a request that has the time
/// for that does not fail. So all have time here, and none may fail; and since nothing is lost in such a failover, the counters hold
/// exactly what was admitted. (In service an operation has 12 ms, and those that meet a failover are answered by policy.)
fn failed_over_under_load(kind: Kind) {
    let cluster = cluster(kind, 1);
    let store = store(&cluster.url(), PATIENT);
    let limit = Limit::sliding_window(10_000_000, HOUR).expect("a limit");
    let (charged, longest_us, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, limit, charged, longest_us, stop) = (&store, &limit, &charged, &longest_us, &stop);
            scope.spawn(move || {
                let mut dice = Dice::new(thread);
                with(store, async |counters| {
                    while !stop.load(SeqCst) {
                        let (number, cost) = (dice.below(KEYS.into()) as u32, 1 + dice.below(3));
                        let watch = Stopwatch::start();
                        let told = ask(counters, &[Counter::of(number).charge(limit, cost)]).await;
                        longest_us.fetch_max(watch.elapsed().as_micros() as u64, SeqCst);
                        match told {
                            Ok(told) => assert!(told.admitted),
                            // On a machine that is busy its nodes lose sight of each other for a moment. That is no failover by
                            // agreement; nothing was done, and what was charged is compared all the same.
                            Err(why) if why.why.contains("CLUSTERDOWN") => continue,
                            Err(why) => panic!("it has the time: {why}"),
                        }
                        charged.fetch_add(cost, SeqCst);
                    }
                });
            });
        }
        let _stops = Stops(&stop);
        let mut well = Ok(());
        for replica in [3, 4, 5, 0, 1, 2] {
            let seen = charged.load(SeqCst);
            well = well.and_then(|()| {
                until("it is charged all the while", PATIENT, || match charged.load(SeqCst) {
                    now if now > seen + 200 => Ok(()),
                    now => Err(format!("{now}")),
                })
            });
            well = well.and_then(|()| follows(&cluster, replica)).and_then(|()| cluster.failover(replica));
        }
        well.unwrap_or_else(|error| panic!("{error}"));
    });
    let stats = store.stats();
    println!("{kind:?}: the longest took {} ms; {stats:?}", longest_us.load(SeqCst) / 1_000);
    assert!(stats.redirects > 0, "nobody was sent elsewhere: {stats:?}");
    let mut counted = 0;
    with(&store, async |counters| {
        for number in 0..KEYS {
            counted += used(counters, Counter::of(number), &limit).await;
        }
    });
    assert_eq!(counted, charged.load(SeqCst));
    nothing_lives_for_ever(cluster.immortal_keys(&[]));
}

/// One that has just been a primary has to be a replica with all that its primary has, and all have to know it.
fn follows(cluster: &Cluster, replica: usize) -> Result<(), String> {
    let place = format!(" {}@", cluster.servers()[replica].address());
    until("a replica has all that its primary has", PATIENT, || {
        let text =
            |server: &Server, words: &[&str]| Ok(server.try_command(words)?.text().unwrap_or_default());
        let about: Result<String, String> = text(&cluster.servers()[replica], &["INFO", "replication"]);
        about.and_then(|about| if about.contains("master_link_status:up") { Ok(()) } else { Err(about) })?;
        cluster.servers().iter().try_for_each(|server| {
            let nodes: String = text(server, &["CLUSTER", "NODES"])?;
            let is_told = nodes.lines().any(|line| line.contains(&place) && line.contains("slave"));
            if is_told { Ok(()) } else { Err(nodes) }
        })
    })
}

#[test]
fn row_8_nothing_fails_and_nothing_is_lost_while_all_of_redis_fail_over() {
    failed_over_under_load(Kind::Redis);
}

#[test]
fn row_8_nothing_fails_and_nothing_is_lost_while_all_of_valkey_fail_over() {
    failed_over_under_load(Kind::Valkey);
}
