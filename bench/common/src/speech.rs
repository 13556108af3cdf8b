//! What is spoken on a connection, and where an answer says what was decided.

use crate::client::{Outcome, SHOULD_RATE_LIMIT};
use crate::messages::{OK, OVER_LIMIT};
use crate::requests::PREFIX_BYTES;
use crate::resp::NUMBERS;

/// The one call of throttlecrab-server.
const THROTTLE: &str = "/throttlecrab.RateLimiter/Throttle";

/// A way to ask.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Speech {
    /// gRPC: Envoy's `ShouldRateLimit`.
    #[default]
    Rls,
    /// gRPC: throttlecrab's `Throttle`.
    Throttle,
    /// HTTP/1.1, where 200 is an admission and 429 a refusal.
    HttpStatus,
    /// HTTP/1.1, where a body of JSON says `"allowed"`.
    HttpBody,
    /// RESP: throttlecrab's `THROTTLE`, where the first of five numbers is 1 or 0.
    Resp,
}

impl Speech {
    /// The path of a call of gRPC; none where a request has its own.
    pub fn path(self) -> Option<&'static str> {
        match self {
            Self::Rls => Some(SHOULD_RATE_LIMIT),
            Self::Throttle => Some(THROTTLE),
            Self::HttpStatus | Self::HttpBody | Self::Resp => None,
        }
    }

    /// What a message of gRPC says, with its prefix.
    pub fn said(self, message: &[u8]) -> Outcome {
        if self == Self::Rls && holds(message, DEGRADED) {
            return Outcome::Degraded; // Told where the node is asked to tell (`rls.metadata`).
        }
        // Both have what matters in their first field, a number below 128.
        const FIRST: u8 = 1 << 3;
        let first = match message.get(PREFIX_BYTES..) {
            Some([FIRST, value, ..]) => Some(i32::from(*value)),
            _ => None,
        };
        match (self, first) {
            (Self::Rls, Some(OK)) | (Self::Throttle, Some(1)) => Outcome::Admitted,
            (Self::Rls, Some(OVER_LIMIT)) => Outcome::Refused,
            // `false` is not sent; the limit that follows it is.
            (Self::Throttle, None) if message.len() > PREFIX_BYTES => Outcome::Refused,
            _ => Outcome::Failed,
        }
    }

    /// What an answer of HTTP says.
    pub fn answered(self, status: u16, body: &[u8]) -> Outcome {
        let has = |text: &[u8]| holds(body, text);
        match (self, status) {
            (Self::HttpBody, _) if has(br#""mode":"degraded""#) => Outcome::Degraded,
            (Self::HttpStatus, 200) => Outcome::Admitted,
            (Self::HttpStatus, 429) => Outcome::Refused,
            (Self::HttpBody, 200) if has(br#""allowed":true"#) => Outcome::Admitted,
            (Self::HttpBody, 200) if has(br#""allowed":false"#) => Outcome::Refused,
            _ => Outcome::Failed,
        }
    }

    /// What an answer of RESP says; one without numbers is an error.
    pub(crate) fn returned(self, numbers: Option<[i64; NUMBERS]>) -> Outcome {
        match (self, numbers) {
            (Self::Resp, Some([1, ..])) => Outcome::Admitted,
            (Self::Resp, Some([0, ..])) => Outcome::Refused,
            _ => Outcome::Failed,
        }
    }
}

/// The node's word for an answer that was not counted, since the store did not answer.
const DEGRADED: &[u8] = b"degraded";

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|some| some == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_decided_is_read_from_each_kind_of_answer() {
        for (speech, message, outcome) in [
            (Speech::Rls, &[0, 0, 0, 0, 2, 8, 1][..], Outcome::Admitted),
            (Speech::Rls, &[0, 0, 0, 0, 2, 8, 2], Outcome::Refused),
            (Speech::Rls, &[0, 0, 0, 0, 2, 8, 0], Outcome::Failed),
            (Speech::Rls, &[0, 0, 0, 0, 0], Outcome::Failed),
            (Speech::Rls, b"\0\0\0\0\x0c\x08\x01\x1a\x08degraded", Outcome::Degraded),
            (Speech::Throttle, &[0, 0, 0, 0, 4, 8, 1, 16, 5], Outcome::Admitted),
            (Speech::Throttle, &[0, 0, 0, 0, 2, 16, 5], Outcome::Refused),
            (Speech::Throttle, &[0, 0, 0, 0, 0], Outcome::Failed),
        ] {
            assert_eq!(speech.said(message), outcome, "{speech:?} {message:?}");
        }
        for (speech, status, body, outcome) in [
            (Speech::HttpStatus, 200, "", Outcome::Admitted),
            (Speech::HttpStatus, 429, "", Outcome::Refused),
            (Speech::HttpStatus, 503, "", Outcome::Failed),
            (Speech::HttpBody, 200, r#"{"allowed":true,"limit":5}"#, Outcome::Admitted),
            (Speech::HttpBody, 200, r#"{"allowed":false}"#, Outcome::Refused),
            (Speech::HttpBody, 200, r#"{"allowed":true,"mode":"degraded"}"#, Outcome::Degraded),
            (Speech::HttpBody, 500, r#"{"allowed":true}"#, Outcome::Failed),
            (Speech::HttpBody, 200, "{}", Outcome::Failed),
        ] {
            assert_eq!(speech.answered(status, body.as_bytes()), outcome, "{speech:?} {status} {body}");
        }
        for (speech, numbers, outcome) in [
            (Speech::Resp, Some([1, 5, 4, 1, 0]), Outcome::Admitted),
            (Speech::Resp, Some([0, 5, 0, 1, 1]), Outcome::Refused),
            (Speech::Resp, Some([2, 5, 0, 1, 1]), Outcome::Failed),
            (Speech::Resp, None, Outcome::Failed),
            (Speech::HttpBody, Some([1, 5, 4, 1, 0]), Outcome::Failed),
        ] {
            assert_eq!(speech.returned(numbers), outcome, "{speech:?} {numbers:?}");
        }
    }
}
