//! One call of `ShouldRateLimit`, from the bytes of the request to the bytes of the answer. Knows neither gRPC nor HTTP.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use arrayvec::ArrayString;
use bytes::Bytes;
use smallvec::SmallVec;
use tidegate_core::{Algorithm, Ask, Fate, Limit, Micros, OnStoreFailure, Plan, Query, Role, Rule, Unit};
use tidegate_counters::{Hand, Memory, Mode};
use tidegate_telemetry::Reservation;

use super::request::RateLimitRequest;
use super::response::{Code, CurrentLimit, ResponseWriter, Status};
use crate::decide::{Asks, Decision};
use crate::node::{Ahead, Asker, Core, Decided, InForce, NO_RULES, ReplyStyle, Standing};
use crate::reply::{self, Told};
use crate::stand_in::{self, StandIn};
use crate::waiting::at_once;

/// A call that gets no answer but an error. Envoy lets requests pass whose call failed, so there are few reasons.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// The bytes are no request.
    #[error("{0}")]
    Invalid(String),
    /// The same, in the words of the reference server.
    #[error("{0}")]
    Reference(&'static str),
    /// The rules say that the proxy is to decide, because the node cannot.
    #[error("the decision failed, and the rules leave it to the proxy")]
    Unavailable,
    /// There are no rules yet.
    #[error("{NO_RULES}")]
    NoRules,
}

/// What was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answered {
    /// May it go on?
    pub admitted: bool,
    /// The id of places that were taken, if nobody knows it but whoever reads the answer.
    pub lease: Option<LeaseId>,
}

impl Answered {
    const ADMITTED: Self = Self { admitted: true, lease: None };
    pub(super) const REFUSED: Self = Self { admitted: false, lease: None };
}

/// A request that is read, the id under which its places are taken, and its plan if that was made ahead.
#[derive(Default)]
pub(super) struct Read<'a, 'r> {
    pub(super) request: RateLimitRequest<'a>,
    pub(super) lease: LeaseId,
    pub(super) ahead: Option<Ahead<'r>>,
}

impl<'a> RateLimitRequest<'a> {
    pub(super) fn query<'q>(&'q self, domain: &'q str, lease: &'q LeaseId) -> Query<'q> {
        Query { domain, entries: &self.entries, descriptors: &self.descriptors, lease: lease.as_str() }
    }
}

impl Core {
    /// Answers a call: writes the response to `out`. On counters in memory it does not wait.
    ///
    /// `standing` says whether the caller is one of us.
    pub async fn should_rate_limit(
        &self,
        message: &[u8],
        standing: Standing,
        asker: &Asker<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answered, CallError> {
        match &self.hand {
            Hand::Memory(memory) => self.should_rate_limit_now(memory, message, standing, asker, out),
            Hand::Redis(_) => {
                let in_force = self.in_force();
                let lease = self.fresh_lease_by(&in_force);
                self.should_rate_limit_later(in_force, lease, message, standing, asker, out).await
            }
        }
    }

    /// An id for places that nobody names, for a request that is decided by these rules: none if nobody will ask for it.
    pub(super) fn fresh_lease_by(&self, in_force: &InForce) -> LeaseId {
        let is_asked_for = in_force.book.has_places() || in_force.book.has_reservations();
        if is_asked_for { LeaseId::new(self.fresh_id()) } else { LeaseId::default() }
    }

    /// The same on counters elsewhere, with the id under which places are taken. A request is large, and a call that waits is moved: in a
    /// place of its own it is not.
    pub(super) fn should_rate_limit_later(
        &self,
        in_force: Arc<InForce>,
        lease: LeaseId,
        message: &[u8],
        standing: Standing,
        asker: &Asker<'_>,
        out: &mut Vec<u8>,
    ) -> Pin<Box<impl Future<Output = Result<Answered, CallError>>>> {
        Box::pin(async move {
            let mut request = RateLimitRequest::default();
            request.read(message).map_err(|error| CallError::Invalid(error.to_string()))?;
            let domain = match self.asked(&request, standing, out)? {
                Ok(domain) => domain,
                Err(answered) => return Ok(answered),
            };
            self.settle(&mut request, domain).await;
            let (query, start) = (request.query(domain, &lease), out.len());
            self.decide_later(in_force, &query, &Asks::Planned, asker, |decided| {
                out.truncate(start);
                self.write(decided, &query, &lease, request.hits, out)
            })
            .await
        })
    }

    /// The same on counters in memory. Not a future: what one keeps while it waits is moved with it, and this never does.
    pub(super) fn should_rate_limit_now(
        &self,
        memory: &Memory,
        message: &[u8],
        standing: Standing,
        asker: &Asker<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answered, CallError> {
        let in_force = self.node.rules.in_force();
        let lease = self.fresh_lease_by(&in_force);
        let mut read = Read { request: read(message)?, lease, ahead: None };
        self.answer_read(memory, &in_force, &mut read, standing, asker, out)
    }

    /// The same for a request that is read already.
    pub(super) fn answer_read<'r>(
        &self,
        memory: &Memory,
        in_force: &'r InForce,
        read: &mut Read<'_, 'r>,
        standing: Standing,
        asker: &Asker<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Answered, CallError> {
        let Read { request, lease, ahead } = read;
        let domain = match self.asked(request, standing, out)? {
            Ok(domain) => domain,
            Err(answered) => return Ok(answered),
        };
        if in_force.book.has_reservations() {
            at_once(self.settle(request, domain));
        }
        let (query, start) = (request.query(domain, lease), out.len());
        self.decide_now(memory, in_force, ahead.take(), &query, &Asks::Planned, asker, |decided| {
            out.truncate(start); // If the first attempt broke half-way.
            self.write(decided, &query, lease, request.hits, out)
        })
    }

    /// The domain in which a request is to be decided; or the answer, which is written, where there is nothing to decide.
    #[inline]
    fn asked<'d, 'a: 'd>(
        &'d self,
        request: &RateLimitRequest<'a>,
        standing: Standing,
        out: &mut Vec<u8>,
    ) -> Result<Result<&'d str, Answered>, CallError> {
        if let Some(error) = self.reference_error(request) {
            return Err(CallError::Reference(error));
        }
        if !self.node.rules.is_loaded() {
            return Err(CallError::NoRules);
        }
        if request.domain.is_empty() {
            return Err(CallError::Invalid("the domain must not be empty".into()));
        }
        if request.descriptors_came == 0 {
            return Err(CallError::Invalid("the list of descriptors must not be empty".into()));
        }
        if request.too_much {
            refuse_all(request.descriptors_came, out);
            return Ok(Err(Answered::REFUSED));
        }
        let domain = self.domain_of(request.domain, standing);
        Ok(domain.ok_or_else(|| admit_all(request.descriptors_came, out)))
    }

    /// What the reference server would find wrong with a request, where this node stands in for it.
    #[inline]
    fn reference_error(&self, request: &RateLimitRequest<'_>) -> Option<&'static str> {
        self.node.stand_in.as_ref()?;
        match request {
            _ if !self.node.rules.is_loaded() => Some(stand_in::NO_RULES),
            RateLimitRequest { domain: "", .. } => Some(stand_in::EMPTY_DOMAIN),
            RateLimitRequest { descriptors_came: 0, .. } => Some(stand_in::NO_DESCRIPTORS),
            _ => None,
        }
    }

    /// Writes what was decided.
    fn write(
        &self,
        decided: Decided<'_>,
        query: &Query<'_>,
        lease: &LeaseId,
        hits: u32,
        out: &mut Vec<u8>,
    ) -> Result<Answered, CallError> {
        match decided {
            Decided::Counted(decision, in_force) => {
                Ok(self.write_decision(decision, in_force, query, lease, hits, out))
            }
            Decided::ByPolicy(policy) => by_policy(policy, query.descriptors.len(), out),
        }
    }

    /// The domain that it is counted in; none if it is not counted.
    pub(super) fn domain_of<'a>(&'a self, asked: &'a str, standing: Standing) -> Option<&'a str> {
        match standing {
            Standing::Outside => Some(asked),
            Standing::Internal => self.node.internal_domain.as_deref(),
        }
    }

    /// Gives back the places that a call took, or may have taken, whose answer nobody will read.
    pub(super) fn give_back(self: &Rc<Self>, message: Bytes, standing: Standing, lease: LeaseId) {
        let core = self.clone();
        self.later(async move {
            let Ok(request) = RateLimitRequest::parse(&message) else { return };
            let Some(domain) = core.domain_of(request.domain, standing) else { return };
            let query = request.query(domain, &lease);
            if takes_fresh_places(&core.node.rules.in_force(), &query, core.node.now()) {
                core.decide(&query, &Asks::Release, &Asker::at(core.node.now()), |_| ()).await;
            }
        });
    }

    fn write_decision(
        &self,
        decision: &Decision<'_>,
        in_force: &InForce,
        query: &Query<'_>,
        id: &LeaseId,
        hits: u32,
        out: &mut Vec<u8>,
    ) -> Answered {
        if decision.too_much {
            refuse_all(query.descriptors.len(), out);
            return Answered::REFUSED;
        }
        let stand_in = self.node.stand_in.as_ref();
        let overall = match stand_in {
            Some(stand_in) => stand_in.overall(self.number, decision, in_force, query),
            None if decision.admitted => Code::Ok,
            None => Code::OverLimit,
        };
        let mut writer = ResponseWriter::start(out, overall);
        match stand_in {
            None => (0..query.descriptors.len()).for_each(|at| writer.status(&status(decision, at))),
            Some(stand_in) => {
                let statuses = (0..query.descriptors.len()).map(|at| {
                    let told = decision.told_for(at).or_else(|| StandIn::shadowed(decision, at));
                    let is_quota = told.is_some_and(|take| decision.role(take) == Role::Quota);
                    (status_of(decision, at, told), !is_quota)
                });
                statuses.clone().for_each(|(status, _)| writer.status(&status));
                stand_in.write_headers(statuses, &mut writer);
            }
        }
        let style = &self.node.rls;
        if !style.headers.is_empty() || style.body.is_some() {
            self.write_reply(decision, in_force, query, style, &mut writer);
        }
        let reservations = reservations(decision, id);
        for _ in &reservations {
            self.node.metrics.core(self.number).reservation(Reservation::Made);
        }
        let told = write_metadata(decision, id, &reservations, style.metadata, &mut writer);
        if stand_in.is_some_and(|stand_in| stand_in.metadata) {
            // A message that comes in two parts is put together by whoever reads it.
            writer.metadata(|fields| stand_in::write_metadata(decision, query, hits, fields));
        }
        Answered { admitted: overall == Code::Ok, lease: told.then_some(*id) }
    }

    fn write_reply(
        &self,
        decision: &Decision<'_>,
        in_force: &InForce,
        query: &Query<'_>,
        style: &ReplyStyle,
        writer: &mut ResponseWriter<'_>,
    ) {
        let told = Told::of(decision, &in_force.names, query);
        reply::headers::write(&style.headers, &told, self.node.clock.wall_now_us(), &mut |name, value| {
            writer.response_header(name.as_str(), value);
        });
        if let Some(body) = style.body.filter(|_| !decision.admitted) {
            let mut text = Vec::new();
            writer.response_header("content-type", reply::body::write(body, &told, &mut text));
            writer.body(&text);
        }
    }
}

#[inline]
fn read(message: &[u8]) -> Result<RateLimitRequest<'_>, CallError> {
    RateLimitRequest::parse(message).map_err(|error| CallError::Invalid(error.to_string()))
}

/// Does a request take places under an id that only its answer tells?
fn takes_fresh_places(in_force: &InForce, query: &Query<'_>, now: Micros) -> bool {
    let mut plan = Plan::new();
    in_force.plan(query, now, &mut plan);
    plan.takes().iter().any(|take| take.fresh)
}

/// What a descriptor is told.
fn status<'d>(decision: &'d Decision<'_>, descriptor: usize) -> Status<'d> {
    status_of(decision, descriptor, decision.told_for(descriptor))
}

/// The same, by the take that speaks for it.
fn status_of<'d>(decision: &'d Decision<'_>, descriptor: usize, told: Option<usize>) -> Status<'d> {
    let blank = Status { code: Code::Ok, limit: None, remaining: 0, reset: None };
    let Some(at) = told else {
        let mut found = decision.plan.found().iter().filter(|found| found.descriptor == Some(descriptor));
        return match found.find_map(|found| match found.fate {
            Fate::Impossible => Some(Status { code: Code::OverLimit, ..blank }),
            Fate::Unlimited => Some(Status { remaining: u32::MAX, ..blank }),
            _ => None,
        }) {
            Some(status) => status,
            None => blank,
        };
    };
    let (take, verdict) = (&decision.plan.takes()[at], decision.shown(at));
    let name = take.rule.and_then(|rule| rule.said.name.as_deref()).unwrap_or_default();
    Status {
        // What is in shadow is only told where the reference server tells it, and it stops nobody.
        code: if verdict.admitted() || take.role == Role::Shadow { Code::Ok } else { Code::OverLimit },
        limit: current_limit(decision.plan.limit(take), name),
        remaining: verdict.remaining.min(verdict.limit),
        reset: Some(verdict.reset),
    }
}

/// A limit in Envoy's words. Places held at the same time have no window that is worth showing.
fn current_limit<'d>(limit: &Limit, name: &'d str) -> Option<CurrentLimit<'d>> {
    if limit.algorithm() == Algorithm::Concurrency {
        return None;
    }
    match (limit.window(), limit.periods().map(|calendar| calendar.unit())) {
        (Some(window), _) => CurrentLimit::new(limit.amount(), window, name),
        (None, Some(unit)) => {
            let unit = match unit {
                Unit::Day => 4,
                Unit::Month => 5,
                Unit::Week => 7,
            };
            Some(CurrentLimit { amount: limit.amount(), unit, multiplier: 1, name })
        }
        (None, None) => None,
    }
}

/// Metadata for the proxy: the ids of places that were taken and of reservations that were made, each under the name by which the rule
/// wants it back; and, if asked for, what decided. Says whether there was an id of places.
fn write_metadata(
    decision: &Decision<'_>,
    id: &LeaseId,
    reservations: &[(&str, String)],
    verbose: bool,
    writer: &mut ResponseWriter<'_>,
) -> bool {
    // Whoever named an id knows it.
    let named = decision.plan.takes().iter().zip(decision.answers).filter_map(|(take, answer)| {
        let took = take.fresh && decision.admitted && answer.verdict.applied > 0;
        let rule: &Rule = take.rule?;
        rule.said.lease_id.as_deref().filter(|_| took)
    });
    let (told, degraded) = if verbose { (decision.told(), decision.degraded()) } else { (None, None) };
    let took = named.clone().next().is_some();
    if told.is_none() && degraded.is_none() && !took && reservations.is_empty() {
        return false;
    }
    writer.metadata(|fields| {
        for name in named {
            fields.text(name, id.as_str().unwrap_or_default());
        }
        for (name, id) in reservations {
            fields.text(name, id);
        }
        if told.is_none() && degraded.is_none() {
            return;
        }
        let told = told.map(|at| (&decision.plan.takes()[at], &decision.answers[at]));
        fields.fields("tidegate", |fields| {
            if let Some((take, _)) = told {
                fields.text("rule", take.rule.map_or("request", |rule| &rule.id));
            }
            let mode = degraded.map(Mode::Degraded).or(told.map(|(_, answer)| answer.mode));
            fields.text("mode", mode.map_or("", Mode::name));
            if let Some(policy) = degraded {
                fields.text("policy", policy.name());
            }
            match (decision.bound(), degraded) {
                (Some(bound), _) => {
                    fields.number("bound_over", bound.over.into());
                    fields.number("bound_under", bound.under.into());
                }
                (None, Some(_)) => fields.text("bound", "unbounded"),
                (None, None) => {}
            }
        });
    });
    took
}

/// The ids of what was charged for rules that settle it later, by the names of their entries. What a node spent alone is not in the store,
/// and cannot be settled there.
fn reservations<'d>(decision: &Decision<'d>, id: &LeaseId) -> SmallVec<[(&'d str, String); 1]> {
    let mut all: SmallVec<[(&str, String); 1]> = SmallVec::new();
    if !decision.admitted {
        return all;
    }
    for (take, answer) in decision.plan.takes().iter().zip(decision.answers) {
        let Some((rule, name)) =
            take.rule.and_then(|rule| Some((rule, rule.said.reservation_id.as_deref()?)))
        else {
            continue;
        };
        let kept = matches!(take.ask, Ask::Charge { .. }) && !matches!(answer.mode, Mode::Degraded(_));
        let Some(receipt) = answer.verdict.receipt().filter(|_| kept) else { continue };
        let at = all.iter().position(|(other, _)| *other == name).unwrap_or_else(|| {
            all.push((name, String::new()));
            all.len() - 1
        });
        rule.reserve(take.key, receipt, id.number(), &mut all[at].1);
    }
    all
}

fn refuse_all(descriptors: usize, out: &mut Vec<u8>) {
    let mut writer = ResponseWriter::start(out, Code::OverLimit);
    for _ in 0..descriptors {
        writer.status(&Status { code: Code::OverLimit, limit: None, remaining: 0, reset: None });
    }
}

fn admit_all(descriptors: usize, out: &mut Vec<u8>) -> Answered {
    let mut writer = ResponseWriter::start(out, Code::Ok);
    for _ in 0..descriptors {
        writer.status(&Status { code: Code::Ok, limit: None, remaining: 0, reset: None });
    }
    Answered::ADMITTED
}

/// The answer to a message that is larger than may be: it is not read, so nobody knows how many descriptors it has.
pub(super) fn refuse_unread(out: &mut Vec<u8>) {
    refuse_all(0, out);
}

fn by_policy(policy: OnStoreFailure, descriptors: usize, out: &mut Vec<u8>) -> Result<Answered, CallError> {
    let (code, reset) = match policy {
        OnStoreFailure::Allow | OnStoreFailure::Local => (Code::Ok, None),
        OnStoreFailure::Deny => (Code::OverLimit, Some(Micros::from_secs(1))),
        OnStoreFailure::Error => return Err(CallError::Unavailable),
    };
    let mut writer = ResponseWriter::start(out, code);
    for _ in 0..descriptors {
        writer.status(&Status { code, limit: None, remaining: 0, reset });
    }
    Ok(if code == Code::Ok { Answered::ADMITTED } else { Answered::REFUSED })
}

/// The id of places, as text; empty where nobody asks for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeaseId {
    number: u64,
    digits: ArrayString<16>,
}

impl LeaseId {
    fn new(number: u64) -> Self {
        let digit = |at: usize| b"0123456789abcdef"[(number >> (60 - 4 * at)) as usize & 15];
        let digits = ArrayString::from_byte_string(&std::array::from_fn(digit));
        Self { number, digits: digits.unwrap_or_default() } // They are digits.
    }

    fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        Some(self.digits.as_str()).filter(|digits| !digits.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There are as many of them as calls that wait. They were twice as large when what waits was kept twice.
    #[test]
    fn a_call_that_waits_takes_little_room() {
        type Begin<A, B, C, D, E, F, G, Waits> = fn(A, B, C, D, E, F, G) -> Pin<Box<Waits>>;
        fn bytes<A, B, C, D, E, F, G, Waits: Future>(_: Begin<A, B, C, D, E, F, G, Waits>) -> usize {
            size_of::<Waits>()
        }
        let waits = bytes(Core::should_rate_limit_later);
        assert!(waits <= 1_800, "{waits} bytes");
    }
}
