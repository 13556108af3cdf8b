//! Stores that a fleet shares pass the suite unchanged, on time that the suite sets: one server and a cluster, Redis and Valkey. Nothing
//! that it leaves in them lives for ever.
//!
//! A script may decide right and keep something wrong, which shows much later or never. So where it is easy, every value is compared, byte
//! for byte, with the state that the law itself comes to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::{Future, ready};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use tidegate_core::{Ask, Charge, Key, Limit, Micros, State, Tag, Verdict, admits};
use tidegate_counters::{
    Batch, Counters, Inspection, Memory, MemorySize, RedisCounters, RedisSettings, RedisStore, StoreClock,
    Take, Unavailable,
};
use tidegate_suite::{check_random, check_scripts, check_threads};
use tidegate_testbed::{Cluster, Kind, Options, Reply, Server};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

/// How many random scripts each store plays. Memory plays ten times as many; every step here is a call to another process.
const SCRIPTS: u32 = 150;

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
            Self::One(server) if alone => Some(Kept { server, states: Mutex::default() }),
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
}

impl Kept {
    /// Takes the steps of a batch, and compares what the store keeps then.
    fn compare(&self, batch: &Batch<'_>, now: Micros) {
        let mut states = self.states.lock().expect("no panic before");
        for request in 0..batch.len() {
            let takes = batch.takes(request);
            let mut tried = states.clone();
            let passed = takes.iter().map(|take| (take.role, step(&mut tried, take, now).admitted()));
            if admits(passed.collect::<Vec<_>>()) {
                *states = tried;
                continue;
            }
            for take in takes {
                let gives_back =
                    matches!(take.ask, Ask::Refund { .. } | Ask::Settle { .. } | Ask::Release { .. });
                if gives_back || take.limit.charge() == Charge::Always {
                    step(&mut states, take, now);
                } else {
                    let state = states.entry(take.key).or_insert_with(|| take.limit.state());
                    take.limit.show(state, take.ask, now);
                }
            }
        }
        for take in (0..batch.len()).flat_map(|request| batch.takes(request)) {
            let found = match self.server.command(&["GET", &name(take)]) {
                Reply::Bytes(value) => value[4..].to_vec(),
                Reply::Nil => take.limit.state().to_portable(),
                other => panic!("{other:?}"),
            };
            let state = states.get(&take.key).expect("every counter was asked").to_portable();
            assert_eq!(found, state, "{} at {now} keeps something else than the law", take.limit);
        }
    }
}

fn step(states: &mut HashMap<Key, State>, take: &Take<'_>, now: Micros) -> Verdict {
    take.limit.step(states.entry(take.key).or_insert_with(|| take.limit.state()), take.ask, now)
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
        self.with(async |hand| hand.take(batch, now).await);
        for request in 0..batch.len() {
            assert_eq!(batch.failure(request), None);
        }
        if let Some(kept) = &self.1 {
            kept.compare(batch, now);
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
            kept.states.lock().expect("no panic before").remove(&key);
        }
        ready(self.with(async |hand| hand.reset(key, tag).await))
    }
}
