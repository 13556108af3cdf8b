//! Single counters: what they hold, and as if never touched. Whoever resets a counter gives a whole limit away, so that is for this
//! machine alone.

use std::net::SocketAddr;

use http::header::ORIGIN;
use http::{HeaderMap, Request};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tidegate_core::{Key, Limit, Plan, Rule, Tag};
use tidegate_counters::{Counters as _, Inspection};

use super::asked::{Asked, Body};
use super::error::HttpError;
use super::{Answer, json, query_value, read};
use crate::node::{Core, InForce, caller_of};

/// How many digits a key has.
const KEY_DIGITS: usize = 32;
/// How many digits a tag has.
const TAG_DIGITS: usize = 8;

/// What the counters of a request hold; they are only looked at.
pub(super) async fn inspect(core: &Core, request: Request<Incoming>) -> Result<Answer, HttpError> {
    let bytes = read::read(request.into_body()).await?;
    let (asked, in_force) = (one(&bytes)?, core.node.rules.in_force().clone());
    let parts = asked.parts(core.node.default_domain(&in_force.book), None)?;
    let mut plan = Plan::new();
    in_force.plan(&parts.query(), core.node.now(), &mut plan);
    let mut counters = Vec::new();
    for take in plan.takes() {
        let (limit, rule) = (plan.limit(take), take.rule);
        let held = core.hand.inspect(take.key, take.tag, limit, core.node.now()).await;
        let held = held.map_err(|why| HttpError::unavailable(&why))?;
        counters.push(shown(core, rule, take.key, take.tag, limit, &held));
    }
    let mut told = json!({ "counters": counters });
    if let Some(caller) = caller_of(&in_force.book, &parts.query(), None) {
        told["caller"] = json!(caller.to_string());
    }
    Ok(json(200, told.to_string().into_bytes()))
}

/// Makes the counters of a request as if never touched.
pub(super) async fn reset(
    core: &Core,
    peer: Option<SocketAddr>,
    request: Request<Incoming>,
) -> Result<Answer, HttpError> {
    for_this_machine(peer, request.headers())?;
    let bytes = read::read(request.into_body()).await?;
    let (asked, in_force) = (one(&bytes)?, core.node.rules.in_force().clone());
    let parts = asked.parts(core.node.default_domain(&in_force.book), None)?;
    let mut plan = Plan::new();
    in_force.plan(&parts.query(), core.node.now(), &mut plan);
    let mut counters = Vec::new();
    for take in plan.takes() {
        counters.push(reset_one(core, take.rule, take.key, take.tag, Some(plan.limit(take))).await?);
    }
    Ok(json(200, json!({ "counters": counters }).to_string().into_bytes()))
}

/// One counter, by its key: what it holds or, if it is to be reset, whether it held anything.
pub(super) async fn by_key(
    core: &Core,
    peer: Option<SocketAddr>,
    request: &Request<Incoming>,
    key: &str,
    reset: bool,
) -> Result<Answer, HttpError> {
    for_this_machine(peer, request.headers())?;
    let (query, in_force) = (request.uri().query(), core.node.rules.in_force().clone());
    let key = digits(key, KEY_DIGITS).map(Key::of_bits);
    let key =
        key.ok_or_else(|| HttpError::invalid("a key has 32 hexadecimal digits, as /v1/inspect tells it"))?;
    let rule = rule(&in_force, query)?;
    let tag = tag(core, query)?;
    let told = if reset {
        reset_one(core, Some(rule), key, tag, rule.said.limit.as_ref()).await?
    } else {
        let limit = rule.said.limit.as_ref();
        let limit = limit
            .ok_or_else(|| HttpError::invalid("this rule says that there is no limit: it has no counters"))?;
        let held = core.hand.inspect(key, tag, limit, core.node.now()).await;
        shown(core, Some(rule), key, tag, limit, &held.map_err(|why| HttpError::unavailable(&why))?)
    };
    Ok(json(200, told.to_string().into_bytes()))
}

fn one(bytes: &[u8]) -> Result<Box<Asked<'_>>, HttpError> {
    match Body::parse(bytes)? {
        Body::One(asked) => Ok(asked),
        Body::Several(_) => Err(HttpError::invalid("one at a time: no list")),
    }
}

fn shown(core: &Core, rule: Option<&Rule>, key: Key, tag: Tag, limit: &Limit, held: &Inspection) -> Value {
    let mut told = json!({
        "rule": rule.map(|rule| &*rule.id),
        "key": key.to_string(),
        "limit": limit.amount(),
        "label": limit.label(),
        "used": held.used,
        "remaining": held.verdict.remaining,
        "resetAfterMs": held.verdict.reset_after.get().div_ceil(1_000),
        "stored": held.stored,
        "bound": { "over": held.verdict.bound.over, "under": held.verdict.bound.under },
    });
    add_tag(core, tag, &mut told);
    told
}

async fn reset_one(
    core: &Core,
    rule: Option<&Rule>,
    key: Key,
    tag: Tag,
    limit: Option<&Limit>,
) -> Result<Value, HttpError> {
    let was_stored =
        core.node.reset(&core.hand, key, tag, limit).await.map_err(|why| HttpError::unavailable(&why))?;
    let rule = rule.map(|rule| &*rule.id);
    tracing::warn!(rule, %key, was_stored, "a counter was reset");
    let mut told = json!({ "rule": rule, "key": key.to_string(), "wasStored": was_stored });
    add_tag(core, tag, &mut told);
    Ok(told)
}

/// In memory there are no tags.
fn add_tag(core: &Core, tag: Tag, told: &mut Value) {
    if core.node.store.wants_tags() {
        told["tag"] = json!(tag.to_string());
    }
}

/// The rule that the query names; of several tiers, the one that it names too.
fn rule<'r>(in_force: &'r InForce, query: Option<&str>) -> Result<&'r Rule, HttpError> {
    let named = query_value(query, "rule")?;
    let named = named
        .ok_or_else(|| HttpError::invalid("by which rule? add ?rule=<its id>, as /v1/inspect tells it"))?;
    let tier = query_value(query, "tier")?;
    let found = in_force
        .book
        .rules()
        .iter()
        .find(|rule| *rule.id == *named && rule.tier.as_deref() == tier.as_deref());
    found.ok_or_else(|| {
        let tier = tier.map_or_else(String::new, |tier| format!(" for the tier `{tier}`"));
        HttpError::invalid(format!("there is no rule `{named}`{tier}; `tidegate config show` lists them"))
    })
}

fn tag(core: &Core, query: Option<&str>) -> Result<Tag, HttpError> {
    let tag = query_value(query, "tag")?;
    if tag.is_none() && !core.node.store.wants_tags() {
        return Ok(Tag::default());
    }
    let bits = tag.and_then(|tag| digits(&tag, TAG_DIGITS)).and_then(|bits| u32::try_from(bits).ok());
    bits.map(Tag::of_bits).ok_or_else(|| {
        HttpError::invalid(
            "where is it? add &tag=<8 hexadecimal digits>, which /v1/inspect tells beside the key",
        )
    })
}

fn digits(text: &str, count: usize) -> Option<u128> {
    let whole = text.len() == count && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    whole.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// Refuses whoever is not on this machine, and whatever a browser sends from a page that somebody on this machine looks at.
fn for_this_machine(peer: Option<SocketAddr>, headers: &HeaderMap) -> Result<(), HttpError> {
    let here = peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback());
    if here && !headers.contains_key(ORIGIN) {
        return Ok(());
    }
    Err(HttpError::forbidden("only from the node's own machine, and from no browser: ask 127.0.0.1 there"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_whoever_is_on_the_machine_may_reset() {
        let plain = HeaderMap::new();
        let allowed = |peer: &str, headers: &HeaderMap| {
            let peer: SocketAddr = peer.parse().expect("an address");
            for_this_machine(Some(peer), headers).is_ok()
        };
        for (peer, may) in [
            ("127.0.0.1:5", true),
            ("127.9.9.9:5", true),
            ("[::1]:5", true),
            ("[::ffff:127.0.0.1]:5", true),
            ("10.0.0.1:5", false),
            ("[::ffff:10.0.0.1]:5", false),
            ("[fe80::1]:5", false),
        ] {
            assert_eq!(allowed(peer, &plain), may, "{peer}");
        }
        assert!(for_this_machine(None, &plain).is_err(), "nobody knows who asks");
        let page = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static("https://example.com"))]);
        assert!(!allowed("127.0.0.1:5", &page));
    }
}
