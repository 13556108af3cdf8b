//! The kill switch: `/admin/v1/rules/{id}/state`, of any rule that is in force, wherever it is written.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Desk;
use super::call::{Answer, Call, no_content, ok, tagged};
use super::problem::Problem;
use super::shapes::Kept;
use super::when::When;
use crate::error::Error;
use crate::model::{RuleState, State, Stored};
use crate::plane::RuleInForce;

/// What a rule is to do.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RuleState)]
pub(super) struct StateBody {
    /// `enforce`, `enforce 25%`, `shadow` or `disabled`.
    #[schema(value_type = String, example = "enforce 25%")]
    state: State,
    /// Until when; for good without. Then it does again what it says itself.
    #[serde(default)]
    expires_at: Option<When>,
}

/// What a rule does.
#[derive(Serialize, ToSchema)]
#[schema(as = RuleStateRecord)]
pub(super) struct StateAnswer {
    /// The rule that was named.
    rule: String,
    /// What was set; what is written where nothing was.
    state: String,
    expires_at: Option<When>,
    /// Was it set here?
    is_set: bool,
    /// What a change is to expect, as `If-Match`.
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<When>,
    /// The rules that it is about, and what each does now.
    rules: Vec<OneState>,
}

/// What one rule does.
#[derive(Serialize, ToSchema)]
struct OneState {
    id: String,
    tier: Option<String>,
    origin: String,
    state: String,
    written_state: String,
}

/// The rules that an id is about: one that is compiled, or all of one by API.
fn named(desk: &Desk, call: &Call) -> Result<Vec<RuleInForce>, Problem> {
    let id = call.name();
    let all = desk.plane.rules().into_iter();
    let of_id = all.filter(|rule| rule.id == id || rule.api_id.as_deref() == Some(id));
    let rules: Vec<RuleInForce> = of_id.filter(|rule| call.caller.minds(Some(&rule.domain))).collect();
    if rules.is_empty() {
        return Err(Problem::not_found(
            "no rule that is in force has this id; GET /admin/v1/rules lists them",
        ));
    }
    Ok(rules)
}

fn told(rule: &str, set: Option<Stored<RuleState>>, rules: Vec<RuleInForce>) -> StateAnswer {
    let written = rules.first().map(|rule| rule.written_state.clone()).unwrap_or_default();
    let one = |rule: RuleInForce| OneState {
        id: rule.id,
        tier: rule.tier,
        origin: rule.origin,
        state: rule.state,
        written_state: rule.written_state,
    };
    StateAnswer {
        rule: rule.into(),
        state: set.as_ref().map_or(written, |set| set.value.state.to_string()),
        expires_at: set.as_ref().and_then(|set| set.value.expires_at).map(When),
        is_set: set.is_some(),
        version: set.as_ref().map_or(0, |set| set.version),
        updated_at: set.as_ref().map(|set| When(set.updated_at)),
        rules: rules.into_iter().map(one).collect(),
    }
}

pub(super) async fn put(desk: Arc<Desk>, mut call: Call) -> Answer {
    let body: StateBody = call.json().await?;
    let rules = match (named(&desk, &call), desk.store.rule(call.name()).await) {
        // It was written a moment ago, and is not in force yet.
        (Err(_), Ok(rule)) if call.caller.minds(Kept::from_store(&rule.document).domain()) => Vec::new(),
        (rules, _) => rules?,
    };
    if body.expires_at.is_some_and(|When(at)| at <= desk.now_us()) {
        return Err(Problem::invalid("expires_at", "has passed"));
    }
    let rule = call.name().to_owned();
    let expected =
        call.expected()?.version(async { Ok(desk.store.rule_state(&rule).await?.version) }).await?;
    let state =
        RuleState { rule: rule.clone(), state: body.state, expires_at: body.expires_at.map(|When(us)| us) };
    let written = desk.store.put_rule_state(&call.who(), state, expected).await?;
    tagged(written.now.version, &told(&rule, Some(written.now), rules))
}

pub(super) async fn get(desk: Arc<Desk>, call: Call) -> Answer {
    let rules = named(&desk, &call);
    match desk.store.rule_state(call.name()).await {
        // A switch may outlast its rule; who may see all may see it.
        Ok(set) if call.caller.tenant.is_none() || rules.is_ok() => {
            tagged(set.version, &told(call.name(), Some(set), rules.unwrap_or_default()))
        }
        Ok(_) | Err(Error::NotFound { .. }) => ok(&told(call.name(), None, rules?)),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn delete(desk: Arc<Desk>, call: Call) -> Answer {
    if call.caller.tenant.is_some() {
        named(&desk, &call)?;
    }
    let rule = call.name();
    let expected = call.expected()?.version(async { Ok(desk.store.rule_state(rule).await?.version) }).await?;
    desk.store.delete_rule_state(&call.who(), rule, expected).await?;
    no_content()
}
