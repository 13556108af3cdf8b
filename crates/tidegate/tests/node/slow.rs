//! Clients that hold what others need: sockets that say nothing, bodies that do not come, more connections than there are places or file
//! handles.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_clock::Stopwatch;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Grpc, Http, Node, Setup, asks, descriptor, soon, until};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { limit: 1000000/1h }
";

const BODY: &str = r#"{"descriptors":[{"entries":[{"key":"user","value":"a"}]}]}"#;

/// Room for the sockets of this process.
fn allow_files(count: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        let raised = Rlimit { current: Some(count), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised).expect("a limit of file handles that can be raised");
    }
}

async fn sockets(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut sockets = Vec::new();
    for _ in 0..count {
        sockets.push(soon("a connection", TcpStream::connect(address)).await.expect("a connection"));
    }
    sockets
}

/// Waits until the other side closes a socket, in whichever way.
async fn closed(socket: &mut TcpStream) {
    let mut bytes = [0; 1_024];
    while let Ok(1..) = soon("the end", socket.read(&mut bytes)).await {}
}

#[tokio::test]
async fn two_thousand_slow_sockets_hurt_nobody_and_are_closed() {
    allow_files(8_192);
    let node = Setup::new(RULES).set("http-idle-timeout", "2s").start();
    let mut slow = sockets(node.rls, 1_000).await;
    slow.extend(sockets(node.http, 1_000).await);
    let watch = Stopwatch::start();
    for (at, socket) in slow.iter_mut().enumerate() {
        if at % 2 == 0 {
            socket.write_all(b"P").await.expect("sent"); // With this both protocols may begin.
        }
    }
    let (rls, mut http) = (node.rls().await, node.http().await);
    for _ in 0..100 {
        assert_eq!(rls.ask(&asks("shop", [descriptor(&[("user", "a")])])).await.overall_code, 1);
        assert_eq!(http.post("/v1/check", BODY).await.status, 200);
    }
    for socket in &mut slow {
        closed(socket).await;
    }
    // Five seconds are promised, and two for those of HTTP; the machine may be busy.
    assert!(watch.elapsed() < Duration::from_secs(30), "{:?}", watch.elapsed());
    until("their places come back", async || {
        let open = node.metric("tidegate_connections", "").await;
        (open <= 3).then_some(())
    })
    .await;
    assert_eq!(
        rls.ask(&asks("shop", [descriptor(&[("user", "a")])])).await.overall_code,
        1,
        "it waits, and is served"
    );
}

#[tokio::test]
async fn a_connection_that_asks_nothing_more_is_closed() {
    let node = Setup::new(RULES).set("http-idle-timeout", "1s").start();
    let mut http = node.http().await;
    assert_eq!(http.post("/v1/check", BODY).await.status, 200);
    assert_eq!(http.closed().await, b"", "closed without a word");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_awaited_for_ever() {
    let node = Node::start(RULES);
    let (mut none, mut drops) = (node.http().await, node.http().await);
    let head = b"POST /v1/check HTTP/1.1\r\nhost: node\r\ncontent-length: 100\r\n\r\n";
    none.send(head).await;
    drops.send(head).await;
    let trickle = async {
        // A byte now and then makes no difference.
        for _ in 0..60 {
            drops.send(b" ").await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let first = tokio::select! {
        answer = none.reply(true) => answer,
        () = trickle => None,
    };
    let answer = first.expect("an answer");
    assert_eq!(answer.status, 408);
    assert_eq!(answer.json()["error"]["message"], "the body did not come in time");
    assert_eq!(drops.reply(true).await.map(|answer| answer.status), Some(408));
}

#[tokio::test]
async fn without_file_handles_it_sheds_and_recovers() {
    allow_files(8_192);
    let mut node = Node::start(RULES);
    let (rls, mut http) = (node.rls().await, node.http().await);
    let ask = asks("shop", [descriptor(&[("user", "a")])]);
    rls.ask(&ask).await;
    assert_eq!(http.get("/livez").await.status, 200);
    node.limit_files(128);
    let mut crowd = sockets(node.rls, 100).await;
    crowd.extend(sockets(node.http, 100).await);
    // Who is in is served, and who finds no room is told so: closed, not left to wait.
    for _ in 0..20 {
        assert_eq!(rls.ask(&ask).await.overall_code, 1);
        assert_eq!(http.post("/v1/check", BODY).await.status, 200);
    }
    let mut late = soon("a connection", TcpStream::connect(node.http)).await.expect("a connection");
    closed(&mut late).await;
    assert!(node.is_running());
    drop(crowd);
    let served = until("it serves again", async || {
        let mut stream = TcpStream::connect(node.http).await.ok()?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n").await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        text.starts_with("HTTP/1.1 200").then_some(text)
    })
    .await;
    assert!(served.ends_with("ok\n"));
    assert_eq!(node.rls().await.ask(&ask).await.overall_code, 1);
    assert!(node.metric("tidegate_connections_refused_total", "reason=\"too_many\"").await > 0);
}

#[tokio::test]
async fn a_peer_has_so_many_connections_and_no_more() {
    let node =
        Setup::new(RULES).set("http-connections-per-peer-max", "3").set("rls-connections-max", "2").start();
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut http = node.http().await;
        assert_eq!(http.get("/livez").await.status, 200);
        open.push(http);
    }
    let mut fourth = soon("a connection", TcpStream::connect(node.http)).await.expect("a connection");
    closed(&mut fourth).await;
    assert_eq!(open[0].get("/livez").await.status, 200, "who is in stays in");
    open.pop();
    until("the place comes back", async || {
        let mut http = Http::connect(node.http).await;
        http.send(b"GET /livez HTTP/1.1\r\nhost: node\r\n\r\n").await;
        http.reply(true).await.filter(|answer| answer.status == 200)
    })
    .await;

    let ask = asks("shop", [descriptor(&[("user", "a")])]);
    let (one, two) = (node.rls().await, node.rls().await);
    for rls in [&one, &two] {
        assert_eq!(rls.ask(&ask).await.overall_code, 1);
    }
    let third = Grpc::connect(node.rls).await;
    assert!(third.try_ask(&ask, &[]).await.is_err());
    assert!(soon("the end", third.connection).await.is_ok());
    let (_, metrics) = (open.pop(), open[0].get("/metrics").await.body);
    let refused = |server: &str| {
        let row = format!("tidegate_connections_refused_total{{server=\"{server}\",reason=\"too_many\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&row)?.parse::<u64>().ok()).unwrap_or(0)
    };
    assert!(refused("http") >= 1 && refused("rls") == 1, "{} {}", refused("http"), refused("rls"));
}

#[tokio::test]
async fn an_old_connection_is_asked_to_end_and_its_calls_are_answered() {
    let node = Setup::new(RULES).set("rls-connection-age", "1s").start();
    // A connection is looked at after its greeting; then its age counts.
    let mut rls = node.rls().await;
    let ask = asks("shop", [descriptor(&[("user", "a")])]);
    let watch = Stopwatch::start();
    let (mut answered, mut renewed) = (0, 0);
    while renewed == 0 {
        match rls.try_ask(&ask, &[]).await {
            Ok(response) => {
                assert_eq!(response.overall_code, 1);
                answered += 1;
            }
            Err(crate::support::Failed::Broken(error)) => {
                assert!(error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR), "{error}");
                rls = node.rls().await;
                renewed += 1;
            }
            Err(error) => panic!("{error:?}"),
        }
        assert!(watch.elapsed() < crate::support::SOON, "it was never asked");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(rls.ask(&ask).await.overall_code, 1);
    assert_eq!(node.used(BODY).await, [answered + 1], "every charge was answered");
}
