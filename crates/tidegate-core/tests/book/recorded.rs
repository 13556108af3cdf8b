//! What is recorded of a walk is what happened: it leads where the entries lead, is lost where nothing fits, and ends at what was found.

use proptest::prelude::*;
use tidegate_core::{Event, Fate, Found, How, PathEntry, Plan, Recorder, Waypoint};
use tidegate_oracle::rules::{Descriptor, Matching, Node, Request, RuleLimit, RuleTree, fits};

use crate::{cases, drafts};

/// A recorder that looks at each event, and gathers which rules each descriptor should have found.
#[derive(Default)]
struct Auditor {
    /// By descriptor: numbers of rules.
    found: Vec<Vec<usize>>,
    always: Vec<usize>,
    /// Where the walk is: what the next entry may lead to.
    children: Vec<PathEntry>,
    tier: Option<String>,
    wrong: Vec<String>,
}

impl Auditor {
    fn here(&mut self) -> &mut Vec<usize> {
        self.found.last_mut().expect("a walk has started")
    }

    fn go_to(&mut self, at: Waypoint<'_>) {
        self.children = at.children().filter_map(|child| child.path().last().cloned()).collect();
    }

    /// The child that an entry leads to by definition, as a place among its siblings.
    fn expected(&self, key: &str, value: &str) -> Option<(usize, How)> {
        let all = || self.children.iter().enumerate();
        let fits = |level: &PathEntry| {
            fits(&level.key, key) && level.value.as_deref().is_none_or(|pattern| fits(pattern, value))
        };
        let exact = all().find(|(_, level)| {
            !is_wild(level) && *level.key == *key && level.value.as_deref() == Some(value)
        });
        let wild = all().find(|(_, level)| is_wild(level) && fits(level));
        let open = all().find(|(_, level)| *level.key == *key && level.value.is_none());
        exact
            .map(|(order, _)| (order, How::Exact))
            .or(wild.map(|(order, _)| (order, How::Wildcard { order })))
            .or(open.map(|(order, _)| (order, How::Open)))
    }
}

fn is_wild(level: &PathEntry) -> bool {
    level.key.contains('*') || level.value.as_deref().is_some_and(|value| value.contains('*'))
}

impl Recorder for Auditor {
    fn record(&mut self, event: Event<'_>) {
        let is_right = match event {
            Event::Starts { descriptor, tier, top, .. } => {
                self.found.resize(descriptor + 1, Vec::new());
                self.tier = tier.map(str::to_owned);
                self.go_to(top);
                top.path().is_empty()
            }
            Event::Led { entry, how, to, of_tier, .. } => {
                let expected = self.expected(entry.key, entry.value);
                let is_it = |order: usize| to.path().last() == self.children.get(order);
                let is_right = expected.is_some_and(|(order, expected)| how == expected && is_it(order));
                let of_its_tier = self.tier.as_deref().and_then(|tier| to.limits_for(tier));
                let is_tier_right = of_its_tier.is_some() == of_tier;
                match of_its_tier {
                    Some(rules) => self.here().extend(rules.map(|rule| rule.number)),
                    None => self.here().extend(to.limits().map(|rule| rule.number)),
                }
                self.go_to(to);
                is_right && is_tier_right
            }
            Event::Lost { entry, at } => {
                let children = at.children().filter_map(|child| child.path().last());
                children.eq(&self.children) && self.expected(entry.key, entry.value).is_none()
            }
            Event::Passed(passed) => {
                // Told before the limits of the next node are added, or at the end, with all there are.
                let numbers: Vec<usize> =
                    passed.iter().filter_map(|found| Some(found.rule?.number)).collect();
                let here = self.here();
                let is_right = !numbers.is_empty() && *here == numbers;
                here.clear();
                is_right
            }
            Event::Always { at, .. } => {
                self.always.extend(at.limits().map(|rule| rule.number));
                true
            }
            _ => true,
        };
        if !is_right {
            self.wrong.push(format!("{event:?}"));
        }
    }
}

proptest! {
    #![proptest_config(cases::proof(1_000))]

    #[test]
    fn the_walk_that_is_recorded_is_the_one_that_finds(case in cases::case()) {
        let book = drafts::book(&case.trees);
        let (mut plan, mut silent) = (Plan::new(), Plan::new());
        for request in &case.requests {
            let mut auditor = Auditor::default();
            drafts::with_query(request, |query| {
                book.plan_recorded(query, None, &mut plan, &mut auditor);
                book.plan(query, &mut silent);
            });
            prop_assert!(auditor.wrong.is_empty(), "{:#?} of {}", auditor.wrong, request);
            prop_assert_eq!(format!("{plan:?}"), format!("{silent:?}"), "{}", request);
            for at in 0..request.descriptors.len() {
                let found = plan.found().iter().filter(|found| found.descriptor == Some(at));
                let numbers: Vec<usize> = found.filter_map(|found| Some(found.rule?.number)).collect();
                let recorded = auditor.found.get(at).cloned().unwrap_or_default();
                prop_assert_eq!(numbers, recorded, "descriptor {} of {}", at, request);
            }
            let always = plan.found().iter().filter(|found| found.descriptor.is_none());
            let always: Vec<usize> = always.filter_map(|found| Some(found.rule?.number)).collect();
            prop_assert_eq!(always, auditor.always, "{}", request);
        }
    }

    #[test]
    fn whoever_is_replaced_can_be_told_by_whom(case in cases::case()) {
        let book = drafts::book(&case.trees);
        let mut plan = Plan::new();
        for request in &case.requests {
            drafts::with_query(request, |query| book.plan(query, &mut plan));
            for found in plan.found() {
                let is_replaced = found.fate == Fate::Replaced;
                prop_assert_eq!(is_replaced, plan.replaced_by(found).is_some(), "{:?}", found);
                if let (Some(rule), Some(by)) = (found.rule, plan.replaced_by(found)) {
                    let name = rule.said.name.as_ref();
                    prop_assert!(name.is_some_and(|name| by.said.replaces.contains(name)), "{:?}", found);
                    let is_by = |other: &Found<'_>| other.rule.is_some_and(|rule| rule.number == by.number);
                    prop_assert!(plan.found().iter().any(is_by), "{:?}", found);
                }
            }
        }
    }
}

/// The leaf rule is the one that people trip over.
#[test]
fn limits_on_the_way_are_told_where_only_the_last_count() {
    struct Passed(Vec<String>);
    impl Recorder for Passed {
        fn record(&mut self, event: Event<'_>) {
            if let Event::Passed(passed) = event {
                self.0.extend(passed.iter().filter_map(|found| Some(found.rule?.id.to_string())));
            }
        }
    }
    let node = |key: &str, below: Vec<Node>| Node {
        limits: vec![RuleLimit::new(5, 60_000_000)],
        descriptors: below,
        ..Node::new(key, None)
    };
    let descriptors = vec![node("a", vec![node("b", vec![])])];
    for (matching, entries, expected) in [
        (Matching::Leaf, vec!["a", "b"], vec!["d|a#sliding_window/1m"]),
        (Matching::Leaf, vec!["a", "c"], vec!["d|a#sliding_window/1m"]),
        (Matching::Leaf, vec!["a"], vec![]),
        (Matching::Path, vec!["a", "b"], vec![]),
    ] {
        let tree = RuleTree { matching, descriptors: descriptors.clone(), ..RuleTree::new("d") };
        let entries = entries.iter().map(|key| ((*key).to_owned(), "x".to_owned())).collect();
        let descriptors = vec![Descriptor { entries, cost: 1, limit: None }];
        let book = drafts::book(std::slice::from_ref(&tree));
        let mut passed = Passed(Vec::new());
        drafts::with_query(&Request { domain: "d".to_owned(), descriptors }, |query| {
            book.plan_recorded(query, None, &mut Plan::new(), &mut passed);
        });
        assert_eq!(passed.0, expected, "{matching:?}");
    }
}
