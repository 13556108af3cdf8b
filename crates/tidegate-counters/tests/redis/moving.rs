//! Rows 6 and 7: slots move with their keys while they are charged, and a slot stays half moved.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use tidegate_clock::Stopwatch;
use tidegate_core::Limit;
use tidegate_testbed::{Cluster, Kind, until};

use crate::support::{
    Counter, Dice, HOUR, PATIENT, Stops, ask, cluster, nothing_lives_for_ever, store, troubles, used, with,
};

const THREADS: u64 = 3;
const KEYS: u32 = 6;
const MOVES: usize = 24;

/// Threads charge counters of one slot, one or two in a request, while it goes round the servers, key by key. Redirects are followed; a
/// request of two may meet a slot that is moved by half, and then fails without a charge; nothing is charged twice.
fn moved_under_load(kind: Kind) {
    let cluster = cluster(kind, 0);
    let store = store(&cluster.url(), PATIENT);
    let limit = Limit::sliding_window(10_000_000, HOUR).expect("a limit");
    let home = Counter::of(1);
    let (charged, halves, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let watch = Stopwatch::start();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, limit, charged, halves, stop) = (&store, &limit, &charged, &halves, &stop);
            scope.spawn(move || {
                let mut dice = Dice::new(thread);
                with(store, async |counters| {
                    while !stop.load(SeqCst) {
                        let (first, cost) = (dice.below(KEYS.into()) as u32, 1 + dice.below(3));
                        let mut takes = vec![home.beside(first).charge(limit, cost)];
                        if dice.below(4) == 0 {
                            takes.push(home.beside((first + 1) % KEYS).charge(limit, cost));
                        }
                        match ask(counters, &takes).await {
                            Ok(told) => {
                                assert!(told.admitted);
                                charged.fetch_add(cost * takes.len() as u64, SeqCst);
                            }
                            Err(why) => {
                                assert!(takes.len() == 2 && why.why.contains("TRYAGAIN"), "{why}");
                                halves.fetch_add(1, SeqCst);
                            }
                        }
                    }
                });
            });
        }
        let _stops = Stops(&stop);
        let slot = home.slot();
        let well = |result: Result<(), String>| result.unwrap_or_else(|error| panic!("{error}"));
        let mut at = cluster.place_of(slot).unwrap_or_else(|error| panic!("{error}"));
        for turn in 0..MOVES {
            // To and fro between two, then round all three.
            let to = if turn % 3 == 2 { (at + 1) % 3 } else { (at + 2) % 3 };
            let seen = charged.load(SeqCst);
            well(cluster.move_slot(slot, at, to));
            at = to;
            well(until("it is charged between two moves, too", PATIENT, || match charged.load(SeqCst) {
                now if now > seen + 20 => Ok(()),
                now => Err(format!("{now}")),
            }));
            well(all_know(&cluster, slot, at));
        }
    });
    let took = watch.elapsed();
    let stats = store.stats();
    assert!(
        troubles(&store, "moved") > 0 && troubles(&store, "ask") > 0,
        "it did not move under load: {stats:?}"
    );
    let refreshes_max = took.as_secs() + 2;
    assert!(stats.refreshes <= refreshes_max, "{} readings of the map in {took:?}", stats.refreshes);
    assert_eq!(stats.disagreements, 0);
    let mut counted = 0;
    with(&store, async |counters| {
        for number in 0..KEYS {
            counted += used(counters, home.beside(number), &limit).await;
        }
    });
    println!(
        "{kind:?}: {MOVES} moves in {took:?}, {halves:?} met half a slot, {} redirects",
        stats.redirects
    );
    assert_eq!(counted, charged.load(SeqCst));
    nothing_lives_for_ever(cluster.immortal_keys(&[]));
}

/// Waits until all servers know who has a slot, and that this is the newest there is to know: a server that claims another slot before
/// that may claim it under the same number as this one, and one of the two loses.
fn all_know(cluster: &Cluster, slot: u16, owner: usize) -> Result<(), String> {
    let address = format!(" {}@", cluster.servers()[owner].address());
    until("all know who has a slot", PATIENT, || {
        cluster.servers().iter().try_for_each(|server| {
            let nodes = server.try_command(&["CLUSTER", "NODES"])?.text().unwrap_or_default();
            let epoch = |line: &str| line.split(' ').nth(6).and_then(|epoch| epoch.parse::<u64>().ok());
            let is_owner = |line: &&str| line.contains(&address);
            let own = nodes.lines().find(is_owner).ok_or_else(|| nodes.clone())?;
            let has = own.split(' ').skip(8).any(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let bounds = (first.parse::<u16>(), last.parse::<u16>());
                matches!(bounds, (Ok(first), Ok(last)) if (first..=last).contains(&slot))
            });
            let is_newest = nodes.lines().filter(|line| !is_owner(line)).all(|line| epoch(line) < epoch(own));
            if has && is_newest { Ok(()) } else { Err(nodes.clone()) }
        })
    })
}

#[test]
fn row_6_what_is_charged_while_slots_of_redis_move_is_charged_once() {
    moved_under_load(Kind::Redis);
}

#[test]
fn row_6_what_is_charged_while_slots_of_valkey_move_is_charged_once() {
    moved_under_load(Kind::Valkey);
}

/// One of two counters has moved, the other has not. A request of both is tried four times at most and fails, and neither is charged;
/// each alone is charged; when the move has ended, so are both.
fn half_moved(kind: Kind) {
    let cluster = cluster(kind, 0);
    let store = store(&cluster.url(), PATIENT);
    let limit = Limit::sliding_window(100, HOUR).expect("a limit");
    let (here, there) = (Counter::of(5), Counter::of(5).beside(0));
    let slot = here.slot();
    let from = cluster.place_of(slot).unwrap_or_else(|error| panic!("{error}"));
    let to = (from + 1) % 3;
    let well = |result: Result<(), String>| result.unwrap_or_else(|error| panic!("{error}"));
    with(&store, async |counters| {
        let both = [here.charge(&limit, 1), there.charge(&limit, 1)];
        assert!(ask(counters, &both).await.expect("it is whole").admitted);
        well(cluster.begin_move(slot, from, to));
        well(cluster.move_key(there.name(), from, to));
        for failures in 1..=5 {
            let why = ask(counters, &both).await.expect_err("no server has both");
            assert!(why.why.contains("TRYAGAIN"), "{why}");
            let tried = troubles(&store, "tryagain");
            assert_eq!(tried, 4 * failures, "once, and three times more");
            let now = (used(counters, here, &limit).await, used(counters, there, &limit).await);
            assert_eq!(now, (1, 1), "charged in part");
        }
        assert!(ask(counters, &both[..1]).await.expect("it is still there").admitted);
        assert!(ask(counters, &both[1..]).await.expect("it has moved").admitted);
        well(cluster.move_key(here.name(), from, to));
        well(cluster.finish_move(slot, from, to));
        assert!(ask(counters, &both).await.expect("it is whole again").admitted);
        let now = (used(counters, here, &limit).await, used(counters, there, &limit).await);
        assert_eq!(now, (3, 3));
    });
    nothing_lives_for_ever(cluster.immortal_keys(&[]));
}

#[test]
fn row_7_a_slot_of_redis_that_is_moved_by_half_charges_nothing_in_part() {
    half_moved(Kind::Redis);
}

#[test]
fn row_7_a_slot_of_valkey_that_is_moved_by_half_charges_nothing_in_part() {
    half_moved(Kind::Valkey);
}
