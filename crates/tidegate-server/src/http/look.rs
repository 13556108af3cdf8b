//! What operators ask: is it well, what does it count, who is refused most.

use std::fmt::Write as _;

use serde_json::json;
use tidegate_core::Micros;
use tidegate_counters::{CircuitState, Store};
use tidegate_telemetry::{CONTENT_TYPE, encode};

use super::error::HttpError;
use super::{Answer, aside, is_asked, json, text, with_type};
use crate::node::{Core, Node};

/// How many of the most refused are shown if nobody says how many.
const TOP: usize = 20;
/// How many rules that are not in force are told one by one.
const LEFT_OUT_TOLD: usize = 10;

/// Is the node ready? With `?verbose`, why, and what else should be known.
pub(super) fn ready(core: &Core, query: Option<&str>) -> Result<Answer, HttpError> {
    let node = &core.node;
    let unready = node.unready();
    let status = if unready.is_none() { 200 } else { 503 };
    let word = unready.unwrap_or("ok");
    if !is_asked(query, "verbose")? {
        return Ok(text(status, format!("{word}\n")));
    }
    let (loads, failures) = node.rules.counts();
    let rules = node.rules.in_force().book.rules().len();
    let mut told = format!("{word}\n");
    let last =
        if node.rules.last_load_failed() { "; the last one had errors, the one before stays" } else { "" };
    let _ = writeln!(
        told,
        "rules     {rules} in force, loaded {loads} times, {failures} loads with errors{last}"
    );
    let left_out = node.rules.left_out();
    for one in left_out.iter().take(LEFT_OUT_TOLD) {
        let _ = writeln!(told, "          degraded: {} is not in force: {}", one.name, one.why());
    }
    if let Some(more) = left_out.len().checked_sub(LEFT_OUT_TOLD).filter(|more| *more > 0) {
        let _ = writeln!(told, "          degraded: {more} more rules by API are not in force");
    }
    if let Some(xds) = &node.xds {
        let _ = writeln!(told, "          {}", xds.told());
    }
    if let Some(control) = &node.control {
        let keys = node.rules.in_force().quotas.len();
        let _ = writeln!(told, "quotas    {}", control.told(keys, node.clock.wall_now_us()));
        if let Some(misplaced) = control.misplaced() {
            let _ = writeln!(told, "          degraded: {misplaced}");
        }
        if let Some(sink) = control.sink_told() {
            let _ = writeln!(told, "audit     {sink}");
        }
    }
    tell_counters(node, &mut told);
    if let Some(lost) = node.lost_quotas(&node.rules.in_force().book) {
        let _ = writeln!(told, "domains   {lost}");
    }
    for (setting, domain) in node.missing_domains(&node.rules.in_force().book) {
        let _ = writeln!(
            told,
            "domains   {setting} names `{domain}`, which no rule has: nothing is limited there"
        );
    }
    Ok(text(status, told))
}

/// Where the counters are, and what is wrong there. A store that does not answer makes no node unready: its rules say what holds then.
fn tell_counters(node: &Node, told: &mut String) {
    let redis = match &node.store {
        Store::Memory(memory) => {
            let stats = memory.stats();
            let _ = writeln!(
                told,
                "counters  in memory: this node limits alone, every other node grants the same limits again; \
                 a crash forgets them\n          {} keys of {} slots, {} forgotten while they counted",
                stats.keys, stats.slots, stats.evicted_live
            );
            return;
        }
        Store::Redis(redis) => redis,
    };
    let stats = redis.stats();
    let connections: u64 = stats.servers.iter().map(|server| server.connections).sum();
    let errors: u64 = stats.errors.iter().map(|(_, count)| count).sum();
    let _ = writeln!(
        told,
        "counters  in Redis at {}: the fleet shares them\n          \
         {connections} connections to {} servers, {} requests wait, {errors} errors so far",
        redis.place(),
        stats.servers.len(),
        stats.in_flight
    );
    if let Some(nodes) = stats.nodes {
        let nodes = if nodes == 1 { "one node shares".into() } else { format!("{nodes} nodes share") };
        let _ = writeln!(told, "          {nodes} it, as far as was seen in the last minutes");
    }
    for server in stats.servers.iter().filter(|server| server.circuit.state != CircuitState::Closed) {
        let open_s = server.circuit.spent[CircuitState::Open as usize].as_secs_f64();
        let _ = writeln!(
            told,
            "          degraded: {} is not asked, its circuit is open ({open_s:.1} s so far); on_store_failure answers for its keys",
            server.address
        );
    }
    for warning in &stats.warnings {
        let _ = writeln!(told, "          degraded: {warning}");
    }
    if let Some(why) = node.failures.lately(node.now()) {
        let _ = writeln!(
            told,
            "          degraded: it did not answer ({why}) a moment ago; the rules' on_store_failure answers then"
        );
    }
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
            let mut told = json!({
                "rule": rule,
                "key": key.key.to_string(),
                "refused": key.count,
                "atMostTooMany": key.error,
            });
            if let Some(tag) = key.tag {
                told["tag"] = json!(tag.to_string());
            }
            told
        });
        let keys: Vec<_> = keys.collect();
        let seconds = now.minus(top.since.max(Micros::new(node.started_us))).secs_up();
        Ok(json!({ "seconds": seconds, "keys": keys, "othersAtMost": top.others_at_most }).to_string())
    });
    Ok(json(200, body.await?.into_bytes()))
}
