//! The raw numbers of a run, as `bench/redis.json` keeps them.

use serde::{Deserialize, Serialize};
use tidegate_bench_common::plan::{Load, Scale};
use tidegate_bench_common::results::{Counts, OpenRound, rows};

use crate::plan::{Case, Subject};

/// A whole run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) scale: Scale,
    pub(crate) machine: Machine,
    /// What was seen of envoyproxy/ratelimit before it was timed. Older numbers do not have it.
    #[serde(default)]
    pub(crate) reference: Option<Reference>,
    pub(crate) callers: u32,
    /// How many counters were weighed, after one charge and full.
    pub(crate) weighed: [u32; 2],
    /// Calls per second in open loops.
    pub(crate) rate: u32,
    pub(crate) closed: Vec<ClosedRow>,
    pub(crate) open: Vec<OpenRow>,
    pub(crate) weights: Vec<Weight>,
}

impl Results {
    /// As JSON with a row on a line, so that a change of one shows as one.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let (scale, machine) = (serde_json::to_string(&self.scale)?, serde_json::to_string(&self.machine)?);
        let (callers, rate, weighed) = (self.callers, self.rate, serde_json::to_string(&self.weighed)?);
        let reference = match &self.reference {
            Some(reference) => format!("\"reference\": {},\n", serde_json::to_string(reference)?),
            None => String::new(),
        };
        let (closed, open, weights) = (rows(&self.closed)?, rows(&self.open)?, rows(&self.weights)?);
        Ok(format!(
            "{{\n\"scale\": {scale},\n\"machine\": {machine},\n{reference}\"callers\": {callers},\n\"weighed\": {weighed},\n\
             \"rate\": {rate},\n\"closed\": {closed},\n\"open\": {open},\n\"weights\": {weights}\n}}\n"
        ))
    }

    pub(crate) fn closed_row(&self, subject: Subject, case: Case, load: Option<Load>) -> Option<&ClosedRow> {
        self.closed.iter().find(|row| row.subject == subject && row.case == case && row.load == load)
    }

    pub(crate) fn open_row(&self, subject: Subject) -> Option<&OpenRow> {
        self.open.iter().find(|row| row.subject == subject)
    }
}

/// What it was measured on and with.
#[derive(Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    /// Had the node and the generator a core each?
    pub(crate) pinned: bool,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    pub(crate) rustc: String,
    pub(crate) commit: String,
    pub(crate) redis: String,
    /// The library that the node speaks to it by.
    pub(crate) redis_crate: String,
    /// envoyproxy/ratelimit, if it was there.
    pub(crate) reference: Option<String>,
}

/// What was seen of envoyproxy/ratelimit, which is timed only if it refuses.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reference {
    Seen(Seen),
    /// For this reason.
    NotTimed(String),
}

/// One of the callers by whom somebody is timed took all of its limit by the first call, and asked for more by the others.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub(crate) struct Seen {
    pub(crate) asked: u64,
    pub(crate) admitted: u64,
}

impl Seen {
    /// All was admitted, and nothing beyond it.
    pub(crate) fn refuses(self) -> bool {
        self.admitted == 1 && self.asked > 1
    }
}

/// A closed loop on one subject, in every round.
#[derive(Serialize, Deserialize)]
pub(crate) struct ClosedRow {
    pub(crate) subject: Subject,
    pub(crate) case: Case,
    /// Who calls; the plain client is one connection to the store.
    pub(crate) load: Option<Load>,
    pub(crate) rounds: Vec<Counts>,
}

/// An open loop on one subject, in every round.
#[derive(Serialize, Deserialize)]
pub(crate) struct OpenRow {
    pub(crate) subject: Subject,
    pub(crate) rounds: Vec<OpenRound>,
}

/// What a counter takes of the store's memory.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(crate) struct Weight {
    pub(crate) algorithm: String,
    /// After one charge: all that the store allocated, by the number of keys; and the value alone.
    pub(crate) bytes: f64,
    pub(crate) value_bytes: u64,
    /// The same once it is full, where that is more.
    pub(crate) full_bytes: Option<f64>,
    pub(crate) full_value_bytes: Option<u64>,
}
