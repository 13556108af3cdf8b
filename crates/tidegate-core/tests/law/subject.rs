//! The code under test, run on scripts of the oracle's language.

use tidegate_core::{
    Ask, Calendar, Charge, Limit, LimitError, Micros, Outcome, Receipt, State, Unit, Verdict, Weekday,
};
use tidegate_oracle as oracle;

/// The limit that a spec describes.
pub(crate) fn limit(spec: &oracle::Spec) -> Result<Limit, LimitError> {
    use oracle::Algorithm as A;
    let (amount, window) = (spec.amount, Micros::new(spec.window_us));
    let limit = match spec.algorithm {
        A::FixedWindow => Limit::fixed_window(amount, window),
        A::SlidingLog => Limit::sliding_log(amount, window),
        A::SlidingWindowCounter => Limit::sliding_window_counter(amount, window),
        A::SubWindow => Limit::sub_window(amount, window, spec.sub_windows, spec.strict),
        A::TokenBucket => Limit::token_bucket(amount, window, spec.burst),
        A::Gcra => Limit::gcra(amount, window, spec.burst),
        A::LeakyBucket => Limit::leaky_bucket(amount, window, spec.burst),
        A::SlidingWindow if spec.strict => Limit::sliding_window_strict(amount, window),
        A::SlidingWindow => Limit::sliding_window(amount, window),
        A::Concurrency => Limit::concurrency(amount, Micros::new(spec.ttl_us)),
        A::Calendar => {
            let calendar = spec.calendar.as_ref().expect("a calendar spec has a calendar");
            Limit::calendar(amount, self::calendar(calendar)?)
        }
    }?;
    limit.charging(if spec.always { Charge::Always } else { Charge::Admitted })
}

fn calendar(calendar: &oracle::Calendar) -> Result<Calendar, LimitError> {
    let unit = match calendar.unit {
        oracle::Unit::Day => Unit::Day,
        oracle::Unit::Week => Unit::Week,
        oracle::Unit::Month => Unit::Month,
    };
    let week_start = match calendar.week_start {
        oracle::Weekday::Monday => Weekday::Monday,
        oracle::Weekday::Tuesday => Weekday::Tuesday,
        oracle::Weekday::Wednesday => Weekday::Wednesday,
        oracle::Weekday::Thursday => Weekday::Thursday,
        oracle::Weekday::Friday => Weekday::Friday,
        oracle::Weekday::Saturday => Weekday::Saturday,
        oracle::Weekday::Sunday => Weekday::Sunday,
    };
    Calendar::new(unit, &calendar.zone, week_start)
}

/// An oracle's ask in the core's words.
pub(crate) fn ask(ask: &oracle::Ask) -> Ask {
    let receipt =
        |receipt: &oracle::Receipt| Receipt { at: Micros::new(receipt.at_us), units: receipt.units };
    match ask {
        oracle::Ask::Charge { cost } => Ask::Charge { cost: *cost },
        oracle::Ask::Peek => Ask::Peek,
        oracle::Ask::Refund { units, receipt: of } => {
            Ask::Refund { units: *units, receipt: of.as_ref().map(receipt) }
        }
        oracle::Ask::Settle { receipt: of, actual } => Ask::Settle { receipt: receipt(of), actual: *actual },
        oracle::Ask::Acquire { id, cost } => Ask::Acquire { id: *id, cost: *cost },
        oracle::Ask::Renew { id } => Ask::Renew { id: *id },
        oracle::Ask::Release { id } => Ask::Release { id: *id },
    }
}

/// A verdict in the oracle's words.
pub(crate) fn answer(verdict: &Verdict) -> oracle::Answer {
    oracle::Answer {
        outcome: match verdict.outcome {
            Outcome::Admitted => oracle::Outcome::Admitted,
            Outcome::RateLimited => oracle::Outcome::RateLimited,
            Outcome::CostExceedsLimit => oracle::Outcome::CostExceedsLimit,
            Outcome::NotHeld => oracle::Outcome::NotHeld,
        },
        remaining: verdict.remaining.into(),
        debt: verdict.debt.into(),
        reset_after_us: verdict.reset_after.get(),
        retry_after_us: verdict.retry_after.map(Micros::get),
        reset_us: verdict.reset.get(),
        applied: verdict.applied,
        forgiven: verdict.forgiven,
        at_us: verdict.at.get(),
        over: verdict.bound.over.into(),
        under: verdict.bound.under.into(),
    }
}

/// One operation of a script, as it was answered.
pub(crate) struct Step<'a> {
    /// Its number among the operations.
    pub(crate) number: usize,
    pub(crate) spec: &'a oracle::Spec,
    pub(crate) limit: &'a Limit,
    /// The same ask in both languages.
    pub(crate) ask: Ask,
    pub(crate) asked: oracle::Ask,
    pub(crate) now: Micros,
    /// The state before and after.
    pub(crate) before: State,
    pub(crate) after: &'a mut State,
    pub(crate) verdict: Verdict,
}

/// Runs a script on one counter and shows each operation to `look`.
pub(crate) fn walk<E>(
    script: &oracle::Script,
    mut look: impl FnMut(Step<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut current: Option<(&oracle::Spec, Limit)> = None;
    let mut state: Option<State> = None;
    let mut answers = Vec::new();
    for line in &script.lines {
        match line {
            oracle::Line::Limit(spec) => {
                let limit = limit(spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
                state.get_or_insert_with(|| limit.state());
                current = Some((spec, limit));
            }
            oracle::Line::At { us, op } => {
                let (Some((spec, limit)), Some(state)) = (&current, &mut state) else {
                    panic!("a script starts with a limit")
                };
                let asked = oracle::resolve(op, &answers);
                let (ask, now) = (ask(&asked), Micros::new(*us));
                let before = state.clone();
                let verdict = limit.step(state, ask, now);
                let number = answers.len();
                answers.push(answer(&verdict));
                look(Step { number, spec, limit, ask, asked, now, before, after: state, verdict })?;
            }
        }
    }
    Ok(())
}
