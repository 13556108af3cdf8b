//! Who is refused because of units that come back: measured, 3 takes on 3 servers at saturation.
//!
//! Where a request has counters on several servers, each part is charged before anybody knows whether the others pass. Until it is given
//! back, such a reservation may refuse somebody else for whom there was room: a false refusal.
//!
//! **Method.** Several nodes send requests at a steady rate, whatever the answers are. Each takes one unit of one of a few counters on each
//! of three servers, drawn at random. The limits are sliding logs a little below what is asked for, so that each counter refuses some, and
//! most of those that it refuses have charged the other two. Afterwards all answers are put together: of every counter the exact times of
//! the charges of admitted requests are known. A refused request is *false* if at the time of each refusing answer fewer admitted requests
//! than the limit stood in that counter's window, those included that were admitted in the same microsecond. What a node refused from
//! memory counts like any other answer.
//!
//! `cargo test` looks for two seconds and asserts that the share is far from terrible. A machine that sleeps for a moment lets a thousand
//! requests come at once, which refuse each other; so it looks again, three times at most. `TIDEGATE_SATURATION_S=20` looks for longer;
//! `TIDEGATE_SATURATION_RATE` is the number of requests per second, which has to be one that the machine can serve. The goal is less than 1
//! % of all requests.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidegate_clock::Stopwatch;
use tidegate_core::{Limit, Micros};
use tidegate_counters::{Mode, RedisCounters, RedisStore};
use tidegate_testbed::{Cluster, Kind};
use tokio::task::JoinSet;

use crate::support::{Counter, Dice, PATIENT, ask, cluster, nothing_lives_for_ever, one_on_each, store};

const NODES: u64 = 2;
const ATTEMPTS: usize = 3;
const COUNTERS: u32 = 6;
const WINDOW: Micros = Micros::from_secs(1);
/// How much of what is asked for the limits admit, in percent.
const SHARE: u64 = 95;

/// How long an operation has in service. What a request charged is held for as long as that at most; on a machine that is slower than
/// that, requests refuse each other all the time.
const SERVICE_US: u64 = 12_000;

/// One request and its answer: which counter on each server, when it was judged there, and who refused.
struct Heard {
    asked: [u32; 3],
    at_us: [u64; 3],
    refused: [bool; 3],
    admitted: bool,
    from_memory: bool,
    took_us: u64,
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// One node sends so many requests per second for so long.
async fn send(counters: Rc<NodeHand>, limit: Limit, seed: u64, rate: u64, seconds: u64) -> Vec<Heard> {
    let (mut dice, mut tasks, watch) = (Dice::new(seed), JoinSet::new(), Stopwatch::start());
    let mut sent = 0;
    let mut tick = tokio::time::interval(Duration::from_millis(1));
    while sent < rate * seconds {
        tick.tick().await;
        let due = (watch.elapsed().as_micros() as u64 * rate / 1_000_000).min(rate * seconds);
        for _ in sent..due {
            let asked = [0; 3].map(|_| dice.below(COUNTERS.into()) as u32);
            let (counters, limit) = (counters.clone(), limit.clone());
            tasks.spawn_local(async move {
                let takes = [0, 1, 2].map(|place| counters.of(place, asked[place]).charge(&limit, 1));
                let watch = Stopwatch::start();
                let told = ask(&counters.hand, &takes).await.ok()?;
                let answers = &told.answers;
                Some(Heard {
                    asked,
                    at_us: [0, 1, 2].map(|place| answers[place].verdict.at.get()),
                    refused: [0, 1, 2].map(|place| !answers[place].verdict.admitted()),
                    admitted: told.admitted,
                    took_us: watch.elapsed().as_micros() as u64,
                    from_memory: answers.iter().any(|answer| answer.mode == Mode::Unasked),
                })
            });
        }
        sent = due.max(sent);
    }
    let mut all = Vec::new();
    while let Some(heard) = tasks.join_next().await {
        all.extend(heard.expect("no panic")); // Where nobody answered, nobody was refused.
    }
    all
}

struct NodeHand {
    hand: RedisCounters,
    places: [Counter; 3],
}

impl NodeHand {
    fn of(&self, place: usize, number: u32) -> Counter {
        self.places[place].beside(number)
    }
}

/// Of all requests, how many were refused, and how many although there was room.
fn audit(all: &[Heard], limit: u64) -> (usize, usize, usize) {
    let mut charges = vec![Vec::new(); 3 * COUNTERS as usize];
    let at = |place: usize, number: u32| place * COUNTERS as usize + number as usize;
    for heard in all.iter().filter(|heard| heard.admitted) {
        for place in 0..3 {
            charges[at(place, heard.asked[place])].push(heard.at_us[place]);
        }
    }
    charges.iter_mut().for_each(|times: &mut Vec<u64>| times.sort_unstable());
    let is_false = |heard: &&Heard| {
        (0..3).filter(|place| heard.refused[*place]).all(|place| {
            let (times, now_us) = (&charges[at(place, heard.asked[place])], heard.at_us[place]);
            let until = |time_us| times.partition_point(|charged_us| *charged_us <= time_us);
            ((until(now_us) - until(now_us - WINDOW.get())) as u64) < limit
        })
    };
    let refused = || all.iter().filter(|heard| !heard.admitted);
    let from_memory = refused().filter(is_false).filter(|heard| heard.from_memory).count();
    (refused().count(), refused().filter(is_false).count(), from_memory)
}

#[test]
fn few_are_refused_because_of_units_that_come_back() {
    let (seconds, rate) = (number("TIDEGATE_SATURATION_S", 2), number("TIDEGATE_SATURATION_RATE", 1_000));
    let cluster = cluster(Kind::Redis, 0);
    let amount = rate * WINDOW.get() / 1_000_000 / u64::from(COUNTERS) * SHARE / 100;
    let limit = Limit::sliding_log(amount, WINDOW).expect("a limit");
    let places = one_on_each(&cluster, 0);
    // Where it was worse than this, somebody else may have had the machine.
    let mut last = Ok(());
    for _ in 0..ATTEMPTS {
        last = measured(&cluster, &limit, places, amount, rate, seconds);
        match &last {
            Ok(()) => break,
            Err(why) => println!("{why}"),
        }
    }
    last.unwrap_or_else(|why| panic!("{why}"));
    nothing_lives_for_ever(cluster.immortal_keys(&[]));
}

/// Looks once. If too many were refused for nothing, and the machine was not too slow to say so, it tells.
fn measured(
    cluster: &Cluster,
    limit: &Limit,
    places: [Counter; 3],
    amount: u64,
    rate: u64,
    seconds: u64,
) -> Result<(), String> {
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let nodes: Vec<_> = (0..NODES).map(|node| (node, store(&cluster.url(), PATIENT))).collect();
        let run = |(node, store): (u64, Arc<RedisStore>)| {
            let limit = limit.clone();
            move || {
                crate::support::with(&store.clone(), async move |_| {
                    let hand = Rc::new(NodeHand { hand: store.counters(), places });
                    send(hand, limit, node, rate / NODES, seconds).await
                })
            }
        };
        let nodes: Vec<_> = nodes.into_iter().map(|node| scope.spawn(run(node))).collect();
        nodes.into_iter().for_each(|node| all.extend(node.join().expect("no panic")));
    });
    let (refused, wrong, from_memory) = audit(&all, amount);
    let share = wrong as f64 * 100.0 / all.len() as f64;
    let mut took_us: Vec<u64> = all.iter().map(|heard| heard.took_us).collect();
    took_us.sort_unstable();
    let [half_us, slow_us] = [50, 90].map(|percent| took_us[took_us.len() * percent / 100]);
    println!("half of the requests took {half_us} µs or less, all but a tenth {slow_us} µs");
    println!(
        "of {} requests {refused} were refused, {wrong} of them ({share:.2} % of all) although there was room ({from_memory} from memory)",
        all.len()
    );
    assert!(refused > 0, "the limits were never reached");
    if slow_us >= SERVICE_US {
        println!(
            "which says nothing: this machine is too busy, in service most would not have been answered"
        );
    } else if share >= 5.0 {
        return Err(format!("{share:.2} % of all requests were refused for nothing"));
    }
    Ok(())
}
