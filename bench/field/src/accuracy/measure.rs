//! Everybody in turn, with the same keys and the same limit.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_bench_common::accounting::{Trouble, accounted};
use tidegate_bench_common::generator::{Calls, Used};
use tidegate_bench_common::machine;
use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::plan::{FEW, Load, MANY};
use tidegate_bench_common::process::Process;
use tidegate_bench_common::requests::Requests;
use tidegate_bench_common::store::Store;
use tidegate_bench_common::windows::{Admission, at_least, at_most};
use tidegate_bench_common::witness::{self, Seen, Until};
use tidegate_clock::{Clock, Stopwatch};
use tidegate_core::{Limit, Micros};

use super::results::{Admitted, FAILED_PERCENT_MAX, Missing, Results, Row};
use crate::peers::{self, Install, Peer, Room, Rule, Site};
use crate::plan::{self, Extent};
use crate::subject::Subject;
use crate::wait::wait;

/// Everybody is asked for these at the same time, each far above its limit.
const KEYS: usize = 4;
/// Before the end of a window, so that also a slow server spends all of it; and after, for the next.
const BURST_BEFORE: Duration = Duration::from_millis(200);
const BURST_AFTER: Duration = Duration::from_millis(300);
const WINDOW: Duration = Duration::from_secs(1);

struct Plan {
    /// How long it is asked without a pause.
    steady: Duration,
    /// How many bursts.
    edges: usize,
    install: Install,
}

impl Plan {
    fn of(extent: Extent) -> Self {
        let (steady_ms, edges, install) = match extent {
            Extent::Smoke => (300, 0, Install::No),
            Extent::Quick => (2_500, 2, Install::Yes),
            Extent::Usual | Extent::Full => (5_000, 5, Install::Yes),
        };
        Self { steady: Duration::from_millis(steady_ms), edges, install }
    }
}

/// Asks everybody who refuses at all.
pub(crate) fn all(extent: Extent) -> Result<Results, String> {
    let (plan, cores) = (Plan::of(extent), Cores::find());
    let machine = format!("{} cores of {}, {}", machine::cores(), machine::cpu(), machine::kernel());
    let store = Store::start(cores)?;
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for peer in peers::ALL.iter().filter(|peer| peer.refuses()) {
        eprintln!("{}", peer.title());
        match one(*peer, extent, &plan, cores, &store) {
            Ok(row) => rows.push(row),
            Err(Trouble::Sums(reason)) => return Err(format!("{}: {reason}", peer.title())),
            Err(Trouble::Work(reason)) => missing.push(Missing { title: peer.title().into(), reason }),
        }
    }
    if !rows.iter().any(|row| row.is_ours) {
        let reasons = missing.iter().map(|missing| format!("{}: {}", missing.title, missing.reason));
        return Err(reasons.collect::<Vec<_>>().join("\n"));
    }
    let (amount, window_s) = (Rule::Tight.amount(), Rule::Tight.seconds());
    Ok(Results { extent, machine, amount, window_s, rows, missing })
}

fn one(
    peer: &'static dyn Peer,
    extent: Extent,
    plan: &Plan,
    cores: Option<Cores>,
    store: &Store,
) -> Result<Row, Trouble> {
    store.flush()?;
    let site = Site { program: &PathBuf::new(), cores, store, keys: 1_000, room: Room::Usual };
    let once = plan::Plan { starts: 1, ..plan::Plan::of(extent) };
    let (subject, found) = Subject::start(peer, &once, plan.install, &site)?;
    let asker = Asker { peer, process: &subject.process, failed: Cell::new(0) };
    let steady = asker.steady(plan.steady)?;
    let mut edges = Vec::new();
    for number in 0..plan.edges {
        edges.push(asker.edge(number)?);
    }
    let is_ours = peer.word().starts_with("tidegate");
    let bound = if is_ours { Some(bound()?) } else { None };
    Ok(Row {
        word: peer.word().into(),
        title: peer.title().into(),
        version: found.version,
        algorithm: peer.algorithm().into(),
        is_ours,
        promised: promised(peer.algorithm(), bound),
        bound,
        command: Some(found.command),
        failed: Some(asker.failed.get()),
        steady,
        edges,
    })
}

/// By how many units the default algorithm may be off at worst for the limit that everybody has.
fn bound() -> Result<u32, String> {
    let window = Micros::from_secs(Rule::Tight.seconds().into());
    let limit = Limit::sliding_window(Rule::Tight.amount().into(), window);
    limit.map(|limit| limit.bound_max().over).map_err(|error| format!("no such limit: {error}"))
}

/// What an algorithm may admit in a window at most, as a multiple of the limit, where its burst is the limit too. Ours says itself by how
/// much it may be off.
fn promised(algorithm: &str, bound: Option<u32>) -> Option<f64> {
    if let Some(bound) = bound {
        return Some(1.0 + f64::from(bound) / f64::from(Rule::Tight.amount()));
    }
    let has = |word: &str| algorithm.to_lowercase().contains(word);
    ["fixed window", "bucket", "gcra"].iter().any(|word| has(word)).then_some(2.0)
}

struct Asker<'a> {
    peer: &'a dyn Peer,
    process: &'a Process,
    /// Calls that failed so far.
    failed: Cell<u64>,
}

impl Asker<'_> {
    /// A few keys without a pause.
    fn steady(&self, lasts: Duration) -> Result<Vec<Admitted>, Trouble> {
        let mut requests = self.requests();
        for key in 0..KEYS {
            self.peer.push(&mut requests, Rule::Tight, &format!("steady-{key}"), 1);
        }
        let watch = Stopwatch::start();
        let seen = self.ask(&requests, &watch, lasts)?;
        Ok((0..KEYS).map(|key| admitted(&of(&seen, key), lasts)).collect())
    }

    /// One call at the beginning of a second, for those whose windows begin with the first call as for those who go by the clock; then
    /// nothing until shortly before its end.
    fn edge(&self, number: usize) -> Result<Admitted, Trouble> {
        let mut requests = self.requests();
        self.peer.push(&mut requests, Rule::Tight, &format!("edge-{number}"), 1);
        let clock = Clock::real();
        let into_second = || Duration::from_micros(clock.wall_now_us() % 1_000_000);
        wait(WINDOW - into_second());
        let watch = Stopwatch::start();
        let mut seen = self.call_once(&requests, &watch)?;
        wait((WINDOW - BURST_BEFORE).saturating_sub(watch.elapsed()));
        seen.extend(self.ask(&requests, &watch, WINDOW + BURST_AFTER)?);
        Ok(admitted(&seen, watch.elapsed()))
    }

    fn requests(&self) -> Requests {
        Requests::of(self.peer.speech())
    }

    /// A connection of HTTP/1.1 or RESP has one call at a time.
    fn load(&self) -> Load {
        if self.peer.speech().path().is_some() { FEW } else { MANY }
    }

    fn ask(&self, requests: &Requests, watch: &Stopwatch, until: Duration) -> Result<Vec<Seen>, Trouble> {
        let seen = self.watched(requests, self.load(), watch, Until::time(until))?;
        let tally = witness::tally(&seen);
        if tally.failed * 100 > tally.calls() * FAILED_PERCENT_MAX || tally.degraded > 0 {
            return Err(Trouble::Work(format!("{tally}: nothing to compare")));
        }
        Ok(seen)
    }

    fn call_once(&self, requests: &Requests, watch: &Stopwatch) -> Result<Vec<Seen>, Trouble> {
        let load = Load { connections: 1, streams: 1 };
        self.watched(requests, load, watch, Until { time: watch.elapsed() + WINDOW / 2, calls: 1 })
    }

    /// Where it is a node, it has to have counted the same calls.
    fn watched(
        &self,
        requests: &Requests,
        load: Load,
        watch: &Stopwatch,
        until: Until,
    ) -> Result<Vec<Seen>, Trouble> {
        let used = || Ok(Used::default());
        let calls = Calls { address: self.process.address, requests, first: 0, used: &used };
        let seen = accounted(self.process.metrics, || witness::watch(&calls, load, watch, until))?;
        self.failed.set(self.failed.get() + witness::tally(&seen).failed);
        Ok(seen)
    }
}

/// What was seen of one of the keys.
fn of(seen: &[Seen], key: usize) -> Vec<Seen> {
    seen.iter().filter(|seen| seen.number % KEYS == key).copied().collect()
}

fn admitted(seen: &[Seen], wall: Duration) -> Admitted {
    let admissions: Vec<Admission> = witness::admissions(seen, 1, 0);
    let window_ns = WINDOW.as_nanos() as u64;
    Admitted {
        asked: seen.len() as u64,
        admitted: admissions.len() as u64,
        wall_ns: wall.as_nanos() as u64,
        at_least: at_least(&admissions, window_ns),
        at_most: at_most(&admissions, window_ns),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_bench_common::client::Outcome;

    use super::*;

    #[test]
    fn what_an_algorithm_promises_is_known() {
        for (algorithm, bound, most) in [
            ("sliding window (the default)", Some(48), Some(1.048)),
            ("sliding window (the default)", Some(0), Some(1.0)),
            ("fixed window", None, Some(2.0)),
            ("GCRA, burst of the limit", None, Some(2.0)),
            ("leaky bucket", None, Some(2.0)),
            ("sliding window of somebody", None, None),
            ("who knows", None, None),
        ] {
            assert_eq!(promised(algorithm, bound), most, "{algorithm}");
        }
        // As docs/algorithms.md has it of a limit of 1000.
        assert_eq!(bound(), Ok(48));
    }

    #[test]
    fn only_admissions_of_one_key_are_counted() {
        let seen: Vec<Seen> = (0..8)
            .map(|number| Seen {
                number,
                sent_ns: number as u64,
                answered_ns: number as u64 + 1,
                outcome: if number < 4 { Outcome::Admitted } else { Outcome::Refused },
            })
            .collect();
        let first = admitted(&of(&seen, 0), WINDOW);
        assert_eq!((first.asked, first.admitted, first.at_least, first.at_most), (2, 1, 1, 1));
    }
}
