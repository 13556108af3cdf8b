//! Stores that a fleet shares pass the suite unchanged, on time that the suite sets: one server and a cluster, Redis and Valkey. Nothing
//! that it leaves in them lives for ever.

use std::cell::RefCell;
use std::future::{Future, ready};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tidegate_core::{Key, Limit, Micros, Tag};
use tidegate_counters::{
    Batch, Counters, Inspection, RedisCounters, RedisSettings, RedisStore, StoreClock, Unavailable,
};
use tidegate_suite::{check_random, check_scripts, check_threads};
use tidegate_testbed::{Cluster, Kind, Options, Server};
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
                PLACE.check(|store| check_scripts(store, "scripts"));
            }

            #[test]
            fn agrees_with_the_model_on_random_scripts() {
                PLACE.check(|store| check_random(store, "random", SCRIPTS));
            }

            #[test]
            fn judges_each_request_in_one_piece() {
                PLACE.check(|store| check_threads(store, "threads"));
            }
        })*
    };
}

stores! {
    redis: Place::One(Server::start(Kind::Redis, &Options::new()).unwrap_or_else(|error| panic!("{error}")));
    valkey: Place::One(Server::start(Kind::Valkey, &Options::new()).unwrap_or_else(|error| panic!("{error}")));
    redis_cluster: Place::Cluster(Cluster::start(Kind::Redis, 3, 0, 5_000).unwrap_or_else(|error| panic!("{error}")));
    valkey_cluster: Place::Cluster(Cluster::start(Kind::Valkey, 3, 0, 5_000).unwrap_or_else(|error| panic!("{error}")));
}

/// Where a store is.
enum Place {
    One(Server),
    Cluster(Cluster),
}

impl Place {
    fn check(&self, check: impl FnOnce(&Blocking) -> Result<(), String>) {
        let url = match self {
            Self::One(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
        };
        let mut settings = RedisSettings::of_url(&url).unwrap_or_else(|error| panic!("{error}"));
        settings.clock = StoreClock::Caller;
        settings.timeout = Duration::from_secs(30);
        settings.connect_timeout = Duration::from_secs(10);
        let store = Blocking(RedisStore::new(settings));
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
struct Blocking(Arc<RedisStore>);

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
        ready(self.with(async |hand| hand.reset(key, tag).await))
    }
}
