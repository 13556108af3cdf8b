//! Every call accounted for: mixes of callers, descriptors and costs, where what the generator counted has to be what the node counted.

use std::time::Duration;

use tidegate_bench_common::accounting::Account;
use tidegate_bench_common::generator::{self, Calls};
use tidegate_bench_common::mix::{Mix, Order};
use tidegate_bench_common::plan::{FEW, Span};
use tidegate_bench_common::process::Entrance;
use tidegate_bench_common::requests::Requests;
use tidegate_bench_common::results::Counts;
use tidegate_bench_common::tally::Tally;

use super::node::{DOMAIN, Node, TIGHT, WIDE};
use super::results::AccountRow;

/// How many distinct requests are drawn; after the last comes the first.
const REQUESTS: usize = 100_000;

const PLAIN: Mix =
    Mix { callers: 100_000, order: Order::Uniform, descriptors_max: 1, tight_percent: 0, cost_max: 1 };

/// What is asked, in the order of the page.
const MIXES: [(&str, Mix); 5] = [
    ("many callers, each alike", PLAIN),
    ("few often, most seldom", Mix { order: Order::Zipf, ..PLAIN }),
    ("1 to 5 descriptors", Mix { order: Order::Zipf, descriptors_max: 5, ..PLAIN }),
    ("some refused", Mix { order: Order::Zipf, descriptors_max: 5, tight_percent: 20, ..PLAIN }),
    (
        "… and 1 to 10 units",
        Mix { order: Order::Zipf, descriptors_max: 5, tight_percent: 20, cost_max: 10, ..PLAIN },
    ),
];

/// Calls the node with each mix for a time. Ends badly where the sums differ.
pub(crate) fn all(node: &Node, lasts: Duration) -> Result<Vec<AccountRow>, String> {
    // Memory that is touched for the first time has to be cleared by the system, which takes longer than any decision.
    eprintln!("every key of the mixes is asked for once");
    call(node, &drawn(PLAIN), Span::NONE, Some(REQUESTS as u64))?;
    let mut rows = Vec::new();
    for (name, mix) in MIXES {
        eprintln!("accounted: {name}");
        let span = Span { warm: lasts / 10, measured: lasts };
        let (counts, told) =
            call(node, &drawn(mix), span, None).map_err(|error| format!("{name}: {error}"))?;
        rows.push(AccountRow {
            name: name.into(),
            mix,
            ours: counts.all,
            node: told,
            wall_ns: counts.wall_ns * counts.all.calls() / counts.calls.max(1),
            server_cpu_ns: counts.server_cpu_ns * counts.all.calls() / counts.calls.max(1),
        });
    }
    Ok(rows)
}

fn call(
    node: &Node,
    requests: &Requests,
    span: Span,
    calls_max: Option<u64>,
) -> Result<(Counts, Tally), String> {
    let used = || node.used();
    let calls = Calls { address: node.process.address, requests, first: 0, used: &used };
    let account = Account::open(node.http, Entrance::Rls)?;
    let counts = generator::closed(&calls, FEW, span, calls_max)?;
    let told = account.close(&counts.all)?;
    Ok((counts, told))
}

fn drawn(mix: Mix) -> Requests {
    let mut requests = Requests::default();
    for draw in mix.draw(REQUESTS) {
        let callers: Vec<String> =
            draw.descriptors.iter().map(|(caller, _)| format!("user-{caller:08}")).collect();
        let entries: Vec<[(&str, &str); 1]> = (draw.descriptors.iter().zip(&callers))
            .map(|((_, is_tight), caller)| [(if *is_tight { TIGHT } else { WIDE }, caller.as_str())])
            .collect();
        let descriptors: Vec<&[(&str, &str)]> = entries.iter().map(<[_; 1]>::as_slice).collect();
        requests.push_all(DOMAIN, &descriptors, draw.cost);
    }
    requests
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use tidegate_bench_common::messages::RateLimitRequest;
    use tidegate_bench_common::requests::PREFIX_BYTES;

    use super::*;

    #[test]
    fn requests_are_what_the_mix_says() {
        let (_, mix) = MIXES[4];
        let requests = drawn(mix);
        let (mut descriptors_most, mut cost_most, mut tight) = (0, 0, 0);
        for number in 0..1_000 {
            let message = RateLimitRequest::decode(&requests.get(number)[PREFIX_BYTES..]).expect("a request");
            descriptors_most = descriptors_most.max(message.descriptors.len());
            cost_most = cost_most.max(message.hits_addend);
            tight +=
                message.descriptors.iter().filter(|descriptor| descriptor.entries[0].key == TIGHT).count();
        }
        assert_eq!((descriptors_most, cost_most), (5, 10));
        assert!((450..750).contains(&tight), "a fifth of some three thousand: {tight}");
    }
}
