//! The node, as the control plane sees it: which rules are in force, and what the counters of a caller hold.

use std::rc::Rc;
use std::sync::{Arc, Weak};

use serde_json::{Value, json};
use tidegate_control::Quota;
use tidegate_control::plane::{
    CallerUsage, Judged, LimitInForce, Pending, Plane, PlaneError, RuleChange, RuleInForce,
};
use tidegate_core::{
    Book, Descriptor, Entry, Fate, Found, Limit, Micros, Plan, Query, Quotas, Rule, RuleState as CoreState,
    Secret,
};
use tidegate_server::Node;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;

use super::API;
use super::apply::core_quota;
use super::usage::usage;
use crate::differences::{Difference, Differences, Kind};

/// How many questions may wait for the counters.
const QUESTIONS_MAX: usize = 64;

/// The node, for the control plane.
pub(super) struct NodePlane {
    node: Weak<Node>,
    questions: mpsc::Sender<Question>,
}

/// What is asked of the counters, on the thread whose hand they are in.
pub(super) struct Question {
    pub(super) domain: Option<String>,
    pub(super) caller: String,
    /// Only what is here.
    pub(super) address: Option<String>,
    pub(super) reset: bool,
    answer: oneshot::Sender<Result<CallerUsage, PlaneError>>,
}

impl NodePlane {
    /// On the thread that calls, whose hand on the counters is used.
    pub(super) fn here(node: &Arc<Node>) -> Self {
        let (questions, mut asked) = mpsc::channel::<Question>(QUESTIONS_MAX);
        let (hand, of) = (Rc::new(node.store.hand()), Arc::downgrade(node));
        spawn_local(async move {
            while let Some(question) = asked.recv().await {
                let (hand, node) = (hand.clone(), of.upgrade());
                spawn_local(async move {
                    let answer = match node {
                        Some(node) => usage(&node, &hand, &question).await,
                        None => Err(ended()),
                    };
                    let _ = question.answer.send(answer); // Whoever does not wait any more does not need it.
                });
            }
        });
        Self { node: Arc::downgrade(node), questions }
    }

    fn ask<'a>(
        &'a self,
        domain: Option<&str>,
        caller: &str,
        address: Option<&str>,
        reset: bool,
    ) -> Pending<'a, CallerUsage> {
        let (answer, answered) = oneshot::channel();
        let (domain, caller) = (domain.map(String::from), caller.to_owned());
        let question = Question { domain, caller, address: address.map(String::from), reset, answer };
        let sent = self.questions.try_send(question);
        Box::pin(async move {
            sent.map_err(|_| PlaneError::Unavailable { why: "too many ask at the same time".into() })?;
            answered.await.unwrap_or_else(|_| Err(ended()))
        })
    }
}

fn ended() -> PlaneError {
    PlaneError::Unavailable { why: "the node is ending".into() }
}

impl Plane for NodePlane {
    fn default_domain(&self) -> Option<String> {
        let node = self.node.upgrade()?;
        let in_force = node.rules.in_force();
        node.default_domain(&in_force.book).map(String::from)
    }

    fn quota_key(&self, domain: &str) -> Option<String> {
        let node = self.node.upgrade()?;
        let in_force = node.rules.in_force();
        in_force.book.domain(domain).map(|domain| domain.quota_key().to_owned())
    }

    fn rules(&self) -> Vec<RuleInForce> {
        let Some(node) = self.node.upgrade() else { return Vec::new() };
        let in_force = node.rules.in_force();
        in_force.book.rules().iter().map(rule_in_force).collect()
    }

    fn tiers(&self) -> Vec<String> {
        let Some(node) = self.node.upgrade() else { return Vec::new() };
        let in_force = node.rules.in_force();
        let mut tiers: Vec<String> =
            in_force.book.rules().iter().filter_map(|rule| rule.tier.as_deref().map(String::from)).collect();
        tiers.sort_unstable();
        tiers.dedup();
        tiers
    }

    fn answered(&self, status: u16) {
        if let Some(control) = self.node.upgrade().as_ref().and_then(|node| node.control.as_ref()) {
            control.answered(status);
        }
    }

    fn judge(&self, rules: Vec<(String, String)>) -> Judged {
        let Some(node) = self.node.upgrade() else { return Judged::default() };
        let texts = rules.into_iter().map(|(id, document)| (format!("{API}{id}"), document.into())).collect();
        let mut loaded = node.rules.try_added(texts);
        let (mut errors, mut warnings): (Vec<Value>, Vec<Value>) =
            loaded.report.json(&loaded.sources).into_iter().partition(|told| told["severity"] == "error");
        if !loaded.is_valid() {
            return Judged { errors, warnings, ..Judged::default() };
        }
        for one in std::mem::take(&mut loaded.left_out) {
            let why = format!("{} is not in force: {}", one.name, one.why());
            match one.is_new {
                true if one.errors.is_empty() => {
                    errors.push(told("error", "not-in-force", why, Some(&one.name)))
                }
                true => errors.extend(one.errors),
                // That is so whatever is edited now.
                false => warnings.push(told("warning", "not-in-force", why, Some(&one.name))),
            }
        }
        if node.rules.last_load_failed() {
            let why = "the rule files of this node cannot be loaded: this was judged beside those that are in force";
            warnings.push(told("warning", "files-not-in-force", why.into(), None));
        }
        // The secret is of no account: only the rules are compared.
        let then = Book::new(std::mem::take(&mut loaded.domains), Secret::new([0; 16]));
        let in_force = node.rules.in_force();
        let lost_default = node
            .default_domain(&in_force.book)
            .filter(|_| node.default_domain(&then).is_none())
            .map(String::from);
        let Differences { besides, rules } = Differences::between(&in_force.book, &then);
        let sorted = |all: Vec<Difference>| {
            let mut changes: Vec<RuleChange> = all.into_iter().flat_map(rule_changes).collect();
            changes.sort_by(|one, other| (&one.id, &one.tier).cmp(&(&other.id, &other.tier)));
            changes
        };
        Judged { errors, warnings, changes: sorted(rules), besides: sorted(besides), lost_default }
    }

    fn default_limit(&self, quota: &Quota) -> Option<LimitInForce> {
        let node = self.node.upgrade()?;
        let in_force = node.rules.in_force();
        let domain = quota.domain.as_deref().or_else(|| node.default_domain(&in_force.book))?;
        let domain = in_force.book.domain(domain)?;
        // As if it were stored, and nothing else: it may not be there yet.
        let alone = Quotas::default();
        alone.set_tiers(in_force.quotas.tiers().iter().cloned());
        alone.put(tidegate_core::Quota { whitelisted: false, ..core_quota(quota) });
        let entries = [Entry { key: domain.quota_key(), value: &quota.api_key }];
        let mut plan = Plan::new();
        let descriptors = [peek(0..1)];
        let query =
            Query { domain: domain.name(), entries: &entries, descriptors: &descriptors, lease: None };
        in_force.book.plan_for(&query, alone.at(node.now()).as_ref(), &mut plan);
        let own = |found: &&Found<'_>| found.descriptor.is_some() && matches!(found.fate, Fate::Counted(_));
        let found = plan.found().iter().find(own)?;
        let Fate::Counted(take) = found.fate else { return None };
        Some(limit_in_force(plan.limit(&plan.takes()[take]), source(found)))
    }

    fn usage<'a>(
        &'a self,
        domain: Option<&'a str>,
        api_key: &'a str,
        address: Option<&'a str>,
    ) -> Pending<'a, CallerUsage> {
        self.ask(domain, api_key, address, false)
    }

    fn reset<'a>(
        &'a self,
        domain: Option<&'a str>,
        api_key: &'a str,
        address: Option<&'a str>,
    ) -> Pending<'a, CallerUsage> {
        self.ask(domain, api_key, address, true)
    }
}

/// As the compiler tells it.
fn told(severity: &str, code: &str, message: String, file: Option<&str>) -> Value {
    json!({ "code": code, "severity": severity, "message": message, "file": file, "line": null, "column": null })
}

pub(super) fn peek(entries: std::ops::Range<usize>) -> Descriptor {
    Descriptor { entries, cost: 0, limit: None, own_cost: false }
}

pub(super) fn source(found: &Found<'_>) -> &'static str {
    match (found.granted, found.rule.is_some_and(|rule| rule.tier.is_some())) {
        (Some((_, by)), _) => by.name(),
        (None, true) => "tier",
        (None, false) => "rule",
    }
}

pub(super) fn limit_in_force(limit: &Limit, source: &'static str) -> LimitInForce {
    LimitInForce {
        amount: limit.amount(),
        window_us: limit.window().filter(|_| !limit.holds()).map(Micros::get),
        calendar: limit.periods().map(|calendar| calendar.unit().name()),
        algorithm: limit.algorithm().name(),
        text: limit.to_string(),
        source,
    }
}

fn rule_in_force(rule: &Rule) -> RuleInForce {
    let origin = &rule.said.origin;
    RuleInForce {
        id: rule.id.to_string(),
        domain: rule.domain.to_string(),
        tier: rule.tier.as_deref().map(String::from),
        name: rule.said.name.as_deref().map(String::from),
        limit: rule
            .said
            .limit
            .as_ref()
            .map(|limit| limit_in_force(limit, if rule.tier.is_some() { "tier" } else { "rule" })),
        origin: match origin.line {
            0 => origin.file.to_string(),
            line => format!("{}:{line}", origin.file),
        },
        api_id: origin.file.strip_prefix(API).map(String::from),
        written_state: state(rule.written_state()),
        state: state(rule.state()),
    }
}

fn state(state: CoreState) -> String {
    match state {
        CoreState::Enforce(share) => match share.basis_points() {
            10_000 => "enforce".into(),
            points if points % 100 == 0 => format!("enforce {}%", points / 100),
            points => format!("enforce {}.{:02}%", points / 100, points % 100),
        },
        CoreState::Shadow => "shadow".into(),
        CoreState::Disabled => "disabled".into(),
    }
}

/// What becomes of a rule, as the API tells it: by id. A limit without a name has another one when its window or algorithm changes; then
/// one id goes and the other comes, with counters that start afresh.
fn rule_changes(difference: Difference) -> Vec<RuleChange> {
    let Difference { kind, id, id_before, tier, before, after } = difference;
    let change = |id, before, after, counters_start_afresh| RuleChange {
        id,
        tier: tier.clone(),
        before,
        after,
        counters_start_afresh,
    };
    let is_fresh = kind == Kind::Fresh;
    match id_before {
        Some(gone) => vec![change(gone, before, None, false), change(id, None, after, is_fresh)],
        None => vec![change(id, before, after, is_fresh)],
    }
}
