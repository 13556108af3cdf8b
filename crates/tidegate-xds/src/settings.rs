//! Whom to ask for rules, and how.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How a client is set up.
#[derive(Clone)]
pub struct ClientSettings {
    /// Where the server is.
    pub server: Place,
    /// The id of the node, by which the server finds what is meant for it.
    pub node_id: String,
    /// What else it tells of itself.
    pub node_metadata: Vec<(String, String)>,
    /// Headers of the call.
    pub headers: Vec<(String, String)>,
    /// TLS; none is plain text.
    pub tls: Option<ClientTls>,
    /// Larger messages end the stream.
    pub message_bytes_max: usize,
    /// How long it may take to connect, handshakes included.
    pub connect_timeout: Duration,
    /// A stream that is still open after so long counts as one, and a server that has said nothing on it is asked once more.
    pub settled_after: Duration,
    /// After what time without a word the server is asked whether it is there, and how long it may take to say so.
    pub keepalive: (Duration, Duration),
    /// The first wait after a stream that ended, and the longest.
    pub backoff: (Duration, Duration),
}

impl ClientSettings {
    /// What the server is called in calls: by the name of its certificate, if that is another one.
    pub(crate) fn authority(&self) -> String {
        let name = self.tls.as_ref().and_then(|tls| tls.server_name.clone());
        let host = name.unwrap_or_else(|| self.server.host.clone());
        Place { host, port: self.server.port }.to_string()
    }
}

impl fmt::Debug for ClientSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Headers may hold a password.
        out.debug_struct("ClientSettings")
            .field("server", &self.server)
            .field("node_id", &self.node_id)
            .finish_non_exhaustive()
    }
}

/// The files of certificates, in PEM. They are read at every connect, so that they may change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientTls {
    /// Roots, one of which vouches for the server; none are those that the machine trusts.
    pub ca: Option<PathBuf>,
    /// The certificate that is shown to the server, and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate has to have; none is the server's host.
    pub server_name: Option<String>,
}

/// A host and a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Place {
    /// Reads `host:port`. An IPv6 address stands in brackets.
    pub fn of_text(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = inside.or_else(|| Some(host).filter(|host| !host.contains([':', '/', '[', ']', '@'])))?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        Some(Self { host: host.into(), port }).filter(|place| !place.host.is_empty())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(out, "[{}]:{}", self.host, self.port),
            false => write!(out, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_host_and_a_port() {
        for (text, host, port) in [
            ("envoy-gateway:18001", "envoy-gateway", 18_001),
            ("127.0.0.1:1", "127.0.0.1", 1),
            ("[::1]:18000", "::1", 18_000),
        ] {
            let place = Place::of_text(text);
            assert_eq!(place, Some(Place { host: host.into(), port }));
            assert_eq!(place.map(|place| place.to_string()).as_deref(), Some(text));
        }
        for text in
            ["", "host", "host:", ":1", "host:0", "host:65536", "http://host:1", "::1:1", "[]:1", "a@b:1"]
        {
            assert_eq!(Place::of_text(text), None, "{text}");
        }
    }
}
