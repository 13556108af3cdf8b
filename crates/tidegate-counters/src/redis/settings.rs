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
    /// How long one operation may take, redirects and everything else included.
    pub timeout: Duration,
    /// How long it may take to connect.
    pub connect_timeout: Duration,
    /// How many requests may wait for the store at once, on one thread. Whoever comes then is told at once that it cannot answer.
    pub in_flight_max: usize,
    /// Whose clock counts.
    pub clock: StoreClock,
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

/// How connections are encrypted. Files are read at every connect, so that they may change.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StoreTls {
    /// Who vouches for the server; else whom the machine trusts.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key, if the server wants one.
    pub certificate: Option<(PathBuf, PathBuf)>,
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
    "{what}; write redis://host:6379, redis+cluster://a:6379,b:6379, redis+sentinel://a:26379,b:26379/name or unix:///path, with rediss for TLS"
)]
pub struct UrlError {
    /// What is wrong with it.
    pub what: String,
}

impl RedisSettings {
    /// The settings that a URL says, the rest by default.
    pub fn of_url(url: &str) -> Result<Self, UrlError> {
        let _ = url;
        Err(UrlError { what: "not read yet".into() })
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
            timeout: Duration::from_millis(12),
            connect_timeout: Duration::from_millis(250),
            in_flight_max: 4_096,
            clock: StoreClock::Store,
        }
    }
}
