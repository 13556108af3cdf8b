//! The plain entrance: checks, and what operators ask a node, over HTTP. Start at [`answer`].

mod asked; // what a body of JSON asks
mod check; // decisions
mod error; // requests that cannot be answered
mod look; // health, metrics, the most refused
mod read; // bodies, bounded

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::node::{Core, Node};

use check::Verb;
use error::HttpError;

type Answer = Response<Full<Bytes>>;

/// How long somebody waits for a turn at what is worked out aside.
const ASIDE_MAX: Duration = Duration::from_secs(10);

/// Answers one request.
pub(crate) async fn answer(core: Rc<Core>, request: Request<Incoming>) -> Answer {
    match route(core, request).await {
        Ok(answer) => answer,
        Err(error) => error.answer(),
    }
}

/// Every path, with the method that it takes.
const PATHS: &[(&str, Method, Page)] = &[
    ("/v1/check", Method::POST, Page::Decide(Verb::Check)),
    ("/v1/acquire", Method::POST, Page::Decide(Verb::Acquire)),
    ("/v1/renew", Method::POST, Page::Decide(Verb::Renew)),
    ("/v1/release", Method::POST, Page::Decide(Verb::Release)),
    ("/v1/refund", Method::POST, Page::Decide(Verb::Refund)),
    ("/v1/settle", Method::POST, Page::Decide(Verb::Settle)),
    ("/v1/inspect", Method::POST, Page::Inspect),
    ("/v1/top", Method::GET, Page::Top),
    ("/livez", Method::GET, Page::Live),
    ("/readyz", Method::GET, Page::Ready),
    ("/healthz", Method::GET, Page::Ready),
    ("/healthcheck", Method::GET, Page::Ready),
    ("/metrics", Method::GET, Page::Metrics),
];

#[derive(Clone, Copy, Debug)]
enum Page {
    Decide(Verb),
    Inspect,
    Top,
    Live,
    Ready,
    Metrics,
}

async fn route(core: Rc<Core>, request: Request<Incoming>) -> Result<Answer, HttpError> {
    let path = request.uri().path();
    let Some((_, method, page)) = PATHS.iter().find(|(known, ..)| *known == path) else {
        return Err(HttpError::not_found(path));
    };
    // Whoever may read may ask whether there is something to read.
    let method_fits =
        request.method() == method || (request.method() == Method::HEAD && *method == Method::GET);
    if !method_fits {
        return Err(HttpError::method(path, method));
    }
    match page {
        Page::Decide(verb) => check::answer(&core, *verb, request).await,
        Page::Inspect => look::inspect(&core, request).await,
        Page::Top => look::top(&core, request.uri().query()).await,
        Page::Live => Ok(text(200, "ok\n".into())),
        Page::Ready => look::ready(&core, request.uri().query()),
        Page::Metrics => look::metrics(&core).await,
    }
}

/// Is this word one of the query's parts, as in `?enforce&explain` or `?enforce=true`?
fn is_asked(query: Option<&str>, word: &str) -> Result<bool, HttpError> {
    for part in query.unwrap_or_default().split('&') {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        if name == word {
            return match value.to_ascii_lowercase().as_str() {
                "" | "1" | "true" | "yes" | "on" => Ok(true),
                "0" | "false" | "no" | "off" => Ok(false),
                _ => Err(HttpError::invalid(format!("`{word}` in the query is true or false"))),
            };
        }
    }
    Ok(false)
}

/// Works something out that may take long, on a thread where no decision waits; one after the other, so that whoever asks a thousand times
/// waits and takes no memory for it.
async fn aside<T: Send + 'static>(
    core: &Core,
    work: impl FnOnce(&Node) -> Result<T, HttpError> + Send + 'static,
) -> Result<T, HttpError> {
    let node = core.node.clone();
    let turn = tokio::time::timeout(ASIDE_MAX, core.node.aside.acquire()).await;
    let _turn = turn.map_err(|_| HttpError::busy())?.map_err(|error| HttpError::broken(error.to_string()))?;
    let worked = tokio::task::spawn_blocking(move || work(&node)).await;
    worked.map_err(|error| HttpError::broken(error.to_string()))?
}

fn with_type(status: u16, kind: &'static str, body: Vec<u8>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    if let Ok(status) = http::StatusCode::from_u16(status) {
        *answer.status_mut() = status;
    }
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn text(status: u16, body: String) -> Answer {
    with_type(status, "text/plain; charset=utf-8", body.into_bytes())
}

fn json(status: u16, body: Vec<u8>) -> Answer {
    with_type(status, "application/json", body)
}

fn allow(answer: &mut Answer, method: &Method) {
    if let Ok(value) = HeaderValue::from_str(method.as_str()) {
        answer.headers_mut().insert(ALLOW, value);
    }
}
