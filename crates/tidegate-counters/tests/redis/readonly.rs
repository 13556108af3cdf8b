//! READONLY: a server that was a primary becomes a replica while it is asked, as when somebody promotes another one by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tidegate_core::Limit;
use tidegate_counters::{RedisCounters, RedisStore};
use tidegate_testbed::{Kind, Proxy, Reply, Server, until};

use crate::support::{
    Counter, HOUR, PATIENT, Stops, ask, nothing_lives_for_ever, server, store, troubles, used, with,
};

const THREADS: usize = 3;
const KEYS: u32 = 16;

/// What the requests of all threads came to.
#[derive(Default)]
struct Heard {
    admitted: AtomicU64,
    failed: AtomicU64,
}

/// Charges without a pause, several calls at a time, until told to stop.
fn charge_all_the_while(store: &Arc<RedisStore>, limit: &Limit, heard: &Heard, stop: &AtomicBool) {
    with(store, async |counters| {
        let one = || charge_one_by_one(counters, limit, heard, stop);
        tokio::join!(one(), one(), one(), one());
    });
}

/// Whatever fails, fails for sure: it says that it was not charged.
async fn charge_one_by_one(counters: &RedisCounters, limit: &Limit, heard: &Heard, stop: &AtomicBool) {
    let mut number = 0;
    while !stop.load(SeqCst) {
        number = (number + 1) % KEYS;
        match ask(counters, &[Counter::of(number).charge(limit, 1)]).await {
            Ok(told) => {
                assert!(told.admitted);
                heard.admitted.fetch_add(1, SeqCst);
                tokio::task::yield_now().await; // The others fall out of step with this one, so that calls overlap.
            }
            Err(why) => {
                assert!(!why.why.contains("not known"), "{why}");
                heard.failed.fetch_add(1, SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await; // It is connected to seldom, and says so at once.
            }
        }
    }
}

fn grows(what: &str, count: &AtomicU64) {
    let seen = count.load(SeqCst);
    let more = until(what, PATIENT, || match count.load(SeqCst) {
        now if now >= seen + 50 => Ok(()),
        now => Err(format!("{now} after {seen}")),
    });
    more.unwrap_or_else(|error| panic!("{error}"));
}

/// Makes a server the replica of another one, and waits until it has all that this has.
pub(crate) fn follow(server: &Server, primary: &Server) {
    let (host, port) = (primary.address().ip().to_string(), primary.address().port().to_string());
    server.command(&["REPLICAOF", &host, &port]);
    follows(server);
}

fn follows(server: &Server) {
    let well = until("a replica has all that its primary has", PATIENT, || {
        let about = server.try_command(&["INFO", "replication"])?.text().unwrap_or_default();
        if about.contains("master_link_status:up") { Ok(()) } else { Err(about) }
    });
    well.unwrap_or_else(|error| panic!("{error}"));
}

/// Makes its replica the primary, which has all then that it has itself. Whoever asks meanwhile is held back, and is told READONLY.
fn hand_over(primary: &Server, replica: &Server) {
    let (host, port) = (replica.address().ip().to_string(), replica.address().port().to_string());
    let well = until("a primary hands over", PATIENT, || {
        match primary.command(&["FAILOVER", "TO", &host, &port]) {
            Reply::Error(why) => Err(why), // It has not heard yet that the replica is there.
            _ => Ok(()),
        }
    });
    well.unwrap_or_else(|error| panic!("{error}"));
    follows(primary);
}

/// One name, two servers: the second takes over, by agreement, and the name goes over to it; then the first takes over again, and the name
/// with it. As long as the name is that of a replica, requests fail, and none is charged. Once it is that of a primary, they are admitted.
/// The counters hold what was admitted, to the unit.
fn demoted_under_load(kind: Kind) {
    let (first, second) = (server(kind), server(kind));
    follow(&second, &first);
    let proxy = Proxy::start(first.address()).unwrap_or_else(|error| panic!("{error}"));
    let store = store(&proxy.url(), PATIENT);
    let limit = Limit::sliding_window(10_000_000, HOUR).expect("a limit");
    let (heard, stop) = (Heard::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| charge_all_the_while(&store, &limit, &heard, &stop));
        }
        let _stops = Stops(&stop);
        grows("requests are admitted", &heard.admitted);
        for (old, new) in [(&first, &second), (&second, &first)] {
            let readonly = troubles(&store, "readonly");
            hand_over(old, new);
            grows("requests fail while they reach a replica", &heard.failed);
            assert!(troubles(&store, "readonly") > readonly, "{:?}", store.stats());
            proxy.set_target(new.address());
            grows("requests are admitted by the new primary", &heard.admitted);
        }
        // The same server, demoted and promoted again. The primary that it is told of is not there, so it keeps what it has.
        first.command(&["REPLICAOF", "127.0.0.1", "1"]);
        grows("requests fail while they reach a replica", &heard.failed);
        first.command(&["REPLICAOF", "NO", "ONE"]);
        grows("requests are admitted once it is a primary again", &heard.admitted);
    });
    let stats = store.stats();
    println!("{kind:?}: {heard:?} failed, {stats:?}", heard = heard.failed);
    assert_eq!(troubles(&store, "lost"), 0, "{stats:?}");
    let counted = with(&crate::support::store(&first.url(), PATIENT), async |counters| {
        let mut counted = 0;
        for number in 0..KEYS {
            counted += used(counters, Counter::of(number), &limit).await;
        }
        counted
    });
    assert_eq!(counted, heard.admitted.load(SeqCst));
    nothing_lives_for_ever(first.immortal_keys(&[]));
}

#[test]
fn nothing_is_lost_or_charged_twice_while_a_name_is_that_of_a_replica_of_redis() {
    demoted_under_load(Kind::Redis);
}

#[test]
fn nothing_is_lost_or_charged_twice_while_a_name_is_that_of_a_replica_of_valkey() {
    demoted_under_load(Kind::Valkey);
}
