//! Random scripts for one counter: charges, peeks, refunds, settlements, limits that go up and down, tiers that flip, clocks that jump.
//!
//! Steps are drawn as plain numbers and only then turned into a script, so that a failing script shrinks to a short one.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tidegate_oracle::{Algorithm, Calendar, Line, Op, Script, Spec, Unit, Weekday};

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;
/// Where scripts start: 2041, far enough from 1970 for any jump back.
const START_US: u64 = 1 << 51;

/// How many cases a property runs on: the same ones every time, or `TIDEGATE_PROOF` times as many, drawn anew.
pub(crate) fn proof(cases: u32) -> ProptestConfig {
    let times = std::env::var("TIDEGATE_PROOF").ok().and_then(|times| times.parse().ok()).unwrap_or(0);
    let rng_seed = if times == 0 { RngSeed::Fixed(0x71DE_6A7E) } else { RngSeed::Random };
    // A counterexample is kept as a script, which outlives a change of the generator; a seed does not.
    ProptestConfig {
        cases: cases * times.max(1),
        rng_seed,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// What a trace may hold.
#[derive(Clone, Copy)]
pub(crate) struct Mix {
    /// Clock readings may go back.
    pub(crate) jumps: bool,
    /// Limits change.
    pub(crate) changes: bool,
    /// Units are given back, reservations settled.
    pub(crate) refunds: bool,
    /// Refusals may be charged.
    pub(crate) always: bool,
}

/// Everything at once.
pub(crate) const EVERYTHING: Mix = Mix { jumps: true, changes: true, refunds: true, always: true };

/// One step, as drawn.
#[derive(Debug, Clone)]
struct Drawn {
    gap: u8,
    gap_part: u16,
    op: u8,
    cost: u8,
    part: u16,
    of: u8,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    (any::<u8>(), any::<u16>(), any::<u8>(), any::<u8>(), any::<u16>(), any::<u8>())
        .prop_map(|(gap, gap_part, op, cost, part, of)| Drawn { gap, gap_part, op, cost, part, of })
}

/// Scripts for one algorithm.
pub(crate) fn script(algorithm: Algorithm, mix: Mix) -> impl Strategy<Value = Script> {
    (shape(algorithm), prop::collection::vec(tier(), 1..4), prop::collection::vec(drawn(), 1..60))
        .prop_map(move |(shape, tiers, steps)| build(&shape, &tiers, &steps, mix))
}

/// Long scripts that fill the list of a cell log: the limit doubles while charges of a cell each come close together, and some are
/// given back.
pub(crate) fn crowded_script() -> impl Strategy<Value = Script> {
    let steps = prop::collection::vec((drawn(), 0..12_u8), 250..400);
    let start = (shape(Algorithm::SlidingWindow), 1..60_u64, prop::bool::weighted(0.8));
    (start, steps)
        .prop_map(|((shape, amount, always), steps)| crowd(Spec { amount, always, ..shape }, &steps))
}

fn crowd(mut spec: Spec, steps: &[(Drawn, u8)]) -> Script {
    let mut lines = vec![Line::Limit(spec.clone())];
    let (mut now, mut operations) = (START_US, 0);
    for (step, kind) in steps {
        if step.gap < 11 {
            spec.amount = (2 * spec.amount).min(1_000_000);
            lines.push(Line::Limit(spec.clone()));
            continue;
        }
        now += 1 + u64::from(step.gap_part) * spec.window_us / 65_536 / 400;
        let cell = spec.amount.div_ceil(20);
        let op = match kind {
            0 => op_of(&spec, step, operations, EVERYTHING),
            1 => Op::Charge { cost: 1 + u64::from(step.part) * cell / 65_536 },
            _ => Op::Charge { cost: cell },
        };
        lines.push(Line::At { us: now, op });
        operations += 1;
    }
    Script { lines }
}

/// Scripts for any algorithm.
pub(crate) fn any_script(mix: Mix) -> impl Strategy<Value = Script> {
    prop::sample::select(Algorithm::ALL.to_vec()).prop_flat_map(move |algorithm| script(algorithm, mix))
}

/// What stays the same while amounts change: algorithm, window, parts, zone.
fn shape(algorithm: Algorithm) -> impl Strategy<Value = Spec> {
    let windows = vec![
        1_000,
        1_001,
        7_000,
        250_000,
        SECOND,
        2 * SECOND,
        60 * SECOND,
        61 * SECOND,
        15 * 60 * SECOND,
        3_600 * SECOND,
        DAY,
        30 * DAY,
        366 * DAY,
    ];
    let zones = vec![
        "UTC",
        "Europe/Berlin",
        "America/St_Johns",
        "Asia/Kathmandu",
        "Pacific/Apia",
        "America/Sao_Paulo",
        "Africa/Monrovia",
    ];
    let units = vec![Unit::Day, Unit::Week, Unit::Month];
    let starts = vec![Weekday::Monday, Weekday::Sunday, Weekday::Thursday];
    (
        prop::sample::select(windows),
        any::<bool>(),
        prop::sample::select(vec![None, Some(1), Some(2), Some(5), Some(10)]),
        prop::sample::select(zones),
        prop::sample::select(units),
        prop::sample::select(starts),
    )
        .prop_map(move |(window_us, strict, parts, zone, unit, week_start)| {
            let mut spec = Spec::new(algorithm, 1, window_us);
            match algorithm {
                Algorithm::SlidingWindow => spec.strict = strict,
                Algorithm::SubWindow => {
                    spec.strict = strict;
                    spec.sub_windows = parts.filter(|k| window_us % u64::from(*k) == 0);
                }
                Algorithm::Concurrency => {
                    spec.window_us = 0;
                    spec.ttl_us = window_us;
                }
                Algorithm::Calendar => {
                    spec.window_us = 0;
                    spec.calendar = Some(Calendar { unit, zone: zone.to_owned(), week_start });
                }
                _ => {}
            }
            spec
        })
}

/// The numbers of one tier: amount, burst (as a choice), whether refusals are charged, another time to live.
#[derive(Debug, Clone)]
struct Tier {
    amount: u64,
    burst: Option<u64>,
    always: bool,
    ttl_parts: u64,
}

fn tier() -> impl Strategy<Value = Tier> {
    let usual = prop::sample::select(vec![1, 2, 3, 5, 10, 19, 20, 21, 41, 60, 100, 101, 1_000]);
    let large =
        prop::sample::select(vec![0, 9_999, 1_000_003, 900_000_000, (1 << 31) + 1, u64::from(u32::MAX)]);
    let amount = prop_oneof![9 => usual, 1 => large];
    let burst = prop_oneof![2 => Just(None), 1 => prop::sample::select(vec![1, 3, 10, 100, 1_000, u64::from(u32::MAX)]).prop_map(Some)];
    (amount, burst, prop::bool::weighted(0.3), 1..4_u64).prop_map(|(amount, burst, always, ttl_parts)| Tier {
        amount,
        burst,
        always,
        ttl_parts,
    })
}

/// The shape with a tier's numbers; amounts that this algorithm or window cannot hold are made smaller.
fn spec_of(shape: &Spec, tier: &Tier, mix: Mix) -> Spec {
    let mut spec = shape.clone();
    spec.amount = tier.amount;
    spec.always = tier.always && mix.always && spec.algorithm != Algorithm::Concurrency;
    if spec.algorithm.is_bucket() {
        spec.burst = tier.burst;
    }
    if spec.algorithm == Algorithm::Concurrency {
        spec.ttl_us = (shape.ttl_us * tier.ttl_parts).min(366 * DAY);
    }
    while crate::subject::limit(&spec).is_err() {
        spec.burst = spec.burst.map(|burst| burst / 10).filter(|burst| *burst > 0);
        if spec.burst.is_none() {
            spec.amount /= 10;
        }
    }
    spec
}

fn build(shape: &Spec, tiers: &[Tier], steps: &[Drawn], mix: Mix) -> Script {
    let specs: Vec<Spec> = tiers.iter().map(|tier| spec_of(shape, tier, mix)).collect();
    let mut spec = &specs[0];
    let mut lines = vec![Line::Limit(spec.clone())];
    let mut now = shape.calendar.as_ref().map_or(START_US, |calendar| odd_time(&calendar.zone));
    let mut operations = 0;
    for step in steps {
        if mix.changes && step.op < 16 && specs.len() > 1 {
            spec = &specs[usize::from(step.of) % specs.len()];
            lines.push(Line::Limit(spec.clone()));
            continue;
        }
        now = next_time(now, spec, step, mix);
        lines.push(Line::At { us: now, op: op_of(spec, step, operations, mix) });
        operations += 1;
    }
    Script { lines }
}

/// A day or two before something odd happened to the clocks of a zone.
fn odd_time(zone: &str) -> u64 {
    SECOND
        * match zone {
            "Europe/Berlin" => 1_711_670_000, // 29 March 2024: a day of 23 hours follows.
            "America/St_Johns" => 1_289_000_000, // 5 November 2010: midnight comes twice.
            "Pacific/Apia" => 1_325_100_000,  // 28 December 2011: the 30th is skipped.
            "America/Sao_Paulo" => 1_507_900_000, // 13 October 2017: midnight does not exist.
            "Africa/Monrovia" => 63_500_000,  // 5 January 1972: ahead by 44 minutes and 30 seconds.
            _ => START_US / SECOND,
        }
}

/// The next reading of the clock: the same instant, a little later, about a part or a window later, much later, or back.
fn next_time(now: u64, spec: &Spec, step: &Drawn, mix: Mix) -> u64 {
    let window = match spec.algorithm {
        Algorithm::Concurrency => spec.ttl_us,
        Algorithm::Calendar => DAY,
        _ => spec.window_us,
    };
    let part = |whole: u64| (u128::from(whole) * u128::from(step.gap_part) / 65_536) as u64;
    let aligned = |width: u64| (now / width + 1) * width - now;
    match step.gap {
        0..60 => now,
        60..90 => now + 1,
        90..130 => now + part(window / 20 + 1),
        130..150 => now + (window / 20 + u64::from(step.gap_part % 3)).saturating_sub(1),
        150..180 => now + part(window),
        180..200 => now + (window + u64::from(step.gap_part % 3)).saturating_sub(1),
        200..215 => now + (aligned(window) + u64::from(step.gap_part % 3)).saturating_sub(1),
        215..225 => now + part(3 * window),
        225..230 => now + 10 * window + part(window),
        _ if !mix.jumps => now + part(window / 4),
        230..240 => now - part(window),
        240..246 => now - (window.max(5 * SECOND) + u64::from(step.gap_part % 3)).saturating_sub(1),
        246..250 => now - part(12 * window),
        _ => now + part(window / 4),
    }
}

fn op_of(spec: &Spec, step: &Drawn, operations: usize, mix: Mix) -> Op {
    let capacity = if spec.algorithm.is_bucket() { spec.burst.unwrap_or(spec.amount) } else { spec.amount };
    let part = |whole: u64| 1 + (u128::from(whole) * u128::from(step.part) / 65_536) as u64;
    let cost = match step.cost {
        0..100 => 1,
        100..130 => 2,
        130..180 => part(capacity / 10),
        180..220 => part(capacity / 2),
        220..240 => part(capacity),
        240..246 => capacity.max(1),
        246..250 => capacity + 1,
        250..253 => u64::from(u32::MAX),
        253 => u64::MAX,
        _ => 0,
    };
    let of = if operations > 0 { usize::from(step.of) % operations } else { 0 };
    let id = u64::from(step.of % 5) + 1;
    match (spec.algorithm, step.op) {
        (Algorithm::Concurrency, 16..90) => Op::Acquire { id, cost },
        (Algorithm::Concurrency, 90..120) => Op::Renew { id },
        (Algorithm::Concurrency, 120..160) => Op::Release { id },
        (_, 16..32) => Op::Peek,
        (_, 32..50) if mix.refunds => Op::Refund { units: cost, of: None },
        (_, 50..80) if mix.refunds => Op::Refund { units: cost, of: Some(of) },
        (_, 80..110) if mix.refunds => Op::Settle { of, actual: cost },
        _ => Op::Charge { cost },
    }
}

/// The traces are worth something only if they reach the corners that the promises speak of.
mod reach {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    use tidegate_core::{Ask, Outcome};

    use super::*;
    use crate::subject;

    #[test]
    fn crowded_scripts_fill_the_list() {
        let mut runner = TestRunner::deterministic();
        let mut fullest = 0;
        for _ in 0..200 {
            let script = crowded_script().new_tree(&mut runner).expect("a script").current();
            let Ok::<(), ()>(()) = subject::walk(&script, |step| {
                fullest = fullest.max(step.after.to_portable().len());
                Ok(())
            }) else {
                unreachable!()
            };
        }
        let form = tidegate_core::FORMS.iter().find(|form| form.name == "cells").expect("the form of cells");
        assert_eq!(fullest, form.bytes_max(), "no script fills a cell log to the brim");
    }

    #[test]
    fn scripts_reach_every_corner() {
        let mut runner = TestRunner::deterministic();
        let mut seen = std::collections::BTreeMap::<&str, u32>::new();
        for _ in 0..1_000 {
            let script = any_script(EVERYTHING).new_tree(&mut runner).expect("a script").current();
            let mut ticks = Vec::new();
            let Ok::<(), ()>(()) = subject::walk(&script, |step| {
                let verdict = &step.verdict;
                ticks.push(step.limit.tick());
                let mut see = |what, is: bool| *seen.entry(what).or_default() += u32::from(is);
                let charge = matches!(step.ask, Ask::Charge { .. });
                see("admitted", charge && verdict.admitted());
                see("refused", verdict.retry_after.is_some());
                see("cost above the limit", verdict.outcome == Outcome::CostExceedsLimit);
                see("not held", verdict.outcome == Outcome::NotHeld);
                see("closed", step.spec.amount == 0);
                see("given back", verdict.applied < 0);
                see("forced", verdict.applied > 0 && !(charge && verdict.admitted()));
                see("forgiven", verdict.forgiven > 0);
                see("clock behind", verdict.at > step.now);
                let repaired = {
                    let mut state = step.before.clone();
                    step.limit.used(&mut state, step.now);
                    state != step.before
                };
                see("clock repaired", repaired);
                see("off by something", verdict.bound != tidegate_core::Bound::EXACT);
                see(
                    "lowered below what is used",
                    step.limit.used(step.after, step.now)
                        > step.spec.amount.max(step.spec.burst.unwrap_or(0)),
                );
                see("tick changed", ticks.windows(2).any(|pair| pair[0] != pair[1]));
                Ok(())
            }) else {
                unreachable!()
            };
        }
        let missed: Vec<_> = seen.iter().filter(|(_, times)| **times < 20).collect();
        assert!(missed.is_empty(), "hardly reached: {missed:?} of {seen:?}");
    }
}
