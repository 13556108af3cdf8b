//! What operators are told of a store.

/// Upper bounds of the times that calls are sorted by, in µs; a last class holds all that took longer.
pub const STORE_TIMES_US: [u64; 12] =
    [100, 250, 500, 1_000, 2_000, 4_000, 8_000, 12_000, 20_000, 50_000, 250_000, 1_000_000];

/// What happened so far, and what there is now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RedisStats {
    /// Each server that was talked to and is still known, by address.
    pub servers: Vec<ServerStats>,
    /// How often it went wrong, by kind: the kinds are fixed words.
    pub errors: Vec<(&'static str, u64)>,
    /// Redirects that were followed.
    pub redirects: u64,
    /// How often the map of the cluster was read.
    pub refreshes: u64,
    /// Requests that were refused from memory, because the store had refused the same a moment before.
    pub remembered_denials: u64,
    /// Answers of a script that this node would have answered otherwise. Never, or a script is wrong.
    pub disagreements: u64,
    /// Requests that wait for an answer now.
    pub in_flight: u64,
}

/// One server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerStats {
    /// Its address.
    pub address: String,
    /// Open connections to it, of all threads.
    pub connections: u64,
    /// Calls that were answered or given up, by what they did (fixed words) and how long they took.
    pub calls: Vec<(&'static str, Times)>,
}

/// How long something took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// How many took at most as long as each of [`STORE_TIMES_US`] and longer than the one before; at last, longer than all.
    pub counts: [u64; STORE_TIMES_US.len() + 1],
    /// All together, in µs.
    pub sum_us: u64,
}
