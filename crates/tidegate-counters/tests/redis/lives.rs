//! Row 28: every key has a time to live, and it is never shorter than what its counter has to remember.

use tidegate_clock::Stopwatch;
use tidegate_core::{Ask, Calendar, Limit, Micros, Unit, Weekday};
use tidegate_counters::{Batch, Counters as _, Take};
use tidegate_testbed::{Kind, Options, Server, ServerClock};

use crate::support::{Counter, Dice, PATIENT, ask_at, nothing_lives_for_ever, now, store, with};

const ASKS: usize = 2_500;
const SHAPES: u64 = 9;
const SEED: u64 = 28;

/// A limit of this shape, whatever its numbers are: they may change from request to request.
fn limit(shape: u64, dice: &mut Dice) -> Limit {
    let amount = *dice.pick(&[1, 3, 20, 50, 1_000]);
    let burst = Some(*dice.pick(&[1, 5, 60, 2_000]));
    let window = Micros::from_secs(30);
    let days = || Calendar::new(Unit::Day, "UTC", Weekday::Monday).expect("a calendar");
    let limit = match shape {
        0 => Limit::fixed_window(amount, window),
        1 => Limit::sliding_window_counter(amount, window),
        2 => Limit::sub_window(amount, window, Some(10), false),
        3 => Limit::sliding_window(amount, window),
        4 => Limit::sliding_log(amount, window),
        5 => Limit::token_bucket(amount, window, burst),
        6 => Limit::gcra(amount, window, burst),
        7 => Limit::concurrency(amount, Micros::from_secs(*dice.pick(&[1, 20, 90]))),
        _ => Limit::calendar(amount, days()),
    };
    limit.expect("a limit")
}

fn question(dice: &mut Dice) -> Ask {
    let cost = 1 + dice.below(8) * dice.below(8);
    match dice.below(10) {
        0 => Ask::Peek,
        1 => Ask::Refund { units: cost, receipt: None },
        2 => Ask::Acquire { id: 1 + dice.below(5), cost },
        3 => Ask::Renew { id: 1 + dice.below(5) },
        4 => Ask::Release { id: 1 + dice.below(5) },
        _ => Ask::Charge { cost },
    }
}

/// Random asks by limits whose numbers change all the time: lowered, raised, held for longer or shorter. Whatever the answer is, the
/// counter is kept until the time to reset that it tells. The time moves on in leaps, so that old states are met at every age.
fn outlives_its_reset(kind: Kind) {
    let clock = ServerClock::new().unwrap_or_else(|error| panic!("{error}"));
    let server = Server::start(kind, &Options::new().clock(&clock)).unwrap_or_else(|error| panic!("{error}"));
    let mut client = server.client().unwrap_or_else(|error| panic!("{error}"));
    // The node's clock goes with the server's: a node forgets denials in time.
    let (mut dice, mut offset_us) = (Dice::new(SEED), 0_i64);
    let mut seen = [0_u32; 3];
    with(&store(&server.url(), PATIENT), async |counters| {
        for turn in 0..ASKS {
            if turn % 25 == 24 {
                let leaps_ms = [1, 40, 900, 5_000, 14_000, 29_000, 31_000, 100_000];
                offset_us += *dice.pick(&leaps_ms) * 1_000;
                clock.shift(offset_us, &[&server]).unwrap_or_else(|error| panic!("{error}"));
            }
            // Mostly one take; of two, one may refuse the other.
            let count = 1 + u64::from(dice.below(5) == 0);
            let shapes: Vec<u64> = (0..count).map(|_| dice.below(SHAPES)).collect();
            let asked: Vec<(Counter, Limit, Ask)> = shapes
                .iter()
                .map(|shape| {
                    let counter = Counter::of((shape * 10 + dice.below(3)) as u32);
                    (counter, limit(*shape, &mut dice), question(&mut dice))
                })
                .collect();
            let takes: Vec<Take<'_>> =
                asked.iter().map(|(counter, limit, ask)| counter.take(limit, *ask)).collect();
            let watch = Stopwatch::start();
            let told = ask_at(counters, &takes, now().plus(Micros::new(offset_us as u64)))
                .await
                .unwrap_or_else(|why| panic!("{takes:?}: {why}"));
            for ((counter, _, _), answer) in asked.iter().zip(&told.answers) {
                let left = client.command(&["PTTL", &counter.name()]).ok().and_then(|reply| reply.integer());
                let left_ms = left.expect("a time to live");
                let passed_ms = watch.elapsed().as_millis() as i64 + 1;
                let reset_ms = (answer.verdict.reset_after.get() / 1_000) as i64;
                let what = format!(
                    "{kind:?}, seed {SEED}, turn {turn}: {takes:?}: {answer:?}: {left_ms} ms are left"
                );
                match left_ms {
                    -2 => {
                        // Nothing to remember, or a take that nobody asked about.
                        assert!(answer.verdict.applied == 0, "{what}");
                        seen[0] += 1;
                        assert!(!told.admitted || reset_ms == 0 || answer.verdict.applied < 0, "{what}");
                    }
                    -1 => panic!("{what}"),
                    _ => {
                        seen[if told.admitted { 1 } else { 2 }] += 1;
                        assert!(left_ms + passed_ms >= reset_ms, "{what}");
                    }
                }
            }
        }
    });
    println!("{kind:?}: nothing stored, admitted, refused: {seen:?}");
    assert!(seen.iter().all(|count| *count > 50), "{seen:?}");
    nothing_lives_for_ever(server.immortal_keys(&[]));
}

/// Two requests of one call by different limits: the first charges a bucket, the second looks at it by a limit under which it empties much
/// later. It is kept until then.
#[test]
fn row_28_a_counter_is_kept_for_the_slowest_of_the_limits_that_one_call_judges_it_by() {
    let server = Server::start(Kind::Redis, &Options::new()).unwrap_or_else(|error| panic!("{error}"));
    let bucket = |amount| Limit::token_bucket(amount, Micros::from_secs(60), Some(100)).expect("a limit");
    let (fast, slow) = (bucket(100), bucket(1));
    with(&store(&server.url(), PATIENT), async |counters| {
        for number in 0..4 {
            let (counter, beside) = (Counter::of(number), Counter::of(number).beside(0));
            let second = if number % 2 == 0 { Ask::Peek } else { Ask::Charge { cost: 90 } };
            let other = (number < 2).then(|| beside.charge(&fast, 1)); // Of several takes, and of one.
            let mut batch = Batch::new();
            batch.push([counter.charge(&fast, 30)].into_iter().chain(other));
            batch.push([counter.take(&slow, second)].into_iter().chain(other));
            counters.take(&mut batch, now()).await;
            assert_eq!((batch.failure(0), batch.failure(1)), (None, None));
            let reset_ms = batch.answers(1)[0].verdict.reset_after.get() / 1_000;
            let left_ms = server.command(&["PTTL", &counter.name()]).integer().expect("a number");
            assert!(reset_ms > 20 * 60 * 1_000, "{reset_ms}");
            // By the fast one it would be seconds. (The machine may sleep between the two.)
            assert!(left_ms + 60_000 > reset_ms as i64, "{second:?}: kept for {left_ms} ms of {reset_ms}");
        }
    });
    nothing_lives_for_ever(server.immortal_keys(&[]));
}

#[test]
fn row_28_a_counter_in_redis_is_kept_until_its_reset_whatever_becomes_of_its_limit() {
    outlives_its_reset(Kind::Redis);
}

#[test]
fn row_28_a_counter_in_valkey_is_kept_until_its_reset_whatever_becomes_of_its_limit() {
    outlives_its_reset(Kind::Valkey);
}
