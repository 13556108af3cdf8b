//! What the node knows itself and hands over when it is scraped.

use std::time::Duration;

use tidegate_core::Micros;

use crate::words::{AdminCall, Server};

/// Values of the moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Gauges {
    /// Keys in memory.
    pub keys_live: u64,
    /// Keys that there are slots for.
    pub keys_capacity: u64,
    /// Idle keys that left, since the start.
    pub keys_expired: u64,
    /// Keys that were forgotten while they counted, since the start.
    pub evicted_live: u64,
    /// Those among them that were being refused.
    pub evicted_refused: u64,
    /// Charges that could not be kept, since the start.
    pub unremembered: u64,
    /// Places that expired because nobody gave them back, since the start.
    pub places_expired: u64,
    /// Memory set aside for counters.
    pub counter_bytes: u64,
    /// The part of it that is the arena.
    pub arena_bytes: u64,
    /// What is in use of the arena.
    pub arena_used_bytes: u64,

    /// Rules in force.
    pub rules: u64,
    /// When they were loaded: wall time.
    pub reloaded_at: Micros,
    /// Did the last load succeed?
    pub reload_successful: bool,
    /// Times that rules were read, since the start.
    pub reloads: u64,
    /// Those that failed.
    pub reload_failures: u64,

    /// Connections that are open, of each server in the order of [`Server::ALL`].
    pub connections: [u64; Server::ALL.len()],
    /// When the process started: wall time.
    pub started_at: Micros,
    /// What is running.
    pub build: Build,

    /// The store that the fleet shares; none on counters in memory.
    pub store: Option<StoreGauges>,
    /// The xDS server that rules come from; none where they come from files.
    pub xds: Option<XdsGauges>,
    /// What becomes of charges of calendar quotas; none where they are not written down.
    pub calendars: Option<CalendarGauges>,
    /// What the control plane keeps; none where there is none.
    pub control: Option<ControlGauges>,
    /// The sink of the audit trail; none where this node writes none.
    pub audit_sink: Option<AuditSinkGauges>,
    /// Refusals in a file of their own: how many are written, and how many could not be; none where there is no file.
    pub refusals_file: Option<(u64, u64)>,
}

/// What becomes of charges of calendar quotas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CalendarGauges {
    /// Counters whose charges are not written down yet.
    pub waiting: u64,
    /// Those that were, each time, since the start.
    pub written: u64,
    /// Counters that were found empty and have again what was used, since the start.
    pub restored: u64,
    /// Charges that are not written down because too many waited, since the start.
    pub left_out: u64,
}

/// What is known of the control plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ControlGauges {
    /// For how many seconds the node has not been level with the database; 0 while it is.
    pub stale_seconds: u64,
    /// The revision in force.
    pub revision: u64,
    /// Times that the database did not tell what has changed, since the start.
    pub follow_errors: u64,
    /// Callers with a record.
    pub quota_keys: u64,
    /// What these take.
    pub quota_bytes: u64,
    /// Calls of the API in the order of [`AdminCall::ALL`], since the start; none where it is not here.
    pub admin_calls: Option<[u64; AdminCall::ALL.len()]>,
}

/// How far the audit trail is written to where an operator wants to have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AuditSinkGauges {
    /// Rows that are not written yet.
    pub behind: u64,
    /// How often something failed.
    pub failures: u64,
}

/// What is known of an xDS server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XdsGauges {
    /// Is there a connection?
    pub connected: bool,
    /// Rules that were put in force, since the start.
    pub accepted: u64,
    /// Rules that were not.
    pub rejected: u64,
}

/// What is known of a store elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreGauges {
    /// Its servers.
    pub servers: Vec<StoreServer>,
    /// Upper bounds of the classes of times, in µs.
    pub times_us: &'static [u64],
    /// What went wrong, by kind, since the start.
    pub errors: Vec<(&'static str, u64)>,
    /// Redirects that were followed, since the start.
    pub redirects: u64,
    /// Times that the map of the cluster was read, since the start.
    pub refreshes: u64,
    /// Requests that were refused from memory, since the start.
    pub remembered_denials: u64,
    /// Answers that this node would have given otherwise, since the start.
    pub disagreements: u64,
    /// Requests that wait for an answer.
    pub in_flight: u64,
    /// How many nodes share it; none until it is known.
    pub nodes: Option<u32>,
}

/// One server of a store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreServer {
    /// Its address.
    pub address: String,
    /// Open connections to it.
    pub connections: u64,
    /// Its calls: what they did, how many took as long as each class of times and one more for what took longer, and all together in µs.
    pub calls: Vec<(&'static str, Vec<u64>, u64)>,
    /// Its circuit: 0 closed, 1 half open, 2 open.
    pub circuit: u32,
    /// How often that opened.
    pub opened: u64,
    /// How long it was so, by the word for it.
    pub modes: Vec<(&'static str, Duration)>,
    /// Keys that it evicted, if it says so.
    pub evicted_keys: Option<u64>,
}

/// What was built.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Build {
    /// The release.
    pub version: &'static str,
    /// The commit that it was built from.
    pub commit: &'static str,
    /// How it was compiled.
    pub profile: &'static str,
}
