//! Many connections on one thread, in a closed loop (a call that has ended is followed by the next) or an open one (calls begin when they
//! are due, whatever the server does, and what they take is counted from then on).

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::{ClockId, Timespec, clock_gettime};
use tidegate_clock::Stopwatch;

use crate::client::{Client, Connection, Ended};
use crate::plan::{Load, Span, after_others};
use crate::requests::Requests;
use crate::results::{Counts, Latency};
use crate::single::Single;
use crate::tally::Tally;

/// How long calls that are in flight at the end may take.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(5);
/// The longest that is waited for anything to happen; time is looked at after that.
pub(crate) const WAIT_MAX: Duration = Duration::from_millis(10);

/// Where the calls go, and which they are.
pub struct Calls<'a> {
    /// Where.
    pub address: SocketAddr,
    /// Which.
    pub requests: &'a Requests,
    /// The number of the first one, so that not every turn asks for the same.
    pub first: usize,
    /// What the server and its store have used so far.
    pub used: &'a dyn Fn() -> Result<Used, String>,
}

/// What a server and its store have used since they were started.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Used {
    /// Time of the processor, of all threads of the server.
    pub server_cpu_ns: u64,
    /// The same of its store, if it has one.
    pub store_cpu_ns: u64,
    /// How many scripts the store was asked to run.
    pub store_calls: u64,
}

/// Keeps a load up for a time; counts what ended while it was measured. With `calls_max` it ends after so many, however long that takes.
pub fn closed(calls: &Calls<'_>, load: Load, span: Span, calls_max: Option<u64>) -> Result<Counts, String> {
    match calls.requests.speech().path() {
        Some(_) => closed_by::<Client>(calls, load, span, calls_max),
        None => closed_by::<Single>(calls, load, span, calls_max),
    }
}

fn closed_by<C: Connection>(
    calls: &Calls<'_>,
    load: Load,
    span: Span,
    calls_max: Option<u64>,
) -> Result<Counts, String> {
    let mut swarm = Swarm::<C>::connect(calls, load)?;
    let (mut tally, mut before, mut next, mut meter) =
        (Tally::default(), Tally::default(), calls.first, None);
    let watch = Stopwatch::start();
    loop {
        let now = watch.elapsed();
        if meter.is_none() && now >= span.warm {
            meter = Some(Meter::start(calls)?);
            before = std::mem::take(&mut tally);
        }
        let is_over = match calls_max {
            Some(calls_max) => tally.calls() >= calls_max,
            // On a machine that is busy with others it may take a while until anything happens at all.
            None => now >= span.warm + span.measured && (tally.calls() > 0 || now >= DRAIN_MAX),
        };
        if let Some(meter) = meter.as_ref().filter(|_| is_over) {
            let counts = meter.counts(calls, &tally)?;
            let after = swarm.drain()?;
            return whole(before.plus(&tally).plus(&after), counts);
        }
        swarm.fill(calls, load, &mut next);
        swarm.turn(WAIT_MAX, |ended| tally.add(ended.outcome))?;
    }
}

/// Keeps a load up on several servers by turns, each for a moment; counts what each did in all its turns. What
/// disturbs the machine for longer than a few moments disturbs all of them alike. A turn ends when the last of its calls has: then the
/// server sleeps, and what it has used is known to the nanosecond.
pub fn by_turns(
    servers: &[Calls<'_>],
    load: Load,
    turn: Duration,
    rounds: usize,
) -> Result<Vec<Counts>, String> {
    let connect = |calls| Ok((Swarm::<Client>::connect(calls, load)?, calls.first, Counts::default()));
    let mut all = servers.iter().map(connect).collect::<Result<Vec<_>, String>>()?;
    // The first is for the connections: it is accounted for, and not measured.
    for round in 0..=rounds {
        for at in after_others(round, servers.len()) {
            let (calls, (swarm, next, counts)) = (&servers[at], &mut all[at]);
            let (meter, mut tally) = (Meter::start(calls)?, Tally::default());
            while meter.wall.elapsed() < turn || tally.calls() == 0 {
                swarm.fill(calls, load, next);
                swarm.turn(WAIT_MAX, |ended| tally.add(ended.outcome))?;
            }
            tally = tally.plus(&swarm.drain()?);
            let measured = meter.counts(calls, &tally)?;
            *counts = Counts {
                all: counts.all.plus(&tally),
                ..if round == 0 { *counts } else { counts.plus(&measured) }
            };
        }
    }
    all.into_iter().map(|(_, _, counts)| whole(counts.all, counts)).collect()
}

/// Calls so many times a second for a time; counts the calls that were due while it was measured, however late they end.
pub fn open(calls: &Calls<'_>, load: Load, rate: u32, span: Span) -> Result<(Counts, Latency), String> {
    match calls.requests.speech().path() {
        Some(_) => open_by::<Client>(calls, load, rate, span),
        None => open_by::<Single>(calls, load, rate, span),
    }
}

fn open_by<C: Connection>(
    calls: &Calls<'_>,
    load: Load,
    rate: u32,
    span: Span,
) -> Result<(Counts, Latency), String> {
    // A sleep that ends 50 µs late, as is usual, would be most of what is measured.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut swarm = Swarm::<C>::connect(calls, load)?;
    let due_ns = |number: u64| (u128::from(number) * 1_000_000_000 / u128::from(rate)) as u64;
    let (warm_ns, end_ns) = (span.warm.as_nanos() as u64, (span.warm + span.measured).as_nanos() as u64);
    let (mut tally, mut all) = (Tally::default(), Tally::default());
    let measured = span.measured.as_nanos() * u128::from(rate) / 1_000_000_000;
    let [mut took_ns, mut late_ns] = [(); 2].map(|()| room_for(measured as usize + 1));
    let (mut number, mut turn, mut meter) = (0, 0, None);
    let watch = Stopwatch::start();
    loop {
        let now_ns = watch.elapsed().as_nanos() as u64;
        if meter.is_none() && now_ns >= warm_ns {
            meter = Some(Meter::start(calls)?);
        }
        while due_ns(number) <= now_ns.min(end_ns) && swarm.has_room(load.streams, &mut turn) {
            let due_ns = due_ns(number);
            if !swarm.clients[turn].begin(calls.requests.get(calls.first + number as usize), due_ns) {
                break;
            }
            if due_ns >= warm_ns {
                late_ns.push(now_ns - due_ns);
            }
            (number, turn) = (number + 1, turn + 1);
        }
        let (all_begun, in_flight) = (due_ns(number) > end_ns, swarm.in_flight());
        if all_begun && in_flight == 0 {
            break;
        }
        if now_ns > end_ns + DRAIN_MAX.as_nanos() as u64 {
            return Err(format!("{in_flight} calls have not ended in {DRAIN_MAX:?}"));
        }
        // A call that is due and has no room gets it from an answer. To look for that all the time would take the core of whoever else is
        // on it, a store for one.
        let until_next = match due_ns(number).saturating_sub(now_ns) {
            0 => WAIT_MAX,
            _ if all_begun => WAIT_MAX,
            left_ns => Duration::from_nanos(left_ns),
        };
        swarm.turn(until_next.min(WAIT_MAX), |ended| {
            all.add(ended.outcome);
            if ended.mark >= warm_ns {
                tally.add(ended.outcome);
                took_ns.push((watch.elapsed().as_nanos() as u64).saturating_sub(ended.mark));
            }
        })?;
    }
    let meter = meter.ok_or("nothing was measured")?;
    let counts = whole(all, meter.counts(calls, &tally)?)?;
    Ok((counts, Latency::of(&mut took_ns, &mut late_ns)))
}

/// Room for so many times, which is there already: a list that grows while calls are due is copied, and the system clears pages for it, and
/// all calls wait for that.
fn room_for(times: usize) -> Vec<u64> {
    let mut room = vec![1; times]; // Not zero, which is only promised.
    room.clear();
    room
}

/// With all calls of a turn, of which none may have failed, also before or after what was measured.
fn whole(all: Tally, counts: Counts) -> Result<Counts, String> {
    if all.failed + all.degraded > 0 {
        return Err(format!("{all}, some of them before it was measured or after: nothing to compare"));
    }
    Ok(Counts { all, ..counts })
}

/// The clocks, when measuring began.
struct Meter {
    wall: Stopwatch,
    used: Used,
    generator_cpu_ns: u64,
}

impl Meter {
    fn start(calls: &Calls<'_>) -> Result<Self, String> {
        let used = (calls.used)()?;
        Ok(Self { wall: Stopwatch::start(), used, generator_cpu_ns: thread_cpu_ns() })
    }

    fn counts(&self, calls: &Calls<'_>, tally: &Tally) -> Result<Counts, String> {
        let wall_ns = self.wall.elapsed().as_nanos() as u64;
        let generator_cpu_ns = thread_cpu_ns() - self.generator_cpu_ns;
        let used = (calls.used)()?;
        if tally.failed + tally.degraded > 0 || tally.calls() == 0 {
            return Err(format!("{tally}: nothing to compare"));
        }
        Ok(Counts {
            calls: tally.calls(),
            refused: tally.refused,
            wall_ns,
            server_cpu_ns: used.server_cpu_ns.saturating_sub(self.used.server_cpu_ns),
            generator_cpu_ns,
            store_cpu_ns: used.store_cpu_ns.saturating_sub(self.used.store_cpu_ns),
            store_calls: used.store_calls.saturating_sub(self.used.store_calls),
            all: Tally::default(),
        })
    }
}

/// What this thread has used of its processor.
pub fn thread_cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// The connections.
pub(crate) struct Swarm<C> {
    pub(crate) clients: Vec<C>,
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl<C: Connection> Swarm<C> {
    pub(crate) fn connect(calls: &Calls<'_>, load: Load) -> Result<Self, String> {
        let connected = || -> io::Result<Self> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let mut clients = Vec::new();
            for number in 0..load.connections {
                let client = C::connect(calls.address, calls.requests.speech())?;
                epoll::add(&epoll, &client, EventData::new_u64(number as u64), EventFlags::IN)?;
                clients.push(client);
            }
            Ok(Self { clients, epoll, events: Vec::with_capacity(load.connections) })
        };
        connected().map_err(|error| format!("no connection to {}: {error}", calls.address))
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.clients.iter().map(Connection::in_flight).sum()
    }

    /// Begins as many calls as the load allows.
    fn fill(&mut self, calls: &Calls<'_>, load: Load, next: &mut usize) {
        for client in &mut self.clients {
            while client.in_flight() < load.streams && client.begin(calls.requests.get(*next), 0) {
                *next += 1;
            }
        }
    }

    /// Moves `turn` on to a connection with room for another call, if there is one.
    fn has_room(&self, streams: usize, turn: &mut usize) -> bool {
        let count = self.clients.len();
        let free =
            (0..count).map(|step| (*turn + step) % count).find(|at| self.clients[*at].in_flight() < streams);
        *turn = free.unwrap_or(0);
        free.is_some()
    }

    /// Sends what was begun, waits until something happens, and reads what came.
    pub(crate) fn turn(&mut self, wait: Duration, mut ended: impl FnMut(Ended)) -> Result<(), String> {
        let mut turn = || -> io::Result<()> {
            let mut wait = wait;
            for client in &mut self.clients {
                client.flush()?;
                if client.is_full() {
                    wait = Duration::ZERO; // The server does not read; it is tried again at once.
                }
            }
            let wait = Timespec { tv_sec: 0, tv_nsec: wait.as_nanos() as _ };
            self.events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &self.events {
                self.clients[event.data.u64() as usize].read(&mut ended)?;
            }
            Ok(())
        };
        turn().map_err(|error| format!("a connection broke: {error}"))
    }

    /// Waits for what is in flight, so that nobody's connection is cut in the middle of a call. Tells what became of it.
    fn drain(&mut self) -> Result<Tally, String> {
        let mut tally = Tally::default();
        let watch = Stopwatch::start();
        while self.in_flight() > 0 {
            if watch.elapsed() > DRAIN_MAX {
                return Err(format!("{} calls have not ended in {DRAIN_MAX:?}", self.in_flight()));
            }
            self.turn(WAIT_MAX, |ended| tally.add(ended.outcome))?;
        }
        Ok(tally)
    }
}

/// Loops against real servers are what `cargo xtask bench rls --smoke` runs.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Outcome;

    #[test]
    fn a_tally_with_a_failure_is_nothing_to_compare() {
        let address = "127.0.0.1:1".parse().expect("an address");
        let (requests, used) = (Requests::default(), || Ok(Used::default()));
        let calls = Calls { address, requests: &requests, first: 0, used: &used };
        let meter = Meter::start(&calls).expect("clocks");
        let mut tally = Tally::default();
        assert!(meter.counts(&calls, &tally).is_err(), "no calls at all");
        tally.add(Outcome::Refused);
        assert!(meter.counts(&calls, &tally).is_ok_and(|counts| (counts.calls, counts.refused) == (1, 1)));
        let counts = meter.counts(&calls, &tally).expect("one call");
        assert!(whole(tally, counts).is_ok_and(|counts| counts.all.refused == 1));
        tally.add(Outcome::Failed);
        assert!(meter.counts(&calls, &tally).is_err());
        assert!(whole(tally, counts).is_err(), "one that failed before or after");
    }

    #[test]
    fn times_are_written_where_there_is_room_already() {
        let mut room = room_for(100);
        let (place, times) = (room.as_ptr(), room.capacity());
        room.extend(0..100);
        assert_eq!((room.as_ptr(), room.capacity()), (place, times));
        assert_eq!(room.len(), 100);
    }
}
