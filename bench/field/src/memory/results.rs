//! The raw numbers of a run, as `bench/results/memory.json` keeps them.

use serde::{Deserialize, Serialize};
use tidegate_bench_common::results::rows;

use crate::machine::Machine;
use crate::plan::Extent;

/// A whole run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) extent: Extent,
    pub(crate) machine: Machine,
    /// How long all of it took, in seconds; what had to be installed is in it.
    pub(crate) took_s: u64,
    /// How long the callers of one size may have taken.
    pub(crate) asked_max_s: u64,
    /// How many callers were to ask, fewest first.
    pub(crate) sizes: Vec<u32>,
    pub(crate) rows: Vec<Row>,
    /// Who was not there, and why.
    pub(crate) missing: Vec<Missing>,
}

impl Results {
    /// As JSON with a row on a line, so that a change of one shows as one.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let (extent, machine) = (serde_json::to_string(&self.extent)?, serde_json::to_string(&self.machine)?);
        let (took_s, asked_max_s) = (self.took_s, self.asked_max_s);
        let sizes = serde_json::to_string(&self.sizes)?;
        Ok(format!(
            "{{\n\"extent\": {extent},\n\"machine\": {machine},\n\"took_s\": {took_s},\n\"asked_max_s\": {asked_max_s},\n\
             \"sizes\": {sizes},\n\
             \"rows\": {},\n\"missing\": {}\n}}\n",
            rows(&self.rows)?,
            rows(&self.missing)?,
        ))
    }
}

/// Somebody who was asked.
#[derive(Serialize, Deserialize, Default)]
pub(crate) struct Row {
    pub(crate) peer: String,
    pub(crate) title: String,
    pub(crate) version: String,
    pub(crate) algorithm: String,
    /// How it was started, for the most callers.
    pub(crate) command: String,
    /// Was it started anew for each size?
    pub(crate) anew: bool,
    /// Twice the same where a node forgot some callers and was started with more room.
    pub(crate) sizes: Vec<Size>,
    /// Why it was not asked for more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stopped: Option<String>,
}

impl Row {
    /// What was there of so many callers. A node that forgot some of them is none to go by.
    pub(crate) fn of_size(&self, callers: u32) -> Option<&Size> {
        let forgot_nobody = |size: &Size| size.own.is_none_or(|own| own.forgotten() == 0);
        self.sizes.iter().find(|size| size.callers == callers && forgot_nobody(size))
    }
}

/// What was there when so many callers had asked.
#[derive(Serialize, Deserialize, Clone, Default)]
pub(crate) struct Size {
    pub(crate) callers: u32,
    /// How long they took, those of the size before not counted if the same process went on.
    pub(crate) asked_ms: u64,
    /// Memory of the server's process after it answered for the first time,
    pub(crate) rss_start_bytes: u64,
    /// and when all had asked.
    pub(crate) rss_bytes: u64,
    /// Of the store, if it counts in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<StoreSize>,
    /// Of a node of ours that counts in its memory: what it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) own: Option<Own>,
}

impl Size {
    /// What the process grew by since its first answer, for each caller.
    pub(crate) fn grown_each(&self) -> f64 {
        self.each(self.rss_bytes.saturating_sub(self.rss_start_bytes))
    }

    /// All that is resident, and all that the store has, for each caller.
    pub(crate) fn all_each(&self) -> f64 {
        self.each(self.rss_bytes + self.store.as_ref().map_or(0, |store| store.used_bytes))
    }

    /// What came to the store, for each caller.
    pub(crate) fn store_each(&self) -> Option<f64> {
        let store = self.store.as_ref()?;
        Some(self.each(store.used_bytes.saturating_sub(store.used_start_bytes)))
    }

    fn each(&self, bytes: u64) -> f64 {
        bytes as f64 / f64::from(self.callers.max(1))
    }
}

/// What a store says of itself.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub(crate) struct StoreSize {
    /// What it had allocated before any of the callers asked,
    pub(crate) used_start_bytes: u64,
    /// and when all had.
    pub(crate) used_bytes: u64,
    /// Keys that it has then.
    pub(crate) keys: u64,
}

/// What a node says of the counters in its memory.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub(crate) struct Own {
    /// All that it took for them at its start,
    pub(crate) set_aside_bytes: u64,
    /// the part of it that is the arena,
    pub(crate) arena_bytes: u64,
    /// and what is used of that.
    pub(crate) arena_used_bytes: u64,
    pub(crate) keys: u64,
    /// Keys that were forgotten while they counted, refused ones among them.
    pub(crate) evicted_live: u64,
    /// Charges that were judged and not kept.
    pub(crate) unremembered: u64,
}

/// Somebody who was not there.
#[derive(Serialize, Deserialize, Clone)]
pub(crate) struct Missing {
    pub(crate) title: String,
    pub(crate) reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_s_share_is_of_what_was_added_and_of_all() {
        let store = StoreSize { used_start_bytes: 1_000_000, used_bytes: 21_000_000, keys: 100_001 };
        let mut size =
            Size { callers: 100_000, rss_start_bytes: 10_000_000, rss_bytes: 50_000_000, ..Size::default() };
        assert_eq!((size.grown_each(), size.all_each(), size.store_each()), (400.0, 500.0, None));
        size.store = Some(store);
        assert_eq!((size.grown_each(), size.all_each(), size.store_each()), (400.0, 710.0, Some(200.0)));
        size.rss_bytes = 0;
        assert_eq!(size.grown_each(), 0.0, "it may have given back more than it took");
    }
}
