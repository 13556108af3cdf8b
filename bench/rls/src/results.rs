//! The raw numbers of a run, as `bench/rls.json` keeps them.

use serde::{Deserialize, Serialize};
use tidegate_bench_common::plan::{Load, Scale};
use tidegate_bench_common::results::{Counts, OpenRound, rows};

use crate::plan::Pace;
use crate::server::Subject;

/// A whole run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) scale: Scale,
    pub(crate) machine: Machine,
    pub(crate) keys: u32,
    pub(crate) closed: Vec<ClosedRow>,
    pub(crate) open: Vec<OpenRow>,
}

impl Results {
    /// As JSON with a row on a line, so that a change of one shows as one.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let (scale, machine) = (serde_json::to_string(&self.scale)?, serde_json::to_string(&self.machine)?);
        let (keys, closed, open) = (self.keys, rows(&self.closed)?, rows(&self.open)?);
        Ok(format!(
            "{{\n\"scale\": {scale},\n\"machine\": {machine},\n\"keys\": {keys},\n\"closed\": {closed},\n\"open\": {open}\n}}\n"
        ))
    }
}

/// What it was measured on and with.
#[derive(Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    /// Had the subjects a core of their own?
    pub(crate) pinned: bool,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    pub(crate) rustc: String,
    pub(crate) tonic: String,
    pub(crate) hyper: String,
    pub(crate) h2: String,
    pub(crate) tokio: String,
    pub(crate) mimalloc: String,
}

/// A closed loop on one subject, in every round.
#[derive(Serialize, Deserialize)]
pub(crate) struct ClosedRow {
    pub(crate) subject: Subject,
    pub(crate) load: Load,
    pub(crate) rounds: Vec<Counts>,
}

/// An open loop on one subject, in every round.
#[derive(Serialize, Deserialize)]
pub(crate) struct OpenRow {
    pub(crate) subject: Subject,
    pub(crate) pace: Pace,
    /// Calls per second.
    pub(crate) rate: u32,
    pub(crate) rounds: Vec<OpenRound>,
}
