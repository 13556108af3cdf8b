//! gRPC around the calls: frames, statuses and deadlines. Knows no connection.

use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::Micros;
use tidegate_counters::{Hand, Memory};
use tidegate_http2::{Delivery, Head};
use tidegate_telemetry::{RequestOutcome, Server};
use tonic::Code;

use super::answer::{Answered, CallError, LeaseId, Read, refuse_unread};
use crate::node::{Asker, Core, INTERNAL_CALL, InForce, Standing, TRACEPARENT};
use crate::waiting::caught;

/// The path of the one call that matters.
pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
/// Messages larger than this are refused unread. That is a refusal, and no error: Envoy lets requests pass whose call failed.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// How long a message may take to come, if the client does not say so itself.
const MESSAGE_MAX: Duration = Duration::from_secs(5);
/// A byte that says whether the message is compressed, and four for its length.
const PREFIX_BYTES: usize = 5;

/// How much of a path is told that nobody knows.
const PATH_TOLD_BYTES: usize = 128;

const GRPC_TIMEOUT: &str = "grpc-timeout";

/// A call that failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) code: Code,
    pub(super) message: String,
}

impl Failed {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    fn broken_off() -> Self {
        Self::new(Code::Internal, "the call was broken off")
    }

    /// A call whose message did not come.
    pub(super) fn too_slow() -> Self {
        Self::new(Code::DeadlineExceeded, "the message did not come in time")
    }

    /// A call whose message came in part.
    pub(super) fn too_short() -> Self {
        Self::new(Code::InvalidArgument, "the message ends too early")
    }

    /// A call that nobody answers.
    pub(super) fn unknown(path: &[u8]) -> Self {
        // No longer than names are: a few bytes of a client may stand for many.
        let path = String::from_utf8_lossy(&path[..path.len().min(PATH_TOLD_BYTES)]);
        Self::new(Code::Unimplemented, format!("there is no method {path}"))
    }

    /// The message as a header may have it: ours are plain text, those of libraries may hold anything.
    pub(super) fn text(&self) -> String {
        self.message.chars().filter(|one| matches!(one, ' '..='~') && *one != '%').collect()
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

/// One call of `ShouldRateLimit` whose message has come. Dropped while it waits for the counters, it may have been charged, but the places
/// that it took are given back.
pub(super) struct Call {
    core: Rc<Core>,
    head: Rc<Head>,
    /// When it came.
    came: Micros,
    pub(super) standing: Standing,
    /// Does it not even say that it comes from inside?
    is_plain: bool,
    /// How long the caller waits, if it says so.
    patience: Option<Duration>,
    /// Which field says what trace it belongs to.
    trace: Option<usize>,
}

/// What was answered, if it was: whether it admits, and what is held by whoever reads it. The message is written elsewhere.
pub(super) type Told = Result<(bool, Option<Box<Held>>), Failed>;

impl Call {
    /// Keeps what a call needs of its headers.
    pub(super) fn new(core: Rc<Core>, head: Rc<Head>) -> Self {
        let came = core.node.now();
        Self::at(came, core, head)
    }

    /// The same for one that came then.
    pub(super) fn at(came: Micros, core: Rc<Core>, head: Rc<Head>) -> Self {
        let (mut patience, mut internal_call, mut trace) = (None, None, None);
        // In one pass: there are few.
        for (at, (name, value)) in head.fields().enumerate() {
            if name == GRPC_TIMEOUT.as_bytes() {
                patience = patience.or_else(|| timeout(value));
            } else if name == INTERNAL_CALL.as_bytes() {
                internal_call = internal_call.or(Some(value));
            } else if name == TRACEPARENT.as_bytes() {
                trace = trace.or(Some(at));
            }
        }
        let (standing, is_plain) = (core.standing(internal_call), internal_call.is_none());
        Self { core, head, came, standing, is_plain, patience, trace }
    }

    /// The same for one that came with another: nearly always all calls of a connection have the same headers.
    pub(super) fn beside(other: Option<&Self>, came: Micros, core: &Rc<Core>, head: Rc<Head>) -> Self {
        match other {
            // Who says that it is one of us has to show it every time.
            Some(other) if Rc::ptr_eq(&other.head, &head) && other.is_plain => {
                Self { core: core.clone(), head, came, ..*other }
            }
            _ => Self::at(came, core.clone(), head),
        }
    }

    /// Answers it at once, by `decide`, which writes the message behind what is in `out`.
    pub(super) fn answer_now(
        self,
        out: &mut Vec<u8>,
        decide: impl FnOnce(&Self, &mut Vec<u8>) -> Told,
    ) -> Told {
        let start = begin(out);
        // A panic ends the call, not the connection.
        let decided = catch_unwind(AssertUnwindSafe(|| decide(&self, out)));
        let told = decided.unwrap_or_else(|_| Err(Failed::broken_off()));
        end(out, start);
        self.count(&told);
        told
    }

    /// The same, when the counters have answered. Gives `out` back.
    pub(super) async fn answer_later(self, message: Bytes, mut out: Vec<u8>) -> (Told, Vec<u8>) {
        let start = begin(&mut out);
        let decided = caught(pin!(self.decide_later(message, &mut out))).await;
        let told = decided.unwrap_or_else(|_| Err(Failed::broken_off()));
        end(&mut out, start);
        self.count(&told);
        (told, out)
    }

    /// When it came.
    pub(super) fn came(&self) -> Micros {
        self.came
    }

    /// Refuses it because its message is too large to be read.
    pub(super) fn refuse_unread(self, out: &mut Vec<u8>) -> Told {
        let start = begin(out);
        refuse_unread(out);
        end(out, start);
        let told = Ok((false, None));
        self.count(&told);
        told
    }

    /// It cannot be answered.
    pub(super) fn fail(self, failed: Failed) -> Told {
        let told = Err(failed);
        self.count(&told);
        told
    }

    fn count(&self, told: &Told) {
        let outcome = match told {
            Ok((true, _)) => RequestOutcome::Admitted,
            Ok((false, _)) => RequestOutcome::Refused,
            Err(failed) if failed.code == Code::Unavailable => RequestOutcome::Failed,
            Err(_) => RequestOutcome::Invalid,
        };
        let node = &self.core.node;
        let took_us = node.now().get().saturating_sub(self.came.get());
        node.metrics.core(self.core.number).request(Server::Rls, outcome, took_us);
        if let Some(stand_in) = &node.stand_in {
            stand_in.called(self.core.number, outcome, Duration::from_micros(took_us));
        }
    }

    /// What the call is decided by besides its message.
    fn asker(&self) -> Asker<'_> {
        let trace = self.trace.and_then(|at| self.head.fields().nth(at));
        let trace = trace.and_then(|(_, value)| std::str::from_utf8(value).ok());
        Asker { came: self.came, trace, patience: self.patience }
    }

    fn holding(&self, message: Bytes, lease: LeaseId) -> Held {
        Held { core: self.core.clone(), message, standing: self.standing, lease, in_vain: true }
    }

    /// Decides it on counters in memory.
    pub(super) fn decide_now(&self, memory: &Memory, message: &[u8], out: &mut Vec<u8>) -> Told {
        let answered = self.core.should_rate_limit_now(memory, message, self.standing, &self.asker(), out)?;
        Ok(self.told(answered, message))
    }

    /// The same where its message is read already.
    pub(super) fn decide_read<'r>(
        &self,
        memory: &Memory,
        in_force: &'r InForce,
        read: &mut Read<'_, 'r>,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Told {
        let answered = self.core.answer_read(memory, in_force, read, self.standing, &self.asker(), out)?;
        Ok(self.told(answered, message))
    }

    fn told(&self, Answered { admitted, lease }: Answered, message: &[u8]) -> (bool, Option<Box<Held>>) {
        (admitted, lease.map(|lease| Box::new(self.holding(Bytes::copy_from_slice(message), lease))))
    }

    async fn decide_later(&self, message: Bytes, out: &mut Vec<u8>) -> Told {
        let in_force = self.core.in_force();
        let lease = self.core.fresh_lease_by(&in_force);
        // Who reports what something came to does not wait for the answer, and Envoy gives up soon: it is done all the same.
        if self.core.settles(&message, self.standing) {
            let (core, standing, came, settling) =
                (self.core.clone(), self.standing, self.came, message.clone());
            let settled = tokio::task::spawn_local(async move {
                let mut out = Vec::new();
                let asker = Asker::at(came);
                let answered = core
                    .should_rate_limit_later(in_force, lease, &settling, standing, &asker, &mut out)
                    .await;
                (answered, out)
            });
            let (answered, message_of_answer) = settled.await.map_err(|_| Failed::broken_off())?;
            let answered = answered?;
            out.extend_from_slice(&message_of_answer);
            let held = answered.lease.map(|lease| Box::new(self.holding(message, lease)));
            return Ok((answered.admitted, held));
        }
        // Dropped while it waits, this gives back what the counters may be about to give.
        let mut held = lease.as_str().map(|_| Box::new(self.holding(message.clone(), lease)));
        let (core, asker) = (&self.core, self.asker());
        let answered =
            core.should_rate_limit_later(in_force, lease, &message, self.standing, &asker, out).await;
        if !answered.as_ref().is_ok_and(|answered| answered.lease.is_some())
            && let Some(mut held) = held.take()
        {
            held.in_vain = false;
        }
        Ok((answered?.admitted, held))
    }

    /// Are its counters here, so that it need not wait?
    pub(super) fn memory(core: &Core) -> Option<&Memory> {
        match &core.hand {
            Hand::Memory(memory) => Some(memory),
            Hand::Redis(_) => None,
        }
    }
}

/// Room for the prefix of a message; gives where it begins.
fn begin(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    start
}

/// Writes the prefix of the message that stands behind it.
fn end(out: &mut [u8], start: usize) {
    let length = u32::try_from(out.len() - start - PREFIX_BYTES).unwrap_or(u32::MAX);
    out[start + 1..start + PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
}

/// How far a message is.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// It stands there.
    Whole(Range<usize>),
    Partly,
    TooLarge,
}

pub(super) fn message(data: &[u8]) -> Result<Message, Failed> {
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

/// How long the message of a call may take to come.
pub(super) fn message_max(head: &Head) -> Duration {
    let deadline = head.fields().find(|(name, _)| *name == GRPC_TIMEOUT.as_bytes());
    deadline.and_then(|(_, value)| timeout(value)).map_or(MESSAGE_MAX, |deadline| deadline.min(MESSAGE_MAX))
}

/// The client's deadline: at most eight digits and a unit.
fn timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.is_empty() || digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(number * 3_600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Places that were taken for a call, under an id that only its answer tells. Dropped before that is on its way, they are given back: it
/// would be a minute, or whatever the limit says, until they expire.
pub(super) struct Held {
    core: Rc<Core>,
    message: Bytes,
    standing: Standing,
    lease: LeaseId,
    in_vain: bool,
}

impl Delivery for Held {
    fn delivered(mut self: Box<Self>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_of_clients_are_understood() {
        let read = |text: &str| timeout(text.as_bytes());
        assert_eq!(read("20m"), Some(Duration::from_millis(20)));
        assert_eq!(read("99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        assert_eq!(read("1u"), Some(Duration::from_micros(1)));
        for wrong in ["", "m", "20", "20x", "-1m", "+1m", "999999999m", "1.5S"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_a_call_waits_with_takes_little_room() {
        fn bytes<A, B, C, Waits: Future>(_: fn(A, B, C) -> Waits) -> usize {
            size_of::<Waits>()
        }
        let waits = bytes(Call::answer_later);
        assert!(waits <= 480, "{waits} bytes");
    }
}
