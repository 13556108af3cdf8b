//! What is measured, and how long.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_bench_common::plan::{FEW, Load, MANY, Span};
use tidegate_bench_common::speech::Speech;

use crate::peers::Family;

/// How thorough a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Extent {
    /// Does it run at all? With those who are there; nothing is installed.
    Smoke,
    /// Three minutes.
    Quick,
    /// What is published.
    Usual,
    /// With ten million keys.
    Full,
}

impl Extent {
    pub(crate) const ALL: [Self; 4] = [Self::Smoke, Self::Quick, Self::Usual, Self::Full];

    pub(crate) fn flag(self) -> Option<&'static str> {
        match self {
            Self::Smoke => Some("--smoke"),
            Self::Quick => Some("--quick"),
            Self::Usual => None,
            Self::Full => Some("--full"),
        }
    }

    /// Under which name its page, numbers and pictures are published: a full run takes nothing from the usual one.
    pub(crate) fn name(self) -> &'static str {
        if self == Self::Full { "field-full" } else { "field" }
    }

    /// How to make such a run again.
    pub(crate) fn command(self) -> String {
        match self.flag() {
            // Without its name it would be the whole of all benches.
            Some(flag) if self == Self::Full => format!("cargo xtask bench field {flag} --write"),
            Some(flag) => format!("cargo xtask bench {flag} --write"),
            None => "cargo xtask bench --write".into(),
        }
    }

    /// What the page says of it.
    pub(crate) fn remark(self) -> &'static str {
        match self {
            Self::Usual => "",
            Self::Full => " A full run.",
            Self::Quick => " A quick run: short, and not for publishing.",
            Self::Smoke => " A smoke run: its numbers mean nothing.",
        }
    }
}

/// How a server is kept busy in a closed loop: a call that has ended is followed by the next at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Press {
    /// 256 calls in flight: as Envoy calls where connections can have many, and on as many connections elsewhere.
    Full,
    /// 64 connections with one call each, as many small clients call.
    Many,
}

impl Press {
    pub(crate) const ALL: [Self; 2] = [Self::Full, Self::Many];

    pub(crate) fn load(self, speech: Speech) -> Load {
        match (self, speech.path()) {
            (Self::Many, _) => MANY,
            (Self::Full, Some(_)) => FEW,
            (Self::Full, None) => Load { connections: FEW.connections * FEW.streams, streams: 1 },
        }
    }
}

/// How often somebody calls in an open loop, whatever the server does: as a share of what it could do itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pace {
    Half,
    High,
}

impl Pace {
    pub(crate) const ALL: [Self; 2] = [Self::Half, Self::High];

    pub(crate) fn percent(self) -> u32 {
        match self {
            Self::Half => 50,
            Self::High => 80,
        }
    }
}

/// A run.
pub(crate) struct Plan {
    pub(crate) extent: Extent,
    /// How many distinct keys are asked for.
    pub(crate) keys: u32,
    /// Who serves at the same time, one such group after the other.
    pub(crate) groups: &'static [&'static [Family]],
    /// How many times each peer has its turn.
    pub(crate) rounds: usize,
    /// How many times each is started, for the time that takes.
    pub(crate) starts: usize,
    /// How long a load lasts before it is measured, and then.
    pub(crate) span: Span,
}

impl Plan {
    pub(crate) fn of(extent: Extent) -> Self {
        // Many short turns, and not few long ones: two peers within one round see much the same machine.
        let (keys, rounds, starts, warm_ms, measured_ms) = match extent {
            Extent::Smoke => (1_000, 1, 1, 30, 100),
            Extent::Quick => (100_000, 2, 1, 100, 500),
            Extent::Usual => (100_000, 7, 3, 200, 1_000),
            Extent::Full => (10_000_000, 5, 3, 300, 1_000),
        };
        // Ten million callers of everybody are more than most machines have memory for.
        let groups: &[&[Family]] = match extent {
            Extent::Full => &[&[Family::Memory], &[Family::Redis], &[Family::Http]],
            _ => &[&Family::ALL],
        };
        let span =
            Span { warm: Duration::from_millis(warm_ms), measured: Duration::from_millis(measured_ms) };
        Self { extent, keys, groups, rounds, starts, span }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_as_many_calls_in_flight() {
        for speech in [Speech::Rls, Speech::Throttle, Speech::HttpStatus, Speech::HttpBody, Speech::Resp] {
            let Load { connections, streams } = Press::Full.load(speech);
            assert_eq!(connections * streams, 256);
            assert!(speech.path().is_some() || streams == 1);
        }
    }

    #[test]
    fn a_page_says_how_to_make_it_again() {
        assert_eq!(Extent::Usual.command(), "cargo xtask bench --write");
        assert_eq!(Extent::Quick.command(), "cargo xtask bench --quick --write");
        assert_eq!(Extent::Full.command(), "cargo xtask bench field --full --write");
    }

    #[test]
    fn every_family_is_in_one_group() {
        for extent in Extent::ALL {
            let groups = Plan::of(extent).groups;
            for family in Family::ALL {
                assert_eq!(groups.concat().iter().filter(|known| **known == family).count(), 1, "{family:?}");
            }
        }
    }
}
