//! Durations and rates: `1h30m`, `100/min`.

use jiff::Timestamp;
use tidegate_core::Micros;

use crate::codes::Code;
use crate::diagnostic::quoted;
use crate::scalars::{Wrong, digits};

/// A unit of time, for windows that follow the calendar.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TimeUnit {
    /// 1 µs.
    Microsecond,
    /// 1 ms.
    Millisecond,
    /// 1 s.
    Second,
    /// 60 s.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
    /// 7 days.
    Week,
    /// 30 days, as in envoyproxy/ratelimit.
    Month,
    /// 365 days, as in envoyproxy/ratelimit.
    Year,
}

/// Every unit: its length in microseconds and its spellings, the shortest first.
const UNITS: [(TimeUnit, u64, &[&str]); 9] = [
    (TimeUnit::Microsecond, 1, &["us"]),
    (TimeUnit::Millisecond, 1_000, &["ms"]),
    (TimeUnit::Second, 1_000_000, &["s", "sec", "second", "seconds"]),
    (TimeUnit::Minute, 60_000_000, &["m", "min", "minute", "minutes"]),
    (TimeUnit::Hour, 3_600_000_000, &["h", "hour", "hours"]),
    (TimeUnit::Day, 86_400_000_000, &["d", "day", "days"]),
    (TimeUnit::Week, 7 * 86_400_000_000, &["w", "week", "weeks"]),
    (TimeUnit::Month, 30 * 86_400_000_000, &["month", "months"]),
    (TimeUnit::Year, 365 * 86_400_000_000, &["year", "years"]),
];

/// Every spelling of every unit, for patterns.
pub(crate) fn unit_words() -> impl Iterator<Item = &'static str> {
    UNITS.iter().flat_map(|(_, _, words)| words.iter().copied())
}

/// An amount, within a window or at the same time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rate {
    /// How much.
    pub amount: u64,
    /// Within what; without it, at the same time.
    pub window: Option<Window>,
}

/// The time of a [`Rate`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// As written.
    pub text: String,
    /// Its length; a month is 30 days and a year 365.
    pub length: Micros,
    /// The unit, if it was written without a number (`100/day`) and so may be meant as the calendar's.
    pub unit: Option<TimeUnit>,
}

pub(crate) fn duration(text: &str, min: Micros, max: Micros) -> Result<Micros, Wrong> {
    let us = sum(text)?;
    if us > u128::from(max.get()) || us < u128::from(min.get()) {
        let side = if us < u128::from(min.get()) { "short" } else { "long" };
        let message = format!("{} is too {side}: it has to be from {min} to {max}", quoted(text));
        return Err(Wrong::new(Code::OutOfRange, message));
    }
    Ok(Micros::new(us as u64))
}

/// The last instant that a file may name, the start of the year 2200: there is room behind it for times that pass.
const INSTANT_MAX: Micros = Micros::from_secs(7_258_118_400);

pub(crate) fn instant(text: &str) -> Result<Micros, Wrong> {
    let instant: Timestamp = text.trim().parse().map_err(|_| {
        Wrong::new(Code::BadInstant, format!("{} is not a date and time", quoted(text))).help(
            "write it with its offset from UTC, e.g. `2026-01-01T00:00:00Z` or `2026-01-01T09:30:00+01:00`",
        )
    })?;
    let us = u64::try_from(instant.as_microsecond()).ok().filter(|us| *us <= INSTANT_MAX.get());
    us.map(Micros::new).ok_or_else(|| {
        Wrong::new(Code::OutOfRange, format!("{} is not between the years 1970 and 2200", quoted(text)))
    })
}

/// Microseconds in a sum of whole numbers with units.
fn sum(text: &str) -> Result<u128, Wrong> {
    let wrong = |why: String| Wrong::new(Code::BadDuration, why);
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong("a duration is empty".into()).help("write e.g. `15m`"));
    }
    if let Some((_, _, words)) = UNITS.iter().find(|(_, _, words)| words.contains(&rest)) {
        return Err(wrong(format!("{} has no number", quoted(text))).help(format!("write `1{}`", words[0])));
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let number_end =
            rest.find(|letter: char| !letter.is_ascii_digit() && letter != '_').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(number_end);
        if behind.starts_with('.') {
            return Err(wrong(format!("{} has a fraction", quoted(text)))
                .help("write whole numbers, in a smaller unit or as a sum: `1s500ms` instead of `1.5s`"));
        }
        let behind = behind.trim_start();
        let unit_end = behind.find(|letter: char| !letter.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit_end);
        if number.is_empty() {
            return Err(wrong(format!("{} is not a duration", quoted(text)))
                .help("write a whole number with a unit, e.g. `500ms`, `15m`, `1h30m`"));
        }
        if unit.is_empty() {
            let help = if number == text.trim() {
                format!("add a unit, e.g. `{}s`", short(number))
            } else {
                "add a unit, e.g. `1h30m`".into()
            };
            return Err(wrong(format!("{} has no unit", quoted(text))).help(help));
        }
        let us = unit_us(unit).ok_or_else(|| unknown_unit(text, unit))?;
        let number = digits(number).map_err(|number| Wrong { code: Code::BadDuration, ..number })?;
        total = total.saturating_add(number.saturating_mul(u128::from(us)));
        rest = behind.trim_start();
    }
    Ok(total)
}

fn unit_us(unit: &str) -> Option<u64> {
    UNITS.iter().find(|(_, _, words)| words.contains(&unit)).map(|(_, us, _)| *us)
}

fn unknown_unit(text: &str, unit: &str) -> Wrong {
    let wrong =
        Wrong::new(Code::BadDuration, format!("{} has the unknown unit {}", quoted(text), quoted(unit)));
    let lower = unit.to_ascii_lowercase();
    match unit_us(&lower) {
        Some(_) => wrong.help(format!("write `{lower}` in lower case")),
        None => wrong.help("units are us, ms, s, m, h, d, w, month, year"),
    }
}

fn short(number: &str) -> &str {
    number.get(..12).unwrap_or(number)
}

pub(crate) fn rate(text: &str) -> Result<Rate, Wrong> {
    let wrong = |why: &str| Wrong::new(Code::BadRate, format!("{} {why}", quoted(text)));
    let (amount, window) = match text.split_once('/') {
        Some((amount, window)) => (amount.trim(), Some(window.trim())),
        None => (text.trim(), None),
    };
    let amount = match window {
        Some(_) => amount.strip_suffix('r').unwrap_or(amount).trim_end(),
        None => amount,
    };
    let amount = digits(amount).map_err(|number| match number.code {
        Code::OutOfRange => number,
        _ => wrong("is not a rate").help("write an amount, a slash and a window, e.g. `100/min`, `5/15m`"),
    })?;
    let amount = u64::try_from(amount)
        .map_err(|_| Wrong::new(Code::OutOfRange, format!("the amount of {} is too large", quoted(text))))?;
    let Some(window) = window else { return Ok(Rate { amount, window: None }) };
    if let Some((unit, us, _)) = UNITS.iter().find(|(_, _, words)| words.contains(&window)) {
        let window = Window { text: window.into(), length: Micros::new(*us), unit: Some(*unit) };
        return Ok(Rate { amount, window: Some(window) });
    }
    let us = sum(window).map_err(|wrong| {
        let message = format!("the window of {} is wrong: {}", quoted(text), wrong.message);
        Wrong { code: Code::BadRate, message, ..wrong }
    })?;
    if us == 0 || us > u128::from(Micros::MAX.get()) {
        let why = if us == 0 { "is nothing" } else { "is longer than time here lasts" };
        return Err(Wrong::new(Code::OutOfRange, format!("the window of {} {why}", quoted(text))));
    }
    Ok(Rate {
        amount,
        window: Some(Window { text: window.into(), length: Micros::new(us as u64), unit: None }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        match duration(text, Micros::new(1), Micros::from_secs(366 * 86_400)) {
            Ok(length) => length.to_string(),
            Err(wrong) => format!("{}: {}; {}", wrong.code, wrong.message, wrong.help.unwrap_or_default()),
        }
    }

    #[test]
    fn durations_are_sums_of_whole_numbers_with_units() {
        for (text, expected) in [
            ("500ms", "500ms"),
            ("15m", "15m"),
            ("1h30m", "90m"),
            ("1 hour 30 minutes", "90m"),
            ("2d", "2d"),
            ("1w", "7d"),
            ("1month", "30d"),
            ("1year", "365d"),
            ("1_000s", "1000s"),
            ("60", "bad-duration: `60` has no unit; add a unit, e.g. `60s`"),
            ("1h30", "bad-duration: `1h30` has no unit; add a unit, e.g. `1h30m`"),
            (
                "1.5s",
                "bad-duration: `1.5s` has a fraction; write whole numbers, in a smaller unit or as a sum: `1s500ms` instead of `1.5s`",
            ),
            ("day", "bad-duration: `day` has no number; write `1d`"),
            ("15M", "bad-duration: `15M` has the unknown unit `M`; write `m` in lower case"),
            (
                "5 lunes",
                "bad-duration: `5 lunes` has the unknown unit `lunes`; units are us, ms, s, m, h, d, w, month, year",
            ),
            (
                "-5s",
                "bad-duration: `-5s` is not a duration; write a whole number with a unit, e.g. `500ms`, `15m`, `1h30m`",
            ),
            ("0s", "out-of-range: `0s` is too short: it has to be from 1us to 366d; "),
            ("2years", "out-of-range: `2years` is too long: it has to be from 1us to 366d; "),
            ("", "bad-duration: a duration is empty; write e.g. `15m`"),
        ] {
            assert_eq!(said(text), expected, "{text}");
        }
        assert!(said(&format!("{}s", "9".repeat(60))).starts_with("out-of-range"));
    }

    #[test]
    fn instants_say_how_far_they_are_from_utc() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-01-01T00:00:00Z", Some(1_767_225_600)),
            ("2026-01-01T01:00:00+01:00", Some(1_767_225_600)),
            ("2200-01-01T00:00:00Z", Some(7_258_118_400)),
            ("2200-01-01T00:00:01Z", None),
            ("1969-12-31T23:59:59Z", None),
            ("2026-01-01T00:00:00", None),
            ("2026-01-01", None),
            ("2026-02-30T00:00:00Z", None),
            ("yesterday", None),
        ] {
            assert_eq!(instant(text).ok(), seconds.map(Micros::from_secs), "{text}");
        }
    }

    #[test]
    fn rates_are_an_amount_and_a_window() {
        for (text, amount, length, unit) in [
            ("5/15m", 5, Some("15m"), None),
            ("100/min", 100, Some("1m"), Some(TimeUnit::Minute)),
            ("100 / minute", 100, Some("1m"), Some(TimeUnit::Minute)),
            ("10r/s", 10, Some("1s"), Some(TimeUnit::Second)),
            ("1000/month", 1_000, Some("30d"), Some(TimeUnit::Month)),
            ("1_000/1d", 1_000, Some("1d"), None),
            ("20", 20, None, None),
        ] {
            let rate = rate(text).ok();
            let window = rate.as_ref().and_then(|rate| rate.window.clone());
            assert_eq!(rate.map(|rate| rate.amount), Some(amount), "{text}");
            assert_eq!(window.as_ref().map(|window| window.length.to_string()).as_deref(), length, "{text}");
            assert_eq!(window.and_then(|window| window.unit), unit, "{text}");
        }
        for (text, code) in [
            ("100 per min", Code::BadRate),
            ("100/", Code::BadRate),
            ("/min", Code::BadRate),
            ("10r", Code::BadRate),
            ("1/0s", Code::OutOfRange),
            ("-1/s", Code::OutOfRange),
            ("5/15", Code::BadRate),
            ("1/99999999999999d", Code::OutOfRange),
            ("99999999999999999999/s", Code::OutOfRange),
        ] {
            assert_eq!(rate(text).map_err(|wrong| wrong.code), Err(code), "{text}");
        }
    }
}
