//! An auditor beside clients that never stop: whatever happens to the node, what they were told is what the counters hold.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use prost::Message as _;
use rustix::process::Signal;
use tokio::task::JoinHandle;

use crate::support::frames::{DATA, END_STREAM, Frames, GOAWAY, frame, head};
use crate::support::grpc::framed;
use crate::support::{Failed, Grpc, Http, Node, Setup, asks, descriptor, until};

/// The limit that is met, and one that is not.
fn rules(few: u64, more: &str) -> String {
    format!(
        "domain: shop\ndescriptors:\n  - key: few\n    rate_limit: {{ limit: {few}/1h, name: few }}\n  - key: many\n    \
         rate_limit: {{ limit: 4000000000/1h, name: many }}\n{more}"
    )
}

/// The callers whose counters are audited.
const CALLERS: [(&str, &str); 3] = [("few", "alice"), ("many", "alice"), ("many", "bob")];

/// What clients were told.
#[derive(Default)]
struct Ledger {
    /// Units that were admitted, by caller.
    admitted: [AtomicU64; 3],
    /// Calls of which nobody knows what became: they were taken back.
    unknown: [AtomicU64; 3],
    answered: AtomicU64,
    done: AtomicBool,
}

impl Ledger {
    fn goes_on(&self) -> bool {
        !self.done.load(Ordering::Relaxed)
    }

    fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    fn note(&self, caller: usize, units: u64, admitted: bool) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        if admitted {
            self.admitted[caller].fetch_add(units, Ordering::Relaxed);
        }
    }

    /// Compares with the counters: not a unit less than was admitted, and none more but for calls that were taken back.
    async fn audit(&self, node: &Node) {
        for (caller, (key, value)) in CALLERS.into_iter().enumerate() {
            let body = format!(r#"{{"descriptors":[{{"entries":[{{"key":"{key}","value":"{value}"}}]}}]}}"#);
            let used = node.used(&body).await[0];
            let admitted = self.admitted[caller].load(Ordering::Relaxed);
            let unknown = self.unknown[caller].load(Ordering::Relaxed);
            assert!(
                (admitted..=admitted + unknown).contains(&used),
                "{key}={value}: {used} units used, {admitted} admitted, {unknown} taken back"
            );
            assert!(admitted > 0, "{key}={value} was never admitted");
        }
    }
}

/// Calls over RLS on one connection, several at a time, until told to stop or the connection is ended. Gives how many calls broke.
fn call_rls(address: SocketAddr, ledger: &Arc<Ledger>) -> JoinHandle<u64> {
    let ledger = ledger.clone();
    tokio::spawn(async move {
        let rls = Arc::new(Grpc::connect(address).await);
        let callers: Vec<JoinHandle<u64>> = (0..6)
            .map(|at: usize| {
                let (rls, ledger) = (rls.clone(), ledger.clone());
                tokio::spawn(async move {
                    let (caller, units) = (at % 3, 1 + at as u64 / 3);
                    let mut one = descriptor(&[CALLERS[caller]]);
                    one.hits_addend = Some(units);
                    let request = asks("shop", [one]);
                    while ledger.goes_on() {
                        match rls.try_ask(&request, &[]).await {
                            Ok(response) => ledger.note(caller, units, response.overall_code == 1),
                            // It was not taken any more, and the client is told so.
                            Err(Failed::Broken(error)) if error.reason() == Some(h2::Reason::NO_ERROR) => {
                                break;
                            }
                            Err(_) => return 1,
                        }
                    }
                    0
                })
            })
            .collect();
        let mut broken = 0;
        for caller in callers {
            broken += caller.await.expect("a client");
        }
        broken
    })
}

/// The same over HTTP, one after the other.
fn call_http(address: SocketAddr, ledger: &Arc<Ledger>) -> JoinHandle<u64> {
    let ledger = ledger.clone();
    tokio::spawn(async move {
        let mut http = Http::connect(address).await;
        let mut caller = 0;
        while ledger.goes_on() {
            caller = (caller + 1) % 3;
            let (key, value) = CALLERS[caller];
            let body = format!(r#"{{"descriptors":[{{"entries":[{{"key":"{key}","value":"{value}"}}]}}]}}"#);
            let length = body.len();
            http.send(
                format!("POST /v1/check HTTP/1.1\r\nhost: n\r\ncontent-length: {length}\r\n\r\n{body}")
                    .as_bytes(),
            )
            .await;
            // A connection that is closed between two requests answers to none.
            let Some(answer) = http.reply(true).await else { break };
            ledger.note(caller, 1, answer.json()["allowed"] == true);
            if answer.header("connection") == "close" {
                break;
            }
        }
        0
    })
}

/// Calls that are taken back before they can be answered, among some that are not.
fn call_and_reset(address: SocketAddr, ledger: &Arc<Ledger>) -> JoinHandle<u64> {
    let ledger = ledger.clone();
    tokio::spawn(async move {
        let rls = Grpc::connect(address).await;
        let mut number = 0;
        while ledger.goes_on() {
            number += 1;
            let caller = number % 3;
            let message = framed(&asks("shop", [descriptor(&[CALLERS[caller]])]).encode_to_vec());
            let mut sender = rls.sender().ready().await.expect("a stream");
            let path = format!("http://node{}", crate::support::grpc::SHOULD_RATE_LIMIT);
            let request = http::Request::post(path).body(()).expect("a request");
            let (response, mut stream) = sender.send_request(request, false).expect("a stream");
            stream.send_data(message, true).expect("sent");
            ledger.unknown[caller].fetch_add(1, Ordering::Relaxed);
            if number % 4 == 0 {
                tokio::task::yield_now().await; // Now it is on its way, or even answered.
            }
            drop((response, stream));
            if number % 64 == 0 {
                rls.ask(&asks("shop", [descriptor(&[("nobody", "else")])])).await;
            }
        }
        0
    })
}

/// Waits for all clients; gives how many calls broke.
async fn finish(clients: Vec<JoinHandle<u64>>) -> u64 {
    let mut broken = 0;
    for client in clients {
        broken += crate::support::soon("a client", client).await.expect("a client");
    }
    broken
}

fn crowd(node: &Node, ledger: &Arc<Ledger>) -> Vec<JoinHandle<u64>> {
    let rls = (0..3).map(|_| call_rls(node.rls, ledger));
    rls.chain((0..2).map(|_| call_http(node.http, ledger))).collect()
}

#[tokio::test]
async fn rules_that_change_under_load_lose_no_charge_and_count_none_twice() {
    let node = Setup::new(&rules(3_000, "")).start();
    let ledger = Arc::new(Ledger::default());
    let clients = crowd(&node, &ledger);
    for swap in 1..=50 {
        let text = match swap % 10 {
            // A file with an error changes nothing.
            5 => "domain: shop\ndescriptors: nonsense\n".to_string(),
            // The limit goes up and down, others come and go, and the order changes.
            even @ (0 | 2 | 4 | 6 | 8) => {
                rules(3_000 + even, "  - key: new\n    rate_limit: { limit: 1/1s }\n")
            }
            _ => rules(2_000, "---\ndomain: other\ndescriptors: []\n"),
        };
        node.setup.write("rules/rules.yaml", &text);
        let before = ledger.answered();
        until("the rules are loaded", async || {
            (node.metric("tidegate_config_reloads_total", "").await > swap).then_some(())
        })
        .await;
        until("calls go on", async || (ledger.answered() > before).then_some(())).await;
    }
    ledger.done.store(true, Ordering::Relaxed);
    assert_eq!(finish(clients).await, 0, "calls that broke");
    assert_eq!(node.metric("tidegate_config_reload_failures_total", "").await, 5);
    ledger.audit(&node).await;
    let few = ledger.admitted[0].load(Ordering::Relaxed);
    assert!((2_000..=3_008).contains(&few), "{few} were admitted where at most 3008 may be");
}

#[tokio::test]
async fn a_node_that_ends_under_load_answers_what_it_took_and_goes_on_where_it_was() {
    let setup = Setup::new(&rules(500, "")).set("node-drain-delay", "200ms");
    let ledger = Arc::new(Ledger::default());
    let mut node = setup.start();
    for _ in 0..3 {
        let clients = crowd(&node, &ledger);
        let before = ledger.answered();
        until("calls come", async || (ledger.answered() > before + 500).then_some(())).await;
        let (code, log) = node.stop().await;
        assert_eq!(code, 0, "{log}");
        assert!(log.contains("counters saved for the next run"), "{log}");
        assert!(!log.contains("did not end in time"), "{log}");
        assert_eq!(finish(clients).await, 0, "calls that broke");
        node = setup.start();
        until("it is told", async || node.log().contains("counters of the last run loaded").then_some(()))
            .await;
        ledger.audit(&node).await;
    }
}

#[tokio::test]
async fn calls_that_are_taken_back_under_load_are_charged_once_or_not_at_all() {
    let node = Setup::new(&rules(500, "")).start();
    let ledger = Arc::new(Ledger::default());
    let mut clients = crowd(&node, &ledger);
    clients.extend((0..2).map(|_| call_and_reset(node.rls, &ledger)));
    until("many are taken back", async || {
        let unknown: u64 = ledger.unknown.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        (unknown > 5_000 && ledger.answered() > 2_000).then_some(())
    })
    .await;
    ledger.done.store(true, Ordering::Relaxed);
    assert_eq!(finish(clients).await, 0, "calls that broke");
    ledger.audit(&node).await;
}

#[tokio::test]
async fn a_node_that_ends_says_so_first_and_finishes_what_it_took() {
    // Long enough for all that is asked meanwhile, also if the machine sleeps for a moment.
    let node = Setup::new(&rules(500, "")).set("node-drain-delay", "4s").start();
    let (rls, mut http) = (node.rls().await, node.http().await);
    let mut waiting = Frames::connect(node.rls).await;
    assert!(waiting.send(&head(1)).await);
    node.signal(Signal::TERM);
    until("it is not ready", async || {
        let ready = http.get("/readyz").await;
        (ready.status == 503).then(|| assert_eq!(ready.body, "draining\n"))
    })
    .await;
    assert_eq!(http.get("/livez").await.status, 200);
    assert!(http.get("/readyz?verbose").await.body.starts_with("draining\n"));
    for service in ["", "envoy.service.ratelimit.v3.RateLimitService"] {
        let message = [&[10, service.len() as u8], service.as_bytes()].concat();
        let health = rls.call("/grpc.health.v1.Health/Check", &message, &[]).await.expect("a status");
        assert_eq!(health[..], [8, 2], "not serving");
    }
    // It is still asked, on connections old and new.
    let ask = asks("shop", [descriptor(&[CALLERS[0]])]);
    assert_eq!(rls.ask(&ask).await.overall_code, 1);
    assert_eq!(node.rls().await.ask(&ask).await.overall_code, 1);
    // Then everybody is asked to go. What was begun is finished, even if its message comes only now.
    assert!(waiting.find(GOAWAY, 0).await.is_some());
    assert!(waiting.send(&frame(DATA, END_STREAM, 1, &framed(&ask.encode_to_vec()))).await);
    assert!(waiting.find(DATA, 1).await.is_some());
    while waiting.next().await.is_some() {}
    let ended = crate::support::soon("the end", rls.connection).await.expect("a connection");
    assert!(ended.is_ok(), "{ended:?}");
    let (code, log) = node.ended().await;
    assert_eq!(code, 0, "{log}");
    let told = ["not ready any more, still serving", "counters saved for the next run", "ended"];
    let places: Vec<_> = told.iter().map(|told| log.find(told)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{log}");
    assert!(!log.contains("did not end in time"), "{log}");
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_and_a_keyboard_does_not_wait() {
    let setup = Setup::new(&rules(500, "")).set("node-drain-delay", "10m");
    let node = setup.start();
    node.signal(Signal::TERM);
    until("it is not ready", async || (node.http().await.get("/readyz").await.status == 503).then_some(()))
        .await;
    let (code, log) = node.stop().await;
    assert_eq!(code, 1);
    assert!(log.contains("told to end a second time: ending at once, counters are not saved"), "{log}");
    let node = setup.start();
    node.http().await.get("/livez").await;
    node.signal(Signal::INT);
    assert_eq!(node.ended().await.0, 0);
}

#[tokio::test]
async fn who_does_not_go_is_not_awaited_for_ever() {
    let node = Setup::new(&rules(500, "")).set("node-drain-timeout", "300ms").start();
    let mut stuck = Frames::connect(node.rls).await;
    assert!(stuck.send(&head(1)).await);
    let ask = asks("shop", [descriptor(&[CALLERS[0]])]);
    assert_eq!(node.rls().await.ask(&ask).await.overall_code, 1);
    let (code, log) = node.stop().await;
    assert_eq!(code, 0, "{log}");
}

#[tokio::test]
async fn a_crash_forgets_and_old_counters_are_not_used_twice() {
    let setup = Setup::new(&rules(500, ""));
    let few = r#"{"descriptors":[{"entries":[{"key":"few","value":"alice"}]}]}"#;
    let node = setup.start();
    node.http().await.post("/v1/check", few).await;
    assert_eq!(node.stop().await.0, 0);
    let node = setup.start();
    assert_eq!(node.used(few).await, [1]);
    drop(node); // Killed.
    let node = setup.start();
    assert_eq!(node.used(few).await, [0], "what was saved before is out of date by now");
    assert!(node.http().await.get("/readyz?verbose").await.body.contains("a crash forgets them"));
}

#[tokio::test]
async fn who_is_told_to_end_as_soon_as_it_runs_ends_in_good_order() {
    let setup = Setup::new(&rules(500, ""));
    for _ in 0..5 {
        let (code, log) = setup.start().stop().await;
        assert_eq!(code, 0, "{log}");
        assert!(log.contains("counters saved for the next run"), "{log}");
    }
}

#[tokio::test]
async fn a_start_that_fails_keeps_the_counters() {
    let setup = Setup::new("domain: shop\ndescriptors:\n  - key: api_key\n    rate_limit: { limit: 9/1h }\n");
    let node = setup.start();
    node.http().await.post("/v1/check", r#"{"clientId": "a", "cost": 4}"#).await;
    assert_eq!(node.stop().await.0, 0);
    let failed = setup.clone().set("internal-secrets-file", "nowhere").run_node();
    assert!(failed.code == 1 && failed.err.contains("internal.secrets_file"), "{failed:?}");
    let node = setup.start();
    assert_eq!(node.used(r#"{"clientId": "a"}"#).await, [4]);
    // And what cannot be read is kept for somebody who can.
    assert_eq!(node.stop().await.0, 0);
    setup.write("data/counters", "from another version");
    let node = setup.start();
    assert_eq!(node.used(r#"{"clientId": "a"}"#).await, [0]);
    assert!(setup.path().join("data/counters.rejected").exists());
}

#[tokio::test]
async fn a_hangup_does_not_end_a_node_with_demo_rules() {
    let mut node = Setup::demo().start();
    node.signal(rustix::process::Signal::HUP);
    until("it tells of it", async || node.log().contains("nothing to load again").then_some(())).await;
    assert!(node.is_running());
    assert_eq!(node.http().await.get("/readyz").await.status, 200);
}
