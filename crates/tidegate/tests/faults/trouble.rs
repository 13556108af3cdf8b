//! Rows 9 to 12: servers that answer, but not what is asked.

use std::io::Write as _;
use std::time::Duration;

use rustix::process::Pid;
use tidegate_testbed::{Kind, Options, Reply, Server, until};

use crate::report::{Lost, Report, row, without};
use crate::rig::{Needs, Rig, Rule};
use crate::support::{self, Http, Setup};
use crate::switch::{Protection, Way};

const SICK: usize = 0;

/// A node looks at its store when it starts; a busy machine may need seconds for that.
const WARNS_MAX: Duration = Duration::from_secs(15);

const BEFORE: Duration = Duration::from_millis(1_200);
const AFTER: Duration = Duration::from_millis(1_800);

#[test]
fn row_09_loading() {
    row(9, "loading", &[Kind::Redis], Protection::Time, loading);
}

#[test]
fn row_10_busy() {
    row(10, "busy", &[Kind::Redis], Protection::Time, busy);
}

#[test]
fn row_11_store_full() {
    row(11, "store full", &[Kind::Redis], Protection::Policy, store_full);
}

#[test]
fn row_12_evicting_store() {
    row(12, "evicting store", &[Kind::Redis], Protection::Sight, evicting_store);
}

#[test]
fn row_11_is_red_without_its_protection() {
    without(11, "store full", Protection::Policy, "policies admitted more than they may", store_full);
}

/// A server that reads its data back is asked ten times a second at most. The dump is small, and the server is told to read it slowly.
fn loading(kind: Kind, way: Way, report: &mut Report) {
    let rig = Rig::start(Needs { proxies: true, ..Needs::new(kind, way) });
    let server = rig.server(SICK);
    // It answers that it loads after each kilobyte.
    let slowly = format!(
        "key-load-delay {}\nloading-process-events-interval-bytes 1024\n",
        way.lasts(3, 8).as_micros()
    );
    let file = std::fs::File::options().append(true).open(server.folder().join("conf"));
    file.and_then(|mut file| file.write_all(slowly.as_bytes())).expect("its configuration");
    rig.fill(SICK, 800, 1_100);
    rig.pass(BEFORE);
    let saved_us = rig.now_us();
    assert_eq!(server.command(&["SAVE"]), Reply::Status("OK".into()));
    let (fault_us, connections) = (rig.now_us(), rig.proxy(SICK).counts().connections);
    server.kill();
    let dead_us = rig.now_us();
    let restarted = server.restart();
    report.must(restarted.is_ok(), || format!("{restarted:?}"));
    // A primary that was away refuses everything for two seconds more, until it knows what became of the others.
    let ready = until("it takes writes", Duration::from_secs(20), || {
        let info = server.try_command(&["CLUSTER", "INFO"])?.text().unwrap_or_default();
        if info.contains("cluster_state:ok") { Ok(()) } else { Err(info) }
    });
    report.must(ready.is_ok(), || format!("{ready:?}"));
    let (well_us, connected) = (rig.now_us(), rig.proxy(SICK).counts().connections - connections);
    rig.pass(AFTER);
    let run = rig.finish();
    // What was charged between the dump and the end is forgotten.
    let forgotten = run.record.events.iter().filter(|event| {
        let is_there = run.rig.keys[event.key].place == SICK && event.is_exact() && event.is_admitted();
        is_there && event.received_us >= saved_us && event.sent_us <= dead_us
    });
    let forgotten: u64 = forgotten.map(|event| event.cost).sum();
    report.answers(&run, fault_us);
    report.opens(&run, &[SICK], fault_us);
    report.healthy(&run, &[SICK], fault_us);
    report.recovers(&run, &[SICK], well_us);
    report.exact(&run, forgotten.into());
    report.charged(&run, forgotten.into());
    let per_s = connected as f64 / ((well_us - fault_us) as f64 / 1e6);
    report.in_time(per_s <= 10.0, || format!("{per_s:.1} connects a second to a server that loads"));
    report.figure("connects_per_s", (per_s * 10.0).round() / 10.0);
    report.figure("loading_ms", (well_us - fault_us) / 1_000);
}

/// Somebody's script does not end. It is not for a node to end it.
fn busy(kind: Kind, way: Way, report: &mut Report) {
    let rig = Rig::start(Needs::new(kind, way));
    let server = rig.server(SICK);
    assert_eq!(server.command(&["CONFIG", "SET", "lua-time-limit", "100"]).error(), None);
    // A loop takes a processor, and here are few: all others come first, but not so that it has none where they never rest.
    let pid = server.pid().and_then(|pid| Pid::from_raw(pid as i32));
    rustix::process::setpriority_process(pid, 10).expect("a priority");
    rig.pass(BEFORE);
    let fault_us = rig.now_us();
    let mut foreign = server.client().unwrap_or_else(|error| panic!("{error}"));
    foreign.send(&["EVAL", "while true do end", "0"]).unwrap_or_else(|error| panic!("{error}"));
    rig.pass(way.lasts(2_000, 8_000));
    let killed = server.command(&["SCRIPT", "KILL"]);
    assert_eq!(killed.text().as_deref(), Some("OK"), "{killed:?}");
    let well_us = rig.now_us();
    rig.pass(AFTER);
    let run = rig.finish();
    report.answers(&run, fault_us);
    report.opens(&run, &[SICK], fault_us);
    report.healthy(&run, &[SICK], fault_us);
    report.recovers(&run, &[SICK], well_us);
    report.exact(&run, Lost::NONE);
    report.charged(&run, Lost::NONE);
    let stats = run.rig.server(SICK).command(&["INFO", "commandstats"]).text().unwrap_or_default();
    let kills = stats.lines().find_map(|line| line.strip_prefix("cmdstat_script|kill:calls="));
    let kills = kills.and_then(|rest| rest.split(',').next()).unwrap_or("0");
    report.must(kills == "1", || format!("SCRIPT KILL was sent {kills} times, once by this test"));
}

/// A server without memory refuses every write. Nothing is charged, not even in part.
fn store_full(kind: Kind, way: Way, report: &mut Report) {
    let rig = Rig::start(Needs::new(kind, way));
    let server = rig.server(SICK);
    rig.pass(BEFORE);
    let fault_us = rig.now_us();
    assert_eq!(server.command(&["CONFIG", "SET", "maxmemory", "1"]).error(), None);
    // What was on its way is through.
    rig.pass(Duration::from_millis(100));
    let counters = || -> Vec<Vec<u8>> {
        let names: Vec<Vec<u8>> = server.keys().into_iter().filter(|name| name.starts_with(b"tg{")).collect();
        let mut all: Vec<Vec<u8>> = names.iter().map(|name| held(server, name)).collect();
        all.sort_unstable();
        all
    };
    let before = counters();
    rig.pass(way.lasts(1_500, 4_000));
    // Some may have expired since, but none may have changed or come.
    let changed = counters().into_iter().filter(|counter| before.binary_search(counter).is_err()).count();
    report.must(changed == 0, || format!("{changed} counters changed in a server that is full"));
    assert_eq!(server.command(&["CONFIG", "SET", "maxmemory", "0"]).error(), None);
    let well_us = rig.now_us();
    rig.pass(AFTER);
    let run = rig.finish();
    report.answers(&run, fault_us);
    report.healthy(&run, &[SICK], fault_us);
    report.recovers(&run, &[SICK], well_us);
    report.exact(&run, Lost::NONE);
    report.charged(&run, Lost::NONE);
    let both = run.rig.keys.iter().filter(|key| key.rule == Rule::Pair && key.place == SICK).count();
    report.must(both > 0, || "no request with two counters met the full server".into());
}

/// A name and what is there.
fn held(server: &Server, name: &[u8]) -> Vec<u8> {
    let value = match server.command(&[b"GET", name]) {
        Reply::Bytes(bytes) => bytes,
        _ => Vec::new(),
    };
    [name, b"=", &value].concat()
}

/// A store that throws counters away hands out fresh windows. Nobody sees that from the answers, so the node has to say it.
fn evicting_store(kind: Kind, way: Way, report: &mut Report) {
    let options = Options::new().line("maxmemory 4mb").line("maxmemory-policy allkeys-lru");
    let server = Server::start(kind, &options).unwrap_or_else(|error| panic!("{error}"));
    let mut url = server.url();
    if !way.has(Protection::Sight) {
        let words = ["ACL", "SETUSER", "blind", "on", ">blind", "~*", "&*", "+@all", "-config", "-info"];
        assert_eq!(server.command(&words).error(), None);
        url = url.replace("redis://", "redis://blind:blind@");
    }
    let rules = "domain: faults\ndescriptors:\n  - key: quota\n    rate_limit: { limit: 5/1h }\n";
    let node = Setup::new(rules).set("store-url", &url).start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let log = until("the node warns", WARNS_MAX, || match node.log() {
        log if log.contains("evict") => Ok(()),
        log => Err(log),
    });
    report.must(log.is_ok(), || "the node does not warn of a store that evicts".into());
    let told = runtime.block_on(async { Http::connect(node.http).await.get("/readyz?verbose").await });
    report.must(told.status == 200, || format!("it is not ready: {}", told.body));
    report.must(told.body.contains("evict"), || format!("/readyz?verbose does not tell: {}", told.body));
    let value = "x".repeat(10_000);
    for number in 0..1_000 {
        let reply = server.command(&["SET", &format!("foreign{number}"), &value]);
        assert_eq!(reply.error(), None);
    }
    let evicted = server.command(&["INFO", "stats"]).text().unwrap_or_default();
    assert!(!evicted.contains("evicted_keys:0\r"), "{evicted}");
    let seen = runtime.block_on(async {
        tokio::time::timeout(
            WARNS_MAX,
            support::until("it is told", async || {
                let count = node.metric("ratelimit_store_evicted_keys", "").await;
                (count > 0).then_some(count)
            }),
        )
        .await
    });
    report
        .must(seen.is_ok(), || "ratelimit_store_evicted_keys does not tell of keys that were evicted".into());
    report.figure("evicted", seen.unwrap_or(0));
}
