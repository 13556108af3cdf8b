//! Rules by API: `/admin/v1/rules`. What they mean is judged by the process, together with all others, before anything is written.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::Desk;
use super::auth::Caller;
use super::call::{Answer, Call, PageOf, cursor, no_content, ok, tagged};
use super::problem::Problem;
use super::shapes::{Kept, rule_file};
use super::when::When;
use crate::error::Error;
use crate::model::{Limits, RuleDocument, RuleVersion, Version};
use crate::plane::{Judged, RuleChange, RuleInForce};

/// Rules by API that are judged together.
const RULES_MAX: usize = 10_000;

/// A rule that is in force.
#[derive(Serialize, ToSchema)]
#[schema(as = RuleInForce)]
pub(super) struct Shown {
    /// Domain, path, and name or else algorithm and window.
    id: String,
    domain: String,
    /// The tier that it is for; none is everybody else.
    tier: Option<String>,
    name: Option<String>,
    /// As a person would write it; none is unlimited.
    limit: Option<String>,
    amount: Option<u32>,
    window_us: Option<u64>,
    algorithm: Option<&'static str>,
    /// Where it is written: a file and a line, `api:<id>`, `xds:<resource>`.
    origin: String,
    /// The rule by API that it comes from.
    api_id: Option<String>,
    /// Can it be changed by API? (Its state always can.)
    writable: bool,
    /// `enforce`, `enforce N%`, `shadow` or `disabled`: as it is.
    state: String,
    /// As it was written.
    written_state: String,
}

impl Shown {
    fn of(rule: RuleInForce) -> Self {
        let limit = rule.limit.as_ref();
        Self {
            limit: limit.map(|limit| limit.text.clone()),
            amount: limit.map(|limit| limit.amount),
            window_us: limit.and_then(|limit| limit.window_us),
            algorithm: limit.map(|limit| limit.algorithm),
            writable: rule.api_id.is_some(),
            id: rule.id,
            domain: rule.domain,
            tier: rule.tier,
            name: rule.name,
            origin: rule.origin,
            api_id: rule.api_id,
            state: rule.state,
            written_state: rule.written_state,
        }
    }
}

/// A rule by API: in the form in which it was sent, and with it these.
#[derive(Serialize, ToSchema)]
#[schema(as = RuleRecord)]
pub(super) struct RuleAnswer {
    #[serde(flatten)]
    #[schema(value_type = Object, inline)]
    sent: Map<String, Value>,
    /// The ids of the rules that come of it.
    compiled: Vec<String>,
    /// What a change is to expect, as `If-Match`.
    version: u64,
    created_at: When,
    updated_at: When,
}

/// What would change.
#[derive(Serialize, ToSchema)]
pub(super) struct DryRun {
    /// Nothing was written.
    dry_run: bool,
    /// What would become of domains, descriptors and rules: each with an `id` (the domain's name, the descriptor's path, the rule's id),
    /// the `tier` that it is for, what it says `before` and `after`, as `tidegate config diff` tells it (a rule's limit with its state
    /// and policy: `sliding_window 60/1m shadow_mode`), null where it is not there, and `counters_start_afresh`.
    #[schema(value_type = Vec<Object>)]
    changes: Vec<Value>,
    /// What is odd about it.
    #[schema(value_type = Vec<Object>)]
    warnings: Vec<Value>,
    /// The same as a rule file; none where it would be gone.
    #[schema(value_type = Option<Object>)]
    document: Value,
}

/// What a rule was at some time.
#[derive(Serialize, ToSchema)]
#[schema(as = RuleVersion)]
pub(super) struct VersionAnswer {
    version: u64,
    at: When,
    actor: String,
    /// The row of the audit trail.
    revision: u64,
    /// Was it taken away?
    deleted: bool,
    /// In the form in which it was sent.
    #[schema(value_type = Option<Object>)]
    rule: Option<Map<String, Value>>,
}

/// Which version to go back to.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rollback {
    version: u64,
}

/// Any form of a rule.
#[derive(ToSchema)]
#[schema(as = Rule)]
#[serde(untagged)]
#[allow(dead_code, reason = "it is there for its schema: what is read is told apart by its fields")]
pub(super) enum AnyRule {
    Endpoint(super::shapes::EndpointRule),
    Bucket(super::shapes::BucketRule),
    Policy(super::shapes::PolicyRule),
    Document(DocumentRule),
}

/// A document in the form of a rule file for one domain; see the JSON Schema of rule files.
#[derive(ToSchema)]
#[allow(dead_code, reason = "likewise")]
pub(super) struct DocumentRule {
    domain: String,
    #[schema(value_type = Vec<Object>)]
    descriptors: Vec<Value>,
}

fn told(rule: &RuleDocument, compiled: Vec<String>) -> Answer {
    let mut sent = Kept::from_store(&rule.document).sent;
    if sent.contains_key("descriptors")
        || sent.contains_key("capacity")
        || sent.contains_key("refill_per_sec")
    {
        sent.insert("id".into(), rule.id.as_str().into());
    } else if sent.contains_key("key_type") {
        sent.insert("policy_id".into(), rule.id.as_str().into());
    } else {
        sent.insert("ruleId".into(), rule.id.as_str().into());
    }
    let (created_at, updated_at) = (When(rule.created_at), When(rule.updated_at));
    tagged(rule.version, &RuleAnswer { sent, compiled, version: rule.version, created_at, updated_at })
}

fn compiled(desk: &Desk, id: &str) -> Vec<String> {
    let rules = desk.plane.rules();
    rules.into_iter().filter(|rule| rule.api_id.as_deref() == Some(id)).map(|rule| rule.id).collect()
}

/// The rules that there will be, of those in force now and what would change of them.
fn to_be(in_force: &[RuleInForce], judged: &Judged) -> BTreeSet<(String, Option<String>)> {
    let mut all: BTreeSet<_> = in_force.iter().map(|rule| (rule.id.clone(), rule.tier.clone())).collect();
    for change in &judged.changes {
        let one = (change.id.clone(), change.tier.clone());
        match change.after {
            Some(_) => all.insert(one),
            None => all.remove(&one),
        };
    }
    all
}

pub(super) async fn list(desk: Arc<Desk>, call: Call) -> Answer {
    let query = call.query();
    let (limit, after) = (query.limit()?, query.cursor()?);
    let domain = query.get("domain").map(str::to_owned);
    let fits = |of: &str| domain.as_deref().is_none_or(|domain| domain == of) && call.caller.minds(Some(of));
    match query.get("source") {
        None => {
            let from = match after.map(|after| after.parse::<usize>()) {
                None => 0,
                Some(Ok(from)) => from,
                Some(Err(_)) => return Err(Problem::bad_request("cursor", "was not made by this call")),
            };
            let all: Vec<RuleInForce> =
                desk.plane.rules().into_iter().filter(|rule| fits(&rule.domain)).collect();
            let end = from.saturating_add(limit);
            let next = (end < all.len()).then(|| end.to_string());
            let items: Vec<Shown> = all.into_iter().skip(from).take(limit).map(Shown::of).collect();
            ok(&PageOf { items, next: cursor(next) })
        }
        Some("api") => {
            let page = desk.store.rules(after.as_deref(), limit).await?;
            let told = |rule: &RuleDocument| {
                let kept = Kept::from_store(&rule.document);
                kept.domain().is_some_and(fits).then(|| ListedRule {
                    compiled: compiled(&desk, &rule.id),
                    id: rule.id.clone(),
                    version: rule.version,
                    rule: kept.sent,
                    created_at: When(rule.created_at),
                    updated_at: When(rule.updated_at),
                })
            };
            let items: Vec<ListedRule> = page.items.iter().filter_map(told).collect();
            ok(&PageOf { items, next: cursor(page.next) })
        }
        Some(_) => Err(Problem::bad_request("source", "is `api`, or left out for all rules in force")),
    }
}

pub(super) async fn get(desk: Arc<Desk>, call: Call) -> Answer {
    let id = call.name();
    match desk.store.rule(id).await {
        Ok(rule) => {
            refuse_foreign(&call.caller, Kept::from_store(&rule.document).domain(), true)?;
            told(&rule, compiled(&desk, id))
        }
        Err(Error::NotFound { .. }) => {
            let all = desk.plane.rules().into_iter();
            let found: Vec<Shown> = all
                .filter(|rule| rule.id == id && call.caller.minds(Some(&rule.domain)))
                .map(Shown::of)
                .collect();
            match found.into_iter().next() {
                Some(rule) => ok(&rule),
                None => Err(Problem::not_found("no rule has this id, nor does one by API")),
            }
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn put(desk: Arc<Desk>, mut call: Call) -> Answer {
    let said = call.value().await?;
    let id = call.name().to_owned();
    refuse_written_elsewhere(&desk, &call.caller, &id)?;
    crate::model::rule_id(&id)?;
    let kept = Kept::read(&desk, &id, said)?;
    refuse_foreign(&call.caller, kept.domain(), false)?;
    let text = kept.stored();
    let _one_at_a_time = desk.rules.lock().await;
    let current = current(&desk, &call.caller, &id).await?;
    call.expected()?.check(current)?;
    let (judged, compiled) = judge(&desk, &call.caller, &id, Some(&text)).await?;
    if call.query().flag("dry_run")? {
        return dry_run(judged, kept.rules);
    }
    let expected = expected(&call, current)?;
    let written = desk.store.put_rule(&call.who(), &id, text, expected).await?;
    told(&written.now, compiled)
}

pub(super) async fn delete(desk: Arc<Desk>, call: Call) -> Answer {
    let id = call.name();
    refuse_written_elsewhere(&desk, &call.caller, id)?;
    let _one_at_a_time = desk.rules.lock().await;
    let current = current(&desk, &call.caller, id).await?;
    call.expected()?.check(current)?;
    if current == 0 {
        return Err(Error::NotFound { what: "rule" }.into());
    }
    let (judged, _) = judge(&desk, &call.caller, id, None).await?;
    if call.query().flag("dry_run")? {
        return dry_run(judged, Value::Null);
    }
    desk.store.delete_rule(&call.who(), id, expected(&call, current)?).await?;
    no_content()
}

pub(super) async fn history(desk: Arc<Desk>, call: Call) -> Answer {
    let query = call.query();
    let before = query.cursor()?.map(|said| said.parse::<Version>());
    let before =
        before.transpose().map_err(|_| Problem::bad_request("cursor", "was not made by this call"))?;
    let page = desk.store.rule_history(call.name(), before, query.limit()?).await?;
    let is_own = |one: &RuleVersion| {
        let kept = one.document.as_deref().map(Kept::from_store);
        kept.is_none_or(|kept| call.caller.minds(kept.domain()))
    };
    if !page.items.iter().all(is_own) || (page.items.is_empty() && before.is_none()) {
        return Err(Error::NotFound { what: "rule" }.into());
    }
    let told = |one: RuleVersion| VersionAnswer {
        version: one.version,
        at: When(one.at),
        actor: one.actor,
        revision: one.revision,
        deleted: one.document.is_none(),
        rule: one.document.as_deref().map(|text| Kept::from_store(text).sent),
    };
    let items: Vec<VersionAnswer> = page.items.into_iter().map(told).collect();
    ok(&PageOf { items, next: cursor(page.next) })
}

pub(super) async fn roll_back(desk: Arc<Desk>, mut call: Call) -> Answer {
    let body: Rollback = call.json().await?;
    let id = call.name().to_owned();
    refuse_written_elsewhere(&desk, &call.caller, &id)?;
    let _one_at_a_time = desk.rules.lock().await;
    let current = current(&desk, &call.caller, &id).await?;
    call.expected()?.check(current)?;
    let target = desk.store.rule_version(&id, body.version).await?;
    let Some(text) = target.document else {
        return Err(Problem::invalid("version", "the rule was deleted by this version; delete it instead"));
    };
    let kept = Kept::from_store(&text);
    refuse_foreign(&call.caller, kept.domain(), true)?;
    let (judged, compiled) = judge(&desk, &call.caller, &id, Some(&text)).await?;
    if call.query().flag("dry_run")? {
        return dry_run(judged, kept.rules);
    }
    let expected = expected(&call, current)?;
    let written = desk.store.roll_back_rule(&call.who(), &id, body.version, expected).await?;
    told(&written.now, compiled)
}

fn dry_run(judged: Judged, document: Value) -> Answer {
    let changes = judged.besides.iter().chain(&judged.changes).map(|change| json!(change)).collect();
    ok(&DryRun { dry_run: true, changes, warnings: judged.warnings, document })
}

/// What the store is to expect: what the caller does, and for somebody who is bound to a domain, what was seen to be theirs.
fn expected(call: &Call, current: Version) -> Result<Option<Version>, Problem> {
    let is_any = call.expected()? == super::call::Expected::Anything;
    Ok((!is_any || call.caller.tenant.is_some()).then_some(current))
}

/// The version there is, of a rule that the caller has to do with; 0 is none.
async fn current(desk: &Desk, caller: &Caller, id: &str) -> Result<Version, Problem> {
    match desk.store.rule(id).await {
        Ok(rule) => {
            refuse_foreign(caller, Kept::from_store(&rule.document).domain(), true)?;
            Ok(rule.version)
        }
        Err(Error::NotFound { .. }) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

fn refuse_foreign(caller: &Caller, domain: Option<&str>, is_hidden: bool) -> Result<(), Problem> {
    if caller.minds(domain) {
        return Ok(());
    }
    if is_hidden {
        return Err(Error::NotFound { what: "rule" }.into());
    }
    let tenant = caller.tenant.as_deref().unwrap_or_default();
    Err(Problem::forbidden(format!("it is bound to the domain `{tenant}`")).field("domain"))
}

/// A rule of a file, or of xDS, is changed there.
fn refuse_written_elsewhere(desk: &Desk, caller: &Caller, id: &str) -> Result<(), Problem> {
    let mut rules = desk.plane.rules();
    rules.retain(|rule| rule.id == id && rule.api_id.as_deref() != Some(id));
    if rules.is_empty() {
        return Ok(());
    }
    rules.retain(|rule| caller.minds(Some(&rule.domain)));
    let mut origins: Vec<String> = rules.into_iter().map(|rule| rule.origin).collect();
    if origins.is_empty() {
        return Err(Problem::written_elsewhere("a rule of another domain has this id", origins));
    }
    origins.dedup();
    let why = format!(
        "it is written in {}; change it there. Its state can be set here: PUT …/state",
        origins.join(", ")
    );
    Err(Problem::written_elsewhere(why, origins))
}

/// What would come of all rules by API with this one as it is to be, and the ids of the rules that it would add. Errors are told as those
/// of files are; somebody who is bound to a domain is told of its rules by API alone.
async fn judge(
    desk: &Arc<Desk>,
    caller: &Caller,
    id: &str,
    text: Option<&str>,
) -> Result<(Judged, Vec<String>), Problem> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut seen = HashSet::from([file_name(id)]);
    let mut after = None;
    loop {
        let page = desk.store.rules(after.as_deref(), Limits::PAGE).await?;
        let own = page.items.iter().filter(|rule| caller.minds(Kept::from_store(&rule.document).domain()));
        seen.extend(own.map(|rule| file_name(&rule.id)));
        let others = page.items.into_iter().filter(|rule| rule.id != id);
        all.extend(others.map(|rule| (rule.id, rule_file(&rule.document))));
        match page.next {
            Some(next) if all.len() < RULES_MAX => after = Some(next),
            _ => break,
        }
    }
    if all.len() >= RULES_MAX && text.is_some() {
        return Err(Problem::invalid(
            "id",
            format!("there are {RULES_MAX} rules by API already; put several into one document"),
        ));
    }
    let own = text.map(|text| (id.to_owned(), rule_file(text)));
    // It compiles all rules there are: not on the thread that answers. Once more without the rule, which shows what is the rule's: what
    // others have written may not be in force yet.
    let plane = Arc::clone(&desk.plane);
    let judged = tokio::task::spawn_blocking(move || {
        let Some(own) = own else { return (plane.judge(all), Vec::new()) };
        let in_force = plane.rules();
        let without = to_be(&in_force, &plane.judge(all.clone()));
        all.push(own);
        all.sort();
        let judged = plane.judge(all);
        let with = to_be(&in_force, &judged);
        let mut compiled: Vec<String> = with.difference(&without).map(|(id, _)| id.clone()).collect();
        compiled.dedup();
        (judged, compiled)
    });
    let (mut judged, compiled) =
        judged.await.map_err(|_| Problem::unavailable("the rules could not be judged"))?;
    let is_valid = judged.errors.is_empty();
    if let Some(tenant) = &caller.tenant {
        hide_others(&mut judged, tenant, &seen);
    }
    if text.is_some()
        && let Some(domain) = &judged.lost_default
        && desk.store.has_quota_without_domain().await?
    {
        let them = match caller.minds(Some(domain)) {
            true => format!("about `{domain}` while there is no other, and would hold nowhere"),
            false => "about another domain while there is no more than one, and would hold nowhere".into(),
        };
        let what_to_do =
            "set http.default_domain on every node, or name a domain in each record, then try again";
        return Err(Problem::invalid(
            "domain",
            format!("quotas that name no domain are {them}: {what_to_do}"),
        ));
    }
    // A rule that goes makes nothing wrong that was right, and may be the one that has to go.
    if is_valid || text.is_none() {
        return Ok((judged, compiled));
    }
    let message = |error: &Value| error.get("message").and_then(Value::as_str).map(str::to_owned);
    let first = judged.errors.first().and_then(message);
    let why = first
        .unwrap_or_else(|| "together with other rules, which are not shown, it would not be valid".into());
    Err(Problem::invalid("document", why).errors(judged.errors))
}

/// What the process calls a rule by API where it tells what is wrong.
fn file_name(id: &str) -> String {
    format!("api:{id}")
}

/// Leaves out what is said about rules of other domains than this one, and about files: they may be about several.
fn hide_others(judged: &mut Judged, tenant: &str, seen: &HashSet<String>) {
    let is_own = |told: &Value| told["file"].as_str().is_some_and(|file| seen.contains(file));
    judged.errors.retain(is_own);
    judged.warnings.retain(is_own);
    // Ids begin with the domain, in which these characters are escaped.
    let mut escaped = String::new();
    for one in tenant.chars() {
        escaped.extend(matches!(one, '\\' | '|' | '#').then_some('\\').into_iter().chain([one]));
    }
    let is_own = |change: &RuleChange| {
        let rest = change.id.strip_prefix(&escaped);
        change.id == tenant || rest.is_some_and(|rest| rest.starts_with(['|', '#']))
    };
    judged.changes.retain(is_own);
    judged.besides.retain(is_own);
}

/// What reading a rule gives: one by API, or one of a file or of xDS.
#[derive(ToSchema)]
#[schema(as = RuleFound)]
#[serde(untagged)]
#[allow(dead_code, reason = "it is there for its schema")]
pub(super) enum Found {
    Api(RuleAnswer),
    InForce(Shown),
}

/// What writing a rule gives: the rule, or what would change.
#[derive(ToSchema)]
#[schema(as = RuleWritten)]
#[serde(untagged)]
#[allow(dead_code, reason = "it is there for its schema")]
pub(super) enum Written {
    Rule(RuleAnswer),
    DryRun(DryRun),
}

/// What a list of rules holds: those in force, or those by API.
#[derive(ToSchema)]
#[schema(as = RuleListed)]
#[serde(untagged)]
#[allow(dead_code, reason = "it is there for its schema")]
pub(super) enum Listed {
    InForce(Shown),
    Api(ListedRule),
}

/// A rule by API in a list.
#[derive(Serialize, ToSchema)]
pub(super) struct ListedRule {
    id: String,
    version: u64,
    /// In the form in which it was sent.
    #[schema(value_type = Object)]
    rule: Map<String, Value>,
    /// The ids of the rules that come of it.
    compiled: Vec<String>,
    created_at: When,
    updated_at: When,
}
