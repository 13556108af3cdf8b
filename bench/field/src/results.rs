//! The raw numbers of a run, as `bench/results/field.json` keeps them.

use serde::{Deserialize, Serialize};
use tidegate_bench_common::results::{Counts, Latency, rows};

use crate::machine::Machine;
use crate::plan::{Extent, Pace, Press};

/// A whole run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) extent: Extent,
    pub(crate) machine: Machine,
    /// How long all of it took, in seconds; what had to be installed is in it.
    #[serde(default)]
    pub(crate) took_s: Option<u64>,
    pub(crate) keys: u32,
    pub(crate) rounds: usize,
    pub(crate) peers: Vec<PeerRow>,
    pub(crate) missing: Vec<Missing>,
    /// What went wrong with single turns; they are not counted.
    pub(crate) broken: Vec<String>,
    pub(crate) closed: Vec<ClosedTurn>,
    pub(crate) open: Vec<OpenTurn>,
}

impl Results {
    /// As JSON with a row on a line, so that a change of one shows as one.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let (extent, machine) = (serde_json::to_string(&self.extent)?, serde_json::to_string(&self.machine)?);
        let (keys, rounds) = (self.keys, self.rounds);
        let took = self.took_s.map_or(String::new(), |took_s| format!("\"took_s\": {took_s},\n"));
        let (peers, missing, broken) = (rows(&self.peers)?, rows(&self.missing)?, rows(&self.broken)?);
        let (closed, open) = (rows(&self.closed)?, rows(&self.open)?);
        Ok(format!(
            "{{\n\"extent\": {extent},\n\"machine\": {machine},\n{took}\"keys\": {keys},\n\"rounds\": {rounds},\n\
             \"peers\": {peers},\n\"missing\": {missing},\n\"broken\": {broken},\n\"closed\": {closed},\n\"open\": {open}\n}}\n"
        ))
    }
}

/// Somebody who was measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct PeerRow {
    pub(crate) peer: String,
    pub(crate) version: String,
    pub(crate) command: String,
    /// What it answered when one caller asked for too much; none if there is nothing to see.
    pub(crate) seen: Option<Seen>,
    /// The same where one of the callers by whom it was timed took all of the limit that counted then, and asked for more; none if it
    /// knows no requests for several units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seen_timed: Option<Seen>,
    /// From the start of the process to its first answer, each time.
    pub(crate) start_ns: Vec<u64>,
    /// Memory after it answered for the first time,
    pub(crate) rss_start_bytes: u64,
    /// and after every caller was there once.
    pub(crate) rss_bytes: u64,
}

/// How somebody was seen refusing.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub(crate) struct Seen {
    pub(crate) asked: u64,
    pub(crate) admitted: u64,
    pub(crate) wall_ns: u64,
}

/// Somebody who was not measured.
#[derive(Serialize, Deserialize)]
pub(crate) struct Missing {
    pub(crate) peer: String,
    pub(crate) reason: String,
}

/// Where a turn stood in the run.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) round: usize,
    /// The number of the turn within the round.
    pub(crate) turn: usize,
}

/// One turn of a closed loop.
#[derive(Serialize, Deserialize)]
pub(crate) struct ClosedTurn {
    pub(crate) peer: String,
    pub(crate) press: Press,
    #[serde(flatten)]
    pub(crate) place: Place,
    #[serde(flatten)]
    pub(crate) counts: Counts,
}

/// One turn of an open loop.
#[derive(Serialize, Deserialize)]
pub(crate) struct OpenTurn {
    pub(crate) peer: String,
    pub(crate) pace: Pace,
    /// Calls per second.
    pub(crate) rate: u32,
    #[serde(flatten)]
    pub(crate) place: Place,
    #[serde(flatten)]
    pub(crate) counts: Counts,
    #[serde(flatten)]
    pub(crate) latency: Latency,
}
