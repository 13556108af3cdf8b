//! Nodes that know no caller, some, and very many, asked the same by turns that are as short as moments.

use std::path::Path;
use std::time::Duration;

use tidegate_bench_common::accounting::{Account, accounted};
use tidegate_bench_common::generator::{self, Calls, Used};
use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::plan::{FEW, Load, Span};
use tidegate_bench_common::process::Entrance;
use tidegate_bench_common::requests::{Requests, shuffled};
use tidegate_bench_common::results::Counts;
use tidegate_control::{ControlStore, Options, Override, Quota, Unit, Who};

use crate::node::{DOMAIN, Node, TIER};
use crate::plan::{Asking, LOADS, Plan};
use crate::results::{Row, Weight};

/// Records in one change.
const BATCH: u32 = 1_000;
/// How long one may take: nobody waits for it.
const WRITE_MAX: Duration = Duration::from_secs(60);
/// Every tenth has a limit of its own besides its tier.
const OVERRIDE_EVERY: u32 = 10;

pub(crate) fn measure(plan: &Plan, cores: Option<Cores>) -> Result<(Vec<Weight>, Vec<Row>), String> {
    let mut nodes = Vec::new();
    for known in plan.known {
        eprintln!("a node that knows {known} callers");
        let node = Node::start("tidegate", cores, &[], |data| fill(data, known))?;
        let keys = node.metric("tidegate_quota_keys")?;
        if keys != u64::from(known) {
            return Err(format!("a node knows {keys} callers, not {known}: nothing to time"));
        }
        nodes.push((known, node));
    }
    let requests = plan.asked.map(draw);
    for (_, node) in &nodes {
        for requests in &requests {
            // Every key once, so that its counter is there.
            let (calls_max, used) = (Some(requests.len() as u64), || used(node));
            let calls = Calls { address: node.process.address, requests, first: 0, used: &used };
            let account = Some((node.http, Entrance::Rls));
            accounted(account, || generator::closed(&calls, FEW, Span::NONE, calls_max))?;
        }
    }
    let weights = nodes.iter().map(|(known, node)| {
        let (rss, told) = (node.process.rss_bytes()?, node.metric("tidegate_quota_bytes")?);
        Ok(Weight { known: *known, rss_bytes: rss, told_bytes: told })
    });
    let weights = weights.collect::<Result<Vec<_>, String>>()?;
    let mut rows = Vec::new();
    for load in LOADS {
        for asking in Asking::ALL {
            rows.extend(plan.known.map(|known| Row { load, asking, known, rounds: Vec::new() }));
        }
    }
    for round in 0..plan.rounds {
        eprintln!("round {} of {}", round + 1, plan.rounds);
        // In the order of the nodes, as many rows as there are of them.
        for rows in rows.chunks_mut(nodes.len()) {
            let (load, asking) = (rows[0].load, rows[0].asking);
            let requests = &requests[asking as usize];
            let first = round * requests.len() / plan.rounds;
            for (row, counts) in rows.iter_mut().zip(in_turns(&nodes, requests, first, load, plan)?) {
                row.rounds.push(counts);
            }
        }
    }
    Ok((weights, rows))
}

/// All nodes are asked the same, by turns, and each has to have counted its calls.
fn in_turns(
    nodes: &[(u32, Node)],
    requests: &Requests,
    first: usize,
    load: Load,
    plan: &Plan,
) -> Result<Vec<Counts>, String> {
    let open = |(_, node): &(u32, Node)| Account::open(node.http, Entrance::Rls);
    let accounts = nodes.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let used: Vec<_> = nodes.iter().map(|(_, node)| || used(node)).collect();
    let calls =
        |((_, node), used): (&(u32, Node), _)| Calls { address: node.process.address, requests, first, used };
    let calls: Vec<_> = nodes.iter().zip(used.iter().map(|used| used as _)).map(calls).collect();
    let counts = generator::by_turns(&calls, load, plan.turn, plan.turns)?;
    for (account, counts) in accounts.into_iter().zip(&counts) {
        account.close(&counts.all)?;
    }
    Ok(counts)
}

fn used(node: &Node) -> Result<Used, String> {
    Ok(Used { server_cpu_ns: node.process.cpu_ns()?, ..Used::default() })
}

fn name(caller: u32) -> String {
    format!("caller-{caller:08}")
}

/// The first so many callers, in the order of a shuffled pack.
fn draw(callers: u32) -> Requests {
    let mut requests = Requests::default();
    for caller in shuffled(callers) {
        requests.push(DOMAIN, &[("api_key", &name(caller))]);
    }
    requests
}

/// Writes the records of the first so many callers into the database that a node will find.
fn fill(data: &Path, callers: u32) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let of = |error: tidegate_control::Error| format!("the records cannot be written: {error}");
        let options = Options::sqlite(data.join("control.sqlite")).deadline(WRITE_MAX);
        let store = ControlStore::open(&options).await.map_err(of)?;
        for first in (0..callers).step_by(BATCH as usize) {
            let some = (first..callers.min(first + BATCH)).map(|caller| (record(caller), None)).collect();
            store.put_quotas(&Who::new("bench", ""), some).await.map_err(of)?;
        }
        store.close().await;
        Ok(())
    })
}

fn record(caller: u32) -> Quota {
    let own = Override {
        descriptor: "default".into(),
        requests_per_unit: 3_000_000,
        unit: Unit::Hour,
        effective_at: None,
        expires_at: None,
    };
    let overrides = if caller.is_multiple_of(OVERRIDE_EVERY) { vec![own] } else { Vec::new() };
    Quota { tier: Some(TIER.into()), overrides, ..Quota::of(name(caller)) }
}
