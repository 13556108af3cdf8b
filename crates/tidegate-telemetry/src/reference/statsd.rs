//! Statsd: what was counted since the last time, sent every few seconds by a thread of its own.
//!
//! A count is taken for sent when the kernel has its line. What it refused stays and is part of the next delta, so a server that is away
//! for an hour gets one line for each name when it is back, and nothing piles up meanwhile.

mod batch; // lines, and what each of them says was sent
mod dog; // the dialect of Datadog
mod link; // sockets

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use self::batch::{Batch, Mark};
use self::link::Link;
use super::calls::class_ms;
use super::sums::{Cell, Sums, write_response_time};
use super::table::ReferenceKind;
use super::{ReferenceGauges, ReferenceStats};

pub use dog::{Mogrifier, MogrifierError};

/// How long the end of a node waits for the last flush.
const END_WAIT: Duration = Duration::from_secs(3);
/// How long nothing is tried after the first failure; twice as long after each that follows.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Lines with durations in one flush, for each method. Where there were more calls, a line speaks for several.
const TIMER_LINES_MAX: u64 = 1_000;

/// Where numbers are sent, and how often.
#[derive(Clone, Debug)]
pub struct StatsdSettings {
    /// How.
    pub protocol: StatsdProtocol,
    /// The server's name or address: `STATSD_HOST`.
    pub host: String,
    /// Its port: `STATSD_PORT`.
    pub port: u16,
    /// How often: `STATS_FLUSH_INTERVAL`.
    pub flush_interval: Duration,
    /// In which words.
    pub dialect: StatsdDialect,
}

/// How numbers are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatsdProtocol {
    /// In packets, for which nobody answers.
    Udp,
    /// On a connection.
    Tcp,
}

/// How lines are written.
#[derive(Clone, Debug, Default)]
pub enum StatsdDialect {
    /// Tags are part of the name.
    #[default]
    Plain,
    /// Tags stand behind, and names are made over by the first of these that fits: `USE_DOG_STATSD`.
    Dog(Vec<Mogrifier>),
}

/// Sends until it is dropped, which waits for a last flush, but not for long.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Statsd {
    run: Arc<Run>,
}

#[derive(Default, Debug)]
struct Run {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default, Debug)]
struct State {
    ending: bool,
    ended: bool,
}

/// Starts to send. `gauges` is asked at every flush, on the thread that sends.
pub fn start(
    stats: Arc<ReferenceStats>,
    settings: StatsdSettings,
    gauges: impl Fn() -> ReferenceGauges + Send + 'static,
) -> io::Result<Statsd> {
    let run = Arc::new(Run::default());
    let of_thread = run.clone();
    let mut sender = Sender::new(stats, settings);
    thread::Builder::new().name("statsd".into()).spawn(move || {
        // However it ends, nobody waits for it in vain.
        let _ended = Ended(&of_thread);
        while of_thread.wait(sender.pause()) {
            sender.flush(&gauges());
        }
        sender.flush(&gauges());
    })?;
    Ok(Statsd { run })
}

impl Drop for Statsd {
    fn drop(&mut self) {
        let mut state = self.run.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ending = true;
        self.run.changed.notify_all();
        let waited = self.run.changed.wait_timeout_while(state, END_WAIT, |state| !state.ended);
        let ended = waited.unwrap_or_else(PoisonError::into_inner).0.ended;
        if !ended {
            tracing::warn!("the last flush to statsd took too long; what was counted since is lost");
        }
    }
}

impl Run {
    /// Waits for the time of the next flush. Is it time to go on, rather than to end?
    fn wait(&self, pause: Duration) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, pause, |state| !state.ending);
        !waited.unwrap_or_else(PoisonError::into_inner).0.ending
    }
}

struct Ended<'r>(&'r Run);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.0.changed.notify_all();
    }
}

/// What sends, and what it has sent.
struct Sender {
    stats: Arc<ReferenceStats>,
    settings: Arc<StatsdSettings>,
    link: Link,
    /// Counts as they were when they were last sent. Those that were zero are not in it.
    sent: HashMap<Cell, u64>,
    /// The same for the classes of durations, by method.
    sent_calls: Vec<Vec<u64>>,
    /// Flushes in a row that did not get out.
    failures: u32,
}

impl Sender {
    fn new(stats: Arc<ReferenceStats>, settings: StatsdSettings) -> Self {
        let link = Link::new(settings.protocol, &settings.host, settings.port);
        let sent_calls = stats.sums(&ReferenceGauges::default()).calls;
        let sent_calls = sent_calls.iter().map(|calls| vec![0; calls.classes.len()]).collect();
        let settings = Arc::new(settings);
        Self { stats, settings, link, sent: HashMap::new(), sent_calls, failures: 0 }
    }

    /// How long to wait before the next flush.
    fn pause(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        let pause = if self.failures == 0 { Duration::ZERO } else { PAUSE_MIN * (1 << doublings) };
        self.settings.flush_interval.max(pause.min(PAUSE_MAX))
    }

    /// Sends what was counted since it was last sent, as far as that gets out.
    fn flush(&mut self, gauges: &ReferenceGauges) {
        let sums = self.stats.sums(gauges);
        let cells = sums.cells();
        self.forget(&cells);
        let settings = self.settings.clone();
        let (host, port) = (&settings.host, settings.port);
        match self.send(&cells, &sums) {
            Ok(()) if self.failures > 0 => {
                tracing::info!(host, port, "statsd is back; it has what was counted meanwhile");
                self.failures = 0;
            }
            Ok(()) => {}
            Err(error) => {
                if self.failures == 0 {
                    tracing::warn!(host, port, %error, "statsd cannot be reached; counts are kept until it can");
                }
                self.failures = self.failures.saturating_add(1);
            }
        }
    }

    fn send(&mut self, cells: &[(Cell, u64)], sums: &Sums) -> io::Result<()> {
        self.link.open()?;
        let mut batch = Batch::new(self.settings.clone(), self.stats.clone());
        for (cell, total) in cells {
            let kind = cell.metric().kind;
            let value = match kind {
                ReferenceKind::Gauge => *total,
                _ => match grown(*total, self.sent.get(cell).copied().unwrap_or(0)) {
                    0 => continue,
                    delta => delta,
                },
            };
            batch.line(|name| cell.write_name(name), value, kind, 1, &[Mark::Cell(cell, *total)]);
            self.pass_on(&mut batch, false)?;
        }
        for (method, calls) in sums.calls.iter().enumerate() {
            self.send_durations(&mut batch, method, &calls.classes)?;
        }
        self.pass_on(&mut batch, true)
    }

    /// A line for each call, or for each so many of them from the shortest on, which are told as the longest among them.
    fn send_durations(&mut self, batch: &mut Batch<'_>, method: usize, classes: &[u64]) -> io::Result<()> {
        let grew = classes.iter().zip(&self.sent_calls[method]).map(|(total, sent)| grown(*total, *sent));
        let mut waiting: Vec<(usize, u64)> = grew.enumerate().filter(|(_, calls)| *calls > 0).collect();
        waiting.reverse();
        let mut left: u64 = waiting.iter().map(|(_, calls)| calls).sum();
        let each = left.div_ceil(TIMER_LINES_MAX);
        while left > 0 {
            let speaks_for = each.min(left);
            left -= speaks_for;
            let (mut open, mut marks) = (speaks_for, Vec::new());
            while let Some((class, calls)) = waiting.last_mut().filter(|_| open > 0) {
                let told = open.min(*calls);
                marks.push(Mark::Calls { method, class: *class, calls: told });
                open -= told;
                *calls -= told;
                if *calls == 0 {
                    waiting.pop();
                }
            }
            let Some(Mark::Calls { class: longest, .. }) = marks.last() else { break };
            let write = |name: &mut String| write_response_time(name, method);
            batch.line(write, class_ms(*longest), ReferenceKind::Timer, speaks_for, &marks);
            self.pass_on(batch, false)?;
        }
        Ok(())
    }

    /// Sends what is full, or all, and notes what got out.
    fn pass_on(&mut self, batch: &mut Batch<'_>, all: bool) -> io::Result<()> {
        while let Some(packet) = batch.packet(all) {
            let (taken, result) = self.link.send(packet);
            for mark in batch.taken(taken) {
                match mark {
                    Mark::Cell(cell, total) => {
                        if cell.metric().kind == ReferenceKind::Counter {
                            self.sent.insert(cell.clone(), total);
                        }
                    }
                    Mark::Calls { method, class, calls } => self.sent_calls[method][class] += calls,
                }
            }
            result?;
        }
        Ok(())
    }

    /// Names that are told no more need not be remembered.
    fn forget(&mut self, cells: &[(Cell, u64)]) {
        if self.sent.len() > cells.len() {
            let told: HashSet<&Cell> = cells.iter().map(|(cell, _)| cell).collect();
            self.sent.retain(|cell, _| told.contains(cell));
        }
    }
}

/// By how much a count grew. One that is smaller than it was began anew.
fn grown(total: u64, sent: u64) -> u64 {
    total.checked_sub(sent).unwrap_or(total)
}
