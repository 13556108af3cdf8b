//! `enforce: N%`: as many callers as it says, the same ones everywhere, and more of them as N grows.

use std::collections::HashSet;

use tidegate_core::{Book, Plan, Role, Secret};
use tidegate_oracle::rules::{Descriptor, Matching, Node, Request, RuleLimit, RuleTree};

use crate::drafts;

const CALLERS: usize = 10_000;
const SHARES: [u8; 7] = [0, 1, 10, 25, 50, 90, 100];

/// A rule per caller and route, enforced for a share of the callers.
fn tree(enforce: u8, quota_mode: bool) -> RuleTree {
    let limit = RuleLimit { enforce: Some(enforce), ..RuleLimit::new(5, 60_000_000) };
    let route = Node { limits: vec![limit.clone()], quota_mode, ..Node::new("route", None) };
    let caller =
        Node { limits: vec![limit], quota_mode, descriptors: vec![route], ..Node::new("api_key", None) };
    let plan = Node { descriptors: vec![caller.clone()], ..Node::new("plan", None) };
    RuleTree { matching: Matching::Path, descriptors: vec![caller, plan], ..RuleTree::new("d") }
}

fn roles(book: &Book, entries: &[(&str, &str)]) -> Vec<Role> {
    let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let descriptors = vec![Descriptor { entries, cost: 1, limit: None }];
    let mut plan = Plan::new();
    drafts::with_query(&Request { domain: "d".to_owned(), descriptors }, |query| book.plan(query, &mut plan));
    plan.takes().iter().map(|take| take.role).collect()
}

/// The callers for whom the rule of `api_key` is enforced.
fn enforced(book: &Book) -> HashSet<usize> {
    let is_enforced =
        |caller: &usize| roles(book, &[("api_key", &format!("caller-{caller}"))])[0] == Role::Enforce;
    (0..CALLERS).filter(is_enforced).collect()
}

#[test]
fn a_share_is_enforced_for_as_many_callers() {
    for share in SHARES {
        let count = enforced(&drafts::book(&[tree(share, false)])).len();
        let expected = CALLERS * usize::from(share) / 100;
        assert!(count.abs_diff(expected) <= CALLERS / 100, "{count} of {CALLERS} callers at {share} %");
    }
}

#[test]
fn the_callers_of_a_smaller_share_are_among_those_of_a_larger() {
    let sets = SHARES.map(|share| enforced(&drafts::book(&[tree(share, false)])));
    for pair in sets.windows(2) {
        assert!(pair[0].is_subset(&pair[1]));
    }
}

#[test]
fn it_depends_on_the_caller_and_on_nothing_else() {
    let book = drafts::book(&[tree(50, false)]);
    for caller in 0..500 {
        let caller = format!("caller-{caller}");
        // The rule below `plan` and `api_key`, for whatever plan and route.
        let of =
            |plan: &str, route: &str| roles(&book, &[("plan", plan), ("api_key", &caller), ("route", route)]);
        let first = of("a", "a");
        for (plan, route) in [("b", "a"), ("a", "b"), ("", ""), (&caller, "caller-1")] {
            assert_eq!(of(plan, route), first, "{caller}");
        }
    }
}

/// Not the same callers are first everywhere.
#[test]
fn each_rule_draws_its_own_lots() {
    let book = drafts::book(&[tree(50, false)]);
    let both = |caller: usize| roles(&book, &[("api_key", &format!("caller-{caller}")), ("route", "a")]);
    let differ = (0..1_000).filter(|caller| both(*caller)[0] != both(*caller)[1]).count();
    assert!((400..600).contains(&differ), "{differ} of 1000 callers differ between two rules at 50 %");
}

#[test]
fn a_descriptor_without_a_caller_is_its_own() {
    let limit = RuleLimit { enforce: Some(50), ..RuleLimit::new(5, 60_000_000) };
    let descriptors = vec![Node { limits: vec![limit], ..Node::new("route", None) }];
    let book = drafts::book(&[RuleTree { descriptors, ..RuleTree::new("d") }]);
    let is_enforced =
        |route: &usize| roles(&book, &[("route", &format!("route-{route}"))])[0] == Role::Enforce;
    let count = (0..CALLERS).filter(is_enforced).count();
    assert!(count.abs_diff(CALLERS / 2) <= 3 * CALLERS / 100, "{count} of {CALLERS} routes at 50 %");
}

#[test]
fn a_quota_is_one_for_a_share_of_the_callers() {
    let book = drafts::book(&[tree(50, true)]);
    let role = |caller: usize| roles(&book, &[("api_key", &format!("caller-{caller}"))])[0];
    let quota = (0..1_000).filter(|caller| role(*caller) == Role::Quota).count();
    let shadow = (0..1_000).filter(|caller| role(*caller) == Role::Shadow).count();
    assert!((400..600).contains(&quota) && quota + shadow == 1_000, "{quota} and {shadow}");
}

/// Several callers may find one counter, which is asked once.
#[test]
fn one_caller_that_is_enforced_is_enough() {
    let limit = RuleLimit { enforce: Some(50), ..RuleLimit::new(5, 60_000_000) };
    let descriptors = vec![Node { limits: vec![limit], ..Node::new("address", None) }];
    let tree = RuleTree { matching: Matching::Path, descriptors, ..RuleTree::new("d") };
    let book = drafts::book(&[tree]);
    let role = |callers: &[usize]| {
        let of = |caller: &usize| {
            let api_key = ("api_key".to_owned(), format!("caller-{caller}"));
            Descriptor {
                entries: vec![("address".to_owned(), "a".to_owned()), api_key],
                cost: 1,
                limit: None,
            }
        };
        let request = Request { domain: "d".to_owned(), descriptors: callers.iter().map(of).collect() };
        let mut plan = Plan::new();
        drafts::with_query(&request, |query| book.plan(query, &mut plan));
        assert_eq!(plan.takes().len(), 1);
        plan.takes()[0].role
    };
    for pair in (0..50).map(|one| [one, one + 1]) {
        let enforced = pair.iter().any(|caller| role(&[*caller]) == Role::Enforce);
        assert_eq!(role(&pair) == Role::Enforce, enforced, "{pair:?}");
    }
}

/// Nodes of one fleet agree, because they have one secret; another fleet draws other lots.
#[test]
fn the_same_callers_on_every_node() {
    let one = enforced(&drafts::book(&[tree(50, false)]));
    assert_eq!(one, enforced(&drafts::book(&[tree(50, false)])));
    let other = enforced(&drafts::book_under(&[tree(50, false)], Secret::new([8; 16])));
    assert!(one.symmetric_difference(&other).count() > CALLERS / 3);
}
