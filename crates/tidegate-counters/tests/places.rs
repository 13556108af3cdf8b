//! Places that nobody gives back are counted when they have expired: each once, by whoever clears it away.

#[allow(dead_code, reason = "the tests of Redis use the rest of it")]
#[path = "redis/support.rs"]
mod support;

use std::sync::Arc;

use support::{Counter, Dice, PATIENT, own, server};
use tidegate_core::{Ask, Key, Limit, Micros, Tag};
use tidegate_counters::{Batch, Counters, Memory, MemorySize, RedisSettings, RedisStore, StoreClock};
use tidegate_testbed::Kind;
use tokio::task::LocalSet;

const START: Micros = Micros::from_secs(1_800_000_000);
const TTL: Micros = Micros::from_secs(10);
const ASKS: u64 = 3_000;
const COUNTERS: u64 = 5;
/// The last counter, which nobody asks about at the end.
const LEFT: u64 = COUNTERS;

/// A limit beside that of a counter's places, which lets nobody in.
const BESIDE: u64 = 1 << 8;

/// The counter of a number. Keys are hashes, and tables rely on that.
fn of(number: u64) -> Counter {
    let mut dice = Dice::new(number);
    let mut half = || u128::from(dice.below(u64::MAX));
    Counter { key: Key::of_bits(half() << 64 | half()), tag: Tag::of_bits(7) }
}

/// What became of places, by the answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Story {
    taken: u64,
    released: u64,
}

impl Story {
    async fn ask(&mut self, counters: &impl Counters, counter: u64, ask: Ask, is_refused: bool, now: Micros) {
        let limit = Limit::concurrency(6, TTL).expect("a limit");
        let never = Limit::fixed_window(0, TTL).expect("a limit");
        let takes = [of(counter).take(&limit, ask), of(counter | BESIDE).charge(&never, 1)];
        let mut batch = Batch::new();
        batch.push(takes.into_iter().take(1 + usize::from(is_refused)));
        counters.take(&mut batch, now).await;
        assert!(batch.failure(0).is_none(), "{:?}", batch.failure(0));
        let applied = batch.answers(0)[0].verdict.applied;
        self.taken += u64::try_from(applied).unwrap_or(0);
        self.released += u64::try_from(-applied).unwrap_or(0);
    }

    /// Random asks, by nodes in turn; then, long after, somebody takes a place of each counter but the last, and gives it back.
    async fn play(&mut self, nodes: &[impl Counters], seed: u64) -> Micros {
        let (mut dice, mut now) = (Dice::new(seed), START);
        for turn in 0..ASKS {
            now = now.plus(Micros::from_millis(dice.below(600)));
            let node = &nodes[turn as usize % nodes.len()];
            let (counter, id) = (dice.below(COUNTERS), 1 + dice.below(8));
            let ask = match dice.below(8) {
                0 => Ask::Peek,
                1 => Ask::Charge { cost: 1 + dice.below(3) },
                2 | 3 => Ask::Release { id },
                4 => Ask::Renew { id },
                _ => Ask::Acquire { id, cost: 1 + dice.below(3) },
            };
            let is_refused = matches!(ask, Ask::Acquire { .. }) && dice.below(4) == 0;
            self.ask(node, counter, ask, is_refused, now).await;
        }
        self.ask(&nodes[0], LEFT, Ask::Acquire { id: 1, cost: 2 }, false, now).await;
        now = now.plus(TTL).plus(Micros::new(1));
        for counter in 0..COUNTERS {
            self.ask(&nodes[0], counter, Ask::Acquire { id: 99, cost: 1 }, false, now).await;
            self.ask(&nodes[0], counter, Ask::Release { id: 99 }, false, now).await;
        }
        now
    }
}

#[tokio::test]
async fn every_place_that_expires_is_counted_once_in_memory() {
    for seed in 0..4 {
        let memory = Memory::new(MemorySize::of_bytes(1 << 20), START).expect("memory");
        let mut story = Story::default();
        let now = story.play(std::slice::from_ref(&memory), seed).await;
        let expired = memory.stats().places_expired;
        assert!(expired > 200 && story.released > 100, "{story:?} {expired}");
        assert_eq!(story.taken - story.released, expired + 2, "all but what nobody has asked about again");
        // The sweeper finds those.
        (0..64 * 64).for_each(|_| memory.sweep(now.plus(TTL)));
        assert_eq!((memory.stats().places_expired, memory.stats().keys), (expired + 2, 0));
    }
}

#[test]
fn what_is_reset_has_not_expired() {
    let memory = Memory::new(MemorySize::of_bytes(1 << 20), START).expect("memory");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut story = Story::default();
        story.ask(&memory, 1, Ask::Acquire { id: 1, cost: 2 }, false, START).await;
        memory.reset(of(1).key, of(1).tag).await.expect("memory answers");
        story.ask(&memory, 1, Ask::Acquire { id: 2, cost: 1 }, false, START.plus(TTL)).await;
        assert_eq!((story.taken, memory.stats().places_expired), (3, 0));
    });
}

fn counts_once(kind: Kind) {
    let server = server(kind);
    let mut settings = RedisSettings::of_url(&server.url()).expect("a URL");
    (settings.timeout, settings.connect_timeout, settings.clock) = (PATIENT, PATIENT, StoreClock::Caller);
    let stores: Vec<Arc<RedisStore>> = (0..2).map(|_| RedisStore::new(settings.clone(), own())).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut story = Story::default();
    LocalSet::new().block_on(&runtime, async {
        let nodes: Vec<_> = stores.iter().map(|store| store.counters()).collect();
        story.play(&nodes, 0).await;
    });
    let expired: Vec<u64> = stores.iter().map(|store| store.stats().places_expired).collect();
    assert!(expired.iter().all(|expired| *expired > 200), "{story:?} {expired:?}");
    // Those of the last counter are gone with it, once the store has forgotten it.
    assert_eq!(story.taken - story.released, expired.iter().sum::<u64>() + 2, "{story:?} {expired:?}");
}

#[test]
fn every_place_that_expires_is_counted_once_by_a_fleet_on_redis() {
    counts_once(Kind::Redis);
}

#[test]
fn every_place_that_expires_is_counted_once_by_a_fleet_on_valkey() {
    counts_once(Kind::Valkey);
}
