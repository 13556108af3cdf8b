//! The raw numbers of a run, as `bench/core.json` keeps them.

use serde::{Deserialize, Serialize};
use tidegate_bench_common::results::{Latency, rows};

use crate::flood::Kind;
use crate::keys::Distribution;
use crate::plan::Scale;
use crate::subject::Name;

/// A whole run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) scale: Scale,
    pub(crate) machine: Machine,
    pub(crate) memory: Vec<MemoryRow>,
    pub(crate) speed: Vec<SpeedRow>,
    pub(crate) flood: Vec<FloodRow>,
    /// None where it was not measured.
    #[serde(default)]
    pub(crate) latency: Vec<LatencyRow>,
}

impl Results {
    /// As JSON with a row on a line, so that a change of one shows as one.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let (scale, machine) = (serde_json::to_string(&self.scale)?, serde_json::to_string(&self.machine)?);
        let (memory, speed, flood) = (rows(&self.memory)?, rows(&self.speed)?, rows(&self.flood)?);
        let latency = match &self.latency[..] {
            [] => String::new(),
            latency => format!(",\n\"latency\": {}", rows(latency)?),
        };
        Ok(format!(
            "{{\n\"scale\": {scale},\n\"machine\": {machine},\n\"memory\": {memory},\n\"speed\": {speed},\n\
             \"flood\": {flood}{latency}\n}}\n"
        ))
    }
}

/// What it was measured on and with.
#[derive(Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    /// The setting for transparent huge pages.
    pub(crate) huge_pages: String,
    pub(crate) rustc: String,
    pub(crate) governor: String,
    pub(crate) throttlecrab: String,
    /// Nothing where it was not measured.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) limitador: String,
    pub(crate) mimalloc: String,
}

/// The memory of a process, before there was a table and with all keys live.
#[derive(Serialize, Deserialize, Clone, Copy)]
pub(crate) struct MemoryRow {
    pub(crate) subject: Name,
    pub(crate) keys: u32,
    pub(crate) bytes_before: u64,
    /// The least that was seen once all keys were there: an allocator gives back late.
    pub(crate) bytes_after: u64,
    /// What our table was allowed.
    pub(crate) bytes_max: Option<u64>,
    /// Counters forgotten while they counted, by the time that all keys were there.
    pub(crate) evicted_live: u64,
    pub(crate) fill_ms: u64,
}

impl MemoryRow {
    pub(crate) fn bytes_per_key(&self) -> f64 {
        self.bytes_after.saturating_sub(self.bytes_before) as f64 / f64::from(self.keys)
    }

    pub(crate) fn evicted_share(&self) -> f64 {
        self.evicted_live as f64 / f64::from(self.keys)
    }
}

/// What is timed: everybody gets the same keys in the same order.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Workload {
    pub(crate) distribution: Distribution,
    pub(crate) threads: usize,
    /// Takes per request.
    pub(crate) takes: usize,
    /// Requests per batch; 1 for those who know no batches.
    pub(crate) batch: usize,
}

/// One workload of one subject, in every round.
#[derive(Serialize, Deserialize)]
pub(crate) struct SpeedRow {
    pub(crate) subject: Name,
    pub(crate) keys: u32,
    pub(crate) workload: Workload,
    pub(crate) rounds: Vec<Timing>,
}

/// How long single takes took.
#[derive(Serialize, Deserialize)]
pub(crate) struct LatencyRow {
    pub(crate) subject: Name,
    pub(crate) keys: u32,
    #[serde(flatten)]
    pub(crate) took: Latency,
}

/// One round of it.
#[derive(Serialize, Deserialize, Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) takes: u64,
    pub(crate) refused: u64,
    pub(crate) wall_ns: u64,
    /// Time of the processor, of all threads together.
    pub(crate) cpu_ns: u64,
}

impl Timing {
    /// Nanoseconds per take. One thread by the time of its processor, which nobody else's work adds to; several by the wall, because
    /// a thread that waits for another uses no processor.
    pub(crate) fn ns_per_take(&self, threads: usize) -> f64 {
        let ns = if threads == 1 { self.cpu_ns } else { self.wall_ns };
        ns.max(1) as f64 / self.takes as f64
    }
}

/// What got through for heavy callers in a flood.
#[derive(Serialize, Deserialize)]
pub(crate) struct FloodRow {
    /// The heavy callers' limit.
    pub(crate) heavy: String,
    /// What the flood is made of.
    pub(crate) kind: Kind,
    /// How many times as many new keys as the table has slots come in a window.
    pub(crate) table_fulls: u32,
    /// Units admitted to all heavy callers, and what exact counters admit to them.
    pub(crate) admitted: u64,
    pub(crate) exact: u64,
    /// The same of the caller with the largest ratio.
    pub(crate) worst_admitted: u64,
    pub(crate) worst_exact: u64,
    pub(crate) evicted_live: u64,
}

impl FloodRow {
    pub(crate) fn ratio(&self) -> f64 {
        self.admitted as f64 / self.exact as f64
    }

    pub(crate) fn worst_ratio(&self) -> f64 {
        self.worst_admitted as f64 / self.worst_exact as f64
    }
}
