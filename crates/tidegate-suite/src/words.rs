//! Limits, asks and verdicts in the core's words and in the oracle's. Types only: nothing here decides.

use tidegate_core::{
    Ask, Bound, Calendar, Charge, Limit, LimitError, Micros, Outcome, Receipt, Unit, Verdict, Weekday,
};
use tidegate_oracle::{self as oracle, Algorithm, Spec};

/// The limit that a spec describes, or why there is no such limit.
pub(crate) fn limit_of(spec: &Spec) -> Result<Limit, LimitError> {
    use Algorithm as A;
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
        A::Calendar => calendar_of(spec).and_then(|calendar| Limit::calendar(amount, calendar)),
    }?;
    limit.charging(if spec.always { Charge::Always } else { Charge::Admitted })
}

fn calendar_of(spec: &Spec) -> Result<Calendar, LimitError> {
    let Some(calendar) = &spec.calendar else {
        return Err(LimitError::ZoneUnknown { zone: String::new() });
    };
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

/// The spec of a limit, by way of its text: both crates write a limit alike.
pub(crate) fn spec_of(limit: &Limit) -> Spec {
    let text = limit.to_string();
    text.parse().unwrap_or_else(|error| panic!("a limit prints what the oracle reads, not `{text}`: {error}"))
}

/// What is part of a counter's key: with another shape it is another counter.
pub(crate) fn shape_of(limit: &Limit) -> String {
    // The text of a limit names its number of sub-windows even where the script left it to the default.
    let Spec { algorithm, window_us, sub_windows, strict, calendar, .. } = spec_of(limit);
    format!("{algorithm:?} {window_us} {sub_windows:?} {strict} {calendar:?}")
}

/// An ask in the oracle's words.
pub(crate) fn asked(ask: Ask) -> oracle::Ask {
    let receipt = |of: Receipt| oracle::Receipt { at_us: of.at.get(), units: of.units };
    match ask {
        Ask::Charge { cost } => oracle::Ask::Charge { cost },
        Ask::Peek => oracle::Ask::Peek,
        Ask::Refund { units, receipt: of } => oracle::Ask::Refund { units, receipt: of.map(receipt) },
        Ask::Settle { receipt: of, actual } => oracle::Ask::Settle { receipt: receipt(of), actual },
        Ask::Acquire { id, cost } => oracle::Ask::Acquire { id, cost },
        Ask::Renew { id } => oracle::Ask::Renew { id },
        Ask::Release { id } => oracle::Ask::Release { id },
    }
}

/// The oracle's answer as a verdict on a limit.
pub(crate) fn verdict_of(limit: &Limit, answer: &oracle::Answer) -> Verdict {
    let units = |units: u64| u32::try_from(units).unwrap_or(u32::MAX);
    Verdict {
        outcome: match answer.outcome {
            oracle::Outcome::Admitted => Outcome::Admitted,
            oracle::Outcome::RateLimited => Outcome::RateLimited,
            oracle::Outcome::CostExceedsLimit => Outcome::CostExceedsLimit,
            oracle::Outcome::NotHeld => Outcome::NotHeld,
        },
        limit: limit.amount(),
        remaining: units(answer.remaining),
        debt: units(answer.debt),
        reset_after: Micros::new(answer.reset_after_us),
        retry_after: answer.retry_after_us.map(Micros::new),
        reset: Micros::new(answer.reset_us),
        bound: Bound { over: units(answer.over), under: units(answer.under) },
        applied: answer.applied,
        forgiven: answer.forgiven,
        at: Micros::new(answer.at_us),
    }
}

/// A verdict on one line, for people.
pub(crate) fn tell(verdict: &Verdict) -> String {
    let retry = verdict.retry_after.map_or("-".to_owned(), |wait| wait.to_string());
    let Verdict { outcome, limit, remaining, reset_after, reset, applied, forgiven, debt, at, .. } = verdict;
    let Bound { over, under } = verdict.bound;
    format!(
        "{outcome:?} limit={limit} remaining={remaining} retry={retry} reset={reset} reset_after={reset_after} \
         applied={applied} forgiven={forgiven} debt={debt} at={at} over={over} under={under}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_and_its_spec_say_the_same() {
        for text in [
            "sliding_window 100/1m",
            "sliding_window 4294967295/366d strict charge=always",
            "sliding_window_counter 10/1500ms",
            "sub_window 100/1m",
            "sub_window 100/1m k=10 strict",
            "sub_window 7/1001us charge=always",
            "sliding_log 10000/1h",
            "fixed_window 0/1ms",
            "token_bucket 5/1s",
            "token_bucket 5/1s burst=10",
            "gcra 1/1500ms burst=3 charge=always",
            "leaky_bucket 7/90s",
            "concurrency 20 ttl=61s",
            "calendar 1000/month zone=America/New_York",
            "calendar 10/week zone=UTC week_start=sunday charge=always",
            "calendar 10/week zone=UTC",
            "calendar 10/day zone=Asia/Kathmandu",
        ] {
            let spec: Spec = text.parse().expect(text);
            let limit = limit_of(&spec).expect(text);
            let told = spec_of(&limit);
            // What the script leaves to the default, the limit names.
            let expected = Spec {
                burst: spec.algorithm.is_bucket().then(|| spec.burst.unwrap_or(spec.amount)),
                sub_windows: told.sub_windows,
                ..spec
            };
            assert_eq!(told, expected, "{text}");
            assert_eq!(limit_of(&told), Ok(limit), "{text}");
        }
    }

    #[test]
    fn a_shape_is_all_but_the_numbers() {
        let shape = |text: &str| shape_of(&limit_of(&text.parse().expect(text)).expect(text));
        for (one, other, is_same) in [
            ("sliding_window 1/1m", "sliding_window 9/60s charge=always", true),
            ("sub_window 1/1m", "sub_window 9/1m k=60", true),
            ("gcra 1/1m burst=3", "gcra 2/1m", true),
            ("concurrency 1 ttl=1m", "concurrency 2 ttl=2m", true),
            ("calendar 1/week zone=UTC", "calendar 2/week zone=UTC", true),
            ("calendar 1/week zone=UTC", "calendar 1/week zone=UTC week_start=sunday", false),
            ("calendar 1/week zone=UTC", "calendar 1/week zone=Europe/Berlin", false),
            ("sliding_window 1/1m", "sliding_window 1/1m strict", false),
            ("sliding_window 1/1m", "sliding_window 1/61s", false),
            ("sub_window 1/1m", "sub_window 1/1m k=10", false),
            ("gcra 1/1m", "token_bucket 1/1m", false),
        ] {
            assert_eq!(shape(one) == shape(other), is_same, "{one} and {other}");
        }
    }
}
