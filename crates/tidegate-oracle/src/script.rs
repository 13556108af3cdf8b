//! What happens to one counter, as data and as text.

use std::fmt;
use std::str::FromStr;

use crate::duration;
use crate::spec::Spec;

/// A sequence of limits and operations on one counter.
#[derive(Clone, PartialEq, Eq)]
pub struct Script {
    /// The lines in order; the first is a limit.
    pub lines: Vec<Line>,
}

/// One line of a script.
#[derive(Clone, PartialEq, Eq)]
pub enum Line {
    /// This limit is in force from here on.
    Limit(Spec),
    /// An operation.
    At {
        /// What the clock shows; a smaller number than before is a clock that jumped back.
        us: u64,
        /// What is asked.
        op: Op,
    },
}

/// One operation; `of` names an earlier operation by its number among the operations, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Asks for units.
    Charge {
        /// The units asked for.
        cost: u64,
    },
    /// Asks whether one unit would fit.
    Peek,
    /// Gives units back.
    Refund {
        /// The units given back.
        units: u64,
        /// The operation that charged them; blind where absent.
        of: Option<usize>,
    },
    /// Tells what a reservation really used.
    Settle {
        /// The operation that reserved.
        of: usize,
        /// The units really used.
        actual: u64,
    },
    /// Takes a place.
    Acquire {
        /// The holder's name for it.
        id: u64,
        /// The units it takes.
        cost: u64,
    },
    /// Holds a place for longer.
    Renew {
        /// The holder's name for it.
        id: u64,
    },
    /// Gives a place back.
    Release {
        /// The holder's name for it.
        id: u64,
    },
}

/// Why a text is not a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
    /// What should have stood there.
    pub expected: String,
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

// A failing test prints its script with `Debug`; the text form can be pasted into a new test.
impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(spec) => write!(f, "limit {spec}"),
            Self::At { us, op } => write!(f, "at {} {op}", duration::print(*us)),
        }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Charge { cost } => write!(f, "charge {cost}"),
            Self::Peek => write!(f, "peek"),
            Self::Refund { units, of: None } => write!(f, "refund {units}"),
            Self::Refund { units, of: Some(of) } => write!(f, "refund {units} of #{of}"),
            Self::Settle { of, actual } => write!(f, "settle #{of} as {actual}"),
            Self::Acquire { id, cost } => write!(f, "acquire {id} cost {cost}"),
            Self::Renew { id } => write!(f, "renew {id}"),
            Self::Release { id } => write!(f, "release {id}"),
        }
    }
}

impl FromStr for Script {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut lines = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            // Only a line that begins with it is a comment: `#` also names operations.
            if words.first().is_none_or(|word| word.starts_with('#')) {
                continue;
            }
            let wrong = |expected| ParseError { line: index + 1, expected };
            let line = parse_line(&words).map_err(wrong)?;
            if lines.is_empty() && matches!(line, Line::At { .. }) {
                return Err(wrong("a limit before the first operation".to_owned()));
            }
            lines.push(line);
        }
        Ok(Self { lines })
    }
}

impl FromStr for Spec {
    type Err = ParseError;

    /// Reads what stands after `limit` in a script.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Self::parse(&words).map_err(|expected| ParseError { line: 1, expected })
    }
}

impl FromStr for Op {
    type Err = ParseError;

    /// Reads what stands after the time in a script.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        parse_op(&words).map_err(|expected| ParseError { line: 1, expected })
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: expected {}", self.line, self.expected)
    }
}

impl std::error::Error for ParseError {}

fn parse_line(words: &[&str]) -> Result<Line, String> {
    match words {
        ["limit", spec @ ..] => Ok(Line::Limit(Spec::parse(spec)?)),
        ["at", time, op @ ..] => Ok(Line::At { us: parse_time(time)?, op: parse_op(op)? }),
        _ => Err("`limit <limit>` or `at <time> <operation>`".to_owned()),
    }
}

fn parse_op(words: &[&str]) -> Result<Op, String> {
    match words {
        ["charge", cost] => Ok(Op::Charge { cost: parse_number(cost)? }),
        ["peek"] => Ok(Op::Peek),
        ["refund", units] => Ok(Op::Refund { units: parse_number(units)?, of: None }),
        ["refund", units, "of", of] => {
            Ok(Op::Refund { units: parse_number(units)?, of: Some(parse_of(of)?) })
        }
        ["settle", of, "as", actual] => Ok(Op::Settle { of: parse_of(of)?, actual: parse_number(actual)? }),
        ["acquire", id, "cost", cost] => Ok(Op::Acquire { id: parse_number(id)?, cost: parse_number(cost)? }),
        ["renew", id] => Ok(Op::Renew { id: parse_number(id)? }),
        ["release", id] => Ok(Op::Release { id: parse_number(id)? }),
        _ => Err(format!(
            "`charge <units>`, `peek`, `refund <units> [of #<n>]`, `settle #<n> as <units>`, \
             `acquire <id> cost <units>`, `renew <id>` or `release <id>` instead of {:?}",
            words.join(" ")
        )),
    }
}

fn parse_time(text: &str) -> Result<u64, String> {
    duration::parse(text).ok_or_else(|| format!("a time such as 250ms, 10s or 1h instead of {text:?}"))
}

fn parse_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a whole number instead of {text:?}"))
}

fn parse_of(text: &str) -> Result<usize, String> {
    let number = text.strip_prefix('#').and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("an operation such as #0 instead of {text:?}"))
}
