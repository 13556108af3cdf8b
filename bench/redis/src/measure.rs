//! The subjects take turns: every case on every subject once in each round, every other round backwards.

use tidegate_bench_common::accounting::{Made, accounted};
use tidegate_bench_common::figures::median;
use tidegate_bench_common::generator::{self, Calls, Used};
use tidegate_bench_common::machine;
use tidegate_bench_common::pin::{Cores, Place};
use tidegate_bench_common::plain;
use tidegate_bench_common::plan::{FEW, Load, MANY, Span, turns};
use tidegate_bench_common::process::Process;
use tidegate_bench_common::relay::Relay;
use tidegate_bench_common::requests::Requests;
use tidegate_bench_common::results::{Counts, OpenRound};
use tidegate_bench_common::store::Store;

use crate::plan::{Case, Plan, Subject};
use crate::results::{ClosedRow, Machine, OpenRow, Reference, Results, Seen};
use crate::rules::{self, LOW_AMOUNT};
use crate::{servers, weigh};

/// Those who are called in open loops.
const OPEN: [Subject; 4] = [Subject::Node, Subject::NodeAside, Subject::Memory, Subject::Bare];
/// What they are asked.
const OPEN_CASE: Case = Case::SlidingWindow;

/// One call after the other.
const ONE: Load = Load { connections: 1, streams: 1 };
/// How often who has taken all asks for more,
const MORE: usize = 50;
/// and how many are asked to: an hour may end meanwhile, and with it a window.
const SEEN_TRIES: u32 = 2;

/// Measures all that the plan names.
pub(crate) fn all(plan: &Plan) -> Result<Results, String> {
    let cores = Cores::find();
    let (cores_here, commit) = (machine::cores(), machine::commit()); // Before this thread is kept on one core.
    let store = Store::start(cores)?;
    let machine = Machine {
        cores: cores_here,
        pinned: cores.is_some(),
        cpu: machine::cpu(),
        kernel: machine::kernel(),
        rustc: machine::rustc(),
        commit,
        redis: store.version()?,
        redis_crate: machine::version("redis"),
        reference: servers::reference_version()?,
    };
    let weights = weigh::all(plan, cores)?;
    let bench = Bench::start(plan, cores, store)?;
    let closed = bench.closed()?;
    let rate = half_rate(&closed);
    let open = bench.open(rate)?;
    let weighed = [plan.weighed, plan.weighed_full];
    let (scale, callers, reference) = (plan.scale, plan.callers, bench.reference);
    Ok(Results { scale, machine, reference, callers, weighed, rate, closed, open, weights })
}

struct Bench<'a> {
    plan: &'a Plan,
    cores: Option<Cores>,
    store: Store,
    servers: Vec<(Subject, Process)>,
    /// What was seen of the reference server, if there is one.
    reference: Option<Reference>,
    requests: Vec<(Case, Requests)>,
    /// What the node asks the store, one request in each.
    plain: Vec<(Case, Vec<Vec<u8>>)>,
}

impl<'a> Bench<'a> {
    fn start(plan: &'a Plan, cores: Option<Cores>, store: Store) -> Result<Self, String> {
        let url = store.server().url();
        let mut servers = vec![
            (Subject::Node, servers::node(Subject::Node, cores, Some(&url))?),
            (Subject::Memory, servers::node(Subject::Memory, cores, None)?),
            (Subject::Bare, servers::bare(cores)?),
        ];
        let reference = servers::reference(cores, store.server().address())?;
        servers.extend(reference.map(|process| (Subject::Reference, process)));
        let requests = Case::ALL.map(|case| (case, rules::requests(case, plan.callers))).into();
        let mut bench = Self { plan, cores, store, servers, reference: None, requests, plain: Vec::new() };
        bench.fill()?;
        bench.see_reference();
        bench.record()?;
        Ok(bench)
    }

    /// Every caller once, so that its counters are there; where they are to be used up, they are.
    fn fill(&self) -> Result<(), String> {
        eprintln!("{} callers are asked for the first time", self.plan.callers);
        for subject in [Subject::Node, Subject::Memory] {
            for case in Case::ALL {
                let times = if case == Case::Refused { LOW_AMOUNT } else { 1 };
                let calls_max = Some(u64::from(self.plan.callers) * u64::from(times));
                let fill = |calls: &Calls<'_>| generator::closed(calls, FEW, Span::NONE, calls_max);
                self.asked(subject, case, 0, fill)?;
            }
            for case in Case::ALL {
                self.limits_as_it_should(subject, case)?;
            }
        }
        Ok(())
    }

    /// Everybody is refused where everything is used up, and nobody elsewhere. Otherwise something else would be measured than is said.
    fn limits_as_it_should(&self, subject: Subject, case: Case) -> Result<(), String> {
        let calls_max = Some(u64::from(self.plan.callers));
        let counts =
            self.asked(subject, case, 0, |calls| generator::closed(calls, FEW, Span::NONE, calls_max))?;
        let expected = if case == Case::Refused { counts.calls } else { 0 };
        if counts.refused == expected {
            return Ok(());
        }
        let (name, refused, domain) = (subject.word(), counts.refused, case.domain());
        Err(format!("{name} refuses {refused} calls of `{domain}`, not {expected}: nothing to time"))
    }

    /// The reference server is timed if it was seen refusing; otherwise it ends here, and the page says why.
    fn see_reference(&mut self) {
        if !self.servers.iter().any(|(subject, _)| *subject == Subject::Reference) {
            return;
        }
        let seen = self.reference_refuses();
        if let Err(reason) = &seen {
            eprintln!("{} is not timed: {reason}", Subject::Reference.word());
            self.servers.retain(|(subject, _)| *subject != Subject::Reference);
        }
        self.reference = Some(seen.map_or_else(Reference::NotTimed, Reference::Seen));
    }

    /// One of the callers by whom it will be timed takes all of its limit by one call, and asks for more. Then every caller asks once, so
    /// that its counter is there; nobody else is refused.
    fn reference_refuses(&self) -> Result<Seen, String> {
        let (case, mut last) = (OPEN_CASE, String::new());
        for caller in 0..SEEN_TRIES {
            let requests = rules::used_up(case, caller, MORE);
            let calls_max = Some(requests.len() as u64);
            let ask = |calls: &Calls<'_>| generator::closed(calls, ONE, Span::NONE, calls_max);
            let counts = self.asked_for(Subject::Reference, case, &requests, 0, ask)?;
            let seen = Seen { asked: counts.calls, admitted: counts.calls - counts.refused };
            if !seen.refuses() {
                last = format!("{} of {} calls admitted", seen.admitted, seen.asked);
                continue;
            }
            let calls_max = Some(u64::from(self.plan.callers));
            let fill = |calls: &Calls<'_>| generator::closed(calls, FEW, Span::NONE, calls_max);
            let refused = self.asked(Subject::Reference, case, 0, fill)?.refused;
            let used_up = u64::from(caller) + 1;
            return if refused <= used_up {
                Ok(seen)
            } else {
                Err(format!("it refuses {refused} callers, of whom {used_up} had used up their limits"))
            };
        }
        Err(format!("one of its callers took all of its limit and asked for more: {last}"))
    }

    /// Has a second node, which shares the first one's counters, ask for every caller once more, one call after the other.
    fn record(&mut self) -> Result<(), String> {
        eprintln!("what the node asks the store is written down");
        let relay = Relay::start(self.store.server().address())?;
        let node = servers::node(Subject::Node, self.cores, Some(&format!("redis://{}", relay.address)))?;
        for (case, requests) in self.requests.iter().filter(|(case, _)| *case != Case::Refused) {
            relay.script_calls()?; // What is not about this.
            let used = || Ok(Used::default());
            let calls = Calls { address: node.address, requests, first: 0, used: &used };
            generator::closed(&calls, ONE, Span::NONE, Some(requests.len() as u64))?;
            let recorded = relay.script_calls()?;
            if recorded.len() != requests.len() {
                let (scripts, requests) = (recorded.len(), requests.len());
                return Err(format!("{scripts} scripts for {requests} requests: nothing to compare with"));
            }
            self.plain.push((*case, recorded));
        }
        Ok(())
    }

    fn closed(&self) -> Result<Vec<ClosedRow>, String> {
        let mut rows = Vec::new();
        let mut add = |subject, case, load| rows.push(ClosedRow { subject, case, load, rounds: Vec::new() });
        for case in Case::ALL {
            add(Subject::Node, case, Some(FEW));
            if case != Case::Refused {
                add(Subject::Plain, case, None);
                add(Subject::Node, case, Some(MANY));
            }
        }
        if self.servers.iter().any(|(subject, _)| *subject == Subject::Reference) {
            add(Subject::Reference, Case::SlidingWindow, Some(FEW));
            add(Subject::Reference, Case::SlidingWindow, Some(MANY));
        }
        for round in 0..self.plan.rounds {
            eprintln!("closed loops: round {} of {}", round + 1, self.plan.rounds);
            for turn in turns(round, rows.len()) {
                let row = &mut rows[turn];
                let counts = match row.load {
                    Some(load) => self.asked(row.subject, row.case, round, |calls| {
                        generator::closed(calls, load, self.plan.span, None)
                    })?,
                    None => self.plain(row.case, round)?,
                };
                row.rounds.push(counts);
            }
        }
        Ok(rows)
    }

    fn open(&self, rate: u32) -> Result<Vec<OpenRow>, String> {
        let mut rows = OPEN.map(|subject| OpenRow { subject, rounds: Vec::new() });
        for round in 0..self.plan.rounds {
            eprintln!("open loops: round {} of {}", round + 1, self.plan.rounds);
            for turn in turns(round, rows.len()) {
                let row = &mut rows[turn];
                // Two cores are one too few: the store is in the way of the node or of the generator, which then begins its calls late
                // and counts that as their latency. Both are measured.
                let (subject, place) = match row.subject {
                    Subject::NodeAside => (Subject::Node, Place::Generator),
                    other => (other, Place::Server),
                };
                self.store.bring(self.cores, place);
                let (counts, latency) = self.asked(subject, OPEN_CASE, round, |calls| {
                    generator::open(calls, FEW, rate, self.plan.span)
                })?;
                row.rounds.push(OpenRound { counts, latency });
            }
        }
        Ok(rows.into())
    }

    /// The plain client runs where the node does, so that the store has the same neighbour.
    fn plain(&self, case: Case, round: usize) -> Result<Counts, String> {
        let calls = self.plain.iter().find(|(recorded, _)| *recorded == case).map(|(_, calls)| calls);
        let calls = calls.ok_or_else(|| format!("nothing was written down of `{}`", case.domain()))?;
        let first = round * calls.len() / self.plan.rounds;
        let run = || plain::run(&self.store, calls, first, self.plan.span);
        Cores::on(self.cores, Place::Server, run)
            .map_err(|error| format!("{}: {error}", Subject::Plain.word()))
    }

    /// A turn of one subject. Where it is a node, it has to have counted the same calls.
    fn asked<T: Made>(
        &self,
        subject: Subject,
        case: Case,
        round: usize,
        ask: impl FnOnce(&Calls<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let requests = self.requests.iter().find(|(known, _)| *known == case).map(|(_, requests)| requests);
        let requests = requests.ok_or_else(|| format!("no calls of `{}`", case.domain()))?;
        self.asked_for(subject, case, requests, round * requests.len() / self.plan.rounds, ask)
    }

    /// The same of other requests, beginning with the one of this number.
    fn asked_for<T: Made>(
        &self,
        subject: Subject,
        case: Case,
        requests: &Requests,
        first: usize,
        ask: impl FnOnce(&Calls<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let server = self.servers.iter().find(|(known, _)| *known == subject).map(|(_, server)| server);
        let server = server.ok_or_else(|| format!("{} was not started", subject.word()))?;
        let has_store = matches!(subject, Subject::Node | Subject::Reference);
        let used = || {
            let mut used = Used { server_cpu_ns: server.cpu_ns()?, ..Used::default() };
            if has_store {
                (used.store_cpu_ns, used.store_calls) = (self.store.cpu_ns()?, self.store.calls()?);
            }
            Ok(used)
        };
        let calls = Calls { address: server.address, requests, first, used: &used };
        accounted(server.metrics, || ask(&calls))
            .map_err(|trouble| format!("{}, `{}`: {trouble}", subject.word(), case.domain()))
    }
}

/// Half of what the node answered in a second of the wall, in the median round.
fn half_rate(closed: &[ClosedRow]) -> u32 {
    let mut node = closed
        .iter()
        .filter(|row| row.subject == Subject::Node && row.case == OPEN_CASE && row.load == Some(FEW));
    let rate = median(node.by_ref().flat_map(|row| &row.rounds).map(Counts::per_s));
    ((rate / 2.0) as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_the_load_is_half_of_what_the_node_did() {
        let row = |subject, case, load, calls: &[u64]| ClosedRow {
            subject,
            case,
            load,
            rounds: calls
                .iter()
                .map(|&calls| Counts { calls, wall_ns: 1_000_000_000, ..Counts::default() })
                .collect(),
        };
        let rows = [
            row(Subject::Plain, OPEN_CASE, None, &[1]),
            row(Subject::Node, OPEN_CASE, Some(FEW), &[10_000, 30_000, 20_000]),
            row(Subject::Node, OPEN_CASE, Some(MANY), &[1]),
            row(Subject::Node, Case::Refused, Some(FEW), &[1]),
        ];
        assert_eq!(half_rate(&rows), 10_000);
    }
}
