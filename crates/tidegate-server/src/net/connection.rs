//! One connection, from its first byte to its last.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate_telemetry::ConnectionRefused;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::accept::{Arrival, Entrance};
use super::conversation::{self, Converse};
use super::cores::Phase;
use super::counted::Counted;

/// How long a client may take to say something that a server can answer: the handshake of TLS, the first bytes of HTTP/2.
pub(super) const GREETING_MAX: Duration = Duration::from_secs(5);
/// With what every connection of HTTP/2 begins.
const PREFACE_BYTES: usize = 24;

/// What the headers of one request may take. How many there may be is hyper's own bound, a hundred: to ask for one has it clear the room
/// for them each time. A test sees to it that it stays (`tests/node/http.rs`).
const HEADER_BYTES_MAX: usize = 64 << 10;

/// What is spoken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// gRPC, over HTTP/2.
    Rls,
    /// HTTP/1.1.
    Http,
    /// The same, for pages of the reference server.
    Debug,
}

/// How long connections live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetime {
    /// After this a connection is asked to end, so that its client looks for a node anew: clients of gRPC never do so by themselves.
    /// A tenth more or less, so that not all come back at once. None is for ever.
    pub age: Option<Duration>,
    /// What is in flight then has so long to end.
    pub grace: Duration,
    /// A connection of HTTP/1.1 that sends no whole request for so long is closed.
    pub idle: Duration,
}

impl Lifetime {
    /// How long a connection has to end. One that is only old has time, however little there is at the end of a node.
    pub(super) fn grace_for(self, is_end_of_node: bool) -> Duration {
        if is_end_of_node { self.grace } else { self.grace.max(GREETING_MAX) }
    }
}

/// Answers requests, on one thread.
pub trait Serve {
    /// What the answers are made of.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static;
    /// Who answers calls of gRPC on one connection.
    type Talk: Converse;

    /// Answers one request over HTTP/1.1, of somebody at this address if it came over a network.
    fn answer(
        self: Rc<Self>,
        protocol: Protocol,
        peer: Option<SocketAddr>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>>;

    /// Begins a connection of gRPC; none where nobody speaks that.
    fn talk(self: Rc<Self>) -> Option<Self::Talk>;
}

/// Serves a connection until it ends.
pub(super) async fn serve<S: Serve + 'static>(
    serves: Rc<S>,
    arrival: Arrival,
    phase: watch::Receiver<Phase>,
) {
    let Arrival { socket, peer, entrance, place } = arrival;
    let Ok(stream) = socket.open() else { return };
    let ended = match &entrance.tls {
        None => converse(serves, stream, peer, &entrance, phase).await,
        Some(tls) => match timeout(GREETING_MAX, tls.accept(stream)).await {
            Ok(Ok(stream)) => converse(serves, stream, peer, &entrance, phase).await,
            refused => {
                entrance.turn_away(ConnectionRefused::Handshake);
                Err(refused
                    .map_or_else(|_| "no TLS in time".into(), |error| format!("no TLS: {:?}", error.err())))
            }
        },
    };
    if let Err(error) = ended {
        tracing::debug!(?peer, error, "a connection broke");
    }
    drop(place);
}

async fn converse<S: Serve + 'static>(
    serves: Rc<S>,
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    peer: Option<SocketAddr>,
    entrance: &Entrance,
    phase: watch::Receiver<Phase>,
) -> Result<(), String> {
    let (stream, read) = Counted::new(stream);
    let (protocol, lifetime) = (entrance.protocol, entrance.lifetime);
    if protocol == Protocol::Rls {
        let Some(talk) = serves.talk() else { return Err("nobody speaks gRPC here".into()) };
        return conversation::lead(talk, stream, lifetime, phase, &read).await;
    }
    let service = service_fn(move |request: Request<Incoming>| {
        let serves = serves.clone();
        async move { Ok::<_, Infallible>(serves.answer(protocol, peer, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(lifetime.idle)
        .max_buf_size(HEADER_BYTES_MAX)
        .half_close(false);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    live(connection, http1::Connection::graceful_shutdown, lifetime, phase, &read).await
}

/// Lets a connection go on until it ends by itself, is too old, says nothing at all, or the node ends.
async fn live<C: Future<Output = Result<(), hyper::Error>>>(
    connection: C,
    shut_down: impl FnOnce(Pin<&mut C>),
    lifetime: Lifetime,
    mut phase: watch::Receiver<Phase>,
    read: &Cell<usize>,
) -> Result<(), String> {
    let told = |ended: Result<(), hyper::Error>| ended.map_err(|error| error.to_string());
    let mut connection = pin!(connection);
    // Most connections outlive their greeting by far, so the timers are few and in turn.
    tokio::select! {
        biased;
        ended = &mut connection => return told(ended),
        () = sleep(GREETING_MAX) => {}
        _ = phase.wait_for(|phase| *phase != Phase::Serving) => {}
    }
    if *phase.borrow() == Phase::Serving {
        if read.get() < PREFACE_BYTES {
            return Err("it said nothing".into());
        }
        tokio::select! {
            biased;
            ended = &mut connection => return told(ended),
            () = grow_old(lifetime.age.map(|age| age.saturating_sub(GREETING_MAX))) => {}
            _ = phase.wait_for(|phase| *phase != Phase::Serving) => {}
        }
    }
    let grace = lifetime.grace_for(*phase.borrow() != Phase::Serving);
    shut_down(connection.as_mut());
    match timeout(grace, connection).await {
        Ok(ended) => told(ended),
        Err(_) => Err("it did not end in time".into()),
    }
}

/// Waits for the age at which a connection is asked to end, a tenth more or less.
pub(super) async fn grow_old(age: Option<Duration>) {
    let Some(age) = age else { return std::future::pending().await };
    let lot = RandomState::new().hash_one(0_u8) % 201; // Keyed anew each time.
    sleep(age.mul_f64(0.9 + lot as f64 / 1_000.0)).await;
}
