//! Servers, threads and counters for all tests of this folder.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use tidegate_clock::{Clock, Stopwatch};
use tidegate_core::{Ask, Calendar, Key, Limit, Micros, Policy, Role, Tag, Unit, Weekday};
use tidegate_counters::{
    Answer, Batch, Counters, Memory, MemorySize, RedisCounters, RedisSettings, RedisStore, Take, Unavailable,
};
use tidegate_testbed::{Cluster, Kind, Options, Server, slot_of};
use tokio::task::LocalSet;

/// For operations that must not fail: a busy machine may be slow.
pub(crate) const PATIENT: Duration = Duration::from_secs(10);

/// An hour, in which nothing leaves a window while a test runs.
pub(crate) const HOUR: Micros = Micros::from_secs(3_600);

/// One server.
pub(crate) fn server(kind: Kind) -> Server {
    Server::start(kind, &Options::new()).unwrap_or_else(|error| panic!("{error}"))
}

/// Three primaries, each with so many replicas.
pub(crate) fn cluster(kind: Kind, replicas_each: usize) -> Cluster {
    Cluster::start(kind, 3, replicas_each, 5_000).unwrap_or_else(|error| panic!("{error}"))
}

/// A store at a URL, whose operations may take so long.
pub(crate) fn store(url: &str, timeout: Duration) -> Arc<RedisStore> {
    let mut settings = RedisSettings::of_url(url).unwrap_or_else(|error| panic!("{error}"));
    settings.timeout = timeout;
    settings.connect_timeout = PATIENT;
    RedisStore::new(settings, own())
}

/// A node's own memory.
pub(crate) fn own() -> Arc<Memory> {
    Arc::new(Memory::new(MemorySize::of_bytes(1 << 20), Micros::ZERO).expect("memory"))
}

/// Runs something with a hand on a store, on a runtime of this thread.
pub(crate) fn with<T>(store: &Arc<RedisStore>, act: impl AsyncFnOnce(&RedisCounters) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (local, counters) = (LocalSet::new(), store.counters());
    local.block_on(&runtime, act(&counters))
}

/// The node's time.
pub(crate) fn now() -> Micros {
    Micros::new(Clock::real().wall_now_us())
}

/// One counter of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counter {
    pub(crate) key: Key,
    pub(crate) tag: Tag,
}

impl Counter {
    /// The counter of a number, with a tag of its own.
    pub(crate) fn of(number: u32) -> Self {
        Self { key: Key::of_bits(u128::from(number) << 64 | 0x5eed), tag: Tag::of_bits(number) }
    }

    /// Another counter in the same slot.
    pub(crate) fn beside(self, number: u32) -> Self {
        Self { key: Key::of_bits(self.key.bits() | u128::from(number + 1) << 96), tag: self.tag }
    }

    /// What it is called in the store.
    pub(crate) fn name(self) -> String {
        let digits = |mut bits: u128, count: usize| -> String {
            let all = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            let digit = |_| {
                let digit = all[(bits & 63) as usize];
                bits >>= 6;
                char::from(digit)
            };
            (0..count).map(digit).collect()
        };
        format!("tg{{{}}}{}", digits(self.tag.bits().into(), 6), digits(self.key.bits(), 22))
    }

    /// Its slot.
    pub(crate) fn slot(self) -> u16 {
        slot_of(self.name())
    }

    /// A take of it that decides.
    pub(crate) fn take(self, limit: &Limit, ask: Ask) -> Take<'_> {
        self.take_as(limit, ask, Role::Enforce)
    }

    pub(crate) fn take_as(self, limit: &Limit, ask: Ask, role: Role) -> Take<'_> {
        Take { key: self.key, tag: self.tag, name: None, limit, ask, role, policy: Policy::STRICT }
    }

    /// A charge of so many units.
    pub(crate) fn charge(self, limit: &Limit, cost: u64) -> Take<'_> {
        self.take(limit, Ask::Charge { cost })
    }
}

/// A counter on each of the first three servers of a cluster, in the order of the servers, from this number on.
pub(crate) fn one_on_each(cluster: &Cluster, from: u32) -> [Counter; 3] {
    [0, 1, 2].map(|place| {
        let there = |number: &u32| cluster.place_of(Counter::of(*number).slot()) == Ok(place);
        Counter::of((from..).find(there).expect("there are enough"))
    })
}

/// What a request came to.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) admitted: bool,
    pub(crate) answers: Vec<Answer>,
}

/// Asks about one request.
pub(crate) async fn ask(counters: &RedisCounters, takes: &[Take<'_>]) -> Result<Told, Unavailable> {
    ask_at(counters, takes, now()).await
}

/// The same by another clock of the node.
pub(crate) async fn ask_at(
    counters: &RedisCounters,
    takes: &[Take<'_>],
    now: Micros,
) -> Result<Told, Unavailable> {
    let mut batch = Batch::new();
    batch.push(takes.iter().copied());
    counters.take(&mut batch, now).await;
    match batch.failure(0) {
        Some(why) => Err(why.clone()),
        None => Ok(Told { admitted: batch.admitted(0), answers: batch.answers(0).to_vec() }),
    }
}

/// Units in use of a counter.
pub(crate) async fn used(counters: &RedisCounters, counter: Counter, limit: &Limit) -> u64 {
    let seen = counters.inspect(counter.key, counter.tag, limit, now()).await;
    seen.unwrap_or_else(|why| panic!("{why}")).used
}

/// How often something went wrong, by its word.
pub(crate) fn troubles(store: &RedisStore, word: &str) -> u64 {
    let errors = store.stats().errors;
    errors.iter().find(|(known, _)| *known == word).expect("a word that is known").1
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below this one.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }

    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

/// Tells threads to stop when it is dropped, also if that is because the test has failed: it would wait for them for ever.
pub(crate) struct Stops<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Row 28, after every test: every key has a time to live.
pub(crate) fn nothing_lives_for_ever(immortal: Vec<Vec<u8>>) {
    let names: Vec<String> = immortal.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
    assert!(names.is_empty(), "keys without a time to live: {names:?}");
}

/// A limit of every algorithm, with its name. Those of a calendar have days.
pub(crate) fn every_algorithm(amount: u64, window: Micros) -> Vec<(&'static str, Limit)> {
    let days = Calendar::new(Unit::Day, "UTC", Weekday::Monday).expect("a calendar");
    [
        ("fixed_window", Limit::fixed_window(amount, window)),
        ("sliding_window_counter", Limit::sliding_window_counter(amount, window)),
        ("sub_window", Limit::sub_window(amount, window, None, false)),
        ("sub_window, strict", Limit::sub_window(amount, window, None, true)),
        ("sliding_window", Limit::sliding_window(amount, window)),
        ("sliding_window, strict", Limit::sliding_window_strict(amount, window)),
        ("sliding_log", Limit::sliding_log(amount, window)),
        ("token_bucket", Limit::token_bucket(amount, window, None)),
        ("gcra", Limit::gcra(amount, window, None)),
        ("leaky_bucket", Limit::leaky_bucket(amount, window, None)),
        ("concurrency", Limit::concurrency(amount, window)),
        ("calendar", Limit::calendar(amount, days)),
    ]
    .map(|(name, limit)| (name, limit.unwrap_or_else(|error| panic!("{name}: {error}"))))
    .to_vec()
}

/// Waits until a counter holds so many units: what is given back arrives a little later than the answer.
pub(crate) async fn comes_to(
    counters: &RedisCounters,
    counter: Counter,
    limit: &Limit,
    units: u64,
    what: &str,
) {
    let watch = Stopwatch::start();
    loop {
        let seen = used(counters, counter, limit).await;
        if seen == units {
            return;
        }
        assert!(watch.elapsed() < PATIENT, "{what}: {seen} are used, and not {units}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
