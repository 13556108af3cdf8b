//! How far a node is with what the control plane keeps: for probes and for metrics.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tidegate_telemetry::AuditSinkGauges;

use tidegate_telemetry::{AdminCall, ControlGauges};

/// Whoever was heard of no longer ago than this is followed, unless asking went wrong since: a node asks every four seconds, and waits
/// three for an answer.
const FOLLOWED_S: u64 = 8;

/// How far it is.
#[derive(Debug, Default)]
pub struct ControlStatus {
    /// Where it is kept, for people.
    pub place: String,
    loaded: AtomicBool,
    revision: AtomicU64,
    /// When it was heard of last; at first, when the node began to ask.
    heard_us: AtomicU64,
    has_heard: AtomicBool,
    /// Did it go wrong the last time?
    fails: AtomicBool,
    /// Was a quota told that names no domain, since all were?
    unnamed: AtomicBool,
    follow_errors: AtomicU64,
    has_api: AtomicBool,
    serves_one: AtomicBool,
    serves_nobody: AtomicBool,
    /// How many nodes there are although it serves one; 0 where all is well.
    nodes: AtomicU32,
    calls: [AtomicU64; AdminCall::ALL.len()],
    /// How far the audit trail is written to where an operator wants to have it, and why it does not go on.
    sink: Mutex<Option<(AuditSinkGauges, Option<String>)>>,
}

impl ControlStatus {
    /// Nothing is known yet of what is kept there.
    pub fn new(place: String, now_us: u64) -> Self {
        Self { place, heard_us: AtomicU64::new(now_us), ..Self::default() }
    }

    /// All that was kept at this revision is in force.
    pub fn is_at(&self, revision: u64) {
        self.revision.store(revision, Ordering::Relaxed);
        self.loaded.store(true, Ordering::Release);
    }

    /// The database answered, at this time in µs since 1970.
    pub fn heard(&self, at_us: u64) {
        self.heard_us.store(at_us, Ordering::Relaxed);
        self.has_heard.store(true, Ordering::Relaxed);
        self.fails.store(false, Ordering::Relaxed);
    }

    /// The database did not answer.
    pub fn heard_nothing(&self) {
        self.fails.store(true, Ordering::Relaxed);
        self.follow_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// All quotas will be told, or one was that names no domain.
    pub fn has_unnamed(&self, has: bool) {
        self.unnamed.store(has, Ordering::Relaxed);
    }

    /// May there be quotas that name no domain?
    pub fn may_have_unnamed(&self) -> bool {
        self.unnamed.load(Ordering::Relaxed)
    }

    /// The API is served here.
    pub fn has_api(&self) {
        self.has_api.store(true, Ordering::Relaxed);
    }

    /// It is in a file, which serves one node.
    pub fn serves_one_node(&self) {
        self.serves_one.store(true, Ordering::Relaxed);
    }

    /// The one that it could serve decides nothing.
    pub fn serves_nobody(&self) {
        self.serves_nobody.store(true, Ordering::Relaxed);
    }

    /// So many nodes share the counters. Says whether that is news, and not well.
    pub fn sees_nodes(&self, nodes: u32) -> bool {
        let nodes = if nodes > 1 && self.serves_one.load(Ordering::Relaxed) { nodes } else { 0 };
        self.nodes.swap(nodes, Ordering::Relaxed) == 0 && nodes > 0
    }

    /// What is wrong with how it is set up, and what to do.
    pub fn misplaced(&self) -> Option<String> {
        if self.serves_nobody.load(Ordering::Relaxed) {
            let why = "this process decides nothing, and SQLite serves no other: what is changed here holds nowhere; give it and the nodes \
                       that decide one PostgreSQL (--control-database postgres://…)";
            return Some(why.into());
        }
        let nodes = Some(self.nodes.load(Ordering::Relaxed)).filter(|nodes| *nodes > 0)?;
        Some(format!(
            "{nodes} nodes share the counters, and SQLite serves one: what is changed here holds on this node alone; give all of them one \
             PostgreSQL (--control-database postgres://…), or set control.enabled: false where nobody uses it"
        ))
    }

    /// The API answered a call with this status.
    pub fn answered(&self, status: u16) {
        self.calls[AdminCall::of(status) as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The sink of the audit trail lacks so many rows, has failed so often, and does not go on for this reason.
    pub fn sink_is_at(&self, behind: u64, failures: u64, trouble: Option<&str>) {
        let gauges = AuditSinkGauges { behind, failures };
        *self.sink.lock().unwrap_or_else(PoisonError::into_inner) = Some((gauges, trouble.map(String::from)));
    }

    /// How far that is; none where there is none.
    pub fn sink(&self) -> Option<AuditSinkGauges> {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(gauges, _)| *gauges)
    }

    /// The same for people.
    pub(crate) fn sink_told(&self) -> Option<String> {
        let sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        let (gauges, trouble) = sink.as_ref()?;
        let rows = if gauges.behind == 1 { "row" } else { "rows" };
        Some(match (trouble, gauges.behind) {
            (Some(why), behind) => format!("the sink lacks {behind} {rows} and is tried again: {why}"),
            (None, 0) => "the sink has every row".to_owned(),
            (None, behind) => format!("the sink lacks {behind} {rows}"),
        })
    }

    /// Has everything been told once?
    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    /// The revision in force.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// For how many seconds the node has not been level with the database, as far as it knows: 0 while it is.
    pub fn stale_seconds(&self, now_us: u64) -> u64 {
        let silent_s = now_us.saturating_sub(self.heard_us.load(Ordering::Relaxed)) / 1_000_000;
        let fails = self.fails.load(Ordering::Relaxed) || !self.has_heard.load(Ordering::Relaxed);
        if fails || silent_s > FOLLOWED_S { silent_s } else { 0 }
    }

    /// For metrics.
    pub(crate) fn gauges(&self, (keys, bytes): (usize, usize), now_us: u64) -> ControlGauges {
        let calls = || std::array::from_fn(|result| self.calls[result].load(Ordering::Relaxed));
        ControlGauges {
            stale_seconds: self.stale_seconds(now_us),
            revision: self.revision(),
            follow_errors: self.follow_errors.load(Ordering::Relaxed),
            quota_keys: keys as u64,
            quota_bytes: bytes as u64,
            admin_calls: self.has_api.load(Ordering::Relaxed).then(calls),
        }
    }

    /// A line for people.
    pub(crate) fn told(&self, keys: usize, now_us: u64) -> String {
        let heard = match self.stale_seconds(now_us) {
            _ if !self.has_heard.load(Ordering::Relaxed) => "never heard of it since the start".to_owned(),
            0 => "followed".to_owned(),
            seconds => format!("not heard of it for {seconds} s; what is known stays in force"),
        };
        let loaded = if self.is_loaded() { "" } else { "nothing loaded yet, " };
        let with = if keys == 1 { "key with a quota" } else { "keys with quotas" };
        let (revision, place) = (self.revision(), &self.place);
        format!("{loaded}{keys} {with}, revision {revision}, in {place}: {heard}")
    }
}
