//! New connections: accepted by one loop for each listener, whatever the system says, and handed to the threads that serve them.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_clock::Stopwatch;
use tidegate_telemetry::{ConnectionRefused, Metrics, Server};
use tokio::sync::watch;
use tokio::time::sleep;

use super::connection::{Lifetime, Protocol};
use super::cores::{Cores, Phase};
use super::listen::{Accepted, Listener};
use super::places::{Place, Places};
use super::stream::Socket;
use crate::tls::Tls;

/// How long the loop rests when the system has no room for another connection.
const REST: Duration = Duration::from_millis(20);

/// How often that is logged.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// A way into the node: where it listens and how it serves.
#[derive(Debug)]
pub struct Entrance {
    /// What is spoken there.
    pub protocol: Protocol,
    /// By which certificates; none is plain text.
    pub tls: Option<Tls>,
    /// How long connections live.
    pub lifetime: Lifetime,
    /// Places of the connections.
    pub places: Arc<Places>,
    /// Where it is counted who is not let in.
    pub metrics: Arc<Metrics>,
}

/// A connection that has just come.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) socket: Socket,
    /// None is somebody on this machine, by a socket.
    pub(super) peer: Option<SocketAddr>,
    pub(super) entrance: Arc<Entrance>,
    /// It is held as long as the connection.
    pub(super) place: Place,
}

impl Listener {
    /// Accepts connections until the phase ends that is served in.
    pub async fn accept(
        self,
        entrance: Arc<Entrance>,
        cores: Arc<Cores>,
        mut phase: watch::Receiver<Phase>,
    ) -> io::Result<()> {
        let (listener, _file) = self.open()?;
        // A file handle that is given up when there are no others, so that a connection can be accepted and closed at once: its client is
        // told, instead of waiting in the system's queue for nothing.
        let (mut spare, mut told) = (spare(), None::<Stopwatch>);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = phase.wait_for(|phase| *phase != Phase::Serving) => return Ok(()),
            };
            match accepted {
                Ok(accepted) => entrance.welcome(accepted, &cores),
                Err(error) if is_peers_fault(&error) => {}
                Err(error) => {
                    if told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
                        tracing::warn!(%error, "no room for another connection: new ones are closed");
                        told = Some(Stopwatch::start());
                    }
                    entrance.turn_away(ConnectionRefused::TooMany);
                    drop(spare.take());
                    if let Ok(Ok(accepted)) = tokio::time::timeout(REST, listener.accept()).await {
                        drop(accepted);
                    }
                    spare = self::spare();
                    sleep(REST).await;
                }
            }
        }
    }
}

impl Entrance {
    pub(super) fn turn_away(&self, reason: ConnectionRefused) {
        let server = match self.protocol {
            Protocol::Rls => Server::Rls,
            Protocol::Http | Protocol::Debug => Server::Http,
        };
        self.metrics.connection_refused(server, reason);
    }

    fn welcome(self: &Arc<Self>, accepted: Accepted, cores: &Cores) {
        let arrived = || -> Option<Arrival> {
            let peer = accepted.peer();
            let place = self.places.take(peer.map(|peer| peer.ip())).ok()?;
            Some(Arrival { socket: accepted.hand_over().ok()?, peer, entrance: self.clone(), place })
        };
        // What is not let in is closed: a client that is refused at once can go elsewhere.
        if arrived().is_none_or(|arrival| cores.give(arrival).is_err()) {
            self.turn_away(ConnectionRefused::TooMany);
        }
    }
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// A connection that was gone before it was accepted says nothing about the next.
fn is_peers_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
