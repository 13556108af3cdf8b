//! One call: descriptors to a context, the library's verdict to an answer.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use limitador::errors::LimitadorError;
use limitador::limit::{Context, Namespace};
use limitador::{CheckResult, RateLimiter};
use tidegate_bench_common::client::SHOULD_RATE_LIMIT;
use tidegate_bench_common::messages::{
    OK, OVER_LIMIT, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// The library, with one of its storages.
pub(crate) enum Limiter {
    Memory(RateLimiter),
    #[cfg(feature = "redis")]
    Redis(limitador::AsyncRateLimiter),
}

impl Limiter {
    async fn check(
        &self,
        namespace: &Namespace,
        context: &Context<'_>,
        cost: u64,
    ) -> Result<CheckResult, LimitadorError> {
        match self {
            Self::Memory(limiter) => limiter.check_rate_limited_and_update(namespace, context, cost),
            #[cfg(feature = "redis")]
            Self::Redis(limiter) => limiter.check_rate_limited_and_update(namespace, context, cost).await,
        }
    }
}

/// What tonic's code generator would write for the service.
#[derive(Clone)]
pub(crate) struct Service {
    limiter: Arc<Limiter>,
}

impl Service {
    pub(crate) fn new(limiter: Limiter) -> Self {
        Self { limiter: Arc::new(limiter) }
    }
}

impl NamedService for Service {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl tower_service::Service<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != SHOULD_RATE_LIMIT {
            return Box::pin(std::future::ready(Ok(Status::unimplemented("").into_http())));
        }
        let service = self.clone();
        Box::pin(async move { Ok(Grpc::new(ProstCodec::default()).unary(service, request).await) })
    }
}

impl UnaryService<RateLimitRequest> for Service {
    type Response = RateLimitResponse;
    type Future = Pin<Box<dyn Future<Output = Result<Response<RateLimitResponse>, Status>> + Send>>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        let limiter = self.limiter.clone();
        Box::pin(async move {
            let RateLimitRequest { domain, descriptors, hits_addend } = request.into_inner();
            let mut context = Context::default();
            context.list_binding("descriptors".into(), descriptors.into_iter().map(entries).collect());
            let cost = u64::from(hits_addend.max(1));
            let checked = limiter.check(&domain.into(), &context, cost).await;
            let result = checked.map_err(|error| Status::unavailable(error.to_string()))?;
            let overall_code = if result.limited { OVER_LIMIT } else { OK };
            Ok(Response::new(RateLimitResponse { overall_code, statuses: Vec::new() }))
        })
    }
}

fn entries(descriptor: RateLimitDescriptor) -> HashMap<String, String> {
    descriptor.entries.into_iter().map(|entry| (entry.key, entry.value)).collect()
}
