//! Instructions of one call of `ShouldRateLimit`: from the bytes of the request to the bytes of the answer, with everything that a node
//! does between: reading, lookup, counters in memory, metrics, writing. Without sockets and HTTP/2.

#![expect(missing_docs, reason = "the macros of gungraun write public items")]

use std::hint::black_box;
use std::sync::Arc;

use gungraun::{library_benchmark, library_benchmark_group, main};
use tidegate_core::{Grant, Override, Quota, QuotaUnit, Quotas};
use tidegate_server::{Asker, Core, Standing, at_once};

use node::{NOW, node};

mod node; // who is asked

const RULES: &str = "
domain: api_platform
descriptors:
  - key: api_key
    rate_limit: { limit: 1000/1m, name: per-key }
    tiers:
      pro: { limit: 2000/1m }
    descriptors:
      - key: endpoint
        rate_limit: { limit: 1000/1m, algorithm: token_bucket, name: orders }
  - key: once
    rate_limit: { limit: 1/1h, algorithm: fixed_window }
";

/// One call, ready to be made. Leaked on purpose: nothing is dropped while it counts.
struct Prepared {
    core: Core,
    message: Vec<u8>,
    out: Vec<u8>,
}

#[library_benchmark]
#[bench::call_sliding_window(prepared(&[&[("api_key", "0b8c6f3e-alice")]]))]
#[bench::call_token_bucket(prepared(&[&[("api_key", "0b8c6f3e-alice"), ("endpoint", "POST /orders")]]))]
#[bench::call_two_descriptors(prepared(&[
    &[("api_key", "0b8c6f3e-alice")],
    &[("api_key", "0b8c6f3e-alice"), ("endpoint", "POST /orders")],
]))]
#[bench::call_refused(prepared(&[&[("once", "0b8c6f3e-alice")]]))]
#[bench::call_without_a_rule(prepared(&[&[("user", "0b8c6f3e-alice")]]))]
#[bench::call_of_a_tier(known(&[&[("api_key", "0b8c6f3e-alice")]], false))]
#[bench::call_with_an_override(known(&[&[("api_key", "0b8c6f3e-alice")]], true))]
fn call(prepared: &'static mut Prepared) -> usize {
    let Prepared { core, message, out } = black_box(prepared);
    out.clear();
    let _ = black_box(at_once(core.should_rate_limit(message, Standing::Outside, &Asker::at(NOW), out)));
    out.len()
}

library_benchmark_group!(name = calls, benchmarks = call);
main!(library_benchmark_groups = calls);

fn prepared(descriptors: &[&[(&str, &str)]]) -> &'static mut Prepared {
    ready(descriptors, Arc::default())
}

/// The same by somebody whose record is kept, among others.
fn known(descriptors: &[&[(&str, &str)]], has_override: bool) -> &'static mut Prepared {
    let quotas = Arc::new(Quotas::default());
    let grant = Grant { amount: 2_000, unit: QuotaUnit::Minute };
    let own = has_override.then(|| Override::new(Box::new([]), grant));
    for caller in ["0b8c6f3e-alice", "0b8c6f3e-bob"] {
        quotas.put(Quota {
            caller: caller.into(),
            tier: Some("pro".into()),
            overrides: own.clone().into_iter().collect(),
            ..Quota::default()
        });
    }
    ready(descriptors, quotas)
}

fn ready(descriptors: &[&[(&str, &str)]], quotas: Arc<Quotas>) -> &'static mut Prepared {
    let mut prepared = Prepared {
        core: Core::new(0, Arc::new(node(RULES, quotas))),
        message: message(descriptors),
        out: Vec::new(),
    };
    for _ in 0..3 {
        // So that everything has grown, and the counter is there.
        prepared.out.clear();
        let Prepared { core, message, out } = &mut prepared;
        let called = at_once(core.should_rate_limit(message, Standing::Outside, &Asker::at(NOW), out));
        assert!(called.is_some_and(|answered| answered.is_ok()));
    }
    Box::leak(Box::new(prepared))
}

/// A request in protobuf: texts and messages that are shorter than 128 bytes.
fn message(descriptors: &[&[(&str, &str)]]) -> Vec<u8> {
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).expect("a short one")];
        out.extend_from_slice(bytes);
        out
    }
    let mut out = field(1, b"api_platform");
    for entries in descriptors {
        let entry = |(key, value): &(&str, &str)| {
            field(1, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
        };
        out.extend(field(2, &entries.iter().flat_map(entry).collect::<Vec<u8>>()));
    }
    out
}
