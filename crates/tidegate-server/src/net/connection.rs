//! One connection, from its first byte to its last.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate_telemetry::ConnectionRefused;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::accept::{Arrival, Entrance};
use super::calls::{Answering, Calls};
use super::cores::Phase;
use super::counted::Counted;

/// How long a client may take to say something that a server can answer: the handshake of TLS, the first bytes of HTTP/2.
const GREETING_MAX: Duration = Duration::from_secs(5);
/// With what every connection of HTTP/2 begins.
const PREFACE_BYTES: usize = 24;

/// How many calls may be in flight on one connection, and as many may be reset by the client before they were looked at. Envoy resets
/// all its calls at once when a node pauses for longer than its patience; that is no attack.
const STREAMS_MAX: u32 = 1_024;
const RESETS_MAX: usize = 4 * STREAMS_MAX as usize;
/// How many calls may be reset by the node, over the whole life of a connection: those that go on sending when they are answered already,
/// or are too many at once. The end of a connection fails every call on it, and Envoy lets pass what failed, so a few must not do it; but
/// each stays in memory until the client takes note of it.
const OWN_RESETS_MAX: usize = 4 * STREAMS_MAX as usize;
/// Headers of one request.
const HEADER_BYTES_MAX: u32 = 64 << 10;
const HEADERS_MAX: usize = 128;
/// A peer that does not answer to a ping in time is gone.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_MAX: Duration = Duration::from_secs(10);

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

/// Who sent a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer(pub SocketAddr);

/// Answers requests, on one thread.
pub trait Serve {
    /// What the answers are made of.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + 'static;

    /// Answers one request.
    fn answer(self: Rc<Self>, protocol: Protocol, request: Request<Incoming>) -> Answer<Self::Body>;
}

/// The answer to a request: here already, or on its way. It is small, because it is moved: what an answer that is still on its way needs
/// has a place of its own.
pub enum Answer<B> {
    /// It is here; taken out when it is asked for.
    Now(Option<Response<B>>),
    /// It is on its way.
    Later(Pin<Box<dyn Future<Output = Response<B>>>>),
}

impl<B> Answer<B> {
    /// One that is here.
    pub fn now(response: Response<B>) -> Self {
        Self::Now(Some(response))
    }

    /// One that is on its way.
    pub fn later(response: impl Future<Output = Response<B>> + 'static) -> Self {
        Self::Later(Box::pin(response))
    }
}

impl<B> Unpin for Answer<B> {} // Nothing in it is pinned: what is on its way is elsewhere.

impl<B> Future for Answer<B> {
    type Output = Result<Response<B>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Now(response) => {
                response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)))
            }
            Self::Later(response) => response.as_mut().poll(context).map(Ok),
        }
    }
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
    let io = TokioIo::new(stream);
    let (protocol, lifetime) = (entrance.protocol, entrance.lifetime);
    let service = service_fn(move |mut request: Request<Incoming>| {
        if protocol == Protocol::Http
            && let Some(peer) = peer
        {
            request.extensions_mut().insert(Peer(peer)); // It takes memory, and nobody asks for it on the way of decisions over RLS.
        }
        serves.clone().answer(protocol, request)
    });
    match protocol {
        Protocol::Rls => {
            let calls = Calls::default();
            let mut builder = http2::Builder::new(calls.clone());
            builder
                .timer(TokioTimer::new())
                .max_concurrent_streams(STREAMS_MAX)
                .max_pending_accept_reset_streams(RESETS_MAX)
                .max_local_error_reset_streams(OWN_RESETS_MAX)
                .max_header_list_size(HEADER_BYTES_MAX)
                .keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PONG_MAX)
                .auto_date_header(false); // gRPC has no use for it.
            let connection = Answering { connection: builder.serve_connection(io, service), calls };
            let shut_down = |answering: Pin<&mut Answering<_>>| {
                http2::Connection::graceful_shutdown(Pin::new(&mut answering.get_mut().connection));
            };
            live(connection, shut_down, lifetime, phase, &read).await
        }
        Protocol::Http | Protocol::Debug => {
            let mut builder = http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(lifetime.idle)
                .max_headers(HEADERS_MAX)
                .max_buf_size(HEADER_BYTES_MAX as usize)
                .half_close(false);
            let connection = builder.serve_connection(io, service);
            live(connection, http1::Connection::graceful_shutdown, lifetime, phase, &read).await
        }
    }
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
    // A connection that is only old has time, however little there is at the end of a node.
    let ending = *phase.borrow() != Phase::Serving;
    let grace = if ending { lifetime.grace } else { lifetime.grace.max(GREETING_MAX) };
    shut_down(connection.as_mut());
    match timeout(grace, connection).await {
        Ok(ended) => told(ended),
        Err(_) => Err("it did not end in time".into()),
    }
}

/// Waits for the age at which a connection is asked to end, a tenth more or less.
async fn grow_old(age: Option<Duration>) {
    let Some(age) = age else { return std::future::pending().await };
    let lot = RandomState::new().hash_one(0_u8) % 201; // Keyed anew each time.
    sleep(age.mul_f64(0.9 + lot as f64 / 1_000.0)).await;
}
