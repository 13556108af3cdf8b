//! gRPC around the calls: frames, statuses and deadlines. `ShouldRateLimit` is answered here, without a layer between; health and
//! reflection are left to tonic's services.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tidegate_telemetry::{RequestOutcome, Server};
use tonic::Code;

use super::answer::{Answered, CallError, refuse_unread};
use crate::node::{Core, INTERNAL_CALL, TRACEPARENT};

/// The path of the one call that matters.
pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// Messages larger than this are refused unread. That is a refusal, and no error: Envoy lets requests pass whose call failed.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// How long a message may take to come, if the client does not say so itself.
const MESSAGE_MAX: Duration = Duration::from_secs(5);
/// A byte that says whether the message is compressed, and four for its length.
const PREFIX_BYTES: usize = 5;

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
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        let code = match error {
            CallError::Invalid(_) => Code::InvalidArgument,
            CallError::Unavailable => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

/// Answers one call of `ShouldRateLimit`. Dropped while it waits for the message, it has done nothing; after that it does not wait.
pub(crate) async fn call(core: &Rc<Core>, request: Request<Incoming>) -> Response<UnaryBody> {
    let started = core.node.clock.now_us();
    let (outcome, response) = match answer(core, request).await {
        Ok((Answered::Admitted, bytes)) => (RequestOutcome::Admitted, UnaryBody::response(bytes)),
        Ok((Answered::Refused, bytes)) => (RequestOutcome::Refused, UnaryBody::response(bytes)),
        Err(failed) if failed.code == Code::Unavailable => (RequestOutcome::Failed, failed.response()),
        Err(failed) => (RequestOutcome::Invalid, failed.response()),
    };
    let took = core.node.clock.now_us().saturating_sub(started);
    core.node.metrics.core(core.number).request(Server::Rls, outcome, took);
    response
}

async fn answer(core: &Core, request: Request<Incoming>) -> Result<(Answered, Bytes), Failed> {
    let deadline = request.headers().get(GRPC_TIMEOUT).and_then(timeout).unwrap_or(MESSAGE_MAX);
    let standing = core.standing(request.headers().get(INTERNAL_CALL));
    let (head, body) = request.into_parts();
    let trace = head.headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    let mut body = pin!(body);
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    let answered = match read(body.as_mut(), deadline.min(MESSAGE_MAX)).await? {
        Some(message) => core.should_rate_limit(&message, standing, trace, &mut out)?,
        None => {
            refuse_unread(&mut out);
            Answered::Refused
        }
    };
    let length = u32::try_from(out.len() - PREFIX_BYTES).unwrap_or(u32::MAX);
    out[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok((answered, out.into()))
}

/// Reads the one message of a call; none if it is too large.
async fn read(mut body: Pin<&mut Incoming>, patience: Duration) -> Result<Option<Bytes>, Failed> {
    let mut gathered: Option<BytesMut> = None;
    loop {
        // Nearly always it is here already, and no timer is set.
        let mut next = poll_fn(|context| body.as_mut().poll_frame(context));
        let frame = match poll_fn(|context| Poll::Ready(Pin::new(&mut next).poll(context))).await {
            Poll::Ready(frame) => frame,
            Poll::Pending => tokio::time::timeout(patience, next)
                .await
                .map_err(|_| Failed::new(Code::DeadlineExceeded, "the message did not come in time"))?,
        };
        let Some(frame) = frame else {
            return Err(Failed::new(Code::InvalidArgument, "the message ends too early"));
        };
        let frame = frame.map_err(|error| Failed::new(Code::Cancelled, error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        let data = match &mut gathered {
            None => data,
            Some(gathered) => {
                gathered.extend_from_slice(&data);
                gathered.clone().freeze()
            }
        };
        match message(&data)? {
            Message::Whole(message) => return Ok(Some(message)),
            Message::TooLarge => return Ok(None),
            Message::Partly if gathered.is_none() => gathered = Some(BytesMut::from(&data[..])),
            Message::Partly => {}
        }
    }
}

enum Message {
    Whole(Bytes),
    Partly,
    TooLarge,
}

fn message(data: &Bytes) -> Result<Message, Failed> {
    let Some(prefix) = data.first_chunk::<PREFIX_BYTES>() else { return Ok(Message::Partly) };
    let [compressed, length @ ..] = *prefix;
    let length = u32::from_be_bytes(length) as usize;
    if length > MESSAGE_BYTES_MAX {
        return Ok(Message::TooLarge);
    }
    if compressed != 0 {
        return Err(Failed::new(Code::Unimplemented, "compressed messages are not understood"));
    }
    if data.len() < PREFIX_BYTES + length {
        return Ok(Message::Partly);
    }
    let mut message = data.slice(..PREFIX_BYTES + length);
    message.advance(PREFIX_BYTES);
    Ok(Message::Whole(message))
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

/// A call that nobody answers.
pub(crate) fn unknown_call(path: &str) -> Response<UnaryBody> {
    Failed::new(Code::Unimplemented, format!("there is no method {path}")).response()
}

/// One message, and that it is well.
#[derive(Debug)]
pub(crate) enum UnaryBody {
    /// The message is still to be sent.
    Message(Bytes),
    /// The status is.
    Status,
    /// Nothing is.
    Done,
}

impl UnaryBody {
    fn response(message: Bytes) -> Response<Self> {
        let mut response = Response::new(Self::Message(message));
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
        let frame = match std::mem::replace(&mut *self, Self::Done) {
            Self::Message(message) => {
                *self = Self::Status;
                Frame::data(message)
            }
            Self::Status => {
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
