//! Rule files made from the tables: mostly what may stand there, sometimes what may not.

use std::fmt;

use libfuzzer_sys::arbitrary::{Arbitrary, Result, Unstructured};
use tidegate_config::{DOMAIN, Kind, Place, RATE_LIMIT, Word};

use crate::FILE_SEPARATOR;

/// How deep lists and maps may be in each other: some paths of several levels.
const DEPTH_MAX: usize = 14;

/// Words of each kind: those that can be used as they are, and then those that mostly cannot.
type Words = (&'static [&'static str], &'static [&'static str]);

const NAMES: Words = (&["pro", "free", "é"], &["\"\"", "\"*\"", "\"a\\e[2J\""]);
const TEXTS: Words = (
    &[
        "a",
        "b",
        "api_key",
        "user",
        "\"*\"",
        "a*",
        "\"*b*\"",
        "remote_address",
        "\"x:y|z#w\"",
        "é",
        "5",
        "tier",
    ],
    &["\"\"", "\"\\u202e\"", "~", "|\n  two\n  lines", "'it''s'", "\"\\N\""],
);
const FLAGS: Words = (&["false", "true", "yes", "off"], &["maybe", "\"\""]);
const DURATIONS: Words = (
    &["1s", "15m", "1h30m", "100ms"],
    &["0s", "366d", "1us", "400d", "99999999999999999999h", "1.5s", "-1s"],
);
const SIGNED: Words =
    (&["1", "0", "-1"], &["9223372036854775807", "-9223372036854775808", "-9223372036854775809"]);
const INSTANTS: Words =
    (&["2026-05-01T00:00:00Z"], &["2026-13-01T00:00:00Z", "+999999-01-01T00:00:00Z", "now"]);
const SIZES: Words = (&["1KiB", "32MiB"], &["0", "1e9", "99999999999999999999GiB"]);
const PERCENTS: Words = (&["100%", "25%", "0%", "0.01%"], &["101%", "0.001%", "-1%", "25"]);
const RATES: Words = (
    &["100/1m", "5/15m", "1/s", "1000/month", "10000/day", "1/week"],
    &["20", "0/s", "18446744073709551615/366d", "9007199254740992/1ms", "1/0s", "1/"],
);
const RANGES: Words = (
    &["10.0.0.0/8", "\"2001:db8::/32\"", "127.0.0.1", "0.0.0.0/0"],
    &["\"::ffff:10.0.0.0/104\"", "10.0.0.1/8", "10.0.0.0/33"],
);
const FREE: Words = (&["{ a: [1, ~, x], b: { c: true } }", "text", "[]"], ODD);
/// What hardly anything may be.
const ODD: &[&str] = &[
    "~",
    "-1",
    "1e999",
    "[]",
    "{}",
    "[[a], {b: c}]",
    "{<<: {a: b}, c: d}",
    "!!str x",
    "\"\\0\"",
    "0x10",
    "*a",
    "&a b",
];

/// Limits that can be counted: most that is drawn from the table cannot.
const LIMITS: &[&str] = &[
    "limit: 100/1m",
    "requests_per_unit: 5, unit: hour",
    "unlimited: true",
    "limit: 7/1s, strict: true",
    "limit: 20, algorithm: concurrency, ttl: 30s, lease_id: b",
    "limit: 5/15m, algorithm: token_bucket, burst: 10",
    "limit: 1/366d, algorithm: gcra",
    "limit: 9/1m, algorithm: leaky_bucket, charge: always",
    "limit: 1000/month, algorithm: calendar, time_zone: Europe/Berlin",
    "limit: 3/week, algorithm: calendar, week_start: sunday",
    "limit: 10/1s, algorithm: sub_window, sub_windows: 10, strict: true",
    "limit: 10000/1h, algorithm: sliding_log",
    "limit: 8/250ms, algorithm: sliding_window_counter, enforce: 25%",
    "requests_per_unit: 0, unit: day, algorithm: fixed_window, disabled: true",
];
const LIMIT_ENDS: &[&str] =
    &["", ", replaces: [{ name: n1 }]", ", reservation_id: user", ", consistency: local"];
/// Fields that fit only where others say the right thing.
const TRICKY: &[&str] = &["always", "rate_limits", "share_threshold", "tiers"];

/// A rule file, or several.
pub struct Written(pub String);

impl fmt::Debug for Written {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl<'a> Arbitrary<'a> for Written {
    fn arbitrary(dice: &mut Unstructured<'a>) -> Result<Self> {
        let careless = dice.ratio(1, 3)?;
        let mut writer = Writer { dice, text: String::new(), careless, count: 0 };
        writer.place(&DOMAIN, 0)?;
        while !writer.dice.is_empty() && writer.dice.ratio(1, 3)? {
            writer.text += "\n";
            if writer.dice.ratio(1, 4)? {
                writer.text.push(FILE_SEPARATOR.into());
            } else {
                writer.text += "---\n";
            }
            writer.place(&DOMAIN, 0)?;
        }
        Ok(Self(writer.text + "\n"))
    }
}

/// Every choice is taken from the input. When that is used up, each is the first, and lists are empty.
struct Writer<'d, 'a> {
    dice: &'d mut Unstructured<'a>,
    text: String,
    /// Is now and then written what may not stand there?
    careless: bool,
    /// Who is careful gives everything a name of its own.
    count: usize,
}

impl Writer<'_, '_> {
    fn place(&mut self, place: &'static Place, depth: usize) -> Result<()> {
        if std::ptr::eq(place, &RATE_LIMIT) && !(self.careless && self.dice.ratio(1, 2)?) {
            let (limit, end) = (self.dice.choose(LIMITS)?, self.dice.choose(LIMIT_ENDS)?);
            let count = self.next();
            self.text += &format!(" {{ {limit}{end}, name: n{count} }}");
            return Ok(());
        }
        let mut empty = true;
        for field in place.fields {
            let left_out = field.required && self.careless && self.dice.ratio(1, 32)?;
            let tricky = TRICKY.contains(&field.name) && !self.careless;
            let rarely = if tricky { 16 } else { 4 };
            let is_tree = field.name == "descriptors";
            let wanted =
                field.required || (!self.dice.is_empty() && (is_tree || self.dice.ratio(1, rarely)?));
            if wanted && !left_out {
                self.line(depth, &mut empty);
                let spellings: Vec<&str> = [field.name].iter().chain(field.aliases).copied().collect();
                self.text += self.dice.choose(&spellings)?;
                self.text.push(':');
                self.value(field.kind, depth + 1)?;
            }
        }
        if empty {
            self.text += " {}";
        }
        Ok(())
    }

    /// What follows a colon or a dash.
    fn value(&mut self, kind: Kind, depth: usize) -> Result<()> {
        if self.careless && self.dice.ratio(1, 64)? {
            self.text += " &a";
        }
        if depth > DEPTH_MAX || (self.careless && self.dice.ratio(1, 64)?) {
            return self.word((ODD, &[]));
        }
        match kind {
            Kind::Text if !self.careless && self.dice.ratio(1, 2)? => {
                let count = self.next();
                self.text += &format!(" t{count}");
                Ok(())
            }
            Kind::Text => self.word(TEXTS),
            Kind::Flag => self.word(FLAGS),
            Kind::Whole { min, max } => self.whole(min, max),
            Kind::Signed { .. } => self.word(SIGNED),
            Kind::Duration { .. } => self.word(DURATIONS),
            Kind::Instant => self.word(INSTANTS),
            Kind::Bytes { .. } => self.word(SIZES),
            Kind::Percent => self.word(PERCENTS),
            Kind::Rate => self.word(RATES),
            Kind::Word(words) => {
                let spellings: Vec<&str> = words.iter().flat_map(Word::spellings).collect();
                self.text += &format!(" {}", self.dice.choose(&spellings)?);
                Ok(())
            }
            Kind::Cidr | Kind::Socket | Kind::Listen => self.word(RANGES),
            Kind::List(of) | Kind::OneOrMore(of) => self.list(*of, depth),
            Kind::Map(place) => self.place(place, depth),
            Kind::MapOf(place) => self.names(Kind::Map(place), depth),
            Kind::Names(of) => self.names(*of, depth),
            Kind::Free => self.word(FREE),
            Kind::Either(kinds) => {
                let kind = *self.dice.choose(kinds)?;
                self.value(kind, depth)
            }
        }
    }

    fn list(&mut self, of: Kind, depth: usize) -> Result<()> {
        let mut empty = true;
        while !self.dice.is_empty() && self.dice.ratio(1, 2)? {
            self.line(depth, &mut empty);
            self.text.push('-');
            self.value(of, depth + 1)?;
        }
        if empty {
            self.text += " []";
        }
        Ok(())
    }

    fn names(&mut self, of: Kind, depth: usize) -> Result<()> {
        let mut empty = true;
        while !self.dice.is_empty() && self.dice.ratio(1, 2)? {
            self.line(depth, &mut empty);
            self.word(NAMES)?;
            if !self.careless {
                let count = self.next();
                self.text += &count.to_string();
            }
            self.text.push(':');
            self.value(of, depth + 1)?;
        }
        if empty {
            self.text += " {}";
        }
        Ok(())
    }

    fn whole(&mut self, min: u64, max: u64) -> Result<()> {
        let any = self.dice.int_in_range(min..=max)?;
        let numbers = [min.max(1), max, any, min, 5, max.saturating_add(1), min.saturating_sub(1)];
        let usable = if self.careless { numbers.len() } else { 4 };
        let number = self.dice.choose(&numbers[..usable])?;
        self.text += &format!(" {number}");
        Ok(())
    }

    fn next(&mut self) -> usize {
        self.count += 1;
        self.count
    }

    /// Starts a line of a list or map; the first line of a file is started already.
    fn line(&mut self, depth: usize, empty: &mut bool) {
        *empty = false;
        if !self.text.is_empty() && !self.text.ends_with(['\n', FILE_SEPARATOR.into()]) {
            self.text.push('\n');
        }
        self.text += &"  ".repeat(depth);
    }

    fn word(&mut self, (usable, odd): Words) -> Result<()> {
        let words = if !odd.is_empty() && self.careless && self.dice.ratio(1, 8)? { odd } else { usable };
        if !self.text.ends_with([' ', '\n']) {
            self.text.push(' ');
        }
        self.text += self.dice.choose(words)?;
        Ok(())
    }
}
