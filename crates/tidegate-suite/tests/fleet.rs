//! Stores that a fleet shares pass the suite unchanged, on time that the suite sets: one server and a cluster, Redis and Valkey. Nothing
//! that it leaves in them lives for ever.
//!
//! A script may decide right and keep something wrong, which shows much later or never. So where it is easy, every value is compared, byte
//! for byte, with the state that the law itself comes to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, ready};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::{Ask, Charge, Key, Limit, Micros, State, Tag, Verdict, admits};
use tidegate_counters::{
    Batch, Counters, Inspection, Memory, MemorySize, RedisCounters, RedisSettings, RedisStore, StoreClock,
    Take, Unavailable,
};
use tidegate_suite::{check_random, check_scripts, check_threads, play_edges, play_scripts_of_the_law};
use tidegate_testbed::{Cluster, Kind, Options, Reply, Server};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;
use tokio::time::Instant;

/// How many random scripts each store plays. Memory plays ten times as many; every step here is a call to another process.
const SCRIPTS: u32 = 150;
/// How many go to the edges. Here every step is one call, and two questions about what it left.
const EDGES: u32 = 600;

macro_rules! stores {
    ($($name:ident: $place:expr;)*) => {
        $(mod $name {
            use super::*;

            static PLACE: LazyLock<Place> = LazyLock::new(|| $place);

            #[test]
            fn agrees_with_the_model_on_every_script() {
                PLACE.check(true, |store| check_scripts(store, "scripts"));
            }

            #[test]
            fn agrees_with_the_model_on_random_scripts() {
                PLACE.check(true, |store| check_random(store, "random", SCRIPTS));
            }

            #[test]
            fn judges_each_request_in_one_piece() {
                PLACE.check(false, |store| check_threads(store, "threads"));
            }
        })*
    };
}

stores! {
    redis: Place::one(Server::start(Kind::Redis, &Options::new()).unwrap_or_else(|error| panic!("{error}")));
    valkey: Place::one(Server::start(Kind::Valkey, &Options::new()).unwrap_or_else(|error| panic!("{error}")));
    redis_cluster: Place::Cluster(Cluster::start(Kind::Redis, 3, 0, 5_000).unwrap_or_else(|error| panic!("{error}")));
    valkey_cluster: Place::Cluster(Cluster::start(Kind::Valkey, 3, 0, 5_000).unwrap_or_else(|error| panic!("{error}")));
}

/// The edges at which a script may be off by one: played only where every value is compared with the law's.
macro_rules! at_edges {
    ($($name:ident: $kind:expr;)*) => {
        $(#[test]
        fn $name() {
            static PLACE: LazyLock<Place> =
                LazyLock::new(|| Place::one(Server::start($kind, &Options::new()).unwrap_or_else(|error| panic!("{error}"))));
            PLACE.check(true, |store| play_scripts_of_the_law(store, "law"));
            PLACE.check(true, |store| play_edges(store, "edges", EDGES));
        })*
    };
}

at_edges! {
    redis_keeps_what_the_law_keeps_at_edges: Kind::Redis;
    valkey_keeps_what_the_law_keeps_at_edges: Kind::Valkey;
}

/// Where a store is.
enum Place {
    One(Box<Server>),
    Cluster(Cluster),
}

impl Place {
    fn one(server: Server) -> Self {
        Self::One(Box::new(server))
    }

    /// Checks the store and, if `alone` nobody else counts in it meanwhile and it is one server, what it keeps.
    fn check(&'static self, alone: bool, check: impl FnOnce(&Blocking) -> Result<(), String>) {
        let url = match self {
            Self::One(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
        };
        let mut settings = RedisSettings::of_url(&url).unwrap_or_else(|error| panic!("{error}"));
        settings.clock = StoreClock::Caller;
        settings.timeout = Duration::from_secs(30);
        settings.connect_timeout = Duration::from_secs(10);
        let kept = match self {
            Self::One(server) if alone => Some(Kept::new(server)),
            _ => None,
        };
        let own = Memory::new(MemorySize::of_bytes(1 << 20), Micros::ZERO).expect("memory");
        let store = Blocking(RedisStore::new(settings, Arc::new(own)), kept);
        check(&store).unwrap_or_else(|error| panic!("{error}"));
        let immortal = match self {
            Self::One(server) => server.immortal_keys(&[]),
            Self::Cluster(cluster) => cluster.immortal_keys(&[]),
        };
        assert!(immortal.is_empty(), "keys without a time to live: {immortal:?}");
        assert_eq!(store.0.stats().disagreements, 0);
    }
}

/// A store for callers without a runtime: each thread has one here, and its own hand on the store.
struct Blocking(Arc<RedisStore>, Option<Kept>);

/// What every counter has to be by the law.
struct Kept {
    server: &'static Server,
    states: Mutex<HashMap<Key, State>>,
    lives: Mutex<HashMap<Key, Life>>,
}

/// Until when a counter is kept: as its value says, in seconds of the time that the suite sets, and in fact, at the latest.
#[derive(Clone, Copy)]
struct Life {
    second: u32,
    ends: Instant,
}

/// What a test leaves when it fails is shown again with less of it: nothing that matters then is left half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    fn new(server: &'static Server) -> Self {
        Self { server, states: Mutex::default(), lives: Mutex::default() }
    }

    /// Takes the steps of a batch that was asked at `asked`, and compares what was said and what the store keeps then.
    fn compare(&self, batch: &Batch<'_>, now: Micros, asked: Instant) {
        let mut states = locked(&self.states);
        for request in 0..batch.len() {
            let takes = batch.takes(request);
            let verdicts = judge(&mut states, takes, now);
            for ((take, answer), verdict) in takes.iter().zip(batch.answers(request)).zip(verdicts) {
                assert_eq!(
                    answer.verdict, verdict,
                    "{} at {now} says something else than the law",
                    take.limit
                );
            }
        }
        for take in (0..batch.len()).flat_map(|request| batch.takes(request)) {
            let state = states.get_mut(&take.key).expect("every counter was asked");
            let found = match self.server.command(&["GET", &name(take)]) {
                Reply::Bytes(value) => {
                    let (second, found) = value.split_first_chunk().expect("until when it is kept");
                    self.compare_life(take, u32::from_le_bytes(*second), state, now, asked);
                    found.to_vec()
                }
                Reply::Nil => take.limit.state().to_portable(),
                other => panic!("{other:?}"),
            };
            assert_eq!(
                found,
                state.to_portable(),
                "{} at {now} keeps something else than the law",
                take.limit
            );
        }
    }

    /// It is kept for as long as it matters, and not much longer; and for as long as its value says.
    fn compare_life(&self, take: &Take<'_>, second: u32, state: &mut State, now: Micros, asked: Instant) {
        const SECOND: u64 = 1_000_000;
        let about = || format!("{} at {now}, kept until second {second}", take.limit);
        let matters = now.plus(take.limit.keep_for(state, now)).minus(SLACK).get();
        let is_kept = (u64::from(second) + 1) * SECOND > matters.min(u64::from(u32::MAX) * SECOND);
        assert!(is_kept || matters <= now.get(), "{}: it matters until {matters}us", about());
        let looked = Instant::now();
        let left =
            self.server.command(&["PTTL", &name(take)]).integer().and_then(|ms| u64::try_from(ms).ok());
        let left = Duration::from_millis(left.unwrap_or_else(|| panic!("{}: no time to live", about())));
        let mut lives = locked(&self.lives);
        // More than that no value says.
        let known = lives.get(&take.key).copied().filter(|life| life.second == second && second < u32::MAX);
        if let Some(life) = known {
            let late = (looked + left).saturating_duration_since(life.ends);
            assert!(late < Duration::from_millis(5), "{}: {late:?} longer", about());
            return;
        }
        // From here on it lives longer, so that a busy machine forgets nothing in the midst of a script.
        let longer = (left + LONGER).as_millis().to_string();
        assert_eq!(self.server.command(&["PEXPIRE", &name(take), &longer]), Reply::Integer(1), "{}", about());
        lives.insert(take.key, Life { second, ends: Instant::now() + left + LONGER });
        let Some(told) = u64::from(second).checked_sub(now.get() / SECOND).filter(|_| second < u32::MAX)
        else {
            return;
        };
        let (told, second) = (Duration::from_secs(told), Duration::from_secs(1));
        assert!(left <= told + second && left + asked.elapsed() + second >= told, "{}: {left:?}", about());
        if let Some(most) = take.limit.kept_max() {
            // A quarter more, and what a clock may be behind.
            let us = most.get() / 4 * 5 + 5 * most.get().max(4 * SLACK.get()) / 4;
            assert!(told <= Duration::from_micros(us) + 2 * second, "{}: {told:?}", about());
        }
    }
}

/// By how much longer a counter lives than it was made to.
const LONGER: Duration = Duration::from_secs(3_600);

/// What the law adds to the time for which a state matters.
const SLACK: Micros = Micros::from_secs(5);

/// Judges a request by the law, and carries it out.
fn judge(states: &mut HashMap<Key, State>, takes: &[Take<'_>], now: Micros) -> Vec<Verdict> {
    let mut tried = HashMap::new();
    for take in takes {
        let state = states.entry(take.key).or_insert_with(|| take.limit.state());
        tried.insert(take.key, state.clone());
    }
    let mut verdicts: Vec<Verdict> = takes.iter().map(|take| step(&mut tried, take, now)).collect();
    if admits(takes.iter().zip(&verdicts).map(|(take, verdict)| (take.role, verdict.admitted()))) {
        states.extend(tried);
        return verdicts;
    }
    for (take, verdict) in takes.iter().zip(&mut verdicts) {
        let gives_back = matches!(take.ask, Ask::Refund { .. } | Ask::Settle { .. } | Ask::Release { .. });
        if gives_back || take.limit.charge() == Charge::Always {
            *verdict = step(states, take, now);
            continue;
        }
        let state = states.get_mut(&take.key).expect("it is there");
        let shown = take.limit.show(state, take.ask, now);
        if verdict.admitted() {
            *verdict = shown;
        }
    }
    verdicts
}

fn step(states: &mut HashMap<Key, State>, take: &Take<'_>, now: Micros) -> Verdict {
    take.limit.step(states.get_mut(&take.key).expect("it is there"), take.ask, now)
}

/// What a counter is called in the store.
fn name(take: &Take<'_>) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits = |bits: u128, count: u32| -> String {
        (0..count).map(|at| char::from(DIGITS[(bits >> (6 * at) & 63) as usize])).collect()
    };
    format!("tg{{{}}}{}", digits(take.tag.bits().into(), 6), digits(take.key.bits(), 22))
}

struct Hand {
    store: Arc<RedisStore>,
    runtime: Runtime,
    local: LocalSet,
    counters: RedisCounters,
}

thread_local! {
    /// Never dropped: a runtime cannot be, once its thread ends.
    static HANDS: RefCell<Vec<&'static Hand>> = const { RefCell::new(Vec::new()) };
}

impl Blocking {
    fn with<T>(&self, act: impl AsyncFnOnce(&RedisCounters) -> T) -> T {
        let hand = HANDS.with_borrow_mut(|hands| {
            if let Some(hand) = hands.iter().find(|hand| Arc::ptr_eq(&hand.store, &self.0)) {
                return *hand;
            }
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let (local, counters) = (LocalSet::new(), self.0.counters());
            hands.push(Box::leak(Box::new(Hand { store: self.0.clone(), runtime, local, counters })));
            hands[hands.len() - 1]
        });
        hand.local.block_on(&hand.runtime, act(&hand.counters))
    }
}

impl Counters for Blocking {
    fn take(&self, batch: &mut Batch<'_>, now: Micros) -> impl Future<Output = ()> {
        let asked = Instant::now();
        self.with(async |hand| hand.take(batch, now).await);
        for request in 0..batch.len() {
            assert_eq!(batch.failure(request), None);
        }
        if let Some(kept) = &self.1 {
            kept.compare(batch, now, asked);
        }
        ready(())
    }

    fn rehearse(&self, batch: &mut Batch<'_>, now: Micros) -> impl Future<Output = ()> {
        self.with(async |hand| hand.rehearse(batch, now).await);
        ready(())
    }

    fn inspect(
        &self,
        key: Key,
        tag: Tag,
        limit: &Limit,
        now: Micros,
    ) -> impl Future<Output = Result<Inspection, Unavailable>> {
        ready(self.with(async |hand| hand.inspect(key, tag, limit, now).await))
    }

    fn reset(&self, key: Key, tag: Tag) -> impl Future<Output = Result<bool, Unavailable>> {
        if let Some(kept) = &self.1 {
            locked(&kept.states).remove(&key);
            locked(&kept.lives).remove(&key);
        }
        ready(self.with(async |hand| hand.reset(key, tag).await))
    }
}
