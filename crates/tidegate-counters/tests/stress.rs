//! Exact under concurrency: many threads on one key, on several keys in every order, and on a table so small that everything that can
//! happen to a slot happens while somebody asks about it.
//!
//! There are more threads than cores, so that holders of locks are put to sleep; and nobody sleeps by himself: time is told.

#[allow(dead_code, reason = "each test uses a part of it")]
mod common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use common::*;
use tidegate_core::{Algorithm, Ask, Key, Limit, LimitError, Micros, Policy, Role, Tag};
use tidegate_counters::{Batch, Memory, Take};

/// Miri looks at every access and takes a thousand times as long: there the numbers are smaller, and the code is the same.
const fn scaled(natively: u64, in_miri: u64) -> u64 {
    if cfg!(miri) { in_miri } else { natively }
}

const THREADS: usize = scaled(12, 3) as usize;
/// Room for everything that these tests keep.
const ARENA: usize = scaled(1 << 20, 1 << 14) as usize;

/// All kinds but places, which are held and not spent. For Miri one of each layout.
fn spending_limits(amount: u64, window: Micros) -> Result<Vec<Limit>, LimitError> {
    let mut limits = every_limit(amount, window)?;
    limits.retain(|limit| limit.algorithm() != Algorithm::Concurrency);
    if cfg!(miri) {
        use Algorithm::{FixedWindow, Gcra, SlidingLog, SlidingWindow};
        limits.retain(|limit| [FixedWindow, Gcra, SlidingLog, SlidingWindow].contains(&limit.algorithm()));
    }
    Ok(limits)
}

/// The same asks one after the other on the core alone: how many of `asks` are admitted at each of some times.
fn admitted_alone(limit: &Limit, times: &[Micros], asks: u64) -> Vec<u64> {
    let mut state = limit.state();
    let admitted = |now: &Micros| {
        let asks = (0..asks).filter(|_| limit.step(&mut state, Ask::Charge { cost: 1 }, *now).admitted());
        asks.count() as u64
    };
    times.iter().map(admitted).collect()
}

/// Many threads ask at some times, all of them at the same: how many are admitted at each.
fn admitted_in_race(memory: &Memory, key: Key, limit: &Limit, times: &[Micros], asks: u64) -> Vec<u64> {
    let next = Barrier::new(THREADS);
    let counts = race(THREADS, |_| {
        let admitted = |now: &Micros| {
            next.wait(); // Everybody is done with the time before.
            (0..asks).filter(|_| charge(memory, key, limit, 1, *now).admitted()).count() as u64
        };
        times.iter().map(admitted).collect::<Vec<_>>()
    });
    (0..times.len()).map(|at| counts.iter().map(|count| count[at]).sum()).collect()
}

#[test]
fn one_key_admits_exactly_its_limit() -> Result<(), LimitError> {
    let amount = scaled(1_000, 10);
    let asks = scaled(200, 5);
    let memory = memory(4_096, ARENA);
    for (number, limit) in spending_limits(amount, MINUTE)?.iter().enumerate() {
        let admitted = admitted_in_race(&memory, key(number as u64), limit, &[START], asks);
        assert_eq!(admitted, [amount], "{limit}");
        assert_eq!(inspect(&memory, key(number as u64), limit, START).used, amount, "{limit}");
    }
    Ok(())
}

#[test]
fn while_budget_returns_one_key_admits_what_the_law_alone_would() -> Result<(), LimitError> {
    let (amount, window) = (scaled(230, 6), MINUTE);
    let asks = scaled(40, 3);
    let memory = memory(4_096, ARENA);
    // Three windows in steps that no window, sub-window or cell is a multiple of, from the start of a window on.
    let start_us = START.get() / window.get() * window.get();
    let steps = scaled(24, 3);
    let step_us = 3 * window.get() / steps + 1_234_567;
    let times: Vec<Micros> = (0..steps).map(|step| Micros::new(start_us + step * step_us)).collect();
    for (number, limit) in spending_limits(amount, window)?.iter().enumerate() {
        let admitted = admitted_in_race(&memory, key(number as u64), limit, &times, asks);
        assert_eq!(admitted, admitted_alone(limit, &times, asks * THREADS as u64), "{limit}");
        // Callers kept asking at each instant, so the window that ends there is as full as the limit's bound allows.
        let cell = amount.div_ceil(20);
        let (least, most) = match limit.algorithm() {
            Algorithm::SlidingLog => (amount, amount),
            Algorithm::SlidingWindow if limit.to_string().ends_with("strict") => {
                (amount - (cell - 1), amount)
            }
            Algorithm::SlidingWindow => (amount - (cell - 1), amount + (cell - 1)),
            _ => continue,
        };
        for (at, now) in times.iter().enumerate() {
            let inside = |(time, _): &(&Micros, &u64)| time.get() + window.get() > now.get();
            let held: u64 =
                times.iter().zip(&admitted).take(at + 1).filter(inside).map(|(_, units)| units).sum();
            assert!((least..=most).contains(&held), "{limit}: {held} within a window");
        }
    }
    Ok(())
}

#[test]
fn each_aligned_window_admits_exactly_its_limit_while_the_clock_runs() -> Result<(), LimitError> {
    let amount = scaled(300, 5);
    let memory = memory(4_096, 1 << 16);
    let limit = Limit::fixed_window(amount, SECOND)?;
    // Each ask moves the clock: some threads come with a time of the window before, and are judged in this one.
    let asks = scaled(2_000, 10);
    let clock = AtomicU64::new(START.get());
    let step_us = 3 * SECOND.get() / (asks * THREADS as u64);
    let admitted = race(THREADS, |_| {
        let now = || Micros::new(clock.fetch_add(step_us, Ordering::Relaxed));
        let verdicts = (0..asks).map(|_| charge(&memory, key(1), &limit, 1, now()));
        let admitted = verdicts.filter(|verdict| verdict.admitted());
        admitted.map(|verdict| verdict.at.get() / SECOND.get()).collect::<Vec<_>>()
    });
    for window in 0..3 {
        let window = START.get() / SECOND.get() + window;
        let in_window = admitted.iter().flatten().filter(|at| **at == window).count() as u64;
        assert_eq!(in_window, amount);
    }
    Ok(())
}

#[test]
fn a_bucket_admits_its_burst_and_what_leaks_meanwhile_to_the_unit() -> Result<(), LimitError> {
    let (amount, burst) = (777, scaled(150, 8));
    let asks = scaled(3_000, 6);
    let memory = memory(4_096, 1 << 16);
    let limits = [
        Limit::token_bucket(amount, SECOND, Some(burst))?,
        Limit::gcra(amount, SECOND, Some(burst))?,
        Limit::leaky_bucket(amount, SECOND, Some(burst))?,
        // Too long a window for a slot: its level is in the arena.
        Limit::token_bucket(1_000, Micros::from_secs(36_000), Some(burst))?,
    ];
    for (number, limit) in limits.iter().enumerate().skip(scaled(0, 2) as usize) {
        let key = key(number as u64);
        let (rate, window_us) = (u64::from(limit.amount()), limit.window().expect("a window").get());
        // Less than a unit leaks between two asks, so that the bucket is never empty and nothing leaks in vain. And all of it takes less
        // than a window or 5 s: a thread that comes later than that with its time looks like a broken clock, which is repaired.
        let patience_us = window_us.max(5_000_000) * 9 / 10;
        let step_us = (window_us / rate / 2).clamp(1, patience_us / (asks * THREADS as u64));
        let clock = AtomicU64::new(START.get());
        let mut admitted: u64 =
            (0..burst + 1).map(|_| charge(&memory, key, limit, 1, START).applied as u64).sum();
        assert_eq!(admitted, burst, "{limit}");
        let end = Micros::new(START.get() + asks * THREADS as u64 * step_us);
        let finish = Barrier::new(THREADS);
        admitted += race(THREADS, |_| {
            let now = || Micros::new(step_us + clock.fetch_add(step_us, Ordering::Relaxed));
            let meanwhile: i64 = (0..asks).map(|_| charge(&memory, key, limit, 1, now()).applied).sum();
            finish.wait();
            let rest: i64 = (0..burst).map(|_| charge(&memory, key, limit, 1, end).applied).sum();
            (meanwhile + rest) as u64
        })
        .iter()
        .sum::<u64>();
        let leaked = u128::from(end.get() - START.get()) * u128::from(rate) / u128::from(window_us);
        assert_eq!(u128::from(admitted), u128::from(burst) + leaked, "{limit}");
    }
    Ok(())
}

#[test]
fn a_log_never_holds_more_than_its_limit_in_any_window() -> Result<(), LimitError> {
    let amount = scaled(100, 3);
    let asks = scaled(500, 8);
    let memory = memory(4_096, ARENA);
    for (number, limit) in
        [Limit::sliding_log(amount, SECOND)?, Limit::sliding_window_strict(amount, SECOND)?]
            .iter()
            .enumerate()
    {
        let clock = AtomicU64::new(START.get());
        let step_us = 4 * SECOND.get() / (asks * THREADS as u64);
        let mut times: Vec<u64> = race(THREADS, |_| {
            let now = || Micros::new(clock.fetch_add(step_us, Ordering::Relaxed));
            let verdicts = (0..asks).map(|_| charge(&memory, key(number as u64), limit, 1, now()));
            verdicts.filter(|verdict| verdict.admitted()).map(|verdict| verdict.at.get()).collect::<Vec<_>>()
        })
        .into_iter()
        .flatten()
        .collect();
        times.sort_unstable();
        assert!(times.len() as u64 > 2 * amount, "{limit}: budget returned");
        for window in times.windows(amount as usize + 1) {
            assert!(window[amount as usize] - window[0] >= SECOND.get(), "{limit}");
        }
    }
    Ok(())
}

#[test]
fn places_are_never_held_twice_and_all_come_back() -> Result<(), LimitError> {
    let limit = Limit::concurrency(5, HOUR)?;
    let memory = memory(4_096, 1 << 16);
    let held = AtomicI64::new(0);
    let admitted: u64 = race(THREADS, |number| {
        let mut admitted = 0;
        for round in 0..scaled(2_000, 6) {
            let id = 1 + number as u64 + round * THREADS as u64;
            let now = Micros::new(START.get() + round);
            if ask(&memory, key(1), &limit, Ask::Acquire { id, cost: 1 + round % 2 }, now).admitted() {
                admitted += 1;
                let places = 1 + (round % 2) as i64;
                // Counted after the place is taken and before it is given back: never more than are held.
                assert!(held.fetch_add(places, Ordering::Relaxed) + places <= 5);
                assert!(ask(&memory, key(1), &limit, Ask::Renew { id }, now).admitted());
                held.fetch_sub(places, Ordering::Relaxed);
                assert_eq!(ask(&memory, key(1), &limit, Ask::Release { id }, now).applied, -places);
            }
        }
        admitted
    })
    .iter()
    .sum();
    assert!(admitted > 0);
    assert_eq!(inspect(&memory, key(1), &limit, START).used, 0);
    Ok(())
}

#[test]
fn over_several_keys_all_are_charged_or_none() -> Result<(), LimitError> {
    // Room for some hundred requests each, so that soon some refuse and others do not.
    let amounts = [400, 700, 250, 900, 300, 600, 500, 800, 350, 450];
    let limit =
        |(at, amount)| spending_limits(amount / scaled(1, 50), HOUR).map(|mut all| all.swap_remove(at));
    let kinds = spending_limits(1, HOUR)?.len();
    let limits = amounts.into_iter().enumerate().take(kinds).map(limit).collect::<Result<Vec<_>, _>>()?;
    // In the larger table hardly a set is shared, in the smaller one most are: so locks are waited for in every order.
    for slots in [1 << 16, 512] {
        let memory = memory(slots, ARENA);
        let rounds = scaled(1_000, 3);
        let charged = race(THREADS, |number| {
            let mut dice = Dice::new(number as u64 + 1);
            let mut batch = Batch::new();
            let (mut charged, mut refused) = (vec![0_u64; limits.len()], 0_u64);
            for _ in 0..rounds {
                let takes = [2, 3, 8][dice.roll(3) as usize];
                // A turn of the list, forwards or backwards: so every pair of keys is locked in both orders.
                let (from, back) = (dice.roll(10) as usize, dice.roll(2) == 1);
                let cost = 1 + dice.roll(3);
                let turn = (0..takes).map(|at| if back { from + 20 - at } else { from + at } % limits.len());
                batch.clear();
                batch.push(turn.clone().map(|at| Take {
                    key: key(at as u64),
                    tag: Tag::default(),
                    name: None,
                    limit: &limits[at],
                    ask: Ask::Charge { cost },
                    role: Role::Enforce,
                    policy: Policy::default(),
                }));
                memory.take_now(&mut batch, START);
                let applied = batch.answers(0).iter().map(|answer| answer.verdict.applied);
                if batch.admitted(0) {
                    turn.for_each(|at| charged[at] += cost);
                    assert!(applied.eq(std::iter::repeat_n(cost as i64, takes)));
                } else {
                    refused += 1;
                    assert!(applied.eq(std::iter::repeat_n(0, takes)));
                }
            }
            (charged, refused)
        });
        assert!(charged.iter().map(|(_, refused)| refused).sum::<u64>() > 0, "some were refused");
        assert_eq!(memory.stats().evicted_live, 0, "everything was remembered");
        for (at, limit) in limits.iter().enumerate() {
            let admitted: u64 = charged.iter().map(|(charged, _)| charged[at]).sum();
            assert!(cfg!(miri) || admitted > 0);
            assert_eq!(inspect(&memory, key(at as u64), limit, START).used, admitted, "{limit}");
        }
    }
    Ok(())
}

/// What a thread does to a small table, one thing after the other.
fn meddle(memory: &Memory, limits: &[Limit], clock: &AtomicU64, mut dice: Dice, operations: u64) {
    const KEYS: u64 = 60;
    let mut batch = Batch::new();
    for _ in 0..operations {
        // Now and then so long a pause that most are idle after it.
        let pause_us = if dice.roll(500) == 0 { 10_000_000 } else { dice.roll(20_000) };
        let now = Micros::new(clock.fetch_add(pause_us, Ordering::Relaxed));
        // A key is always asked about by the same limit.
        let (number, cost) = (dice.roll(KEYS), 1 + dice.roll(4));
        let limit_of = |number: u64| &limits[number as usize % limits.len()];
        let take = |number: u64, ask| Take {
            key: key(number),
            tag: Tag::default(),
            name: None,
            limit: limit_of(number),
            ask,
            role: Role::Enforce,
            policy: Policy::default(),
        };
        match dice.roll(20) {
            0 => {
                reset(memory, key(number));
            }
            1 => memory.sweep(now),
            2 => drop(inspect(memory, key(number), limit_of(number), now)),
            3 => drop(ask(memory, key(number), limit_of(number), Ask::Release { id: cost }, now)),
            4 => drop(ask(
                memory,
                key(number),
                limit_of(number),
                Ask::Refund { units: cost, receipt: None },
                now,
            )),
            5..=9 => {
                batch.clear();
                let ask = Ask::Acquire { id: cost, cost };
                for _ in 0..2 {
                    let takes: Vec<u64> = (0..1 + dice.roll(6)).map(|_| dice.roll(KEYS)).collect();
                    batch.push(takes.iter().map(|number| take(*number, ask)));
                }
                memory.take_now(&mut batch, now);
            }
            _ => drop(charge(memory, key(number), limit_of(number), cost, now)),
        }
    }
}

/// Tables in which eviction, moves between sets, want of room in the arena, sweeps and resets happen all the time.
#[test]
fn in_a_tiny_table_nothing_is_lost_but_counts() -> Result<(), LimitError> {
    let mut limits = every_limit(50, Micros::from_millis(240))?;
    // States that grow and shrink by a factor of a hundred, up to chains of several regions.
    limits.push(Limit::sliding_log(400, HOUR)?);
    limits.push(Limit::concurrency(400, SECOND)?);
    limits.push(Limit::sub_window(50, SECOND, Some(scaled(1_000, 20) as u32), false)?);
    let sizes = [(128, 4_096), (512, 2 * 4_096), (128, 3 * 4_096), (1_024, 10 * 4_096), (512, 0)];
    for (slots, arena) in sizes.into_iter().take(scaled(5, 2) as usize) {
        let memory = memory(slots, arena);
        let clock = AtomicU64::new(START.get());
        let operations = scaled(5_000, 8);
        race(THREADS, |number| meddle(&memory, &limits, &clock, Dice::new(number as u64 + 1), operations));
        let now = Micros::new(clock.load(Ordering::Relaxed));
        let stored = |number: &u64| {
            inspect(&memory, key(*number), &limits[*number as usize % limits.len()], now).stored
        };
        let stats = memory.stats();
        assert_eq!(stats.keys, (0..60).filter(stored).count() as u64, "{slots} {arena}: {stats:?}");
        assert!(stats.keys <= stats.slots && stats.arena_used <= stats.arena_bytes, "{stats:?}");
        assert!(cfg!(miri) || stats.evicted_live > 0 && stats.expired > 0, "{slots} {arena}: {stats:?}");
        for number in 0..60 {
            reset(&memory, key(number));
        }
        let stats = memory.stats();
        assert_eq!((stats.keys, stats.arena_used), (0, 0), "{slots} {arena}");
    }
    Ok(())
}
