//! What the model checker tries in every order: two or three threads on a table of two sets, as it is shipped.
//!
//! `cargo xtask test races`, or with a target folder of its own:
//! `RUSTFLAGS="--cfg loom" cargo test --profile models -p tidegate-counters --lib models`.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use tidegate_core::{Ask, Era, Key, Limit, Micros, Policy, Role, Tag};

use super::table::{Home, SET_SLOTS};
use super::{Memory, MemorySize, Stats};
use crate::{Batch, Take};

const NOW: Micros = Micros::from_secs(1_800_000_000);
const MINUTE: Micros = Micros::from_secs(60);
/// A region of the model checker's arena.
const REGION: usize = super::arena::REGION_WORDS * size_of::<u64>();

/// Tries every order of what the threads of a model do, with up to so many switches at places where nobody had to wait.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// Two sets, and an arena of so many regions.
fn memory(regions: usize) -> Arc<Memory> {
    let size = MemorySize { slots: MemorySize::SLOTS_MIN, arena: regions * REGION };
    Arc::new(Memory::new(size, NOW).expect("memory"))
}

fn fixed(amount: u64) -> Limit {
    Limit::fixed_window(amount, MINUTE).expect("a limit")
}

fn cells(amount: u64) -> Limit {
    Limit::sliding_window(amount, MINUTE).expect("a limit")
}

/// So many keys whose first set and other set are these.
fn keys_at(memory: &Memory, first: usize, second: usize, count: usize) -> Vec<Key> {
    let key = |number: u128| Key::of_bits((first as u128) << 127 | number);
    let is_there = |key: &Key| matches!(memory.table.home(*key), Home { first: f, second: s, .. } if (f, s) == (first, second));
    // No two lists share a tag: a table cannot tell a key from another with the same tag and the same two sets.
    let keys: Vec<Key> = (1 + 1_000 * first as u128..).map(key).filter(is_there).take(count).collect();
    assert_eq!(keys.len(), count);
    keys
}

/// One request of several takes; says whether it was admitted.
fn request(memory: &Memory, takes: &[(Key, &Limit)], cost: u64, now: Micros) -> bool {
    let ask = Ask::Charge { cost };
    let mut batch = Batch::new();
    batch.push(takes.iter().map(|(key, limit)| Take {
        key: *key,
        tag: Tag::default(),
        name: None,
        limit,
        ask,
        role: Role::Enforce,
        policy: Policy::default(),
    }));
    memory.take_now(&mut batch, now);
    batch.admitted(0)
}

fn charge(memory: &Memory, key: Key, limit: &Limit, now: Micros) -> bool {
    request(memory, &[(key, limit)], 1, now)
}

fn used(memory: &Memory, key: Key, limit: &Limit, now: Micros) -> u64 {
    memory.inspect_now(key, limit, now).used
}

/// Runs the same on two threads, told 0 and 1.
fn on_two(memory: &Arc<Memory>, run: impl Fn(&Memory, usize) + Send + Sync + Clone + 'static) {
    let (theirs, them) = (memory.clone(), run.clone());
    let other = thread::spawn(move || them(&theirs, 1));
    run(memory, 0);
    other.join().expect("a thread that ends well");
}

/// After everything was forgotten nothing is left.
fn check_empty(memory: &Memory, keys: &[Key]) {
    for key in keys {
        memory.reset_now(*key);
    }
    let Stats { keys, arena_used, .. } = memory.stats();
    assert_eq!((keys, arena_used), (0, 0));
}

#[test]
fn a_key_that_two_threads_bring_at_once_is_one_counter() {
    for limit in [fixed(1), cells(1)] {
        check(1, move || {
            let memory = memory(1);
            let key = keys_at(&memory, 0, 1, 1)[0];
            let admitted = Arc::new(AtomicU64::new(0));
            let (limit, count) = (limit.clone(), admitted.clone());
            on_two(&memory, move |memory, _| {
                count.fetch_add(charge(memory, key, &limit, NOW).into(), Ordering::Relaxed);
            });
            assert_eq!(admitted.load(Ordering::Relaxed), 1);
            assert_eq!(memory.stats().keys, 1);
            check_empty(&memory, &[key]);
        });
    }
}

#[test]
fn two_threads_admit_exactly_the_limit() {
    for limit in [fixed(3), cells(3), Limit::gcra(3, MINUTE, None).expect("a limit")] {
        check(3, move || {
            let memory = memory(2);
            let key = keys_at(&memory, 0, 1, 1)[0];
            assert!(charge(&memory, key, &limit, NOW));
            let admitted = Arc::new(AtomicU64::new(1));
            let (asked, count) = (limit.clone(), admitted.clone());
            on_two(&memory, move |memory, number| {
                let asks = 1 + number as u64; // Three, and two are left.
                let passed = (0..asks).filter(|_| charge(memory, key, &asked, NOW)).count() as u64;
                count.fetch_add(passed, Ordering::Relaxed);
            });
            assert_eq!(admitted.load(Ordering::Relaxed), 3);
            assert_eq!(used(&memory, key, &limit, NOW), 3);
        });
    }
}

#[test]
fn three_threads_admit_exactly_the_limit() {
    check(1, || {
        let memory = memory(0);
        let (key, limit) = (keys_at(&memory, 0, 1, 1)[0], fixed(3));
        assert!(charge(&memory, key, &limit, NOW)); // Two are left.
        let admitted = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (memory, limit, admitted) = (memory.clone(), limit.clone(), admitted.clone());
                thread::spawn(move || {
                    admitted.fetch_add(charge(&memory, key, &limit, NOW).into(), Ordering::Relaxed);
                })
            })
            .collect();
        let here = charge(&memory, key, &limit, NOW);
        threads.into_iter().for_each(|thread| thread.join().expect("a thread that ends well"));
        assert_eq!(admitted.load(Ordering::Relaxed) + u64::from(here), 2);
        assert_eq!(used(&memory, key, &limit, NOW), 3);
    });
}

#[test]
fn requests_over_two_keys_in_both_orders_end_and_charge_all_or_nothing() {
    // Of `a` two are left, of `b` one; whose state is in the arena, or packed.
    for of_b in [cells(2), fixed(2)] {
        check(1, move || {
            let memory = memory(1);
            let (a, b) = (keys_at(&memory, 0, 1, 1)[0], keys_at(&memory, 1, 0, 1)[0]);
            let of_a = fixed(3);
            assert!(request(&memory, &[(a, &of_a), (b, &of_b)], 1, NOW));
            let admitted = Arc::new(AtomicU64::new(0));
            let (limits, count) = ((of_a.clone(), of_b.clone()), admitted.clone());
            on_two(&memory, move |memory, number| {
                let mut takes = [(a, &limits.0), (b, &limits.1)];
                takes.rotate_left(number);
                count.fetch_add(request(memory, &takes, 1, NOW).into(), Ordering::Relaxed);
            });
            assert_eq!(admitted.load(Ordering::Relaxed), 1);
            assert_eq!((used(&memory, a, &of_a, NOW), used(&memory, b, &of_b, NOW)), (2, 2));
        });
    }
}

#[test]
fn a_key_that_is_moved_to_its_other_set_is_found_there() {
    check(1, || {
        let memory = memory(1);
        let limit = fixed(3);
        // The first set is full of keys that could be in either; a new one that may only be here makes one of them move.
        let movable = keys_at(&memory, 0, 1, SET_SLOTS);
        let new = keys_at(&memory, 0, 0, 1)[0];
        for key in &movable {
            assert!(charge(&memory, *key, &limit, NOW));
        }
        let (taken, asked) = (movable[0], limit.clone());
        on_two(&memory, move |memory, number| {
            assert!(charge(memory, if number == 0 { new } else { taken }, &asked, NOW));
        });
        assert_eq!(used(&memory, taken, &limit, NOW), 2);
        assert_eq!(used(&memory, new, &limit, NOW), 1);
        assert!(movable[1..].iter().all(|key| used(&memory, *key, &limit, NOW) == 1));
        assert_eq!((memory.stats().keys, memory.stats().evicted_live), (5, 0));
    });
}

#[test]
fn a_key_that_is_forgotten_while_it_is_asked_about_starts_anew_or_stays() {
    check(1, || {
        let memory = memory(2);
        let limit = cells(3);
        // The first set is full of keys that may only be here: a new one makes one of them be forgotten.
        let keys = keys_at(&memory, 0, 0, SET_SLOTS + 1);
        let (new, old) = (keys[SET_SLOTS], keys[0]);
        for key in &keys[..SET_SLOTS] {
            assert!(charge(&memory, *key, &limit, NOW));
        }
        let asked = limit.clone();
        on_two(&memory, move |memory, number| {
            assert!(charge(memory, if number == 0 { new } else { old }, &asked, NOW));
        });
        let stats = memory.stats();
        assert!(used(&memory, old, &limit, NOW) <= 2);
        assert_eq!(stats.keys, 4);
        assert!((1..=2).contains(&stats.evicted_live), "{stats:?}");
        check_empty(&memory, &keys);
    });
}

#[test]
fn states_that_fight_for_the_last_room_of_the_arena_stay_whole() {
    check(1, || {
        // Three units: there are three states, and each of two wants another unit.
        let memory = memory(1);
        let limit = Limit::sliding_log(9, MINUTE).expect("a limit");
        let (a, b, c) = {
            let (low, high) = (keys_at(&memory, 0, 0, 2), keys_at(&memory, 1, 1, 1));
            (low[0], high[0], low[1])
        };
        for key in [a, b, c] {
            assert!(charge(&memory, key, &limit, NOW));
        }
        let asked = limit.clone();
        on_two(&memory, move |memory, number| {
            // Another instant, so that the log has another entry: more words than its unit has.
            assert!(request(
                memory,
                &[(if number == 0 { a } else { b }, &asked)],
                2,
                NOW.plus(Micros::new(1))
            ));
        });
        let later = NOW.plus(Micros::new(1));
        for key in [a, b] {
            // As it was, as it became, or forgotten by the other and begun again; nothing else.
            assert!([0, 1, 2, 3].contains(&used(&memory, key, &limit, later)));
        }
        assert!([0, 1].contains(&used(&memory, c, &limit, later)));
        check_empty(&memory, &[a, b, c]);
    });
}

#[test]
fn a_sweep_forgets_the_dead_and_not_the_one_that_comes_back() {
    check(2, || {
        let memory = memory(1);
        let limit = cells(2);
        let keys = keys_at(&memory, 0, 1, 2);
        for key in &keys {
            assert!(charge(&memory, *key, &limit, NOW));
        }
        let later = NOW.plus(MINUTE).plus(MINUTE);
        let (back, asked) = (keys[0], limit.clone());
        on_two(&memory, move |memory, number| {
            if number == 0 {
                memory.sweep_sets(2, later);
            } else {
                assert!(request(memory, &[(back, &asked)], 2, later));
            }
        });
        assert_eq!(used(&memory, back, &limit, later), 2);
        check_empty(&memory, &keys);
    });
}

#[test]
fn while_the_reference_moves_packed_times_are_read_right() {
    check(1, || {
        let memory = memory(1);
        // A unit leaks every 4 minutes; it is alive for all the hours that the reference moves by.
        let limit = Limit::gcra(60, Micros::from_secs(4 * 3_600), None).expect("a limit");
        let key = keys_at(&memory, 0, 1, 1)[0];
        assert!(request(&memory, &[(key, &limit)], 60, NOW));
        let asked = limit.clone();
        let soon = NOW.plus(Micros::from_secs(4 * 60));
        let part = |parts: u64| NOW.plus(Micros::new(Era::REACH.get() / 20 * parts));
        on_two(&memory, move |memory, number| {
            if number == 0 {
                // A round, another, and the start of a third.
                memory.sweep_sets(2, part(1));
                memory.sweep_sets(2, part(2));
                memory.sweep_sets(1, part(3));
            } else {
                assert!(charge(memory, key, &asked, soon) && !charge(memory, key, &asked, soon));
            }
        });
        assert_eq!(used(&memory, key, &limit, soon), 60);
        assert_eq!(memory.reference.load(super::sync::Ordering::Relaxed), part(2).get());
        assert_eq!(memory.stats().arena_used, 0, "it was packed all the time");
    });
}

#[test]
fn a_snapshot_sees_each_state_whole() {
    check(4, || {
        let memory = memory(2);
        let limit = Limit::sliding_log(9, MINUTE).expect("a limit");
        let key = keys_at(&memory, 0, 1, 1)[0];
        assert!(charge(&memory, key, &limit, NOW));
        let later = NOW.plus(Micros::new(1));
        let snapshot = |memory: &Memory| {
            let mut file = Vec::new();
            memory.write_snapshot(&mut file, &[0; 16], NOW).expect("a list takes everything");
            file
        };
        let before = snapshot(&memory);
        let reader = memory.clone();
        let other = thread::spawn(move || snapshot(&reader));
        assert!(request(&memory, &[(key, &limit)], 2, later));
        let meanwhile = other.join().expect("a thread that ends well");
        assert!(meanwhile == before || meanwhile == snapshot(&memory));
        check_empty(&memory, &[key]);
    });
}
