//! The nodes take turns, every other round backwards.

use tidegate_bench_common::accounting::{Made, accounted};
use tidegate_bench_common::generator::{self, Calls, Used};
use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::plan::{FEW, Span, turns};
use tidegate_bench_common::process::{Entrance, Process, node_command};
use tidegate_bench_common::requests::Requests;
use tidegate_bench_common::store::Store;
use tidegate_clock::Stopwatch;

use super::plan::{Case, FIRST_RATE, Growing, first, rounds};
use super::results::{Results, Row, Waits};
use crate::machine::Machine;
use crate::peers::ours::room_for;
use crate::plan::Extent;

/// A node, and what it is asked.
struct Node {
    process: Process,
    requests: Requests,
    row: Row,
}

pub(crate) fn all(extent: Extent) -> Result<Results, String> {
    let machine = Machine::here();
    let cores = Cores::find();
    let store = Store::start(cores)?;
    let machine = machine.with(&store)?;
    let mut nodes = Vec::new();
    for case in Case::all(extent) {
        eprintln!("a node with {} of {:?}", case.size, case.growing);
        nodes.push(Node::start(case, extent, cores, &store)?);
    }
    let (rounds, span) = rounds(extent);
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for turn in turns(round, nodes.len()) {
            let node = &mut nodes[turn];
            let first = round * node.requests.len() / rounds;
            let counts = node.asked(&store, first, |calls| generator::closed(calls, FEW, span, None))?;
            node.row.rounds.push(counts);
        }
    }
    Ok(Results { extent, machine, rows: nodes.into_iter().map(|node| node.row).collect() })
}

impl Node {
    /// Starts it, and has every caller ask, so that its counter is there.
    fn start(case: Case, extent: Extent, cores: Option<Cores>, store: &Store) -> Result<Self, String> {
        let requests = case.requests(); // Before: the first calls come as soon as anybody listens.
        let watch = Stopwatch::start();
        let process = Process::start_node(Entrance::Rls, "tidegate", cores, |folder| {
            let rules = folder.join("rules.yaml");
            std::fs::write(&rules, case.rules()).map_err(|error| format!("{}: {error}", rules.display()))?;
            let mut command = node_command(folder, &rules)?;
            command.args(room_for(case.callers()));
            if case.growing == Growing::TakesInRedis {
                // It may wait long: a run with a single call that fails is no run.
                command.args(["--store-url", &store.server().url(), "--store-timeout", "5s"]);
                command.args(["--store-connect-timeout", "5s", "--node-deadline", "6s"]);
                command.args(["--defaults-on-store-failure", "error"]);
            }
            Ok(command)
        })?;
        let start_ns = watch.elapsed().as_nanos() as u64;
        let rss_start_bytes = process.rss_bytes()?;
        let row = Row { case, start_ns, rss_start_bytes, rss_bytes: 0, waits: None, rounds: Vec::new() };
        let mut node = Self { process, requests, row };
        let wait = |node: &Self| {
            let open = |calls: &Calls<'_>| generator::open(calls, FEW, FIRST_RATE, first(extent));
            node.asked(store, 0, open).map(|(_, latency)| latency)
        };
        let first = case.growing.is_keys().then(|| wait(&node)).transpose()?;
        let calls_max = Some(node.requests.len() as u64);
        node.asked(store, 0, |calls| generator::closed(calls, FEW, Span::NONE, calls_max))?;
        node.row.rss_bytes = node.process.rss_bytes()?;
        if let Some(first) = first {
            node.row.waits = Some(Waits { first, later: wait(&node)? });
        }
        Ok(node)
    }

    /// It has to have counted the same calls.
    fn asked<T: Made>(
        &self,
        store: &Store,
        first: usize,
        ask: impl FnOnce(&Calls<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let in_redis = self.row.case.growing == Growing::TakesInRedis;
        let used = || {
            let mut used = Used { server_cpu_ns: self.process.cpu_ns()?, ..Used::default() };
            if in_redis {
                (used.store_cpu_ns, used.store_calls) = (store.cpu_ns()?, store.calls()?);
            }
            Ok(used)
        };
        let calls = Calls { address: self.process.address, requests: &self.requests, first, used: &used };
        accounted(self.process.metrics, || ask(&calls))
            .map_err(|trouble| format!("{:?}: {trouble}", self.row.case))
    }
}
