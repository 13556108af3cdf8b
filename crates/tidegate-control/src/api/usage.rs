//! What counters hold: `/admin/v1/usage`, read from the live ones without charging.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Answer, Call, ok};
use super::problem::Problem;
use super::when::When;
use crate::error::Error;
use crate::model::{Action, Kind};
use crate::plane::Used;

/// What a caller has used.
#[derive(Serialize, ToSchema)]
#[schema(as = Usage)]
pub(super) struct UsageAnswer {
    api_key: String,
    /// Of the caller's own rule; for sliding ones until now.
    current_window: Option<Window>,
    /// By address: `default`, or the path below the caller's entry. Of several limits there, the one with the least left.
    usage: BTreeMap<String, Level>,
    /// Every limit that applies.
    rules: Vec<RuleUsage>,
}

/// From when until when.
#[derive(Clone, Copy, Serialize, ToSchema)]
struct Window {
    start: When,
    end: When,
}

/// How much.
#[derive(Serialize, ToSchema)]
struct Level {
    used: u64,
    limit: u32,
    remaining: u64,
}

/// What one counter holds.
#[derive(Serialize, ToSchema)]
struct RuleUsage {
    /// The rule; none where the caller has a limit of its own and no rule stands.
    rule: Option<String>,
    descriptor: String,
    used: u64,
    limit: u32,
    remaining: u64,
    window: Window,
    /// The limit as a person would write it.
    text: String,
    /// What said so: `override`, `tier` or `rule`.
    source: &'static str,
    /// Was anything counted?
    stored: bool,
    /// The counter's key.
    key: String,
}

impl RuleUsage {
    fn of(used: Used) -> Self {
        let (start, end) = used.window;
        Self {
            rule: used.rule,
            descriptor: used.address,
            used: used.used,
            limit: used.limit.amount,
            remaining: used.remaining,
            window: Window { start: When(start), end: When(end) },
            text: used.limit.text,
            source: used.limit.source,
            stored: used.stored,
            key: used.key,
        }
    }
}

/// What was reset, and what it held.
#[derive(Serialize, ToSchema)]
pub(super) struct Reset {
    api_key: String,
    reset: Vec<RuleUsage>,
}

/// The domain in which a caller is looked for: the one that is named, else that of its record; as the process is asked.
async fn domain(desk: &Desk, call: &Call) -> Result<Option<String>, Problem> {
    let said = match call.query().get("domain") {
        Some(said) => Some(said.to_owned()),
        None => match desk.store.quota(call.name()).await {
            Ok(key) => key.value.domain,
            Err(Error::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        },
    };
    if call.caller.minds(desk.domain(said.as_deref()).as_deref()) {
        return Ok(said);
    }
    match (&call.caller.tenant, call.query().get("domain")) {
        // Nothing was named: it can only be about their own.
        (Some(tenant), None) => Ok(Some(tenant.clone())),
        _ => Err(Problem::forbidden("the token is bound to another domain").field("domain")),
    }
}

pub(super) async fn get(desk: Arc<Desk>, call: Call) -> Answer {
    let domain = domain(&desk, &call).await?;
    let all = desk.plane.usage(domain.as_deref(), call.name()).await?;
    let mut usage: BTreeMap<String, Level> = BTreeMap::new();
    let mut current_window = None;
    for used in &all {
        let level = Level { used: used.used, limit: used.limit.amount, remaining: used.remaining };
        let is_tightest = usage.get(&used.address).is_none_or(|other| level.remaining < other.remaining);
        if !is_tightest {
            continue;
        }
        if used.address == "default" {
            let (start, end) = used.window;
            current_window = Some(Window { start: When(start), end: When(end) });
        }
        usage.insert(used.address.clone(), level);
    }
    let rules = all.into_iter().map(RuleUsage::of).collect();
    ok(&UsageAnswer { api_key: call.name().into(), current_window, usage, rules })
}

pub(super) async fn delete(desk: Arc<Desk>, call: Call) -> Answer {
    let domain = domain(&desk, &call).await?;
    let address = call.query().get("descriptor");
    let mut held = desk.plane.usage(domain.as_deref(), call.name()).await?;
    held.retain(|used| address.is_none_or(|address| used.address == address));
    if held.is_empty() {
        return Err(Problem::not_found("no rule counts this caller there"));
    }
    // It is said first, and done then: nothing is reset that nobody can see.
    let before: Vec<_> = held
        .iter()
        .map(|used| json!({ "descriptor": used.address, "rule": used.rule, "used": used.used }))
        .collect();
    let after = json!({ "domain": domain, "descriptor": address, "used": 0 });
    let before = json!({ "domain": domain, "counters": before });
    let (who, before, after) = (call.who(), Some(before.to_string()), Some(after.to_string()));
    desk.store.record(&who, Action::Reset, Kind::Usage, call.name(), before, after).await?;
    let reset = desk.plane.reset(domain.as_deref(), call.name(), address).await?;
    ok(&Reset { api_key: call.name().into(), reset: reset.into_iter().map(RuleUsage::of).collect() })
}
