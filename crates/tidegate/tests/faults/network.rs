//! Rows 16 to 19: what is between breaks.

use std::time::Duration;

use tidegate_testbed::{Kind, Way as Direction};

use crate::audit::{Answer, Event, Times};
use crate::report::{Lost, Report, row, without};
use crate::rig::{Needs, PRIMARIES, Rig, Rule};
use crate::switch::{Protection, Way};

const SICK: usize = 0;
const BEFORE: Duration = Duration::from_millis(1_200);
const AFTER: Duration = Duration::from_millis(1_800);

#[test]
fn row_16_slow_store() {
    row(16, "slow store", &[Kind::Redis], Protection::Time, slow_store);
}

#[test]
fn row_17_flapping_store() {
    row(17, "flapping store", &[Kind::Redis], Protection::Time, flapping_store);
}

#[test]
fn row_18_herd_on_recovery() {
    row(18, "herd on recovery", &[Kind::Redis], Protection::Time, herd_on_recovery);
}

#[test]
fn row_19_garbled_replies() {
    row(19, "garbled replies", &[Kind::Redis], Protection::Order, garbled_replies);
}

#[test]
fn row_19_is_red_without_its_protection() {
    without(19, "garbled replies", Protection::Order, "answers were somebody else's", garbled_replies);
}

/// At 50 ms a store is as good as away; at 9 ms it is slow, and still the one that answers.
fn slow_store(kind: Kind, way: Way, report: &mut Report) {
    let rig = Rig::start(Needs { proxies: true, ..Needs::new(kind, way) });
    rig.pass(BEFORE);
    let fault_us = rig.now_us();
    rig.proxy(SICK).delay(Direction::ToClient, Duration::from_millis(50));
    rig.pass(way.lasts(1_500, 10_000));
    rig.proxy(SICK).delay(Direction::ToClient, Duration::ZERO);
    let well_us = rig.now_us();
    rig.pass(AFTER);
    let slow_us = rig.now_us();
    rig.proxy(SICK).delay(Direction::ToClient, Duration::from_millis(9));
    rig.pass(way.lasts(1_500, 10_000));
    let end_us = rig.now_us();
    rig.proxy(SICK).delay(Direction::ToClient, Duration::ZERO);
    let run = rig.finish();
    report.answers(&run, fault_us);
    report.opens(&run, &[SICK], fault_us);
    report.healthy(&run, &[SICK], fault_us);
    let in_between = |event: &&Event, from_us: u64, to_us: u64| {
        run.rig.keys[event.key].place == SICK && (from_us..to_us).contains(&event.sent_us)
    };
    let recovered = run.record.events.iter().filter(|event| in_between(event, well_us + 1_000_000, slow_us));
    let recovered = recovered.filter(|event| !run.record.is_disturbed(event));
    let other = recovered.clone().filter(|event| !event.is_exact()).count();
    report.in_time(other * 100 <= recovered.count(), || {
        format!("{other} answers by policy a second after it was well")
    });
    // Three milliseconds are left for everything else, so only moments count in which the machine was not held up.
    let slow = run.record.events.iter().filter(|event| in_between(event, slow_us, end_us));
    let slow: Vec<&Event> = slow.filter(|event| !run.record.is_disturbed(event)).collect();
    let by_policy = slow.iter().filter(|event| !event.is_exact()).count();
    report.in_time(by_policy * 10 <= slow.len(), || {
        format!("at 9 ms {by_policy} of {} answers were not the store's", slow.len())
    });
    report.figure("exact_at_9_ms", format!("{} of {}", slow.len() - by_policy, slow.len()));
    // At a third of the load for 9 ms there are a few at a time.
    let in_flight = run.seen.in_flight_max;
    report.in_time(in_flight < run.rig.needs.rate / 4, || {
        format!("{in_flight} requests waited for the store at once")
    });
    report.figure("in_flight_max", in_flight);
    report.exact(&run, Lost::NONE);
    report.charged(&run, Lost::NONE);
}

/// Up for a second, down for a second. Down means that connections are cut, or reset, and new ones lead nowhere, so that each is counted.
fn flapping_store(kind: Kind, way: Way, report: &mut Report) {
    let rig = Rig::start(Needs { proxies: true, ..Needs::new(kind, way) });
    rig.pass(BEFORE);
    let (fault_us, connections) = (rig.now_us(), rig.proxy(SICK).counts().connections);
    let turns = if way.is_long { 30 } else { 3 };
    for turn in 0..turns {
        for is_down in [true, false] {
            for direction in [Direction::ToServer, Direction::ToClient] {
                rig.proxy(SICK).black_hole(direction, is_down);
            }
            match (is_down, turn % 2) {
                (true, 0) => rig.proxy(SICK).cut_all(),
                (true, _) => rig.proxy(SICK).reset_all(),
                (false, _) => {}
            }
            rig.pass(Duration::from_secs(1));
        }
    }
    let (end_us, connected) = (rig.now_us(), rig.proxy(SICK).counts().connections - connections);
    rig.pass(Duration::from_millis(500));
    let run = rig.finish();
    report.answers(&run, fault_us);
    report.healthy(&run, &[SICK], fault_us);
    report.exact(&run, Lost::NONE);
    report.charged(&run, Lost::NONE);
    let seconds = (end_us - fault_us) as f64 / 1e6;
    let per_s = connected as f64 / seconds;
    report.in_time(per_s <= 4.0, || format!("{per_s:.1} connects a second to a store that flaps"));
    report.figure("connects_per_s", (per_s * 10.0).round() / 10.0);
    let changes = report.changes_per_s(&run.seen, &run.rig.shard(SICK), fault_us, end_us);
    report.in_time(changes <= 2.0, || format!("the circuit changed {changes:.1} times a second"));
    report.in_time(changes > 0.0, || "the circuit never opened".into());
    report.figure("circuit_changes_per_s", (changes * 10.0).round() / 10.0);
}

/// All come at once when the store is back. It is found by a few connections, which each need the scripts once.
fn herd_on_recovery(kind: Kind, way: Way, report: &mut Report) {
    const HERD: u64 = 2_000;
    let rig = Rig::start(Needs { proxies: true, ..Needs::new(kind, way) });
    rig.pass(BEFORE);
    let fault_us = rig.now_us();
    let hold = |is_down: bool| {
        for place in 0..PRIMARIES {
            for direction in [Direction::ToServer, Direction::ToClient] {
                rig.proxy(place).black_hole(direction, is_down);
            }
            if is_down {
                rig.proxy(place).cut_all();
            }
        }
    };
    hold(true);
    rig.pass(way.lasts(1_500, 10_000));
    let loads = || (0..PRIMARIES).map(|place| script_loads(&rig, place)).sum::<u64>();
    let connections = || (0..PRIMARIES).map(|place| rig.proxy(place).counts().connections).sum::<u64>();
    let (loads_before, connections_before) = (loads(), connections());
    hold(false);
    let well_us = rig.now_us();
    rig.load().burst(HERD);
    rig.pass(Duration::from_millis(4_000));
    let (loaded, connected) = (loads() - loads_before, connections() - connections_before);
    let run = rig.finish();
    report.figure("script_loads", loaded);
    report.figure("connects", connected);
    report.figure("connections_max", run.seen.connections_max);
    let all: Vec<usize> = (0..PRIMARIES).collect();
    // The herd itself is more than this machine serves in 20 ms: from then on for two seconds no time is promised.
    let calm =
        run.record.events.iter().filter(|event| !(well_us..well_us + 2_000_000).contains(&event.sent_us));
    let calm: Vec<&Event> = calm.collect();
    report.answers_of(&run, fault_us, &calm);
    report.recovers(&run, &all, well_us + 1_000_000);
    let before = run.record.events.iter().filter(|event| event.sent_us < fault_us);
    let after = run.record.events.iter().filter(|event| event.sent_us >= well_us + 2_000_000);
    let (then, now): (Times, Times) = (run.record.times(before), run.record.blamed(after));
    report.in_time(now.p99_us <= 2 * then.p99_us + 5_000, || {
        format!(
            "two seconds after the store is back, 99 of 100 within {} us, {} before",
            now.p99_us, then.p99_us
        )
    });
    // Each thread that decides has a connection to each server, and one more thread keeps the secret.
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let pool = (threads + 1) * PRIMARIES as u64;
    report.in_time(run.seen.connections_max <= pool, || {
        format!("{} connections, and {pool} are all that are needed", run.seen.connections_max)
    });
    // Those of the time without a store may still be there when it is back.
    report.in_time(loaded <= connected + pool, || {
        format!("{loaded} loads of scripts on {connected} new connections")
    });
    report.exact(&run, Lost::NONE);
    report.charged(&run, Lost::NONE);
}

fn script_loads(rig: &Rig, place: usize) -> u64 {
    let stats = rig.server(place).command(&["INFO", "commandstats"]).text().unwrap_or_default();
    let loads = stats.lines().find_map(|line| line.strip_prefix("cmdstat_script|load:calls="));
    loads.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Replies whose frame is broken, and replies that end early. Whoever reads on would give somebody the answer of somebody else, which shows
/// here: each counter begins at a number of its own, and the answer tells what is left.
///
/// Switched off, a single reply is missing, and no client could know it: each later one answers the question before.
fn garbled_replies(kind: Kind, way: Way, report: &mut Report) {
    const APART: u64 = 10_000;
    const MANY: u64 = 4_000_000_000;
    let rig = Rig::start(Needs { proxies: true, used_before: APART, ..Needs::new(kind, way) });
    rig.pass(BEFORE);
    let fault_us = rig.now_us();
    let mut spoiled = 0;
    for turn in 0..if way.is_long { 200 } else { 20 } {
        let proxy = rig.proxy(turn % PRIMARIES);
        match (way.has(Protection::Order), turn % 4) {
            (false, _) => proxy.drop_reply(1),
            // The first byte says what kind of reply it is; `*` becomes `:`, `$` becomes `4`.
            (true, 0) => proxy.flip_reply(1, 0, 0x10),
            // A length of more or fewer digits, or none at all.
            (true, 1) => proxy.flip_reply(1, 1, 0x08),
            (true, 2) => proxy.truncate_reply(1, 2),
            (true, _) => proxy.truncate_reply(1, 20),
        }
        spoiled += 1;
        rig.pass(Duration::from_millis(100));
    }
    let well_us = rig.now_us();
    rig.pass(AFTER);
    let run = rig.finish();
    report.figure("spoiled", spoiled);
    report.answers(&run, fault_us);
    report.recovers(&run, &[0, 1, 2], well_us);
    let wrong = run.record.events.iter().filter(|event| {
        let key = &run.rig.keys[event.key];
        let Answer::Decided { remaining, .. } = event.answer else { return false };
        let used = MANY.saturating_sub(remaining.into());
        key.rule == Rule::Quota
            && event.is_exact()
            && !(key.used_before..key.used_before + APART).contains(&used)
    });
    let (count, first) = (wrong.clone().count(), wrong.clone().next().cloned());
    report.must(count == 0, || format!("{count} answers were somebody else's, first {first:?}"));
    report.exact(&run, Lost::NONE);
    report.charged(&run, Lost::NONE);
}
