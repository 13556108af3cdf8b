//! Against real servers.

mod bed; // servers, and a proxy that cuts
mod clusters; // redirects
mod doors; // passwords, TLS, sockets, sentinels

use bed::*;

use super::*;
use crate::redis::settings::RedisSettings;

/// A busy machine may sleep for so long.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// A connection on which a call was late is given up after this, if nothing comes.
const SILENT: Duration = Duration::from_secs(1);
/// A server that refuses is left alone for this long at least.
const BACK_OFF_MIN: Duration = Duration::from_millis(150);

fn add(keys: &[&str]) -> Call {
    let keys = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
    Call { script: &ADD, op: "add", keys, argument: b"1".to_vec() }
}

fn count(wires: &Wires, word: &str) -> u64 {
    wires.servers.stats().errors.iter().find(|(known, _)| *known == word).unwrap().1
}

fn connections(wires: &Wires) -> u64 {
    wires.servers.stats().servers.iter().map(|server| server.connections).sum()
}

fn get(key: &str) -> Cmd {
    redis::cmd("GET").arg(key).take()
}

/// Many calls in one turn of the loop.
async fn at_once(wires: &Rc<Wires>, calls: usize) -> Vec<Result<Value, CallFailed>> {
    let tasks: Vec<_> = (0..calls)
        .map(|_| {
            let wires = wires.clone();
            tokio::task::spawn_local(async move { wires.call(0, &add(&["k"]), soon()).await })
        })
        .collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.unwrap());
    }
    results
}

#[test]
fn a_script_that_the_server_forgot_is_sent_once_more() {
    let server = Redis::start(&[]);
    run(async {
        let wires = wires(&server.url());
        assert_eq!(wires.call(0, &add(&["k"]), soon()).await, Ok(Value::Int(1)));
        assert_eq!(wires.call(0, &add(&["k"]), soon()).await, Ok(Value::Int(2)));
        assert_eq!((server.calls("eval"), count(&wires, "noscript")), (1, 1));
        server.ask::<()>("SCRIPT FLUSH");
        // All of them find it missing, and one body is enough for all.
        assert!(at_once(&wires, 50).await.iter().all(Result::is_ok));
        assert_eq!((server.number("k"), server.calls("eval"), count(&wires, "noscript")), (52, 2, 51));
        let stats = wires.servers.stats();
        assert_eq!(stats.servers.len(), 1);
        assert_eq!(
            (stats.servers[0].address.as_str(), stats.servers[0].connections),
            (&*format!("127.0.0.1:{}", server.port), 1)
        );
        let (op, times) = stats.servers[0].calls[0];
        assert_eq!((op, times.counts.iter().sum::<u64>()), ("add", 3 + 2 * 50));
        assert!(times.sum_us > 0);
    });
}

#[test]
fn calls_of_one_turn_go_out_in_one_write() {
    let server = Redis::start(&[]);
    run(async {
        let wires = wires(&server.url());
        assert!(wires.call(0, &add(&["k"]), soon()).await.is_ok());
        let connection = wires.connected()[0].open_one().unwrap();
        for (calls, writes_max) in [(50, 2), (500, 16)] {
            let before = connection.writes();
            assert!(at_once(&wires, calls).await.iter().all(Result::is_ok));
            let writes = connection.writes() - before;
            assert!(writes <= writes_max, "{calls} calls in {writes} writes");
        }
        assert_eq!(server.ask::<u64>("GET k"), 551);
    });
}

#[test]
fn a_charge_whose_reply_is_lost_is_not_sent_again() {
    for (manner, word) in [(Manner::Cut, "lost"), (Manner::Swallow, "timeout"), (Manner::Garble, "lost")] {
        let server = Redis::start(&[]);
        run(async {
            let proxy = Proxy::start(server.port).await;
            let wires = wires(&proxy.url());
            assert!(wires.call(0, &add(&["k"]), soon()).await.is_ok());
            proxy.manner.set(manner);
            // What is cut is known at once; what is swallowed has to be waited for, longer than a machine sleeps.
            let until = if manner == Manner::Swallow { Instant::now() + PAUSE_MAX } else { soon() };
            let result = wires.call(0, &add(&["k"]), until).await;
            assert!(
                matches!(&result, Err(CallFailed::Unknown(why)) if why.starts_with("127.0.0.1:")),
                "{result:?}"
            );
            assert_eq!(server.number("k"), 2, "charged once");
            assert_eq!(count(&wires, word), 1);
            proxy.manner.set(Manner::Pass);
            if manner == Manner::Swallow {
                return; // The connection is still there, and nobody knows whom the next reply belongs to but its place.
            }
            assert_eq!(wires.call(0, &add(&["k"]), soon()).await, Ok(Value::Int(3)), "on another connection");
            assert_eq!(proxy.accepted.get(), 2);
        });
    }
}

#[test]
fn a_call_that_never_left_goes_over_the_next_connection() {
    let server = Redis::start(&[]);
    run(async {
        let wires = wires(&server.url());
        assert_eq!(wires.call(0, &add(&["k"]), soon()).await, Ok(Value::Int(1)));
        let connection = wires.connected()[0].open_one().unwrap();
        // The call waits in the queue when the connection ends.
        let call = add(&["k"]);
        let (result, ()) = tokio::join!(biased; wires.call(0, &call, soon()), async { connection.close() });
        assert_eq!(result, Ok(Value::Int(2)));
        assert_eq!((server.number("k"), count(&wires, "lost")), (2, 0));
    });
}

#[test]
fn a_command_that_does_no_harm_is_sent_again() {
    let server = Redis::start(&[]);
    run(async {
        let proxy = Proxy::start(server.port).await;
        let wires = wires(&proxy.url());
        server.ask::<()>("SET k 7");
        assert!(wires.command(0, &get("k"), "get", soon()).await.is_ok());
        proxy.manner.set(Manner::Cut);
        let (accepted, manner) = (proxy.accepted.clone(), proxy.manner.clone());
        tokio::task::spawn_local(async move {
            // Whole again when the next connection is there, before it presents itself.
            while accepted.get() < 2 {
                tokio::task::yield_now().await;
            }
            manner.set(Manner::Pass);
        });
        assert_eq!(wires.command(0, &get("k"), "get", soon()).await, Ok(Value::BulkString(b"7".to_vec())));
        assert_eq!((proxy.accepted.get(), count(&wires, "lost")), (2, 1));
    });
}

#[test]
fn a_server_that_says_nothing_is_connected_to_anew() {
    let server = Redis::start(&[]);
    run(async {
        let proxy = Proxy::start(server.port).await;
        let wires = wires(&proxy.url());
        assert!(wires.command(0, &get("k"), "get", soon()).await.is_ok());
        proxy.manner.set(Manner::Swallow);
        let mut calls = 0;
        while connections(&wires) > 0 {
            assert!(calls < 3, "three calls are enough");
            let until = Instant::now() + Duration::from_millis(20);
            assert!(wires.command(0, &get("k"), "get", until).await.is_err());
            calls += 1;
        }
        assert_eq!(count(&wires, "timeout"), calls);
        proxy.manner.set(Manner::Pass);
        assert!(wires.command(0, &get("k"), "get", soon()).await.is_ok());

        // One call is enough if nothing comes for long.
        proxy.manner.set(Manner::Swallow);
        let from = Instant::now();
        assert!(wires.command(0, &get("k"), "get", from + Duration::from_millis(20)).await.is_err());
        let connections = connections(&wires);
        assert!(connections == 1 || from.elapsed() > SILENT, "{connections} after {:?}", from.elapsed());
        until_closed(&wires).await;
    });
}

async fn until_closed(wires: &Wires) {
    until("the connection is closed", || connections(wires) == 0).await;
}

#[test]
fn one_pause_of_a_server_ends_no_connection() {
    let server = Redis::start(&[]);
    run(async {
        let proxy = Proxy::start(server.port).await;
        let wires = wires(&proxy.url());
        assert!(wires.command(0, &get("k"), "get", soon()).await.is_ok());
        proxy.manner.set(Manner::Swallow);
        let from = Instant::now();
        let until = from + Duration::from_millis(20);
        let late: Vec<_> = (0..10)
            .map(|_| {
                let wires = wires.clone();
                tokio::task::spawn_local(async move { wires.command(0, &get("k"), "get", until).await })
            })
            .collect();
        for task in late {
            assert!(task.await.unwrap().is_err());
        }
        assert_eq!(count(&wires, "timeout"), 10);
        let connections = connections(&wires);
        assert!(connections == 1 || from.elapsed() > SILENT, "{connections} after {:?}", from.elapsed());
    });
}

#[test]
fn a_server_that_hangs_is_left_and_found_again() {
    let server = Redis::start(&[]);
    let echo = |word: &str| redis::cmd("ECHO").arg(word).take();
    let is = |word: &str| Ok(Value::BulkString(word.as_bytes().to_vec()));
    let shortly = || Instant::now() + Duration::from_millis(20);
    run(async {
        let wires = wires(&server.url());
        assert_eq!(wires.command(0, &echo("a"), "echo", soon()).await, is("a"));
        server.signal("STOP");
        assert!(wires.command(0, &echo("late"), "echo", shortly()).await.is_err());
        server.signal("CONT");
        assert_eq!(wires.command(0, &echo("b"), "echo", soon()).await, is("b"), "and not what is late");

        server.signal("STOP");
        let mut unknown = 0;
        let end = soon();
        // Connections are still accepted, by the machine; they are given up before they are used.
        while !matches!(wires.command(0, &echo("c"), "echo", shortly()).await, Err(CallFailed::NotDone(_))) {
            unknown += 1;
            assert!(Instant::now() < end, "calls are still sent");
        }
        assert!(unknown <= 3, "{unknown} calls were sent to a server that hangs");
        server.signal("CONT");
        while wires.command(0, &echo("d"), "echo", end).await != is("d") {
            assert!(Instant::now() < end, "not found again");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn a_server_that_refuses_is_left_alone_for_a_while() {
    let port = free_port();
    run(async {
        let wires = wires(&format!("redis://127.0.0.1:{port}"));
        // Ready when it is looked at for the first time: it waits for nothing. (Unless the machine has slept since the first.)
        let next = loop {
            let first = wires.call(0, &add(&["k"]), soon()).await;
            let tried = Instant::now();
            assert!(
                matches!(&first, Err(CallFailed::NotDone(why)) if why.contains("cannot connect to 127.0.0.1")),
                "{first:?}"
            );
            let next = tokio::time::timeout(Duration::ZERO, wires.call(0, &add(&["k"]), soon())).await;
            match next {
                Ok(next) => break next,
                Err(_) => assert!(tried.elapsed() > BACK_OFF_MIN, "it is not told at once"),
            }
        };
        assert!(
            matches!(&next, Err(CallFailed::NotDone(why)) if why.contains("tried again in ")),
            "{next:?}"
        );
        assert!(count(&wires, "connect") >= 1);
    });
}

#[test]
fn a_server_that_comes_back_is_found() {
    let mut server = Redis::start(&[]);
    run(async {
        let wires = wires(&server.url());
        assert!(wires.call(0, &add(&["k"]), soon()).await.is_ok());
        server.kill();
        until_closed(&wires).await;
        assert!(matches!(wires.call(0, &add(&["k"]), soon()).await, Err(CallFailed::NotDone(_))));
        server.restart();
        let end = soon();
        while wires.call(0, &add(&["k"]), end).await.is_err() {
            assert!(Instant::now() < end, "not found again");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(server.number("k"), 1);
    });
}

#[test]
fn a_server_that_flaps_is_not_connected_to_all_the_time() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let wires = wires(&format!("redis://{}", listener.local_addr().unwrap()));
        let accepted = Rc::new(Cell::new(0_u32));
        let counted = accepted.clone();
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.set(counted.get() + 1);
                drop(stream);
            }
        });
        let from = Instant::now();
        while from.elapsed() < Duration::from_secs(2) {
            let result = wires.call(0, &add(&["k"]), soon()).await;
            assert!(matches!(result, Err(CallFailed::NotDone(_))), "{result:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (accepted, most) = (accepted.get(), 2 + (4.0 * from.elapsed().as_secs_f64()).ceil() as u32);
        assert!((2..=most).contains(&accepted), "{accepted} connects, {most} allowed");
    });
}

#[test]
fn each_thread_may_connect_at_once_and_then_seldom() {
    let servers = Servers::new(RedisSettings::of_url("redis://h").unwrap());
    let server = servers.map().primary(0).unwrap().clone();
    let from = Instant::now();
    for threads in [1, 16] {
        let paid = server.may_connect(threads).map(|permit| permit.succeeded());
        assert!(paid.is_ok());
    }
    let allowed = (0..100).filter(|_| server.may_connect(16).is_ok()).count();
    // One more for every quarter of a second that the machine has slept.
    let most = 14 + (4.0 * from.elapsed().as_secs_f64()) as usize;
    assert!((14..=most).contains(&allowed), "{allowed}, not 16 with the two before");
}

#[test]
fn a_script_that_breaks_off_may_have_done_something() {
    static HALF: Script =
        Script::new("redis.call('INCRBY', KEYS[1], ARGV[1]); return redis.call('LPUSH', KEYS[1], '1')");
    let server = Redis::start(&[]);
    run(async {
        let wires = wires(&server.url());
        let half = Call { script: &HALF, ..add(&["k"]) };
        let result = wires.call(0, &half, soon()).await;
        assert!(matches!(&result, Err(CallFailed::Unknown(why)) if why.contains("WRONGTYPE")), "{result:?}");
        assert_eq!((server.number("k"), count(&wires, "script")), (1, 1));
        let refused = wires.command(0, redis::cmd("LPUSH").arg("k").arg("1"), "push", soon()).await;
        assert!(
            matches!(&refused, Err(CallFailed::NotDone(why)) if why.contains("WRONGTYPE")),
            "{refused:?}"
        );

        // Full from the start: nothing was done, and the message says what helps.
        server.ask::<()>("CONFIG SET maxmemory 1");
        let full = wires.call(0, &add(&["k"]), soon()).await;
        assert!(
            matches!(&full, Err(CallFailed::NotDone(why)) if why.contains("; raise its maxmemory")),
            "{full:?}"
        );
        assert_eq!(count(&wires, "oom"), 1);
    });
}

#[test]
fn a_replica_says_so() {
    let primary = Redis::start(&[]);
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &primary.port.to_string()]);
    run(async {
        let wires = wires(&replica.url());
        let result = wires.call(0, &add(&["k"]), soon()).await;
        assert!(
            matches!(&result, Err(CallFailed::NotDone(why)) if why.contains("name the primary")),
            "{result:?}"
        );
        assert_eq!(count(&wires, "readonly"), 1);
        // The name is looked up again: the connection ends once nobody waits on it.
        let until = soon();
        while connections(&wires) > 0 {
            assert!(Instant::now() < until, "the connection stays");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn whoever_has_no_time_left_sends_nothing() {
    let server = Redis::start(&[]);
    run(async {
        let wires = wires(&server.url());
        assert!(wires.call(0, &add(&["k"]), soon()).await.is_ok());
        assert!(matches!(wires.call(0, &add(&["k"]), Instant::now()).await, Err(CallFailed::NotDone(_))));
        assert_eq!(server.number("k"), 1);
    });
}
