//! Instructions of one lookup: from the entries of a request to the takes, in books of different sizes.
//!
//! Run by `cargo xtask bench steps` together with the steps. The work should not grow with the number of rules; only siblings
//! with a wildcard are tried one after the other.

#![expect(missing_docs, reason = "the macros of gungraun write public items")]

use std::hint::black_box;

use gungraun::{library_benchmark, library_benchmark_group, main};
use tidegate_core::{
    Book, Descriptor, DescriptorDraft, DomainDraft, Entry, Limit, LimitError, Micros, Plan, Query, RuleDraft,
    Secret,
};

/// One lookup, ready to be made. Leaked on purpose: a pointer goes in, and nothing is dropped while it counts.
struct Prepared {
    book: &'static Book,
    query: Query<'static>,
    plan: Plan<'static>,
}

#[library_benchmark]
#[bench::lookup_10_rules(prepared(10, 0))]
#[bench::lookup_1000_rules(prepared(1_000, 0))]
#[bench::lookup_100000_rules(prepared(100_000, 0))]
#[bench::lookup_past_1_wildcard(prepared(10, 1))]
#[bench::lookup_past_16_wildcards(prepared(10, 16))]
fn lookup(prepared: &'static mut Prepared) -> usize {
    let Prepared { book, query, plan } = black_box(prepared);
    book.plan(query, plan);
    plan.takes().len()
}

library_benchmark_group!(name = lookups, benchmarks = lookup);
main!(library_benchmark_groups = lookups);

/// A book of `rules` routes for a customer, and a request for one of them: fixed, or past so many wildcards that do not fit.
fn prepared(rules: usize, wildcards: usize) -> &'static mut Prepared {
    let route = |at: usize| format!("GET /api/v1/things/{at}");
    let limit = || limit().expect("a limit");
    let child = |value: Option<String>| DescriptorDraft {
        key: "endpoint".into(),
        value,
        limits: vec![RuleDraft { limit: Some(limit()), ..RuleDraft::default() }],
        ..DescriptorDraft::default()
    };
    let mut children: Vec<_> = (0..rules).map(|at| child(Some(route(at)))).collect();
    children.extend((0..wildcards).map(|at| child(Some(format!("*/images/{at}/*")))));
    children.push(child(None));
    let customer =
        DescriptorDraft { key: "api_key".into(), descriptors: children, ..DescriptorDraft::default() };
    let domain =
        DomainDraft { name: "api_platform".into(), descriptors: vec![customer], ..DomainDraft::default() };
    let value = if wildcards == 0 { route(rules / 2) } else { route(rules) };
    let entries = vec![
        Entry { key: "api_key", value: "0b8c6f3e-alice" },
        Entry { key: "endpoint", value: value.leak() },
    ];
    let descriptors = vec![Descriptor { entries: 0..2, cost: 1, limit: None, own_cost: false }];
    let query = Query {
        domain: "api_platform",
        entries: entries.leak(),
        descriptors: descriptors.leak(),
        lease: None,
    };
    let book = Box::leak(Box::new(Book::new([domain], Secret::new([7; 16]))));
    let mut plan = Plan::new();
    book.plan(&query, &mut plan); // So that it has grown.
    assert_eq!(plan.takes().len(), 1, "the request is for a rule");
    Box::leak(Box::new(Prepared { book, query, plan }))
}

fn limit() -> Result<Limit, LimitError> {
    Limit::sliding_window(100, Micros::from_secs(60))
}
