//! Heavy callers at four times their limit while new keys flood a full table: does anybody get more than an exact counter admits?

use serde::{Deserialize, Serialize};
use tidegate_core::{Algorithm, Ask, Limit, LimitError, Micros, State};
use tidegate_counters::{Batch, Memory, MemorySize};

use crate::ours::{self, Rule, SLOT_BYTES};
use crate::plan::Scale;
use crate::results::FloodRow;

/// How large the floods are.
pub(crate) struct FloodPlan {
    /// Slots of the table.
    slots: usize,
    /// Windows of the heavy callers that are played.
    windows: u64,
    /// New keys in a window, as multiples of the slots.
    table_fulls: &'static [u32],
}

impl FloodPlan {
    pub(crate) fn of(scale: Scale) -> Self {
        match scale {
            Scale::Smoke => Self { slots: 1 << 10, windows: 1, table_fulls: &[1] },
            Scale::Quick => Self { slots: 1 << 13, windows: 3, table_fulls: &[4, 32] },
            Scale::Full => Self { slots: 1 << 14, windows: 5, table_fulls: &[1, 4, 32] },
        }
    }

    fn table(&self) -> Memory {
        let arena = (self.slots * ARENA_BYTES).max(1 << 20);
        ours::table(MemorySize { slots: self.slots * SLOT_BYTES, arena }, START)
    }
}

/// What is flooded; a test has one that forgets.
trait Table {
    fn take(&self, batch: &mut Batch<'_>, now: Micros);

    fn evicted_live(&self) -> u64;
}

impl Table for Memory {
    fn take(&self, batch: &mut Batch<'_>, now: Micros) {
        self.take_now(batch, now);
    }

    fn evicted_live(&self) -> u64 {
        self.stats().evicted_live
    }
}

/// What the new keys of a flood are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Of the heavy callers' own limit.
    SameLimit,
    /// Of limits with windows of a second.
    ShortWindows,
    /// Of limits with windows of a day.
    LongWindows,
    /// Of limits of one in an hour: each new key is at its limit at once.
    LimitOne,
    /// All of these.
    Mixed,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::SameLimit, Self::ShortWindows, Self::LongWindows, Self::LimitOne, Self::Mixed];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::SameLimit => "keys of the same limit",
            Self::ShortWindows => "windows of a second",
            Self::LongWindows => "windows of a day",
            Self::LimitOne => "limit 1 per hour",
            Self::Mixed => "all of these",
        }
    }
}

/// Who is heavy: algorithms that fit a slot, and the default.
pub(crate) const HEAVY: [Algorithm; 3] = [Algorithm::Gcra, Algorithm::FixedWindow, Algorithm::SlidingWindow];

const AMOUNT: u64 = 100;
const WINDOW: Micros = Micros::from_secs(60);
/// Each heavy caller asks for so many times its limit.
const GREED: u64 = 4;
/// Heavy callers at once: one could be lucky.
const CALLERS: usize = 16;
/// Every caller once; the flood comes between them.
const STEPS: u64 = AMOUNT * GREED * CALLERS as u64;
/// The start of a minute, and of a day.
const START: Micros = Micros::from_secs(20_833 * 86_400);
/// Bytes of the arena for each slot: the default algorithm has room for the table's worth of idle keys.
const ARENA_BYTES: usize = 64;

/// Plays every flood against every algorithm, on simulated time.
pub(crate) fn measure(plan: &FloodPlan) -> Result<Vec<FloodRow>, String> {
    let mut rows = Vec::new();
    for algorithm in HEAVY {
        eprintln!("flood: heavy callers on {algorithm}");
        for kind in Kind::ALL {
            for &table_fulls in plan.table_fulls {
                let row = play(plan, &plan.table(), algorithm, kind, table_fulls);
                rows.push(row.map_err(|error| format!("the limits of a flood are sound: {error}"))?);
            }
        }
    }
    Ok(rows)
}

/// A heavy caller, and its exact counter.
#[derive(Clone)]
struct Caller {
    name: String,
    exact_state: State,
    admitted: u64,
    exact: u64,
}

fn play(
    plan: &FloodPlan,
    table: &impl Table,
    algorithm: Algorithm,
    kind: Kind,
    table_fulls: u32,
) -> Result<FloodRow, LimitError> {
    let heavy = Rule::new(0, limit(algorithm, AMOUNT, WINDOW)?);
    let flood: Vec<Rule> = flood_limits(algorithm, kind)?
        .into_iter()
        .enumerate()
        .map(|(at, limit)| Rule::new(1 + at, limit))
        .collect();
    let filling = Rule::new(100, limit(algorithm, AMOUNT, Micros::from_secs(3_600))?);
    fill(table, &filling, 2 * plan.slots);
    let before = table.evicted_live();

    let caller =
        |at| Caller { name: format!("heavy:{at}"), exact_state: heavy.limit.state(), admitted: 0, exact: 0 };
    let mut callers: Vec<Caller> = (0..CALLERS).map(caller).collect();
    let mut batch = Batch::new();
    let new_keys = plan.slots as u64 * u64::from(table_fulls) * plan.windows;
    let steps = STEPS * plan.windows;
    let mut sent = 0;
    for step in 0..steps {
        let now = START.plus(Micros::new(WINDOW.get() * step / STEPS));
        let caller = &mut callers[step as usize % CALLERS];
        batch.clear();
        batch.push([heavy.take(&caller.name, 1)]);
        // As many as are due by now, spread evenly.
        let due = new_keys * (step + 1) / steps;
        for number in sent..due {
            batch.push([flood[number as usize % flood.len()].take(&format!("flood:{number}"), 1)]);
        }
        sent = due;
        table.take(&mut batch, now);
        caller.admitted += u64::from(batch.admitted(0));
        let exact = heavy.limit.step(&mut caller.exact_state, Ask::Charge { cost: 1 }, now);
        caller.exact += u64::from(exact.admitted());
    }
    let worst = callers.iter().max_by_key(|caller| caller.admitted * 1_000_000 / caller.exact.max(1));
    Ok(FloodRow {
        heavy: algorithm.name().to_string(),
        kind,
        table_fulls,
        admitted: callers.iter().map(|caller| caller.admitted).sum(),
        exact: callers.iter().map(|caller| caller.exact).sum(),
        worst_admitted: worst.map_or(0, |caller| caller.admitted),
        worst_exact: worst.map_or(0, |caller| caller.exact),
        evicted_live: table.evicted_live() - before,
    })
}

/// Leaves no slot free and none without something to remember: half of an hour's budget each.
fn fill(table: &impl Table, rule: &Rule, keys: usize) {
    let mut batch = Batch::new();
    for from in (0..keys).step_by(64) {
        batch.clear();
        for number in from..keys.min(from + 64) {
            batch.push([rule.take(&format!("filling:{number}"), AMOUNT as u32 / 2)]);
        }
        table.take(&mut batch, START);
    }
}

fn flood_limits(algorithm: Algorithm, kind: Kind) -> Result<Vec<Limit>, LimitError> {
    let of = |kind| match kind {
        Kind::ShortWindows => limit(algorithm, AMOUNT, Micros::from_secs(1)),
        Kind::LongWindows => limit(algorithm, AMOUNT, Micros::from_secs(86_400)),
        Kind::LimitOne => limit(algorithm, 1, Micros::from_secs(3_600)),
        Kind::SameLimit | Kind::Mixed => limit(algorithm, AMOUNT, WINDOW),
    };
    let kinds = if kind == Kind::Mixed { &Kind::ALL[..4] } else { &[kind] };
    kinds.iter().copied().map(of).collect()
}

fn limit(algorithm: Algorithm, amount: u64, window: Micros) -> Result<Limit, LimitError> {
    match algorithm {
        Algorithm::FixedWindow => Limit::fixed_window(amount, window),
        Algorithm::SlidingWindow => Limit::sliding_window(amount, window),
        _ => Limit::gcra(amount, window, None),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn without_a_flood_a_heavy_caller_gets_what_is_due() {
        // In the smaller table two callers meet in a place that is full of live keys. New as they are, each pushes the other out once, with
        // the one unit that it has used; when they come back they stay.
        for (slots, pushed_out) in [(1 << 14, 0), (1 << 10, 2)] {
            let plan = FloodPlan { slots, windows: 2, table_fulls: &[0] };
            for row in measure(&plan).expect("floods") {
                assert_eq!(row.admitted, row.exact + pushed_out, "{} {:?}", row.heavy, row.kind);
                // What asks for 4 times its limit gets its limit, and a bucket its burst besides.
                let due = AMOUNT * CALLERS as u64 * plan.windows;
                assert!((due..=due * 2).contains(&row.exact), "{}: {}", row.heavy, row.exact);
            }
        }
    }

    /// Forgets everything after every thousand batches.
    struct Forgetful {
        plan: FloodPlan,
        inner: RefCell<(Memory, u32)>,
    }

    impl Table for Forgetful {
        fn take(&self, batch: &mut Batch<'_>, now: Micros) {
            let (memory, batches) = &mut *self.inner.borrow_mut();
            *batches += 1;
            if *batches % 1_000 == 0 {
                *memory = self.plan.table();
            }
            memory.take_now(batch, now);
        }

        fn evicted_live(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_table_that_forgets_heavy_callers_is_seen() {
        let plan = || FloodPlan { slots: 1 << 10, windows: 2, table_fulls: &[1] };
        for algorithm in HEAVY {
            let table = Forgetful { plan: plan(), inner: RefCell::new((plan().table(), 0)) };
            let row = play(&plan(), &table, algorithm, Kind::Mixed, 1).expect("a flood");
            assert!(row.ratio() > 1.2 && row.worst_ratio() >= row.ratio(), "{algorithm}: {}", row.ratio());
        }
    }
}
