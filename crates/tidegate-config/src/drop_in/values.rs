//! Values of variables, as Go writes them.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

/// `1`, `t`, `true` and their opposites, in the ways that Go takes.
pub(super) fn flag(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// `1h30m`, `1.5s`, `150us`; and `0`.
pub(super) fn time(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 7] =
        [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut nanoseconds) = (text, 0.0);
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, behind) = rest.split_at(end);
        let end =
            behind.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let (_, length) = UNITS.iter().find(|(name, _)| *name == unit)?;
        nanoseconds += number.parse::<f64>().ok()? * length;
        rest = behind;
    }
    // More than a century is no time that anybody means.
    let known = !text.is_empty() && nanoseconds <= 100.0 * 366.0 * 86_400e9;
    known.then(|| Duration::from_nanos(nanoseconds as u64))
}

/// `name:value` with commas between them.
pub(super) fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let pair = |text: &str| {
        let (name, value) = text.split_once(':')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(pair).collect()
}

/// Where to listen. A name is looked up, an empty one is everywhere.
pub(super) fn address(host: &str, port: u16) -> Option<SocketAddr> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Some(SocketAddr::new(IpAddr::from([0, 0, 0, 0]), port));
    }
    match host.parse::<IpAddr>() {
        Ok(address) => Some(SocketAddr::new(address, port)),
        Err(_) => (host, port).to_socket_addrs().ok()?.next(),
    }
}

/// `host:port`, where the host may be missing.
pub(super) fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    Some((host, port.parse().ok()?))
}

/// What may stand in any part of a URL.
pub(super) fn percent(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
        out
    })
}

/// An address of a store: `host:port`, or a URL that begins with `redis://`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StoreAddress<'v> {
    /// Who asks: a user, who may have no name, and a password.
    pub(super) user: Option<(&'v str, &'v str)>,
    pub(super) host: &'v str,
    /// The number of a database; mostly none.
    pub(super) database: &'v str,
}

pub(super) fn store_address(text: &str) -> StoreAddress<'_> {
    let Some(rest) = text.strip_prefix("redis://") else {
        return StoreAddress { user: None, host: text, database: "" };
    };
    // A password may have an `@` in it, and a host may not.
    let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    let rest = rest.split('?').next().unwrap_or_default();
    let (host, database) = rest.split_once('/').unwrap_or((rest, ""));
    StoreAddress { user: user.map(|user| user.split_once(':').unwrap_or((user, ""))), host, database }
}

/// Percent-encoded, unless it is already.
pub(super) fn percent_once(text: &str) -> String {
    if text.contains('%') { text.to_owned() } else { percent(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_go_writes_them() {
        for (text, micros) in [
            ("0", 0),
            ("10s", 10_000_000),
            ("150us", 150),
            ("150µs", 150),
            ("1h30m", 5_400_000_000),
            ("1.5s", 1_500_000),
            ("24h", 86_400_000_000),
            ("1m0.5s", 60_500_000),
        ] {
            assert_eq!(time(text), Some(Duration::from_micros(micros)), "{text}");
        }
        for wrong in ["", "10", "s", "-1s", "1d", "1 s", "1e300s", "9999999999h", "1..5s"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn flags_are_read_as_go_writes_them() {
        assert_eq!(["1", "t", "TRUE", "True"].map(flag), [Some(true); 4]);
        assert_eq!(["0", "f", "FALSE", "False"].map(flag), [Some(false); 4]);
        assert_eq!(["yes", "on", "tRUE", ""].map(flag), [None; 4]);
    }

    #[test]
    fn addresses_may_have_no_host() {
        let told = |host, port| address(host, port).map(|address| address.to_string());
        assert_eq!(told("", 9090), Some("0.0.0.0:9090".into()));
        assert_eq!(told("::", 1), Some("[::]:1".into()));
        assert_eq!(told("[::1]", 1), Some("[::1]:1".into()));
        assert_eq!(host_and_port(":9090"), Some(("", 9090)));
        assert_eq!(host_and_port("[::1]:9"), Some(("[::1]", 9)));
        assert_eq!(host_and_port("9090"), None);
    }

    #[test]
    fn pairs_have_a_colon() {
        assert_eq!(pairs("a:b, c:d:e"), Some(vec![("a".into(), "b".into()), ("c".into(), "d:e".into())]));
        assert_eq!(pairs(""), Some(vec![]));
        assert_eq!(pairs("a"), None);
    }
}
