//! What is served beside the decisions on the same port: health, for probes and balancers, and reflection, for people with grpcurl.
//! Both are tonic's.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use tidegate_http2::{Field, Head, StreamId, Then};
use tokio::time::timeout;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};
use tonic_reflection::server::{Builder, Error};
use tower_service::Service;

use super::grpc::Failed;
use super::session::{Line, say_later};

/// The service of which health is told.
pub const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
/// All names under which probes may ask for it; the last is the reference server's.
const SERVICES: [&str; 3] = ["", SERVICE, "ratelimit"];
/// What `proto/` describes.
pub(crate) const DESCRIBED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rls.bin"));

/// The largest message: names of services.
const BYTES_MAX: usize = 4 << 10;
/// How long one may take to come.
const MESSAGE_MAX: Duration = Duration::from_secs(5);

type Answer = Pin<Box<dyn Future<Output = Response<tonic::body::Body>> + Send>>;
type Route = Arc<dyn Fn(Request<Upload>) -> Answer + Send + Sync>;

/// The services, each with what its paths begin with.
#[derive(Clone)]
pub struct Beside {
    routes: Vec<(&'static str, Route)>,
    health: HealthReporter,
}

impl Beside {
    /// All of them. Health says that everything serves, until told otherwise.
    pub fn new() -> Result<Self, Error> {
        let (health, health_server) = health_reporter();
        let described = || {
            Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIBED)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let routes = vec![
            ("/grpc.health.v1.Health/", route(health_server.max_decoding_message_size(BYTES_MAX))),
            (
                "/grpc.reflection.v1.ServerReflection/",
                route(described().build_v1()?.max_decoding_message_size(BYTES_MAX)),
            ),
            (
                "/grpc.reflection.v1alpha.ServerReflection/",
                route(described().build_v1alpha()?.max_decoding_message_size(BYTES_MAX)),
            ),
        ];
        Ok(Self { routes, health })
    }

    /// Tells probes whether the node takes requests.
    pub async fn tell_health(&self, ready: bool) {
        let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in SERVICES {
            self.health.set_service_status(service, status).await;
        }
    }

    /// Lets nobody wait for a change of health any more: the node ends.
    pub async fn end(&self) {
        let mut health = self.health.clone();
        for service in SERVICES {
            health.clear_service_status(service).await;
        }
    }

    /// Begins a call of one of them, of which nothing but the head has come: where the rest goes, and where the answer comes from. None
    /// if nobody has such calls.
    pub(super) fn begin(&self, head: &Head, end: bool) -> Option<(Uploading, Answers)> {
        let path = std::str::from_utf8(head.path()).ok()?;
        let (_, route) = self.routes.iter().find(|(prefix, _)| path.starts_with(prefix))?;
        let pipe = Arc::new(Mutex::new(Pipe { is_ended: end, ..Pipe::default() }));
        let mut request = Request::new(Upload(pipe.clone()));
        *request.method_mut() = http::Method::from_bytes(head.method()).ok()?;
        *request.uri_mut() = path.parse().ok()?;
        *request.version_mut() = http::Version::HTTP_2;
        for (name, value) in head.fields() {
            request
                .headers_mut()
                .append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?);
        }
        Some((Uploading(pipe), Answers(route(request))))
    }
}

fn route<S>(service: S) -> Route
where
    S: Service<
            Request<Upload>,
            Response = Response<tonic::body::Body>,
            Error = std::convert::Infallible,
            Future: Send + 'static,
        > + Clone
        + Send
        + Sync
        + 'static,
{
    Arc::new(move |request| {
        let answer = service.clone().call(request);
        Box::pin(async move {
            match answer.await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        })
    })
}

/// The body of a call on its way. It holds no more than a client may send before something of it is released.
#[derive(Default)]
struct Pipe {
    came: Vec<u8>,
    is_ended: bool,
    /// How much was taken, and not released.
    taken: usize,
    waker: Option<Waker>,
}

type Shared = Arc<Mutex<Pipe>>;

fn lock(pipe: &Shared) -> MutexGuard<'_, Pipe> {
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where it comes from.
pub struct Uploading(Shared);

impl Uploading {
    /// More of it came.
    pub(super) fn add(&self, data: &[u8], end: bool) {
        let mut pipe = lock(&self.0);
        pipe.came.extend_from_slice(data);
        pipe.is_ended |= end;
        if let Some(waker) = pipe.waker.take() {
            waker.wake();
        }
    }

    /// How much of it was taken since it was asked last.
    pub(super) fn taken(&self) -> impl Fn() -> usize + 'static {
        let pipe = self.0.clone();
        move || std::mem::take(&mut lock(&pipe).taken)
    }
}

impl Drop for Uploading {
    fn drop(&mut self) {
        self.add(&[], true);
    }
}

/// Where it goes.
pub(crate) struct Upload(Shared);

impl Body for Upload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut pipe = lock(&self.0);
        if pipe.came.is_empty() && !pipe.is_ended {
            pipe.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let came = std::mem::take(&mut pipe.came);
        pipe.taken += came.len();
        Poll::Ready((!came.is_empty()).then(|| Ok(Frame::data(came.into()))))
    }
}

/// An answer that is on its way.
pub(super) struct Answers(Answer);

impl Answers {
    /// Passes it on to the client, as fast as that takes it.
    pub(super) async fn pass_on(self, line: &Line, stream: StreamId, taken: impl Fn() -> usize) {
        let Ok(response) = timeout(MESSAGE_MAX, self.0).await else {
            return say_later(line, stream, Err(Failed::too_slow()), &[]);
        };
        let (head, mut body) = response.into_parts();
        let end = body.is_end_stream();
        line.later(|connection| {
            connection.respond(stream, head.status.as_u16(), &fields(&head.headers), end);
        });
        if end {
            return;
        }
        loop {
            let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
            let is_over = line.later(|connection| {
                connection.release(stream, taken());
                match frame.map(|frame| frame.map(Frame::into_data)) {
                    Some(Ok(Ok(data))) => !connection.send(stream, &data, Then::More, None),
                    Some(Ok(Err(frame))) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        connection.send(stream, &[], Then::Trailers(&fields(&trailers)), None);
                        true
                    }
                    Some(Err(_)) => {
                        connection.reset(stream, tidegate_http2::Code::Internal);
                        true
                    }
                    None => {
                        connection.send(stream, &[], Then::End, None);
                        true
                    }
                }
            });
            let there_is =
                || poll_fn(|context| line.with(|connection| connection.poll_sent(stream, context)));
            if is_over || !there_is().await {
                return;
            }
        }
    }
}

fn fields(headers: &HeaderMap) -> Vec<Field<'_>> {
    headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())).collect()
}
