//! What happens to several counters, as data and as text: the oracle's language of scripts, with names, requests and batches.
//!
//! ```text
//! # A line that begins with `#` is a comment.
//! limit a sliding_window 10/1m
//! limit b token_bucket 5/1s burst=10
//! at 0s: a charge 1, shadow b charge 2                # one request with two takes
//! at 1500ms: a refund 1 of #0, b peek                 # #0 is the first operation on a
//! at 2s: quota a charge 3, quota b charge 1 | a peek  # two requests in one batch
//! limit a sliding_window 20/1m
//! inspect a at 3s
//! reset a
//! at 3s: - | a charge 1                               # a request without takes, and one with
//! ```
//!
//! - A take is `[shadow|quota] <name> <operation>`; without a role it is enforced. Limits and operations are those of
//!   [`tidegate_oracle::Script`].
//! - `#<n>` names an operation by its number among those on the same counter, from 0; it has to stand in an earlier line. One that charged
//!   nothing left no receipt: a refund of it is blind, a settlement of it is one of nothing.
//! - A limit may be given again: with other numbers it judges the same counter from there on, with another shape (algorithm, window, parts,
//!   strict, calendar) another counter.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use tidegate_core::{Ask, Micros, Role};
use tidegate_oracle::{Op, ParseError, Spec, duration};

use crate::words::limit_of;

/// Limits and what happens under them. Whatever could be wrong with it was refused when it was made.
#[derive(Clone, PartialEq, Eq)]
pub struct Script {
    lines: Vec<Line>,
}

/// One line of a script.
#[derive(Clone, PartialEq, Eq)]
pub enum Line {
    /// From here on the counter is judged by this limit.
    Limit {
        /// The counter.
        name: String,
        /// The limit.
        spec: Spec,
    },
    /// Requests, asked in one batch.
    At {
        /// What the clock shows; less than before is a clock that was set back.
        us: u64,
        /// The requests; never none.
        requests: Vec<Request>,
    },
    /// Looks at a counter.
    Inspect {
        /// The counter.
        name: String,
        /// What the clock shows.
        us: u64,
    },
    /// Makes a counter as if never touched.
    Reset {
        /// The counter.
        name: String,
    },
}

/// A list of takes, all or nothing.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// Its takes, in order.
    pub takes: Vec<Take>,
}

/// One question to one counter.
#[derive(Clone, PartialEq, Eq)]
pub struct Take {
    /// What a refusal means for the request.
    pub role: Role,
    /// The counter.
    pub name: String,
    /// What is asked; receipts name operations on the same counter.
    pub op: Op,
}

impl Script {
    /// The script of these lines; the error counts them from 1.
    pub fn new(lines: Vec<Line>) -> Result<Self, ParseError> {
        let mut counters = Counters::default();
        for (at, line) in lines.iter().enumerate() {
            counters.read(line).map_err(|expected| ParseError { line: at + 1, expected })?;
        }
        Ok(Self { lines })
    }

    /// A script of the oracle, which is about one counter. There an operation may name one that is not there, which left no receipt; here
    /// that is a peek, before all others.
    pub fn of_one(script: &tidegate_oracle::Script) -> Result<Self, ParseError> {
        let name = || "a".to_owned();
        let (mut lines, mut operations) = (Vec::new(), 0);
        let mut ask = |us: u64, op: Op, lines: &mut Vec<Line>| {
            let known = |of: usize| if of + 1 < operations { of + 1 } else { 0 };
            let op = match op {
                Op::Refund { units, of } => Op::Refund { units, of: of.map(known) },
                Op::Settle { of, actual } => Op::Settle { of: known(of), actual },
                op => op,
            };
            operations += 1;
            let take = Take { role: Role::Enforce, name: name(), op };
            lines.push(Line::At { us, requests: vec![Request { takes: vec![take] }] });
        };
        for line in &script.lines {
            match line {
                tidegate_oracle::Line::Limit(spec) => {
                    lines.push(Line::Limit { name: name(), spec: spec.clone() });
                }
                tidegate_oracle::Line::At { us, op } => {
                    if !lines.iter().any(|line| matches!(line, Line::At { .. })) {
                        ask(*us, Op::Peek, &mut lines);
                    }
                    ask(*us, *op, &mut lines);
                }
            }
        }
        Self::new(lines)
    }

    /// Its lines; every name has a limit before it is used.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
}

/// How many operations there were on each counter so far: what a line may speak of.
#[derive(Default)]
struct Counters {
    operations: HashMap<String, usize>,
}

impl Counters {
    /// Says what is wrong with a line, as what was expected instead.
    fn read(&mut self, line: &Line) -> Result<(), String> {
        match line {
            Line::Limit { name, spec } => {
                check_name(name)?;
                limit_of(spec).map_err(|error| format!("a limit that can be: {error}"))?;
                self.operations.entry(name.clone()).or_insert(0);
            }
            Line::At { us, requests } => {
                check_time(*us)?;
                if requests.is_empty() {
                    return Err("a request; `-` is one without takes".to_owned());
                }
                let takes = || requests.iter().flat_map(|request| &request.takes);
                // All are checked before any is counted: receipts of the same batch are not there yet.
                takes().try_for_each(|take| self.check(take))?;
                for take in takes() {
                    *self.operations.entry(take.name.clone()).or_insert(0) += 1;
                }
            }
            Line::Inspect { name, us } => {
                check_time(*us)?;
                self.operations_on(name)?;
            }
            Line::Reset { name } => {
                self.operations_on(name)?;
            }
        }
        Ok(())
    }

    fn check(&self, take: &Take) -> Result<(), String> {
        let operations = self.operations_on(&take.name)?;
        match take.op {
            Op::Refund { of: Some(of), .. } | Op::Settle { of, .. } if of >= operations => Err(format!(
                "an operation on `{}` in an earlier line instead of #{of}; there are {operations}",
                take.name
            )),
            Op::Acquire { id: Ask::ANONYMOUS, .. }
            | Op::Renew { id: Ask::ANONYMOUS }
            | Op::Release { id: Ask::ANONYMOUS } => {
                Err(format!("an id other than {}, which is nobody's", Ask::ANONYMOUS))
            }
            _ => Ok(()),
        }
    }

    fn operations_on(&self, name: &str) -> Result<usize, String> {
        self.operations.get(name).copied().ok_or_else(|| format!("`limit {name} …` before `{name}` is used"))
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_word = name.starts_with(|letter: char| letter.is_ascii_lowercase())
        && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    if is_word && role_of(name).is_none() {
        return Ok(());
    }
    Err(format!(
        "a name of lower-case letters, digits and `_` that is no role (`shadow`, `quota`) instead of {name:?}"
    ))
}

fn check_time(us: u64) -> Result<(), String> {
    let latest = Micros::MAX.get();
    if us <= latest { Ok(()) } else { Err(format!("a time up to {latest}us instead of {us}us")) }
}

impl FromStr for Script {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (mut lines, mut counters) = (Vec::new(), Counters::default());
        for (at, text) in text.lines().enumerate() {
            let text = without_comment(text);
            if text.is_empty() {
                continue;
            }
            let wrong = |expected| ParseError { line: at + 1, expected };
            let line = parse_line(text).map_err(wrong)?;
            counters.read(&line).map_err(wrong)?;
            lines.push(line);
        }
        Ok(Self { lines })
    }
}

/// The line up to a word that begins with `#`, unless a digit follows: that names an operation.
fn without_comment(text: &str) -> &str {
    let starts_here = |at: usize| {
        let is_word = text[..at].ends_with(char::is_whitespace) || text[..at].trim().is_empty();
        let is_number = text[at + 1..].starts_with(|letter: char| letter.is_ascii_digit());
        is_word && (!is_number || text[..at].trim().is_empty())
    };
    let end = text.match_indices('#').map(|(at, _)| at).find(|at| starts_here(*at));
    text[..end.unwrap_or(text.len())].trim()
}

fn parse_line(text: &str) -> Result<Line, String> {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let words: Vec<&str> = rest.split_whitespace().collect();
    match (first, words.as_slice()) {
        ("limit", [name, spec @ ..]) => {
            Ok(Line::Limit { name: (*name).to_owned(), spec: read(&spec.join(" "))? })
        }
        ("at", _) => {
            let (time, requests) =
                rest.split_once(':').ok_or("`at <time>: <requests>`, with a colon after the time")?;
            let requests = requests.split('|').map(parse_request).collect::<Result<_, _>>()?;
            Ok(Line::At { us: parse_time(time.trim())?, requests })
        }
        ("inspect", [name, "at", time]) => {
            Ok(Line::Inspect { name: (*name).to_owned(), us: parse_time(time)? })
        }
        ("reset", [name]) => Ok(Line::Reset { name: (*name).to_owned() }),
        _ => Err(format!(
            "`limit <name> <limit>`, `at <time>: <requests>`, `inspect <name> at <time>` or `reset <name>` instead of {text:?}"
        )),
    }
}

fn parse_request(text: &str) -> Result<Request, String> {
    if text.trim() == "-" {
        return Ok(Request::default());
    }
    let takes = text.split(',').map(parse_take).collect::<Result<_, _>>()?;
    Ok(Request { takes })
}

fn parse_take(text: &str) -> Result<Take, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (role, words) = match words.split_first() {
        Some((first, rest)) if role_of(first).is_some() => (role_of(first).unwrap_or_default(), rest),
        _ => (Role::Enforce, words.as_slice()),
    };
    let [name, op @ ..] = words else {
        return Err(format!("`[shadow|quota] <name> <operation>` instead of {:?}", text.trim()));
    };
    Ok(Take { role, name: (*name).to_owned(), op: read(&op.join(" "))? })
}

/// The words that name a role; an enforcing take has none.
fn role_of(word: &str) -> Option<Role> {
    match word {
        "shadow" => Some(Role::Shadow),
        "quota" => Some(Role::Quota),
        _ => None,
    }
}

/// Reads what the oracle's language has too.
fn read<T: FromStr<Err = ParseError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: ParseError| error.expected)
}

fn parse_time(text: &str) -> Result<u64, String> {
    duration::parse(text).ok_or_else(|| format!("a time such as 250ms, 10s or 1h instead of {text:?}"))
}

impl fmt::Display for Script {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { name, spec } => write!(out, "limit {name} {spec}"),
            Self::At { us, requests } => {
                write!(out, "at {}: {}", duration::print(*us), joined(requests, " | "))
            }
            Self::Inspect { name, us } => write!(out, "inspect {name} at {}", duration::print(*us)),
            Self::Reset { name } => write!(out, "reset {name}"),
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.takes.is_empty() { out.write_str("-") } else { out.write_str(&joined(&self.takes, ", ")) }
    }
}

impl fmt::Display for Take {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            Role::Enforce => "",
            Role::Shadow => "shadow ",
            Role::Quota => "quota ",
        };
        write!(out, "{role}{} {}", self.name, self.op)
    }
}

fn joined(parts: &[impl fmt::Display], separator: &str) -> String {
    parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
}

/// A failing test prints its script with `Debug`; the text form can be put into a file.
macro_rules! debug_as_text {
    ($($kind:ty),*) => {
        $(impl fmt::Debug for $kind {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, out)
            }
        })*
    };
}

debug_as_text!(Script, Line, Request, Take);
