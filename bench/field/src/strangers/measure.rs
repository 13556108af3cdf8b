//! They take turns on one node: ours, then the others, every other round backwards.

use std::time::Duration;

use tidegate_bench_common::accounting::Account;
use tidegate_bench_common::generator::{Calls, thread_cpu_ns};
use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::plan::{FEW, Load, MANY, turns};
use tidegate_bench_common::process::Entrance;
use tidegate_bench_common::requests::Requests;
use tidegate_bench_common::speech::Speech;
use tidegate_bench_common::store::Store;
use tidegate_bench_common::witness::{self, Until};
use tidegate_clock::Stopwatch;

use super::generators::{Generator, Log, json, message};
use super::node::Node;
use super::results::{By, Caller, Missing, Results, Round, Row, Said};
use super::{accounts, spec};
use crate::machine::Machine;
use crate::peers::Install;
use crate::plan::Extent;

/// Who is called with how many calls at a time. A connection of HTTP/1.1 has one.
const LOADS: [(By, Load); 5] =
    [(By::Ours, FEW), (By::H2load, FEW), (By::Ghz, FEW), (By::OursHttp, MANY), (By::Wrk, MANY)];
/// The same with many connections.
const MORE_LOADS: [(By, Load); 3] = [(By::Ours, MANY), (By::H2load, MANY), (By::Ghz, MANY)];

struct Plan {
    rounds: usize,
    /// How long each calls.
    seconds: u32,
    /// How long each mix is called.
    mixed: Duration,
    install: Install,
}

impl Plan {
    fn of(extent: Extent) -> Self {
        let (rounds, seconds, mixed_ms, install) = match extent {
            Extent::Smoke => (1, 1, 100, Install::No),
            Extent::Quick => (1, 2, 500, Install::Yes),
            Extent::Usual | Extent::Full => (5, 3, 2_000, Install::Yes),
        };
        Self { rounds, seconds, mixed: Duration::from_millis(mixed_ms), install }
    }
}

/// Measures everything.
pub(crate) fn all(extent: Extent) -> Result<Results, String> {
    let plan = Plan::of(extent);
    let pinned = Cores::find();
    let machine = Machine::here();
    let store = Store::start(pinned)?;
    let machine = machine.with(&store)?;
    let (mut generators, mut missing) = (Vec::new(), Vec::new());
    for by in Generator::ALL {
        match Generator::find(by, plan.install) {
            Ok(generator) => generators.push(generator),
            Err(reason) => missing.push(Missing { name: by.title().into(), reason }),
        }
    }
    let node = Node::start(pinned, false)?;
    let bench = Bench { plan: &plan, cores: pinned, node: &node, generators: &generators };
    let rows = bench.rows()?;
    let accounts = accounts::all(&node, &store, pinned, plan.mixed)?;
    drop(node);
    let ports = match spec::all(&Node::start(pinned, true)?, plan.install) {
        Ok(ports) => ports,
        Err(reason) => {
            missing.push(Missing { name: "h2spec".into(), reason });
            Vec::new()
        }
    };
    let callers = bench_callers(&generators, plan.seconds);
    Ok(Results { extent, machine, callers, missing, rows, accounts, ports })
}

fn bench_callers(generators: &[Generator], seconds: u32) -> Vec<Caller> {
    let load = |by| LOADS.iter().find(|(known, _)| *known == by).map_or(FEW, |(_, load)| *load);
    let caller = |generator: &Generator| Caller {
        by: generator.by,
        version: generator.version.clone(),
        command: generator.spoken(load(generator.by), seconds),
        log: generator.spoken_log(),
    };
    generators.iter().map(caller).collect()
}

struct Bench<'a> {
    plan: &'a Plan,
    cores: Option<Cores>,
    node: &'a Node,
    generators: &'a [Generator],
}

impl Bench<'_> {
    fn rows(&self) -> Result<Vec<Row>, String> {
        let is_there = |by: By| by == by.ours() || self.generators.iter().any(|generator| generator.by == by);
        let loads = LOADS.iter().chain(&MORE_LOADS).filter(|(by, _)| is_there(*by));
        let mut rows: Vec<Row> =
            loads.map(|(by, load)| Row { by: *by, load: *load, rounds: Vec::new() }).collect();
        for round in 0..self.plan.rounds {
            for turn in turns(round, rows.len()) {
                let row = &mut rows[turn];
                let (round, rounds) = (round + 1, self.plan.rounds);
                eprintln!("round {round} of {rounds}: {}, {}", row.by.title(), row.load.spoken());
                let round = self.round(row.by, row.load);
                row.rounds.push(round.map_err(|error| format!("{}: {error}", row.by.title()))?);
            }
        }
        Ok(rows)
    }

    /// One turn, and where only a log tells what calls took, one more for that.
    fn round(&self, by: By, load: Load) -> Result<Round, String> {
        let round = self.turn(by, load, Log::Without)?;
        if !self.generators.iter().any(|generator| generator.by == by && generator.needs_log()) {
            return Ok(round);
        }
        let logged = self.turn(by, load, Log::With)?.said;
        let said = Said { p50_ns: logged.p50_ns, p99_ns: logged.p99_ns, ..round.said };
        Ok(Round { said, logged_per_s: Some(logged.per_s() as u64), ..round })
    }

    /// Ends badly where the node counted other calls than the generator says it made.
    fn turn(&self, by: By, load: Load, log: Log) -> Result<Round, String> {
        let entrance = if by.ours() == By::Ours { Entrance::Rls } else { Entrance::Http };
        let account = Account::open(self.node.http, entrance)?;
        let generator = self.generators.iter().find(|generator| generator.by == by);
        let (server_cpu_ns, own_cpu_ns) = (self.node.process.cpu_ns()?, thread_cpu_ns());
        let (children_cpu_ns, watch) = (children_cpu_ns()?, Stopwatch::start());
        let (said, in_flight) = match generator {
            Some(generator) => {
                let said = generator.run(self.node, self.cores, load, self.plan.seconds, log)?;
                (said, (load.connections * load.streams) as u64)
            }
            None => (self.ours(by, load)?, 0),
        };
        let whole_ns = watch.elapsed().as_nanos() as u64;
        let generator_cpu_ns = match generator {
            Some(_) => self::children_cpu_ns()? - children_cpu_ns,
            None => thread_cpu_ns() - own_cpu_ns,
        };
        let server_cpu_ns = self.node.process.cpu_ns()?.saturating_sub(server_cpu_ns);
        let told = account.told()?;
        let counted = told.calls();
        // Some do not count what was in flight when their time was over; nobody may count more than there was.
        if told.allowed != counted || !(said.calls..=said.calls + in_flight).contains(&counted) {
            return Err(format!("it says that it made {} calls; the node's metrics say {told}", said.calls));
        }
        Ok(Round { said, counted, whole_ns, server_cpu_ns, generator_cpu_ns, logged_per_s: None })
    }

    /// Our own generator, which remembers every call.
    fn ours(&self, by: By, load: Load) -> Result<Said, String> {
        let (requests, address) = match by {
            By::OursHttp => {
                let mut requests = Requests::of(Speech::HttpBody);
                requests.push_post("/v1/check", &json());
                (requests, self.node.http)
            }
            _ => (message(), self.node.process.address),
        };
        let used = || self.node.used();
        let calls = Calls { address, requests: &requests, first: 0, used: &used };
        let watch = Stopwatch::start();
        let until = Until::time(Duration::from_secs(self.plan.seconds.into()));
        let seen = witness::watch(&calls, load, &watch, until)?;
        let wall_ns = watch.elapsed().as_nanos() as u64;
        let tally = witness::tally(&seen);
        if tally.allowed != tally.calls() || tally.calls() == 0 {
            return Err(format!("{tally}: nothing to compare"));
        }
        let latency = witness::latency(&seen, 0);
        Ok(Said { calls: tally.calls(), wall_ns, p50_ns: latency.p50_ns, p99_ns: latency.p99_ns })
    }
}

/// What processes that we started, and that have ended, used of their processor.
fn children_cpu_ns() -> Result<u64, String> {
    let text =
        std::fs::read_to_string("/proc/self/stat").map_err(|error| format!("/proc/self/stat: {error}"))?;
    children_in(&text).ok_or_else(|| "/proc/self/stat is not understood".into())
}

/// The sixteenth and seventeenth field, in hundredths of a second. The second is a name in brackets, which may hold anything.
fn children_in(text: &str) -> Option<u64> {
    const TICK_NS: u64 = 10_000_000;
    let mut fields = text.rsplit_once(") ")?.1.split(' ').skip(13);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) * TICK_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_children_is_read_from_what_linux_writes() {
        let text = "4711 (a ) b) S 1 4711 4711 0 -1 4194560 100 200 0 0 7 8 250 50 20 0 1 0 100 1000 10";
        assert_eq!(children_in(text), Some(3_000_000_000));
        assert_eq!(children_in(""), None);
        assert!(children_cpu_ns().is_ok());
    }
}
