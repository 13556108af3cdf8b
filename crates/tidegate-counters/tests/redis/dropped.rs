//! Whoever asked has gone: its connection was closed, its deadline is over. What it asked may have been charged, and what it would have
//! been given back is given back.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tidegate_clock::Stopwatch;
use tidegate_core::Limit;
use tidegate_counters::{RedisCounters, RedisStore};
use tidegate_testbed::Kind;
use tokio::task::JoinSet;

use crate::support::{
    Counter, Dice, HOUR, PATIENT, Told, ask, cluster, comes_to, nothing_lives_for_ever, one_on_each, server,
    store, used, with,
};

const AT_ONCE: u64 = 40;
const ROUNDS: u64 = 25;

/// Waits for an answer for a while that depends on luck: not at all, until it was asked, some turns of the loop, some time, to the end.
async fn impatient<T>(answer: impl Future<Output = T>, luck: u64) -> Option<T> {
    let mut answer = pin!(answer);
    match luck % 5 {
        0 if luck.is_multiple_of(3) => None,
        0 => once(answer.as_mut()).await,
        1 => {
            for _ in 0..luck % 7 {
                if let Some(told) = once(answer.as_mut()).await {
                    return Some(told);
                }
                tokio::task::yield_now().await;
            }
            None
        }
        2 | 3 => tokio::time::timeout(Duration::from_micros(luck % 4_000), answer).await.ok(),
        _ => Some(answer.await),
    }
}

/// Polls it, and does not wait.
async fn once<T>(mut answer: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|context| match answer.as_mut().poll(context) {
        Poll::Ready(told) => Poll::Ready(Some(told)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Asks for one unit of each counter, many times at once, and goes away at random moments: how many were told that they are admitted, and
/// how many were gone.
async fn ask_and_go(counters: &Rc<RedisCounters>, asked: &[Counter], limit: &Limit, seed: u64) -> (u64, u64) {
    let (admitted, gone) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let mut dice = Dice::new(seed);
    for _ in 0..ROUNDS {
        let mut tasks = JoinSet::new();
        for _ in 0..AT_ONCE {
            let luck = dice.below(1 << 40);
            let (counters, asked, limit) = (counters.clone(), asked.to_vec(), limit.clone());
            let (admitted, gone) = (admitted.clone(), gone.clone());
            tasks.spawn_local(async move {
                let takes: Vec<_> = asked.iter().map(|counter| counter.charge(&limit, 1)).collect();
                match impatient(ask(&counters, &takes), luck).await {
                    None => gone.set(gone.get() + 1),
                    Some(Ok(Told { admitted: true, .. })) => admitted.set(admitted.get() + 1),
                    Some(Ok(_)) => {}
                    Some(Err(why)) => panic!("{why}"),
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("no panic");
        }
    }
    (admitted.get(), gone.get())
}

/// Until nothing that was asked is under way any more.
async fn settles(store: &RedisStore) {
    let (mut quiet, watch) = (0, Stopwatch::start());
    while quiet < 20 {
        assert!(watch.elapsed() < 3 * PATIENT, "{} are under way", store.stats().in_flight);
        quiet = if store.stats().in_flight == 0 { quiet + 1 } else { 0 };
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn bounds(store: &Arc<RedisStore>, asked: &[Counter]) {
    let limit = Limit::sliding_window(10_000_000, HOUR).expect("a limit");
    with(store, async |_| {
        let counters = Rc::new(store.counters());
        let (admitted, gone) = ask_and_go(&counters, asked, &limit, asked.len() as u64).await;
        settles(store).await;
        let mut seen = Vec::new();
        for counter in asked {
            seen.push(used(&counters, *counter, &limit).await);
        }
        println!("{admitted} admitted, {gone} gone, charged {seen:?}");
        assert!(gone > 100 && admitted > 100, "{admitted} admitted, {gone} gone");
        for charged in seen.iter().copied() {
            assert!(
                admitted <= charged && charged <= admitted + gone,
                "{admitted} ≤ {charged} ≤ {admitted} + {gone}"
            );
            assert_eq!(charged, seen[0], "all or nothing, for those that are gone, too");
        }
    });
}

#[test]
fn whoever_goes_away_is_charged_once_at_most() {
    let server = server(Kind::Redis);
    let one = Counter::of(1);
    bounds(&store(&server.url(), PATIENT), &[one]);
    let three = [Counter::of(2), Counter::of(2).beside(1), Counter::of(3)];
    bounds(&store(&server.url(), PATIENT), &three);
    nothing_lives_for_ever(server.immortal_keys(&[]));
}

/// On three servers, too: all three are charged or none. And if one refuses, the others are given back though nobody waits for it.
#[test]
fn whoever_goes_away_is_given_back_what_three_servers_charged_for_nothing() {
    let cluster = cluster(Kind::Redis, 0);
    bounds(&store(&cluster.url(), PATIENT), &one_on_each(&cluster, 0));
    let three = one_on_each(&cluster, 1_000);
    let limit = Limit::sliding_window(50, HOUR).expect("a limit");
    let store = store(&cluster.url(), PATIENT);
    with(&store, async |_| {
        let counters = Rc::new(store.counters());
        assert!(ask(&counters, &[three[1].charge(&limit, 50)]).await.expect("it answers").admitted);
        let (admitted, gone) = ask_and_go(&counters, &three, &limit, 3).await;
        assert_eq!(admitted, 0);
        assert!(gone > 100);
        settles(&store).await;
        for (counter, units) in three.into_iter().zip([0, 50, 0]) {
            comes_to(&counters, counter, &limit, units, "what was refused is given back").await;
        }
    });
    nothing_lives_for_ever(cluster.immortal_keys(&[]));
}
