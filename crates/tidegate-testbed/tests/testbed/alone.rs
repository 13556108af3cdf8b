//! One server: it starts, answers, can be stopped and moved in time, and is gone afterwards.

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use tidegate_testbed::{Client, Kind, Options, Reply, Server, ServerClock, until};

fn start(kind: Kind, options: &Options) -> Server {
    Server::start(kind, options).unwrap_or_else(|reason| panic!("{reason}"))
}

/// Exists, and has not ended: who has ended and was not asked how is still listed.
fn is_running(pid: u32) -> bool {
    let about = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    about.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

#[test]
fn a_server_of_each_kind_starts_answers_and_is_gone_after_its_end() {
    for kind in Kind::ALL {
        let server = start(kind, &Options::new().line("maxmemory 100mb"));
        assert_eq!(server.command(&["SET", "a", "1", "PX", "60000"]), Reply::Status("OK".into()));
        assert_eq!(server.command(&["SET", "b", "1"]), Reply::Status("OK".into()));
        assert_eq!(server.command(&["SET", "c", "1"]), Reply::Status("OK".into()));
        let mut keys = server.keys();
        keys.sort();
        assert_eq!(keys, [b"a", b"b", b"c"]);
        assert_eq!(server.immortal_keys(&["c"]), [b"b"]);
        let memory = server.command(&["CONFIG", "GET", "maxmemory"]);
        assert_eq!(memory.items()[1].integer(), Some(100 << 20));
        let mut client = Client::connect(server.address()).expect("a connection");
        assert_eq!(client.command(&["EVAL", "return {1,'a',false}", "0"]), {
            Ok(Reply::Array(vec![Reply::Integer(1), Reply::Bytes(b"a".into()), Reply::Nil]))
        });
        assert!(
            server
                .command(&["NO-SUCH"])
                .error()
                .is_some_and(|error| error.starts_with("ERR unknown command"))
        );
        let sha = server.command(&["SCRIPT", "LOAD", "return 1"]).text().expect("a hash");
        server.script_flush();
        assert_eq!(server.command(&["SCRIPT", "EXISTS", &sha]), Reply::Array(vec![Reply::Integer(0)]));

        let (address, folder, pid) =
            (server.address(), server.folder().to_path_buf(), server.pid().expect("runs"));
        assert!(is_running(pid) && folder.exists());
        drop(server);
        assert!(!is_running(pid) && !folder.exists());
        assert!(TcpStream::connect(address).is_err());
    }
}

#[test]
fn a_server_is_killed_stopped_and_restarted_where_it_was() {
    let server = start(Kind::Redis, &Options::new());
    let (address, first) = (server.address(), server.pid());
    server.command(&["SET", "a", "1"]);
    server.kill();
    assert!(!server.is_awake() && server.pid().is_none());
    assert!(server.try_command(&["PING"]).is_err());
    server.restart().expect("started again");
    assert_eq!((server.address(), server.keys()), (address, vec![]), "empty, at the same place");
    assert_ne!(server.pid(), first);

    let mut client = server.client().expect("a connection");
    server.stop();
    assert!(!server.is_awake());
    client.send(&["PING"]).expect("sent");
    server.cont();
    assert_eq!(client.reply(), Ok(Reply::Status("PONG".into())));
    server.stop(); // A server that is stopped can be ended, too.
}

#[test]
fn only_those_who_are_known_are_let_in() {
    let options = [Options::new().password("a b@c"), Options::new().user("tide", "a b@c")];
    for (options, url) in options.iter().zip([":a%20b%40c@", "tide:a%20b%40c@"]) {
        let server = start(Kind::Redis, options);
        assert_eq!(server.url(), format!("redis://{url}{}", server.address()));
        assert_eq!(server.command(&["PING"]), Reply::Status("PONG".into()));
        let stranger = Client::connect(server.address()).and_then(|mut client| client.command(&["PING"]));
        assert!(stranger.is_ok_and(|reply| reply.error().is_some_and(|error| error.starts_with("NOAUTH"))));
    }
}

#[test]
fn a_server_with_tls_understands_nothing_else() {
    let server = start(Kind::Redis, &Options::new().mutual_tls());
    assert!(server.url().starts_with("rediss://"));
    let files = server.tls().expect("files");
    for file in [&files.ca, &files.certificate, &files.key, &files.client_certificate, &files.client_key] {
        assert!(file.exists());
    }
    let plain = Client::connect(server.address()).and_then(|mut client| client.command(&["PING"]));
    assert!(plain.is_err(), "{plain:?}");
    assert_eq!(server.command(&["PING"]), Reply::Status("PONG".into()), "by its Unix socket");
    let handshake = std::process::Command::new("redis-cli")
        .args(["-p", &server.address().port().to_string(), "--tls", "--cacert"])
        .arg(&files.ca)
        .arg("--cert")
        .arg(&files.client_certificate)
        .arg("--key")
        .arg(&files.client_key)
        .arg("PING")
        .output();
    let handshake = handshake.expect("redis-cli comes with redis-server");
    assert_eq!(String::from_utf8_lossy(&handshake.stdout), "PONG\n", "{handshake:?}");
}

#[test]
fn who_cannot_start_says_why() {
    let refused = Server::start(Kind::Redis, &Options::new().line("no-such-setting yes"));
    let reason = refused.err().expect("no server");
    assert!(reason.contains("ended with") && reason.contains("no-such-setting"), "{reason}");
    let first = start(Kind::Redis, &Options::new());
    let second = Server::start(Kind::Redis, &Options::new().port(first.address().port()));
    let reason = second.err().expect("no server");
    assert!(reason.contains("Address already in use"), "{reason}");
}

/// Its time less ours, in µs.
fn ahead_us(server: &Server) -> i64 {
    let reply = server.command(&["TIME"]);
    let [seconds, micros] = reply.items() else { panic!("{reply:?}") };
    let now_us = tidegate_clock::Clock::real().wall_now_us() as i64;
    seconds.integer().expect("seconds") * 1_000_000 + micros.integer().expect("microseconds") - now_us
}

#[test]
fn the_time_of_a_running_server_moves_both_ways() {
    for kind in Kind::ALL {
        let clock = ServerClock::new().unwrap_or_else(|reason| panic!("{reason}"));
        let server = start(kind, &Options::new().clock(&clock));
        for offset_s in [0_i64, 5, -5, 3600, -3600, 0] {
            // Not a whole second: what is less must arrive, too.
            let offset_us = offset_s * 1_000_000 - 600_000;
            clock.shift(offset_us, &[&server]).unwrap_or_else(|reason| panic!("{reason}"));
            let off_us = ahead_us(&server) - offset_us;
            assert!(off_us.abs() < 2_000_000, "{kind:?} is {off_us} µs from {offset_s} s ahead");
        }
        server.command(&["SET", "a", "1", "PX", "3000000"]);
        clock.shift(3600 * 1_000_000, &[&server]).expect("moved");
        assert_eq!(server.command(&["GET", "a"]), Reply::Nil, "what was to expire has expired");
    }
}

/// Starts a server and waits to be killed: run by [`a_server_does_not_outlive_its_test`] in a process of its own.
#[test]
fn a_test_that_never_ends_its_server() {
    let Some(told) = std::env::var_os("TESTBED_TELL") else { return };
    let server = start(Kind::Redis, &Options::new());
    let told = Path::new(&told);
    let text = format!("{} {}", server.pid().expect("runs"), server.folder().display());
    std::fs::write(told.with_extension("part"), text).expect("written");
    std::fs::rename(told.with_extension("part"), told).expect("told");
    let _ = until("nothing", Duration::from_secs(60), || Err::<(), _>("waits to be killed".to_string()));
}

#[test]
fn a_server_does_not_outlive_its_test() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = folder.path().join("told");
    let mut test = std::process::Command::new(std::env::current_exe().expect("this program"));
    test.args(["--exact", "alone::a_test_that_never_ends_its_server"]).env("TESTBED_TELL", &told);
    let mut test = test.stdout(std::process::Stdio::null()).spawn().expect("started");
    let text = until("its server runs", Duration::from_secs(20), || {
        std::fs::read_to_string(&told).map_err(|error| error.to_string())
    });
    test.kill().expect("killed");
    test.wait().expect("ended");
    let text = text.expect("a server");
    let (pid, place) = text.split_once(' ').expect("two words");
    let pid = pid.parse().expect("a number");
    until("the server is gone", Duration::from_secs(10), || {
        if is_running(pid) || Path::new(place).exists() { Err(text.clone()) } else { Ok(()) }
    })
    .expect("gone");
}
