//! Who calls, for how long, and how thorough a run is.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How thorough a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Does it run at all?
    Smoke,
    /// Under a minute or two.
    Quick,
    /// What is published.
    Full,
}

impl Scale {
    /// How to make such a run of a bench again.
    pub fn command(self, bench: &str) -> String {
        let flag = match self {
            Self::Smoke => "--smoke ",
            Self::Quick => "--quick ",
            Self::Full => "",
        };
        format!("cargo xtask bench {bench} {flag}--write")
    }

    /// What the page says of it.
    pub fn remark(self) -> &'static str {
        match self {
            Self::Full => "",
            Self::Quick => " A quick run: short, and not for publishing.",
            Self::Smoke => " A smoke run: its numbers mean nothing.",
        }
    }
}

/// A run of a whole bench, as it was asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Run {
    /// How thorough.
    pub scale: Scale,
    /// To the files that are published, instead of the terminal.
    pub write: bool,
}

impl Run {
    /// From the words of a command line.
    pub fn parse(words: &[String]) -> Result<Self, String> {
        let mut run = Self { scale: Scale::Full, write: false };
        for word in words {
            match word.as_str() {
                "--quick" | "--smoke" if run.scale != Scale::Full => {
                    return Err("--quick or --smoke, not both".into());
                }
                "--quick" => run.scale = Scale::Quick,
                "--smoke" => run.scale = Scale::Smoke,
                "--write" => run.write = true,
                other => return Err(format!("unknown argument `{other}`")),
            }
        }
        Ok(run)
    }
}

/// How long a load lasts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Span {
    /// Before anything is measured: connections are made, and the process has slept while others had their turns.
    pub warm: Duration,
    /// And then.
    pub measured: Duration,
}

impl Span {
    /// For loads that end after so many calls, not after a time.
    pub const NONE: Self = Self { warm: Duration::ZERO, measured: Duration::ZERO };
}

/// Who calls at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Load {
    /// How many connections.
    pub connections: usize,
    /// Calls in flight on each of them.
    pub streams: usize,
}

impl Load {
    /// In words.
    pub fn spoken(self) -> String {
        let Self { connections, streams } = self;
        format!("{connections} connections × {streams} {}", if streams == 1 { "call" } else { "calls" })
    }
}

/// As Envoy calls: few connections with many calls each. The goals are about this one.
pub const FEW: Load = Load { connections: 2, streams: 128 };
/// As many small clients call. Reported beside it.
pub const MANY: Load = Load { connections: 64, streams: 1 };

/// The order of a round: whatever warms up or grows tired in a round weighs on both ends of the list alike.
pub fn turns(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| if round.is_multiple_of(2) { turn } else { count - 1 - turn })
}

/// The same for turns so short that it matters who was there before: nobody comes after itself, whose caches would still be warm, and of
/// three everybody comes after each of the others as often.
pub fn after_others(round: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |turn| if round.is_multiple_of(2) { turn } else { (count - turn) % count })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_other_round_goes_backwards() {
        assert_eq!(turns(0, 3).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(turns(1, 3).collect::<Vec<_>>(), [2, 1, 0]);
    }

    #[test]
    fn of_three_everybody_comes_after_each_of_the_others() {
        let order: Vec<usize> = (0..3).flat_map(|round| after_others(round, 3)).collect();
        assert_eq!(order, [0, 1, 2, 0, 2, 1, 0, 1, 2]);
        let mut pairs: Vec<_> = order.windows(2).take(6).map(|pair| (pair[0], pair[1])).collect();
        pairs.sort_unstable();
        assert_eq!(pairs, [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]);
        assert_eq!((0..2).flat_map(|round| after_others(round, 2)).collect::<Vec<_>>(), [0, 1, 0, 1]);
    }

    #[test]
    fn a_run_is_full_unless_it_is_told_otherwise() {
        let parsed = |line: &str| Run::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>());
        for (line, scale, write) in [
            ("", Scale::Full, false),
            ("--quick --write", Scale::Quick, true),
            ("--smoke", Scale::Smoke, false),
        ] {
            assert_eq!(parsed(line), Ok(Run { scale, write }), "{line}");
        }
        assert!(parsed("--quick --smoke").is_err_and(|message| message.contains("not both")));
        assert!(parsed("--quik").is_err_and(|message| message.contains("`--quik`")));
    }
}
