//! What a counter takes of the store's memory, for each algorithm: after one charge, and once it holds as much as it gets.
//!
//! The counters are charged by the library of the node, at times that are made up: a window of an hour is filled in a moment.

use std::sync::Arc;
use std::time::Duration;

use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::store::Store;
use tidegate_clock::Clock;
use tidegate_core::{Ask, Calendar, Key, Limit, LimitError, Micros, Policy, Role, Tag, Unit, Weekday};
use tidegate_counters::{
    Batch, Counters, Memory, MemorySize, RedisCounters, RedisSettings, RedisStore, StoreClock, Take,
};
use tokio::task::LocalSet;

use crate::plan::Plan;
use crate::results::Weight;

const HOUR: Micros = Micros::from_secs(3_600);
/// How many counters are charged in one call.
const AT_ONCE: u32 = 64;
/// How long a charge may take: nothing is timed here, and a busy machine is slow.
const PATIENT: Duration = Duration::from_secs(10);

/// An algorithm, and how it is filled.
struct Weighed {
    title: &'static str,
    limit: Result<Limit, LimitError>,
    /// Charges, spread over an hour, after which it holds as much as it gets; none if one is enough.
    fill: Option<u32>,
}

fn algorithms() -> Vec<Weighed> {
    let of = |title, limit, fill| Weighed { title, limit, fill };
    let day = Calendar::new(Unit::Day, "Europe/Berlin", Weekday::Monday);
    vec![
        of("`sliding_window`, 1000 per hour", Limit::sliding_window(1_000, HOUR), Some(300)),
        of("the same, `strict`", Limit::sliding_window_strict(1_000, HOUR), Some(300)),
        of("`sliding_window_counter`", Limit::sliding_window_counter(1_000, HOUR), None),
        of("`sub_window`", Limit::sub_window(1_000, HOUR, None, false), Some(120)),
        of("`sliding_log`, 100 per hour", Limit::sliding_log(100, HOUR), Some(100)),
        of("`fixed_window`", Limit::fixed_window(1_000, HOUR), None),
        of("`token_bucket`, `gcra`, `leaky_bucket`", Limit::token_bucket(1_000, HOUR, None), None),
        of("`calendar`", day.and_then(|day| Limit::calendar(1_000, day)), None),
        of("`concurrency`, 10 holders", Limit::concurrency(10, HOUR), Some(10)),
    ]
}

/// Weighs every algorithm in a store of its own.
pub(crate) fn all(plan: &Plan, cores: Option<Cores>) -> Result<Vec<Weight>, String> {
    let store = Store::start(cores)?;
    let mut settings = RedisSettings::of_url(&store.server().url()).map_err(|error| error.to_string())?;
    (settings.timeout, settings.connect_timeout, settings.clock) = (PATIENT, PATIENT, StoreClock::Caller);
    let own = Memory::new(MemorySize::of_bytes(1 << 20), Micros::ZERO).map_err(|error| error.to_string())?;
    let hand = RedisStore::new(settings, Arc::new(own)).counters();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no runtime: {error}"))?;
    LocalSet::new().block_on(&runtime, async {
        let mut weights = Vec::new();
        for Weighed { title, limit, fill } in algorithms() {
            eprintln!("weighing {title}");
            let limit = limit.map_err(|error| format!("{title}: {error}"))?;
            store.flush()?; // The counters before had the same keys.
            charge(&hand, &limit, AT_ONCE, 1).await?; // The script is there, and the connections have the room that they need.
            let (bytes, value) = weighed(&store, &hand, &limit, plan.weighed, 1).await?;
            let full = match fill {
                Some(charges) => Some(weighed(&store, &hand, &limit, plan.weighed_full, charges).await?),
                None => None,
            };
            weights.push(Weight {
                algorithm: title.into(),
                bytes,
                value_bytes: value,
                full_bytes: full.map(|full| full.0),
                full_value_bytes: full.map(|full| full.1),
            });
        }
        Ok(weights)
    })
}

/// What the store has allocated for each of so many counters, and the length of a value.
async fn weighed(
    store: &Store,
    hand: &RedisCounters,
    limit: &Limit,
    counters: u32,
    charges: u32,
) -> Result<(f64, u64), String> {
    store.flush()?;
    let before = store.used_memory()?;
    charge(hand, limit, counters, charges).await?;
    let (after, keys) = (store.used_memory()?, store.keys()?);
    if keys != u64::from(counters) {
        return Err(format!("{keys} keys in the store, not {counters}: nothing to weigh"));
    }
    Ok((after.saturating_sub(before) as f64 / f64::from(counters), store.some_length()?))
}

/// Charges each of so many counters, so many times within an hour.
async fn charge(hand: &RedisCounters, limit: &Limit, counters: u32, charges: u32) -> Result<(), String> {
    let start = Clock::real().wall_now_us();
    let mut batch = Batch::new();
    for charge in 0..charges {
        let now = Micros::new(start + HOUR.get() / u64::from(charges) * u64::from(charge));
        for first in (0..counters).step_by(AT_ONCE as usize) {
            batch.clear();
            for counter in first..counters.min(first + AT_ONCE) {
                batch.push([take(limit, counter, charge)]);
            }
            hand.take(&mut batch, now).await;
            for request in 0..batch.len() {
                if let Some(failure) = batch.failure(request) {
                    return Err(failure.why.clone());
                }
                if !batch.admitted(request) {
                    return Err(format!("charge {charge} is refused: nothing to weigh"));
                }
            }
        }
    }
    Ok(())
}

fn take(limit: &Limit, counter: u32, charge: u32) -> Take<'_> {
    // As different from each other as keys are.
    let spread = u128::from(counter).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let ask = match limit.holds() {
        true => Ask::Acquire { id: u64::from(charge) + 1, cost: 1 },
        false => Ask::Charge { cost: 1 },
    };
    let (key, tag) = (Key::of_bits(spread), Tag::of_bits((spread >> 64) as u32));
    Take { key, tag, name: None, limit, ask, role: Role::Enforce, policy: Policy::STRICT }
}
