//! One stream, from the subscription to its end: each response is judged, and accepted or rejected by its nonce.
//!
//! Responses are judged one after the other. One that comes meanwhile waits, and gives way to a later one: each is the whole state, and
//! a server takes the answer to its last response for an answer to all before.

use std::error::Error as _;
use std::future::{pending, ready};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use prost_types::{Struct, Value};
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::sleep;
use tonic::client::Grpc;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Streaming};
use tonic_prost::ProstCodec;

use crate::STREAM_AGGREGATED_RESOURCES;
use crate::backoff::Backoff;
use crate::client::{Event, Subscriber, Update};
use crate::connect::{Connection, with_sources};
use crate::messages::{DiscoveryRequest, DiscoveryResponse, Node, Status};
use crate::resources::{RuleText, TYPE_URL, rule_texts};
use crate::settings::ClientSettings;

/// Requests that may wait to be sent. There is one for each response that was judged: more only pile up if the server does not read.
const REQUESTS_MAX: usize = 8;
/// How much is told about what is wrong, in bytes.
const WHY_BYTES_MAX: usize = 4_096;

/// How long a rejection may be held back: some servers send nothing until they are answered, not even better rules.
const HOLD_MAX: Duration = Duration::from_secs(5);

/// A version that no server has.
const NOBODYS_VERSION: &str = "none";

/// What was judged so far. It outlives streams.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// The version that is in force.
    accepted: String,
    /// What came last, and what was said to it.
    last: Option<(Delivered, Verdict)>,
}

/// The rules of a response, or why they cannot be read.
type Delivered = Result<Vec<RuleText>, String>;
/// In force, or what is wrong.
type Verdict = Result<(), String>;

/// One stream.
pub(crate) struct Stream<'s> {
    settings: &'s ClientSettings,
    subscriber: &'s Arc<dyn Subscriber>,
    judged: &'s mut Judged,
    /// Between rejections of the same rules: servers send rules again as soon as they are rejected.
    repeats: Backoff,
    healthy: bool,
    /// Was it asked a second time?
    insisted: bool,
}

/// A response that is being judged.
struct Work {
    version: String,
    nonce: String,
    type_url: String,
    delivered: Delivered,
    verdict: Pin<Box<dyn Future<Output = Verdict> + Send>>,
    kind: Kind,
}

/// How the verdict is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// By whoever wants the rules.
    New,
    /// They were accepted before, and nothing has changed since.
    Known,
    /// They were rejected before, and will be again after a while.
    Held,
}

impl<'s> Stream<'s> {
    pub(crate) fn new(
        settings: &'s ClientSettings,
        subscriber: &'s Arc<dyn Subscriber>,
        judged: &'s mut Judged,
    ) -> Self {
        let (first, longest) = settings.backoff;
        let repeats = Backoff::new((first.min(HOLD_MAX), longest.min(HOLD_MAX)));
        Self { settings, subscriber, judged, repeats, healthy: false, insisted: false }
    }

    /// Were rules accepted on it?
    pub(crate) fn was_healthy(&self) -> bool {
        self.healthy
    }

    /// Subscribes and answers responses until the stream ends; says why it did.
    pub(crate) async fn run(&mut self, connection: Connection) -> String {
        let place = self.settings.authority();
        let scheme = if self.settings.tls.is_some() { "https" } else { "http" };
        let Ok(origin) = Uri::try_from(format!("{scheme}://{place}/")) else {
            return format!("`{place}` is no place that can be asked");
        };
        let (requests, sent) = channel(REQUESTS_MAX);
        // A server may count versions from 1 again after a restart: asked without a version, it tells what it has, whatever it calls that.
        let first = DiscoveryRequest {
            node: Some(node(self.settings)),
            type_url: TYPE_URL.into(),
            ..DiscoveryRequest::default()
        };
        let _ = requests.try_send(first); // It is the first, so there is room.
        let mut request = Request::new(ReceiverStream::new(sent));
        *request.metadata_mut() = MetadataMap::from_headers(headers(self.settings));
        let mut grpc =
            Grpc::with_origin(connection, origin).max_decoding_message_size(self.settings.message_bytes_max);
        if let Err(error) = grpc.ready().await {
            return with_sources(&error);
        }
        let path = PathAndQuery::from_static(STREAM_AGGREGATED_RESOURCES);
        // Many servers send no header before their first response: this may take as long as they have nothing to say.
        let mut call = pin!(grpc.streaming(request, path, ProstCodec::default()));
        let at_once = tokio::select! {
            answer = &mut call => Some(answer),
            // Before that it may still refuse the call: with TLS 1.3 a certificate is refused after the handshake.
            () = sleep(self.settings.settled_after) => None,
        };
        if at_once.as_ref().is_none_or(Result::is_ok) {
            self.subscriber.tell(Event::Connected);
        }
        let answer = match at_once {
            Some(answer) => answer,
            None => {
                self.insist(&requests);
                call.await
            }
        };
        match answer {
            Ok(answer) => self.answer(answer.into_inner(), &requests).await,
            Err(status) => told(&status),
        }
    }

    /// Asks once more, of a server that says nothing. Servers compare versions, and some call a state without any rules by no version at
    /// all: whoever asks without one is not told of it, and would wait for ever, or keep rules that are gone. By a version that is nobody's
    /// they notice that something has to be said.
    fn insist(&mut self, requests: &Sender<DiscoveryRequest>) {
        self.insisted = true;
        let again = DiscoveryRequest {
            version_info: NOBODYS_VERSION.into(),
            node: Some(node(self.settings)),
            type_url: TYPE_URL.into(),
            ..DiscoveryRequest::default()
        };
        let _ = requests.try_send(again); // One that does not read has other troubles.
    }

    async fn answer(
        &mut self,
        mut responses: Streaming<DiscoveryResponse>,
        requests: &Sender<DiscoveryRequest>,
    ) -> String {
        let (mut work, mut waiting, mut answered) = (None::<Work>, None, String::new());
        let mut silence = pin!(sleep(self.settings.settled_after));
        let ended = loop {
            if work.as_ref().is_none_or(|work| work.kind == Kind::Held)
                && let Some(response) = waiting.take()
            {
                work = Some(self.begin(response));
            }
            tokio::select! {
                () = &mut silence, if !self.insisted => self.insist(requests),
                came = responses.message() => match came {
                    // One that was answered already is an echo.
                    Ok(Some(response)) if !answered.is_empty() && response.nonce == answered => {}
                    Ok(Some(response)) => {
                        self.insisted = true; // There is no need to.
                        waiting = Some(response);
                    }
                    Ok(None) => break "the server ended the stream".into(),
                    Err(status) => break told(&status),
                },
                verdict = verdict(&mut work), if work.is_some() => {
                    let Some(work) = work.take() else { continue };
                    let answer = self.judge(work, verdict);
                    answered.clone_from(&answer.response_nonce);
                    if requests.try_send(answer).is_err() {
                        break "the server does not read what it is answered".into();
                    }
                }
            }
        };
        // Nonces belong to a stream, so nobody is answered any more. But what was put in force is in force.
        if let Some(mut work) = work.filter(|work| work.kind == Kind::New) {
            let verdict = work.verdict.as_mut().await;
            self.judge(work, verdict);
        }
        ended
    }

    /// Has the rules of a response judged.
    fn begin(&mut self, response: DiscoveryResponse) -> Work {
        let delivered = rule_texts(&response);
        let DiscoveryResponse { version_info: version, nonce, type_url, .. } = response;
        let known = self.judged.last.as_ref().filter(|(last, _)| *last == delivered);
        let (kind, verdict): (_, Pin<Box<dyn Future<Output = Verdict> + Send>>) = match known {
            Some((_, Ok(()))) => (Kind::Known, Box::pin(ready(Ok(())))),
            Some((_, Err(why))) => {
                let (wait, why) = (self.repeats.wait(), why.clone());
                let verdict = async move {
                    sleep(wait).await;
                    Err(why)
                };
                (Kind::Held, Box::pin(verdict))
            }
            None => {
                self.repeats.reset();
                (Kind::New, Box::pin(apply(self.subscriber.clone(), version.clone(), delivered.clone())))
            }
        };
        Work { version, nonce, type_url, delivered, verdict, kind }
    }

    /// Notes and tells a verdict; what the server is answered.
    fn judge(&mut self, work: Work, verdict: Verdict) -> DiscoveryRequest {
        let Work { version, nonce, type_url, delivered, kind, .. } = work;
        if kind == Kind::New {
            self.subscriber.tell(match &verdict {
                Ok(()) => Event::Accepted { version: &version },
                Err(why) => Event::Rejected { version: &version, why },
            });
            self.judged.last = Some((delivered, verdict.clone()));
        }
        if verdict.is_ok() {
            self.healthy = true;
            self.judged.accepted = version;
        }
        // Of other types nothing was ever accepted.
        let accepted = if type_url == TYPE_URL { self.judged.accepted.clone() } else { String::new() };
        DiscoveryRequest {
            version_info: accepted,
            node: Some(node(self.settings)),
            resource_names: Vec::new(),
            type_url,
            response_nonce: nonce,
            error_detail: verdict.err().map(|why| Status {
                code: Code::InvalidArgument as i32,
                message: cut(why),
                details: Vec::new(),
            }),
        }
    }
}

/// The verdict on what is being judged, when there is one.
async fn verdict(work: &mut Option<Work>) -> Verdict {
    match work {
        Some(work) => work.verdict.as_mut().await,
        None => pending().await,
    }
}

async fn apply(subscriber: Arc<dyn Subscriber>, version: String, delivered: Delivered) -> Verdict {
    let update = Update { version, rules: delivered? };
    let applied = tokio::task::spawn_blocking(move || subscriber.apply(&update)).await;
    applied.unwrap_or_else(|_| Err("the rules could not be loaded: the node failed at it".into()))
}

fn node(settings: &ClientSettings) -> Node {
    let field = |(name, value): &(String, String)| {
        let kind = Some(prost_types::value::Kind::StringValue(value.clone()));
        (name.clone(), Value { kind })
    };
    let fields = settings.node_metadata.iter().map(field).collect();
    let metadata = (!settings.node_metadata.is_empty()).then_some(Struct { fields });
    Node { id: settings.node_id.clone(), cluster: String::new(), metadata }
}

/// Those that can be sent; the others were refused where they were set.
fn headers(settings: &ClientSettings) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers {
        if let (Ok(name), Ok(mut value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            value.set_sensitive(true);
            headers.append(name, value);
        }
    }
    headers
}

/// Why a stream ended.
fn told(status: &tonic::Status) -> String {
    let hint = match status.code() {
        Code::OutOfRange => "; xds.message_bytes_max bounds messages",
        _ => "",
    };
    let message = match status.message() {
        "" => status.code().description(),
        message => message,
    };
    // Often it is the first of its sources, word by word.
    let told = match status.source().map(with_sources) {
        Some(sources) if sources.starts_with(message) => sources,
        Some(sources) => format!("{message}: {sources}"),
        None => message.into(),
    };
    told + hint
}

/// Not more than is read by anybody.
fn cut(mut why: String) -> String {
    if why.len() > WHY_BYTES_MAX {
        why.truncate(why.floor_char_boundary(WHY_BYTES_MAX));
        why.push('…');
    }
    why
}
