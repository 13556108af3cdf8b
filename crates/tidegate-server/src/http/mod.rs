//! The plain entrance: checks, and what operators ask a node, over HTTP. Start at [`answer`].

mod asked; // what a body of JSON asks
mod check; // decisions
mod counters; // single counters
mod error; // requests that cannot be answered
mod look; // health, metrics, the most refused
mod read; // bodies, bounded

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::node::{Asker, Core, Node};
use crate::stand_in;

use check::Verb;
use error::HttpError;

type Answer = Response<Full<Bytes>>;

/// How long somebody waits for a turn at what is worked out aside.
const ASIDE_MAX: Duration = Duration::from_secs(10);
/// How many headers a check is answered with by default.
const HEADERS_OF_CHECK: usize = 8;

/// Answers one request, of somebody at this address if it came over a network.
pub(crate) async fn answer(core: Rc<Core>, peer: Option<SocketAddr>, request: Request<Incoming>) -> Answer {
    match route(core, peer, request).await {
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
    ("/v1/counters/reset", Method::POST, Page::Reset),
    ("/v1/counters/{key}", Method::GET, Page::Counter { reset: false }),
    ("/v1/counters/{key}", Method::DELETE, Page::Counter { reset: true }),
    ("/v1/top", Method::GET, Page::Top),
    ("/livez", Method::GET, Page::Live),
    ("/readyz", Method::GET, Page::Ready),
    ("/healthz", Method::GET, Page::Ready),
    ("/healthcheck", Method::GET, Page::Health),
    ("/metrics", Method::GET, Page::Metrics),
];

#[derive(Clone, Copy, Debug)]
enum Page {
    Decide(Verb),
    Inspect,
    Reset,
    Counter {
        reset: bool,
    },
    Top,
    Live,
    Ready,
    /// The same, as the reference server says it, where this node stands in for it.
    Health,
    Metrics,
}

impl Page {
    /// Is it about the process and not about what it counts?
    fn is_of_health(self) -> bool {
        matches!(self, Self::Live | Self::Ready | Self::Health | Self::Metrics)
    }
}

async fn route(
    core: Rc<Core>,
    peer: Option<SocketAddr>,
    request: Request<Incoming>,
) -> Result<Answer, HttpError> {
    let path = request.uri().path();
    if path == "/json" && core.node.stand_in.is_some() && core.node.decides {
        return Box::pin(decide_json(&core, request)).await;
    }
    let of_path = PATHS.iter().filter(|(known, ..)| fits(known, path));
    // A path without a part that is open stands before those that have one.
    let Some((first, _, page)) = of_path.clone().next() else { return Err(HttpError::not_found(path)) };
    if !core.node.decides && !page.is_of_health() {
        return Err(HttpError::elsewhere(path));
    }
    let methods = of_path.filter(|(known, ..)| known == first);
    // Whoever may read may ask whether there is something to read.
    let asked = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let Some((_, _, page)) = methods.clone().find(|(_, method, _)| method == asked) else {
        let methods: Vec<&str> = methods.map(|(_, method, _)| method.as_str()).collect();
        return Err(HttpError::method(path, &methods.join(", ")));
    };
    match page {
        Page::Decide(verb) => check::answer(&core, *verb, request).await,
        // Whatever is not a decision has a place of its own: decisions do not carry it along.
        Page::Inspect => Box::pin(counters::inspect(&core, request)).await,
        Page::Reset => Box::pin(counters::reset(&core, peer, request)).await,
        Page::Counter { reset } => {
            let key = path.rsplit('/').next().unwrap_or_default();
            Box::pin(counters::by_key(&core, peer, &request, key, *reset)).await
        }
        Page::Top => Box::pin(look::top(&core, request.uri().query())).await,
        Page::Live => Ok(text(200, "ok\n".into())),
        Page::Ready => look::ready(&core, request.uri().query()),
        Page::Health => match &core.node.stand_in {
            None => look::ready(&core, request.uri().query()),
            Some(_) => {
                let (status, words) = stand_in::health(&core.node);
                Ok(text(status, words.into()))
            }
        },
        Page::Metrics => Box::pin(look::metrics(&core)).await,
    }
}

/// RLS as JSON, by whatever method, where a node stands in for the reference server.
async fn decide_json(core: &Core, request: Request<Incoming>) -> Result<Answer, HttpError> {
    let came = core.node.now();
    let body = read::read(request.into_body()).await?;
    let (status, body) = stand_in::answer_json(core, &body, &Asker::at(came)).await;
    Ok(if status == 400 { with_type(status, "text/plain; charset=utf-8", body) } else { json(status, body) })
}

/// A page of the reference server.
pub(crate) async fn debug_page(core: &Core, request: Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    let page = aside(core, move |node| Ok(stand_in::answer_page(node, &path)));
    page.await.unwrap_or_else(|error| error.answer())
}

/// Is this the path, whatever stands in the part that is open?
fn fits(known: &str, path: &str) -> bool {
    match known.strip_suffix("{key}") {
        Some(start) => path.strip_prefix(start).is_some_and(|rest| !rest.is_empty() && !rest.contains('/')),
        None => known == path,
    }
}

/// What the query says about a word, without its percent signs.
fn query_value(query: Option<&str>, word: &str) -> Result<Option<String>, HttpError> {
    let parts = query.unwrap_or_default().split('&');
    let Some(value) = parts
        .filter_map(|part| part.split_once('='))
        .find_map(|(name, value)| (name == word).then_some(value))
    else {
        return Ok(None);
    };
    let wrong =
        || HttpError::invalid(format!("`{word}` in the query has a % without two hexadecimal digits"));
    let mut pieces = value.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2).ok_or_else(wrong)?;
        let digits = Some(digits).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        bytes.push(digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(wrong)?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    let text = String::from_utf8(bytes);
    text.map(Some).map_err(|_| HttpError::invalid(format!("`{word}` in the query is not UTF-8")))
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
    let headers = answer.headers_mut();
    headers.reserve(HEADERS_OF_CHECK);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn text(status: u16, body: String) -> Answer {
    with_type(status, "text/plain; charset=utf-8", body.into_bytes())
}

fn json(status: u16, body: Vec<u8>) -> Answer {
    with_type(status, "application/json", body)
}

fn allow(answer: &mut Answer, methods: &str) {
    if let Ok(value) = HeaderValue::from_str(methods) {
        answer.headers_mut().insert(ALLOW, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_query_are_read_without_their_percent_signs() {
        let value = |query: &str| query_value(Some(query), "rule").map_err(|_| ());
        assert_eq!(value("a=b&rule=shop%7Ckey%23a+b%20%c3%a4&rule=no"), Ok(Some("shop|key#a+b ä".into())));
        assert_eq!(value("rules=x"), Ok(None));
        assert_eq!(value("rule="), Ok(Some(String::new())));
        for wrong in ["rule=%", "rule=%4", "rule=%+4", "rule=%zz", "rule=%ff", "rule=%ä"] {
            assert_eq!(value(wrong), Err(()), "{wrong}");
        }
    }

    #[test]
    fn an_open_part_is_one_part() {
        assert!(fits("/v1/counters/{key}", "/v1/counters/abc"));
        for path in ["/v1/counters/", "/v1/counters", "/v1/counters/a/b", "/v1/counter/abc"] {
            assert!(!fits("/v1/counters/{key}", path), "{path}");
        }
    }

    /// It is moved into its connection as a whole, for each request.
    #[test]
    fn what_a_request_waits_with_takes_little_room() {
        fn bytes<A, B, C, Waits: Future>(_: fn(A, B, C) -> Waits) -> usize {
            size_of::<Waits>()
        }
        let waits = bytes(answer);
        assert!(waits <= 3_300, "{waits} bytes");
    }
}
