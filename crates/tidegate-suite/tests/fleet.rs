//! Stores that a fleet shares pass the suite too, on the suite's own time.

use std::future::{Future, ready};
use std::sync::Arc;

use tidegate_core::{Key, Limit, Micros, Tag};
use tidegate_counters::{
    Address, Batch, Counters, Inspection, RedisCounters, RedisSettings, RedisStore, StoreClock, Topology, Unavailable,
};
use tidegate_suite::{check_random, check_scripts, check_threads};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

/// A store for callers without a runtime: each thread has one here, and its own hand on the store.
struct Blocking(Arc<RedisStore>);

thread_local! {
    static HAND: std::cell::RefCell<Option<(Runtime, LocalSet, RedisCounters)>> = const { std::cell::RefCell::new(None) };
}

impl Blocking {
    fn with<T>(&self, act: impl AsyncFnOnce(&RedisCounters) -> T) -> T {
        HAND.with_borrow_mut(|hand| {
            let (runtime, local, hand) = hand.get_or_insert_with(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                (runtime, LocalSet::new(), self.0.counters())
            });
            local.block_on(runtime, act(hand))
        })
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

    fn inspect(&self, key: Key, tag: Tag, limit: &Limit, now: Micros) -> impl Future<Output = Result<Inspection, Unavailable>> {
        ready(self.with(async |hand| hand.inspect(key, tag, limit, now).await))
    }

    fn reset(&self, key: Key, tag: Tag) -> impl Future<Output = Result<bool, Unavailable>> {
        ready(self.with(async |hand| hand.reset(key, tag).await))
    }
}

fn store() -> Blocking {
    let port: u16 = std::env::var("P").unwrap().parse().unwrap();
    let mut settings = RedisSettings::new(Topology::Standalone(Address::Tcp("127.0.0.1".into(), port)));
    settings.clock = StoreClock::Caller;
    settings.timeout = std::time::Duration::from_secs(10);
    Blocking(RedisStore::new(settings))
}

#[test]
fn agrees_with_the_model_on_every_script() {
    check_scripts(&store(), "s").unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn agrees_with_the_model_on_random_scripts() {
    check_random(&store(), "r", 300).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn judges_each_request_in_one_piece() {
    check_threads(&store(), "t").unwrap_or_else(|error| panic!("{error}"));
}
