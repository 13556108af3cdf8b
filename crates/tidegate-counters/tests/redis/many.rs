//! Several nodes, each with several threads, ask about few counters at once, in real time: what was admitted is exactly the limit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_core::{Ask, Limit, Micros};
use tidegate_counters::{Batch, Counters, RedisStore};
use tidegate_testbed::Kind;

use crate::support::{Counter, Dice, PATIENT, cluster, nothing_lives_for_ever, now, server, store, with};

const NODES: usize = 3;
const THREADS: usize = 2;
const KEYS: u32 = 3;
const REQUESTS: u64 = 200_000;
const BATCH: usize = 64;
const AMOUNT: u64 = 400;
const WINDOW: Micros = Micros::from_millis(400);

/// What was admitted and refused of each counter, by the store's time.
#[derive(Default)]
struct Heard {
    admitted: [Vec<u64>; KEYS as usize],
    refused: [Vec<u64>; KEYS as usize],
}

/// Asks 200 000 times, and at least for so long that several windows are over.
fn ask_many(url: &str, limit: &Limit) -> Heard {
    let stores: Vec<_> = (0..NODES).map(|_| store(url, PATIENT)).collect();
    let asked = AtomicU64::new(0);
    let begin = now();
    let one = |store: &std::sync::Arc<RedisStore>, seed: usize| {
        let (mut dice, mut heard) = (Dice::new(seed as u64), Heard::default());
        with(store, async |counters| {
            while asked.fetch_add(BATCH as u64, Relaxed) < REQUESTS
                || now().minus(begin) < WINDOW.plus(WINDOW).plus(WINDOW)
            {
                let mut batch = Batch::new();
                let picked: Vec<u32> = (0..BATCH).map(|_| dice.below(KEYS.into()) as u32).collect();
                for number in &picked {
                    let counter = Counter::of(*number + 10 * limit.algorithm() as u32);
                    let nothing = Ask::Refund { units: 1, receipt: None };
                    // A denial that is remembered does not answer for one who gives something back: every fourth goes to the store.
                    let second = (dice.below(4) == 0).then(|| counter.beside(1).take(limit, nothing));
                    batch.push([counter.charge(limit, 1)].into_iter().chain(second));
                }
                counters.take(&mut batch, now()).await;
                for (request, number) in picked.into_iter().enumerate() {
                    assert_eq!(batch.failure(request), None);
                    let told = if batch.admitted(request) { &mut heard.admitted } else { &mut heard.refused };
                    told[number as usize].push(batch.answers(request)[0].verdict.at.get());
                }
            }
        });
        heard
    };
    let mut all = Heard::default();
    std::thread::scope(|scope| {
        let one = &one;
        let threads = stores.iter().cycle().take(NODES * THREADS).enumerate();
        let threads: Vec<_> = threads.map(|(seed, store)| scope.spawn(move || one(store, seed))).collect();
        for thread in threads {
            let heard = thread.join().expect("no panic");
            for key in 0..KEYS as usize {
                all.admitted[key].extend(&heard.admitted[key]);
                all.refused[key].extend(&heard.refused[key]);
            }
        }
    });
    for key in 0..KEYS as usize {
        all.admitted[key].sort_unstable();
        all.refused[key].sort_unstable();
    }
    all
}

/// How many of these, which are in order, are after the one and not after the other.
fn between(all: &[u64], after: u64, to: u64) -> u64 {
    (all.partition_point(|at| *at <= to) - all.partition_point(|at| *at <= after)) as u64
}

/// In no aligned window more than the limit; in one in which anybody was refused, exactly the limit.
fn fixed_window(url: &str) {
    let limit = Limit::fixed_window(AMOUNT, WINDOW).expect("a limit");
    let heard = ask_many(url, &limit);
    let mut windows = 0;
    for (admitted, refused) in heard.admitted.iter().zip(&heard.refused) {
        let window = |at: &u64| at / WINDOW.get();
        let count = |of: u64| between(admitted, of * WINDOW.get() - 1, (of + 1) * WINDOW.get() - 1);
        let mut over: Vec<u64> = admitted.iter().map(window).collect();
        over.dedup();
        assert!(over.iter().all(|window| count(*window) <= AMOUNT), "above the limit");
        let mut full: Vec<u64> = refused.iter().map(window).collect();
        full.dedup();
        full.iter().for_each(|window| assert_eq!(count(*window), AMOUNT, "refused, and there was room"));
        windows += full.len();
    }
    assert!(windows >= 3 * KEYS as usize, "nobody was refused in most of them: {windows}");
}

/// In any window no more than the limit; at every refusal, at most so many less than it.
fn any_window(url: &str, limit: &Limit, less_max: u64) {
    let heard = ask_many(url, limit);
    for (admitted, refused) in heard.admitted.iter().zip(&heard.refused) {
        for at in admitted {
            assert!(between(admitted, at.saturating_sub(WINDOW.get()), *at) <= AMOUNT, "above the limit");
        }
        assert!(!refused.is_empty(), "nobody was refused");
        for at in refused {
            let there = between(admitted, at.saturating_sub(WINDOW.get()), *at);
            assert!(there + less_max >= AMOUNT, "refused, and there were only {there}");
        }
    }
}

fn all_of_them(url: &str) {
    fixed_window(url);
    any_window(url, &Limit::sliding_log(AMOUNT, WINDOW).expect("a limit"), 0);
    let cell = AMOUNT.div_ceil(20);
    any_window(url, &Limit::sliding_window_strict(AMOUNT, WINDOW).expect("a limit"), cell - 1);
}

#[test]
fn several_nodes_admit_exactly_the_limit_with_one_server() {
    let server = server(Kind::Redis);
    all_of_them(&server.url());
    nothing_lives_for_ever(server.immortal_keys(&[]));
}

#[test]
fn several_nodes_admit_exactly_the_limit_with_a_cluster() {
    let cluster = cluster(Kind::Redis, 0);
    all_of_them(&cluster.url());
    nothing_lives_for_ever(cluster.immortal_keys(&[]));
}
