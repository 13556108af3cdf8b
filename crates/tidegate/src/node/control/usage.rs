//! What the counters of one caller hold: every rule that counts for it, as far as its counters can be named.

use std::collections::HashSet;

use tidegate_control::plane::{CallerUsage, CountsFor, NotListed, PlaneError, Used};
use tidegate_core::{
    Book, Domain, Entry, Event, Fate, Found, Limit, Micros, Override, PathEntry, Plan, Query, Quotas,
    Recorder, Rule, RuleState,
};
use tidegate_counters::{Counters as _, Hand, Store};
use tidegate_server::Node;

use super::plane::{Question, limit_in_force, peek, source};

/// How many counters of a caller are looked at, and how many rules are named whose counters nobody can list.
const LISTED_MAX: usize = 1_000;
/// What a caller may be called besides its own name.
const OTHER_NAMES: [(&str, CountsFor); 2] =
    [("user_id", CountsFor::UserId), ("client_id", CountsFor::ClientId)];

/// What the counters of a caller hold, or held when they were reset.
pub(super) async fn usage(node: &Node, hand: &Hand, question: &Question) -> Result<CallerUsage, PlaneError> {
    if !node.decides && matches!(node.store, Store::Memory(_)) {
        // Its own memory is never charged: it would say that nobody has used anything, and reset nothing.
        let why = "this process decides nothing, and the counters are in the memory of the nodes that decide: ask the API of one of those \
            (node.role `all`), or keep counters in Redis (store.url), where this process sees them too";
        return Err(PlaneError::Elsewhere { why: why.into() });
    }
    let in_force = node.rules.in_force().clone();
    let unknown = |why: String| PlaneError::Unknown { why };
    let domain = question.domain.as_deref().or_else(|| node.default_domain(&in_force.book));
    let domain = domain.ok_or_else(|| unknown("there are several domains: name one by ?domain=".into()))?;
    let domain =
        in_force.book.domain(domain).ok_or_else(|| unknown(format!("there is no domain `{domain}`")))?;
    let now = if matches!(hand, Hand::Redis(_)) { Micros::new(node.clock.wall_now_us()) } else { node.now() };
    let caller = Caller::of(&in_force.book, &in_force.quotas, domain, &question.caller, now);
    let mut told = CallerUsage::default();
    if caller.is_exempt {
        return Ok(told); // No rule counts it.
    }
    let (ways, open) = caller.ways(&in_force.book);
    let mut seen = HashSet::new();
    // What counts for others too comes last: so a reset, which leaves that alone, finds what was told to be the caller's, and no more.
    let passes: &[bool] = if question.reset { &[false] } else { &[false, true] };
    for (of_all, way) in passes.iter().flat_map(|of_all| ways.iter().map(move |way| (*of_all, way))) {
        let entries: Vec<Entry<'_>> = way.iter().map(|(key, value)| Entry { key, value }).collect();
        let descriptors = [peek(0..entries.len())];
        let query =
            Query { domain: domain.name(), entries: &entries, descriptors: &descriptors, lease: None };
        let mut plan = Plan::new();
        in_force.book.plan_for(&query, in_force.quotas.at(now).as_ref(), &mut plan);
        for found in plan.found() {
            let Fate::Counted(number) = found.fate else { continue };
            let take = &plan.takes()[number];
            let address = address(domain, &entries, found);
            let counts_for = counts_for(domain, found);
            let wanted = question.address.as_ref().is_none_or(|wanted| *wanted == address)
                && of_all == (counts_for == CountsFor::All);
            if !wanted || !seen.insert(take.key) {
                continue;
            }
            if told.counters.len() >= LISTED_MAX {
                told.left_out += 1;
                continue;
            }
            let limit = plan.limit(take);
            let unavailable = |why: tidegate_counters::Unavailable| PlaneError::Unavailable { why: why.why };
            let held = hand.inspect(take.key, take.tag, limit, now).await.map_err(unavailable)?;
            if question.reset {
                node.reset(hand, take.key, take.tag, Some(limit)).await.map_err(unavailable)?;
            }
            told.counters.push(Used {
                rule: take.rule.map(|rule| rule.id.to_string()),
                counts_for,
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
    if !question.reset && question.address.is_none() {
        told.left_out += open.len().saturating_sub(LISTED_MAX) as u64;
        told.not_listed = open.into_iter().take(LISTED_MAX).collect();
    }
    Ok(told)
}

/// Who is asked about, as a decision would know it.
struct Caller<'c> {
    domain: &'c Domain,
    name: &'c str,
    /// Its other names, as the entries that say so.
    names: Vec<(String, String)>,
    tier: Option<String>,
    /// Where it has limits of its own, or by its tier.
    grants: Vec<Override>,
    is_exempt: bool,
}

/// What a rule has to do with a caller.
enum Way<'r> {
    /// It counts on this way, and on no other.
    One(Vec<(String, String)>),
    /// It counts on many: what this level is depends on the request.
    Many(&'r PathEntry),
    /// It is about others, or about nobody.
    None,
}

impl<'c> Caller<'c> {
    fn of(book: &Book, quotas: &Quotas, domain: &'c Domain, name: &'c str, now: Micros) -> Self {
        let mut grants = quotas.of(name).map(|kept| kept.overrides().into_owned()).unwrap_or_default();
        let entries = [Entry { key: domain.quota_key(), value: name }];
        let descriptors = [peek(0..1)];
        let query =
            Query { domain: domain.name(), entries: &entries, descriptors: &descriptors, lease: None };
        let (mut plan, mut walks) = (Plan::new(), Walks::default());
        book.plan_recorded(&query, quotas.at(now).as_ref(), &mut plan, &mut walks);
        let tiers = quotas.tiers();
        let of_tier = tiers.iter().find(|tier| Some(&*tier.name) == walks.tier.as_deref());
        grants.extend(of_tier.iter().flat_map(|tier| tier.overrides.iter().cloned()));
        Self { domain, name, names: walks.names, tier: walks.tier, grants, is_exempt: plan.exempt() }
    }

    fn own(&self) -> (String, String) {
        (self.domain.quota_key().to_owned(), self.name.to_owned())
    }

    /// What it is called by entries of this key.
    fn called(&self, key: &str) -> Option<&str> {
        let other = || self.names.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        if *key == *self.domain.quota_key() { Some(self.name) } else { other() }
    }

    /// The ways of the tree on which the caller's counters are, with those of its own limits; and the rules whose counters are on ways that
    /// nobody can list.
    fn ways(&self, book: &Book) -> (Vec<Vec<(String, String)>>, Vec<NotListed>) {
        let (mut ways, mut open) = (vec![vec![self.own()]], Vec::new());
        let of_domain = |rule: &&Rule| *rule.domain == *self.domain.name();
        let rules: Vec<&Rule> = book.rules().iter().filter(of_domain).collect();
        for beside in rules.chunk_by(|one, other| one.path == other.path) {
            // Where there is something for its tier, nothing else counts there.
            let is_of_tier =
                |rule: &&&Rule| rule.tier.is_some() && rule.tier.as_deref() == self.tier.as_deref();
            let has_tier = beside.iter().any(|rule| is_of_tier(&rule));
            for rule in beside {
                match self.way(rule) {
                    Way::One(way) => ways.push(way),
                    Way::Many(level) => {
                        let applies = if has_tier { is_of_tier(&rule) } else { rule.tier.is_none() };
                        let counts = rule.said.limit.is_some() && rule.state() != RuleState::Disabled;
                        if applies && counts {
                            open.push(NotListed { rule: rule.id.to_string(), why: why_not(level) });
                        }
                    }
                    Way::None => {}
                }
            }
        }
        for grant in &self.grants {
            let below = grant.below.iter().map(|(key, value)| (key.to_string(), value.to_string()));
            ways.push(std::iter::once(self.own()).chain(below).collect());
        }
        let mut seen = HashSet::new();
        ways.retain(|way| seen.insert(way.clone()));
        (ways, open)
    }

    fn way<'r>(&self, rule: &'r Rule) -> Way<'r> {
        let is_own = |level: &PathEntry| *level.key == *self.domain.quota_key();
        // By another name of the caller a way is walked in the place of its own entry: so it is the first that stands there.
        let by_name = || rule.path.iter().position(|level| self.called(&level.key).is_some());
        let Some(own) = rule.path.iter().position(is_own).or_else(by_name) else { return Way::None };
        let (mut way, mut open) = (Vec::new(), None);
        for (at, level) in rule.path.iter().enumerate() {
            let exact = level.value.as_deref().filter(|value| !value.contains('*'));
            match (self.called(&level.key), exact) {
                (Some(called), Some(value)) if called != value => return Way::None,
                (Some(_), _) if at == own => way.push(self.own()),
                (Some(called), _) => way.push((level.key.to_string(), called.to_owned())),
                (None, Some(value)) if !level.key.contains('*') => {
                    way.push((level.key.to_string(), value.to_owned()));
                }
                (None, _) => open = open.or(Some(level)),
            }
        }
        open.map_or(Way::One(way), Way::Many)
    }
}

/// Takes down by which names and with which tier somebody is judged.
#[derive(Default)]
struct Walks {
    names: Vec<(String, String)>,
    tier: Option<String>,
}

impl Recorder for Walks {
    fn record(&mut self, event: Event<'_>) {
        if let Event::Starts { tier, name, .. } = event {
            self.tier = tier.map(str::to_owned);
            self.names.extend(name.map(|name| (name.key.to_owned(), name.value.to_owned())));
        }
    }
}

fn why_not(level: &PathEntry) -> String {
    let what = match (level.key.contains('*'), &level.value) {
        (true, _) => format!("the key `{}` has a wildcard", level.key),
        (false, Some(value)) => format!("`{}` is any value that fits `{value}`", level.key),
        (false, None) => format!("`{}` has no fixed value", level.key),
    };
    format!("{what}, and counters are kept by hashes: `tidegate inspect` looks at those of one request")
}

/// For whom a counter counts that was found for a caller.
fn counts_for(domain: &Domain, found: &Found<'_>) -> CountsFor {
    let Some(rule) = found.rule else { return CountsFor::Caller };
    let own = (domain.quota_key(), CountsFor::Caller);
    let names = [own].into_iter().chain(OTHER_NAMES);
    let mut whose = names.filter_map(|(key, whose)| {
        let level = rule.path.iter().find(|level| *level.key == *key)?;
        // Whoever fits a wildcard may share one counter.
        let is_shared = level.is_fixed() && level.value.as_deref().is_some_and(|value| value.contains('*'));
        Some(if is_shared { CountsFor::All } else { whose })
    });
    if rule.always { CountsFor::All } else { whose.next().unwrap_or(CountsFor::All) }
}

/// Where below the caller's entry something was found.
fn address(domain: &Domain, entries: &[Entry<'_>], found: &Found<'_>) -> String {
    let at = entries.iter().position(|entry| *entry.key == *domain.quota_key()).map_or(0, |at| at + 1);
    let depth = found.rule.map_or(entries.len(), |rule| rule.path.len());
    let below: Vec<String> = entries.get(at..depth).unwrap_or_default().iter().map(part).collect();
    // Found by another name of the caller, or by none: then the rule says where.
    let is_own =
        |rule: &Rule| !rule.always && rule.path.iter().any(|level| *level.key == *domain.quota_key());
    match (found.rule.is_some_and(|rule| !is_own(rule)), below.is_empty()) {
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
