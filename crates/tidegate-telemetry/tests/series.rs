//! How many rows there are, what they cost, and what becomes of them when rules are loaded again.

mod support;

use support::{book, node, page, verdict};
use tidegate_core::{
    Book, Descriptor, DescriptorDraft, Entry, LimitError, Micros, Outcome, OwnLimit, Plan, Query, Role,
};
use tidegate_telemetry::{RULES_SHOWN_MAX, RuleMetrics};

const REFUSED: &[(&str, &str)] = &[("outcome", "refused")];

fn count(rules: &RuleMetrics, book: &Book, number: usize) {
    let refused = verdict(Outcome::RateLimited, 0);
    rules.count(0, book.rules().get(number), Role::Enforce, &refused, false);
}

#[test]
fn a_million_keys_make_no_row_more() -> Result<(), LimitError> {
    let book = book("api", vec![node("key", None)?, node("path_*", None)?]);
    let rules = RuleMetrics::of(&book, 1, None);
    let mut plan = Plan::new();
    let mut rows = None;
    for caller in 0..1_000_000_u64 {
        let (name, path) = (format!("caller-{caller}"), format!("path_{caller}"));
        let entries = [Entry { key: "key", value: &name }, Entry { key: &path, value: &name }];
        let own = OwnLimit { amount: caller, window: Micros::from_secs(60) };
        let descriptors = [(0..1, None), (1..2, None), (0..2, Some(own))]
            .map(|(entries, limit)| Descriptor { entries, cost: 1, limit, own_cost: false });
        let query = Query { domain: "api", entries: &entries, descriptors: &descriptors, lease: None };
        book.plan(&query, &mut plan);
        assert_eq!(plan.takes().len(), 3);
        for take in plan.takes() {
            rules.count(0, take.rule, take.role, &verdict(Outcome::Admitted, 1), false);
        }
        if caller == 0 {
            rows = Some(page(&rules).samples.len());
        }
    }
    let page = page(&rules);
    assert_eq!(Some(page.samples.len()), rows);
    let allowed = page.samples.iter().filter(|sample| sample.label("outcome") == Some("allowed"));
    assert_eq!(allowed.map(|sample| sample.value).sum::<f64>(), 3e6);
    Ok(())
}

#[test]
fn rules_that_nobody_asked_are_not_shown_and_take_little() -> Result<(), LimitError> {
    const RULES: u64 = 100_000;
    let nodes: Result<Vec<DescriptorDraft>, _> =
        (0..RULES).map(|at| node(&format!("key-{at}"), None)).collect();
    let book = book("api", nodes?);
    let mut rules = None;
    let made = allocation_counter::measure(|| rules = Some(RuleMetrics::of(&book, 8, None)));
    let bytes_each = made.bytes_current as f64 / RULES as f64;
    println!("{bytes_each} bytes for each rule that nobody asked");
    assert!(bytes_each <= 64.5, "{bytes_each}");
    let Some(rules) = rules else { return Ok(()) };
    let rows = page(&rules).samples.len();
    count(&rules, &book, 77);
    let counting = allocation_counter::measure(|| (0..1_000).for_each(|_| count(&rules, &book, 77)));
    assert_eq!(counting.count_total, 0, "only the first time makes room");
    let page = page(&rules);
    assert_eq!(page.value("ratelimit_decisions_total", REFUSED), Some(1_001.0));
    assert_eq!(page.samples.len() - rows, 4 + 3 + 1 + 11);
    Ok(())
}

#[test]
fn rules_beyond_so_many_share_a_row() -> Result<(), LimitError> {
    let mut before = None;
    for time in 1..=2 {
        // The second time there is one more, which finds all places taken.
        let nodes = (0..RULES_SHOWN_MAX + 49 + time).map(|at| node(&format!("key-{at}"), None));
        let book = book("api", nodes.collect::<Result<Vec<_>, _>>()?);
        let rules = RuleMetrics::of(&book, 1, before.as_ref());
        (0..book.rules().len()).for_each(|number| count(&rules, &book, number));
        let page = page(&rules);
        let refused = |rule| page.value("ratelimit_decisions_total", &[REFUSED[0], ("rule", rule)]);
        assert_eq!(refused("others"), Some([50.0, 101.0][time - 1]));
        assert_eq!(refused(&book.rules()[7].id), Some(time as f64));
        let called =
            |number: usize| rules.labels(rules.mark(book.rules().get(number))).map(|labels| &*labels.rule);
        assert_eq!(called(7), Some(&*book.rules()[7].id));
        assert_eq!(called(RULES_SHOWN_MAX + 7), Some("others"));
        assert_eq!(called(usize::MAX), None, "no request brought a limit");
        before = Some(rules);
    }
    Ok(())
}

#[test]
fn numbers_go_on_when_rules_are_loaded_again() -> Result<(), LimitError> {
    let mut tiered = node("tiered", None)?;
    tiered.tiers = vec![("pro".into(), tiered.limits.clone())];
    let old =
        book("api", vec![node("stays", None)?, node("goes", None)?, tiered.clone(), node("late", None)?]);
    let new = book("api", vec![node("comes", None)?, tiered, node("late", None)?, node("stays", None)?]);
    let number = |book: &Book, id: &str, tier: Option<&str>| {
        let is = |rule: &&tidegate_core::Rule| rule.id.contains(id) && rule.tier.as_deref() == tier;
        book.rules().iter().find(is).map_or(usize::MAX, |rule| rule.number)
    };

    let before = RuleMetrics::of(&old, 2, None);
    for (id, tier, times) in [("stays", None, 3), ("goes", None, 2), ("tiered", Some("pro"), 5)] {
        (0..times).for_each(|_| count(&before, &old, number(&old, id, tier)));
    }
    count(&before, &old, usize::MAX); // A limit that a request brought.
    let after = RuleMetrics::of(&new, 2, Some(&before));
    // A core that has not seen the new book yet, also about a rule that nobody asked before.
    count(&before, &old, number(&old, "stays", None));
    count(&before, &old, number(&old, "late", None));
    count(&after, &new, number(&new, "stays", None));
    count(&after, &new, number(&new, "late", None));

    let page = page(&after);
    let refused = |id: &str, tier: &str| {
        let rows = page.samples.iter().filter(|row| row.label("outcome") == Some("refused"));
        let fits = |row: &&support::Sample| {
            row.label("rule").is_some_and(|rule| rule.contains(id)) && row.label("tier") == Some(tier)
        };
        rows.filter(fits).map(|row| row.value).collect::<Vec<f64>>()
    };
    for (id, tier, times) in [
        ("stays", "", vec![5.0]),
        ("goes", "", vec![]),
        ("comes", "", vec![]),
        ("late", "", vec![2.0]),
        ("tiered", "pro", vec![5.0]),
        ("tiered", "", vec![]),
        ("request", "", vec![1.0]),
    ] {
        assert_eq!(refused(id, tier), times, "{id} {tier}");
    }
    Ok(())
}

#[test]
fn a_rule_that_stands_twice_is_one_row() -> Result<(), LimitError> {
    let book = book("api", vec![node("key", None)?, node("key", None)?]);
    assert_eq!(book.rules().len(), 2);
    let rules = RuleMetrics::of(&book, 1, None);
    (0..2).for_each(|number| count(&rules, &book, number));
    assert_eq!(page(&rules).value("ratelimit_decisions_total", REFUSED), Some(2.0));
    Ok(())
}
