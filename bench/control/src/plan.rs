//! What is measured, and how long.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_bench_common::plan::{FEW, Load, MANY, Scale};

/// How they ask.
pub(crate) const LOADS: [Load; 2] = [FEW, MANY];

/// A run.
pub(crate) struct Plan {
    /// How many callers each node knows.
    pub(crate) known: [u32; 3],
    /// How many callers ask, in each of the loads.
    pub(crate) asked: [u32; 2],
    pub(crate) rounds: usize,
    /// How long a turn of a node is, and how many it has in a round. What else the machine does changes within a second.
    pub(crate) turn: Duration,
    pub(crate) turns: usize,
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
        let (some, many, rounds, turns, edits) = match scale {
            Scale::Smoke => (1_000, 10_000, 2, 4, 5),
            Scale::Quick => (10_000, 1_000_000, 8, 20, 50),
            Scale::Full => (10_000, 1_000_000, 50, 20, 200),
        };
        Self {
            known: [0, some, many],
            asked: [some, many],
            rounds,
            turn: Duration::from_millis(15),
            turns,
            edits,
        }
    }
}
