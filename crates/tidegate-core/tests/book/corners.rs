//! Do the random cases reach every corner that the rules speak of?

use std::collections::{BTreeMap, HashSet};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use tidegate_oracle::rules::{
    Asked, Counter, Fate, Judged, Matching, Node, Open, Request, Role, RuleTree, Tier, fits, judge, judge_for,
};

use crate::cases::{self, Case};

/// Fewer of the fixed cases than the property runs on, and each corner often enough that a change of the generator does not lose it.
const CASES: usize = 1_000;
const TIMES_MIN: u32 = 20;

#[derive(Default)]
struct Seen(BTreeMap<&'static str, u32>);

impl Seen {
    fn see(&mut self, what: &'static str, is: bool) {
        *self.0.entry(what).or_default() += u32::from(is);
    }
}

#[test]
fn cases_reach_every_corner() {
    let mut runner = TestRunner::new(cases::proof(1));
    let mut seen = Seen::default();
    for _ in 0..CASES {
        let case = cases::case().new_tree(&mut runner).expect("a case").current();
        let mut counters: HashSet<Counter> = HashSet::new();
        for request in &case.requests {
            let judged = judge(&case.trees, request);
            see_request(&mut seen, &case, request, &judged);
            for ask in &judged.asks {
                see_ask(&mut seen, &judged, ask);
                seen.see("a counter of an earlier request", !counters.insert(ask.counter.clone()));
            }
        }
    }
    let missed: Vec<_> = seen.0.iter().filter(|(_, times)| **times < TIMES_MIN).collect();
    assert!(missed.is_empty(), "hardly reached: {missed:?} of {:#?}", seen.0);
}

#[test]
fn cases_of_callers_reach_every_corner() {
    let mut runner = TestRunner::new(cases::proof(1));
    let mut seen = Seen::default();
    for _ in 0..CASES {
        let case = cases::case_of_callers().new_tree(&mut runner).expect("a case").current();
        for request in &case.requests {
            let (without, with) = (judge(&case.trees, request), judge_for(&case.trees, &case.known, request));
            seen.see("exempt by the list", with.exempt && !without.exempt);
            seen.see("more is found", with.found.len() > without.found.len() && !without.found.is_empty());
            seen.see("less is found", with.found.len() < without.found.len() && !with.found.is_empty());
            for ask in &with.asks {
                seen.see("granted where no rule is", matches!(ask.counter, Counter::Granted { .. }));
                let before = without.asks.iter().find(|before| before.counter == ask.counter);
                seen.see(
                    "other numbers on one counter",
                    before.is_some_and(|before| before.spec != ask.spec),
                );
                let Counter::Rule { name, open, .. } = &ask.counter else { continue };
                let same = |before: &Asked| matches!(&before.counter, Counter::Rule { name: other, .. } if other == name);
                seen.see("another counter of the rule", before.is_none() && without.asks.iter().any(same));
                let is_other = |(key, _): &(String, Option<String>)| key == "user_id" || key == "client_id";
                seen.see("found by another name", name.path.iter().any(is_other) && !open.is_empty());
            }
            let tier_of = |judged: &Judged| -> Vec<_> {
                judged.found.iter().filter_map(|found| found.rule.clone()?.1).collect()
            };
            seen.see(
                "of the tier of a quota",
                tier_of(&with) != tier_of(&without) && !tier_of(&with).is_empty(),
            );
        }
    }
    let missed: Vec<_> = seen.0.iter().filter(|(_, times)| **times < TIMES_MIN).collect();
    assert!(missed.is_empty(), "hardly reached: {missed:?} of {:#?}", seen.0);
}

fn see_request(seen: &mut Seen, case: &Case, request: &Request, judged: &Judged) {
    seen.see("unknown domain", !judged.known);
    seen.see("exempt request", judged.exempt);
    seen.see("refused request", judged.refused);
    seen.see("refused beside others", judged.refused && !judged.asks.is_empty());
    for found in &judged.found {
        seen.see("counted", matches!(found.fate, Fate::Counted(_)));
        seen.see("unlimited", found.fate == Fate::Unlimited);
        seen.see("replaced", found.fate == Fate::Replaced);
        seen.see("disabled", found.fate == Fate::Disabled);
        seen.see("exempt", found.fate == Fate::Exempt);
        seen.see("refund ignored", found.fate == Fate::RefundIgnored);
        seen.see("impossible", found.fate == Fate::Impossible);
        seen.see("always exempt", found.descriptor.is_none() && found.fate == Fate::Exempt);
        if let Some((rule, tier)) = &found.rule {
            seen.see("of a tier", tier.is_some());
            seen.see("long path", rule.path.len() > 8);
        }
    }
    let Some(tree) = case.trees.iter().find(|tree| tree.domain == request.domain) else { return };
    seen.see("disabled domain", tree.disabled);
    let tier_is_key = tree.nodes().iter().any(|node| node.key == "tier");
    for descriptor in &request.descriptors {
        let says_tier = tree.trust_tier && descriptor.entries.iter().any(|(key, _)| key == "tier");
        seen.see("tier taken out", says_tier && !tier_is_key);
        seen.see("tier walked", says_tier && tier_is_key);
        see_walk(seen, tree, &descriptor.entries);
    }
    see_replacing(seen, tree, judged);
}

/// Where a walk could go wrong.
fn see_walk(seen: &mut Seen, tree: &RuleTree, entries: &[(String, String)]) {
    let mut children: Vec<&Node> = tree.descriptors.iter().collect();
    let mut others: Vec<&Node> = Vec::new();
    for (at, (key, value)) in entries.iter().enumerate() {
        let value_fits = |node: &Node| node.fixed_value().is_none_or(|pattern| fits(pattern, value));
        let fitting: Vec<&Node> =
            children.iter().copied().filter(|node| fits(&node.key, key) && value_fits(node)).collect();
        let exact = fitting.iter().any(|node| node.is_fixed());
        let wild = fitting.iter().filter(|node| node.has_wildcard()).count();
        let open = fitting.iter().any(|node| !node.has_wildcard() && node.fixed_value().is_none());
        seen.see("exact before wildcard", exact && wild > 0);
        seen.see("exact before open", exact && open);
        seen.see("wildcard before open", !exact && wild > 0 && open);
        seen.see("first of two wildcards", !exact && wild > 1);
        let by_key = |node: &&&Node| node.key.contains('*');
        let between = !exact && fitting.iter().filter(by_key).count() > 0 && wild > 1;
        seen.see("wildcards of keys and of values", between && fitting.iter().any(|node| !by_key(&node)));
        seen.see("empty value", value.is_empty() && !fitting.is_empty());
        seen.see("a value that looks like a pattern", value.contains('*') && wild > 0);
        let leads_on = |node: &Node| node.descriptors.iter().any(|below| fits(&below.key, key));
        seen.see(
            "another branch would lead on",
            fitting.is_empty() && at > 0 && others.iter().any(|o| leads_on(o)),
        );
        // The one that is taken, roughly: the judge says exactly which.
        let taken =
            fitting.iter().find(|node| node.is_fixed()).or(fitting.iter().find(|node| node.has_wildcard()));
        let Some(taken) = taken.or(fitting.first()) else { return };
        others = fitting.iter().copied().filter(|node| !std::ptr::eq(*node, *taken)).collect();
        children = taken.descriptors.iter().collect();
    }
}

fn see_replacing(seen: &mut Seen, tree: &RuleTree, judged: &Judged) {
    let limits: Vec<_> =
        tree.nodes().iter().flat_map(|node| node.all_limits(tree.default_algorithm())).collect();
    let names = |name: &str, other: &str| {
        limits
            .iter()
            .any(|limit| limit.name.as_deref() == Some(name) && limit.replaces.iter().any(|one| one == other))
    };
    let counted = judged.found.iter().filter(|found| matches!(found.fate, Fate::Counted(_)));
    let counted: Vec<&str> = counted
        .filter_map(|found| match &found.rule.as_ref()?.0.limit {
            tidegate_oracle::rules::LimitName::Name(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    let mutual =
        |one: &&str| counted.iter().any(|other| *one != *other && names(one, other) && names(other, one));
    seen.see("two that replace each other", counted.iter().any(mutual));
    let is_list = |node: &&Node| node.tiers.iter().any(|(_, tier)| matches!(tier, Tier::List(_)));
    seen.see("tiers that are lists", tree.nodes().iter().any(is_list));
    seen.see(
        "tiers that are patches",
        tree.nodes().iter().any(|node| !is_list(node) && !node.tiers.is_empty()),
    );
    seen.see("leaf", tree.matching == Matching::Leaf);
    seen.see("path", tree.matching == Matching::Path);
}

fn see_ask(seen: &mut Seen, judged: &Judged, ask: &Asked) {
    let is_it = |fate: Fate| matches!(fate, Fate::Counted(number) if judged.asks[number] == *ask);
    let finders: Vec<_> = judged.found.iter().filter(|found| is_it(found.fate)).collect();
    let tiers: HashSet<_> = finders.iter().map(|found| found.rule.as_ref().map(|(_, tier)| tier)).collect();
    seen.see("merged", finders.len() > 1);
    seen.see("merged across tiers", tiers.len() > 1);
    let by_walk = finders.iter().filter(|found| found.descriptor.is_some()).count();
    seen.see("always", by_walk < finders.len());
    seen.see("always and found by two", by_walk < finders.len() && by_walk > 1);
    seen.see("charge", ask.cost > 0);
    seen.see("peek", ask.cost == 0);
    seen.see("refund", ask.cost < 0);
    seen.see("place acquired", ask.lease.is_some() && ask.cost > 0);
    seen.see("place released", ask.lease.is_some() && ask.cost < 0);
    let other_lease = |other: &&Asked| other.counter == ask.counter && other.lease != ask.lease;
    seen.see("two places of one counter", judged.asks.iter().any(|other| other_lease(&other)));
    seen.see("enforced", ask.role == Role::Enforce);
    seen.see("quota", ask.role == Role::Quota);
    seen.see("shadow", ask.role == Role::Shadow);
    seen.see("enforced for some", ask.role == Role::EnforceOrShadow);
    seen.see("quota for some", ask.role == Role::QuotaOrShadow);
    match &ask.counter {
        Counter::Granted { .. } => {}
        Counter::Own { .. } => {
            seen.see("own limit", true);
            seen.see("own limits merged", finders.len() > 1);
        }
        Counter::Rule { name, open, .. } => {
            let wild = name.path.iter().filter(|(key, value)| {
                key.contains('*') || value.as_ref().is_some_and(|value| value.contains('*'))
            });
            let wild = wild.count();
            seen.see("wildcard", wild > 0);
            seen.see("two levels of wildcards", wild > 1);
            seen.see("key left open", open.iter().any(|one| matches!(one, Open::Key(..))));
            seen.see("all is fixed or shared", open.is_empty());
            seen.see("shared by a wildcard", open.is_empty() && wild > 0);
            seen.see("three values left open", open.len() > 2);
        }
    }
}
