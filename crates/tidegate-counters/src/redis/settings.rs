//! Where the store is, and how to talk to it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Where the store is, and how to talk to it.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// Which servers there are.
    pub topology: Topology,
    /// Encrypted, if set.
    pub tls: Option<StoreTls>,
    /// The ACL user; none is the default one.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Password>,
    /// The number of the database; clusters have only 0.
    pub database: u32,
    /// What all keys begin with.
    pub prefix: String,
    /// Fixed windows are kept as envoyproxy/ratelimit does, under names that begin with this: for as long as a fleet has nodes of both.
    pub reference_prefix: Option<String>,
    /// How long one operation may take, redirects and everything else included.
    pub timeout: Duration,
    /// How long it may take to connect.
    pub connect_timeout: Duration,
    /// How many requests of one thread may wait for one server at once. Whoever comes then is told at once that it cannot answer.
    pub in_flight_max: usize,
    /// Who asks sentinels, if not who asks the servers.
    pub sentinel_login: Option<Login>,
    /// Are refusals remembered for a moment, so that the same is not asked again?
    pub remembers_denials: bool,
    /// When servers are left alone.
    pub circuit: CircuitSettings,
    /// Whose clock counts.
    pub clock: StoreClock,
}

/// When a server is left alone for a while, because calls to it only wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CircuitSettings {
    /// After how many failures; 0 is never.
    pub failures: u32,
    /// Within what time; none counts those in a row.
    pub within: Option<Duration>,
    /// How long it is left alone before it is tried again.
    pub open_for: Duration,
}

impl Default for CircuitSettings {
    fn default() -> Self {
        Self { failures: 5, within: None, open_for: Duration::from_millis(250) }
    }
}

/// Which servers there are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Topology {
    /// One server.
    Standalone(Address),
    /// One primary, whose address sentinels know.
    Sentinel {
        /// What the sentinels call it.
        name: String,
        /// Some of the sentinels.
        sentinels: Vec<Address>,
    },
    /// Several primaries that share the slots.
    Cluster(Vec<Address>),
}

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Address {
    /// On a host and port.
    Tcp(String, u16),
    /// On a socket of this machine.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(out, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(out, "{host}:{port}"),
            Self::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

/// A password that never shows.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// This one.
    Text(String),
    /// The first line of a file, read at every connect, so that it may change.
    File(PathBuf),
}

impl fmt::Debug for Password {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => out.write_str("Text(…)"),
            Self::File(path) => write!(out, "File({})", path.display()),
        }
    }
}

/// Who asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Login {
    /// The ACL user; none is the default one.
    pub user: Option<String>,
    /// Its password.
    pub password: Password,
}

/// How connections are encrypted. Files are read at every connect, so that they may change.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StoreTls {
    /// Who vouches for the server; else whom the machine trusts.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key, if the server wants one.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// May the server's certificate have any name?
    pub any_name: bool,
}

/// Whose clock counts.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum StoreClock {
    /// The store's: one for the whole fleet.
    #[default]
    Store,
    /// What the caller says is now. For tests, which move it.
    Caller,
}

/// Why a URL does not name a store.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{what}; write redis://host:6379, redis+cluster://a:6379,b:6379, redis+sentinel://a:26379,b:26379/name or unix:///path, \
     with rediss for TLS"
)]
pub struct UrlError {
    /// What is wrong with it.
    pub what: String,
}

impl RedisSettings {
    /// The settings that a URL says, the rest by default.
    ///
    /// `redis://[user:password@]host[:6379][/database]`, the same with `+cluster` and `+sentinel` for several hosts (of a sentinel the
    /// path is `/name[/database]`), and `unix:///path[?db=1]`. With `rediss` it is encrypted; `valkey` means the same as `redis`. What
    /// stands in a user, password, name or path may be percent-encoded, and has to be where it has a meaning in URLs.
    pub fn of_url(url: &str) -> Result<Self, UrlError> {
        read(url).map_err(|what| UrlError { what })
    }

    /// The servers, the rest by default.
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            tls: None,
            user: None,
            password: None,
            database: 0,
            prefix: "tg".into(),
            reference_prefix: None,
            timeout: Duration::from_millis(12),
            connect_timeout: Duration::from_millis(250),
            in_flight_max: 4_096,
            sentinel_login: None,
            remembers_denials: true,
            circuit: CircuitSettings::default(),
            clock: StoreClock::Store,
        }
    }
}

/// How many hosts a URL may name. Servers tell the rest of a cluster themselves.
const HOSTS_MAX: usize = 64;
const PORT: u16 = 6_379;
const SENTINEL_PORT: u16 = 26_379;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Standalone,
    Cluster,
    Sentinel,
    Unix,
}

/// What a scheme means, and whether it is encrypted.
fn kind(scheme: &str) -> Option<(Kind, bool)> {
    let (product, kind) = match scheme.split_once('+') {
        None if scheme == "unix" => return Some((Kind::Unix, false)),
        None => (scheme, Kind::Standalone),
        Some((product, "cluster")) => (product, Kind::Cluster),
        Some((product, "sentinel")) => (product, Kind::Sentinel),
        Some((product, "unix")) => (product, Kind::Unix),
        Some(_) => return None,
    };
    match product {
        "redis" | "valkey" => Some((kind, false)),
        "rediss" | "valkeys" if kind != Kind::Unix => Some((kind, true)),
        _ => None,
    }
}

/// Reads a URL. What is said to be wrong repeats no part of it but the scheme: where somebody forgot a sign, a password may stand anywhere.
fn read(url: &str) -> Result<RedisSettings, String> {
    let (scheme, rest) = url.trim().split_once("://").ok_or("the store's URL has no `://`")?;
    let (kind, encrypted) = kind(scheme).ok_or_else(|| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'+';
        match scheme.len() <= 20 && scheme.bytes().all(plain) {
            true => format!("the store's URL begins with `{scheme}`, which is none of its kinds"),
            false => "the store's URL begins with none of its kinds".to_owned(),
        }
    })?;
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(authority_end);
    if kind != Kind::Unix && rest.contains('@') {
        return Err("before the `@` of the store's URL stands a `/`, `?` or `#`; in a user or password write them as %2F, %3F, %23"
            .into());
    }
    let (login, hosts) =
        authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
    if path.contains('#') || query.is_some_and(|query| query.contains('#')) {
        return Err("the store's URL has a `#`; in a path or name write it as %23".into());
    }
    let mut settings = match kind {
        Kind::Unix => at_socket(hosts, path, query)?,
        _ if query.is_some() => {
            return Err("the store's URL has a `?`, which only unix:///path?db=1 may have".into());
        }
        _ => on_hosts(kind, hosts, path)?,
    };
    if let Some(login) = login {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let user = decoded_text(user, "the user")?;
        let password = decoded_text(password, "the password")?;
        settings.user = (!user.is_empty()).then_some(user);
        settings.password = (!password.is_empty()).then_some(Password::Text(password));
    }
    settings.tls = encrypted.then(StoreTls::default);
    Ok(settings)
}

fn at_socket(hosts: &str, path: &str, query: Option<&str>) -> Result<RedisSettings, String> {
    use std::os::unix::ffi::OsStringExt as _;

    if !hosts.is_empty() {
        return Err("a socket's path begins with `/`: there are three of them in unix:///path".into());
    }
    let path = decoded(path, "the path")?;
    if path.len() < 2 || path.contains(&0) {
        return Err("the store's URL names no socket".into());
    }
    let socket = PathBuf::from(std::ffi::OsString::from_vec(path));
    let mut settings = RedisSettings::new(Topology::Standalone(Address::Unix(socket)));
    for pair in query.into_iter().flat_map(|query| query.split('&')) {
        match pair.split_once('=') {
            Some(("db", number)) => settings.database = database(number)?,
            _ => return Err("after the `?` of the store's URL only `db=` and a number may stand".into()),
        }
    }
    Ok(settings)
}

fn on_hosts(kind: Kind, hosts: &str, path: &str) -> Result<RedisSettings, String> {
    let port = if kind == Kind::Sentinel { SENTINEL_PORT } else { PORT };
    let mut addresses: Vec<Address> = Vec::new();
    for (at, text) in hosts.split(',').enumerate() {
        if at == HOSTS_MAX {
            return Err(format!(
                "the store's URL names more than {HOSTS_MAX} hosts; a few are enough, they tell of the others"
            ));
        }
        let address = host(text, port).map_err(|what| match hosts.contains(',') {
            true => format!("host {} of the store's URL {what}", at + 1),
            false => format!("the host of the store's URL {what}"),
        })?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    let mut path = path.strip_prefix('/').unwrap_or(path);
    let topology = match kind {
        Kind::Standalone | Kind::Unix => {
            if addresses.len() > 1 {
                return Err(
                    "redis:// names one host; several are a redis+cluster:// or redis+sentinel://".into()
                );
            }
            Topology::Standalone(addresses.remove(0))
        }
        Kind::Cluster => Topology::Cluster(addresses),
        Kind::Sentinel => {
            let (name, rest) = path.split_once('/').unwrap_or((path, ""));
            path = rest;
            let name = decoded_text(name, "the name")?;
            if name.is_empty() {
                return Err(
                    "behind the sentinels of the store's URL there is no name of what they watch".into()
                );
            }
            Topology::Sentinel { name, sentinels: addresses }
        }
    };
    let mut settings = RedisSettings::new(topology);
    if !path.is_empty() {
        settings.database = database(path)?;
    }
    if kind == Kind::Cluster && settings.database != 0 {
        return Err("a cluster has only database 0; leave the number away".into());
    }
    Ok(settings)
}

/// A host, and its port unless it is the usual one.
fn host(text: &str, usual_port: u16) -> Result<Address, &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(text) => {
            let (host, port) = text.split_once(']').ok_or("has a `[` and no `]`")?;
            let host: std::net::Ipv6Addr =
                host.parse().map_err(|_| "has no IPv6 address between its brackets")?;
            let port = match port {
                "" => None,
                port => Some(
                    port.strip_prefix(':').ok_or("has something else than `:` and a port behind its `]`")?,
                ),
            };
            (host.to_string(), port)
        }
        None => {
            let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
            let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            if host.is_empty() {
                return Err("has no name");
            }
            if !host.bytes().all(known) || host.len() > 253 {
                return Err("has a name that no host can have; IPv6 addresses stand in brackets");
            }
            (host.to_owned(), port)
        }
    };
    let wrong =
        "has a port that is no number from 1 to 65535; if it is a password, `@` and the host are missing";
    let port = match port {
        None => usual_port,
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port.parse().map_err(|_| wrong)?,
        Some(_) => return Err(wrong),
    };
    if port == 0 { Err(wrong) } else { Ok(Address::Tcp(host, port)) }
}

fn database(text: &str) -> Result<u32, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| "the database of the store's URL is no number".to_owned())
}

fn decoded_text(text: &str, what: &str) -> Result<String, String> {
    String::from_utf8(decoded(text, what)?)
        .map_err(|_| format!("{what} in the store's URL is no UTF-8 once it is decoded"))
}

/// What a percent-encoded text means.
fn decoded(text: &str, what: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let byte = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                rest = after;
                digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low)
            }
            (b'%', _) => None,
            _ => {
                rest = after;
                Some(*first)
            }
        };
        bytes.push(byte.ok_or_else(|| {
            format!("{what} in the store's URL has a `%` without two hexadecimal digits; a plain `%` is written %25")
        })?);
    }
    Ok(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests;
