//! Names, spans of time and lists, as people read them.

use tidegate_config::{escaped, quoted};
use tidegate_core::{Entry, Limit, Micros, Outcome, PathEntry, Rule};

use super::{ExplainedEntry, ExplainedLimit};

/// A text from outside, all of it, with nothing in it that a terminal obeys.
pub(super) fn shown(text: &str) -> String {
    escaped(text)
}

pub(super) fn entry(entry: &Entry<'_>) -> ExplainedEntry {
    ExplainedEntry { key: shown(entry.key), value: shown(entry.value) }
}

/// An entry in a sentence.
pub(super) fn quoted_entry(entry: &Entry<'_>) -> String {
    quoted(&format!("{}={}", entry.key, entry.value))
}

/// A node of the tree, by its last level: `key`, or `key=value`.
pub(super) fn node(path: &[PathEntry]) -> String {
    match path.last() {
        None => "the top of the domain".to_owned(),
        Some(PathEntry { key, value: None, .. }) => shown(key),
        Some(PathEntry { key, value: Some(value), .. }) => shown(&format!("{key}={value}")),
    }
}

/// What people call a limit: its name, without one its algorithm and window.
pub(super) fn name(rule: Option<&Rule>, limit: Option<&Limit>) -> String {
    match (rule.and_then(|rule| rule.said.name.as_deref()), rule, limit) {
        (Some(name), ..) => shown(name),
        (None, None, _) => "the limit of the request".to_owned(),
        (None, Some(_), Some(limit)) => limit.label(),
        (None, Some(_), None) => "unlimited".to_owned(),
    }
}

/// A name in a sentence: in backticks, unless it is a description.
pub(super) fn called(name: &str) -> String {
    if name.starts_with("the limit of") { name.to_owned() } else { quoted(name) }
}

/// Does it count places that are held, not units in time?
pub(super) fn places(limit: &ExplainedLimit) -> bool {
    limit.limit.as_deref().is_some_and(|limit| limit.starts_with("concurrency "))
}

/// Where a rule is written, if that is known.
pub(super) fn written(rule: &Rule) -> Option<String> {
    let origin = &rule.said.origin;
    match (&*origin.file, origin.line) {
        ("", _) => None,
        (file, 0) => Some(shown(file)),
        (file, line) => Some(format!("{}:{line}", shown(file))),
    }
}

/// The code that callers are told.
pub(super) fn code(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Admitted => None,
        Outcome::RateLimited => Some("RATE_LIMITED"),
        Outcome::CostExceedsLimit => Some("COST_EXCEEDS_LIMIT"),
        Outcome::NotHeld => Some("NOT_HELD"),
    }
}

/// Whole milliseconds, rounded up: who comes early is refused again.
pub(super) fn ms_up(span: Micros) -> u64 {
    span.get().div_ceil(1_000)
}

/// A wait, in two units at most, rounded up: `42 s`, `3 min 20 s`, `2 d 5 h`.
pub(super) fn span(ms: u64) -> String {
    const SECOND: u64 = 1_000;
    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let two = |large: u64, word: &str, small: u64, small_word: &str| {
        let rounded = ms.div_ceil(small);
        let (many, few) = (rounded / (large / small), rounded % (large / small));
        if few == 0 { format!("{many} {word}") } else { format!("{many} {word} {few} {small_word}") }
    };
    let tenths = ms.div_ceil(SECOND / 10);
    match ms {
        _ if ms < SECOND => format!("{ms} ms"),
        _ if ms < 10 * SECOND && !tenths.is_multiple_of(10) => format!("{}.{} s", tenths / 10, tenths % 10),
        _ if ms <= 2 * MINUTE => format!("{} s", ms.div_ceil(SECOND)),
        _ if ms <= HOUR => two(MINUTE, "min", SECOND, "s"),
        _ if ms <= DAY => two(HOUR, "h", MINUTE, "min"),
        _ => two(DAY, "d", HOUR, "h"),
    }
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `1 limit`, `2 limits`.
pub(super) fn count(many: usize, word: &str) -> String {
    if many == 1 { format!("1 {word}") } else { format!("{many} {word}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_as_long_as_is_said_has_waited_long_enough() {
        for (ms, expected) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (1_001, "1.1 s"),
            (9_901, "10 s"),
            (10_001, "11 s"),
            (42_000, "42 s"),
            (120_000, "120 s"),
            (120_001, "2 min 1 s"),
            (3_599_001, "60 min"),
            (3_600_001, "1 h 1 min"),
            (86_400_000, "24 h"),
            (86_400_001, "1 d 1 h"),
            (2_678_400_000, "31 d"),
        ] {
            assert_eq!(span(ms), expected, "{ms}");
        }
    }
}
