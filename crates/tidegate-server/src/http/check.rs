//! Decisions over HTTP: checks, places that are held, and charges that are given back or settled.

use arc_swap::Guard;
use arrayvec::ArrayString;
use bytes::Bytes;
use http::{HeaderValue, Request};
use hyper::body::Incoming;
use serde::Serialize;
use smallvec::SmallVec;
use tidegate_core::{Algorithm, Micros, Plan, Planned, Query};
use tidegate_counters::{Answer as Answered, Mode};
use tidegate_telemetry::{RequestOutcome, Server};

use super::asked::{Asked, Body, Receipt};
use super::error::HttpError;
use super::{Answer, aside, is_asked, json, read, with_type};
use crate::decide::{Asks, Decision};
use crate::explain::{Explanation, Seen, explain_seen};
use crate::node::{Asker, Core, Decided, INTERNAL_CALL, InForce, Standing, TRACEPARENT};
use crate::receipts::{Charges, KEPT_MAX};
use crate::reply::{self, Told};
use crate::waiting::together;

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

/// How many digits an id has.
const ID_DIGITS: usize = 16;

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
        enforce: is_asked(query, "enforce")?,
        explain: is_asked(query, "explain")?,
        standing: core.standing(request.headers().get(INTERNAL_CALL).map(HeaderValue::as_bytes)),
        trace: request.headers().get(TRACEPARENT).and_then(|value| Some(value.to_str().ok()?.to_string())),
    };
    let answered = match read::read(request.into_body()).await {
        Err(error) => Err(error),
        Ok(_) if !core.node.rules.is_loaded() => Err(HttpError::no_rules()),
        Ok(bytes) if around.explain => Box::pin(explained(core, verb, bytes)).await,
        Ok(bytes) => decide(core, verb, &around, &bytes).await,
    };
    let outcome = match &answered {
        Ok((_, outcome)) => *outcome,
        Err(error) if error.is_ours() => RequestOutcome::Failed,
        Err(_) => RequestOutcome::Invalid,
    };
    let took = core.node.clock.now_us().saturating_sub(started);
    core.node.metrics.core(core.number).request(Server::Http, outcome, took);
    answered.map(|(answer, _)| answer)
}

async fn decide(
    core: &Core,
    verb: Verb,
    around: &Around,
    bytes: &Bytes,
) -> Result<(Answer, RequestOutcome), HttpError> {
    match Body::parse(bytes)? {
        Body::One(asked) => one(core, verb, around, &asked).await,
        Body::Several(_) if verb != Verb::Check || around.enforce => {
            Err(HttpError::invalid("a list of checks goes to /v1/check, without enforce or explain"))
        }
        Body::Several(all) => several(core, around, &all).await,
    }
}

/// An explanation, for machines and for people.
#[derive(Serialize)]
struct Explained<'a> {
    explanation: &'a Explanation,
    text: String,
}

/// What would become of a request; nothing is charged. It looks at every rule beside the way, so it is worked out where no decision waits.
async fn explained(core: &Core, verb: Verb, bytes: Bytes) -> Result<(Answer, RequestOutcome), HttpError> {
    if verb != Verb::Check {
        return Err(HttpError::invalid("only checks are explained: send it to /v1/check?explain"));
    }
    let lease = digits(core.fresh_id());
    let asked = explainable(&bytes)?;
    // The same rules for both: what is explained is what was asked.
    let in_force = Guard::into_inner(core.node.rules.in_force());
    let now = if core.waits() { core.node.wall_now() } else { core.node.now() };
    let seen = {
        let parts = asked.parts(core.node.default_domain(&in_force.book), Some(&lease))?;
        Seen::on(&core.hand, in_force.at(now), &parts.query(), now).await
    };
    let seen = seen.map_err(|why| HttpError::unavailable(&why))?;
    let bytes = bytes.clone();
    aside(core, move |node| {
        let asked = explainable(&bytes)?;
        let parts = asked.parts(node.default_domain(&in_force.book), Some(&lease))?;
        let explanation = explain_seen(&in_force.at(now), &parts.query(), seen);
        let body = serde_json::to_vec(&Explained { text: explanation.render(), explanation: &explanation })
            .map_err(|error| HttpError::broken(error.to_string()))?;
        let outcome = if explanation.admitted { RequestOutcome::Admitted } else { RequestOutcome::Refused };
        Ok((json(200, body), outcome))
    })
    .await
}

/// One check, which can be explained.
fn explainable(bytes: &[u8]) -> Result<Box<Asked<'_>>, HttpError> {
    let Body::One(asked) = Body::parse(bytes)? else {
        return Err(HttpError::invalid("a list of checks goes to /v1/check, without enforce or explain"));
    };
    asked.fits(Verb::Check)?;
    Ok(asked)
}

async fn one(
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
                headers.append(name.clone(), value);
            }
        });
        (answer, if refused { RequestOutcome::Refused } else { RequestOutcome::Admitted })
    })
    .await
}

async fn several(
    core: &Core,
    around: &Around,
    all: &[Asked<'_>],
) -> Result<(Answer, RequestOutcome), HttpError> {
    // All are looked at before any is charged: whoever made a mistake in one can send them all again.
    for (at, asked) in all.iter().enumerate() {
        let in_force = core.node.rules.in_force();
        asked
            .parts(core.node.default_domain(&in_force.book), None)
            .and_then(|_| asked.fits(Verb::Check))
            .map_err(|error| error.of_item(at))?;
    }
    let check = async |asked: &Asked<'_>| {
        let mut result = Vec::with_capacity(192);
        let view = |told: &Told<'_>, receipt: Option<&str>| {
            result.clear();
            write_result(told, receipt, &mut result);
        };
        judge(core, Verb::Check, around, asked, view).await.map(|()| result)
    };
    let results = if core.waits() {
        together(all.iter().map(check)).await // In one go, in their order.
    } else {
        let mut results = Vec::with_capacity(all.len());
        for asked in all {
            if !results.is_empty() {
                tokio::task::yield_now().await; // Others are not to wait for all of them.
            }
            results.push(check(asked).await);
        }
        results
    };
    let mut body = b"[".to_vec();
    for (at, result) in results.into_iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&result?);
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
async fn judge<R>(
    core: &Core,
    verb: Verb,
    around: &Around,
    asked: &Asked<'_>,
    mut view: impl FnMut(&Told<'_>, Option<&str>) -> R,
) -> Result<R, HttpError> {
    asked.fits(verb)?;
    let (node, now) = (&core.node, core.node.now());
    let in_force = node.rules.in_force();
    let domain = node.default_domain(&in_force.book);
    let fresh = digits(core.fresh_id());
    let lease = asked.id.as_deref().or((verb == Verb::Check).then_some(fresh.as_str()));
    let mut parts = asked.parts(domain, lease)?;
    match (around.standing, &node.internal_domain) {
        (Standing::Internal, Some(domain)) => parts.move_to(domain),
        // Whoever is not limited takes nothing; but may give back what was taken.
        (Standing::Internal, None) if matches!(verb, Verb::Check | Verb::Acquire) => {
            return Ok(view(&Told::nothing(), None));
        }
        _ => {}
    }
    let query = parts.query();
    if matches!(verb, Verb::Acquire | Verb::Renew | Verb::Release) && !holds(&in_force, &query, now) {
        let message = "no rule with the algorithm `concurrency` was found: there is nothing to hold";
        return Err(HttpError::invalid(message));
    }
    let charges = match &asked.receipt {
        Some(Receipt::Id(id)) => charges(core, id, &in_force, &query, now)?,
        _ => Charges::new(),
    };
    let asks = match verb {
        Verb::Check | Verb::Acquire => Asks::Planned,
        Verb::Renew => Asks::Renew,
        Verb::Release => Asks::Release,
        Verb::Refund => Asks::Refund { units: asked.units, charges: &charges },
        Verb::Settle => Asks::Settle { actual: asked.actual.unwrap_or(0), charges: &charges },
    };
    let wants = matches!(asked.receipt, Some(Receipt::Wanted(true)));
    let asker = Asker { trace: around.trace.as_deref(), came: now, patience: None };
    let decided = core.decide(&query, &asks, &asker, |decided| match decided {
        Decided::Counted(decision, in_force) => {
            let receipt = (wants && decision.admitted).then(|| keep(core, decision)).flatten();
            view(&told(decision, in_force, &query), receipt.as_deref())
        }
        Decided::ByPolicy(policy) => view(&Told::by_policy(policy), None),
    });
    Ok(decided.await)
}

fn told<'a>(decision: &'a Decision<'a>, in_force: &'a InForce, query: &'a Query<'a>) -> Told<'a> {
    Told::of(decision, &in_force.names, query)
}

/// Is there anything to hold?
fn holds(in_force: &InForce, query: &Query<'_>, now: Micros) -> bool {
    let mut plan = Plan::new();
    in_force.plan(query, now, &mut plan);
    plan.takes().iter().any(|take| plan.limit(take).algorithm() == Algorithm::Concurrency)
}

/// What a receipt is for, used up; nothing if it was used already or has ended: the second time is no trouble. A receipt for another
/// request stays good.
fn charges(
    core: &Core,
    id: &str,
    in_force: &InForce,
    query: &Query<'_>,
    now: Micros,
) -> Result<Charges, HttpError> {
    let receipts = &core.node.receipts;
    let id = u64::from_str_radix(id, 16).ok().filter(|_| id.len() == ID_DIGITS);
    let Some((id, charges)) = id.and_then(|id| Some((id, receipts.get(id, now)?))) else {
        return Ok(Charges::new());
    };
    let mut plan = Plan::new();
    in_force.plan(query, now, &mut plan);
    let is_charged = |take: &Planned<'_>| charges.iter().any(|(key, _)| *key == take.key);
    if !plan.takes().iter().any(is_charged) {
        return Err(HttpError::invalid("the receipt is for another request: send the one that was checked"));
    }
    Ok(if receipts.use_up(id) { charges } else { Charges::new() })
}

/// Keeps what was charged, and gives the id to find it by; none if nothing was, or there is no room.
fn keep(core: &Core, decision: &Decision<'_>) -> Option<ArrayString<ID_DIGITS>> {
    let takes = || decision.plan.takes().iter().zip(decision.answers);
    // What a node spent alone is not in the store, and cannot be given back there.
    let is_kept = |answer: &Answered| !matches!(answer.mode, Mode::Degraded(_));
    let charged = takes().filter(|(_, answer)| is_kept(answer));
    let charged = charged.filter_map(|(take, answer)| Some((take.key, answer.verdict.receipt()?)));
    let charges: Charges = charged.collect::<SmallVec<_>>();
    // The periods of a calendar are longer than anything is kept.
    let window = |take: &Planned<'_>| decision.plan.limit(take).window().unwrap_or(KEPT_MAX);
    let window = takes().map(|(take, _)| window(take)).max().unwrap_or(KEPT_MAX);
    let id = core.fresh_id();
    (!charges.is_empty() && core.node.receipts.keep(id, charges, window, core.node.now())).then(|| digits(id))
}

/// An id as text: every check has one.
fn digits(id: u64) -> ArrayString<ID_DIGITS> {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digits = (0..ID_DIGITS).rev().map(|at| char::from(HEX[(id >> (4 * at) & 15) as usize]));
    let mut text = ArrayString::new();
    digits.for_each(|digit| text.push(digit));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_written_as_hexadecimal_digits() {
        for id in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            assert_eq!(*digits(id), format!("{id:016x}"));
        }
    }
}
