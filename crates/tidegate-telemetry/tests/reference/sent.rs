//! Statsd over real sockets of this machine.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tidegate_core::LimitError;
use tidegate_telemetry::reference::statsd::{
    Mogrifier, Statsd, StatsdDialect, StatsdProtocol, StatsdSettings, start,
};
use tidegate_telemetry::reference::{
    Judged, PoolGauges, ReferenceGauges, ReferenceMethod, ReferenceStatsSettings,
};

use crate::rig::{HIT, Rig, limited, settings, way};

const HITS: &str = "ratelimit.service.rate_limit.d.k.total_hits";
const TIME: &str = "ratelimit_server.ShouldRateLimit.response_time";
/// Longer than any test: what is sent, is sent because a test asked for it.
const NEVER: Duration = Duration::from_secs(3_600);
const SOON: Duration = Duration::from_millis(1);
/// How long a test waits for what has to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// An address of this machine where nobody else opens a port that a test closes for a while. Sockets that connect are elsewhere too: one
/// that finds nobody there might otherwise get that very port for itself, and be connected to itself.
fn home() -> Ipv4Addr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 77, high, low.clamp(1, 254))
}

fn rig() -> Result<Rig, LimitError> {
    Ok(Rig::new("d", vec![limited(way("k", ""))?], 100))
}

fn to(address: SocketAddr, protocol: StatsdProtocol, flush_interval: Duration) -> StatsdSettings {
    let (host, port, dialect) = (address.ip().to_string(), address.port(), StatsdDialect::Plain);
    StatsdSettings { protocol, host, port, flush_interval, dialect }
}

fn run(rig: &Rig, settings: StatsdSettings) -> std::io::Result<Statsd> {
    start(rig.stats.clone(), settings, ReferenceGauges::default)
}

fn udp() -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((home(), 0))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// The packets that came, up to the first pause.
fn packets(socket: &UdpSocket) -> std::io::Result<Vec<String>> {
    socket.set_nonblocking(true)?;
    let mut packets = Vec::new();
    let mut packet = [0; 65_536];
    while let Ok(bytes) = socket.recv(&mut packet) {
        packets.push(String::from_utf8_lossy(&packet[..bytes]).into_owned());
    }
    socket.set_nonblocking(false)?;
    Ok(packets)
}

/// What lines add up to, by name; of durations how many there were.
fn sums<'l>(lines: impl IntoIterator<Item = &'l str>) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in lines {
        let (name, rest) = line.split_once(':').expect("a name and a value");
        let fields: Vec<&str> = rest.split('|').collect();
        let value: u64 = fields[0].parse().expect("a whole number");
        let rate = fields.iter().find_map(|field| field.strip_prefix('@'));
        let rate = rate.map_or(1.0, |rate| rate.parse::<f64>().expect("a rate"));
        match fields[1] {
            "c" => *sums.entry(name.into()).or_default() += value,
            "g" => *sums.entry(name.into()).or_default() = value,
            "ms" => *sums.entry(name.into()).or_default() += (1.0 / rate) as u64,
            other => panic!("{other} is no kind"),
        }
    }
    sums
}

#[test]
fn packets_hold_deltas_and_are_never_too_long() -> Result<(), Box<dyn Error>> {
    let (server, rig) = (udp()?, rig()?);
    let names = |from: usize, to: usize| {
        for at in from..to {
            rig.ask("d", &[("k", &format!("{at}-{}", "x".repeat(at % 300)))], true, &HIT);
        }
    };
    names(0, 90);
    rig.ask("d", &[("k", "1")], false, &Judged { before: 10, hits: 3, ..HIT });
    rig.stats.call(0, ReferenceMethod::ShouldRateLimit, Duration::from_micros(2_700));
    let settings = to(server.local_addr()?, StatsdProtocol::Udp, NEVER);
    let pool = PoolGauges { cx_active: 4, cx_total: 6, cx_local_close: 0 };
    let gauges = move || ReferenceGauges { redis_pool: Some(pool), ..ReferenceGauges::default() };
    drop(start(rig.stats.clone(), settings, gauges)?);

    let packets = packets(&server)?;
    assert!(packets.len() > 10 && packets.iter().all(|packet| packet.len() <= 1_432), "{}", packets.len());
    assert!(packets.iter().any(|packet| packet.len() > 900), "packets are filled");
    let lines: Vec<&str> = packets.iter().flat_map(|packet| packet.split('\n')).collect();
    let sums = sums(lines.iter().copied());
    assert_eq!(sums.keys().filter(|name| name.ends_with(".total_hits")).count(), 91);
    assert!(lines.contains(&format!("{TIME}:2|ms").as_str()));
    assert!(lines.contains(&"ratelimit.redis_pool.cx_active:4|g"));
    assert!(lines.contains(&"ratelimit.redis_pool.cx_total:6|c"));
    assert!(lines.contains(&format!("{HITS}:3|c").as_str()));
    assert!(lines.iter().all(|line| !line.contains(":0|c")), "zeros are not sent");
    Ok(())
}

/// What is refused by this machine itself is mostly kept; only a connection can promise that.
#[test]
fn packets_are_sent_again_when_somebody_listens() -> Result<(), Box<dyn Error>> {
    let rig = rig()?;
    let server = udp()?;
    let address = server.local_addr()?;
    drop(server);
    let sender = run(&rig, to(address, StatsdProtocol::Udp, SOON))?;
    for _ in 0..100 {
        rig.ask("d", &[("k", "1")], false, &HIT);
    }
    let server = UdpSocket::bind(address)?;
    server.set_read_timeout(Some(PATIENCE))?;
    rig.ask("d", &[("k", "1")], false, &HIT);
    let (mut came, mut packet) = (0, [0; 65_536]);
    while came == 0 {
        let bytes = server.recv(&mut packet)?;
        let text = String::from_utf8_lossy(&packet[..bytes]).into_owned();
        came += sums(text.split('\n')).get(HITS).copied().unwrap_or(0);
    }
    assert!((1..=101).contains(&came), "{came}");
    drop(sender);
    Ok(())
}

/// A connection that has to come.
fn accept(listener: &TcpListener) -> Result<TcpStream, Box<dyn Error>> {
    let listener = listener.try_clone()?;
    let (give, take) = mpsc::channel();
    thread::spawn(move || {
        let accepted = listener.accept();
        drop(listener); // Before the test goes on: whoever closes the other one wants the port closed.
        give.send(accepted)
    });
    let (stream, _) = take.recv_timeout(PATIENCE)??;
    Ok(stream)
}

/// Reads lines until there were so many hits.
fn hits_of(stream: TcpStream, hits: u64) -> Result<u64, Box<dyn Error>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let (mut reader, mut line, mut came) = (BufReader::new(stream), String::new(), 0);
    while came < hits {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            break;
        }
        came += sums([line.trim_end()]).get(HITS).copied().unwrap_or(0);
    }
    Ok(came)
}

#[test]
fn a_server_that_goes_away_and_comes_back_loses_no_delta() -> Result<(), Box<dyn Error>> {
    let rig = rig()?;
    let server = TcpListener::bind((home(), 0))?;
    let address = server.local_addr()?;
    let sender = run(&rig, to(address, StatsdProtocol::Tcp, SOON))?;
    let (mut counted, mut came) = (0, 0);
    let mut server = Some(server);
    for round in 1..=5 {
        let listener = match server.take() {
            Some(listener) => listener,
            None => TcpListener::bind(address)?,
        };
        // Some was counted while nobody listened, some while somebody did.
        for _ in 0..round * 10 {
            rig.ask("d", &[("k", "1")], false, &HIT);
            counted += 1;
        }
        let stream = accept(&listener)?;
        came += hits_of(stream, counted - came)?;
        assert_eq!(came, counted, "round {round}");
        drop(listener);
        for _ in 0..7 {
            rig.ask("d", &[("k", "1")], false, &HIT);
            counted += 1;
        }
    }
    let listener = TcpListener::bind(address)?;
    let stream = accept(&listener)?;
    came += hits_of(stream, counted - came)?;
    assert_eq!(came, counted);
    drop(sender);
    Ok(())
}

#[test]
fn a_server_that_does_not_read_holds_nobody_up_and_loses_nothing() -> Result<(), Box<dyn Error>> {
    const NAMES: usize = 20_000;
    let rig = Rig::new("d", vec![limited(way("k", ""))?], NAMES);
    let long = "x".repeat(300);
    for at in 0..NAMES {
        rig.ask("d", &[("k", &format!("{at}-{long}"))], true, &Judged { before: 10, ..HIT });
    }
    let server = TcpListener::bind((home(), 0))?;
    let sender = run(&rig, to(server.local_addr()?, StatsdProtocol::Tcp, SOON))?;
    // More than the kernel holds for a connection. The first is left unread until a second comes: then the first was given up.
    let mut first = accept(&server)?;
    let second = accept(&server)?;
    let mut taken = Vec::new();
    first.set_read_timeout(Some(PATIENCE))?;
    first.read_to_end(&mut taken)?;
    let text = String::from_utf8_lossy(&taken);
    let hits = |line: &str| -> u64 {
        let whole = line.ends_with("|c") && line.contains(".total_hits:");
        if whole { sums([line]).values().sum() } else { 0 }
    };
    let mut total: u64 = text.lines().map(hits).sum();
    assert!(total < NAMES as u64, "the kernel took it all");
    second.set_read_timeout(Some(PATIENCE))?;
    for line in BufReader::new(second).lines() {
        total += hits(&line?);
        if total >= NAMES as u64 {
            break;
        }
    }
    assert_eq!(total, NAMES as u64);
    drop(sender);
    Ok(())
}

#[test]
fn of_many_calls_a_line_speaks_for_several_and_none_is_left_out() -> Result<(), Box<dyn Error>> {
    for (calls, lines_max) in [(999, 999), (1_000, 1_000), (1_001, 1_000), (123_457, 1_000)] {
        let (server, rig) = (udp()?, rig()?);
        for call in 0..calls {
            let took = Duration::from_millis(call % 10);
            rig.stats.call(call as usize, ReferenceMethod::ShouldRateLimit, took);
        }
        drop(run(&rig, to(server.local_addr()?, StatsdProtocol::Udp, NEVER))?);
        let packets = packets(&server)?;
        let lines: Vec<&str> = packets.iter().flat_map(|packet| packet.split('\n')).collect();
        let times: Vec<&str> = lines.iter().copied().filter(|line| line.starts_with(TIME)).collect();
        assert!(times.len() <= lines_max, "{}", times.len());
        let sums = sums(lines.iter().copied());
        assert_eq!(sums.get(TIME), Some(&calls));
        assert_eq!(sums.get("ratelimit_server.ShouldRateLimit.total_requests"), Some(&calls));
        // Every tenth took so many milliseconds.
        let of_nine = times.iter().filter(|line| line.contains(":9|ms")).count();
        assert!(of_nine.abs_diff(times.len() / 10) <= 2, "{of_nine} of {}", times.len());
    }
    Ok(())
}

#[test]
fn tags_are_part_of_the_name_or_stand_behind() -> Result<(), Box<dyn Error>> {
    let pattern = r"^ratelimit\.service\.rate_limit\.(.*)\.(.*)\.total_hits$";
    let mogrifier = Mogrifier::new(
        pattern,
        "ratelimit.hits",
        &[("domain".into(), "$1".into()), ("key".into(), "$2".into())],
    )?;
    for (dialect, expected) in [
        (StatsdDialect::Plain, "ratelimit.service.rate_limit.d.k.total_hits.__app=shop.__zone=eu:1|c"),
        (StatsdDialect::Dog(vec![mogrifier]), "ratelimit.hits:1|c|#app:shop,zone:eu,domain:d,key:k"),
    ] {
        let extra_tags = [("zone", "eu"), ("app", "shop")].map(|(tag, value)| (tag.into(), value.into()));
        let settings = ReferenceStatsSettings { extra_tags: extra_tags.into(), ..settings(100) };
        let (server, rig) = (udp()?, Rig::with("d", vec![limited(way("k", ""))?], settings));
        rig.ask("d", &[("k", "1")], false, &HIT);
        drop(run(&rig, StatsdSettings { dialect, ..to(server.local_addr()?, StatsdProtocol::Udp, NEVER) })?);
        let packets = packets(&server)?;
        let mut lines = packets.iter().flat_map(|packet| packet.split('\n'));
        assert!(lines.any(|line| line == expected), "{packets:?}");
    }
    Ok(())
}
