//! Sets of limits with a name: `/admin/v1/tiers`. Tiers that only rules name are shown, and changed where they are written.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Desk;
use super::call::{Answer, Call, PageOf, cursor, no_content, ok, tagged};
use super::problem::Problem;
use super::quotas::{OverrideBody, overrides};
use super::when::When;
use crate::error::Error;
use crate::model::{Limits, Stored, Tier};

/// A tier, as it is written.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Tier)]
pub(super) struct TierBody {
    /// The name, which the path says as well.
    #[serde(default)]
    name: Option<String>,
    /// The limits that every key of the tier has. They have no times.
    #[serde(default)]
    overrides: Vec<OverrideBody>,
}

/// A tier, as it is told.
#[derive(Serialize, ToSchema)]
#[schema(as = TierRecord)]
pub(super) struct TierAnswer {
    name: String,
    /// Who names it: `api`, `rules`, or both. What the API says wins.
    sources: Vec<&'static str>,
    overrides: Vec<OverrideBody>,
    /// Where rules for it are written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    written_in: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<When>,
}

fn told(desk: &Desk, name: &str, stored: Option<Stored<Tier>>) -> TierAnswer {
    let is_in_rules = desk.plane.tiers().iter().any(|tier| tier == name);
    let mut sources = Vec::new();
    sources.extend(stored.as_ref().map(|_| "api"));
    sources.extend(is_in_rules.then_some("rules"));
    let (version, times) = match &stored {
        Some(tier) => (Some(tier.version), (Some(When(tier.created_at)), Some(When(tier.updated_at)))),
        None => (None, (None, None)),
    };
    let overrides = stored.map(|tier| tier.value.overrides).unwrap_or_default();
    TierAnswer {
        name: name.into(),
        sources,
        overrides: overrides.into_iter().map(OverrideBody::of).collect(),
        written_in: if is_in_rules { origins(desk, name) } else { Vec::new() },
        version,
        created_at: times.0,
        updated_at: times.1,
    }
}

fn origins(desk: &Desk, name: &str) -> Vec<String> {
    let rules = desk.plane.rules();
    let mut all: Vec<String> =
        rules.into_iter().filter(|rule| rule.tier.as_deref() == Some(name)).map(|rule| rule.origin).collect();
    all.sort();
    all.dedup();
    all
}

pub(super) async fn put(desk: Arc<Desk>, mut call: Call) -> Answer {
    let body: TierBody = call.json().await?;
    let name = call.name().to_owned();
    if body.name.is_some_and(|said| said != name) {
        return Err(Problem::invalid("name", "is not the one that the path names"));
    }
    let tier = Tier { name: name.clone(), overrides: overrides(body.overrides, None, None)? };
    let expected = call.expected()?.version(async { Ok(desk.store.tier(&name).await?.version) }).await?;
    let written = desk.store.put_tier(&call.who(), tier, expected).await?;
    tagged(written.now.version, &told(&desk, &name, Some(written.now)))
}

pub(super) async fn get(desk: Arc<Desk>, call: Call) -> Answer {
    match desk.store.tier(call.name()).await {
        Ok(tier) => tagged(tier.version, &told(&desk, call.name(), Some(tier))),
        Err(Error::NotFound { .. }) if desk.plane.tiers().iter().any(|tier| tier == call.name()) => {
            ok(&told(&desk, call.name(), None))
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn delete(desk: Arc<Desk>, call: Call) -> Answer {
    let name = call.name();
    let expected = call.expected()?.version(async { Ok(desk.store.tier(name).await?.version) }).await?;
    match desk.store.delete_tier(&call.who(), name, expected).await {
        Ok(_) => no_content(),
        Err(Error::NotFound { .. }) if desk.plane.tiers().iter().any(|tier| tier == name) => {
            let origins = origins(&desk, name);
            let why = format!("only rules name this tier; it is written in {}", origins.join(", "));
            Err(Problem::written_elsewhere(why, origins))
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn list(desk: Arc<Desk>, call: Call) -> Answer {
    let (limit, after) = (call.query().limit()?, call.query().cursor()?);
    let page = desk.store.tiers(after.as_deref(), limit.min(Limits::PAGE)).await?;
    let is_here = |name: &str| {
        let after = after.as_deref().is_none_or(|after| name > after);
        after && page.next.as_deref().is_none_or(|last| name <= last)
    };
    let is_stored = |name: &String| page.items.iter().any(|tier| tier.value.name == *name);
    let of_rules = desk.plane.tiers().into_iter().filter(|name| is_here(name) && !is_stored(name));
    let mut items: Vec<TierAnswer> = of_rules.map(|name| told(&desk, &name, None)).collect();
    items.extend(page.items.iter().map(|tier| told(&desk, &tier.value.name, Some(tier.clone()))));
    items.sort_by(|one, other| one.name.cmp(&other.name));
    items.dedup_by(|one, other| one.name == other.name);
    ok(&PageOf { items, next: cursor(page.next) })
}
