//! Examples by hand: those of `docs/rules.md`, and disagreements of the past.

use tidegate_core::{Algorithm, Ask, Plan};
use tidegate_oracle::rules::{
    Descriptor, Exempt, Matching, Node, OwnLimit, Patch, Request, RuleLimit, RuleTree, Tier,
};
use tidegate_oracle::{Algorithm as Word, rules};

use crate::drafts;

const MINUTE: u64 = 60_000_000;

/// What a take is, as far as these examples look: its rule's id, what is asked, the amount, the algorithm.
type Taken = (String, Ask, u32, Algorithm);

fn limit(amount: u64) -> RuleLimit {
    RuleLimit::new(amount, MINUTE)
}

fn node(key: &str, value: Option<&str>, amount: u64) -> Node {
    Node { limits: vec![limit(amount)], ..Node::new(key, value) }
}

fn says(entries: &[(&str, &str)], cost: i64) -> Descriptor {
    let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Descriptor { entries, cost, limit: None }
}

fn takes(tree: &RuleTree, descriptors: &[Descriptor]) -> Vec<Taken> {
    let book = drafts::book(std::slice::from_ref(tree));
    let request = Request { domain: tree.domain.clone(), descriptors: descriptors.to_vec() };
    let mut plan = Plan::new();
    drafts::with_query(&request, |query| book.plan(query, &mut plan));
    let taken = plan.takes().iter().map(|take| {
        let limit = plan.limit(take);
        let id = take.rule.map_or(String::new(), |rule| rule.id.to_string());
        (id, take.ask, limit.amount(), limit.algorithm())
    });
    taken.collect()
}

/// The amounts of the limits that are asked, and how much of them.
fn amounts(tree: &RuleTree, descriptors: &[Descriptor]) -> Vec<(u32, Ask)> {
    takes(tree, descriptors).into_iter().map(|(_, ask, amount, _)| (amount, ask)).collect()
}

const fn charge(cost: u64) -> Ask {
    Ask::Charge { cost }
}

#[test]
fn the_example_of_the_document() {
    let mut orders = node("endpoint", Some("POST /api/v1/orders"), 20);
    orders.limits[0].name = Some("orders".to_owned());
    let top = Node { descriptors: vec![orders], ..node("api_key", None, 100) };
    let leaf = RuleTree { descriptors: vec![top], ..RuleTree::new("api_platform") };
    let path = RuleTree { matching: Matching::Path, ..leaf.clone() };
    let (alice, order) = (("api_key", "alice"), ("endpoint", "POST /api/v1/orders"));
    for (tree, entries, expected) in [
        (&leaf, vec![alice], vec![100]),
        (&leaf, vec![alice, order], vec![20]),
        (&leaf, vec![alice, ("endpoint", "GET /")], vec![]),
        (&path, vec![alice, order], vec![100, 20]),
        (&path, vec![alice, ("endpoint", "GET /")], vec![100]),
    ] {
        let got: Vec<u32> = amounts(tree, &[says(&entries, 1)]).iter().map(|(amount, _)| *amount).collect();
        assert_eq!(got, expected, "{:?} {entries:?}", tree.matching);
    }
    let id = &takes(&leaf, &[says(&[alice, order], 1)])[0].0;
    assert_eq!(id, "api_platform|api_key|endpoint:POST /api/v1/orders#orders");
}

fn ceiling() -> RuleTree {
    let all = Node { always: true, ..node("all", Some("of it"), 100) };
    RuleTree { descriptors: vec![all], ..RuleTree::new("d") }
}

/// Found by two descriptors of `match: leaf`, their costs were added.
#[test]
fn a_ceiling_counts_the_largest_cost_even_if_it_is_found() {
    let found = says(&[("all", "of it")], 2);
    let other = says(&[("else", "")], 4);
    assert_eq!(amounts(&ceiling(), &[found.clone(), found.clone()]), [(100, charge(2))]);
    assert_eq!(amounts(&ceiling(), &[found.clone(), other, found]), [(100, charge(4))]);
}

/// Whoever was exempt: a ceiling did not look.
#[test]
fn callers_can_be_exempt_from_a_ceiling() {
    let mut tree = ceiling();
    tree.descriptors[0].exempt = Some(Exempt { callers: vec!["vip".to_owned()], networks: Vec::new() });
    let of = |entries: &[(&str, &str)]| amounts(&tree, &[says(&[("route", "a")], 1), says(entries, 1)]);
    assert_eq!(of(&[("api_key", "alice")]), [(100, charge(1))]);
    assert_eq!(of(&[("api_key", "vip")]), []);
}

/// The warning `tier-is-a-key` says so.
#[test]
fn where_a_rule_is_keyed_tier_it_is_matched_and_nothing_else() {
    let pro = Patch { amount: Some(500), ..Patch::default() };
    let top = Node {
        tiers: vec![("pro".to_owned(), Tier::Patch(pro))],
        descriptors: vec![node("tier", None, 7)],
        ..node("api_key", None, 100)
    };
    let tree =
        RuleTree { matching: Matching::Path, trust_tier: true, descriptors: vec![top], ..RuleTree::new("d") };
    let descriptor = says(&[("api_key", "alice"), ("tier", "pro")], 1);
    assert_eq!(amounts(&tree, &[descriptor]), [(100, charge(1)), (7, charge(1))]);
}

/// On a key without a value it made one counter for everybody.
#[test]
fn sharing_without_a_wildcard_says_nothing() {
    let shared = Node { share_threshold: true, ..node("api_key", None, 100) };
    let tree = RuleTree { descriptors: vec![shared], ..RuleTree::new("d") };
    let both = [says(&[("api_key", "alice")], 1), says(&[("api_key", "bob")], 1)];
    assert_eq!(amounts(&tree, &both), [(100, charge(1)), (100, charge(1))]);
}

/// A sliding log was not taken for them, though the domain said so.
#[test]
fn limits_of_requests_are_counted_as_the_domain_says() {
    for (word, amount, expected) in [
        (Word::SlidingWindow, 5, Algorithm::SlidingWindow),
        (Word::FixedWindow, 5, Algorithm::FixedWindow),
        (Word::SlidingWindowCounter, 5, Algorithm::SlidingWindowCounter),
        (Word::SubWindow, 5, Algorithm::SubWindow),
        (Word::TokenBucket, 5, Algorithm::TokenBucket),
        (Word::Gcra, 5, Algorithm::Gcra),
        (Word::LeakyBucket, 5, Algorithm::LeakyBucket),
        (Word::SlidingLog, 10_000, Algorithm::SlidingLog),
        // What an algorithm cannot count is counted by the default rather than refused.
        (Word::SlidingLog, 10_001, Algorithm::SlidingWindow),
        (Word::Concurrency, 5, Algorithm::SlidingWindow),
        (Word::Calendar, 5, Algorithm::SlidingWindow),
    ] {
        let tree = RuleTree { algorithm: Some(word), ..RuleTree::new("d") };
        let own = Some(OwnLimit { amount, window_us: MINUTE });
        let descriptor = Descriptor { limit: own, ..says(&[("a", "b")], 1) };
        let request = [descriptor];
        assert_eq!(takes(&tree, &request)[0].3, expected, "{word:?} {amount}");
        let judged = rules::judge(
            std::slice::from_ref(&tree),
            &Request { domain: "d".to_owned(), descriptors: request.to_vec() },
        );
        assert_eq!(judged.asks[0].spec.algorithm.name(), expected.name(), "the judge agrees");
    }
}

/// A sum that was cut in the middle gave units back where it should have charged.
#[test]
fn a_sum_is_cut_at_its_end() {
    let tree = RuleTree { allow_refunds: true, descriptors: vec![node("a", None, 5)], ..RuleTree::new("d") };
    let costs = [i64::MAX, i64::MAX, i64::MIN].map(|cost| says(&[("a", "b")], cost));
    assert_eq!(amounts(&tree, &costs), [(5, charge(i64::MAX as u64 - 1))]);
}
