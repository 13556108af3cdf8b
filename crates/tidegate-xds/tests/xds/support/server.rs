//! An xDS server for tests, on the library of HTTP/2 alone: it sends what it is told, also what no server would.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use prost::Message as _;
use rustls::ServerConfig;
use tidegate_xds::{
    Any, DiscoveryRequest, DiscoveryResponse, RateLimitConfig, RateLimitDescriptor, RateLimitPolicy,
    STREAM_AGGREGATED_RESOURCES, TYPE_URL,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A server. What it has open is closed when this is dropped.
pub(crate) struct XdsServer {
    pub(crate) address: SocketAddr,
    inside: Arc<Inside>,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Inside {
    state: Mutex<State>,
    /// Is a response sent again as soon as it is rejected, as go-control-plane does?
    insists: AtomicBool,
}

#[derive(Default)]
struct State {
    /// What every new stream is sent, by the way with a nonce of its own.
    current: Option<DiscoveryResponse>,
    /// How many streams there were.
    streams: usize,
    open: HashMap<usize, UnboundedSender<Bytes>>,
    nonces: usize,
    asked: Vec<Asked>,
}

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// On which stream, counted from 1.
    pub(crate) stream: usize,
    /// With which headers.
    pub(crate) headers: HeaderMap,
    pub(crate) request: DiscoveryRequest,
}

impl Asked {
    /// Why it rejects a response, if it does.
    pub(crate) fn error(&self) -> Option<&str> {
        self.request.error_detail.as_ref().map(|status| &*status.message)
    }
}

impl XdsServer {
    pub(crate) async fn start() -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)), None).await
    }

    /// One at an address, where another one may just have ended.
    pub(crate) async fn at(address: SocketAddr, tls: Option<ServerConfig>) -> Self {
        let listener = TcpListener::bind(address).await.expect("an address");
        let address = listener.local_addr().expect("an address");
        let inside = Arc::new(Inside::default());
        let (mut tasks, accepting) = (JoinSet::new(), inside.clone());
        let tls = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (inside, tls) = (accepting.clone(), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => serve(stream, inside).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, inside).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, inside, tasks }
    }

    /// From now on what is rejected is sent again at once.
    pub(crate) fn insist(&self) {
        self.inside.insists.store(true, Ordering::Relaxed);
    }

    /// This is the state from now on; all streams are told.
    pub(crate) fn set(&self, version: &str, configs: &[RateLimitConfig]) {
        self.set_response(response(version, configs));
    }

    pub(crate) fn set_response(&self, response: DiscoveryResponse) {
        let mut state = self.inside.state();
        state.current = Some(response);
        let streams: Vec<usize> = state.open.keys().copied().collect();
        streams.into_iter().for_each(|stream| state.tell(stream));
    }

    /// Sends bytes to all streams, be they a message or not.
    pub(crate) fn send_raw(&self, bytes: &Bytes) {
        self.inside.state().open.retain(|_, stream| stream.send(bytes.clone()).is_ok());
    }

    /// All requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.inside.state().asked.clone()
    }

    /// Ends it, and everything that it has open.
    pub(crate) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

impl Inside {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Tells a stream what the state is.
    fn tell(&mut self, stream: usize) {
        let Some(current) = &self.current else { return };
        self.nonces += 1;
        // A nonce that a test gave stays.
        let nonce =
            if current.nonce.is_empty() { format!("nonce-{}", self.nonces) } else { current.nonce.clone() };
        let message = DiscoveryResponse { nonce, ..current.clone() };
        if let Some(open) = self.open.get(&stream) {
            let _ = open.send(framed(&message.encode_to_vec())); // It may just be ending.
        }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, inside: Arc<Inside>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let mut streams = JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        streams.spawn(answer(request, respond, inside.clone()));
    }
}

async fn answer(
    request: Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<Bytes>,
    inside: Arc<Inside>,
) {
    assert_eq!(request.uri().path(), STREAM_AGGREGATED_RESOURCES);
    let (head, mut body) = request.into_parts();
    let (told, mut to_tell) = unbounded_channel();
    let number = {
        let mut state = inside.state();
        state.streams += 1;
        let number = state.streams;
        state.open.insert(number, told);
        number
    };
    let (mut came, mut sending) = (BytesMut::new(), None);
    loop {
        tokio::select! {
            data = body.data() => {
                let Some(Ok(data)) = data else { break };
                let _ = body.flow_control().release_capacity(data.len());
                came.extend_from_slice(&data);
                while let Some(request) = next_message(&mut came) {
                    inside.came(number, &head.headers, request);
                }
            }
            bytes = to_tell.recv() => {
                let Some(bytes) = bytes else { break };
                // As servers in Go do: no header before there is something to say.
                let stream = sending.get_or_insert_with(|| {
                    let head = Response::builder().header("content-type", "application/grpc").body(());
                    respond.send_response(head.expect("a head"), false).expect("a stream")
                });
                if stream.send_data(bytes, false).is_err() {
                    break;
                }
            }
        }
    }
    inside.state().open.remove(&number);
}

impl Inside {
    fn came(&self, stream: usize, headers: &HeaderMap, request: DiscoveryRequest) {
        let insists = self.insists.load(Ordering::Relaxed);
        let mut state = self.state();
        // As servers do: whoever has this version already is told nothing.
        let has_it =
            state.current.as_ref().is_some_and(|current| current.version_info == request.version_info);
        let first = request.response_nonce.is_empty() && !has_it;
        let rejected = request.error_detail.is_some();
        state.asked.push(Asked { stream, headers: headers.clone(), request });
        if first || (rejected && insists) {
            state.tell(stream);
        }
    }
}

fn next_message(came: &mut BytesMut) -> Option<DiscoveryRequest> {
    let prefix = came.get(..5)?;
    let length = u32::from_be_bytes(prefix[1..].try_into().ok()?) as usize;
    if came.len() < 5 + length {
        return None;
    }
    came.advance(5);
    Some(DiscoveryRequest::decode(came.split_to(length)).expect("a request"))
}

/// A message with the prefix of gRPC.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(5 + message.len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).expect("a length"));
    bytes.put_slice(message);
    bytes.freeze()
}

/// A response with these configurations.
pub(crate) fn response(version: &str, configs: &[RateLimitConfig]) -> DiscoveryResponse {
    let any = |config: &RateLimitConfig| Any { type_url: TYPE_URL.into(), value: config.encode_to_vec() };
    DiscoveryResponse {
        version_info: version.into(),
        resources: configs.iter().map(any).collect(),
        type_url: TYPE_URL.into(),
        nonce: String::new(),
    }
}

/// A domain with these descriptors, whose resource has the same name.
pub(crate) fn domain(name: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitConfig {
    RateLimitConfig { name: name.into(), domain: name.into(), descriptors }
}

/// A descriptor with a limit in a unit of the protocol.
pub(crate) fn limited(key: &str, requests_per_unit: u32, unit: i32) -> RateLimitDescriptor {
    let limit = RateLimitPolicy { unit, requests_per_unit, ..RateLimitPolicy::default() };
    RateLimitDescriptor { key: key.into(), rate_limit: Some(limit), ..RateLimitDescriptor::default() }
}
