//! Counters that a fleet shares, in Redis or Valkey: each request is one step of a script there, all or nothing.
//!
//! Reading order: `scripts/` (the law, once more), `encode` (what it is asked), `lane` (how that goes out), `replay` (what its
//! answer means), `flight` (requests whose counters are on several servers), `alone` (what is answered when it does not), `wires/`
//! (connections, slots, redirects, circuits).

mod alone; // what is answered when the store does not
mod denials; // who was refused a moment ago
mod encode; // requests, packed for the script
mod flight; // requests whose counters are on several servers
mod keys; // what counters are called
mod lane; // one thread's way to the store
mod replay; // what an answer means
mod news; // what nodes tell each other
mod script; // the scripts
mod settings; // where the store is
mod stats; // what operators are told
mod survey; // how the servers are set up
mod wires; // connections, and which server answers for what

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::Value;
use smallvec::SmallVec;
use tidegate_core::{Ask, Key, Limit, Micros, Numbers, Policy, Role, Secret, Tag};
use tokio::time::Instant;

use crate::{Answer, Batch, Counters, Inspection, Memory, Rehearsed, Take, Unavailable};

use alone::Alone;
use denials::{Denials, Moment};
use flight::Asked;
use lane::{KEPT_BYTES, Lane, garbled};
use replay::Told;
use wires::{Call, Servers};

pub use news::NewsEars;
pub use settings::{
    Address, CircuitSettings, Login, Password, RedisSettings, StoreClock, StoreTls, Topology, UrlError,
};
pub use stats::{CircuitState, CircuitStats, DenialStats, RedisStats, STORE_TIMES_US, ServerStats, Times};

/// A store in Redis or Valkey: what the threads of a node share about it.
pub struct RedisStore {
    servers: Arc<Servers>,
    denials: Denials,
    alone: Alone,
    in_flight: AtomicU64,
    disagreements: AtomicU64,
    places_expired: AtomicU64,
    /// Is it known under which secret the fleet names its counters?
    has_names: AtomicBool,
    /// The store of limits per second, if they have one of their own.
    per_second: Option<Arc<Self>>,
    /// What is wrong with how each server is set up, as it said last.
    warnings: Mutex<BTreeMap<Address, Vec<String>>>,
}

/// One thread's hand on a store in Redis: its own connections. Needs a tokio runtime with a `LocalSet` on its thread.
pub struct RedisCounters {
    lane: Rc<Lane>,
}

impl RedisStore {
    /// A store; nothing is asked of it yet. What the node may spend while it cannot be asked is counted in `own`.
    pub fn new(settings: RedisSettings, own: Arc<Memory>) -> Arc<Self> {
        Self::with_per_second(settings, None, own)
    }

    /// The same, with a store of their own for limits per second.
    pub fn with_per_second(
        settings: RedisSettings,
        per_second: Option<RedisSettings>,
        own: Arc<Memory>,
    ) -> Arc<Self> {
        Arc::new(Self {
            per_second: per_second.map(|settings| Self::new(settings, own.clone())),
            servers: Servers::new(settings),
            denials: Denials::default(),
            alone: Alone::new(own),
            in_flight: AtomicU64::new(0),
            disagreements: AtomicU64::new(0),
            places_expired: AtomicU64::new(0),
            has_names: AtomicBool::new(true),
            warnings: Mutex::default(),
        })
    }

    /// Says whether the node knows the secret of the fleet. As long as it does not, the store is not asked about counters, though it may
    /// answer: under another secret they are others, and all are untouched.
    pub fn knows_secret(&self, is_known: bool) {
        self.has_names.store(is_known, Ordering::Release);
    }

    /// Can counters be asked for by the names that the fleet has for them?
    fn named(&self) -> Result<(), Unavailable> {
        if self.has_names.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(Unavailable {
            why: "the secret of the fleet, by which counters are named, is not known yet".into(),
        })
    }

    /// A hand on it for the thread that calls.
    pub fn counters(self: &Arc<Self>) -> RedisCounters {
        RedisCounters { lane: Lane::new(self.clone()) }
    }

    /// Are fixed windows kept under the names of the reference server?
    pub fn has_reference_names(&self) -> bool {
        self.servers.settings().reference_prefix.is_some()
    }

    /// Where it is, in words, without passwords.
    pub fn place(&self) -> String {
        let all =
            |addresses: &[Address]| addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(", ");
        match &self.servers.settings().topology {
            Topology::Standalone(address) => address.to_string(),
            Topology::Sentinel { name, sentinels } => {
                format!("`{name}`, which the sentinels {} know", all(sentinels))
            }
            Topology::Cluster(seeds) => format!("the cluster of {}", all(seeds)),
        }
    }

    /// What happened so far in the store of limits per second, if they have one of their own.
    pub fn per_second_stats(&self) -> Option<RedisStats> {
        self.per_second.as_ref().map(|store| store.stats())
    }

    /// What happened so far.
    pub fn stats(&self) -> RedisStats {
        RedisStats {
            remembered_denials: self.denials.hits(),
            denials: self.denials.stats(),
            disagreements: self.disagreements.load(Ordering::Relaxed),
            places_expired: self.places_expired.load(Ordering::Relaxed),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            nodes: self.alone.nodes(),
            warnings: self
                .warnings
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .values()
                .flatten()
                .cloned()
                .collect(),
            ..self.servers.stats()
        }
    }

    fn places_expired(&self, units: u64) {
        if units > 0 {
            self.places_expired.fetch_add(units, Ordering::Relaxed);
        }
    }

    fn count_in_flight(&self, waiting: i64) {
        self.in_flight.fetch_add(waiting as u64, Ordering::Relaxed); // Wraps where it is less than none, which is what it should.
    }

    /// The law and the store's script have to decide alike. If they do not, nobody can say what was charged: it is no answer.
    fn agrees(&self, by_law: bool, by_script: bool) -> Result<(), Unavailable> {
        if by_law == by_script {
            return Ok(());
        }
        self.disagreements.fetch_add(1, Ordering::Relaxed);
        tracing::error!(
            by_law,
            by_script,
            "a script of the store decided otherwise than the law: this is a bug"
        );
        Err(Unavailable { why: "a script of the store decided otherwise than the law".into() })
    }

    fn is_cluster(&self) -> bool {
        matches!(self.servers.settings().topology, Topology::Cluster(_))
    }

    /// The slot of a take: where there is one server, it has all.
    fn slot(&self, take: &Take<'_>, now: Micros) -> u16 {
        match self.reference_start(take, now) {
            _ if !self.is_cluster() => 0,
            Some(_) => keys::slot_of(&self.name(take, now)),
            None => self.own_slot(take.tag, take.key),
        }
    }

    /// The slot of a counter under our own names: where there is one server, it has all.
    fn own_slot(&self, tag: Tag, key: Key) -> u16 {
        let prefix = &self.servers.settings().prefix;
        match self.is_cluster() {
            false => 0,
            // Brackets of the prefix come before those of the tag, and count in their place.
            true if prefix.contains('{') => keys::slot_of(&keys::name(prefix, tag, key)),
            true => keys::slot(tag),
        }
    }

    /// The start of a take's window, if it is kept as the reference server does.
    fn reference_start(&self, take: &Take<'_>, now: Micros) -> Option<Micros> {
        self.servers.settings().reference_prefix.as_ref()?;
        let (Some(_), Numbers::Fixed { window_us }) = (take.name, take.limit.numbers()) else { return None };
        // It has no shorter ones.
        window_us.is_multiple_of(1_000_000).then(|| Micros::new(now.get() / window_us * window_us))
    }

    /// What a take's counter is called.
    fn name(&self, take: &Take<'_>, now: Micros) -> Vec<u8> {
        let settings = self.servers.settings();
        match (self.reference_start(take, now), &settings.reference_prefix, take.name) {
            (Some(start), Some(prefix), Some(name)) => {
                format!("{prefix}{name}{}", start.get() / 1_000_000).into_bytes()
            }
            _ => keys::name(&settings.prefix, take.tag, take.key),
        }
    }
}

/// Requests that the store was asked about. Whoever asks waits until it has answered, and has that judged.
pub struct Asking {
    asked: SmallVec<[Asked; 1]>,
    /// When, by the node's clock and among the moments at which denials are forgotten.
    now: Micros,
    since: Moment,
    /// Until when the answers are wanted.
    until: Instant,
}

impl Asking {
    /// Waits until the store has answered, or will not in time.
    pub async fn wait(&mut self) {
        for asked in &mut self.asked {
            asked.wait(self.until).await;
        }
    }
}

impl RedisCounters {
    /// Asks the store about each request of a batch. The first of three steps of [`Counters::take`], so that whoever makes thousands of
    /// calls keeps little in those that wait ([`Asking::wait`]); the last is [`RedisCounters::judge`].
    pub fn ask(&self, batch: &Batch<'_>, now: Micros) -> Asking {
        let (lane, replicated) = (&self.lane, batch.is_replicated());
        let since = lane.store.denials.moment();
        let until = lane.deadline_of(batch.patience());
        // All are asked before any answer is waited for, so that they go out together.
        let ask = |request| flight::ask(lane, batch.takes(request), replicated, now, until);
        Asking { asked: (0..batch.len()).map(ask).collect(), now, since, until }
    }

    /// Writes what the store has said into the batch that it was asked about.
    pub fn judge(&self, batch: &mut Batch<'_>, asking: Asking) {
        let Asking { asked, now, since, .. } = asking;
        let mut asked = asked.into_iter();
        flight::write(batch, |_, takes, answers| match asked.next() {
            Some(asked) => asked.judge(&self.lane, takes, now, since, answers),
            None => Err(lane::gone()), // It was asked about another batch.
        });
    }

    /// The secret of the fleet: the one that is in the store, or, if there is none, the one that is offered, from now on.
    pub async fn agree_on_secret(&self, offered: Secret) -> Result<Secret, Unavailable> {
        let lane = &self.lane;
        let name = format!("{}:secret", lane.store.servers.settings().prefix);
        let slot = if lane.store.is_cluster() { keys::slot_of(name.as_bytes()) } else { 0 };
        let until = Instant::now() + SECRET_MAX;
        // Not `SET … NX GET`: that is an error before Redis 7.
        let mut offer = redis::cmd("SET");
        offer.arg(&name).arg(&offered.bytes()).arg("NX");
        lane.wires.command(slot, &offer, "secret", until).await?;
        let mut read = redis::cmd("GET");
        read.arg(&name);
        match lane.wires.command(slot, &read, "secret", until).await? {
            Value::BulkString(bytes) => {
                let bytes: [u8; 16] = bytes.try_into().map_err(|_| Unavailable {
                    why: format!("`{name}` in the store is not 16 bytes: it is no secret of ours"),
                })?;
                Ok(Secret::new(bytes))
            }
            _ => Err(garbled()),
        }
    }

    /// Says to the store that this node is there, under an id of its own, and learns how many are.
    pub async fn join(&self, id: u64) -> Result<u32, Unavailable> {
        let lane = &self.lane;
        let name = format!("{}:nodes", lane.store.servers.settings().prefix);
        let slot = if lane.store.is_cluster() { keys::slot_of(name.as_bytes()) } else { 0 };
        let mut argument = id.to_le_bytes().to_vec();
        argument.extend_from_slice(&(NODE_LIVES.as_secs() as u32).to_le_bytes());
        argument.extend_from_slice(&NODES_MAX.to_le_bytes());
        let call = Call { script: script::nodes(), op: "nodes", keys: vec![name.into_bytes()], argument };
        match lane.wires.call(slot, &call, Instant::now() + SECRET_MAX).await? {
            Value::Int(nodes) => {
                let nodes = u32::try_from(nodes).map_err(|_| garbled())?;
                lane.store.alone.saw_nodes(nodes);
                Ok(nodes)
            }
            _ => Err(garbled()),
        }
    }

    /// Asks the servers how they are set up, and keeps in mind what is wrong with that. Gives what was not known before.
    pub async fn survey(&self) -> Vec<String> {
        let found = self.lane.wires.survey(Instant::now() + SECRET_MAX).await;
        let mut known = self.lane.store.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fresh = Vec::new();
        for (address, warnings) in found.answered {
            let before = known.insert(address, warnings.clone()).unwrap_or_default();
            fresh.extend(warnings.into_iter().filter(|warning| !before.contains(warning)));
        }
        known.retain(|address, _| found.primaries.contains(address));
        fresh
    }

    /// The same as [`Counters::rehearse`]. Tells besides what each take found and would leave, in the order of requests and takes.
    pub async fn rehearse_seen(
        &self,
        batch: &mut Batch<'_>,
        now: Micros,
    ) -> Result<Vec<Rehearsed>, Unavailable> {
        let mut seen = Vec::new();
        let mut all = Vec::with_capacity(batch.len());
        for request in 0..batch.len() {
            let takes = batch.takes(request);
            let mut answers = vec![Answer::BLANK; takes.len()];
            let (values, store_now) = self.read(takes, now).await?;
            let mut told = Vec::with_capacity(takes.len());
            for (take, value) in takes.iter().zip(&values) {
                told.push(match self.lane.store.reference_start(take, now) {
                    Some(start) => replay::reference(value, start, take.limit, now).ok_or_else(garbled)?,
                    None => Told::State(value.get(KEPT_BYTES..).unwrap_or_default()),
                });
            }
            let admitted = replay::rehearse(takes, &told, store_now, &mut answers, &mut seen)?;
            all.push((admitted, answers));
        }
        flight::write(batch, |request, _, places| {
            let (admitted, answers) = &all[request];
            places.copy_from_slice(answers);
            Ok((*admitted, None))
        });
        Ok(seen)
    }

    /// The values of the counters of some takes, and the time.
    async fn read(&self, takes: &[Take<'_>], now: Micros) -> Result<(Vec<Vec<u8>>, Micros), Unavailable> {
        let (lane, mut states) = (&self.lane, vec![Vec::new(); takes.len()]);
        lane.store.named()?;
        let (until, mut time) = (lane.deadline(), now);
        let place = |take: &Take<'_>| (Rc::as_ptr(lane.of(take)), lane.of(take).store.slot(take, now));
        let mut firsts: Vec<usize> = (0..takes.len()).collect();
        firsts.sort_unstable_by_key(|at| place(&takes[*at]));
        firsts.dedup_by_key(|at| place(&takes[*at])); // None for a request that asks nothing.
        for first in firsts {
            let (lane, slot) = (lane.of(&takes[first]), place(&takes[first]).1);
            let here: Vec<usize> =
                (0..takes.len()).filter(|at| place(&takes[*at]) == place(&takes[first])).collect();
            let names = here.iter().map(|at| lane.store.name(&takes[*at], now)).collect();
            let argument = lane.told_time(now).to_le_bytes()[..7].to_vec();
            let call = Call { script: script::look(), op: "look", keys: names, argument };
            let Value::Array(values) = lane.wires.call(slot, &call, until).await? else {
                return Err(garbled());
            };
            let mut values = values.into_iter();
            let Some(Value::Int(store_now)) = values.next() else { return Err(garbled()) };
            time = Micros::new(u64::try_from(store_now).map_err(|_| garbled())?);
            for (at, value) in here.into_iter().zip(values) {
                let Value::BulkString(bytes) = value else { return Err(garbled()) };
                states[at] = bytes;
            }
        }
        Ok((states, time))
    }
}

/// How long a node counts as one after it was heard of, and how many there may be.
const NODE_LIVES: Duration = Duration::from_secs(30);
const NODES_MAX: u32 = 1_024;
/// How long it may take to agree on a secret, or to say that a node is there: no decision waits for it.
const SECRET_MAX: Duration = Duration::from_secs(1);

impl Counters for RedisCounters {
    async fn take(&self, batch: &mut Batch<'_>, now: Micros) {
        let mut asking = self.ask(batch, now);
        asking.wait().await;
        self.judge(batch, asking);
    }

    async fn rehearse(&self, batch: &mut Batch<'_>, now: Micros) {
        if let Err(why) = self.rehearse_seen(batch, now).await {
            (0..batch.len()).for_each(|request| batch.fail(request, why.clone()));
        }
    }

    async fn inspect(
        &self,
        key: Key,
        tag: Tag,
        limit: &Limit,
        now: Micros,
    ) -> Result<Inspection, Unavailable> {
        let (ask, role, policy) = (Ask::Peek, Role::Shadow, Policy::default());
        let take = Take { key, tag, name: None, limit, ask, role, policy };
        let (values, now) = self.read(&[take], now).await?;
        replay::inspect(limit, values[0].get(KEPT_BYTES..).unwrap_or_default(), now)
    }

    async fn reset(&self, key: Key, tag: Tag) -> Result<bool, Unavailable> {
        let store = &self.lane.store;
        store.alone.reset(key);
        store.named()?;
        let mut delete = redis::cmd("DEL");
        delete.arg(keys::name(&store.servers.settings().prefix, tag, key));
        let slot = store.own_slot(tag, key);
        let deleted = self.lane.wires.command(slot, &delete, "reset", self.lane.deadline()).await;
        // Behind it, and also if its reply is lost: somebody may have been refused a moment before.
        store.denials.forget(key);
        match deleted? {
            Value::Int(deleted) => Ok(deleted > 0),
            _ => Err(garbled()),
        }
    }
}
