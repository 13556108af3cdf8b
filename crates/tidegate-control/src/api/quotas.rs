//! What is agreed with single callers: `/admin/v1/quotas`, in the shapes of the seeds.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Desk;
use super::auth::Caller;
use super::call::{Answer, Call, Expected, PageOf, Query, cursor, no_content, ok, tagged};
use super::problem::Problem;
use super::when::When;
use crate::error::Error;
use crate::model::{Limits, Override, Quota, QuotaFilter, QuotaKey, Unit, Version};
use crate::plane::LimitInForce;
use tidegate_core::override_address;

/// What is wrong with a time that nothing takes.
pub(super) const NO_OVERRIDE: &str =
    "is about no override: only overrides have times, and none is there that needs it; a tier holds at once";

/// Tiers that need not be written anywhere.
const TIERS: [&str; 4] = ["free", "pro", "enterprise", "custom"];

/// A quota, as it is written.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Quota)]
pub(super) struct QuotaBody {
    /// The key. Needed in imports; elsewhere the path names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) api_key: Option<String>,
    /// The domain that it is about; the default domain without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    /// `free`, `pro`, `enterprise`, `custom`, or a tier that the rules or the API name. It holds at once.
    #[serde(default)]
    tier: Option<String>,
    /// The client behind the key, whose rules judge it too. Also `clientId`.
    #[serde(default, alias = "clientId", skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    /// The user behind the key, whose rules judge it too. Also `userId`.
    #[serde(default, alias = "userId", skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
    /// Never limited.
    #[serde(default)]
    whitelisted: bool,
    /// Its own limits.
    #[serde(default)]
    overrides: Vec<OverrideBody>,
    /// From when on overrides hold that do not say so themselves. Nothing else of a quota has a time, so one of them has to be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    effective_at: Option<When>,
    /// Until when overrides hold that do not say so themselves. Likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<When>,
}

/// A limit of one caller, or of a tier.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Override)]
pub(super) struct OverrideBody {
    /// The path below the caller's entry, `key:value` joined by `|`; `default` is the caller's own rule.
    #[schema(example = "endpoint:POST /api/v1/orders")]
    descriptor: String,
    /// How much.
    requests_per_unit: u32,
    /// In how long.
    #[schema(value_type = UnitName)]
    unit: Unit,
    /// From when on; at once without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    effective_at: Option<When>,
    /// Until when; for good without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<When>,
}

/// How long a window is.
#[derive(ToSchema)]
#[schema(as = Unit, rename_all = "snake_case")]
#[allow(dead_code, reason = "it is there for its schema: what is read is the model's own")]
enum UnitName {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

/// A quota, as it is told.
#[derive(Serialize, ToSchema)]
#[schema(as = QuotaRecord)]
pub(super) struct QuotaAnswer {
    api_key: String,
    tier: Option<String>,
    quotas: Limited,
    updated_at: When,
    created_at: When,
    /// What a change is to expect, as `If-Match`.
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
    whitelisted: bool,
    /// From when on all its overrides hold, where that is the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    effective_at: Option<When>,
    /// Until when, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<When>,
}

/// What holds for a caller.
#[derive(Serialize, ToSchema)]
#[schema(as = QuotaLimits)]
struct Limited {
    /// Where nothing else is said; none if no rule is about the caller alone.
    default: Option<DefaultLimit>,
    overrides: Vec<OverrideBody>,
}

/// How much, in how long.
#[derive(Serialize, ToSchema)]
struct DefaultLimit {
    requests_per_unit: u32,
    /// The largest unit that the window is made of; none where it has no window.
    unit: Option<&'static str>,
    /// So many units, where it is not one.
    #[serde(skip_serializing_if = "Option::is_none")]
    unit_multiplier: Option<u64>,
    /// The window, where it is no whole number of seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    window_us: Option<u64>,
}

impl QuotaBody {
    /// What is to be kept, of this key.
    pub(super) fn quota(self, api_key: &str) -> Result<Quota, Problem> {
        if self.api_key.as_deref().is_some_and(|said| said != api_key) {
            return Err(Problem::invalid("api_key", "is not the one that the path names"));
        }
        let (from, until) = (self.effective_at, self.expires_at);
        are_taken(&self.overrides, from, until)?;
        let overrides = overrides(self.overrides, from, until)?;
        let Self { domain, tier, client_id, user_id, whitelisted, .. } = self;
        Ok(Quota { api_key: api_key.into(), domain, tier, client_id, user_id, whitelisted, overrides })
    }

    /// The same the other way round, for exports.
    pub(super) fn of(quota: Quota) -> Self {
        let Quota { api_key, domain, tier, client_id, user_id, whitelisted, overrides } = quota;
        Self {
            api_key: Some(api_key),
            domain,
            tier,
            client_id,
            user_id,
            whitelisted,
            overrides: overrides.into_iter().map(OverrideBody::of).collect(),
            effective_at: None,
            expires_at: None,
        }
    }
}

impl OverrideBody {
    pub(super) fn new(
        descriptor: String,
        requests_per_unit: u32,
        unit: Unit,
        times: (Option<When>, Option<When>),
    ) -> Self {
        Self { descriptor, requests_per_unit, unit, effective_at: times.0, expires_at: times.1 }
    }

    pub(super) fn of(one: Override) -> Self {
        let Override { descriptor, requests_per_unit, unit, effective_at, expires_at } = one;
        let (effective_at, expires_at) = (effective_at.map(When), expires_at.map(When));
        Self { descriptor, requests_per_unit, unit, effective_at, expires_at }
    }
}

/// Is there an override for the times of all to be about? Somebody who is not told that there is none believes that a tier will end.
fn are_taken(all: &[OverrideBody], from: Option<When>, until: Option<When>) -> Result<(), Problem> {
    let untaken = |field, is_own: fn(&OverrideBody) -> bool| match all.iter().all(is_own) {
        true => Err(Problem::invalid(field, NO_OVERRIDE)),
        false => Ok(()),
    };
    from.map_or(Ok(()), |_| untaken("effective_at", |one| one.effective_at.is_some()))?;
    until.map_or(Ok(()), |_| untaken("expires_at", |one| one.expires_at.is_some()))
}

/// What is to be kept of overrides, each with its own times or those of all.
pub(super) fn overrides(
    all: Vec<OverrideBody>,
    from: Option<When>,
    until: Option<When>,
) -> Result<Vec<Override>, Problem> {
    let kept = |(at, one): (usize, OverrideBody)| {
        // By the reader that decisions have: what it does not understand would be kept, and hold for nobody.
        if let Err(why) = override_address(&one.descriptor) {
            return Err(Problem::invalid(format!("overrides[{at}].descriptor"), why.to_string()));
        }
        Ok(Override {
            descriptor: one.descriptor,
            requests_per_unit: one.requests_per_unit,
            unit: one.unit,
            effective_at: one.effective_at.or(from).map(|When(us)| us),
            expires_at: one.expires_at.or(until).map(|When(us)| us),
        })
    };
    all.into_iter().enumerate().map(kept).collect()
}

/// A quota, as it is told: what all overrides say of their times is said once.
fn told(desk: &Desk, key: QuotaKey) -> QuotaAnswer {
    let default = desk.plane.default_limit(&key.value).map(|limit| DefaultLimit::of(&limit));
    let QuotaKey { value, version, created_at, updated_at } = key;
    let times = |one: &Override| (one.effective_at, one.expires_at);
    let common = value.overrides.first().map(times).unwrap_or_default();
    let is_common = value.overrides.iter().all(|one| times(one) == common);
    let (effective_at, expires_at) = if is_common { common } else { (None, None) };
    let overrides = value.overrides.into_iter().map(|one| {
        let mut body = OverrideBody::of(one);
        if is_common {
            (body.effective_at, body.expires_at) = (None, None);
        }
        body
    });
    QuotaAnswer {
        api_key: value.api_key,
        tier: value.tier,
        quotas: Limited { default, overrides: overrides.collect() },
        updated_at: When(updated_at),
        created_at: When(created_at),
        version,
        domain: value.domain,
        client_id: value.client_id,
        user_id: value.user_id,
        whitelisted: value.whitelisted,
        effective_at: effective_at.map(When),
        expires_at: expires_at.map(When),
    }
}

impl DefaultLimit {
    fn of(limit: &LimitInForce) -> Self {
        const SECONDS: [(&str, u64); 7] = [
            ("year", 365 * 86_400),
            ("month", 30 * 86_400),
            ("week", 7 * 86_400),
            ("day", 86_400),
            ("hour", 3_600),
            ("minute", 60),
            ("second", 1),
        ];
        let mut told = Self {
            requests_per_unit: limit.amount,
            unit: limit.calendar,
            unit_multiplier: None,
            window_us: None,
        };
        let Some(window_us) = limit.window_us else { return told };
        let fits = |(_, seconds): &&(&str, u64)| window_us > 0 && window_us % (seconds * 1_000_000) == 0;
        match SECONDS.iter().find(fits) {
            None => told.window_us = Some(window_us),
            Some((unit, seconds)) => {
                let multiplier = window_us / (seconds * 1_000_000);
                told.unit = Some(unit);
                told.unit_multiplier = (multiplier != 1).then_some(multiplier);
            }
        }
        told
    }
}

pub(super) async fn put(desk: Arc<Desk>, mut call: Call) -> Answer {
    let body: QuotaBody = call.json().await?;
    let mut quota = body.quota(call.name())?;
    bind(&desk, &call.caller, &mut quota)?;
    check_tier(&desk, quota.tier.as_deref()).await?;
    let refusal = Problem::forbidden("another domain has this key, and the token is not bound to that");
    let expected = owned(&desk, &call, refusal).await?;
    let written = desk.store.put_quota(&call.who(), quota, expected).await?;
    tagged(written.now.version, &told(&desk, written.now))
}

pub(super) async fn get(desk: Arc<Desk>, call: Call) -> Answer {
    let key = desk.store.quota(call.name()).await?;
    if !minds(&desk, &call.caller, &key.value) {
        return Err(Error::NotFound { what: "quota" }.into());
    }
    tagged(key.version, &told(&desk, key))
}

pub(super) async fn delete(desk: Arc<Desk>, call: Call) -> Answer {
    // Whether another domain has it is nobody's business.
    let expected = owned(&desk, &call, Error::NotFound { what: "quota" }.into()).await?;
    desk.store.delete_quota(&call.who(), call.name(), expected).await?;
    no_content()
}

pub(super) async fn list(desk: Arc<Desk>, call: Call) -> Answer {
    let query = call.query();
    let filter = filter(query)?;
    let (limit, after) = (query.limit()?, query.cursor()?);
    let page = desk.store.quotas(&filter, after.as_deref(), limit).await?;
    let own = page.items.into_iter().filter(|key| minds(&desk, &call.caller, &key.value));
    let items: Vec<QuotaAnswer> = own.map(|key| told(&desk, key)).collect();
    ok(&PageOf { items, next: cursor(page.next) })
}

/// Which keys are asked for. Of what a call does not know as a parameter there is nothing in its query.
pub(super) fn filter(query: &Query) -> Result<QuotaFilter, Problem> {
    let text = |name: &str| query.get(name).map(str::to_owned);
    Ok(QuotaFilter {
        tier: text("tier"),
        prefix: text("prefix"),
        user_id: text("user_id"),
        client_id: text("client_id"),
        expires_before: query.time("expires_before")?,
        expires_after: query.time("expires_after")?,
    })
}

/// Is it about a domain that the caller has to do with?
pub(super) fn minds(desk: &Desk, caller: &Caller, quota: &Quota) -> bool {
    caller.minds(desk.domain(quota.domain.as_deref()).as_deref())
}

/// What somebody who is bound to a domain writes is about that domain; what anybody writes is about a domain that there is, or it would
/// hold for nobody.
pub(super) fn bind(desk: &Desk, caller: &Caller, quota: &mut Quota) -> Result<(), Problem> {
    bind_to_tenant(desk, caller, quota)?;
    match desk.domain(quota.domain.as_deref()) {
        None => Err(Problem::invalid(
            "domain",
            "there are several domains, and none of them is the default: name one",
        )),
        Some(name) if desk.plane.quota_key(&name).is_none() => {
            Err(Problem::invalid("domain", format!("no rule has the domain `{name}`")))
        }
        Some(_) => Ok(()),
    }
}

fn bind_to_tenant(desk: &Desk, caller: &Caller, quota: &mut Quota) -> Result<(), Problem> {
    let Some(tenant) = &caller.tenant else { return Ok(()) };
    if quota.domain.is_none() && desk.plane.default_domain().as_ref() != Some(tenant) {
        quota.domain = Some(tenant.clone());
    }
    if minds(desk, caller, quota) {
        return Ok(());
    }
    Err(Problem::forbidden(format!("it is bound to the domain `{tenant}`")).field("domain"))
}

/// The version that is to be there. For somebody who is bound to a domain, it is one that was seen to be theirs.
async fn owned(desk: &Desk, call: &Call, refusal: Problem) -> Result<Option<Version>, Problem> {
    let expected = call.expected()?;
    if call.caller.tenant.is_none() {
        return expected.version(async { Ok(desk.store.quota(call.name()).await?.version) }).await;
    }
    let current = match desk.store.quota(call.name()).await {
        Ok(key) if minds(desk, &call.caller, &key.value) => key.version,
        Ok(_) => return Err(refusal),
        Err(Error::NotFound { .. }) => 0,
        Err(error) => return Err(error.into()),
    };
    match expected {
        Expected::Anything => Ok(Some(current)),
        expected => expected.check(current).map(|()| Some(current)),
    }
}

/// Is there such a tier?
pub(super) async fn check_tier(desk: &Desk, tier: Option<&str>) -> Result<(), Problem> {
    let Some(tier) = tier else { return Ok(()) };
    if TIERS.contains(&tier) || desk.plane.tiers().iter().any(|known| known == tier) {
        return Ok(());
    }
    let known = known_tiers(desk).await?;
    refuse_tier(&known, tier)
}

/// All tiers there are.
pub(super) async fn known_tiers(desk: &Desk) -> Result<Vec<String>, Problem> {
    let mut known: Vec<String> = TIERS.map(String::from).to_vec();
    known.extend(desk.plane.tiers());
    let mut after = None;
    loop {
        let page = desk.store.tiers(after.as_deref(), Limits::PAGE).await?;
        known.extend(page.items.into_iter().map(|tier| tier.value.name));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    known.sort();
    known.dedup();
    Ok(known)
}

pub(super) fn refuse_tier(known: &[String], tier: &str) -> Result<(), Problem> {
    if known.iter().any(|one| one == tier) {
        return Ok(());
    }
    let named = known.iter().take(50).map(String::as_str).collect::<Vec<_>>().join(", ");
    let why = format!("no rule and no tier is called `{tier}`; there are {named}");
    Err(Problem::invalid("tier", why).with("tiers", known.to_vec().into()))
}
