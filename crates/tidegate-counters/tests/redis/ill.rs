//! A server that does not answer: only its counters go by policy, it is left alone while it is ill, and found again when it is not.

use std::time::Duration;

use tidegate_clock::Stopwatch;
use tidegate_core::{Limit, OnStoreFailure, Policy};
use tidegate_counters::{
    Batch, CircuitSettings, CircuitState, Counters as _, Mode, RedisSettings, RedisStore,
};
use tidegate_testbed::{Cluster, Kind, Options, Proxy, Server, Way};

use crate::support::{
    Counter, HOUR, PATIENT, ask, cluster, comes_to, nothing_lives_for_ever, now, one_on_each, own, server,
    store, with,
};

/// How a cluster's server at a place is.
fn circuit_of(store: &RedisStore, address: &str) -> CircuitState {
    let servers = store.stats().servers;
    servers.iter().find(|server| server.address == address).expect("a server that is known").circuit.state
}

/// Requests of three limits, on three servers of which one is silent. The other two decide; what they charge stays if the policy of the
/// third lets the request through, else it is given back.
#[test]
fn only_what_is_on_a_silent_server_goes_by_policy() {
    let cluster =
        Cluster::start_behind_proxies(Kind::Redis, 3, 0, 5_000).unwrap_or_else(|error| panic!("{error}"));
    let three = one_on_each(&cluster, 0);
    let limit = Limit::sliding_window(100, HOUR).expect("a limit");
    let full = Limit::sliding_window(1, HOUR).expect("a limit");
    // Enough time for the servers that do answer, on a machine that sleeps for a moment.
    let store = store(&cluster.url(), Duration::from_millis(1_500));
    with(&store, async |counters| {
        let warm = three.map(|counter| counter.charge(&limit, 1));
        assert!(ask(counters, &warm).await.expect("all answer").admitted);
        assert_eq!(counters.join(7).await, Ok(1));
        cluster.proxies()[2].black_hole(Way::ToServer, true);
        let mut charged = 1;
        for (policy, expected) in [
            (OnStoreFailure::Allow, Ok(true)),
            (OnStoreFailure::Local, Ok(true)),
            (OnStoreFailure::Deny, Ok(false)),
            (OnStoreFailure::Error, Err(())),
        ] {
            let mut takes = three.map(|counter| counter.charge(&limit, 1));
            takes[2].policy = Policy { on_store_failure: policy, ..Policy::STRICT };
            let told = ask(counters, &takes).await;
            assert_eq!(told.as_ref().map(|told| told.admitted).map_err(|_| ()), expected, "{policy:?}");
            charged += u64::from(expected == Ok(true));
            if let Ok(told) = &told {
                let modes: Vec<Mode> = told.answers.iter().map(|answer| answer.mode).collect();
                assert_eq!(modes, [Mode::Exact, Mode::Exact, Mode::Degraded(policy)]);
                let remaining = 100 - charged as u32;
                assert_eq!(
                    told.answers[0].verdict.remaining, remaining,
                    "{policy:?}: as it is after the request"
                );
            }
            for counter in &three[..2] {
                comes_to(counters, *counter, &limit, charged, &format!("{policy:?}")).await;
            }
        }
        // A refusal that is known comes first, and charges nobody.
        let brim = [three[0].beside(1).charge(&full, 1)];
        assert!(ask(counters, &brim).await.expect("it answers").admitted);
        let takes =
            [three[0].beside(1).charge(&full, 1), three[1].charge(&limit, 1), three[2].charge(&limit, 1)];
        let told = ask(counters, &takes).await.expect("a refusal");
        assert!(!told.admitted && told.answers[2].mode == Mode::Unasked, "{told:?}");
        comes_to(counters, three[1], &limit, charged, "a refusal").await;
    });
    nothing_lives_for_ever(cluster.immortal_keys(&[]));
}

#[test]
fn a_silent_server_is_left_alone_and_found_again() {
    let server = server(Kind::Redis);
    let proxy = Proxy::start(server.address()).unwrap_or_else(|error| panic!("{error}"));
    let counter = Counter::of(1);
    let limit = Limit::sliding_window(1_000_000, HOUR).expect("a limit");
    let store = store(&proxy.url(), Duration::from_millis(50));
    let address = proxy.address().to_string();
    with(&store, async |counters| {
        let takes = [counter.charge(&limit, 1)];
        let heals = async |what: &str| {
            let watch = Stopwatch::start();
            while ask(counters, &takes).await.is_err() || circuit_of(&store, &address) != CircuitState::Closed
            {
                assert!(watch.elapsed() < PATIENT, "{what}: it is not found again");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        heals("at the start").await;
        let opened = || store.stats().servers[0].circuit.opened;
        let before = opened();
        proxy.black_hole(Way::ToServer, true);
        let mut failures = 0;
        while circuit_of(&store, &address) == CircuitState::Closed {
            assert!(ask(counters, &takes).await.is_err());
            failures += 1;
            assert!(failures <= 5, "the fifth failure in a row opens it");
        }
        // A hundred requests wait for nothing but the one that tries it, or two on a slow machine.
        let calls = || {
            store.stats().servers[0]
                .calls
                .iter()
                .map(|(_, times)| times.counts.iter().sum::<u64>())
                .sum::<u64>()
        };
        let (calls_before, watch) = (calls(), Stopwatch::start());
        for _ in 0..100 {
            let why = ask(counters, &takes).await.expect_err("it is silent");
            assert!(why.why.contains(&address), "{why}");
        }
        let may_probe = 1 + watch.elapsed().as_millis() as u64 / 200;
        assert!(
            calls() - calls_before <= may_probe,
            "{} calls in {:?}",
            calls() - calls_before,
            watch.elapsed()
        );
        assert_eq!(opened(), before + 1);
        proxy.black_hole(Way::ToServer, false);
        heals("it speaks again").await;
        assert_eq!(opened(), before + 1, "once, for one silence");
    });
    nothing_lives_for_ever(server.immortal_keys(&[]));
}

/// There is no queue: who comes when as many wait as may is answered by policy at once. Those who wait for a silent server take no place
/// from the others.
#[test]
fn no_more_wait_for_a_silent_server_than_may_and_nobody_else_does() {
    let cluster =
        Cluster::start_behind_proxies(Kind::Redis, 3, 0, 5_000).unwrap_or_else(|error| panic!("{error}"));
    let three = one_on_each(&cluster, 0);
    let limit = Limit::sliding_window(1_000, HOUR).expect("a limit");
    let mut settings = RedisSettings::of_url(&cluster.url()).unwrap_or_else(|error| panic!("{error}"));
    (settings.timeout, settings.connect_timeout) = (PATIENT, PATIENT);
    settings.in_flight_max = 8;
    let store = RedisStore::new(settings, own());
    with(&store, async |counters| {
        let warm = three.map(|counter| counter.charge(&limit, 1));
        assert!(ask(counters, &warm).await.expect("all answer").admitted);
        cluster.proxies()[2].black_hole(Way::ToServer, true);
        let mut batch = Batch::new();
        (0..9).for_each(|_| batch.push([three[2].charge(&limit, 1)]));
        batch.answer_within(Duration::from_millis(500));
        let waits = async {
            counters.take(&mut batch, now()).await;
            batch
        };
        let goes_on = async {
            for _ in 0..20 {
                let others = [three[0].charge(&limit, 1), three[1].charge(&limit, 1)];
                assert!(ask(counters, &others).await.expect("these answer").admitted);
            }
        };
        let (batch, ()) = tokio::join!(waits, goes_on);
        let why: Vec<&str> =
            (0..9).map(|request| batch.failure(request).map_or("", |why| &why.why)).collect();
        assert!(why[8].contains("8 requests wait"), "{why:?}");
        assert!(why[..8].iter().all(|why| why.contains("deadline")), "{why:?}");
    });
    nothing_lives_for_ever(cluster.immortal_keys(&[]));
}

/// `circuit: {failures: 5, within: 10s, open_for: 30s}`.
#[test]
fn a_circuit_can_be_slow_as_the_seed_wants_it() {
    let server = server(Kind::Redis);
    let proxy = Proxy::start(server.address()).unwrap_or_else(|error| panic!("{error}"));
    let mut settings = RedisSettings::of_url(&proxy.url()).unwrap_or_else(|error| panic!("{error}"));
    (settings.timeout, settings.connect_timeout) = (PATIENT, PATIENT);
    let (within, open_for) = (Some(Duration::from_secs(10)), Duration::from_secs(30));
    settings.circuit = CircuitSettings { failures: 5, within, open_for };
    let store = RedisStore::new(settings, own());
    let limit = Limit::sliding_window(1_000_000, HOUR).expect("a limit");
    with(&store, async |counters| {
        let takes = [Counter::of(1).charge(&limit, 1)];
        for failure in 1..=5 {
            // Each between two that go well: they are not in a row.
            assert!(ask(counters, &takes).await.is_ok(), "before failure {failure}");
            proxy.cut_after_command(1);
            assert!(ask(counters, &takes).await.is_err(), "failure {failure}");
            tokio::time::sleep(Duration::from_millis(300)).await; // A server is connected to four times a second at most.
        }
        let why = ask(counters, &takes).await.expect_err("the circuit is open");
        assert!(why.why.contains("its circuit is open"), "{why}");
        let stats = store.stats();
        assert_eq!(
            (stats.servers[0].circuit.state, stats.servers[0].circuit.opened),
            (CircuitState::Open, 1)
        );
    });
    nothing_lives_for_ever(server.immortal_keys(&[]));
}

#[test]
fn nodes_that_share_a_store_know_of_each_other_for_as_long_as_they_live() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let (cluster, one) = (cluster(kind, 0), server(kind));
        for url in [cluster.url(), one.url()] {
            let (first, second) = (store(&url, PATIENT), store(&url, PATIENT));
            with(&first, async |counters| {
                assert_eq!(counters.join(1).await, Ok(1));
                assert_eq!(second.counters().join(2).await, Ok(2));
                assert_eq!(counters.join(1).await, Ok(2), "the same node again is no other");
                assert_eq!((first.stats().nodes, second.stats().nodes), (Some(2), Some(2)));
            });
        }
        assert_eq!(one.command(&["STRLEN", "tg:nodes"]).integer(), Some(24));
        let left = one.command(&["PTTL", "tg:nodes"]).integer().expect("a time");
        assert!(left > 0 && left <= 30_000, "{left}");
        nothing_lives_for_ever(one.immortal_keys(&[]));
        nothing_lives_for_ever(cluster.immortal_keys(&[]));
    }
}

/// Row 12: a store that evicts forgets limits.
#[test]
fn row_12_a_store_that_forgets_is_warned_about() {
    let forgets =
        Options::new().line("maxmemory 100mb").line("maxmemory-policy allkeys-lru").line("save \"\"");
    let keeps =
        Options::new().line("maxmemory 100mb").line("maxmemory-policy noeviction").line("appendonly yes");
    for kind in [Kind::Redis, Kind::Valkey] {
        for (options, warnings) in [(&forgets, 2), (&keeps, 0)] {
            let server = Server::start(kind, options).unwrap_or_else(|error| panic!("{error}"));
            let store = store(&server.url(), PATIENT);
            with(&store, async |counters| {
                let fresh = counters.survey().await;
                assert_eq!(fresh.len(), warnings, "{fresh:?}");
                assert!(
                    fresh.iter().all(|warning| warning.contains(&server.address().to_string())),
                    "{fresh:?}"
                );
                assert!(counters.survey().await.is_empty(), "it is said once");
                let stats = store.stats();
                assert_eq!((stats.warnings.len(), stats.servers[0].evicted_keys), (warnings, Some(0)));
            });
        }
    }
}
