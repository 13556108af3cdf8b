//! Which entrance answers what came on a connection.

use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::http as check;
use crate::net::{Protocol, Serve};
use crate::node::Core;
use crate::rls::{Beside, Session};

/// All entrances of a node, on one thread.
pub struct Entrances {
    core: Rc<Core>,
    beside: Rc<Beside>,
}

impl Entrances {
    /// Entrances to a node.
    pub fn new(core: Core, beside: Beside) -> Self {
        Self { core: Rc::new(core), beside: Rc::new(beside) }
    }
}

impl Serve for Entrances {
    type Body = Full<Bytes>;
    type Talk = Session;

    fn talk(self: Rc<Self>) -> Option<Session> {
        Some(Session::new(self.core.clone(), self.beside.clone()))
    }

    async fn answer(
        self: Rc<Self>,
        protocol: Protocol,
        peer: Option<SocketAddr>,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        match protocol {
            Protocol::Debug => Box::pin(check::debug_page(&self.core, request)).await,
            Protocol::Rls | Protocol::Http => check::answer(self.core.clone(), peer, request).await,
        }
    }
}
