//! The server with the fixed answer: tonic as one would use it, with prost's messages, and nothing that decides. What a node could reach
//! at most that is built on it.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_prost::ProstCodec;
use tower_service::Service;

use crate::client::SHOULD_RATE_LIMIT;
use crate::messages::{DescriptorStatus, Duration, HOUR, OK, RateLimit, RateLimitRequest, RateLimitResponse};

/// On which runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Of one thread.
    CurrentThread,
    /// tonic's usual one, with one worker.
    MultiThread,
}

/// The child's side: serves until there is nothing more to read from its parent.
pub fn serve(kind: Kind) -> Result<(), String> {
    let mut builder = match kind {
        Kind::CurrentThread => runtime::Builder::new_current_thread(),
        Kind::MultiThread => runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(1).enable_all().build().map_err(|error| error.to_string())?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]); // Its end is our end.
        std::process::exit(0);
    });
    let serving = async {
        let incoming =
            TcpIncoming::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?.with_nodelay(Some(true));
        println!("RLS {}", incoming.local_addr()?);
        std::io::stdout().flush()?;
        let server = Server::builder().add_service(FixedAnswer).serve_with_incoming(incoming);
        // On a worker, where there is one, and not on the thread that waits.
        tokio::spawn(server).await?.map_err(std::io::Error::other)
    };
    runtime.block_on(serving).map_err(|error: std::io::Error| format!("the bare server: {error}"))
}

/// What tonic's code generator would write for the service.
#[derive(Clone, Copy)]
struct FixedAnswer;

impl NamedService for FixedAnswer {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl Service<http::Request<Body>> for FixedAnswer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != SHOULD_RATE_LIMIT {
            return Box::pin(ready(Ok(tonic::Status::unimplemented("").into_http())));
        }
        Box::pin(async move { Ok(Grpc::new(ProstCodec::default()).unary(Self, request).await) })
    }
}

impl UnaryService<RateLimitRequest> for FixedAnswer {
    type Response = RateLimitResponse;
    type Future = Ready<Result<tonic::Response<RateLimitResponse>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        // As long as the node's answer: what a user of the default algorithm is told.
        let status = DescriptorStatus {
            code: OK,
            current_limit: Some(RateLimit { requests_per_unit: 1_000, unit: HOUR }),
            limit_remaining: 999,
            duration_until_reset: Some(Duration { seconds: 3_600 }),
        };
        let statuses = request.get_ref().descriptors.iter().map(|_| status.clone()).collect();
        ready(Ok(tonic::Response::new(RateLimitResponse { overall_code: OK, statuses })))
    }
}
