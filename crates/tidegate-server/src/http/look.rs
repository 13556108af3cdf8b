//! What operators ask: is it well, what does it count, who is refused most, what does a counter hold.

use std::fmt::Write as _;

use http::Request;
use hyper::body::Incoming;
use serde_json::json;
use tidegate_core::Micros;
use tidegate_counters::Counters as _;
use tidegate_telemetry::{CONTENT_TYPE, encode};

use super::asked::Body;
use super::error::HttpError;
use super::{Answer, aside, is_asked, json, read, text, with_type};
use crate::node::Core;

/// How many of the most refused are shown if nobody says how many.
const TOP: usize = 20;

/// Is the node ready? With `?verbose`, why, and what else should be known.
pub(super) fn ready(core: &Core, query: Option<&str>) -> Result<Answer, HttpError> {
    let node = &core.node;
    let ready = node.is_ready();
    let status = if ready { 200 } else { 503 };
    let word = if ready { "ok" } else { "draining" };
    if !is_asked(query, "verbose")? {
        return Ok(text(status, format!("{word}\n")));
    }
    let (loads, failures) = node.rules.counts();
    let (rules, stats) = (node.rules.in_force().book.rules().len(), node.counters.stats());
    let mut told = format!("{word}\n");
    let last =
        if node.rules.last_load_failed() { "; the last one had errors, the one before stays" } else { "" };
    let _ = writeln!(
        told,
        "rules     {rules} in force, loaded {loads} times, {failures} loads with errors{last}"
    );
    let _ = writeln!(
        told,
        "counters  in memory: this node limits alone, every other node grants the same limits again; a crash forgets them"
    );
    let _ = writeln!(
        told,
        "          {} keys of {} slots, {} forgotten while they counted",
        stats.keys, stats.slots, stats.evicted_live
    );
    for (setting, domain) in node.missing_domains(&node.rules.in_force().book) {
        let _ = writeln!(
            told,
            "domains   {setting} names `{domain}`, which no rule has: nothing is limited there"
        );
    }
    Ok(text(status, told))
}

/// All metrics. There may be a hundred thousand rules.
pub(super) async fn metrics(core: &Core) -> Result<Answer, HttpError> {
    let page = aside(core, |node| {
        let in_force = node.rules.in_force();
        Ok(encode(&node.metrics, &in_force.metrics, &node.gauges()))
    });
    Ok(with_type(200, CONTENT_TYPE, page.await?.into_bytes()))
}

/// Who is refused most.
pub(super) async fn top(core: &Core, query: Option<&str>) -> Result<Answer, HttpError> {
    let count = query.into_iter().flat_map(|query| query.split('&')).find_map(|part| part.strip_prefix("n="));
    let count = match count.map(str::parse::<usize>) {
        None => TOP,
        Some(Ok(count @ 1..=1_000)) => count,
        Some(_) => return Err(HttpError::invalid("n is a number from 1 to 1000")),
    };
    let body = aside(core, move |node| {
        let (in_force, now) = (node.rules.in_force(), node.now());
        let top = node.top.top(count, now, &in_force.metrics);
        let keys = top.keys.iter().map(|key| {
            let rule = key.rule.as_ref().map(|labels| labels.rule.to_string());
            json!({ "rule": rule, "key": key.key.to_string(), "refused": key.count, "atMostTooMany": key.error })
        });
        let keys: Vec<_> = keys.collect();
        let seconds = now.minus(top.since.max(Micros::new(node.started_us))).secs_up();
        Ok(json!({ "seconds": seconds, "keys": keys, "othersAtMost": top.others_at_most }).to_string())
    });
    Ok(json(200, body.await?.into_bytes()))
}

/// What the counters of a request hold; they are only looked at.
pub(super) async fn inspect(core: &Core, request: Request<Incoming>) -> Result<Answer, HttpError> {
    let bytes = read::read(request.into_body()).await?;
    let Body::One(asked) = Body::parse(&bytes)? else {
        return Err(HttpError::invalid("one at a time: no list"));
    };
    let (node, now) = (&core.node, core.node.now());
    let in_force = node.rules.in_force();
    let parts = asked.parts(node.default_domain(&in_force.book), None)?;
    let mut plan = tidegate_core::Plan::new();
    in_force.book.plan(&parts.query(), &mut plan);
    let mut counters = Vec::new();
    for take in plan.takes() {
        let limit = plan.limit(take);
        let held = node.counters.inspect(take.key, take.tag, limit, now).await;
        let held = held.map_err(|error| HttpError::broken(error.to_string()))?;
        counters.push(json!({
            "rule": take.rule.map(|rule| &*rule.id),
            "key": take.key.to_string(),
            "limit": limit.amount(),
            "label": limit.label(),
            "used": held.used,
            "remaining": held.verdict.remaining,
            "resetAfterMs": held.verdict.reset_after.get().div_ceil(1_000),
            "stored": held.stored,
            "bound": { "over": held.verdict.bound.over, "under": held.verdict.bound.under },
        }));
    }
    Ok(json(200, json!({ "counters": counters }).to_string().into_bytes()))
}
