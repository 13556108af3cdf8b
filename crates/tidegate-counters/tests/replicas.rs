//! Charges that have to be on the replicas too: a primary that dies takes none of them along.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Ask, Key, Limit, Micros, Policy, Role, Tag};
use tidegate_counters::{
    Batch, Counters as _, Memory, MemorySize, RedisCounters, RedisSettings, RedisStore, Take, Unavailable,
};
use tidegate_testbed::{Cluster, Kind, Server, slot_of};
use tokio::runtime::Builder;
use tokio::task::{JoinSet, LocalSet};

const NOW: Micros = Micros::from_secs(1_800_000_000); // The store goes by its own clock.
const KEY: Key = Key::of_bits(7);

/// A tag in a slot of the first primary, whose replica is the first of those.
fn tag() -> Tag {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digit = |bits: u32, at: u32| DIGITS[(u64::from(bits) >> (6 * at) & 63) as usize];
    let in_slot = |bits: &u32| slot_of((0..6).map(|at| digit(*bits, at)).collect::<Vec<u8>>()) < 1_000;
    Tag::of_bits((0..).find(in_slot).expect("one in sixteen is"))
}

/// How often a server was asked to wait for its replicas.
fn waits(server: &Server) -> u64 {
    let told = format!("{:?}", server.command(&["INFO", "commandstats"]));
    let calls = told.split("cmdstat_wait:calls=").nth(1).and_then(|rest| rest.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

fn run<T>(cluster: &Cluster, act: impl AsyncFnOnce(Rc<RedisCounters>) -> T) -> T {
    let mut settings = RedisSettings::of_url(&cluster.url()).expect("a URL");
    settings.timeout = Duration::from_secs(2);
    settings.connect_timeout = Duration::from_secs(5);
    let store =
        RedisStore::new(settings, Arc::new(Memory::new(MemorySize::of_bytes(1 << 20), NOW).expect("memory")));
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = LocalSet::new();
    local.block_on(&runtime, act(Rc::new(store.counters())))
}

async fn charge(counters: &RedisCounters, limit: &Limit) -> Result<bool, Unavailable> {
    let mut batch = Batch::new();
    batch.push([Take {
        key: KEY,
        tag: tag(),
        name: None,
        limit,
        ask: Ask::Charge { cost: 1 },
        role: Role::Enforce,
        policy: Policy::STRICT,
    }]);
    batch.replicate();
    counters.take(&mut batch, NOW).await;
    batch.failure(0).map_or(Ok(batch.admitted(0)), |why| Err(why.clone()))
}

fn check(kind: Kind) {
    // Servers that a busy machine holds up for a moment are not to be taken for dead.
    let cluster = Cluster::start(kind, 3, 1, 2_000).unwrap_or_else(|error| panic!("{error}"));
    let (primary, replica) = (&cluster.servers()[0], &cluster.servers()[3]);
    let limit = Limit::sliding_window(100_000, Micros::from_secs(3_600)).expect("a limit");
    run(&cluster, async |counters| {
        // The replica may still be copying what the primary has.
        let (mut admitted, mut failed) = (0, 0);
        while charge(&counters, &limit).await != Ok(true) {
            failed += 1;
            assert!(failed < 20, "the replica never has a charge");
        }
        admitted += 1;
        for _ in 0..20 {
            assert_eq!(charge(&counters, &limit).await, Ok(true));
            admitted += 1;
        }
        // Those that come while one waits go together.
        let (before, mut many) = (waits(primary), JoinSet::new());
        for _ in 0..200 {
            let (counters, limit) = (counters.clone(), limit.clone());
            many.spawn_local(async move { charge(&counters, &limit).await });
        }
        while let Some(one) = many.join_next().await {
            assert_eq!(one.expect("no panic"), Ok(true));
            admitted += 1;
        }
        let waits = waits(primary) - before;
        assert!(waits < 50, "200 charges were waited for {waits} times");
        // The replica hangs: a charge that is not there does not count, and says so.
        replica.stop();
        let (mut why, mut tries) = (String::new(), 0);
        while !why.contains("0 of 1 replicas") {
            assert!(tries < 5, "{why}"); // The primary's word may be late on a busy machine.
            why = charge(&counters, &limit).await.expect_err("the replica hangs").why;
            tries += 1;
        }
        failed += tries;
        replica.cont();
        // The primary dies: whatever was told to be admitted is on the replica.
        for _ in 0..50 {
            match charge(&counters, &limit).await {
                Ok(was_admitted) => admitted += u64::from(was_admitted),
                Err(_) => failed += 1,
            }
        }
        primary.kill();
        cluster.wait_promoted(3).unwrap_or_else(|error| panic!("{error}"));
        let known = async {
            loop {
                if let Ok(seen) = counters.inspect(KEY, tag(), &limit, NOW).await {
                    break seen.used;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let used = tokio::time::timeout(Duration::from_secs(30), known).await.expect("it is asked again");
        let possible = admitted..=admitted + failed;
        assert!(possible.contains(&used), "{admitted} were admitted, {used} are known");
    });
    assert_eq!(cluster.immortal_keys(&[]), Vec::<Vec<u8>>::new());
}

#[test]
fn a_redis_primary_that_dies_takes_no_replicated_charge_along() {
    check(Kind::Redis);
}

#[test]
fn a_valkey_primary_that_dies_takes_no_replicated_charge_along() {
    check(Kind::Valkey);
}
