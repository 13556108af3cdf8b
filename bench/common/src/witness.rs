//! A closed loop that remembers every call: which it was, when it was sent, when its answer was here and what that said. For those who ask
//! what was admitted when, or how long calls took.

use std::time::Duration;

use tidegate_clock::Stopwatch;

use crate::client::{Client, Connection, Outcome};
use crate::generator::{Calls, DRAIN_MAX, Swarm, WAIT_MAX};
use crate::plan::Load;
use crate::results::Latency;
use crate::single::Single;
use crate::tally::Tally;
use crate::windows::Admission;

/// More than any load makes in the time that it is watched.
const SEEN_MAX: usize = 20_000_000;

/// A call that was made. Times are on the clock that was given.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Seen {
    /// Which of the requests, from the first on.
    pub number: usize,
    /// A moment before it was sent.
    pub sent_ns: u64,
    /// A moment after its answer was here.
    pub answered_ns: u64,
    /// What that said.
    pub outcome: Outcome,
}

/// Until when a load is kept up: what comes first.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Until {
    /// Shown by the clock that was given.
    pub time: Duration,
    /// So many calls were made.
    pub calls: usize,
}

impl Until {
    /// Until the clock shows this.
    pub fn time(time: Duration) -> Self {
        Self { time, calls: usize::MAX }
    }
}

/// Keeps a load up until then, and waits for what is in flight. Nothing is left out.
pub fn watch(calls: &Calls<'_>, load: Load, watch: &Stopwatch, until: Until) -> Result<Vec<Seen>, String> {
    match calls.requests.speech().path() {
        Some(_) => watch_by::<Client>(calls, load, watch, until),
        None => watch_by::<Single>(calls, load, watch, until),
    }
}

fn watch_by<C: Connection>(
    calls: &Calls<'_>,
    load: Load,
    watch: &Stopwatch,
    until: Until,
) -> Result<Vec<Seen>, String> {
    let mut swarm = Swarm::<C>::connect(calls, load)?;
    let mut all: Vec<Seen> = Vec::new();
    loop {
        let now = watch.elapsed();
        let (sent_ns, is_over) = (now.as_nanos() as u64, now >= until.time || all.len() >= until.calls);
        if is_over && swarm.in_flight() == 0 {
            return Ok(all);
        }
        if now > until.time + DRAIN_MAX || all.len() > SEEN_MAX {
            return Err(format!("{} calls have not ended in {DRAIN_MAX:?}", swarm.in_flight()));
        }
        for client in swarm.clients.iter_mut().filter(|_| !is_over) {
            while client.in_flight() < load.streams && all.len() < until.calls {
                let number = calls.first + all.len();
                if !client.begin(calls.requests.get(number), all.len() as u64) {
                    break;
                }
                all.push(Seen { number, sent_ns, answered_ns: u64::MAX, outcome: Outcome::Failed });
            }
        }
        swarm.turn(WAIT_MAX, |ended| {
            let seen = &mut all[ended.mark as usize];
            (seen.outcome, seen.answered_ns) = (ended.outcome, watch.elapsed().as_nanos() as u64);
        })?;
    }
}

/// What became of them.
pub fn tally(all: &[Seen]) -> Tally {
    let mut tally = Tally::default();
    for seen in all {
        tally.add(seen.outcome);
    }
    tally
}

/// How long those took that were sent from then on.
pub fn latency(all: &[Seen], from_ns: u64) -> Latency {
    let took = all.iter().filter(|seen| seen.sent_ns >= from_ns).map(|seen| seen.answered_ns - seen.sent_ns);
    Latency::of(&mut took.collect::<Vec<_>>(), &mut [])
}

/// Those of a request that were let through, counted or not, where there are so many requests.
pub fn admissions(all: &[Seen], requests: usize, of: usize) -> Vec<Admission> {
    let admitted = |seen: &&Seen| seen.number % requests == of && seen.outcome == Outcome::Admitted;
    let admission = |seen: &Seen| Admission { sent_ns: seen.sent_ns, answered_ns: seen.answered_ns };
    all.iter().filter(admitted).map(admission).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_told_by_request_and_by_outcome() {
        let seen = |number, sent_ns, outcome| Seen { number, sent_ns, answered_ns: sent_ns + 10, outcome };
        let all = [
            seen(0, 0, Outcome::Admitted),
            seen(1, 5, Outcome::Admitted),
            seen(2, 7, Outcome::Refused),
            seen(4, 9, Outcome::Admitted),
        ];
        let of_first = [Admission { sent_ns: 0, answered_ns: 10 }, Admission { sent_ns: 9, answered_ns: 19 }];
        assert_eq!(admissions(&all, 2, 0), of_first);
        assert_eq!(tally(&all), Tally { allowed: 3, refused: 1, ..Tally::default() });
        assert_eq!(latency(&all, 6).p99_ns, 10);
    }
}
