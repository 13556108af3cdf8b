//! Instructions of one check over HTTP: from a request as hyper has read it to the answer that hyper will write, with everything that a
//! node does between. Without sockets and HTTP/1.1.

#![expect(missing_docs, reason = "the macros of gungraun write public items")]

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::pending;
use std::hint::black_box;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use gungraun::{library_benchmark, library_benchmark_group, main};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tidegate_core::Quotas;
use tidegate_server::reply::body::BodyStyle;
use tidegate_server::reply::headers::Dialect;
use tidegate_server::rls::Beside;
use tidegate_server::{Core, Entrances, Node, Protocol, ReplyStyle, Serve, at_once};
use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
use tokio::runtime::Builder;

use node::node;

mod node; // who is asked

const RULES: &str = "
domain: api_platform
descriptors:
  - key: api_key
    descriptors:
      - key: endpoint
        rate_limit: { limit: 1000/1m, name: per-endpoint }
      - key: endpoint
        value: POST /refunds
        rate_limit: { limit: 1/1h, name: refunds }
";
const PIPE_BYTES: usize = 4 << 10;

/// One check, ready to be answered. Leaked on purpose: nothing is dropped while it counts.
struct Prepared {
    entrances: Rc<Entrances>,
    request: Option<Request<Incoming>>,
    answer: Option<Response<Full<Bytes>>>,
    /// The connection that the request came on: it stays open.
    _connection: Reading,
}

/// A connection that waits for its answer.
type Reading = (Pin<Box<dyn Future<Output = hyper::Result<()>>>>, DuplexStream);

#[library_benchmark]
#[bench::check_admitted(prepared("/v1/check", "POST /orders", 200))]
#[bench::check_refused(prepared("/v1/check?enforce", "POST /refunds", 429))]
fn check(prepared: &'static mut Prepared) -> bool {
    let Prepared { entrances, request, answer, .. } = black_box(prepared);
    *answer = request.take().and_then(|request| ask(entrances, request));
    answer.is_some()
}

library_benchmark_group!(name = checks, benchmarks = check);
main!(library_benchmark_groups = checks);

fn ask(entrances: &Rc<Entrances>, request: Request<Incoming>) -> Option<Response<Full<Bytes>>> {
    at_once(entrances.clone().answer(Protocol::Http, None, request))
}

/// A check of this endpoint, sent to this address, that is answered with this status.
fn prepared(to: &str, endpoint: &str, status: u16) -> &'static mut Prepared {
    // Whoever waits for a body asks the runtime for the time.
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    std::mem::forget(Box::leak(Box::new(runtime)).enter());
    let http = ReplyStyle {
        headers: Dialect::DEFAULT.to_vec(),
        body: Some(BodyStyle::default()),
        ..ReplyStyle::default()
    };
    let node = Node { http, ..node(RULES, Arc::new(Quotas::default())) };
    let core = Core::new(0, Arc::new(node));
    let entrances = Rc::new(Entrances::new(core, Beside::new().expect("services")));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        // So that everything has grown, and the counter is there.
        let (request, _connection) = came(to, endpoint);
        let answer = ask(&entrances, request).expect("it does not wait");
        statuses.push(answer.status().as_u16());
    }
    assert_eq!(statuses, [200, status, status]);
    let (request, connection) = came(to, endpoint);
    Box::leak(Box::new(Prepared { entrances, request: Some(request), answer: None, _connection: connection }))
}

/// A request in the short form, with all of its body, as it comes from hyper: nobody else can make one.
fn came(to: &str, endpoint: &str) -> (Request<Incoming>, Reading) {
    let body = format!(r#"{{"clientId":"0b8c6f3e-alice","endpoint":"{endpoint}"}}"#);
    let length = body.len();
    let head = format!(
        "POST {to} HTTP/1.1\r\nhost: rate-limits:8080\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    let (mut client, end) = duplex(PIPE_BYTES);
    let sent = at_once(client.write_all((head + &body).as_bytes()));
    assert!(sent.is_some_and(|sent| sent.is_ok()), "the pipe has room");
    let came = Rc::new(RefCell::new(None));
    let kept = came.clone();
    let service = service_fn(move |request| {
        kept.replace(Some(request));
        pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    let mut connection = Box::pin(http1::Builder::new().serve_connection(TokioIo::new(end), service));
    assert!(at_once(connection.as_mut()).is_none(), "it waits for the answer");
    let request = came.take().expect("a request");
    (request, (connection, client))
}
