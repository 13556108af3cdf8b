//! The node, as the control plane sees it: which rules are in force, and what the counters of a caller hold.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::{Arc, Weak};

use tidegate_control::Quota;
use tidegate_control::plane::{
    Judged, LimitInForce, Pending, Plane, PlaneError, RuleChange, RuleInForce, Used,
};
use tidegate_core::{
    Book, Descriptor, Domain, Entry, Fate, Found, Limit, Micros, Plan, Query, Quotas, Rule,
    RuleState as CoreState, Secret,
};
use tidegate_counters::{Counters as _, Hand};
use tidegate_server::Node;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;

use super::API;
use super::apply::core_quota;

/// How many questions may wait for the counters.
const QUESTIONS_MAX: usize = 64;
/// How many counters of a caller are looked at.
const COUNTERS_MAX: usize = 1_000;

/// The node, for the control plane.
pub(super) struct NodePlane {
    node: Weak<Node>,
    questions: mpsc::Sender<Question>,
}

/// What is asked of the counters, on the thread whose hand they are in.
struct Question {
    domain: Option<String>,
    caller: String,
    /// Only what is here.
    address: Option<String>,
    reset: bool,
    answer: oneshot::Sender<Result<Vec<Used>, PlaneError>>,
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
                        Some(node) => answer(&node, &hand, &question).await,
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
    ) -> Pending<'a, Vec<Used>> {
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
        let (errors, warnings) =
            loaded.report.json(&loaded.sources).into_iter().partition(|told| told["severity"] == "error");
        if !loaded.is_valid() {
            return Judged { errors, warnings, changes: Vec::new() };
        }
        // The secret is of no account: only the rules are compared.
        let then = Book::new(std::mem::take(&mut loaded.domains), Secret::new([0; 16]));
        let changes = changes(&node.rules.in_force().book, &then);
        Judged { errors, warnings, changes }
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

    fn usage<'a>(&'a self, domain: Option<&'a str>, api_key: &'a str) -> Pending<'a, Vec<Used>> {
        self.ask(domain, api_key, None, false)
    }

    fn reset<'a>(
        &'a self,
        domain: Option<&'a str>,
        api_key: &'a str,
        address: Option<&'a str>,
    ) -> Pending<'a, Vec<Used>> {
        self.ask(domain, api_key, address, true)
    }
}

fn peek(entries: std::ops::Range<usize>) -> Descriptor {
    Descriptor { entries, cost: 0, limit: None, own_cost: false }
}

fn source(found: &Found<'_>) -> &'static str {
    match (found.granted, found.rule.is_some_and(|rule| rule.tier.is_some())) {
        (Some((_, by)), _) => by.name(),
        (None, true) => "tier",
        (None, false) => "rule",
    }
}

fn limit_in_force(limit: &Limit, source: &'static str) -> LimitInForce {
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

/// Rules by id and tier.
type Known<'b> = BTreeMap<(&'b str, Option<&'b str>), &'b Rule>;

fn known(book: &Book) -> Known<'_> {
    book.rules().iter().map(|rule| ((&*rule.id, rule.tier.as_deref()), rule)).collect()
}

/// What becomes of the rules of one book in another.
fn changes(before: &Book, then: &Book) -> Vec<RuleChange> {
    let (before, then) = (known(before), known(then));
    let text = |rule: Option<&&Rule>| {
        rule.map(|rule| rule.said.limit.as_ref().map_or_else(|| "unlimited".to_owned(), ToString::to_string))
    };
    let mut ids: Vec<_> = before.keys().chain(then.keys()).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    let change = |id: (&str, Option<&str>)| {
        let (was, is) = (before.get(&id), then.get(&id));
        let limits =
            was.and_then(|rule| rule.said.limit.as_ref()).zip(is.and_then(|rule| rule.said.limit.as_ref()));
        let change = RuleChange {
            id: id.0.to_owned(),
            tier: id.1.map(String::from),
            before: text(was),
            after: text(is),
            counters_start_afresh: limits.is_some_and(|(was, is)| !was.counts_like(is)),
        };
        (change.before != change.after).then_some(change)
    };
    ids.into_iter().filter_map(change).collect()
}

/// What the counters of a caller hold, or held when they were reset.
async fn answer(node: &Node, hand: &Hand, question: &Question) -> Result<Vec<Used>, PlaneError> {
    let in_force = node.rules.in_force().clone();
    let unknown = |why: String| PlaneError::Unknown { why };
    let domain = question.domain.as_deref().or_else(|| node.default_domain(&in_force.book));
    let domain = domain.ok_or_else(|| unknown("there are several domains: name one by ?domain=".into()))?;
    let domain =
        in_force.book.domain(domain).ok_or_else(|| unknown(format!("there is no domain `{domain}`")))?;
    let now = if matches!(hand, Hand::Redis(_)) { Micros::new(node.clock.wall_now_us()) } else { node.now() };
    let quota = in_force.quotas.of(&question.caller);
    let overrides = quota.as_ref().map(|quota| quota.overrides()).unwrap_or_default();
    let ways = ways(&in_force.book, domain, &question.caller, &overrides);
    let (mut seen, mut all) = (HashSet::new(), Vec::new());
    for way in &ways {
        let entries: Vec<Entry<'_>> = way.iter().map(|(key, value)| Entry { key, value }).collect();
        let descriptors = [peek(0..entries.len())];
        let query =
            Query { domain: domain.name(), entries: &entries, descriptors: &descriptors, lease: None };
        let mut plan = Plan::new();
        in_force.book.plan_for(&query, in_force.quotas.at(now).as_ref(), &mut plan);
        for found in plan.found().iter().filter(|found| found.descriptor.is_some()) {
            let Fate::Counted(number) = found.fate else { continue };
            let take = &plan.takes()[number];
            let address = address(domain, &entries, found);
            let wanted = question.address.as_ref().is_none_or(|wanted| *wanted == address);
            if !wanted || all.len() >= COUNTERS_MAX || !seen.insert(take.key) {
                continue;
            }
            let limit = plan.limit(take);
            let unavailable = |why: tidegate_counters::Unavailable| PlaneError::Unavailable { why: why.why };
            let held = hand.inspect(take.key, take.tag, limit, now).await.map_err(unavailable)?;
            if question.reset {
                node.reset(hand, take.key, take.tag, Some(limit)).await.map_err(unavailable)?;
            }
            all.push(Used {
                rule: take.rule.map(|rule| rule.id.to_string()),
                address,
                limit: limit_in_force(limit, source(found)),
                used: held.used,
                remaining: held.verdict.remaining.into(),
                window: window(limit, &held, now),
                stored: held.stored,
                key: take.key.to_string(),
            });
        }
    }
    Ok(all)
}

/// The ways of the tree that are about one caller and nobody else, and whose other values are all fixed; and those of its overrides.
fn ways(
    book: &Book,
    domain: &Domain,
    caller: &str,
    overrides: &[tidegate_core::Override],
) -> Vec<Vec<(String, String)>> {
    let own = (domain.quota_key().to_owned(), caller.to_owned());
    let mut ways = vec![vec![own.clone()]];
    for rule in book.rules().iter().filter(|rule| *rule.domain == *domain.name()) {
        let is_own = |level: &tidegate_core::PathEntry| *level.key == *own.0;
        if !rule.path.iter().any(is_own) {
            continue;
        }
        let level = |level: &tidegate_core::PathEntry| match (is_own(level), &level.value) {
            (true, None) => Some(own.clone()),
            (_, Some(value)) if !value.contains('*') && !level.key.contains('*') => {
                (!is_own(level) || **value == *caller).then(|| (level.key.to_string(), value.to_string()))
            }
            _ => None,
        };
        ways.extend(rule.path.iter().map(level).collect::<Option<Vec<_>>>());
    }
    for one in overrides {
        let below = one.below.iter().map(|(key, value)| (key.to_string(), value.to_string()));
        ways.push(std::iter::once(own.clone()).chain(below).collect());
    }
    let mut seen = HashSet::new();
    ways.retain(|way| seen.insert(way.clone()));
    ways
}

/// Where below the caller's entry something was found.
fn address(domain: &Domain, entries: &[Entry<'_>], found: &Found<'_>) -> String {
    let at = entries.iter().position(|entry| *entry.key == *domain.quota_key()).map_or(0, |at| at + 1);
    let depth = found.rule.map_or(entries.len(), |rule| rule.path.len());
    let below: Vec<String> = entries.get(at..depth).unwrap_or_default().iter().map(part).collect();
    // Found by another name of the caller: then the rule says where.
    let by_name =
        found.rule.is_some_and(|rule| rule.path.iter().all(|level| *level.key != *domain.quota_key()));
    match (by_name, below.is_empty()) {
        (true, _) => found.rule.map_or_else(String::new, |rule| rule.id.to_string()),
        (false, true) => tidegate_core::ADDRESS_OF_CALLER.to_owned(),
        (false, false) => below.join("|"),
    }
}

fn part(entry: &Entry<'_>) -> String {
    let escaped = |text: &str, special: &[char]| -> String {
        text.chars().flat_map(|one| special.contains(&one).then_some('\\').into_iter().chain([one])).collect()
    };
    format!("{}:{}", escaped(entry.key, &['\\', '|', ':']), escaped(entry.value, &['\\', '|']))
}

/// The window that is counted: until now for those that slide, the whole one for those that are aligned.
fn window(limit: &Limit, held: &tidegate_counters::Inspection, now: Micros) -> (i64, i64) {
    use tidegate_core::Algorithm::{Calendar, Concurrency, FixedWindow};
    let us = |at: Micros| i64::try_from(at.get()).unwrap_or(i64::MAX);
    let length = limit.window().unwrap_or(Micros::ZERO);
    match limit.algorithm() {
        FixedWindow => {
            let start = Micros::new(now.get() - now.get() % length.get().max(1));
            (us(start), us(start.plus(length)))
        }
        Calendar => match limit.periods() {
            Some(calendar) => {
                let period = calendar.period(now);
                (us(period.start), us(period.end))
            }
            None => (us(now), us(now.plus(held.verdict.reset_after))),
        },
        Concurrency => (us(now), us(now)),
        _ => (us(now.minus(length)), us(now)),
    }
}
