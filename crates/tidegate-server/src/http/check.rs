//! Decisions over HTTP: checks, places that are held, and charges that are given back or settled.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use hyper::body::Incoming;
use serde::Serialize;
use smallvec::SmallVec;
use tidegate_core::{Algorithm, OnStoreFailure, Query};
use tidegate_telemetry::{RequestOutcome, Server};

use super::asked::{Asked, Body, Receipt};
use super::error::HttpError;
use super::{Answer, is_asked, json, read, with_type};
use crate::decide::{Asks, Decision};
use crate::explain::{Explanation, explain};
use crate::node::{Core, Decided, INTERNAL_CALL, InForce, Standing, TRACEPARENT};
use crate::receipts::Charges;
use crate::reply::{self, Told};

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    /// May it go on?
    Check,
    /// The same, taking places under an id.
    Acquire,
    /// Keep the places.
    Renew,
    /// Give the places back.
    Release,
    /// Give a charge back.
    Refund,
    /// A charge turned out to be another.
    Settle,
}

/// What a request says besides its body.
struct Around {
    enforce: bool,
    explain: bool,
    standing: Standing,
    trace: Option<String>,
}

pub(super) async fn answer(core: &Core, verb: Verb, request: Request<Incoming>) -> Result<Answer, HttpError> {
    let started = core.node.clock.now_us();
    let query = request.uri().query();
    let around = Around {
        enforce: is_asked(query, "enforce"),
        explain: is_asked(query, "explain"),
        standing: core.standing(request.headers().get(INTERNAL_CALL)),
        trace: request.headers().get(TRACEPARENT).and_then(|value| Some(value.to_str().ok()?.to_string())),
    };
    let bytes = read::read(request.into_body()).await;
    let answered = bytes.and_then(|bytes| decide(core, verb, &around, &bytes));
    let outcome = match &answered {
        Ok((_, outcome)) => *outcome,
        Err(_) => RequestOutcome::Invalid,
    };
    let took = core.node.clock.now_us().saturating_sub(started);
    core.node.metrics.core(core.number).request(Server::Http, outcome, took);
    answered.map(|(answer, _)| answer)
}

fn decide(
    core: &Core,
    verb: Verb,
    around: &Around,
    bytes: &Bytes,
) -> Result<(Answer, RequestOutcome), HttpError> {
    match Body::parse(bytes)? {
        Body::One(asked) if around.explain => explained(core, verb, &asked),
        Body::One(asked) => one(core, verb, around, &asked),
        Body::Several(_) if verb != Verb::Check || around.enforce || around.explain => {
            Err(HttpError::invalid("a list of checks goes to /v1/check, without enforce or explain"))
        }
        Body::Several(all) => several(core, around, &all),
    }
}

/// An explanation, for machines and for people.
#[derive(Serialize)]
struct Explained<'a> {
    explanation: &'a Explanation,
    text: String,
}

/// What would become of a request; nothing is charged.
fn explained(core: &Core, verb: Verb, asked: &Asked<'_>) -> Result<(Answer, RequestOutcome), HttpError> {
    if verb != Verb::Check {
        return Err(HttpError::invalid("only checks are explained: send it to /v1/check?explain"));
    }
    let in_force = core.node.rules.in_force();
    let domain = core.node.default_domain(&in_force.book);
    let parts = asked.parts(domain, None)?;
    let explanation = explain(&in_force.book, &core.node.counters, &parts.query(), core.node.now());
    let body = serde_json::to_vec(&Explained { text: explanation.render(), explanation: &explanation })
        .map_err(|error| HttpError::broken(error.to_string()))?;
    let outcome = if explanation.admitted { RequestOutcome::Admitted } else { RequestOutcome::Refused };
    Ok((json(200, body), outcome))
}

fn one(
    core: &Core,
    verb: Verb,
    around: &Around,
    asked: &Asked<'_>,
) -> Result<(Answer, RequestOutcome), HttpError> {
    let style = &core.node.http;
    judge(core, verb, around, asked, |told, receipt| {
        let refused = !told.admitted();
        let mut body = Vec::with_capacity(192);
        let (status, kind) = match (refused && around.enforce, style.body) {
            (true, Some(shape)) => (told.status(), reply::body::write(shape, told, &mut body)),
            (true, None) => (told.status(), "application/json"),
            (false, _) => {
                write_result(told, receipt, &mut body);
                (200, "application/json")
            }
        };
        let mut answer = with_type(status, kind, body);
        let headers = answer.headers_mut();
        reply::headers::write(&style.headers, told, core.node.clock.wall_now_us(), &mut |name, value| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.append(HeaderName::from_static(name), value);
            }
        });
        (answer, if refused { RequestOutcome::Refused } else { RequestOutcome::Admitted })
    })
}

fn several(core: &Core, around: &Around, all: &[Asked<'_>]) -> Result<(Answer, RequestOutcome), HttpError> {
    // All are looked at before any is charged: whoever made a mistake in one can send them all again.
    for (at, asked) in all.iter().enumerate() {
        let in_force = core.node.rules.in_force();
        asked
            .parts(core.node.default_domain(&in_force.book), None)
            .and_then(|_| asked.fits(Verb::Check))
            .map_err(|error| error.of_item(at))?;
    }
    let mut body = b"[".to_vec();
    for (at, asked) in all.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        judge(core, Verb::Check, around, asked, |told, receipt| write_result(told, receipt, &mut body))?;
    }
    body.push(b']');
    Ok((json(200, body), RequestOutcome::Admitted))
}

/// The result of a check, and its receipt if there is one.
fn write_result(told: &Told<'_>, receipt: Option<&str>, body: &mut Vec<u8>) {
    reply::check::write(told, body);
    if let Some(receipt) = receipt {
        body.pop(); // The bracket at the end.
        body.extend_from_slice(format!(r#","receipt":"{receipt}"}}"#).as_bytes()); // It is digits.
    }
}

/// Decides one thing, and shows what is told of it, with the id of its receipt.
fn judge<R>(
    core: &Core,
    verb: Verb,
    around: &Around,
    asked: &Asked<'_>,
    mut view: impl FnMut(&Told<'_>, Option<&str>) -> R,
) -> Result<R, HttpError> {
    asked.fits(verb)?;
    let node = &core.node;
    let charges = match (&asked.receipt, verb) {
        (Some(Receipt::Id(id)), Verb::Refund | Verb::Settle) => u64::from_str_radix(id, 16)
            .ok()
            .filter(|_| id.len() == 16)
            .and_then(|id| node.receipts.take(id))
            .unwrap_or_default(), // It was used, or has ended: the second time is no trouble.
        _ => Charges::new(),
    };
    let asks = match verb {
        Verb::Check | Verb::Acquire => Asks::Planned,
        Verb::Renew => Asks::Renew,
        Verb::Release => Asks::Release,
        Verb::Refund => Asks::Refund { units: asked.units, charges: &charges },
        Verb::Settle => Asks::Settle { actual: asked.actual.unwrap_or(0), charges: &charges },
    };
    let in_force = node.rules.in_force();
    let domain = node.default_domain(&in_force.book);
    let fresh = format!("{:016x}", core.fresh_id());
    let lease = asked.id.as_deref().or((verb == Verb::Check).then_some(fresh.as_str()));
    let mut parts = asked.parts(domain, lease)?;
    match (around.standing, &node.internal_domain) {
        (Standing::Outside, _) => {}
        (Standing::Internal, None) => return Ok(view(&Told::nothing(), None)),
        (Standing::Internal, Some(domain)) => parts.move_to(domain),
    }
    let query = parts.query();
    let now = node.now();
    let wants = matches!(asked.receipt, Some(Receipt::Wanted(true)));
    core.decide(&query, &asks, around.trace.as_deref(), now, |decided| match decided {
        Decided::Counted(decision, in_force) => {
            if matches!(verb, Verb::Acquire | Verb::Renew | Verb::Release) && !holds(decision) {
                let message = "no rule with the algorithm `concurrency` was found: there is nothing to hold";
                return Err(HttpError::invalid(message));
            }
            let receipt = (wants && decision.admitted).then(|| keep(core, decision)).flatten();
            Ok(view(&told(decision, in_force, &query), receipt.as_deref()))
        }
        Decided::ByPolicy(OnStoreFailure::Allow | OnStoreFailure::Local) => {
            Ok(view(&Told::unbounded(), None))
        }
        Decided::ByPolicy(OnStoreFailure::Deny | OnStoreFailure::Error) => {
            Ok(view(&Told::store_unavailable(), None))
        }
    })
}

fn told<'a>(decision: &'a Decision<'a>, in_force: &'a InForce, query: &'a Query<'a>) -> Told<'a> {
    Told::of(decision, &in_force.names, query)
}

fn holds(decision: &Decision<'_>) -> bool {
    let mut takes = decision.plan.takes().iter();
    takes.any(|take| decision.plan.limit(take).algorithm() == Algorithm::Concurrency)
}

/// Keeps what was charged, and gives the id to find it by; none if nothing was, or there is no room.
fn keep(core: &Core, decision: &Decision<'_>) -> Option<String> {
    let takes = || decision.plan.takes().iter().zip(decision.answers);
    let charged = takes().filter_map(|(take, answer)| Some((take.key, answer.verdict.receipt()?)));
    let charges: Charges = charged.collect::<SmallVec<_>>();
    let windows = takes().filter_map(|(take, _)| decision.plan.limit(take).window());
    let window = windows.max().unwrap_or(tidegate_core::Micros::MAX);
    let id = core.fresh_id();
    (!charges.is_empty() && core.node.receipts.keep(id, charges, window, core.node.now()))
        .then(|| format!("{id:016x}"))
}
