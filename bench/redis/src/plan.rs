//! What is measured, and how long.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_bench_common::plan::{Scale, Span};

/// A run.
pub(crate) struct Plan {
    pub(crate) scale: Scale,
    /// How many callers there are.
    pub(crate) callers: u32,
    /// How many times each subject has its turn.
    pub(crate) rounds: usize,
    pub(crate) span: Span,
    /// How many counters the store is filled with to weigh them, with one charge each and with as many as fit.
    pub(crate) weighed: u32,
    pub(crate) weighed_full: u32,
}

impl Plan {
    pub(crate) fn of(scale: Scale) -> Self {
        // Many short turns, and not few long ones: two subjects within one round see much the same machine.
        let (callers, rounds, warm_ms, measured_ms, weighed, weighed_full) = match scale {
            Scale::Smoke => (300, 1, 50, 100, 1_000, 100),
            Scale::Quick => (10_000, 3, 100, 500, 100_000, 1_000),
            Scale::Full => (10_000, 15, 200, 1_000, 100_000, 5_000),
        };
        let span =
            Span { warm: Duration::from_millis(warm_ms), measured: Duration::from_millis(measured_ms) };
        Self { scale, callers, rounds, span, weighed, weighed_full }
    }
}

/// What callers have, and so what a call asks of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Case {
    /// One limit by the default algorithm.
    SlidingWindow,
    /// Three limits of one caller.
    SlidingWindow3,
    TokenBucket,
    TokenBucket3,
    /// One limit that everybody has used up.
    Refused,
}

impl Case {
    pub(crate) const ALL: [Self; 5] =
        [Self::SlidingWindow, Self::SlidingWindow3, Self::TokenBucket, Self::TokenBucket3, Self::Refused];

    /// The domain of its rules.
    pub(crate) fn domain(self) -> &'static str {
        match self {
            Self::SlidingWindow => "sliding_window",
            Self::SlidingWindow3 => "sliding_window_3",
            Self::TokenBucket => "token_bucket",
            Self::TokenBucket3 => "token_bucket_3",
            Self::Refused => "refused",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::SlidingWindow => "`sliding_window`, 1 take",
            Self::SlidingWindow3 => "`sliding_window`, 3 takes",
            Self::TokenBucket => "`token_bucket`, 1 take",
            Self::TokenBucket3 => "`token_bucket`, 3 takes",
            Self::Refused => "`sliding_window`, 1 take, used up",
        }
    }

    pub(crate) fn takes(self) -> usize {
        match self {
            Self::SlidingWindow | Self::TokenBucket | Self::Refused => 1,
            Self::SlidingWindow3 | Self::TokenBucket3 => 3,
        }
    }
}

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Subject {
    /// A node whose counters are in the store.
    Node,
    /// The same in an open loop, while the store is on the generator's core.
    NodeAside,
    /// The node's own script calls, one request each, sent by a bare client.
    Plain,
    /// envoyproxy/ratelimit on the same store.
    Reference,
    /// A node that counts in its memory.
    Memory,
    /// tonic with a fixed answer.
    Bare,
}

impl Subject {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Node | Self::NodeAside => "the node",
            Self::Plain => "the plain client",
            Self::Reference => "the reference server",
            Self::Memory => "the node in memory",
            Self::Bare => "the bare server",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Node => "Tidegate on Redis",
            Self::NodeAside => "the same, Redis on the generator's core",
            Self::Plain => "plain `EVALSHA`",
            Self::Reference => "envoyproxy/ratelimit on Redis",
            Self::Memory => "Tidegate in memory",
            Self::Bare => "bare tonic, `current_thread`",
        }
    }
}
