//! The raw numbers of a run, as `bench/results/strangers.json` keeps them.

use serde::{Deserialize, Serialize};
use tidegate_bench_common::mix::Mix;
use tidegate_bench_common::plan::Load;
use tidegate_bench_common::results::rows;
use tidegate_bench_common::tally::Tally;

use crate::machine::Machine;
use crate::plan::Extent;

/// A whole run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) extent: Extent,
    pub(crate) machine: Machine,
    /// Who called, with what was typed to start it.
    pub(crate) callers: Vec<Caller>,
    /// Who did not, and why.
    pub(crate) missing: Vec<Missing>,
    pub(crate) rows: Vec<Row>,
    pub(crate) accounts: Vec<AccountRow>,
    pub(crate) ports: Vec<Port>,
}

impl Results {
    /// As JSON with a row on a line, so that a change of one shows as one.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let parts = [
            ("extent", serde_json::to_string(&self.extent)?),
            ("machine", serde_json::to_string(&self.machine)?),
            ("callers", rows(&self.callers)?),
            ("missing", rows(&self.missing)?),
            ("rows", rows(&self.rows)?),
            ("accounts", rows(&self.accounts)?),
            ("ports", rows(&self.ports)?),
        ];
        let parts = parts.map(|(name, value)| format!("\"{name}\": {value}"));
        Ok(format!("{{\n{}\n}}\n", parts.join(",\n")))
    }
}

/// Somebody who calls.
#[derive(Serialize, Deserialize, Clone)]
pub(crate) struct Caller {
    pub(crate) by: By,
    pub(crate) version: String,
    pub(crate) command: String,
    /// What was typed besides in runs of their own where calls were asked what they took.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) log: Option<String>,
}

/// Somebody who was not there.
#[derive(Serialize, Deserialize, Clone)]
pub(crate) struct Missing {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// Who makes the calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum By {
    /// Our generator, over gRPC.
    Ours,
    H2load,
    Ghz,
    /// Our generator, over HTTP/1.1.
    OursHttp,
    Wrk,
}

impl By {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Ours | Self::OursHttp => "ours",
            Self::H2load => "h2load",
            Self::Ghz => "ghz",
            Self::Wrk => "wrk",
        }
    }

    /// Whom of ours it is compared with.
    pub(crate) fn ours(self) -> Self {
        match self {
            Self::Ours | Self::H2load | Self::Ghz => Self::Ours,
            Self::OursHttp | Self::Wrk => Self::OursHttp,
        }
    }
}

/// One generator with one load, in every round.
#[derive(Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) by: By,
    pub(crate) load: Load,
    pub(crate) rounds: Vec<Round>,
}

/// What a generator says, and what was seen of it.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub(crate) struct Round {
    #[serde(flatten)]
    pub(crate) said: Said,
    /// Calls that the node counted meanwhile; some may have been in flight when the generator stopped counting.
    pub(crate) counted: u64,
    /// From the generator's start to its end,
    pub(crate) whole_ns: u64,
    /// and what was used of the processor in that time: by the node,
    pub(crate) server_cpu_ns: u64,
    /// and by the generator.
    pub(crate) generator_cpu_ns: u64,
    /// Calls per second of the run with a log that told what calls took, if there was one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) logged_per_s: Option<u64>,
}

/// By a generator's own word.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub(crate) struct Said {
    pub(crate) calls: u64,
    pub(crate) wall_ns: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
}

impl Said {
    /// Calls in a second.
    pub(crate) fn per_s(&self) -> f64 {
        self.calls as f64 * 1e9 / self.wall_ns.max(1) as f64
    }
}

impl Round {
    /// Calls in a second, by the generator's own word.
    pub(crate) fn per_s(&self) -> f64 {
        self.said.per_s()
    }

    /// Calls in a second of the node's processor, as the node counted them.
    pub(crate) fn per_cpu_s(&self) -> f64 {
        self.counted as f64 * 1e9 / self.server_cpu_ns.max(1) as f64
    }

    /// Calls in a second of the generator's own processor: what it could make with a core for itself.
    pub(crate) fn per_generator_cpu_s(&self) -> f64 {
        self.counted as f64 * 1e9 / self.generator_cpu_ns.max(1) as f64
    }

    /// How much of its core the node used.
    pub(crate) fn server_busy(&self) -> f64 {
        self.server_cpu_ns as f64 / self.whole_ns.max(1) as f64
    }

    /// How much of its core the generator used.
    pub(crate) fn generator_busy(&self) -> f64 {
        self.generator_cpu_ns as f64 / self.whole_ns.max(1) as f64
    }
}

/// What is spoken with the node.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Over {
    #[default]
    Grpc,
    Http,
}

/// Where the node counts.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Counters {
    /// In its memory.
    #[default]
    Memory,
    Redis,
    /// In a Redis that is stopped for a third of the time, and then goes on; meanwhile calls go on uncounted,
    StoppedRedis,
    /// or fail.
    StoppedRedisError,
}

impl Counters {
    /// Is the Redis stopped in the middle?
    pub(crate) fn are_stopped(self) -> bool {
        matches!(self, Self::StoppedRedis | Self::StoppedRedisError)
    }
}

/// A mix of calls, accounted for.
#[derive(Serialize, Deserialize)]
pub(crate) struct AccountRow {
    pub(crate) name: String,
    pub(crate) mix: Mix,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) over: Over,
    /// Calls per second of an open loop; without it the loop is closed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) rate: Option<u32>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) counters: Counters,
    /// Counted by the generator,
    pub(crate) ours: Tally,
    /// and by the node.
    pub(crate) node: Tally,
    pub(crate) wall_ns: u64,
    pub(crate) server_cpu_ns: u64,
}

/// Older numbers do not have it.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One of the node's ports, as h2spec saw it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Port {
    pub(crate) name: String,
    /// None if it does not answer to HTTP/2 at all.
    pub(crate) spec: Option<Spec>,
}

/// What h2spec says.
#[derive(Serialize, Deserialize, PartialEq, Debug)]
pub(crate) struct Spec {
    pub(crate) passed: usize,
    pub(crate) skipped: usize,
    pub(crate) failures: Vec<Failure>,
}

/// A test of h2spec that did not pass.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// Such as `http2/3.5`.
    pub(crate) section: String,
    pub(crate) test: String,
    /// What came instead.
    pub(crate) actual: String,
}
