//! The raw numbers of a run, as `bench/results/accuracy.json` keeps them.

use serde::{Deserialize, Serialize};
use tidegate_bench_common::results::rows;

use crate::plan::Extent;

/// Of a hundred calls of somebody so many may fail: a busy machine may be too slow for a deadline. Who fails more often is not counting.
pub(crate) const FAILED_PERCENT_MAX: u64 = 1;

/// A whole run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) extent: Extent,
    /// What it was measured on.
    pub(crate) machine: String,
    /// Units that a key has,
    pub(crate) amount: u32,
    /// in so many seconds.
    pub(crate) window_s: u32,
    pub(crate) rows: Vec<Row>,
    /// Who was not there, and why.
    pub(crate) missing: Vec<Missing>,
}

impl Results {
    /// As JSON with a row on a line, so that a change of one shows as one.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let (extent, machine) = (serde_json::to_string(&self.extent)?, serde_json::to_string(&self.machine)?);
        let (amount, window_s) = (self.amount, self.window_s);
        Ok(format!(
            "{{\n\"extent\": {extent},\n\"machine\": {machine},\n\"amount\": {amount},\n\"window_s\": {window_s},\n\
             \"rows\": {},\n\"missing\": {}\n}}\n",
            rows(&self.rows)?,
            rows(&self.missing)?,
        ))
    }
}

/// Somebody who was asked.
#[derive(Serialize, Deserialize, Clone)]
pub(crate) struct Row {
    pub(crate) word: String,
    pub(crate) title: String,
    pub(crate) version: String,
    pub(crate) algorithm: String,
    /// Is it one of ours?
    pub(crate) is_ours: bool,
    /// What it may admit in a window, as a multiple of the limit, by what it says it counts by.
    pub(crate) promised: Option<f64>,
    /// By how many units the window of ours may be off at worst, as the core says of this limit. Older numbers have none of these three.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bound: Option<u32>,
    /// How it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// Calls that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<u64>,
    /// Far above the limit without a pause: each key.
    pub(crate) steady: Vec<Admitted>,
    /// A burst around the end of a window: each time.
    pub(crate) edges: Vec<Admitted>,
}

/// What was admitted of one key.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub(crate) struct Admitted {
    /// Calls that were made,
    pub(crate) asked: u64,
    /// and those that were let through.
    pub(crate) admitted: u64,
    /// In how long.
    pub(crate) wall_ns: u64,
    /// In the worst window: certainly so many,
    pub(crate) at_least: u64,
    /// and certainly no more.
    pub(crate) at_most: u64,
}

/// Somebody who was not there.
#[derive(Serialize, Deserialize, Clone)]
pub(crate) struct Missing {
    pub(crate) title: String,
    pub(crate) reason: String,
}
