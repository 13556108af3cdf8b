//! gRPC around the calls: frames, statuses and deadlines. `ShouldRateLimit` is answered here, without a layer between; health and
//! reflection are left to tonic's services.

use std::cell::Cell;
use std::fmt;
use std::fmt::Display;
use std::future::poll_fn;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tidegate_core::Micros;
use tidegate_counters::{Hand, Memory};
use tidegate_telemetry::{RequestOutcome, Server};
use tonic::Code;

use super::answer::{Answered, CallError, LeaseId, refuse_unread};
use crate::net::Answer;
use crate::node::{Asker, Core, INTERNAL_CALL, Standing, TRACEPARENT};

/// The path of the one call that matters.
pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// Messages larger than this are refused unread. That is a refusal, and no error: Envoy lets requests pass whose call failed.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// What messages that are not whole yet may take on one thread, all together. Whoever comes when it is used up is refused unread too.
const GATHERED_BYTES_MAX: usize = 32 << 20;
/// How long a message may take to come, if the client does not say so itself.
const MESSAGE_MAX: Duration = Duration::from_secs(5);
/// A byte that says whether the message is compressed, and four for its length.
const PREFIX_BYTES: usize = 5;
/// Room for an answer: most are shorter.
const ANSWER_BYTES: usize = 128;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_TIMEOUT: &str = "grpc-timeout";
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// A call that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    code: Code,
    message: String,
}

impl Failed {
    fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    fn broken_off() -> Self {
        Self::new(Code::Internal, "the call was broken off")
    }
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        let code = match error {
            CallError::Invalid(_) => Code::InvalidArgument,
            CallError::Reference(_) => Code::Unknown,
            CallError::Unavailable | CallError::NoRules => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

/// One call of `ShouldRateLimit`. Dropped while it waits for the message, it has done nothing; dropped while it waits for the counters, it
/// may have been charged, but the places that it took are given back.
pub(crate) struct Call {
    core: Rc<Core>,
    body: Incoming,
    /// When it came.
    came: Micros,
    standing: Standing,
    trace: Option<HeaderValue>,
    /// How long the message may take to come.
    message_max: Duration,
    /// How long the caller waits, if it says so.
    patience: Option<Duration>,
}

impl Call {
    /// Keeps what a call needs of its headers.
    pub(crate) fn new(core: Rc<Core>, request: Request<Incoming>) -> Self {
        let came = core.node.now();
        let (head, body) = request.into_parts();
        let (mut deadline, mut internal_call, mut trace) = (None, None, None);
        // In one pass: there are few, and each is found faster by looking than by its hash.
        for (name, value) in &head.headers {
            match name.as_str() {
                GRPC_TIMEOUT => deadline = deadline.or_else(|| timeout(value)),
                INTERNAL_CALL => internal_call = internal_call.or(Some(value)),
                TRACEPARENT => trace = trace.or_else(|| Some(value.clone())),
                _ => {}
            }
        }
        let standing = core.standing(internal_call);
        let message_max = deadline.map_or(MESSAGE_MAX, |deadline: Duration| deadline.min(MESSAGE_MAX));
        Self { core, body, came, standing, trace, message_max, patience: deadline }
    }

    /// Answers it: at once, if its message is here as a whole, as it nearly always is, and the counters are too. `wrap` makes the body what
    /// the server sends.
    pub(crate) fn answer<B: 'static>(mut self, wrap: fn(UnaryBody) -> B) -> Answer<B> {
        let mut nobody = Context::from_waker(Waker::noop()); // Whoever waits asks again.
        let first = Pin::new(&mut self.body).poll_frame(&mut nobody);
        if let Hand::Memory(memory) = &self.core.hand
            && let Some(message) = whole(&first)
        {
            // A panic ends the call, not the connection.
            let decided = catch_unwind(AssertUnwindSafe(|| self.decide_now(memory, message, self.came)));
            return Answer::now(self.told(decided.unwrap_or_else(|_| Err(Failed::broken_off()))).map(wrap));
        }
        Answer::later(self.answer_later(first, wrap))
    }

    /// Answers a call of which this came first.
    async fn answer_later<B>(mut self, first: Came<hyper::Error>, wrap: fn(UnaryBody) -> B) -> Response<B> {
        let (message, now) = match whole(&first) {
            Some(message) => (Ok(Some(message)), self.came),
            None => {
                let read = read(&mut self.body, first, self.message_max, &self.core.gathered).await;
                (read, self.core.node.now())
            }
        };
        let answered = match message {
            Ok(message) => self.decide(message, now).await,
            Err(failed) => Err(failed),
        };
        self.told(answered).map(wrap)
    }

    /// The response, which is counted.
    fn told(&self, answered: Result<(bool, UnaryBody), Failed>) -> Response<UnaryBody> {
        let (outcome, response) = match answered {
            Ok((true, body)) => (RequestOutcome::Admitted, body.response()),
            Ok((false, body)) => (RequestOutcome::Refused, body.response()),
            Err(failed) if failed.code == Code::Unavailable => (RequestOutcome::Failed, failed.response()),
            Err(failed) => (RequestOutcome::Invalid, failed.response()),
        };
        let node = &self.core.node;
        let took_us = node.now().get().saturating_sub(self.came.get());
        node.metrics.core(self.core.number).request(Server::Rls, outcome, took_us);
        if let Some(stand_in) = &node.stand_in {
            stand_in.called(self.core.number, outcome, Duration::from_micros(took_us));
        }
        response
    }

    fn holding(&self, message: Bytes, lease: LeaseId) -> Held {
        Held { core: self.core.clone(), message, standing: self.standing, lease, in_vain: true }
    }

    /// Answers the message, if it is not too large.
    async fn decide(&self, message: Option<Bytes>, now: Micros) -> Result<(bool, UnaryBody), Failed> {
        let Some(message) = message else {
            let mut out = room_for_answer();
            refuse_unread(&mut out);
            return Ok(unary(out, Answered::REFUSED, None));
        };
        match &self.core.hand {
            Hand::Memory(memory) => self.decide_now(memory, message, now),
            Hand::Redis(_) => self.decide_later(message, now).await,
        }
    }

    /// What the call is decided by besides its message.
    fn asker(&self, now: Micros) -> Asker<'_> {
        let trace = self.trace.as_ref().and_then(|value| value.to_str().ok());
        Asker { came: now, trace, patience: self.patience }
    }

    fn decide_now(&self, memory: &Memory, message: Bytes, now: Micros) -> Result<(bool, UnaryBody), Failed> {
        let (core, lease, asker) = (&self.core, self.core.fresh_lease(), self.asker(now));
        let mut out = room_for_answer();
        let answered =
            core.should_rate_limit_now(memory, &lease, &message, self.standing, &asker, &mut out)?;
        let held = answered.lease.map(|lease| Box::new(self.holding(message, lease)));
        Ok(unary(out, answered, held))
    }

    async fn decide_later(&self, message: Bytes, now: Micros) -> Result<(bool, UnaryBody), Failed> {
        let (lease, mut out) = (self.core.fresh_lease(), room_for_answer());
        // Who reports what something came to does not wait for the answer, and Envoy gives up soon: it is done all the same.
        if self.core.settles(&message, self.standing) {
            let (core, standing, settling) = (self.core.clone(), self.standing, message.clone());
            let settled = tokio::task::spawn_local(async move {
                let asker = Asker::at(now);
                let asked = core.should_rate_limit_as(lease, &settling, standing, &asker, &mut out);
                let answered = asked.await;
                (answered, out)
            });
            let (answered, out) = settled.await.map_err(|_| Failed::broken_off())?;
            let answered = answered?;
            let held = answered.lease.map(|lease| Box::new(self.holding(message, lease)));
            return Ok(unary(out, answered, held));
        }
        // Dropped while it waits, this gives back what the counters may be about to give.
        let mut held = Box::new(self.holding(message.clone(), lease));
        let asker = self.asker(now);
        let answered = self.core.should_rate_limit_as(lease, &message, self.standing, &asker, &mut out).await;
        if !answered.as_ref().is_ok_and(|answered| answered.lease.is_some()) {
            held.read();
        }
        let answered = answered?;
        Ok(unary(out, answered, answered.lease.map(|_| held)))
    }
}

/// Room for an answer, behind that for its prefix.
fn room_for_answer() -> Vec<u8> {
    let mut out = Vec::with_capacity(ANSWER_BYTES);
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    out
}

/// An answer that was written into such room: whether it admits, and the body that it becomes.
fn unary(mut out: Vec<u8>, answered: Answered, held: Option<Box<Held>>) -> (bool, UnaryBody) {
    let length = u32::try_from(out.len() - PREFIX_BYTES).unwrap_or(u32::MAX);
    out[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    (answered.admitted, UnaryBody::Message(out.into(), held))
}

/// What came of a body: nothing yet, its end, or a frame.
type Came<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

/// The message, if it came as a whole.
fn whole<E>(first: &Came<E>) -> Option<Bytes> {
    let Poll::Ready(Some(Ok(frame))) = first else { return None };
    let data = frame.data_ref()?;
    match message(data) {
        Ok(Message::Whole(at)) => Some(data.slice(at)),
        _ => None,
    }
}

/// Reads the one message of a call, of which this came first; none if it is too large.
async fn read<B>(
    body: &mut B,
    first: Came<B::Error>,
    patience: Duration,
    all: &Cell<usize>,
) -> Result<Option<Bytes>, Failed>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    // For all of it: whoever sends a byte now and then would hold a call for ever otherwise.
    let gathered = tokio::time::timeout(patience, gather(body, first, all)).await;
    gathered.unwrap_or_else(|_| Err(Failed::new(Code::DeadlineExceeded, "the message did not come in time")))
}

async fn gather<B>(body: &mut B, first: Came<B::Error>, all: &Cell<usize>) -> Result<Option<Bytes>, Failed>
where
    B: Body<Data = Bytes, Error: Display> + Unpin,
{
    let (mut gathered, mut came) = (BytesMut::new(), first);
    let mut part = Part { all, own: 0 };
    loop {
        let frame = match came {
            Poll::Ready(frame) => frame,
            Poll::Pending => poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await,
        };
        came = Poll::Pending;
        let Some(frame) = frame else {
            return Err(Failed::new(Code::InvalidArgument, "the message ends too early"));
        };
        let frame = frame.map_err(|error| Failed::new(Code::Cancelled, error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        gathered.extend_from_slice(&data);
        part.grow(data.len());
        if all.get() > GATHERED_BYTES_MAX {
            return Ok(None);
        }
        match message(&gathered)? {
            Message::Whole(at) => return Ok(Some(gathered.freeze().slice(at))),
            Message::TooLarge => return Ok(None),
            Message::Partly => {}
        }
    }
}

/// A message's part of what is gathered, until it is dropped.
struct Part<'c> {
    all: &'c Cell<usize>,
    own: usize,
}

impl Part<'_> {
    fn grow(&mut self, bytes: usize) {
        self.own += bytes;
        self.all.set(self.all.get() + bytes);
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.all.set(self.all.get() - self.own);
    }
}

enum Message {
    /// It stands there.
    Whole(Range<usize>),
    Partly,
    TooLarge,
}

fn message(data: &[u8]) -> Result<Message, Failed> {
    let Some(prefix) = data.first_chunk::<PREFIX_BYTES>() else { return Ok(Message::Partly) };
    let [compressed, length @ ..] = *prefix;
    let length = u32::from_be_bytes(length) as usize;
    if length > MESSAGE_BYTES_MAX {
        return Ok(Message::TooLarge);
    }
    if compressed != 0 {
        return Err(Failed::new(Code::Unimplemented, "compressed messages are not understood"));
    }
    let at = PREFIX_BYTES..PREFIX_BYTES + length;
    Ok(if data.len() < at.end { Message::Partly } else { Message::Whole(at) })
}

/// The client's deadline: at most eight digits and a unit.
fn timeout(value: &HeaderValue) -> Option<Duration> {
    let (digits, unit) = value.to_str().ok()?.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.len() > 8 {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

impl Failed {
    fn response(self) -> Response<UnaryBody> {
        let mut response = Response::new(UnaryBody::Done);
        let headers = response.headers_mut();
        headers.insert(http::header::CONTENT_TYPE, CONTENT_TYPE);
        headers.insert(GRPC_STATUS, HeaderValue::from(self.code as i32));
        // What is no header is left out of it: our messages are plain text, those of libraries may hold anything.
        let text: String =
            self.message.chars().filter(|one| matches!(one, ' '..='~') && *one != '%').collect();
        if let Ok(text) = HeaderValue::from_str(&text) {
            headers.insert(GRPC_MESSAGE, text);
        }
        response
    }
}

/// A call whose message did not come.
pub(crate) fn too_slow() -> Response<UnaryBody> {
    Failed::new(Code::DeadlineExceeded, "the message did not come in time").response()
}

/// A call that nobody answers.
pub(crate) fn unknown_call(path: &str) -> Response<UnaryBody> {
    Failed::new(Code::Unimplemented, format!("there is no method {path}")).response()
}

/// One message, and that it is well.
#[derive(Debug)]
pub(crate) enum UnaryBody {
    /// The message is still to be sent. What it says is held is given back if it never is: the caller has gone, or gave up.
    Message(Bytes, Option<Box<Held>>),
    /// The status is, and the message may be waiting still.
    Status(Option<Box<Held>>),
    /// Nothing is.
    Done,
}

/// Places that were taken for a call, under an id that only its answer tells. Dropped before somebody has read that, they are given back:
/// it would be a minute, or whatever the limit says, until they expire.
pub(crate) struct Held {
    core: Rc<Core>,
    message: Bytes,
    standing: Standing,
    lease: LeaseId,
    in_vain: bool,
}

impl Held {
    /// Somebody has read the answer, or there is nothing to give back.
    fn read(&mut self) {
        self.in_vain = false;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.in_vain {
            self.core.give_back(self.message.clone(), self.standing, self.lease);
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Held").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl UnaryBody {
    fn response(self) -> Response<Self> {
        let mut response = Response::new(self);
        response.headers_mut().insert(http::header::CONTENT_TYPE, CONTENT_TYPE);
        response
    }
}

impl Body for UnaryBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match &mut *self {
            Self::Message(message, held) => {
                let (message, held) = (std::mem::take(message), held.take());
                *self = Self::Status(held);
                Frame::data(message)
            }
            // Nobody asks for this before the message is on its way. Whoever reads it holds what it says.
            Self::Status(held) => {
                if let Some(mut held) = held.take() {
                    held.read();
                }
                *self = Self::Done;
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
                Frame::trailers(trailers)
            }
            Self::Done => return Poll::Ready(None),
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Done)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of a hundred bytes, one at a time, with a rest before each.
    struct Trickle {
        bytes: std::vec::IntoIter<u8>,
        rest: Pin<Box<tokio::time::Sleep>>,
    }

    const REST: Duration = Duration::from_millis(10);

    impl Body for Trickle {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            std::task::ready!(self.rest.as_mut().poll(context));
            self.rest = Box::pin(tokio::time::sleep(REST));
            let byte = self.bytes.next();
            Poll::Ready(byte.map(|byte| Ok(Frame::data(Bytes::copy_from_slice(&[byte])))))
        }
    }

    #[test]
    fn a_message_that_trickles_has_one_deadline_for_all_of_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let all = Cell::new(0);
        let read = |patience| {
            runtime.block_on(async {
                let mut bytes = vec![0, 0, 0, 0, 100];
                bytes.extend([7; 100]);
                let rest = Box::pin(tokio::time::sleep(Duration::ZERO));
                let mut body = Trickle { bytes: bytes.into_iter(), rest };
                read(&mut body, Poll::Pending, patience, &all).await
            })
        };
        // Each byte comes in time; the message would take a second.
        assert_eq!(read(5 * REST).map_err(|failed| failed.code), Err(Code::DeadlineExceeded));
        let whole = read(Duration::from_secs(60)).expect("it came").expect("and is small");
        assert_eq!(whole, vec![7; 100]);
        // And it does not come at all where others have gathered too much already.
        assert_eq!(all.get(), 0, "nothing is left behind");
        all.set(GATHERED_BYTES_MAX);
        assert_eq!(read(Duration::from_secs(60)).map_err(|failed| failed.code), Ok(None));
        assert_eq!(all.get(), GATHERED_BYTES_MAX);
    }

    #[test]
    fn deadlines_of_clients_are_understood() {
        let read = |text: &'static str| timeout(&HeaderValue::from_static(text));
        assert_eq!(read("20m"), Some(Duration::from_millis(20)));
        assert_eq!(read("99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        assert_eq!(read("1u"), Some(Duration::from_micros(1)));
        for wrong in ["", "m", "20", "20x", "-1m", "999999999m", "1.5S"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
