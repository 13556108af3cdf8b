//! Somebody who was found, started and seen refusing, and who can be called now.

use tidegate_bench_common::accounting::{Made, Trouble, accounted};
use tidegate_bench_common::generator::{self, Calls, Used};
use tidegate_bench_common::plan::{Load, Span};
use tidegate_bench_common::process::Process;
use tidegate_bench_common::requests::{Requests, shuffled};
use tidegate_bench_common::results::Counts;
use tidegate_bench_common::speech::Speech;
use tidegate_bench_common::store::Store;
use tidegate_clock::Stopwatch;

use crate::peers::{Family, Install, Peer, Rule, Site};
use crate::plan::Plan;
use crate::results::{PeerRow, Seen};

/// One call after the other.
const ONE: Load = Load { connections: 1, streams: 1 };
/// How many calls are in flight while somebody is to refuse.
const SEEN_IN_FLIGHT: usize = 16;
/// A machine that is busy with others may be too slow to exceed any limit; it is tried so many times.
const SEEN_TRIES: usize = 5;
/// Three times the limit: where windows are fixed, two of them may be met.
const SEEN_CALLS: u64 = 3;
/// How often somebody asks who has taken all.
const MORE: usize = 50;

/// A peer that serves. It ends when it is dropped.
pub(crate) struct Subject {
    pub(crate) peer: &'static dyn Peer,
    pub(crate) process: Process,
}

impl Subject {
    /// Finds it, starts it as often as the plan says, and sees it refuse. Otherwise it says why it is not to be timed.
    pub(crate) fn start(
        peer: &'static dyn Peer,
        plan: &Plan,
        install: Install,
        site: &Site<'_>,
    ) -> Result<(Self, PeerRow), Trouble> {
        let found = peer.find(install)?;
        let site = Site { program: &found.program, ..*site };
        let mut start_ns = Vec::new();
        let subject = loop {
            let watch = Stopwatch::start();
            let subject = Self { peer, process: peer.start(&site)? };
            // The address may be there before anybody answers.
            subject.first_answer(site.store)?;
            start_ns.push(watch.elapsed().as_nanos() as u64);
            if start_ns.len() >= plan.starts {
                break subject;
            }
        };
        let rss_start_bytes = subject.process.rss_bytes()?;
        let seen = subject.seen(site.store)?;
        let seen_timed = subject.seen_timed(site.store)?;
        let row = PeerRow {
            peer: peer.word().into(),
            version: found.version,
            command: subject.process.command.clone(),
            seen,
            seen_timed,
            start_ns,
            rss_start_bytes,
            rss_bytes: 0,
        };
        Ok((subject, row))
    }

    /// Calls it, beginning with the request of this number. Where it is a node, it has to have counted the same calls.
    pub(crate) fn asked<T: Made>(
        &self,
        store: &Store,
        requests: &Requests,
        first: usize,
        ask: impl FnOnce(&Calls<'_>) -> Result<T, String>,
    ) -> Result<T, Trouble> {
        let used = || {
            let mut used = Used { server_cpu_ns: self.process.cpu_ns()?, ..Used::default() };
            if self.peer.family() == Family::Redis {
                (used.store_cpu_ns, used.store_calls) = (store.cpu_ns()?, store.calls()?);
            }
            Ok(used)
        };
        let calls = Calls { address: self.process.address, requests, first, used: &used };
        accounted(self.process.metrics, || ask(&calls)).map_err(|trouble| trouble.of(self.peer.title()))
    }

    fn first_answer(&self, store: &Store) -> Result<(), Trouble> {
        let requests = callers(self.peer, Rule::Wide, [("first".into(), 1)]);
        self.asked(store, &requests, 0, |calls| generator::closed(calls, ONE, Span::NONE, Some(1))).map(drop)
    }

    /// One caller asks for more than its limit until it is refused.
    fn seen(&self, store: &Store) -> Result<Option<Seen>, Trouble> {
        let (amount, mut last) = (u64::from(Rule::Tight.amount()), None);
        let load = match self.peer.speech().path() {
            Some(_) => Load { connections: 1, streams: SEEN_IN_FLIGHT },
            None => Load { connections: SEEN_IN_FLIGHT, streams: 1 },
        };
        for attempt in 0..SEEN_TRIES {
            let requests = callers(self.peer, Rule::Tight, [(format!("seen-{attempt}"), 1)]);
            let calls_max = Some(amount * SEEN_CALLS);
            let counts = self
                .asked(store, &requests, 0, |calls| generator::closed(calls, load, Span::NONE, calls_max))?;
            let seen = Seen {
                asked: counts.calls,
                admitted: counts.calls - counts.refused,
                wall_ns: counts.wall_ns,
            };
            if !self.peer.refuses() {
                let is_fixed = counts.refused == 0;
                return if is_fixed {
                    Ok(None)
                } else {
                    Err("it refuses, and should not".to_string().into())
                };
            }
            if refuses_at(amount, seen) {
                return Ok(Some(seen));
            }
            last = Some(seen);
        }
        Err(format!("it was not seen refusing at its limit of {amount} in a second, but {last:?}").into())
    }

    /// One of the callers by whom it will be timed takes all of the limit that will count then, and asks for more. That takes a request for
    /// many units: nobody could ask a million times.
    fn seen_timed(&self, store: &Store) -> Result<Option<Seen>, Trouble> {
        if !self.peer.refuses() || !self.peer.knows_cost() {
            return Ok(None);
        }
        let all = (timed_caller(0), Rule::Wide.amount());
        let more = std::iter::repeat_n((timed_caller(0), 1), MORE);
        let requests = callers(self.peer, Rule::Wide, std::iter::once(all).chain(more));
        let calls_max = Some(requests.len() as u64);
        let counts =
            self.asked(store, &requests, 0, |calls| generator::closed(calls, ONE, Span::NONE, calls_max))?;
        let (asked, wall_ns) = (counts.calls, counts.wall_ns);
        let seen = Seen { asked, admitted: asked - counts.refused, wall_ns };
        if refuses_behind_all(seen) {
            Ok(Some(seen))
        } else {
            Err(format!("one of the callers by whom it was to be timed took all of its limit and asked for more: {seen:?}").into())
        }
    }
}

/// Who took all is admitted; behind that nobody is, but for what comes back meanwhile.
fn refuses_behind_all(seen: Seen) -> bool {
    let (amount, seconds) = (f64::from(Rule::Wide.amount()), f64::from(Rule::Wide.seconds()));
    let refilled = amount / seconds * seen.wall_ns as f64 / 1e9;
    seen.admitted >= 1 && seen.admitted < seen.asked && seen.admitted as f64 <= 2.0 + refilled
}

fn timed_caller(number: u32) -> String {
    format!("user-{number:08}")
}

/// All of the limit is admitted, and not more than two windows and what comes back meanwhile.
fn refuses_at(amount: u64, seen: Seen) -> bool {
    let refilled = amount as f64 * seen.wall_ns as f64 / 1e9;
    let most = (amount * 2) as f64 + refilled;
    seen.admitted >= amount && seen.admitted < seen.asked && seen.admitted as f64 <= most
}

/// What a peer is asked while it is timed: the wide limit, one request for each caller, in an order that no cache can guess.
pub(crate) fn timed_requests(peer: &dyn Peer, keys: u32) -> Requests {
    requests_of(peer, &shuffled(keys))
}

/// The same of some of the callers, by their numbers.
pub(crate) fn requests_of(peer: &dyn Peer, numbers: &[u32]) -> Requests {
    callers(peer, Rule::Wide, numbers.iter().map(|caller| (timed_caller(*caller), peer.timed_cost())))
}

/// A request for each of them, for so many units.
fn callers(peer: &dyn Peer, rule: Rule, callers: impl IntoIterator<Item = (String, u32)>) -> Requests {
    let mut requests = Requests::of(peer.speech());
    for (caller, cost) in callers {
        peer.push(&mut requests, rule, &caller, cost);
    }
    requests
}

/// Those who are sent the same bytes share them.
pub(crate) fn shares_requests(peer: &dyn Peer, other: &dyn Peer) -> bool {
    peer.word() == other.word() || (peer.speech() == Speech::Rls && other.speech() == Speech::Rls)
}

/// Every caller once, so that its counter is there.
pub(crate) fn fill(
    subject: &Subject,
    store: &Store,
    requests: &Requests,
    load: Load,
) -> Result<Counts, Trouble> {
    let calls_max = Some(requests.len() as u64);
    subject.asked(store, requests, 0, |calls| generator::closed(calls, load, Span::NONE, calls_max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_refuses_too_early_too_late_or_never_is_not_timed() {
        let seen = |admitted, wall_ns| Seen { asked: 3_000, admitted, wall_ns };
        for (admitted, wall_ns, is_timed) in [
            (1_000, 100_000_000, true),
            (2_000, 100_000_000, true), // Two windows.
            (1_100, 100_000_000, true), // A bucket that is filled again.
            (999, 100_000_000, false),
            (2_200, 100_000_000, false),
            (3_000, 5_000_000_000, false),
        ] {
            assert_eq!(refuses_at(1_000, seen(admitted, wall_ns)), is_timed, "{admitted}");
        }
    }

    #[test]
    fn who_admits_behind_all_of_a_limit_is_not_timed() {
        let seen = |admitted, wall_ns| Seen { asked: 51, admitted, wall_ns };
        for (admitted, wall_ns, is_timed) in [
            (1, 10_000_000, true),
            (4, 10_000_000, true), // Two and what a bucket has again in 10 ms.
            (0, 10_000_000, false),
            (6, 10_000_000, false),
            (51, 10_000_000_000, false),
        ] {
            assert_eq!(refuses_behind_all(seen(admitted, wall_ns)), is_timed, "{admitted}");
        }
    }

    #[test]
    fn those_who_speak_one_protocol_are_sent_the_same_bytes() {
        // Whether it is installed or not; who cannot be had at all is sent nothing.
        let others = crate::peers::ALL.iter().filter(|peer| peer.word() != "gubernator");
        for peer in others.filter(|peer| peer.speech() == Speech::Rls) {
            let (ours, theirs) = (timed_requests(crate::peers::ALL[0], 10), timed_requests(*peer, 10));
            assert!((0..10).all(|number| ours.get(number) == theirs.get(number)), "{}", peer.word());
        }
    }
}
