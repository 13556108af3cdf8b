//! Fixed windows as envoyproxy/ratelimit keeps them: nodes of both kinds count on one number.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Ask, Key, Limit, Micros, Policy, Receipt, Role, Tag, Verdict};
use tidegate_counters::{
    Batch, Counters as _, Memory, MemorySize, RedisCounters, RedisSettings, RedisStore, Take,
};
use tidegate_testbed::{Cluster, Kind, Options, Reply, Server};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

const MINUTE: u64 = 60;
/// 20 s into a minute.
const NOW: Micros = Micros::from_secs(1_800_000_000 + 20);
const START: u64 = 1_800_000_000;

fn run<T>(url: &str, act: impl AsyncFnOnce(&RedisCounters) -> T) -> T {
    let mut settings = RedisSettings::of_url(url).expect("a URL");
    settings.timeout = Duration::from_secs(10);
    settings.connect_timeout = Duration::from_secs(5);
    settings.reference_prefix = Some("p_".into());
    let store =
        RedisStore::new(settings, Arc::new(Memory::new(MemorySize::of_bytes(1 << 20), NOW).expect("memory")));
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = LocalSet::new();
    local.block_on(&runtime, async { act(&store.counters()).await })
}

fn limit(amount: u64) -> Limit {
    Limit::fixed_window(amount, Micros::from_secs(MINUTE)).expect("a limit")
}

fn take<'a>(name: &'a str, limit: &'a Limit, ask: Ask) -> Take<'a> {
    let key = Key::of_bits(name.bytes().fold(1, |bits, byte| bits * 256 + u128::from(byte)));
    Take {
        key,
        tag: Tag::default(),
        name: Some(name),
        limit,
        ask,
        role: Role::Enforce,
        policy: Policy::STRICT,
    }
}

async fn asked(counters: &RedisCounters, takes: &[Take<'_>], now: Micros) -> (bool, Vec<Verdict>) {
    let mut batch = Batch::new();
    batch.push(takes.iter().copied());
    counters.take(&mut batch, now).await;
    assert_eq!(batch.failure(0), None);
    (batch.admitted(0), batch.answers(0).iter().map(|answer| answer.verdict).collect())
}

const CHARGE: Ask = Ask::Charge { cost: 1 };

#[test]
fn both_count_on_one_number() {
    let server = Server::start(Kind::Redis, &Options::new()).unwrap_or_else(|error| panic!("{error}"));
    let (limit, name) = (limit(5), format!("p_d_k_v_{START}"));
    let number = || match server.command(&["GET", &name]) {
        Reply::Bytes(bytes) => String::from_utf8(bytes).expect("digits").parse::<i64>().expect("a number"),
        Reply::Nil => 0,
        other => panic!("{other:?}"),
    };
    run(&server.url(), async |counters| {
        let charge = take("d_k_v_", &limit, CHARGE);
        assert_eq!(asked(counters, &[charge], NOW).await.1[0].remaining, 4);
        assert_eq!(number(), 1);
        // A node of theirs, with its two commands.
        server.command(&["INCRBY", &name, "2"]);
        server.command(&["EXPIRE", &name, "60"]);
        let (admitted, verdicts) = asked(counters, &[charge], NOW).await;
        assert!(admitted);
        assert_eq!(
            (verdicts[0].remaining, verdicts[0].reset),
            (1, Micros::from_secs(40)),
            "by the node's clock"
        );
        assert_eq!(verdicts[0].bound.over, 5, "nobody knows what the window before holds");
        // What is given back of this window comes back, what is of the one before does not.
        let receipt = Receipt { at: NOW, units: 1 };
        let refund = |receipt| Ask::Refund { units: 1, receipt: Some(receipt) };
        asked(counters, &[take("d_k_v_", &limit, refund(receipt))], NOW).await;
        assert_eq!(number(), 3);
        let before = Receipt { at: Micros::from_secs(START - 1), units: 1 };
        asked(counters, &[take("d_k_v_", &limit, refund(before))], NOW).await;
        assert_eq!(number(), 3);
        // They count what they refuse; we do not, and never above the limit.
        server.command(&["INCRBY", &name, "100"]);
        let (admitted, verdicts) = asked(counters, &[charge], NOW).await;
        assert_eq!((admitted, verdicts[0].remaining, number()), (false, 0, 103));
        assert_eq!(verdicts[0].retry_after, Some(Micros::from_secs(40)));
        // The next window is another number.
        let later = NOW.plus(Micros::from_secs(MINUTE));
        assert_eq!(asked(counters, &[charge], later).await.1[0].remaining, 4);
        let kept = match server.command(&["TTL", &format!("p_d_k_v_{}", START + MINUTE)]) {
            Reply::Integer(secs) => secs,
            other => panic!("{other:?}"),
        };
        assert!((55..=360).contains(&kept), "kept for {kept} s");
        // Somebody else's value is left alone.
        server.command(&["SET", &format!("p_d_k_x_{START}"), "text", "EX", "60"]);
        let mut batch = Batch::new();
        batch.push([take("d_k_x_", &limit, CHARGE)]);
        counters.take(&mut batch, NOW).await;
        assert!(batch.failure(0).is_some());
        assert_eq!(server.command(&["GET", &format!("p_d_k_x_{START}")]), Reply::Bytes(b"text".to_vec()));
    });
    assert_eq!(server.immortal_keys(&[]), Vec::<Vec<u8>>::new());
}

/// Lua reads more as a number than both kinds of nodes write. Such values are somebody else's, and left as they are.
#[test]
fn what_only_lua_takes_for_a_number_is_left_as_it_is() {
    let server = Server::start(Kind::Redis, &Options::new()).unwrap_or_else(|error| panic!("{error}"));
    let (limit, name) = (limit(5), format!("p_d_k_v_{START}"));
    run(&server.url(), async |counters| {
        for value in ["0x1", "1e0", "-3", "nan", "inf", " 1", "1 ", "1.0", "1.5", "1000000000000000"] {
            server.command(&["SET", &name, value, "EX", "60"]);
            let mut batch = Batch::new();
            batch.push([take("d_k_v_", &limit, CHARGE)]);
            counters.take(&mut batch, NOW).await;
            assert!(batch.failure(0).is_some(), "{value:?}");
            assert_eq!(server.command(&["GET", &name]), Reply::Bytes(value.into()), "it was charged");
        }
        server.command(&["SET", &name, "999999999999999", "EX", "60"]);
        assert!(!asked(counters, &[take("d_k_v_", &limit, CHARGE)], NOW).await.0, "far above the limit");
    });
}

#[test]
fn other_algorithms_and_short_windows_are_kept_as_ever() {
    let server = Server::start(Kind::Redis, &Options::new()).unwrap_or_else(|error| panic!("{error}"));
    run(&server.url(), async |counters| {
        let short = Limit::fixed_window(5, Micros::from_millis(1_500)).expect("a limit");
        let bucket = Limit::gcra(5, Micros::from_secs(MINUTE), None).expect("a limit");
        asked(counters, &[take("d_s_", &short, CHARGE), take("d_b_", &bucket, CHARGE)], NOW).await;
    });
    assert!(server.keys().iter().all(|name| name.starts_with(b"tg{")), "{:?}", server.keys());
}

#[test]
fn across_slots_what_was_charged_for_nothing_is_given_back() {
    let cluster = Cluster::start(Kind::Redis, 3, 0, 5_000).unwrap_or_else(|error| panic!("{error}"));
    let (large, small) = (limit(100), limit(1));
    run(&cluster.url(), async |counters| {
        let takes =
            [take("d_a_1_", &large, CHARGE), take("d_b_2_", &small, CHARGE), take("d_c_3_", &large, CHARGE)];
        assert!(asked(counters, &takes, NOW).await.0);
        let (admitted, verdicts) = asked(counters, &takes, NOW).await;
        assert!(!admitted);
        assert_eq!(verdicts.iter().map(|verdict| verdict.remaining).collect::<Vec<_>>(), [99, 0, 99]);
        // What is given back is on its way still.
        for name in ["p_d_a_1_", "p_d_b_2_", "p_d_c_3_"] {
            let name = format!("{name}{START}");
            let is_one = || cluster.command_on(&name, &["GET", &name]) == Reply::Bytes(b"1".to_vec());
            let comes_back = async {
                while !is_one() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), comes_back).await.expect("it is given back");
        }
    });
}
