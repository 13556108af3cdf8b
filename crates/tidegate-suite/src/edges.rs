//! Random scripts that go where a `<` is told from a `<=`: the end of a window or of a part of it, a cell that is full or too long, a clock
//! that is behind by as much as is borne, a bucket that has just run empty. One counter each, since the law is the same for all. Start at
//! [`edge_script`].
//!
//! What happens is timed from what has happened before, not from now: what an edge cuts through was charged some steps ago.

use proptest::prelude::*;
use tidegate_core::{Micros, Numbers, Role, State, Verdict};
use tidegate_oracle::{Algorithm, Op, Spec};

use crate::play::ask_of;
use crate::random::{END_US, START_US, Tier, Windows, odd_time, shape, spec_of, tier};
use crate::script::{Line, Request, Script, Take};
use crate::words::limit_of;

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;
/// A clock that is further behind than this, or than a window if that is longer, is taken for broken.
const PATIENCE_US: u64 = 5 * SECOND;
/// Parts into which the cell log cuts a limit and its window.
const CELLS: u64 = 20;
const NAME: &str = "a";

/// One step, as drawn.
#[derive(Debug, Clone)]
struct Drawn {
    kind: u8,
    /// From when, how far, and how many ticks beside.
    from: u8,
    span: u8,
    beside: u8,
    part: u16,
    op: u8,
    cost: u8,
    of: u8,
}

/// Scripts for one counter whose times lie at edges, or beside them.
pub fn edge_script() -> impl Strategy<Value = Script> {
    let windows = vec![
        1_000,
        7_000,
        SECOND,
        10 * SECOND,
        MINUTE,
        61 * SECOND,
        10 * MINUTE,
        60 * MINUTE,
        DAY,
        366 * DAY,
    ];
    let algorithms = vec![
        Algorithm::FixedWindow,
        Algorithm::SlidingWindowCounter,
        Algorithm::SubWindow,
        Algorithm::TokenBucket,
        Algorithm::TokenBucket,
        Algorithm::Gcra,
        Algorithm::SlidingWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        Algorithm::Concurrency,
        Algorithm::Calendar,
    ];
    let shapes = prop::sample::select(algorithms).prop_flat_map(move |kind| shape(kind, &windows));
    let drawn = any::<([u8; 7], u16)>().prop_map(|([kind, from, span, beside, op, cost, of], part)| Drawn {
        kind,
        from,
        span,
        beside,
        part,
        op,
        cost,
        of,
    });
    let tiers = prop::collection::vec(prop_oneof![3 => tier(), 1 => round_tier()], 1..4);
    (shapes, tiers, prop::collection::vec(drawn, 8..60))
        .prop_map(|(shape, tiers, steps)| build(&shape, &tiers, &steps))
}

/// Numbers by which windows can be divided: so that a bucket runs empty at a tick, and not between two.
fn round_tier() -> impl Strategy<Value = Tier> {
    let rounds = || prop::sample::select(vec![1, 2, 4, 5, 10, 20, 40, 60, 100]);
    (rounds(), prop::option::of(rounds()), any::<bool>()).prop_map(|(amount, burst, always)| Tier {
        amount,
        burst,
        always,
        ttl_times: 1,
    })
}

fn build(shape: &Spec, tiers: &[Tier], steps: &[Drawn]) -> Script {
    let specs: Vec<Spec> = tiers.iter().map(|tier| spec_of(shape, tier)).collect();
    let mut spec = &specs[0];
    let name = || NAME.to_owned();
    let mut lines = vec![Line::Limit { name: name(), spec: spec.clone() }];
    let start = shape.calendar.as_ref().map_or(START_US, odd_time);
    let (mut times, mut twin) = (vec![start], Twin::default());
    for step in steps {
        if step.kind < 20 && specs.len() > 1 {
            spec = &specs[usize::from(step.of) % specs.len()];
            lines.push(Line::Limit { name: name(), spec: spec.clone() });
            continue;
        }
        let now = next_time(&times, spec, step).clamp(start / 2, END_US);
        let operations = twin.verdicts.len();
        let mut take = |step: &Drawn| {
            let op = op_of(spec, step, operations, twin.room(spec, now));
            twin.play(spec, &op, now);
            Take { role: Role::Enforce, name: name(), op }
        };
        let other = Drawn { op: step.beside.wrapping_mul(31), cost: step.part as u8, ..step.clone() };
        let requests = match step.kind {
            20..32 => vec![Request { takes: vec![take(step), take(&other)] }],
            32..44 => vec![Request { takes: vec![take(step)] }, Request { takes: vec![take(&other)] }],
            _ => vec![Request { takes: vec![take(step)] }],
        };
        lines.push(Line::At { us: now, requests });
        times.push(now);
    }
    Script::new(lines).unwrap_or_else(|error| panic!("scripts of edges are scripts: {error}"))
}

/// The counter by the law, as far as the script has come: what just fits and what just does not is known from it. Nothing is compared with
/// it, so it need not know what a request of two takes comes to.
#[derive(Default)]
struct Twin {
    state: Option<State>,
    verdicts: Vec<Verdict>,
}

impl Twin {
    /// Units that still fit.
    fn room(&mut self, spec: &Spec, now: u64) -> u64 {
        let Ok(limit) = limit_of(spec) else { return 0 };
        let state = self.state.get_or_insert_with(|| limit.state());
        u64::from(limit.capacity()).saturating_sub(limit.used(&mut state.clone(), Micros::new(now)))
    }

    fn play(&mut self, spec: &Spec, op: &Op, now: u64) {
        let Ok(limit) = limit_of(spec) else { return };
        let ask = ask_of(op, &self.verdicts);
        let state = self.state.get_or_insert_with(|| limit.state());
        self.verdicts.push(limit.step(state, ask, Micros::new(now)));
    }
}

/// An edge of something that has happened, or close beside it.
fn next_time(times: &[u64], spec: &Spec, step: &Drawn) -> u64 {
    let now = times[times.len() - 1];
    let from = times[times.len() - 1 - usize::from(step.from % 8).min(times.len() - 1)];
    let windows = Windows::of(spec);
    let tick = limit_of(spec).map_or(1, |limit| limit.tick().us());
    let beside = |edge: u64| match step.beside {
        0..120 => edge,
        120..160 => edge + 1,
        160..200 => edge.saturating_sub(1),
        200..216 => edge + tick,
        216..232 => edge.saturating_sub(tick),
        232..244 => edge + tick - 1,
        _ => edge - edge % tick,
    };
    let part = |whole: u64| (u128::from(whole) * u128::from(step.part) / 65_536) as u64;
    let patience = windows.window.max(PATIENCE_US);
    let spans = [
        windows.window,
        windows.window.div_ceil(CELLS),
        windows.window / CELLS,
        windows.part,
        windows.window + windows.part,
        2 * windows.window,
        fills(spec),
        2 * fills(spec),
    ];
    let span = spans[usize::from(step.span) % spans.len()];
    let aligned = |of: u64| of / windows.part * windows.part;
    match step.span {
        0..60 => now,
        60..150 => now.max(beside(from + span)),
        150..175 => now.max(beside(aligned(from) + span)),
        175..205 => now + part(windows.window / CELLS),
        205..220 => now + part(windows.window),
        220..232 => beside(from.saturating_sub(patience)),
        232..240 => beside(aligned(from).saturating_sub(patience)),
        240..248 => period_edge(spec, now, step).map_or(now + 1, beside),
        _ => beside(from.saturating_sub(span)),
    }
}

/// How long a bucket that is full takes to run empty.
fn fills(spec: &Spec) -> u64 {
    let burst = spec.burst.unwrap_or(spec.amount);
    let us = u128::from(spec.window_us) * u128::from(burst) / u128::from(spec.amount.max(1));
    u64::try_from(us).unwrap_or(u64::MAX).min(366 * DAY)
}

/// Where one of the periods around now begins.
fn period_edge(spec: &Spec, now: u64, step: &Drawn) -> Option<u64> {
    let limit = limit_of(spec).ok()?;
    let Numbers::Calendar(calendar) = limit.numbers() else { return None };
    let mut period = calendar.period(Micros::new(now));
    for _ in 0..step.part % 4 {
        period = calendar.period(period.end);
    }
    for _ in 0..step.part / 4 % 4 {
        period = calendar.period(period.start.minus(Micros::new(1)));
    }
    Some(period.start.get())
}

/// Scripts for a cell log: units are charged close together, and then, one window later, the edge cuts through what was charged, and what
/// just fits is asked for. Times lie on both sides of a multiple of 2^32 ticks, of which a cell keeps the rest.
pub fn cut_script() -> impl Strategy<Value = Script> {
    let windows = prop::sample::select(vec![1_000, 1_001, SECOND, 61 * SECOND, 10 * MINUTE, DAY]);
    let amounts = prop::sample::select(vec![19, 20, 41, 60, 99, 200, 1_000, 10_007]);
    let start = (windows, amounts, prop::bool::weighted(0.1), prop::bool::weighted(0.2), any::<u16>());
    let steps = prop::collection::vec(any::<([u8; 4], u16)>(), 30..90);
    (start, steps).prop_map(|((window_us, amount, strict, always, before), steps)| {
        let spec = Spec { strict, always, ..Spec::new(Algorithm::SlidingWindow, amount, window_us) };
        cut(spec, before, &steps)
    })
}

fn cut(mut spec: Spec, before: u16, steps: &[([u8; 4], u16)]) -> Script {
    let name = || NAME.to_owned();
    let (window, tick) = (spec.window_us, limit_of(&spec).map_or(1, |limit| limit.tick().us()));
    let part = |whole: u64, part: u16| (u128::from(whole) * u128::from(part) / 65_536) as u64;
    let wraps = START_US / (tick << 32) * (tick << 32);
    let mut now = wraps - part(2 * window, before) / tick * tick;
    let (mut lines, mut twin) = (vec![Line::Limit { name: name(), spec: spec.clone() }], Twin::default());
    // When units were charged that have not been cut yet, the oldest first.
    let mut charged = std::collections::VecDeque::new();
    for ([kind, gap, cost, of], drawn) in steps.iter().copied() {
        let cell = spec.amount.div_ceil(CELLS).max(1);
        if kind < 10 {
            let factor = [3, 4, 6, 8, 12][usize::from(of) % 5];
            spec.amount = (spec.amount * factor / 6).clamp(5, 100_000);
            lines.push(Line::Limit { name: name(), spec: spec.clone() });
            continue;
        }
        let is_cut = kind < 110 && !charged.is_empty();
        let oldest = if is_cut { charged.pop_front() } else { None };
        now = match (oldest, gap) {
            (Some(oldest), 0..100) => now.max(oldest + window),
            (Some(oldest), 100..130) => now.max(oldest + window - tick),
            (Some(oldest), 130..160) => now.max(oldest + window + tick),
            (Some(oldest), _) => now.max(oldest + window + part(window / CELLS, drawn)),
            (None, 0..40) => now,
            (None, 40..80) => now + tick,
            (None, 80..110) => now + window.div_ceil(CELLS),
            (None, 110..130) => now + window / CELLS - tick,
            (None, _) => now + part(window / CELLS / 2, drawn),
        };
        let room = twin.room(&spec, now);
        let operations = twin.verdicts.len();
        let earlier = operations.checked_sub(1).map(|last| last - usize::from(of % 16).min(last));
        let op = match (cost, earlier) {
            (0..50, _) if is_cut => Op::Charge { cost: room + 1 },
            (50..100, _) if is_cut => Op::Charge { cost: room.max(1) },
            (100..140, Some(of)) => Op::Refund { units: 1 + u64::from(drawn % 3) * cell / 2, of: Some(of) },
            (140..155, _) => Op::Refund { units: 1 + u64::from(drawn % 3) * cell / 2, of: None },
            (155..175, _) => Op::Charge { cost: cell + 1 },
            (175..200, _) => Op::Charge { cost: cell },
            (200..225, _) => Op::Charge { cost: 2 },
            (225..240, _) => Op::Charge { cost: 3 },
            _ => Op::Charge { cost: 1 },
        };
        twin.play(&spec, &op, now);
        let request = Request { takes: vec![Take { role: Role::Enforce, name: name(), op }] };
        lines.push(Line::At { us: now, requests: vec![request] });
        if twin.verdicts.last().is_some_and(|verdict| verdict.applied > 0) && charged.back() != Some(&now) {
            charged.push_back(now);
        }
    }
    Script::new(lines).unwrap_or_else(|error| panic!("scripts of cells are scripts: {error}"))
}

fn op_of(spec: &Spec, step: &Drawn, operations: usize, room: u64) -> Op {
    let capacity = if spec.algorithm.is_bucket() { spec.burst.unwrap_or(spec.amount) } else { spec.amount };
    let cell = spec.amount.div_ceil(CELLS).max(1);
    let part = |whole: u64| 1 + (u128::from(whole) * u128::from(step.part) / 65_536) as u64;
    let cost = match step.cost {
        0..40 => 1,
        40..55 => 2,
        55..80 => room.max(1),
        80..105 => room + 1,
        105..130 => cell,
        130..145 => cell + 1,
        145..160 => (cell / 2).max(1),
        160..190 => part(capacity / 4),
        190..215 => part(room),
        215..230 => capacity.max(1),
        230..238 => 2 * capacity.max(1),
        238..242 => u64::from(u32::MAX),
        242..246 => 0,
        _ => 3,
    };
    let earlier = operations.checked_sub(1);
    let of = earlier.map(|last| last - usize::from(step.of % 8).min(last));
    let id = u64::from(step.of % 5) + 1;
    match (spec.algorithm, step.op, of) {
        (Algorithm::Concurrency, 0..110, _) => Op::Acquire { id, cost },
        (Algorithm::Concurrency, 110..150, _) => Op::Renew { id },
        (Algorithm::Concurrency, 150..190, _) => Op::Release { id },
        (_, 0..16, _) => Op::Peek,
        (_, 16..40, _) => Op::Refund { units: cost, of: None },
        (_, 40..90, Some(of)) => Op::Refund { units: cost, of: Some(of) },
        (_, 90..104, Some(of)) => Op::Settle { of, actual: cost },
        _ => Op::Charge { cost },
    }
}
