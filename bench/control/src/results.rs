//! The raw numbers of a run, as `bench/control.json` keeps them.

use serde::{Deserialize, Serialize};
use tidegate_bench_common::plan::{Load, Scale};
use tidegate_bench_common::results::{Counts, rows};

use crate::plan::Asking;

/// A whole run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) scale: Scale,
    pub(crate) machine: Machine,
    /// How many callers ask, in each of the loads.
    pub(crate) asked: [u32; 2],
    /// How many turns a node has in a round, and how long they are.
    pub(crate) turns: usize,
    pub(crate) turn_ms: u64,
    pub(crate) weights: Vec<Weight>,
    pub(crate) rows: Vec<Row>,
    pub(crate) edits: Edits,
}

impl Results {
    /// As JSON with a row on a line, so that a change of one shows as one.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let (scale, machine) = (serde_json::to_string(&self.scale)?, serde_json::to_string(&self.machine)?);
        let (asked, edits) = (serde_json::to_string(&self.asked)?, serde_json::to_string(&self.edits)?);
        let (turns, turn_ms) = (self.turns, self.turn_ms);
        let (weights, rows) = (rows(&self.weights)?, rows(&self.rows)?);
        Ok(format!(
            "{{\n\"scale\": {scale},\n\"machine\": {machine},\n\"asked\": {asked},\n\"turns\": {turns},\n\
             \"turn_ms\": {turn_ms},\n\"weights\": {weights},\n\"rows\": {rows},\n\"edits\": {edits}\n}}\n"
        ))
    }
}

/// What it was measured on and with.
#[derive(Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    /// Had the nodes a core of their own?
    pub(crate) pinned: bool,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    pub(crate) rustc: String,
    pub(crate) commit: String,
}

/// A node's memory after every caller has asked.
#[derive(Serialize, Deserialize)]
pub(crate) struct Weight {
    pub(crate) known: u32,
    pub(crate) rss_bytes: u64,
    /// What it says itself that records take.
    pub(crate) told_bytes: u64,
}

/// A load on a node, in every round.
#[derive(Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) load: Load,
    pub(crate) asking: Asking,
    pub(crate) known: u32,
    pub(crate) rounds: Vec<Counts>,
}

/// Times of single edits, in the order in which they were made.
#[derive(Serialize, Deserialize)]
pub(crate) struct Edits {
    pub(crate) nodes: usize,
    /// From the call to its answer.
    pub(crate) answered_us: Vec<u64>,
    /// From the call until all nodes decide by it.
    pub(crate) on_all_us: Vec<u64>,
}
