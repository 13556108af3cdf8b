//! What is measured, and how long.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_bench_common::plan::{FEW, Load, MANY, Scale, Span};

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

impl Plan {
    pub(crate) fn of(scale: Scale) -> Self {
        // Many short turns, and not few long ones: two subjects within one round see much the same machine.
        let (keys, rounds, warm_ms, measured_ms) = match scale {
            Scale::Smoke => (10_000, 2, 50, 200),
            Scale::Quick => (1_000_000, 5, 100, 600),
            Scale::Full => (1_000_000, 15, 200, 1_000),
        };
        let span =
            Span { warm: Duration::from_millis(warm_ms), measured: Duration::from_millis(measured_ms) };
        Self { scale, keys, rounds, span }
    }
}
