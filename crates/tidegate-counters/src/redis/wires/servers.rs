//! What the threads of a node share about the servers of a store: which one answers for a slot, how often each may be tried, what
//! happened.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::watch;
use tokio::time::Instant;

use super::circuit::Circuit;
use crate::redis::settings::{Address, CircuitSettings, RedisSettings, Topology};
use crate::redis::stats::{RedisStats, ServerStats, TimesTally, Troubles};

/// Slots of a cluster.
pub(super) const SLOTS: u16 = 16_384;
/// How many servers are remembered. More than any cluster has: its makers advise against more than 1 000.
const SERVERS_MAX: usize = 1_024;
/// How often one server is connected to by one node, for long: 4 times a second. Each thread may have one at once besides.
const CONNECT_EVERY: Duration = Duration::from_millis(250);
const CONNECT_AT_ONCE: usize = 4;
/// How long a server is left alone after the first failure; doubled with each, up to the last. Drawn a quarter shorter to a quarter
/// longer, so that a fleet does not come back as one; never so long that a circuit which tries in between would close a second late.
const BACK_OFF: Duration = Duration::from_millis(200);
const BACK_OFF_MAX: Duration = Duration::from_millis(400);
/// How often the map is read at most, more often while a primary is ill: a replica may have taken over. And while it is used at least.
const REFRESH_EVERY: Duration = Duration::from_secs(1);
const REFRESH_EVERY_ILL: Duration = Duration::from_millis(400);
const REFRESH_AFTER: Duration = Duration::from_secs(15);

/// What the threads of a node share about the servers of a store.
pub(in crate::redis) struct Servers {
    pub(super) settings: RedisSettings,
    /// Errors by kind.
    pub(super) troubles: Troubles,
    redirects: AtomicU64,
    refreshes: AtomicU64,
    /// Wires that there are, one for each thread.
    pub(super) threads: AtomicUsize,
    map: ArcSwap<Map>,
    known: Mutex<Known>,
    /// Times are told in ms from here.
    born: Instant,
    /// Somebody reads the map, or waits until he may.
    refreshing: AtomicBool,
    /// Somebody reads it now.
    asking: AtomicBool,
    /// When the map was read last, and one more; when it has to be again.
    refreshed_ms: AtomicU64,
    refresh_due_ms: AtomicU64,
    /// Why the map could not be read the last time.
    map_problem: Mutex<Option<String>>,
    /// How often reading the map has ended, well or not.
    rounds: watch::Sender<u64>,
    /// The same number, for those who look at every call.
    round: AtomicU64,
}

#[derive(Default)]
struct Known {
    servers: BTreeMap<Address, Arc<Server>>,
    next_id: u64,
}

/// Which primary answers for which slot.
#[derive(Default)]
pub(super) struct Map {
    primaries: Vec<Arc<Server>>,
    /// The number of the primary of each slot; none: the first one answers for all.
    slots: Option<Box<[u16]>>,
}

/// No primary is known for this slot.
const NOBODY: u16 = u16::MAX;

impl Map {
    /// One primary for all slots.
    pub(super) fn one(primary: Arc<Server>) -> Self {
        Self { primaries: vec![primary], slots: None }
    }

    /// Slots from, to and including, and who answers for them.
    pub(super) fn of_ranges(ranges: impl IntoIterator<Item = (u16, u16, Arc<Server>)>) -> Self {
        let mut map = Self { primaries: Vec::new(), slots: Some(vec![NOBODY; SLOTS.into()].into()) };
        for (from, to, primary) in ranges {
            map.set(from, to, primary);
        }
        map
    }

    fn set(&mut self, from: u16, to: u16, primary: Arc<Server>) {
        let at = self.primaries.iter().position(|known| known.id == primary.id).unwrap_or_else(|| {
            self.primaries.push(primary);
            self.primaries.len() - 1
        });
        let slots = self.slots.get_or_insert_with(|| vec![NOBODY; SLOTS.into()].into());
        if let (Ok(at), Some(slots)) = (u16::try_from(at), slots.get_mut(usize::from(from)..=usize::from(to)))
        {
            slots.fill(at);
        }
    }

    pub(super) fn primary(&self, slot: u16) -> Option<&Arc<Server>> {
        match &self.slots {
            None => self.primaries.first(),
            Some(slots) => slots.get(usize::from(slot)).and_then(|at| self.primaries.get(usize::from(*at))),
        }
    }

    pub(super) fn primaries(&self) -> &[Arc<Server>] {
        &self.primaries
    }

    pub(super) fn names(&self, id: u64) -> bool {
        self.primaries.iter().any(|primary| primary.id == id)
    }
}

impl Servers {
    /// Nothing is asked of them yet.
    pub(in crate::redis) fn new(settings: RedisSettings) -> Arc<Self> {
        let servers = Self {
            settings,
            troubles: Troubles::default(),
            redirects: AtomicU64::new(0),
            refreshes: AtomicU64::new(0),
            threads: AtomicUsize::new(0),
            map: ArcSwap::default(),
            known: Mutex::default(),
            born: Instant::now(),
            refreshing: AtomicBool::new(false),
            asking: AtomicBool::new(false),
            refreshed_ms: AtomicU64::new(0),
            refresh_due_ms: AtomicU64::new(0),
            map_problem: Mutex::default(),
            rounds: watch::Sender::new(0),
            round: AtomicU64::new(0),
        };
        if let Topology::Standalone(address) = &servers.settings.topology
            && let Some(server) = servers.server(address)
        {
            servers.map.store(Arc::new(Map::one(server)));
        }
        Arc::new(servers)
    }

    /// Where they are, and how to talk to them.
    pub(in crate::redis) fn settings(&self) -> &RedisSettings {
        &self.settings
    }

    /// What happened so far: servers, errors, redirects and refreshes. The rest is not known here.
    pub(in crate::redis) fn stats(&self) -> RedisStats {
        let known = locked(&self.known);
        RedisStats {
            servers: known.servers.values().map(|server| server.stats()).collect(),
            errors: self.troubles.told(),
            redirects: self.redirects.load(Relaxed),
            refreshes: self.refreshes.load(Relaxed),
            ..RedisStats::default()
        }
    }

    pub(super) fn map(&self) -> arc_swap::Guard<Arc<Map>> {
        self.map.load()
    }

    /// The server at an address; none if there are too many.
    pub(super) fn server(&self, address: &Address) -> Option<Arc<Server>> {
        let mut known = locked(&self.known);
        if let Some(server) = known.servers.get(address) {
            return Some(server.clone());
        }
        if known.servers.len() >= SERVERS_MAX {
            return None;
        }
        known.next_id += 1;
        let server = Arc::new(Server::new(known.next_id, address.clone(), self.settings.circuit));
        known.servers.insert(address.clone(), server.clone());
        Some(server)
    }

    /// A server said that another one answers for this slot.
    pub(super) fn moved(&self, slot: u16, primary: &Arc<Server>) {
        // Copying the map takes a few µs, and happens once for each slot that moves between two refreshes.
        self.map.rcu(|map| {
            let mut moved = Map { primaries: map.primaries.clone(), slots: map.slots.clone() };
            moved.set(slot, slot, primary.clone());
            moved
        });
    }

    pub(super) fn redirected(&self) {
        self.redirects.fetch_add(1, Relaxed);
    }

    /// Can the map change at all?
    pub(super) fn has_map(&self) -> bool {
        !matches!(self.settings.topology, Topology::Standalone(_))
    }

    /// Should the map be read again, because nobody did for long?
    pub(super) fn is_map_old(&self, now: Instant) -> bool {
        self.has_map() && self.ms(now) >= self.refresh_due_ms.load(Relaxed)
    }

    /// The right to read the map: nobody else has it, on any thread. Waiting for [`Refreshing::from`] is part of it.
    pub(super) fn start_refresh(self: &Arc<Self>) -> Option<Refreshing> {
        let free = self.has_map() && !self.refreshing.swap(true, Relaxed);
        free.then(|| Refreshing { servers: self.clone() })
    }

    /// Is the map being read, or may be before then, so that waiting makes sense?
    pub(super) fn is_refresh_before(&self, until: Instant) -> bool {
        self.has_map() && (self.asking.load(Relaxed) || self.refresh_from() < until)
    }

    /// When the map may be read again.
    fn refresh_from(&self) -> Instant {
        let ill = || self.map().primaries.iter().any(|primary| primary.circuit.is_open());
        match self.refreshed_ms.load(Relaxed).checked_sub(1) {
            None => self.born,
            Some(ms) => {
                self.born + Duration::from_millis(ms) + if ill() { REFRESH_EVERY_ILL } else { REFRESH_EVERY }
            }
        }
    }

    /// Changes whenever reading the map has ended.
    pub(super) fn rounds(&self) -> watch::Receiver<u64> {
        self.rounds.subscribe()
    }

    pub(super) fn round(&self) -> u64 {
        self.round.load(Relaxed)
    }

    /// Why there is no map, in words.
    pub(super) fn map_problem(&self) -> String {
        locked(&self.map_problem).clone().unwrap_or_else(|| "nobody was asked yet".into())
    }

    /// Servers that nobody speaks of and nobody is connected to are forgotten.
    fn forget(&self) {
        let map = self.map.load();
        locked(&self.known)
            .servers
            .retain(|_, server| map.names(server.id) || server.connections.load(Relaxed) > 0);
    }

    fn ms(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.born).as_millis()).unwrap_or(u64::MAX)
    }
}

/// The right to read the map.
pub(super) struct Refreshing {
    servers: Arc<Servers>,
}

impl Refreshing {
    /// When it may begin.
    pub(super) fn from(&self) -> Instant {
        self.servers.refresh_from()
    }

    pub(super) fn begins(&self) {
        let now = Instant::now();
        self.servers.asking.store(true, Relaxed);
        self.servers.refreshes.fetch_add(1, Relaxed);
        self.servers.refreshed_ms.store(self.servers.ms(now) + 1, Relaxed);
        // If this one fails, those who need the map ask again, once a second.
        self.servers.refresh_due_ms.store(self.servers.ms(now + REFRESH_EVERY), Relaxed);
    }

    pub(super) fn ended(&self, read: Result<Map, String>) {
        match read {
            Ok(map) => {
                self.servers.map.store(Arc::new(map));
                self.servers.refresh_due_ms.store(self.servers.ms(Instant::now() + REFRESH_AFTER), Relaxed);
                *locked(&self.servers.map_problem) = None;
                self.servers.forget();
            }
            Err(problem) => {
                let mut known = locked(&self.servers.map_problem);
                if known.is_none() {
                    tracing::warn!(problem, "cannot read which servers of the store are primaries");
                }
                *known = Some(problem);
            }
        }
    }
}

impl Drop for Refreshing {
    // Here and not in `ended`: the thread may be gone before, and then another one has to be able to go on.
    fn drop(&mut self) {
        self.servers.asking.store(false, Relaxed);
        self.servers.refreshing.store(false, Relaxed);
        let round = self.servers.round.fetch_add(1, Relaxed) + 1;
        self.servers.rounds.send_replace(round);
    }
}

/// One server, as all threads see it.
pub(super) struct Server {
    /// Never given twice.
    pub(super) id: u64,
    pub(super) address: Address,
    pub(super) circuit: Circuit,
    /// Keys that it has evicted, and one more; 0 until it is known.
    evicted: AtomicU64,
    connections: AtomicU64,
    opened: AtomicU64,
    calls: Mutex<Vec<(&'static str, Arc<TimesTally>)>>,
    attempts: Mutex<Attempts>,
}

/// How connecting went lately.
#[derive(Default)]
struct Attempts {
    /// If every connect took its share of time, the last one would end here.
    paid_until: Option<Instant>,
    failures: u32,
    not_before: Option<Instant>,
    why: String,
    /// After a failure one thread tries for all.
    is_tried: bool,
}

impl Server {
    pub(super) fn new(id: u64, address: Address, circuit: CircuitSettings) -> Self {
        Self {
            id,
            address,
            circuit: Circuit::new(circuit),
            evicted: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            calls: Mutex::default(),
            attempts: Mutex::default(),
        }
    }

    /// Where calls of this kind are counted.
    pub(super) fn times(&self, op: &'static str) -> Arc<TimesTally> {
        let mut calls = locked(&self.calls);
        if let Some((_, tally)) = calls.iter().find(|(known, _)| *known == op) {
            return tally.clone();
        }
        let tally = Arc::<TimesTally>::default();
        calls.push((op, tally.clone()));
        tally
    }

    fn stats(&self) -> ServerStats {
        ServerStats {
            address: self.address.to_string(),
            connections: self.connections.load(Relaxed),
            opened: self.opened.load(Relaxed),
            calls: locked(&self.calls).iter().map(|(op, tally)| (*op, tally.told())).collect(),
            circuit: self.circuit.stats(),
            evicted_keys: self.evicted.load(Relaxed).checked_sub(1),
        }
    }

    /// It has evicted so many keys since it started.
    pub(super) fn has_evicted(&self, keys: u64) {
        self.evicted.store(keys.saturating_add(1), Relaxed);
    }

    /// The right to connect now, for one of `threads`; or why not.
    pub(super) fn may_connect(self: &Arc<Self>, threads: usize) -> Result<Permit, String> {
        let now = Instant::now();
        let mut attempts = locked(&self.attempts);
        if let Some(not_before) = attempts.not_before
            && now < not_before
        {
            let mut why = attempts.why.clone();
            let _ = write!(why, " (tried again in {} ms)", (not_before - now).as_millis());
            return Err(why);
        }
        if attempts.is_tried {
            return Err(format!("{} (being tried again)", attempts.why));
        }
        let paid_until = attempts.paid_until.map_or(now, |paid_until| paid_until.max(now));
        let at_once = u32::try_from(threads.max(CONNECT_AT_ONCE)).unwrap_or(u32::MAX);
        if paid_until - now > CONNECT_EVERY.saturating_mul(at_once - 1) {
            return Err(format!("{}: connected to too often lately; is it unstable?", self.address));
        }
        attempts.paid_until = Some(paid_until + CONNECT_EVERY);
        attempts.is_tried = attempts.failures > 0;
        Ok(Permit { server: self.clone(), tries_for_all: attempts.is_tried })
    }

    /// A connection is counted for as long as this lives.
    pub(super) fn connected(self: &Arc<Self>) -> Connected {
        self.connections.fetch_add(1, Relaxed);
        self.opened.fetch_add(1, Relaxed);
        Connected(self.clone())
    }
}

/// The right to connect to a server once.
pub(super) struct Permit {
    server: Arc<Server>,
    tries_for_all: bool,
}

impl Permit {
    pub(super) fn succeeded(self) {
        let mut attempts = locked(&self.server.attempts);
        if attempts.failures > 0 {
            tracing::info!(server = %self.server.address, "the store is connected again");
        }
        attempts.failures = 0;
        attempts.not_before = None;
    }

    pub(super) fn failed(self, why: &str) {
        let now = Instant::now();
        let mut attempts = locked(&self.server.attempts);
        if attempts.failures == 0 {
            tracing::warn!(server = %self.server.address, why, "cannot connect to the store");
        }
        why.clone_into(&mut attempts.why);
        // Threads that tried at the same time failed for the same reason.
        if attempts.not_before.is_none_or(|not_before| not_before <= now) {
            attempts.failures = attempts.failures.saturating_add(1);
            let doubled = BACK_OFF.saturating_mul(1 << (attempts.failures - 1).min(8));
            attempts.not_before = Some(now + jittered(doubled.min(BACK_OFF_MAX)));
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.tries_for_all {
            locked(&self.server.attempts).is_tried = false;
        }
    }
}

/// One open connection, for the count of them.
pub(super) struct Connected(Arc<Server>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// From three quarters to five quarters of it.
pub(super) fn jittered(duration: Duration) -> Duration {
    jittered_by(duration, 4)
}

/// Shorter or longer by this part of it at most.
pub(super) fn jittered_by(duration: Duration, part: u32) -> Duration {
    let spread = duration / part;
    let spread_us = u64::try_from(spread.as_micros() * 2).unwrap_or(u64::MAX).max(1);
    // Each `RandomState` has keys of its own, from the machine's random numbers.
    let drawn_us = RandomState::new().hash_one(()) % spread_us;
    duration - spread + Duration::from_micros(drawn_us)
}

/// Nobody panics while holding these locks, and what they guard is whole after every line.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
