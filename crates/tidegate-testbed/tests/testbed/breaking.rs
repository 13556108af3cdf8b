//! The proxy: it breaks what it says, where it says.

use std::net::TcpStream;
use std::time::Duration;

use tidegate_clock::Stopwatch;
use tidegate_testbed::{Client, Kind, Options, Proxy, Reply, Server, Way};

fn ok<T>(result: Result<T, String>) -> T {
    result.unwrap_or_else(|reason| panic!("{reason}"))
}

fn bench() -> (Server, Proxy) {
    let server = ok(Server::start(Kind::Redis, &Options::new()));
    let proxy = ok(Proxy::start(server.address()));
    (server, proxy)
}

const INCR: [&str; 2] = ["INCR", "a"];

fn charged(server: &Server) -> i64 {
    server.command(&["GET", "a"]).integer().unwrap_or(0)
}

/// A pipeline of these many, and the replies that arrived.
fn pipeline(client: &mut Client, count: usize) -> Vec<i64> {
    (0..count).for_each(|_| client.send(&INCR).unwrap_or_default()); // It may be cut by now.
    let replies = (0..count).map_while(|_| client.reply().ok());
    replies.map(|reply| reply.integer().expect("a number")).collect()
}

#[test]
fn what_is_not_broken_passes_and_is_counted() {
    let (server, proxy) = bench();
    let (mut first, mut second) =
        (ok(Client::connect(proxy.address())), ok(Client::connect(proxy.address())));
    assert_eq!(pipeline(&mut first, 100), (1..=100).collect::<Vec<_>>());
    assert_eq!(pipeline(&mut second, 1), [101]);
    let large = vec![b'x'; 3 << 20];
    assert_eq!(second.command(&[b"ECHO", &large[..]]), Ok(Reply::Bytes(large.clone())));
    let counts = proxy.counts();
    assert_eq!((counts.connections, counts.commands, counts.replies, counts.cuts), (2, 102, 102, 0));
    let each: Vec<_> =
        proxy.connections().iter().map(|one| (one.commands, one.replies, one.is_open)).collect();
    assert_eq!(each, [(100, 100, true), (2, 2, true)]);
    proxy.count_only(&["incr"]);
    assert_eq!(second.command(&["PING"]), Ok(Reply::Status("PONG".into())));
    assert_eq!(second.command(&INCR), Ok(Reply::Integer(102)));
    assert_eq!(proxy.counts().commands, 103);
    drop(first);
    let server_sees = || server.command(&["INFO", "clients"]).text().unwrap_or_default();
    ok(tidegate_testbed::until("the other end is closed", Duration::from_secs(10), || {
        // The second, and the one that asks.
        if server_sees().contains("connected_clients:2\r") { Ok(()) } else { Err(server_sees()) }
    }));
}

#[test]
fn after_a_command_means_carried_out_and_not_answered() {
    for n in 1..=5 {
        let (server, proxy) = bench();
        proxy.cut_after_command(n);
        let mut client = ok(Client::connect(proxy.address()));
        let answered = pipeline(&mut client, 3);
        let passed = n.min(4) as i64 - 1;
        assert_eq!(
            answered,
            (1..=passed).collect::<Vec<_>>(),
            "the earlier ones are answered, cut after {n}"
        );
        if n <= 3 {
            // Those behind it in the same pipeline may have been carried out, too.
            assert!(
                (n as i64..=3).contains(&charged(&server)),
                "{} charged, cut after {n}",
                charged(&server)
            );
            assert_eq!(proxy.counts().cuts, 1);
            assert!(client.command(&INCR).is_err());
        } else {
            assert_eq!((charged(&server), proxy.counts().cuts), (3, 0), "not yet");
        }
    }
    // One by one, there is nothing behind it.
    let (server, proxy) = bench();
    let mut client = ok(Client::connect(proxy.address()));
    assert_eq!(client.command(&INCR), Ok(Reply::Integer(1)));
    proxy.cut_after_command(1);
    assert!(client.command(&INCR).is_err());
    assert_eq!(charged(&server), 2);
}

#[test]
fn before_a_command_means_never_carried_out() {
    for n in 1..=3 {
        let (server, proxy) = bench();
        proxy.cut_before_command(n);
        let mut client = ok(Client::connect(proxy.address()));
        let passed = n as i64 - 1;
        assert_eq!(pipeline(&mut client, 3), (1..=passed).collect::<Vec<_>>(), "cut before {n}");
        proxy.wait("the cut", |counts| counts.cuts == 1);
        assert_eq!((charged(&server), proxy.counts().commands), (passed, n - 1));
        assert_eq!(
            ok(Client::connect(proxy.address())).command(&INCR),
            Ok(Reply::Integer(n as i64)),
            "once only"
        );
    }
}

#[test]
fn a_reply_that_is_swallowed_silences_its_connection_alone() {
    let (server, proxy) = bench();
    proxy.swallow_replies(2);
    let mut client = ok(Client::connect(proxy.address()));
    assert_eq!(client.command(&INCR), Ok(Reply::Integer(1)));
    ok(client.send(&INCR));
    proxy.wait("a reply is swallowed", |counts| counts.replies == 2);
    proxy.swallow_replies(0);
    ok(client.send(&INCR));
    proxy.wait("the next command is still carried out", |counts| counts.replies == 3);
    assert_eq!(charged(&server), 3);
    assert_eq!(ok(Client::connect(proxy.address())).command(&INCR), Ok(Reply::Integer(4)));
    assert!(proxy.connections().iter().all(|one| one.is_open));
    proxy.cut_all();
    assert_eq!(client.reply(), Err("the server closed the connection".into()), "not a byte more had come");
}

#[test]
fn replies_are_truncated_and_flipped() {
    let (_server, proxy) = bench();
    let mut client = ok(Client::connect(proxy.address()));
    proxy.flip_reply(2, 1, 0x01);
    assert_eq!(client.command(&["ECHO", "x"]), Ok(Reply::Bytes(b"x".into())));
    assert_eq!(client.command(&["INCR", "b"]), Ok(Reply::Integer(0)), "1 became 0");
    assert_eq!(client.command(&["INCR", "b"]), Ok(Reply::Integer(2)), "once only");
    proxy.truncate_reply(1, 6);
    assert!(client.command(&["ECHO", "four"]).is_err_and(|reason| reason.contains("lost")));
    assert_eq!(proxy.counts().cuts, 1);
}

#[test]
fn a_reply_that_is_dropped_leaves_its_place_to_the_next() {
    let (_server, proxy) = bench();
    let mut client = ok(Client::connect(proxy.address()));
    proxy.drop_reply(2);
    for number in ["1", "2", "3"] {
        ok(client.send(&["ECHO", number]));
    }
    assert_eq!(client.reply(), Ok(Reply::Bytes(b"1".into())));
    assert_eq!(client.reply(), Ok(Reply::Bytes(b"3".into())), "the answer to another question");
    assert_eq!(client.command(&["ECHO", "4"]), Ok(Reply::Bytes(b"4".into())), "once only");
}

#[test]
fn the_door_is_shut_and_opened_and_leads_elsewhere() {
    let (server, proxy) = bench();
    let mut inside = ok(Client::connect(proxy.address()));
    assert_eq!(inside.command(&INCR), Ok(Reply::Integer(1)));
    proxy.refuse(true);
    let refused = TcpStream::connect(proxy.address()).map(drop).map_err(|error| error.kind());
    assert_eq!(refused, Err(std::io::ErrorKind::ConnectionRefused));
    assert_eq!(inside.command(&INCR), Ok(Reply::Integer(2)), "who is inside stays");
    proxy.refuse(false);
    assert_eq!(ok(Client::connect(proxy.address())).command(&INCR), Ok(Reply::Integer(3)));
    let other = ok(Server::start(Kind::Redis, &Options::new()));
    proxy.set_target(other.address());
    assert_eq!(ok(Client::connect(proxy.address())).command(&INCR), Ok(Reply::Integer(1)), "another server");
    assert_eq!(charged(&server), 3);
    let address = proxy.address();
    drop(proxy);
    assert!(TcpStream::connect(address).is_err());
    assert!(inside.command(&INCR).is_err());
}

#[test]
fn a_black_hole_passes_nothing_and_forgets_nothing() {
    let (server, proxy) = bench();
    let mut client = ok(Client::connect(proxy.address()));
    assert_eq!(client.command(&INCR), Ok(Reply::Integer(1)));
    proxy.black_hole(Way::ToClient, true);
    ok(client.send(&INCR));
    ok(tidegate_testbed::until("it is carried out", Duration::from_secs(10), || {
        if charged(&server) == 2 { Ok(()) } else { Err("not yet".into()) }
    }));
    assert_eq!(proxy.counts().replies, 1);
    proxy.black_hole(Way::ToClient, false);
    assert_eq!(client.reply(), Ok(Reply::Integer(2)));
    proxy.black_hole(Way::ToServer, true);
    ok(client.send(&INCR));
    let mut second = ok(Client::connect(proxy.address()));
    ok(second.send(&["PING"]));
    proxy.wait("connections can still be made", |counts| counts.connections == 2);
    assert_eq!((charged(&server), proxy.counts().commands), (2, 2));
    proxy.cut_all();
    assert!(client.reply().is_err() && second.reply().is_err());
    proxy.black_hole(Way::ToServer, false);
    assert_eq!(charged(&server), 2, "what was held went with its connection");
}

#[test]
fn a_connection_that_is_reset_is_told_so() {
    use std::io::Read as _;

    let (server, proxy) = bench();
    let mut stream = ok(std::net::TcpStream::connect(proxy.address()).map_err(|error| error.to_string()));
    proxy.wait("it is connected", |counts| counts.connections == 1);
    ok(stream.set_read_timeout(Some(Duration::from_secs(10))).map_err(|error| error.to_string()));
    proxy.reset_all();
    let told = stream.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(told, Err(std::io::ErrorKind::ConnectionReset), "and not the end of the stream");
    assert_eq!(proxy.counts().cuts, 1);
    assert_eq!(ok(Client::connect(proxy.address())).command(&INCR), Ok(Reply::Integer(1)));
    assert_eq!(charged(&server), 1);
}

#[test]
fn a_delay_holds_back_each_message_and_not_their_number() {
    let (_server, proxy) = bench();
    let mut client = ok(Client::connect(proxy.address()));
    proxy.delay(Way::ToServer, Duration::from_millis(200));
    proxy.delay(Way::ToClient, Duration::from_millis(100));
    let watch = Stopwatch::start();
    assert_eq!(pipeline(&mut client, 100).len(), 100);
    let took = watch.elapsed();
    assert!(took >= Duration::from_millis(300), "{took:?}");
    assert!(took < Duration::from_secs(5), "one after the other it would be 30 s, not {took:?}");
}
