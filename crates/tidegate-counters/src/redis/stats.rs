//! What operators are told of a store.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

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
    /// The same refusals as a cache.
    pub denials: DenialStats,
    /// Answers of a script that this node would have answered otherwise. Never, or a script is wrong.
    pub disagreements: u64,
    /// Places that had expired, in units, and were forgotten by a call of this node.
    pub places_expired: u64,
    /// Requests that wait for an answer now.
    pub in_flight: u64,
    /// How many nodes share the store; none until it is known.
    pub nodes: Option<u32>,
    /// What is wrong with how the store is set up, in words.
    pub warnings: Vec<String>,
}

impl RedisStats {
    /// Open connections to all servers.
    pub fn connections(&self) -> u64 {
        self.servers.iter().map(|server| server.connections).sum()
    }

    /// Connections that were opened since the start, to those that are still known.
    pub fn connections_opened(&self) -> u64 {
        self.servers.iter().map(|server| server.opened).sum()
    }
}

/// Refusals that are remembered. What is given back is forgotten, and counted nowhere here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DenialStats {
    /// Those that are there, also if their time is over: they make room when others come.
    pub entries: u64,
    /// How often one was looked for.
    pub lookups: u64,
    /// Those that made room when their time was over.
    pub expired: u64,
    /// Those that were written over before that.
    pub overwritten: u64,
}

/// One server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerStats {
    /// Its address.
    pub address: String,
    /// Open connections to it, of all threads.
    pub connections: u64,
    /// Those that were opened since the start.
    pub opened: u64,
    /// Calls that were answered or given up, by what they did (fixed words) and how long they took.
    pub calls: Vec<(&'static str, Times)>,
    /// Is it called at all?
    pub circuit: CircuitStats,
    /// Keys that it has evicted since it started, if it was asked.
    pub evicted_keys: Option<u64>,
}

/// The circuit of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CircuitStats {
    /// How it is.
    pub state: CircuitState,
    /// How often it opened.
    pub opened: u64,
    /// How long it was in each state, in the order of [`CircuitState`].
    pub spent: [Duration; 3],
}

/// How a circuit is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CircuitState {
    /// The server is called.
    #[default]
    Closed,
    /// It is tried.
    HalfOpen,
    /// It is not called.
    Open,
}

impl CircuitState {
    /// All, with their words.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Closed, "closed"), (Self::HalfOpen, "half_open"), (Self::Open, "open")];
}

/// How long something took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// How many took at most as long as each of [`STORE_TIMES_US`] and longer than the one before; at last, longer than all.
    pub counts: [u64; STORE_TIMES_US.len() + 1],
    /// All together, in µs.
    pub sum_us: u64,
}

/// What can go wrong, in fixed words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trouble {
    /// A server could not be reached, or would not have us.
    Connect,
    /// A user, password or permission was refused.
    Auth,
    /// No reply in time.
    Timeout,
    /// The connection broke before the reply.
    Lost,
    /// The server did not know the script yet.
    NoScript,
    /// The slot has moved.
    Moved,
    /// The slot is about to move, and the key has.
    Ask,
    /// Some keys of a slot that is about to move have moved, others have not.
    TryAgain,
    /// A replica was asked to write.
    ReadOnly,
    /// The server is reading its data.
    Loading,
    /// The server runs a script that does not end.
    Busy,
    /// The cluster has lost servers.
    ClusterDown,
    /// The server has no memory left.
    Oom,
    /// A script failed.
    Script,
    /// Anything else.
    Other,
}

impl Trouble {
    const ALL: [(Self, &'static str); 15] = [
        (Self::Connect, "connect"),
        (Self::Auth, "auth"),
        (Self::Timeout, "timeout"),
        (Self::Lost, "lost"),
        (Self::NoScript, "noscript"),
        (Self::Moved, "moved"),
        (Self::Ask, "ask"),
        (Self::TryAgain, "tryagain"),
        (Self::ReadOnly, "readonly"),
        (Self::Loading, "loading"),
        (Self::Busy, "busy"),
        (Self::ClusterDown, "clusterdown"),
        (Self::Oom, "oom"),
        (Self::Script, "script"),
        (Self::Other, "other"),
    ];
}

/// How often each thing went wrong.
#[derive(Default)]
pub(super) struct Troubles([AtomicU64; Trouble::ALL.len()]);

impl Troubles {
    pub(super) fn count(&self, trouble: Trouble) {
        self.0[trouble as usize].fetch_add(1, Relaxed);
    }

    /// Every kind with its word, those that never happened too.
    pub(super) fn told(&self) -> Vec<(&'static str, u64)> {
        Trouble::ALL.map(|(trouble, word)| (word, self.0[trouble as usize].load(Relaxed))).to_vec()
    }
}

/// [`Times`] that all threads add to.
#[derive(Default)]
pub(super) struct TimesTally {
    counts: [AtomicU64; STORE_TIMES_US.len() + 1],
    sum_us: AtomicU64,
}

impl TimesTally {
    pub(super) fn add(&self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let class = STORE_TIMES_US.partition_point(|bound_us| *bound_us < took_us);
        self.counts[class].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(took_us, Relaxed);
    }

    pub(super) fn told(&self) -> Times {
        let mut times = Times { sum_us: self.sum_us.load(Relaxed), ..Times::default() };
        for (told, count) in times.counts.iter_mut().zip(&self.counts) {
            *told = count.load(Relaxed);
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trouble_has_its_own_word() {
        let troubles = Troubles::default();
        for (at, (trouble, _)) in Trouble::ALL.into_iter().enumerate() {
            assert_eq!(trouble as usize, at, "the table is in the order of the enum");
            (0..=at).for_each(|_| troubles.count(trouble));
        }
        let told = troubles.told();
        assert!(told.iter().enumerate().all(|(at, (_, count))| *count == at as u64 + 1), "{told:?}");
    }

    #[test]
    fn a_time_is_in_the_first_class_that_holds_it() {
        let tally = TimesTally::default();
        for took_us in [0, 100, 101, 1_000_000, 1_000_001] {
            tally.add(Duration::from_micros(took_us));
        }
        let times = tally.told();
        assert_eq!(times.counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(times.sum_us, 2_000_202);
    }
}
