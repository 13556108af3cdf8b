//! Random scripts for several counters: requests of mixed takes and roles, limits that go up and down, clocks that jump. Start at
//! [`random_script`].
//!
//! Steps are drawn as plain numbers and only then turned into a script, so that a failing script shrinks to a short one.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tidegate_core::{Limit, Numbers, Role};
use tidegate_oracle::{Algorithm, Calendar, Op, Spec, Unit, Weekday};

use crate::script::{Line, Request, Script, Take};
use crate::words::limit_of;

const MS: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// The longest window.
const WINDOW_MAX_US: u64 = 366 * DAY;
/// Where scripts start: 2041, far enough from 1970 for any jump back.
pub(crate) const START_US: u64 = 1 << 51;
/// No script goes on later than 2112: the longest wait from there is still a time that can be told.
pub(crate) const END_US: u64 = 1 << 52;
/// The names that counters have in a script.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// How many cases a property runs on: the same ones every time, or `TIDEGATE_PROOF` times as many, drawn anew.
pub fn proof(cases: u32) -> ProptestConfig {
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

/// Scripts that mix everything that can happen to a few counters.
pub fn random_script() -> impl Strategy<Value = Script> {
    let counters =
        windows().prop_flat_map(|windows| prop::collection::vec(counter(windows), 1..=NAMES.len()));
    (counters, prop::collection::vec(drawn(), 1..40)).prop_map(|(counters, steps)| build(&counters, &steps))
}

/// Long scripts that fill the lists of those counters that keep one: a log, places, and cells while the limit doubles.
pub fn crowded_script() -> impl Strategy<Value = Script> {
    let window = prop::sample::select(vec![SECOND, MINUTE, HOUR]);
    (window, 1..60_u64, prop::collection::vec((drawn(), 0..30_u8), 200..350))
        .prop_map(|(window_us, amount, steps)| crowd(window_us, amount, &steps))
}

fn crowd(window_us: u64, mut amount: u64, steps: &[(Drawn, u8)]) -> Script {
    let always = true;
    let names = ["cells", "log", "places"];
    let limits = |amount: u64| {
        let cells = Spec { always, ..Spec::new(Algorithm::SlidingWindow, amount, window_us) };
        let log = Spec { always, ..Spec::new(Algorithm::SlidingLog, 10 + amount.min(5_000), window_us) };
        let places = Spec {
            window_us: 0,
            ttl_us: window_us,
            ..Spec::new(Algorithm::Concurrency, 100 + amount.min(5_000), window_us)
        };
        let limit = |(name, spec): (&str, Spec)| Line::Limit { name: name.to_owned(), spec };
        names.into_iter().zip([cells, log, places]).map(limit)
    };
    let mut lines: Vec<Line> = limits(amount).collect();
    let (mut now, mut operations) = (START_US, 0);
    for (number, (step, kind)) in steps.iter().enumerate() {
        if step.gap < 11 {
            amount = (2 * amount).min(1_000_000);
            lines.extend(limits(amount));
            continue;
        }
        now += 1 + u64::from(step.gap_part) * window_us / 65_536 / 400;
        let cell = amount.div_ceil(20);
        let earlier = |of: u8| operations - 1 - usize::from(of).min(operations - 1);
        let (id, of) = (number as u64 + 1, step.takes[0].of);
        let ops = match kind {
            0 if operations > 0 => {
                let back = Op::Refund { units: 1 + cell / 2, of: Some(earlier(of)) };
                [back, back, Op::Release { id: id.saturating_sub(of.into()).max(1) }]
            }
            1 => [
                Op::Refund { units: cell, of: None },
                Op::Peek,
                Op::Renew { id: id.saturating_sub(of.into()).max(1) },
            ],
            2 => [Op::Charge { cost: 1 }, Op::Charge { cost: 3 }, Op::Charge { cost: 2 }],
            // More than places there are: the request is refused, and what is charged always is charged.
            3 => [Op::Charge { cost: cell }, Op::Charge { cost: 1 }, Op::Charge { cost: 1 << 32 }],
            _ => [Op::Charge { cost: cell }, Op::Charge { cost: 1 }, Op::Acquire { id, cost: 1 }],
        };
        // Mostly one refuses and the others are charged all the same; in a shadow it lets them pass.
        let role = if step.kind < 128 { Role::Enforce } else { Role::Shadow };
        let takes =
            names.iter().zip(ops).map(|(name, op)| Take { role, name: (*name).to_owned(), op }).collect();
        lines.push(Line::At { us: now, requests: vec![Request { takes }] });
        operations += 1;
    }
    Script::new(lines).unwrap_or_else(|error| panic!("crowded scripts are scripts: {error}"))
}

/// A counter as drawn: what it is, and the limits that it may have.
#[derive(Debug, Clone)]
struct Drawing {
    tiers: Vec<Spec>,
}

/// One step, as drawn.
#[derive(Debug, Clone)]
struct Drawn {
    kind: u8,
    gap: u8,
    gap_part: u16,
    /// What a limit change, an inspection and a reset are about, and whose window the gap is measured in.
    counter: u8,
    tier: u8,
    takes: Vec<DrawnTake>,
    /// Before these takes another request begins.
    cuts: [u8; 2],
}

#[derive(Debug, Clone)]
struct DrawnTake {
    counter: u8,
    role: u8,
    op: u8,
    cost: u8,
    part: u16,
    of: u8,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let takes = prop::collection::vec(drawn_take(), 1..=5);
    (any::<[u8; 4]>(), any::<u16>(), takes, any::<[u8; 2]>()).prop_map(
        |([kind, gap, counter, tier], gap_part, takes, cuts)| Drawn {
            kind,
            gap,
            gap_part,
            counter,
            tier,
            takes,
            cuts,
        },
    )
}

fn drawn_take() -> impl Strategy<Value = DrawnTake> {
    (any::<[u8; 5]>(), any::<u16>()).prop_map(|([counter, role, op, cost, of], part)| DrawnTake {
        counter,
        role,
        op,
        cost,
        part,
        of,
    })
}

/// The windows that the counters of one script have: mostly of one scale, so that they fill and empty together.
fn windows() -> impl Strategy<Value = Vec<u64>> {
    prop::sample::select(vec![
        vec![MS, MS + 1, 7 * MS, 10 * MS],
        vec![250 * MS, SECOND, 2 * SECOND],
        vec![SECOND, 10 * SECOND, MINUTE],
        vec![MINUTE, 61 * SECOND],
        vec![15 * MINUTE, HOUR, DAY],
        vec![30 * DAY, WINDOW_MAX_US],
        vec![MS, SECOND, MINUTE, HOUR, DAY, WINDOW_MAX_US],
    ])
}

fn counter(windows: Vec<u64>) -> impl Strategy<Value = Drawing> {
    let shape =
        prop::sample::select(Algorithm::ALL.to_vec()).prop_flat_map(move |kind| shape(kind, &windows));
    (shape, prop::collection::vec(tier(), 1..4)).prop_map(|(shape, tiers)| Drawing {
        tiers: tiers.iter().map(|tier| spec_of(&shape, tier)).collect(),
    })
}

/// What stays the same while amounts change: algorithm, window, parts, calendar.
pub(crate) fn shape(algorithm: Algorithm, windows: &[u64]) -> impl Strategy<Value = Spec> + use<> {
    let zones = vec![
        "UTC",
        "Europe/Berlin",
        "America/St_Johns",
        "Asia/Kathmandu",
        "Pacific/Apia",
        "America/Sao_Paulo",
    ];
    (
        prop::sample::select(windows.to_vec()),
        any::<bool>(),
        prop::sample::select(vec![None, Some(1), Some(2), Some(5), Some(10)]),
        prop::sample::select(zones),
        prop::sample::select(vec![Unit::Day, Unit::Week, Unit::Month]),
        prop::sample::select(vec![Weekday::Monday, Weekday::Sunday, Weekday::Thursday]),
    )
        .prop_map(move |(window_us, strict, parts, zone, unit, week_start)| {
            let mut spec = Spec::new(algorithm, 1, window_us);
            match algorithm {
                Algorithm::SlidingWindow => spec.strict = strict,
                Algorithm::SubWindow => {
                    spec.strict = strict;
                    spec.sub_windows = parts.filter(|k| window_us % u64::from(*k) == 0);
                }
                Algorithm::Concurrency => (spec.window_us, spec.ttl_us) = (0, window_us),
                Algorithm::Calendar => {
                    // Only weeks heed their first day, and a text names it for those alone.
                    let week_start = if unit == Unit::Week { week_start } else { Weekday::Monday };
                    spec.window_us = 0;
                    spec.calendar = Some(Calendar { unit, zone: zone.to_owned(), week_start });
                }
                _ => {}
            }
            spec
        })
}

/// The numbers of one tier: amount, burst, whether refusals are charged, another time to live.
#[derive(Debug, Clone)]
pub(crate) struct Tier {
    pub(crate) amount: u64,
    pub(crate) burst: Option<u64>,
    pub(crate) always: bool,
    pub(crate) ttl_times: u64,
}

pub(crate) fn tier() -> impl Strategy<Value = Tier> {
    // Mostly small, so that a few takes reach them.
    let usual = prop::sample::select(vec![1, 2, 3, 3, 5, 5, 10, 19, 20, 21, 41, 100, 1_000]);
    let large =
        prop::sample::select(vec![0, 0, 9_999, 1_000_003, 900_000_000, (1 << 31) + 1, u64::from(u32::MAX)]);
    let bursts = prop::sample::select(vec![1, 3, 10, 100, 1_000, u64::from(u32::MAX)]);
    (
        prop_oneof![9 => usual, 1 => large],
        prop_oneof![2 => Just(None), 1 => bursts.prop_map(Some)],
        prop::bool::weighted(0.2),
        1..4_u64,
    )
        .prop_map(|(amount, burst, always, ttl_times)| Tier { amount, burst, always, ttl_times })
}

/// The shape with a tier's numbers; those that this algorithm or window cannot hold are made smaller.
pub(crate) fn spec_of(shape: &Spec, tier: &Tier) -> Spec {
    let mut spec = Spec { amount: tier.amount, ..shape.clone() };
    spec.always = tier.always && spec.algorithm != Algorithm::Concurrency;
    spec.burst = tier.burst.filter(|_| spec.algorithm.is_bucket());
    spec.ttl_us = (shape.ttl_us * tier.ttl_times).min(WINDOW_MAX_US);
    while limit_of(&spec).is_err() {
        spec.burst = spec.burst.map(|burst| burst / 10).filter(|burst| *burst > 0);
        if spec.burst.is_none() {
            spec.amount /= 10;
        }
    }
    spec
}

/// One counter while a script is built.
struct Counter<'a> {
    drawing: &'a Drawing,
    spec: &'a Spec,
    operations: usize,
}

fn build(drawings: &[Drawing], steps: &[Drawn]) -> Script {
    let fresh = |drawing| Counter { drawing, spec: &drawing.tiers[0], operations: 0 };
    let mut counters: Vec<Counter<'_>> = drawings.iter().map(fresh).collect();
    let name = |at: usize| NAMES[at].to_owned();
    let mut lines: Vec<Line> = counters
        .iter()
        .enumerate()
        .map(|(at, counter)| Line::Limit { name: name(at), spec: counter.spec.clone() })
        .collect();
    let start =
        drawings.iter().find_map(|drawing| drawing.tiers[0].calendar.as_ref()).map_or(START_US, odd_time);
    let mut now = start;
    for step in steps {
        let at = usize::from(step.counter) % counters.len();
        let line = match step.kind {
            0..16 => {
                let tiers = &counters[at].drawing.tiers;
                counters[at].spec = &tiers[usize::from(step.tier) % tiers.len()];
                Line::Limit { name: name(at), spec: counters[at].spec.clone() }
            }
            16..24 => Line::Inspect { name: name(at), us: next_time(now, start, counters[at].spec, step) },
            24..28 => Line::Reset { name: name(at) },
            _ => {
                now = next_time(now, start, counters[at].spec, step);
                Line::At { us: now, requests: requests_of(&mut counters, step) }
            }
        };
        lines.push(line);
    }
    Script::new(lines).unwrap_or_else(|error| panic!("random scripts are scripts: {error}"))
}

/// A day or two before something odd happened to the clocks of a zone.
pub(crate) fn odd_time(calendar: &Calendar) -> u64 {
    SECOND
        * match calendar.zone.as_str() {
            "Europe/Berlin" => 1_711_670_000, // 29 March 2024: a day of 23 hours follows.
            "America/St_Johns" => 1_289_000_000, // 5 November 2010: midnight comes twice.
            "Pacific/Apia" => 1_325_100_000,  // 28 December 2011: the 30th is skipped.
            "America/Sao_Paulo" => 1_507_900_000, // 13 October 2017: midnight does not exist.
            _ => START_US / SECOND,
        }
}

/// What a limit counts in, µs.
pub(crate) struct Windows {
    pub(crate) window: u64,
    /// Those that are aligned, of which a window has one or more.
    pub(crate) part: u64,
}

impl Windows {
    pub(crate) fn of(spec: &Spec) -> Self {
        let window = match spec.algorithm {
            Algorithm::Concurrency => spec.ttl_us,
            Algorithm::Calendar => DAY,
            _ => spec.window_us,
        };
        let parts = match limit_of(spec).as_ref().map(Limit::numbers) {
            Ok(Numbers::Parted { k, .. }) => u64::from(k),
            _ => 1,
        };
        Self { window, part: window / parts }
    }
}

/// The next reading of the clock: the same instant, a little later, about a part or a window later, much later, or back.
fn next_time(now: u64, start: u64, spec: &Spec, step: &Drawn) -> u64 {
    let window = Windows::of(spec).window;
    let part = |whole: u64| (u128::from(whole) * u128::from(step.gap_part) / 65_536) as u64;
    let around = |gap: u64| (gap + u64::from(step.gap_part % 3)).saturating_sub(1);
    let aligned = (now / window + 1) * window - now;
    let next = match step.gap {
        0..80 => now,
        80..100 => now + 1,
        100..135 => now + part(window / 20 + 1),
        135..150 => now + around(window / 20),
        150..175 => now + part(window),
        175..195 => now + around(window),
        195..210 => now + around(aligned),
        210..218 => now + part(3 * window),
        218..222 => now + 10 * window + part(window),
        222..224 => now + part(3 * WINDOW_MAX_US),
        224..236 => now.saturating_sub(part(window)),
        236..242 => now.saturating_sub(around(window.max(5 * SECOND))),
        242..246 => now.saturating_sub(part(12 * window)),
        246..248 => now.saturating_sub(part(3 * WINDOW_MAX_US)),
        _ => now + part(window / 4),
    };
    next.clamp(start / 2, END_US)
}

fn requests_of(counters: &mut [Counter<'_>], step: &Drawn) -> Vec<Request> {
    // Numbers of operations as before this batch: receipts are for what was answered.
    let takes: Vec<Take> = step.takes.iter().map(|drawn| take_of(counters, drawn)).collect();
    for drawn in &step.takes {
        let at = usize::from(drawn.counter) % counters.len();
        counters[at].operations += 1;
    }
    let mut requests = vec![Request::default()];
    for (at, take) in takes.into_iter().enumerate() {
        if at > 0 && step.cuts.iter().any(|cut| usize::from(*cut % 16) == at) {
            requests.push(Request::default());
        }
        if let Some(last) = requests.last_mut() {
            last.takes.push(take);
        }
    }
    if step.cuts[0] > 250 {
        requests.insert(usize::from(step.cuts[1]) % (requests.len() + 1), Request::default());
    }
    requests
}

fn take_of(counters: &[Counter<'_>], drawn: &DrawnTake) -> Take {
    let at = usize::from(drawn.counter) % counters.len();
    let role = match drawn.role {
        0..150 => Role::Enforce,
        150..200 => Role::Shadow,
        _ => Role::Quota,
    };
    Take { role, name: NAMES[at].to_owned(), op: op_of(&counters[at], drawn) }
}

fn op_of(counter: &Counter<'_>, drawn: &DrawnTake) -> Op {
    let Counter { spec, operations, .. } = counter;
    let capacity = if spec.algorithm.is_bucket() { spec.burst.unwrap_or(spec.amount) } else { spec.amount };
    let part = |whole: u64| 1 + (u128::from(whole) * u128::from(drawn.part) / 65_536) as u64;
    let cost = match drawn.cost {
        0..100 => 1,
        100..120 => 2,
        120..160 => part(capacity / 10),
        160..210 => part(capacity / 2),
        210..235 => part(capacity),
        235..244 => capacity.max(1),
        244..249 => capacity + 1,
        249..252 => u64::from(u32::MAX),
        252 => u64::MAX,
        _ => 0,
    };
    // Mostly of a late operation: receipts of long ago find little.
    let earlier = operations.checked_sub(1);
    let of = earlier.map(|last| last - usize::from(drawn.of % 8).min(last));
    let id = u64::from(drawn.of % 5) + 1;
    match (spec.algorithm, drawn.op, of) {
        (Algorithm::Concurrency, 16..110, _) => Op::Acquire { id, cost },
        (Algorithm::Concurrency, 110..140, _) => Op::Renew { id },
        (Algorithm::Concurrency, 140..180, _) => Op::Release { id },
        (_, 0..24, _) => Op::Peek,
        (_, 24..40, _) => Op::Refund { units: cost, of: None },
        (_, 40..64, Some(of)) => Op::Refund { units: cost, of: Some(of) },
        (_, 64..88, Some(of)) => Op::Settle { of, actual: cost },
        // Elsewhere these mean a charge, or nothing.
        (_, 88..92, _) => Op::Acquire { id, cost },
        (_, 92..94, _) => Op::Renew { id },
        (_, 94..96, _) => Op::Release { id },
        _ => Op::Charge { cost },
    }
}
