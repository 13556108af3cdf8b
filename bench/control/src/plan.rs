//! What is measured, and how long.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_bench_common::plan::{FEW, Load, MANY, Scale, Span};

/// How they ask.
pub(crate) const LOADS: [Load; 2] = [FEW, MANY];

/// A run.
pub(crate) struct Plan {
    /// How many callers each node knows.
    pub(crate) known: [u32; 3],
    /// How many callers ask, in each of the loads.
    pub(crate) asked: [u32; 2],
    pub(crate) rounds: usize,
    /// How long a load lasts before it is measured, and then.
    pub(crate) span: Span,
    pub(crate) edits: u32,
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Asking {
    /// As many as the second node knows: their records stay in the caches.
    Few,
    /// As many as the third knows, none twice before all have asked: none of their records does.
    All,
}

impl Asking {
    pub(crate) const ALL: [Self; 2] = [Self::Few, Self::All];
}

impl Plan {
    pub(crate) fn of(scale: Scale) -> Self {
        let (some, many, rounds, warm_ms, measured_ms, edits) = match scale {
            Scale::Smoke => (1_000, 10_000, 2, 50, 200, 5),
            Scale::Quick => (10_000, 1_000_000, 25, 50, 150, 50),
            // Many short turns: what else the machine does changes within a second.
            Scale::Full => (10_000, 1_000_000, 75, 50, 200, 200),
        };
        let span =
            Span { warm: Duration::from_millis(warm_ms), measured: Duration::from_millis(measured_ms) };
        Self { known: [0, some, many], asked: [some, many], rounds, span, edits }
    }
}
