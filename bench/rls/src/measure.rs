//! The subjects take turns: every load on every subject once in each round, every other round backwards.

use std::time::Duration;

use tidegate_bench_common::accounting::{Made, accounted};
use tidegate_bench_common::generator::{self, Calls, Used};
use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::plan::{FEW, Load, Span, turns};
use tidegate_bench_common::requests::Requests;
use tidegate_bench_common::results::{Counts, OpenRound};

use crate::arguments::{One, Target};
use crate::machine;
use crate::plan::{CLOSED, Pace, Plan, SLOW_RATE};
use crate::requests;
use crate::results::{ClosedRow, OpenRow, Results};
use crate::rules::TIGHT_AMOUNT;
use crate::server::{Server, Subject};

/// Those who are called in open loops: what the goals are about, and what they are compared with.
const OPEN: [Subject; 2] = [Subject::Tidegate, Subject::Bare];

/// Measures all that the plan names.
pub(crate) fn all(plan: &Plan) -> Result<Results, String> {
    let cores = Cores::find();
    let machine = machine::here(cores.is_some()); // Before this thread is kept on one core.
    let requests = requests::draw(plan.keys);
    let mut servers = Vec::new();
    for subject in Subject::ALL {
        let server = Server::start(subject, cores)?;
        limits_as_it_should(&server)?;
        servers.push(server);
    }
    let bench = Bench { plan, requests, servers };
    bench.fill()?;
    let closed = bench.closed()?;
    let open = bench.open(half_rate(&closed))?;
    Ok(Results { scale: plan.scale, machine, keys: plan.keys, closed, open })
}

struct Bench<'a> {
    plan: &'a Plan,
    requests: Requests,
    servers: Vec<Server>,
}

impl Bench<'_> {
    /// Every key once, so that its counter is there: memory that is touched for the first time has to be cleared by the system.
    fn fill(&self) -> Result<(), String> {
        eprintln!("{} keys are asked for the first time", self.requests.len());
        let span = Span::NONE;
        let calls_max = Some(self.requests.len() as u64);
        self.asked(Subject::Tidegate, 0, |calls| generator::closed(calls, FEW, span, calls_max)).map(drop)
    }

    fn closed(&self) -> Result<Vec<ClosedRow>, String> {
        let mut rows: Vec<ClosedRow> = CLOSED
            .iter()
            .flat_map(|load| {
                Subject::ALL.map(|subject| ClosedRow { subject, load: *load, rounds: Vec::new() })
            })
            .collect();
        for round in 0..self.plan.rounds {
            eprintln!("closed loops: round {} of {}", round + 1, self.plan.rounds);
            for turn in turns(round, rows.len()) {
                let row = &mut rows[turn];
                let counts = self.asked(row.subject, round, |calls| {
                    generator::closed(calls, row.load, self.plan.span, None)
                })?;
                row.rounds.push(counts);
            }
        }
        Ok(rows)
    }

    fn open(&self, half_rate: u32) -> Result<Vec<OpenRow>, String> {
        let rate_of = |pace| if pace == Pace::Slow { SLOW_RATE } else { half_rate };
        let mut rows: Vec<OpenRow> = Pace::ALL
            .iter()
            .flat_map(|&pace| {
                OPEN.map(|subject| OpenRow { subject, pace, rate: rate_of(pace), rounds: Vec::new() })
            })
            .collect();
        for round in 0..self.plan.rounds {
            eprintln!("open loops: round {} of {}", round + 1, self.plan.rounds);
            for turn in turns(round, rows.len()) {
                let row = &mut rows[turn];
                let (counts, latency) = self.asked(row.subject, round, |calls| {
                    generator::open(calls, FEW, row.rate, self.plan.span)
                })?;
                row.rounds.push(OpenRound { counts, latency });
            }
        }
        Ok(rows)
    }

    /// A turn of one subject. Where it is the node, it has to have counted the same calls.
    fn asked<T: Made>(
        &self,
        subject: Subject,
        round: usize,
        ask: impl FnOnce(&Calls<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let server = self.servers.iter().find(|server| server.subject == subject);
        let server = server.ok_or_else(|| format!("{} was not started", subject.word()))?;
        let first = round * self.requests.len() / self.plan.rounds;
        let used = || server.used();
        let address = server.process.address;
        let calls = Calls { address, requests: &self.requests, first, used: &used };
        accounted(server.process.metrics, || ask(&calls))
            .map_err(|error| format!("{}: {error}", subject.word()))
    }
}

/// Half of what the bare server answered in a second of the wall, in the median round.
fn half_rate(closed: &[ClosedRow]) -> u32 {
    let bare = closed.iter().filter(|row| row.subject == Subject::Bare && row.load == FEW);
    let mut rates: Vec<f64> = bare.flat_map(|row| &row.rounds).map(Counts::per_s).collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).map_or(1, |rate| (rate / 2.0) as u32).max(1)
}

/// The node refuses one call too many; those with a fixed answer do not. Otherwise something else would be measured than is said.
fn limits_as_it_should(server: &Server) -> Result<(), String> {
    let (requests, used) = (requests::tight(), || server.used());
    let calls = Calls { address: server.process.address, requests: &requests, first: 0, used: &used };
    let (load, span) = (Load { connections: 1, streams: 1 }, Span::NONE);
    let counts = generator::closed(&calls, load, span, Some(u64::from(TIGHT_AMOUNT) + 1))
        .map_err(|error| format!("{}: {error}", server.subject.word()))?;
    let expected = u64::from(server.subject == Subject::Tidegate);
    if counts.refused == expected {
        return Ok(());
    }
    let (name, refused) = (server.subject.word(), counts.refused);
    Err(format!("{name} refuses {refused} of {} calls, not {expected}: nothing to time", TIGHT_AMOUNT + 1))
}

/// One load on one server, for a profiler to look at.
pub(crate) fn one(one: &One) -> Result<(), String> {
    let cores = Cores::find();
    let (server, address) = match one.on {
        Target::Started(subject) => {
            let server = Server::start(subject, cores)?;
            let address = server.process.address;
            (Some(server), address)
        }
        Target::At(address) => (None, address),
    };
    let requests = requests::draw(one.keys);
    let used = || server.as_ref().map_or(Ok(Used::default()), Server::used);
    let calls = Calls { address, requests: &requests, first: 0, used: &used };
    let warm = if one.calls.is_some() { Duration::ZERO } else { Duration::from_millis(200) };
    let span = Span { warm, measured: Duration::from_secs(one.seconds.into()) };
    let counts = match one.rate {
        None => generator::closed(&calls, one.load, span, one.calls.map(u64::from))?,
        Some(rate) => {
            let (counts, latency) = generator::open(&calls, one.load, rate, span)?;
            let us = |ns: u64| ns as f64 / 1e3;
            println!(
                "p50 {:.0} µs, p99 {:.0} µs, p99.9 {:.0} µs; the generator late by {:.0} µs (p99)",
                us(latency.p50_ns),
                us(latency.p99_ns),
                us(latency.p999_ns),
                us(latency.late_p99_ns)
            );
            counts
        }
    };
    println!(
        "{:.1} k calls per second, {:.1} k per second of the server's processor; busy: server {:.0} %, generator {:.0} %; {:.2} % refused",
        counts.per_s() / 1e3,
        if server.is_some() { counts.per_cpu_s() / 1e3 } else { 0.0 },
        counts.server_busy() * 100.0,
        counts.generator_busy() * 100.0,
        counts.refused as f64 * 100.0 / counts.calls as f64
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_the_load_is_half_of_what_the_bare_server_did() {
        let row = |subject, load, calls: &[u64]| ClosedRow {
            subject,
            load,
            rounds: calls
                .iter()
                .map(|&calls| Counts { calls, wall_ns: 1_000_000_000, ..Counts::default() })
                .collect(),
        };
        let rows = [
            row(Subject::Tidegate, FEW, &[1]),
            row(Subject::Bare, FEW, &[10_000, 30_000, 20_000]),
            row(Subject::Bare, tidegate_bench_common::plan::MANY, &[1]),
        ];
        assert_eq!(half_rate(&rows), 10_000);
    }
}
