//! What an answer costs: nothing is allocated for headers, and nothing for bodies once their room is there.

use tidegate_core::{Descriptor, Entry, Micros, Query};
use tidegate_server::reply::body::{self, BodyStyle};
use tidegate_server::reply::headers::{self, Dialect};
use tidegate_server::reply::{PolicyNames, Told, check};

use crate::node::{Node, START_S};

#[test]
fn answers_are_written_without_an_allocation() {
    let mut node = Node::new(
        "domain: api\nmatch: path\ndescriptors:\n- key: api_key\n  rate_limit: { limit: 2/1m }\n  \
         descriptors:\n  - { key: endpoint, rate_limit: { limit: 1/1m, algorithm: token_bucket, burst: 3 } }\n",
    );
    let names = PolicyNames::of(&node.book);
    let entries = [Entry { key: "api_key", value: "abc" }, Entry { key: "endpoint", value: "GET /" }];
    let descriptors = [Descriptor { entries: 0..2, cost: 1, limit: None, own_cost: false }];
    let query = Query { domain: "api", entries: &entries, descriptors: &descriptors, lease: None };
    let mut out = Vec::with_capacity(1_024);
    for second in 0..3 {
        let now = Micros::from_secs(START_S + second);
        node.query(&query, now, |_, decision| {
            let counted = allocation_counter::measure(|| {
                let told = Told::of(decision, &names, &query);
                headers::write(&Dialect::ALL, &told, now.get(), &mut |_, _| ());
                for style in BodyStyle::ALL {
                    out.clear();
                    body::write(style, &told, &mut out);
                }
                out.clear();
                check::write(&told, &mut out);
            });
            assert_eq!((decision.admitted, counted.count_total), (second < 2, 0));
        });
    }
}
