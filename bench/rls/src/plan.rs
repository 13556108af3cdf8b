//! What is measured, and how long.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How thorough a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scale {
    /// Does it run at all?
    Smoke,
    /// Under a minute.
    Quick,
    /// What is published.
    Full,
}

/// A run.
pub(crate) struct Plan {
    pub(crate) scale: Scale,
    /// How many distinct keys are asked for.
    pub(crate) keys: u32,
    /// How many times each subject has its turn.
    pub(crate) rounds: usize,
    /// How long a load lasts before it is measured, and then.
    pub(crate) span: Span,
}

/// How long a load lasts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Span {
    /// Before anything is measured: connections are made, and the process has slept while others had their turns.
    pub(crate) warm: Duration,
    pub(crate) measured: Duration,
}

/// Who calls at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    /// Calls in flight on each of them.
    pub(crate) streams: usize,
}

/// As Envoy calls: few connections with many calls each. The goals are about this one.
pub(crate) const FEW: Load = Load { connections: 2, streams: 128 };
/// As many small clients call. Reported beside it.
pub(crate) const MANY: Load = Load { connections: 64, streams: 1 };
/// Closed loops: a call that has ended is followed by the next at once.
pub(crate) const CLOSED: [Load; 2] = [FEW, MANY];

/// How often somebody calls in an open loop, whatever the server does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pace {
    /// 4000 times a second.
    Slow,
    /// Half as often as the bare server answered in the closed loop of few connections.
    Half,
}

impl Pace {
    pub(crate) const ALL: [Self; 2] = [Self::Slow, Self::Half];
}

/// Calls per second at the slow pace.
pub(crate) const SLOW_RATE: u32 = 4_000;

impl Scale {
    pub(crate) fn plan(self) -> Plan {
        // Many short turns, and not few long ones: two subjects within one round see much the same machine.
        let (keys, rounds, warm_ms, measured_ms) = match self {
            Self::Smoke => (10_000, 2, 50, 200),
            Self::Quick => (1_000_000, 5, 100, 600),
            Self::Full => (1_000_000, 15, 200, 1_000),
        };
        let span =
            Span { warm: Duration::from_millis(warm_ms), measured: Duration::from_millis(measured_ms) };
        Plan { scale: self, keys, rounds, span }
    }

    /// How to make such a run again.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Smoke => "cargo xtask bench rls --smoke --write",
            Self::Quick => "cargo xtask bench rls --quick --write",
            Self::Full => "cargo xtask bench rls --write",
        }
    }
}
