//! Everybody in turn, and ours before and after each of them.

use tidegate_bench_common::accounting::{Made, Trouble};
use tidegate_bench_common::figures::median;
use tidegate_bench_common::generator::{self, Calls, Used};
use tidegate_bench_common::pin::{Cores, Place as Core};
use tidegate_bench_common::plain;
use tidegate_bench_common::plan::{Load, Span, turns};
use tidegate_bench_common::relay::Relay;
use tidegate_bench_common::requests::Requests;
use tidegate_bench_common::results::Counts;
use tidegate_bench_common::store::Store;
use tidegate_clock::Stopwatch;

use crate::machine::Machine;
use crate::peers::{self, Family, Install, Peer, Room, Site};
use crate::plan::{Extent, Pace, Plan, Press};
use crate::results::{ClosedTurn, Missing, OpenTurn, PeerRow, Place, Results};
use crate::subject::{Subject, fill, shares_requests, timed_requests};

/// The script calls of a node, sent by a client that does nothing else: what Redis can do at most. It is no server.
pub(crate) const PLAIN: &str = "plain";
/// How many calls of the node are written down for it.
const RECORDED: usize = 5_000;
const ONE: Load = Load { connections: 1, streams: 1 };

/// Measures all that the plan names.
pub(crate) fn all(plan: &Plan) -> Result<Results, String> {
    let (watch, machine) = (Stopwatch::start(), Machine::here());
    let cores = Cores::find();
    let store = Store::start(cores)?;
    let machine = machine.with(&store)?.with_go();
    let mut results = Results {
        extent: plan.extent,
        machine,
        took_s: None,
        keys: plan.keys,
        rounds: plan.rounds,
        peers: Vec::new(),
        missing: Vec::new(),
        broken: Vec::new(),
        closed: Vec::new(),
        open: Vec::new(),
    };
    let mut turns_before = 0;
    for families in plan.groups {
        let mut bench = Bench::start(plan, families, turns_before, cores, &store)?;
        turns_before += bench.round().len();
        let closed = bench.closed()?;
        results.open.extend(bench.open(&closed)?);
        results.closed.extend(closed);
        results.peers.extend(bench.rows);
        results.missing.extend(bench.missing);
        results.broken.extend(bench.broken);
    }
    results.took_s = Some(watch.elapsed().as_secs());
    Ok(results)
}

struct Bench<'a> {
    plan: &'a Plan,
    /// How many turns of a round others had before.
    turns_before: usize,
    cores: Option<Cores>,
    store: &'a Store,
    subjects: Vec<Subject>,
    rows: Vec<PeerRow>,
    missing: Vec<Missing>,
    broken: Vec<String>,
    /// What each is asked, by who was the first with it.
    requests: Vec<(&'static dyn Peer, Requests)>,
    /// What a node asks the store, one request in each.
    recorded: Vec<Vec<u8>>,
}

/// Who has a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// The subject of this number.
    Subject(usize),
    Plain,
}

impl<'a> Bench<'a> {
    fn start(
        plan: &'a Plan,
        families: &[Family],
        turns_before: usize,
        cores: Option<Cores>,
        store: &'a Store,
    ) -> Result<Self, String> {
        let install = if plan.extent == Extent::Smoke { Install::No } else { Install::Yes };
        let (none, subjects) = (std::path::PathBuf::new(), Vec::new());
        let mut bench = Self {
            plan,
            turns_before,
            cores,
            store,
            subjects,
            rows: Vec::new(),
            missing: Vec::new(),
            broken: Vec::new(),
            requests: Vec::new(),
            recorded: Vec::new(),
        };
        for &peer in peers::ALL.iter().filter(|peer| families.contains(&peer.family())) {
            eprintln!("{}: started, and asked for too much", peer.title());
            let site = Site { program: &none, cores, store, keys: plan.keys, room: Room::Usual };
            let started = Subject::start(peer, plan, install, &site)
                .and_then(|(subject, row)| bench.filled(&subject, row).map(|row| (subject, row)));
            match started {
                Ok((subject, row)) => {
                    bench.subjects.push(subject);
                    bench.rows.push(row);
                }
                // Without ours there is nothing to compare with.
                Err(trouble) if peer.word() == peer.family().ours() => return Err(trouble.into()),
                Err(Trouble::Sums(reason)) => return Err(reason),
                Err(Trouble::Work(reason)) => {
                    eprintln!("{} is left out: {reason}", peer.title());
                    bench.missing.push(Missing { peer: peer.word().into(), reason });
                }
            }
        }
        bench.record()?;
        Ok(bench)
    }

    fn filled(&mut self, subject: &Subject, mut row: PeerRow) -> Result<PeerRow, Trouble> {
        if !self.requests.iter().any(|(first, _)| shares_requests(*first, subject.peer)) {
            self.requests.push((subject.peer, timed_requests(subject.peer, self.plan.keys)));
        }
        let load = Press::Full.load(subject.peer.speech());
        fill(subject, self.store, self.requests_of(subject.peer)?, load)?;
        row.rss_bytes = subject.process.rss_bytes()?;
        Ok(row)
    }

    fn requests_of(&self, peer: &dyn Peer) -> Result<&Requests, String> {
        let found = self.requests.iter().find(|(first, _)| shares_requests(*first, peer));
        found.map(|(_, requests)| requests).ok_or_else(|| format!("no requests for {}", peer.word()))
    }

    /// Has a second node, which shares the first one's counters, ask for some callers once more, one call after the other.
    fn record(&mut self) -> Result<(), String> {
        let Some(ours) = self.subjects.iter().find(|it| it.peer.word() == Family::Redis.ours()) else {
            return Ok(());
        };
        eprintln!("what Tidegate asks Redis is written down");
        let relay = Relay::start(self.store.server().address())?;
        let program = std::path::PathBuf::new();
        let site = Site {
            program: &program,
            cores: self.cores,
            store: self.store,
            keys: self.plan.keys,
            room: Room::Usual,
        };
        let url = format!("redis://{}", relay.address);
        let node = peers::ours::start_on("the node that is written down", &site, &url)?;
        let requests = self.requests_of(ours.peer)?;
        relay.script_calls()?; // What is not about this.
        let used = || Ok(Used::default());
        let calls = Calls { address: node.address, requests, first: 0, used: &used };
        let count = requests.len().min(RECORDED);
        generator::closed(&calls, ONE, Span::NONE, Some(count as u64))?;
        self.recorded = relay.script_calls()?;
        if self.recorded.len() != count {
            let scripts = self.recorded.len();
            return Err(format!("{scripts} scripts for {count} requests: nothing to compare with"));
        }
        Ok(())
    }

    /// A round: in each family ours, a peer, ours, the next, and ours.
    fn round(&self) -> Vec<Turn> {
        let peers: Vec<&dyn Peer> = self.subjects.iter().map(|subject| subject.peer).collect();
        round_of(&peers, !self.recorded.is_empty())
    }

    fn closed(&mut self) -> Result<Vec<ClosedTurn>, String> {
        let (order, mut done) = (self.round(), Vec::new());
        for round in 0..self.plan.rounds {
            for press in Press::ALL {
                eprintln!("closed loops: round {} of {}, {press:?}", round + 1, self.plan.rounds);
                for (turn, at) in turns(round, order.len()).enumerate() {
                    let (peer, counts) = match order[at] {
                        Turn::Plain if press == Press::Many => continue, // It has one connection.
                        Turn::Plain => (PLAIN, self.plain(round)),
                        Turn::Subject(at) => {
                            let subject = &self.subjects[at];
                            let load = press.load(subject.peer.speech());
                            let ask =
                                |calls: &Calls<'_>| generator::closed(calls, load, self.plan.span, None);
                            (subject.peer.word(), self.asked(subject, round, ask))
                        }
                    };
                    let place = Place { round, turn: self.turns_before + turn };
                    match counts {
                        Ok(counts) => done.push(ClosedTurn { peer: peer.into(), press, place, counts }),
                        Err(trouble) => self.broke(trouble)?,
                    }
                }
            }
        }
        Ok(done)
    }

    fn open(&mut self, closed: &[ClosedTurn]) -> Result<Vec<OpenTurn>, String> {
        let order = self.round();
        let mut done = Vec::new();
        for round in 0..self.plan.rounds {
            for pace in Pace::ALL {
                eprintln!("open loops: round {} of {}, at {} %", round + 1, self.plan.rounds, pace.percent());
                for (turn, at) in turns(round, order.len()).enumerate() {
                    let Turn::Subject(at) = order[at] else { continue };
                    let subject = &self.subjects[at];
                    let word = subject.peer.word();
                    let Some(rate) = rate(closed, word, pace) else { continue };
                    let load = Press::Full.load(subject.peer.speech());
                    let ask = |calls: &Calls<'_>| generator::open(calls, load, rate, self.plan.span);
                    let place = Place { round, turn: self.turns_before + turn };
                    match self.asked(subject, round, ask) {
                        Ok((counts, latency)) => {
                            done.push(OpenTurn { peer: word.into(), pace, rate, place, counts, latency });
                        }
                        Err(trouble) => self.broke(trouble)?,
                    }
                }
            }
        }
        Ok(done)
    }

    fn asked<T: Made>(
        &self,
        subject: &Subject,
        round: usize,
        ask: impl FnOnce(&Calls<'_>) -> Result<T, String>,
    ) -> Result<T, Trouble> {
        let requests = self.requests_of(subject.peer)?;
        subject.asked(self.store, requests, round * requests.len() / self.plan.rounds, ask)
    }

    /// The plain client runs where the servers do, so that Redis has the same neighbour.
    fn plain(&self, round: usize) -> Result<Counts, Trouble> {
        let first = round * self.recorded.len() / self.plan.rounds;
        let run = || plain::run(self.store, &self.recorded, first, self.plan.span);
        Cores::on(self.cores, Core::Server, run)
            .map_err(|error| Trouble::Work(format!("the plain client: {error}")))
    }

    /// A turn that went wrong is left out; where the sums differ there is no run.
    fn broke(&mut self, trouble: Trouble) -> Result<(), String> {
        match trouble {
            Trouble::Sums(reason) => Err(reason),
            Trouble::Work(reason) => {
                eprintln!("a turn is left out: {reason}");
                self.broken.push(reason);
                Ok(())
            }
        }
    }
}

fn round_of(peers: &[&dyn Peer], has_plain: bool) -> Vec<Turn> {
    let mut round = Vec::new();
    for family in Family::ALL {
        let all = || peers.iter().enumerate().filter(|(_, peer)| peer.family() == family);
        let is_ours = |peer: &dyn Peer| peer.word() == family.ours();
        let Some((ours, _)) = all().find(|(_, peer)| is_ours(**peer)) else { continue };
        let plain = (family == Family::Redis && has_plain).then_some(Turn::Plain);
        let others = all().filter(|(_, peer)| !is_ours(**peer)).map(|(at, _)| Turn::Subject(at));
        round.push(Turn::Subject(ours));
        for other in others.chain(plain) {
            round.extend([other, Turn::Subject(ours)]);
        }
    }
    round
}

/// A share of what somebody answered in a second of the wall in a closed loop, in the median round.
fn rate(closed: &[ClosedTurn], peer: &str, pace: Pace) -> Option<u32> {
    let turns = closed.iter().filter(|turn| turn.peer == peer && turn.press == Press::Full);
    let per_s = median(turns.map(|turn| turn.counts.per_s()));
    (per_s > 0.0).then(|| ((per_s * f64::from(pace.percent()) / 100.0) as u32).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_has_its_turn_just_before_and_just_after_each_of_the_others() {
        let peers = ["limitador", "tidegate", "bare", "tidegate_redis", "reference", "nginx"]
            .map(|word| peers::named(word).expect("a peer"));
        let [limitador, ours, bare, ours_redis, reference] = [0, 1, 2, 3, 4].map(Turn::Subject);
        let memory = [ours, limitador, ours, bare, ours];
        let redis = [ours_redis, reference, ours_redis];
        assert_eq!(
            round_of(&peers, false),
            [&memory[..], &redis].concat(),
            "who has none of ours beside it has no turn"
        );
        let with_plain = [&memory[..], &redis, &[Turn::Plain, ours_redis]].concat();
        assert_eq!(round_of(&peers, true), with_plain);
    }

    #[test]
    fn a_pace_is_a_share_of_what_the_same_server_did() {
        let turn = |peer: &str, press, calls| ClosedTurn {
            peer: peer.into(),
            press,
            place: Place { round: 0, turn: 0 },
            counts: Counts { calls, wall_ns: 1_000_000_000, ..Counts::default() },
        };
        let closed = [
            turn("a", Press::Full, 1_000),
            turn("a", Press::Full, 3_000),
            turn("a", Press::Full, 2_000),
            turn("a", Press::Many, 9_000),
            turn("b", Press::Full, 9_000),
        ];
        assert_eq!(rate(&closed, "a", Pace::Half), Some(1_000));
        assert_eq!(rate(&closed, "a", Pace::High), Some(1_600));
        assert_eq!(rate(&closed, "c", Pace::Half), None);
    }
}
