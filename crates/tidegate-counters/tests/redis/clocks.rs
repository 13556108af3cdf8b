//! Row 21: the store's clock jumps.

use tidegate_core::{Ask, Limit, Micros};
use tidegate_counters::{Counters as _, RedisCounters};
use tidegate_testbed::{Kind, Options, Proxy, Reply, Server, ServerClock};

use crate::readonly::follow;
use crate::support::{
    Counter, PATIENT, Told, ask, ask_at, every_algorithm, nothing_lives_for_ever, now, store, with,
};

const LIMIT: u64 = 20;
const WINDOW: Micros = Micros::from_secs(600);
const DAY_US: i64 = 86_400_000_000;

/// Of a counter, as many units as there are asked for, one by one: how many were admitted, and the last answer.
async fn drain(counters: &RedisCounters, counter: Counter, limit: &Limit, what: &str) -> (u64, Told) {
    let (mut admitted, mut last) = (0, None);
    for _ in 0..3 * LIMIT {
        let told = ask(counters, &[counter.charge(limit, 1)]).await;
        let told = told.unwrap_or_else(|why| panic!("{what}: {why}"));
        let verdict = &told.answers[0].verdict;
        assert!(verdict.remaining <= limit.capacity(), "{what}: {verdict:?}");
        if let Some(window) = limit.window() {
            let wait = verdict.retry_after.unwrap_or_default();
            assert!(wait <= window.plus(window), "{what}: {verdict:?}");
        }
        admitted += u64::from(told.admitted);
        let is_over = !told.admitted;
        last = Some(told);
        if is_over {
            break;
        }
    }
    (admitted, last.expect("it was asked"))
}

/// A full counter of every algorithm meets a clock that is off: no answer is impossible, none fails. Back, nothing is admitted above the
/// limit; forth, one limit more at most, once. Whoever was refused is admitted at the time that was told.
fn clock_jumps(kind: Kind) {
    let clock = ServerClock::new().unwrap_or_else(|error| panic!("{error}"));
    let server = Server::start(kind, &Options::new().clock(&clock)).unwrap_or_else(|error| panic!("{error}"));
    let shift = |offset_us| clock.shift(offset_us, &[&server]).unwrap_or_else(|error| panic!("{error}"));
    // A quarter of a window after noon: no window ends while a test goes on, nor does the day.
    let noon_us = DAY_US / 2 + WINDOW.get() as i64 / 4 - (now().get() % DAY_US as u64) as i64;
    let limits = every_algorithm(LIMIT, WINDOW);
    for (turn, jump_s) in [-5, 5, -3_600, 3_600].into_iter().enumerate() {
        let counter = |at: usize| Counter::of((turn * 100 + at) as u32);
        shift(noon_us);
        // A store of its own each time, which remembers no denial.
        with(&store(&server.url(), PATIENT), async |counters| {
            for (at, (name, limit)) in limits.iter().enumerate() {
                let (admitted, _) = drain(counters, counter(at), limit, name).await;
                assert_eq!(admitted, LIMIT, "{name}");
            }
        });
        shift(noon_us + jump_s * 1_000_000);
        let mut waits = Vec::new();
        with(&store(&server.url(), PATIENT), async |counters| {
            for (at, (name, limit)) in limits.iter().enumerate() {
                let what = format!("{kind:?}, {name}, {jump_s} s");
                let (admitted, last) = drain(counters, counter(at), limit, &what).await;
                match jump_s {
                    3_600 => assert!(admitted <= LIMIT, "{what}: {admitted} admitted"),
                    _ => assert_eq!(admitted, 0, "{what}"),
                }
                let verdict = last.answers[0].verdict;
                assert!(!last.admitted, "{what}: {verdict:?}");
                waits.push(verdict.retry_after.unwrap_or_else(|| panic!("{what}: {verdict:?}")));
            }
        });
        let longest = |calendar: bool| {
            let all = limits.iter().zip(&waits).filter(|((name, _), _)| (*name == "calendar") == calendar);
            all.map(|(_, wait)| wait.get()).max().unwrap_or_default()
        };
        // Not frozen: at the time that was told, and that is two windows at most.
        for calendar in [false, true] {
            let later_us = i64::try_from(longest(calendar)).expect("it is short") + 1_000;
            shift(noon_us + jump_s * 1_000_000 + later_us);
            with(&store(&server.url(), PATIENT), async |counters| {
                for (at, (name, limit)) in
                    limits.iter().enumerate().filter(|(_, (name, _))| (*name == "calendar") == calendar)
                {
                    let what = format!("{kind:?}, {name}, {jump_s} s, {later_us} µs later");
                    let told = ask(counters, &[counter(at).take(limit, Ask::Charge { cost: 1 })]).await;
                    let told = told.unwrap_or_else(|why| panic!("{what}: {why}"));
                    assert!(told.admitted, "{what}: {:?}", told.answers);
                }
            });
        }
    }
    nothing_lives_for_ever(server.immortal_keys(&[]));
}

/// The same by a failover: the replica has all that its primary had, takes over, and its clock is off.
fn taken_over_by_a_clock_that_is_off(kind: Kind) {
    let noon_us = DAY_US / 2 + WINDOW.get() as i64 / 4 - (now().get() % DAY_US as u64) as i64;
    let limits = every_algorithm(LIMIT, WINDOW);
    let well = |result: Result<(), String>| result.unwrap_or_else(|error| panic!("{error}"));
    for jump_s in [-5, 5, -3_600, 3_600] {
        let clocks = [0; 2].map(|_| ServerClock::new().unwrap_or_else(|error| panic!("{error}")));
        let [primary, replica] = clocks.each_ref().map(|clock| {
            Server::start(kind, &Options::new().clock(clock)).unwrap_or_else(|error| panic!("{error}"))
        });
        // Before they know of each other: a connection on which an hour goes by at once would be given up.
        well(clocks[0].shift(noon_us, &[&primary]));
        well(clocks[1].shift(noon_us + jump_s * 1_000_000, &[&replica]));
        follow(&replica, &primary);
        let proxy = Proxy::start(primary.address()).unwrap_or_else(|error| panic!("{error}"));
        with(&store(&proxy.url(), PATIENT), async |counters| {
            for (at, (name, limit)) in limits.iter().enumerate() {
                let (admitted, _) = drain(counters, Counter::of(at as u32), limit, name).await;
                assert_eq!(admitted, LIMIT, "{name}");
            }
        });
        let mut client = primary.client().unwrap_or_else(|error| panic!("{error}"));
        let last = [vec!["SET", "last", "one", "EX", "600"], vec!["WAIT", "1", "4000"]];
        let replies = client.pipeline(&last).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(replies[1], Reply::Integer(1), "the replica has all");
        primary.kill();
        assert_eq!(replica.command(&["REPLICAOF", "NO", "ONE"]).error(), None);
        proxy.set_target(replica.address());
        with(&store(&proxy.url(), PATIENT), async |counters| {
            for (at, (name, limit)) in limits.iter().enumerate() {
                let what = format!("{kind:?}, {name}, taken over {jump_s} s off");
                let (admitted, last) = drain(counters, Counter::of(at as u32), limit, &what).await;
                assert!(!last.admitted, "{what}: {:?}", last.answers);
                match jump_s {
                    3_600 => assert!(admitted <= LIMIT, "{what}: {admitted} admitted"),
                    _ => assert_eq!(admitted, 0, "{what}"),
                }
            }
        });
        nothing_lives_for_ever(replica.immortal_keys(&[]));
    }
}

#[test]
fn row_21_a_replica_of_redis_whose_clock_is_off_admits_one_limit_more_at_most() {
    taken_over_by_a_clock_that_is_off(Kind::Redis);
}

#[test]
fn row_21_a_replica_of_valkey_whose_clock_is_off_admits_one_limit_more_at_most() {
    taken_over_by_a_clock_that_is_off(Kind::Valkey);
}

/// Answers are given by the store's time, to the microsecond: between what it says before and after.
#[test]
fn what_is_decided_and_looked_at_is_told_by_the_time_of_the_store() {
    let clock = ServerClock::new().unwrap_or_else(|error| panic!("{error}"));
    let server =
        Server::start(Kind::Redis, &Options::new().clock(&clock)).unwrap_or_else(|error| panic!("{error}"));
    clock.shift(1_234_567_890, &[&server]).unwrap_or_else(|error| panic!("{error}"));
    let time = || match server.command(&["TIME"]) {
        Reply::Array(parts) => {
            let parts: Vec<u64> = parts
                .iter()
                .map(|part| part.text().and_then(|text| text.parse().ok()).expect("a number"))
                .collect();
            parts[0] * 1_000_000 + parts[1]
        }
        other => panic!("{other:?}"),
    };
    let limit = Limit::sliding_log(10_000, WINDOW).expect("a limit");
    let counter = Counter::of(1);
    with(&store(&server.url(), PATIENT), async |counters| {
        for _ in 0..50 {
            let before = time();
            let told =
                ask(counters, &[counter.charge(&limit, 1)]).await.unwrap_or_else(|why| panic!("{why}"));
            let between = time();
            let seen = counters.inspect(counter.key, counter.tag, &limit, now()).await;
            let (at, seen) =
                (told.answers[0].verdict.at.get(), seen.unwrap_or_else(|why| panic!("{why}")).verdict.at);
            assert!(before <= at && at <= between, "{before} ≤ {at} ≤ {between}");
            assert!(between <= seen.get() && seen.get() <= time(), "{between} ≤ {seen:?}");
        }
    });
    nothing_lives_for_ever(server.immortal_keys(&[]));
}

/// A node that has not heard of the store's time yet tells it the day before its own, its own, and the next. In each of these a quota is
/// that of the store's day; in others it is asked again.
#[test]
fn row_21_a_day_of_the_store_counts_as_far_as_the_node_can_tell_days() {
    let clock = ServerClock::new().unwrap_or_else(|error| panic!("{error}"));
    let server =
        Server::start(Kind::Redis, &Options::new().clock(&clock)).unwrap_or_else(|error| panic!("{error}"));
    let noon_us = DAY_US / 2 - (now().get() % DAY_US as u64) as i64;
    let limits = every_algorithm(1, WINDOW);
    let (_, days) = limits.iter().find(|(name, _)| *name == "calendar").expect("there is one");
    let charge = [Counter::of(1).charge(days, 1)];
    // It is told noon, as the store's clock has it but for whole days.
    let noon = Micros::new(now().get().saturating_add_signed(noon_us));
    for (days_off, is_told) in [(-2, false), (-1, true), (0, true), (1, true), (2, false)] {
        let shift = noon_us + days_off * DAY_US;
        clock.shift(shift, &[&server]).unwrap_or_else(|error| panic!("{error}"));
        with(&store(&server.url(), PATIENT), async |counters| {
            let mut told = ask_at(counters, &charge, noon).await;
            assert_eq!(told.is_ok(), is_told, "{days_off} days off: {told:?}");
            if let Err(why) = told {
                assert!(why.why.contains("another period"), "{why}");
                told = ask_at(counters, &charge, noon).await;
            }
            let told = told.unwrap_or_else(|why| panic!("{days_off} days off: {why}"));
            assert!(told.admitted, "{days_off} days off: nothing was charged on that day");
            let told = ask_at(counters, &charge, noon).await.unwrap_or_else(|why| panic!("{why}"));
            assert!(!told.admitted, "{days_off} days off: it was charged on that day");
        });
    }
    // A day back. The one that has begun stays, though it is the last that the node tells of.
    clock.shift(noon_us + DAY_US, &[&server]).unwrap_or_else(|error| panic!("{error}"));
    with(&store(&server.url(), PATIENT), async |counters| {
        let told = ask_at(counters, &charge, noon).await.unwrap_or_else(|why| panic!("{why}"));
        let verdict = told.answers[0].verdict;
        assert!(!told.admitted && verdict.retry_after > Some(Micros::from_secs(86_400)), "{verdict:?}");
    });
    nothing_lives_for_ever(server.immortal_keys(&[]));
}

/// The node tells a script the periods around the time that it takes for the store's. If that is in none of them, one request fails, and
/// tells by how far it was off.
#[test]
fn row_21_a_clock_that_is_days_off_is_found_by_whoever_asks_about_a_calendar_alone() {
    let clock = ServerClock::new().unwrap_or_else(|error| panic!("{error}"));
    let server =
        Server::start(Kind::Redis, &Options::new().clock(&clock)).unwrap_or_else(|error| panic!("{error}"));
    let limits = every_algorithm(LIMIT, WINDOW);
    let (_, days) = limits.iter().find(|(name, _)| *name == "calendar").expect("there is one");
    with(&store(&server.url(), PATIENT), async |counters| {
        for (turn, days_off) in [10, -10, 0].into_iter().enumerate() {
            clock.shift(days_off * DAY_US, &[&server]).unwrap_or_else(|error| panic!("{error}"));
            let charge = [Counter::of(turn as u32).charge(days, 1)];
            let why = ask(counters, &charge).await.expect_err("it was told other days");
            assert!(why.why.contains("another period"), "{why}");
            let told =
                ask(counters, &charge).await.unwrap_or_else(|why| panic!("{days_off} days off: {why}"));
            assert!(told.admitted);
        }
    });
    nothing_lives_for_ever(server.immortal_keys(&[]));
}

#[test]
fn row_21_a_clock_of_redis_that_jumps_admits_one_limit_more_at_most() {
    clock_jumps(Kind::Redis);
}

#[test]
fn row_21_a_clock_of_valkey_that_jumps_admits_one_limit_more_at_most() {
    clock_jumps(Kind::Valkey);
}
