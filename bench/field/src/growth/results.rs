//! The raw numbers of a run, as `bench/results/growth.json` keeps them.

use serde::{Deserialize, Serialize};
use tidegate_bench_common::results::{Counts, Latency, rows};

use super::plan::Case;
use crate::machine::Machine;
use crate::plan::Extent;

/// A whole run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) extent: Extent,
    pub(crate) machine: Machine,
    pub(crate) rows: Vec<Row>,
}

impl Results {
    /// As JSON with a row on a line, so that a change of one shows as one.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let extent = serde_json::to_string(&self.extent)?;
        let machine = serde_json::to_string(&self.machine)?;
        let rows = rows(&self.rows)?;
        Ok(format!("{{\n\"extent\": {extent},\n\"machine\": {machine},\n\"rows\": {rows}\n}}\n"))
    }
}

/// One node.
#[derive(Serialize, Deserialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) case: Case,
    /// From its start until it listened.
    pub(crate) start_ns: u64,
    /// Its memory then, and when every caller had asked once.
    pub(crate) rss_start_bytes: u64,
    pub(crate) rss_bytes: u64,
    /// Where keys grow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waits: Option<Waits>,
    pub(crate) rounds: Vec<Counts>,
}

/// How long calls of the same keys took, so many a second.
#[derive(Serialize, Deserialize, Clone, Copy)]
pub(crate) struct Waits {
    /// Just after the start, each for the first time,
    pub(crate) first: Latency,
    /// and when every key was there.
    pub(crate) later: Latency,
}
