//! How far a node is with what the control plane keeps: for probes and for metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far it is.
#[derive(Debug, Default)]
pub struct ControlStatus {
    /// Where it is kept, for people.
    pub place: String,
    loaded: AtomicBool,
    revision: AtomicU64,
    heard_us: AtomicU64,
    rules_refused: AtomicBool,
}

impl ControlStatus {
    /// Nothing is known yet of what is kept there.
    pub fn new(place: String) -> Self {
        Self { place, ..Self::default() }
    }

    /// All that was kept at this revision is in force.
    pub fn is_at(&self, revision: u64) {
        self.revision.store(revision, Ordering::Relaxed);
        self.loaded.store(true, Ordering::Release);
    }

    /// The database answered, at this time in µs since 1970.
    pub fn heard(&self, at_us: u64) {
        self.heard_us.store(at_us, Ordering::Relaxed);
    }

    /// Could the last rules by API not be put in force?
    pub fn rules_refused(&self, refused: bool) {
        self.rules_refused.store(refused, Ordering::Relaxed);
    }

    /// Has everything been told once?
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// The revision in force.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// For how many seconds nothing was heard of the database; none where it never was.
    pub fn stale_seconds(&self, now_us: u64) -> Option<u64> {
        let heard = Some(self.heard_us.load(Ordering::Relaxed)).filter(|heard| *heard > 0)?;
        Some(now_us.saturating_sub(heard) / 1_000_000)
    }

    /// A line for people.
    pub(crate) fn told(&self, keys: usize, now_us: u64) -> String {
        let heard = match self.stale_seconds(now_us) {
            None => "never heard of it since the start".to_owned(),
            Some(0..=9) => "followed".to_owned(),
            Some(seconds) => format!("not heard of it for {seconds} s; what is known stays in force"),
        };
        let refused = match self.rules_refused.load(Ordering::Relaxed) {
            true => "; its rules could not be put in force, those before stay",
            false => "",
        };
        let loaded = if self.is_loaded() { "" } else { "nothing loaded yet, " };
        let with = if keys == 1 { "key with a quota" } else { "keys with quotas" };
        let (revision, place) = (self.revision(), &self.place);
        format!("{loaded}{keys} {with}, revision {revision}, in {place}: {heard}{refused}")
    }
}
