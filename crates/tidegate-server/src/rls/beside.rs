//! What is served beside the decisions on the same port: health, for probes and balancers, and reflection, for people with grpcurl.
//! Both are tonic's.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::timeout;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};
use tonic_reflection::server::{Builder, Error};
use tower_service::Service;

use super::grpc::{UnaryBody, too_slow, unknown_call};

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
type Route = Arc<dyn Fn(Request<Incoming>) -> Answer + Send + Sync>;

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

    pub(crate) async fn call(&self, request: Request<Incoming>) -> Response<RlsBody> {
        let path = request.uri().path();
        match self.routes.iter().find(|(prefix, _)| path.starts_with(prefix)) {
            Some((_, route)) => match timeout(MESSAGE_MAX, route(request)).await {
                Ok(answer) => answer.map(RlsBody::Beside),
                Err(_) => too_slow().map(RlsBody::Unary),
            },
            None => unknown_call(path).map(RlsBody::Unary),
        }
    }
}

fn route<S>(service: S) -> Route
where
    S: Service<
            Request<Incoming>,
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

/// The body of an answer.
pub(crate) enum RlsBody {
    /// To a call for a decision.
    Unary(UnaryBody),
    /// To another.
    Beside(tonic::body::Body),
}

impl Body for RlsBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Self::Unary(body) => Pin::new(body).poll_frame(context).map_err(|never| match never {}),
            Self::Beside(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Unary(body) => body.is_end_stream(),
            Self::Beside(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Unary(body) => body.size_hint(),
            Self::Beside(body) => body.size_hint(),
        }
    }
}
