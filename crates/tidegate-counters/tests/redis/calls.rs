//! What a decision costs the store: the commands that a script calls, counted by the store itself.

use std::collections::BTreeMap;

use tidegate_core::Limit;
use tidegate_counters::{Batch, Counters as _, RedisSettings, RedisStore, Take};
use tidegate_testbed::{Kind, Server};

use crate::support::{
    Counter, HOUR, PATIENT, ask, cluster, every_algorithm, nothing_lives_for_ever, now, own, server, store,
    troubles, used, with,
};

/// How often each command was called since [`forget`], but for the server's time and our own questions.
fn called(server: &Server) -> BTreeMap<String, u64> {
    let text = server.command(&["INFO", "commandstats"]).text().unwrap_or_default();
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let Some((name, rest)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls="))
        else {
            continue;
        };
        let count = rest.split(',').next().and_then(|count| count.parse().ok()).unwrap_or(0);
        if !["time", "info", "config|resetstat", "ping"].contains(&name) {
            all.insert(name.to_owned(), count);
        }
    }
    all
}

fn forget(server: &Server) {
    server.command(&["CONFIG", "RESETSTAT"]);
}

fn counts(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
    of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

/// One read for a take and, if it is charged, one write; of several takes in one slot one read for all. A refusal writes nothing.
fn reads_and_writes(kind: Kind) {
    let server = server(kind);
    // Each question by a store that remembers no denial.
    let costs = |takes: &[Take<'_>], admitted: bool| {
        with(&store(&server.url(), PATIENT), async |counters| {
            let warm = Limit::fixed_window(10, HOUR).expect("a limit");
            assert!(ask(counters, &[Counter::of(999).charge(&warm, 0)]).await.is_ok(), "it is connected");
            forget(&server);
            let told = ask(counters, takes).await.unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(told.admitted, admitted);
            called(&server)
        })
    };
    for (at, (name, limit)) in every_algorithm(2, HOUR).into_iter().enumerate() {
        let counter = Counter::of(at as u32);
        costs(&[counter.charge(&limit, 1)], true); // The script is there from now on.
        let charged = costs(&[counter.charge(&limit, 1)], true);
        assert_eq!(charged, counts(&[("evalsha", 1), ("get", 1), ("set", 1)]), "{name}, charged");
        let refused = costs(&[counter.charge(&limit, 1)], false);
        assert_eq!(refused, counts(&[("evalsha", 1), ("get", 1)]), "{name}, refused");
        let three = [1, 2, 3].map(|number| counter.beside(number).charge(&limit, 1));
        assert_eq!(costs(&three, true), counts(&[("evalsha", 1), ("mget", 1), ("set", 3)]), "{name}, three");
        let four = [three[0], three[1], three[2], counter.charge(&limit, 1)];
        assert_eq!(
            costs(&four, false),
            counts(&[("evalsha", 1), ("mget", 1)]),
            "{name}, one of four is full"
        );
    }
    nothing_lives_for_ever(server.immortal_keys(&[]));
}

#[test]
fn a_decision_costs_redis_one_read_and_one_write_if_it_is_charged() {
    reads_and_writes(Kind::Redis);
}

#[test]
fn a_decision_costs_valkey_one_read_and_one_write_if_it_is_charged() {
    reads_and_writes(Kind::Valkey);
}

/// A prefix may have brackets, too, and those come first: what stands in them says where a counter is. It is looked for there at once.
#[test]
fn a_prefix_with_brackets_sends_nobody_to_the_wrong_server() {
    let cluster = cluster(Kind::Redis, 0);
    let limit = Limit::fixed_window(10, HOUR).expect("a limit");
    for prefix in ["{all}", "a{", "a{}", "a}"] {
        let mut settings = RedisSettings::of_url(&cluster.url()).expect("a URL");
        settings.timeout = PATIENT;
        settings.connect_timeout = PATIENT;
        settings.prefix = prefix.into();
        let store = RedisStore::new(settings, own());
        with(&store, async |counters| {
            for number in 0..30 {
                let counter = Counter::of(number);
                let told =
                    ask(counters, &[counter.charge(&limit, 1), counter.beside(0).charge(&limit, 1)]).await;
                assert!(told.unwrap_or_else(|why| panic!("{prefix}: {why}")).admitted);
                assert_eq!(used(counters, counter, &limit).await, 1);
                assert_eq!(counters.reset(counter.key, counter.tag).await, Ok(true));
            }
        });
        assert_eq!(troubles(&store, "moved"), 0, "{prefix}");
    }
    nothing_lives_for_ever(cluster.immortal_keys(&[]));
}

/// What is asked in one turn shares calls; but a script stops the server while it runs, so a call has an end, also where all is about one
/// counter.
#[test]
fn a_crowd_on_one_counter_goes_out_in_a_few_calls_and_not_in_one() {
    let server = server(Kind::Redis);
    let limit = Limit::sliding_window(1_000, HOUR).expect("a limit");
    with(&store(&server.url(), PATIENT), async |counters| {
        assert!(ask(counters, &[Counter::of(1).charge(&limit, 1)]).await.is_ok(), "the script is there");
        forget(&server);
        let mut batch = Batch::new();
        (0..300).for_each(|_| batch.push([Counter::of(1).charge(&limit, 1)]));
        counters.take(&mut batch, now()).await;
        assert!((0..300).all(|request| batch.admitted(request)));
        assert_eq!(called(&server), counts(&[("evalsha", 5), ("get", 5), ("set", 5)]));
    });
    nothing_lives_for_ever(server.immortal_keys(&[]));
}
