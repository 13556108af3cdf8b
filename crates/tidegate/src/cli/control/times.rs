//! Instants and spans, as people write them: `2026-12-01T00:00:00Z`, `2026-12-01`, `30m`.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use tidegate_clock::Clock;

/// The longest span.
const SPAN_MAX: Duration = Duration::from_secs(366 * 86_400 * 10);

/// For `--help`.
pub(super) const TIMES: &str = "\
TIME is 2026-12-01T00:00:00Z (or with an offset, +01:00), 2026-12-01 (midnight UTC),
or a span from now: 90s, 30m, 12h, 7d";

/// The same, where it is about what was.
pub(super) const TIMES_AGO: &str = "\
TIME is 2026-12-01T00:00:00Z (or with an offset, +01:00), 2026-12-01 (midnight UTC),
or so long ago: 90s, 30m, 12h, 7d";

/// Which side of now a span is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Ahead,
    Ago,
}

/// An instant, for the API; a span is so long from now.
pub(super) fn ahead(said: &str) -> Result<String, String> {
    instant(said, Side::Ahead, now()?)
}

/// An instant, for the API; a span is so long ago.
pub(super) fn ago(said: &str) -> Result<String, String> {
    instant(said, Side::Ago, now()?)
}

/// A span alone, as an instant so long from now.
pub(super) fn span_ahead(said: &str) -> Result<String, String> {
    match span(said) {
        Some(_) => ahead(said),
        None => Err(format!("`{said}` is no span such as 90s, 30m, 12h or 7d")),
    }
}

/// This very moment, for the API, if that instant is still ahead.
pub(super) fn now_text_if_ahead(of: &str) -> Result<Option<String>, String> {
    let now = now()?;
    Ok(of.parse::<Timestamp>().is_ok_and(|at| at > now).then(|| now.to_string()))
}

fn now() -> Result<Timestamp, String> {
    let us = i64::try_from(Clock::real().wall_now_us()).unwrap_or(i64::MAX);
    Timestamp::from_microsecond(us).map_err(|error| error.to_string())
}

fn instant(said: &str, side: Side, now: Timestamp) -> Result<String, String> {
    if let Some(span) = span(said) {
        let moved = match side {
            Side::Ahead => now.checked_add(span),
            Side::Ago => now.checked_sub(span),
        };
        return moved.map(seconds).map_err(|error| error.to_string());
    }
    if let Ok(at) = said.parse::<Timestamp>() {
        return Ok(at.to_string());
    }
    let midnight = said.parse::<Date>().ok().and_then(|date| date.to_zoned(TimeZone::UTC).ok());
    match midnight {
        Some(at) if said.len() == "2026-12-01".len() => Ok(at.timestamp().to_string()),
        _ => Err(format!("`{said}` is no time such as 2026-12-01T00:00:00Z, 2026-12-01 or 30m")),
    }
}

/// Whole seconds are enough where somebody says so long from now.
fn seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

fn span(said: &str) -> Option<Duration> {
    let unit = said.chars().last()?;
    let number: u64 = said.strip_suffix(unit)?.parse().ok()?;
    let factor = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let span = Duration::from_secs(number.checked_mul(factor)?);
    (!span.is_zero() && span <= SPAN_MAX).then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_instants_days_or_spans() {
        let now: Timestamp = "2026-11-17T05:00:00.5Z".parse().expect("a time");
        let read = |said: &str, side| instant(said, side, now).ok();
        for (said, ahead, ago) in [
            ("2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z"),
            ("2026-12-01T01:00:00+01:00", "2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z"),
            ("2026-12-01", "2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z"),
            ("30m", "2026-11-17T05:30:00Z", "2026-11-17T04:30:00Z"),
            ("7d", "2026-11-24T05:00:00Z", "2026-11-10T05:00:00Z"),
        ] {
            assert_eq!(read(said, Side::Ahead).as_deref(), Some(ahead), "{said}");
            assert_eq!(read(said, Side::Ago).as_deref(), Some(ago), "{said}");
        }
        for odd in
            ["", "soon", "0s", "-5m", "5x", "m", "5 m", "99999999999d", "2026-13-01", "12:00", "20261201"]
        {
            assert_eq!(read(odd, Side::Ahead), None, "{odd}");
        }
        assert!(span_ahead("2026-12-01").is_err() && span_ahead("5m").is_ok());
    }

    #[test]
    fn what_has_ended_is_asked_for_by_a_time_that_is_over() {
        let is_ahead = |at: &str| now_text_if_ahead(at).expect("a clock").is_some();
        assert!(is_ahead("9000-01-01T00:00:00Z") && !is_ahead("2001-01-01T00:00:00Z"));
    }
}
