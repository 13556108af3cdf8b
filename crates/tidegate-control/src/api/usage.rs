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
use crate::plane::{CallerUsage, CountsFor, NotListed, Used};

/// What a caller has used.
#[derive(Serialize, ToSchema)]
#[schema(as = Usage)]
pub(super) struct UsageAnswer {
    api_key: String,
    /// Of the caller's own rule; for sliding ones until now.
    current_window: Option<Window>,
    /// By address: `default`, or the path below the caller's entry; the id of a rule that is not about this entry. Of several limits there,
    /// the one with the least left.
    usage: BTreeMap<String, Level>,
    /// Every limit that applies and whose counter can be named.
    rules: Vec<RuleUsage>,
    /// The rules that apply too, by counters that cannot be named.
    not_listed: Vec<NotListedRule>,
    /// So many more there are: an answer has at most 1000 counters, and names at most 1000 rules whose counters it cannot name. By
    /// `descriptor` each is found.
    left_out: u64,
}

/// A rule whose counters cannot be named.
#[derive(Serialize, ToSchema)]
struct NotListedRule {
    rule: String,
    /// Why not, and how to look at one of them.
    why: String,
}

impl NotListedRule {
    fn of(NotListed { rule, why }: NotListed) -> Self {
        Self { rule, why }
    }
}

/// For whom a counter counts.
#[derive(ToSchema)]
#[schema(as = CountsFor, rename_all = "snake_case")]
#[allow(dead_code, reason = "it is there for its schema: what is told is the process's own")]
enum CountsForName {
    Caller,
    UserId,
    ClientId,
    All,
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
    /// The `caller` alone, all keys of its user or client (`user_id`, `client_id`), or `all` that the rule is about: that is not reset with
    /// one caller.
    #[schema(value_type = CountsForName)]
    counts_for: CountsFor,
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
            counts_for: used.counts_for,
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
    /// So many counters of the caller were not reset, because a call resets at most 1000: name the others by `descriptor`.
    left_out: u64,
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
    let CallerUsage { counters: all, not_listed, left_out } =
        desk.plane.usage(domain.as_deref(), call.name(), call.query().get("descriptor")).await?;
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
    let not_listed = not_listed.into_iter().map(NotListedRule::of).collect();
    ok(&UsageAnswer { api_key: call.name().into(), current_window, usage, rules, not_listed, left_out })
}

pub(super) async fn delete(desk: Arc<Desk>, call: Call) -> Answer {
    let domain = domain(&desk, &call).await?;
    let address = call.query().get("descriptor");
    let mut held = desk.plane.usage(domain.as_deref(), call.name(), address).await?.counters;
    let is_of_others = held.iter().any(|used| used.counts_for == CountsFor::All);
    held.retain(|used| used.counts_for != CountsFor::All);
    if held.is_empty() {
        return Err(Problem::not_found(match is_of_others {
            false => "no rule counts this caller there",
            true => {
                "what counts there counts for others too, and is not reset with one caller: `tidegate inspect --reset` on a node does that"
            }
        }));
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
    let left_out = reset.left_out;
    let reset = reset.counters.into_iter().map(RuleUsage::of).collect();
    ok(&Reset { api_key: call.name().into(), reset, left_out })
}
