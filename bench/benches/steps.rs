//! Instructions of one step of each algorithm, on a state as a busy caller leaves it.
//!
//! Run by `cargo xtask bench steps`, which compares the counts with `bench/steps.baseline`. The name of a case is the
//! name of its row. What is counted is the call of [`Limit::step`] alone: the state is made, and dropped, elsewhere.

#![expect(missing_docs, reason = "the macros of gungraun write public items")]

use std::hint::black_box;

use gungraun::{library_benchmark, library_benchmark_group, main};
use tidegate_core::{Ask, Calendar, Limit, LimitError, Micros, State, Unit, Verdict, Weekday};

/// The limit of every case: 100 in a minute, the size of a common per-key rule.
const AMOUNT: u64 = 100;
const WINDOW: Micros = Micros::from_secs(60);
/// The start of a minute (and, in Berlin, half past nine in the morning).
const START_MS: u64 = 1_800_001_800_000;
const DAY_MS: u64 = 86_400_000;

/// One step, ready to be taken. Leaked on purpose: a pointer goes in, and nothing is dropped while it counts.
struct Prepared {
    limit: Limit,
    state: State,
    ask: Ask,
    now: Micros,
}

#[library_benchmark]
#[bench::fixed_window(fixed_window())]
#[bench::sliding_window_counter(sliding_window_counter())]
#[bench::sub_window_k60(sub_window())]
#[bench::sliding_log_full(sliding_log_full())]
#[bench::sliding_log_refusal(sliding_log_refusal())]
#[bench::token_bucket(token_bucket())]
#[bench::sliding_window_untouched(sliding_window_untouched())]
#[bench::sliding_window_half_full(sliding_window_half_full())]
#[bench::sliding_window_full(sliding_window_full())]
#[bench::sliding_window_refusal(sliding_window_refusal())]
#[bench::sliding_window_strict_full(sliding_window_strict_full())]
#[bench::concurrency_acquire(concurrency_acquire())]
#[bench::calendar_day(calendar_day())]
#[bench::calendar_day_next(calendar_day_next())]
fn step(prepared: &'static mut Prepared) -> Verdict {
    let Prepared { limit, state, ask, now } = black_box(prepared);
    limit.step(state, *ask, *now)
}

library_benchmark_group!(name = steps, benchmarks = step);
main!(library_benchmark_groups = steps);

/// Half of the current window is used.
fn fixed_window() -> &'static mut Prepared {
    charged(Limit::fixed_window(AMOUNT, WINDOW), (0..50).map(|n| n * 100), 30_000, true)
}

/// The previous window counts in part, the current one in full.
fn sliding_window_counter() -> &'static mut Prepared {
    charged(Limit::sliding_window_counter(AMOUNT, WINDOW), (0..150).map(|n| n * 600), 100_000, true)
}

/// Every one of the 60 counts is in use.
fn sub_window() -> &'static mut Prepared {
    charged(Limit::sub_window(AMOUNT, WINDOW, Some(60), false), (0..180).map(|n| n * 700), 180 * 700, true)
}

/// All entries are in use, and the oldest leaves for the new one.
fn sliding_log_full() -> &'static mut Prepared {
    charged(Limit::sliding_log(AMOUNT, WINDOW), (0..250).map(|n| n * 600), 250 * 600, true)
}

fn sliding_log_refusal() -> &'static mut Prepared {
    charged(Limit::sliding_log(AMOUNT, WINDOW), (0..100).map(|n| n * 300), 30_000, false)
}

fn token_bucket() -> &'static mut Prepared {
    charged(Limit::token_bucket(AMOUNT, WINDOW, None), (0..50).map(|n| n * 100), 30_000, true)
}

fn sliding_window_untouched() -> &'static mut Prepared {
    charged(Limit::sliding_window(AMOUNT, WINDOW), 0..0, 0, true)
}

fn sliding_window_half_full() -> &'static mut Prepared {
    charged(Limit::sliding_window(AMOUNT, WINDOW), (0..50).map(|n| n * 600), 30_000, true)
}

/// A caller that has kept just below the limit for three windows: a cell leaves, and the charge goes in.
fn sliding_window_full() -> &'static mut Prepared {
    charged(Limit::sliding_window(AMOUNT, WINDOW), (0..300).map(|n| n * 650), 300 * 650, true)
}

/// The answer includes the time to wait, which is found by a walk over the cells.
fn sliding_window_refusal() -> &'static mut Prepared {
    charged(Limit::sliding_window(AMOUNT, WINDOW), (0..100).map(|n| n * 300), 30_000, false)
}

fn sliding_window_strict_full() -> &'static mut Prepared {
    charged(Limit::sliding_window_strict(AMOUNT, WINDOW), (0..300).map(|n| n * 650), 300 * 650, true)
}

/// Half of 20 places are held, all by others.
fn concurrency_acquire() -> &'static mut Prepared {
    let asks = (0..10).map(|n| (Ask::Acquire { id: 100 + n, cost: 1 }, n));
    prepared(Limit::concurrency(20, WINDOW), asks, (Ask::Acquire { id: 7, cost: 1 }, 1_000), true)
}

/// The same day as the charge before.
fn calendar_day() -> &'static mut Prepared {
    charged(day_in_berlin(), (0..50).map(|n| n * 100), 30_000, true)
}

/// The first charge of another day.
fn calendar_day_next() -> &'static mut Prepared {
    charged(day_in_berlin(), (0..50).map(|n| n * 100), DAY_MS, true)
}

fn day_in_berlin() -> Result<Limit, LimitError> {
    Calendar::new(Unit::Day, "Europe/Berlin", Weekday::Monday).and_then(|day| Limit::calendar(AMOUNT, day))
}

/// A limit charged with 1 at each of these times (milliseconds from the start), about to be charged with 1 again.
fn charged(
    limit: Result<Limit, LimitError>,
    times_ms: impl Iterator<Item = u64>,
    now_ms: u64,
    admits: bool,
) -> &'static mut Prepared {
    let charge = Ask::Charge { cost: 1 };
    prepared(limit, times_ms.map(|at_ms| (charge, at_ms)), (charge, now_ms), admits)
}

/// Asks all of `before`, and checks on a copy that the step to be counted ends as its name says.
fn prepared(
    limit: Result<Limit, LimitError>,
    before: impl Iterator<Item = (Ask, u64)>,
    (ask, now_ms): (Ask, u64),
    admits: bool,
) -> &'static mut Prepared {
    let limit = limit.expect("every case has a limit that can be made");
    let mut state = limit.state();
    for (ask, at_ms) in before {
        limit.step(&mut state, ask, Micros::from_millis(START_MS + at_ms));
    }
    let now = Micros::from_millis(START_MS + now_ms);
    let verdict = limit.step(&mut state.clone(), ask, now);
    assert_eq!(verdict.admitted(), admits, "{verdict:?}");
    Box::leak(Box::new(Prepared { limit, state, ask, now }))
}
