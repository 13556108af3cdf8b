//! Which entrance answers what came on a connection.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::http as check;
use crate::net::{Answer, Protocol, Serve};
use crate::node::Core;
use crate::rls::{self, Beside, RlsBody};

/// All entrances of a node, on one thread.
pub struct Entrances {
    core: Rc<Core>,
    beside: Beside,
}

impl Entrances {
    /// Entrances to a node.
    pub fn new(core: Core, beside: Beside) -> Self {
        Self { core: Rc::new(core), beside }
    }
}

impl Serve for Entrances {
    type Body = AnyBody;

    fn answer(self: Rc<Self>, protocol: Protocol, request: Request<Incoming>) -> Answer<AnyBody> {
        if protocol != Protocol::Rls || request.uri().path() != rls::SHOULD_RATE_LIMIT {
            return Answer::later(self.answer_other(protocol, request));
        }
        rls::Call::new(self.core.clone(), request).answer(|body| AnyBody(Of::Rls(RlsBody::Unary(body))))
    }
}

impl Entrances {
    async fn answer_other(
        self: Rc<Self>,
        protocol: Protocol,
        request: Request<Incoming>,
    ) -> Response<AnyBody> {
        match protocol {
            Protocol::Rls => self.beside.call(request).await.map(|body| AnyBody(Of::Rls(body))),
            Protocol::Debug => {
                check::debug_page(&self.core, request).await.map(|body| AnyBody(Of::Http(body)))
            }
            Protocol::Http => {
                check::answer(self.core.clone(), request).await.map(|body| AnyBody(Of::Http(body)))
            }
        }
    }
}

/// The body of any answer.
pub struct AnyBody(Of);

enum Of {
    Rls(RlsBody),
    Http(Full<Bytes>),
}

impl Body for AnyBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut self.0 {
            Of::Rls(body) => Pin::new(body).poll_frame(context),
            Of::Http(body) => Pin::new(body).poll_frame(context).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Of::Rls(body) => body.is_end_stream(),
            Of::Http(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Of::Rls(body) => body.size_hint(),
            Of::Http(body) => body.size_hint(),
        }
    }
}
