//! The circuit of one server: when calls to it are not even tried, because they would only wait. What it guards against is waiting; what
//! a server answers, be it a refusal, it answers.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::servers::{Server, jittered_by, locked};
use crate::redis::settings::CircuitSettings;
use crate::redis::stats::{CircuitState, CircuitStats};

/// The window in which the share of failures is looked at, how many calls it needs to mean anything, and the share: one in two.
const SHARE_WINDOW: Duration = Duration::from_secs(1);
const SHARE_CALLS_MIN: u32 = 20;
/// How many good probes close it.
const GOOD_PROBES: u32 = 3;
/// By which part of the time a probe may come earlier or later: a fifth. A fleet does not come back as one.
const PROBE_JITTER: u32 = 5;
/// How many failures are kept in mind, where those of a time count.
pub(in crate::redis) const FAILURES_MAX: u32 = 100;

/// The circuit of one server, shared by all threads.
pub(super) struct Circuit {
    settings: CircuitSettings,
    /// Closed as long as this is false: then nobody has to wait for the lock to go on.
    is_open: AtomicBool,
    inner: Mutex<Breaker>,
}

/// What it knows. Told the time, it does the same every time.
#[derive(Debug)]
struct Breaker {
    state: State,
    /// When it came to be so, and how long it was in each state before: closed, half open, open.
    since: Instant,
    spent: [Duration; 3],
    opened: u64,
}

#[derive(Debug)]
enum State {
    Closed {
        /// When failures were that count, the last one last; all of a row, or of the time that is set.
        failures: Vec<Instant>,
        window: Window,
    },
    Open {
        /// Since when.
        from: Instant,
        /// When it is tried again.
        probe_at: Instant,
        /// Is somebody about it?
        probing: bool,
        /// Probes that went well, one after the other.
        good: u32,
        why: String,
    },
}

/// Calls that ended lately: since a moment of this second, and in the one before, so that a pause at its start is not all there is.
#[derive(Clone, Copy, Debug)]
struct Window {
    from: Instant,
    now: Calls,
    before: Calls,
}

#[derive(Clone, Copy, Default, Debug)]
struct Calls {
    all: u32,
    failed: u32,
}

impl Circuit {
    pub(super) fn new(settings: CircuitSettings) -> Self {
        let breaker = Breaker::new(Instant::now());
        Self { settings, is_open: AtomicBool::new(false), inner: Mutex::new(breaker) }
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Relaxed)
    }

    /// May a call be tried now? If so, what comes of it has to be told.
    fn enter(&self, now: Instant) -> Result<bool, String> {
        if !self.is_open() {
            return Ok(false);
        }
        let mut inner = locked(&self.inner);
        match &inner.state {
            State::Closed { .. } => Ok(false),
            State::Open { probe_at, probing, why, .. } if *probing || now < *probe_at => Err(why.clone()),
            State::Open { .. } => {
                let before = inner.told();
                if let State::Open { probing, .. } = &mut inner.state {
                    *probing = true;
                }
                inner.moved(before, now);
                Ok(true)
            }
        }
    }

    fn went(&self, server: &Server, went: Went, from: Instant, now: Instant, is_probe: bool) {
        let mut inner = locked(&self.inner);
        let change = inner.went(&self.settings, went, from, now, is_probe);
        self.is_open.store(matches!(inner.state, State::Open { .. }), Relaxed);
        drop(inner);
        let server = &server.address;
        match change {
            Some(Change::Opened(why)) => tracing::warn!(
                %server,
                why,
                "the circuit of a server of the store has opened: on_store_failure answers for its keys"
            ),
            Some(Change::Closed(after)) => {
                let after_ms = after.as_millis() as u64;
                tracing::info!(%server, after_ms, "the circuit of a server of the store has closed: it answers again");
            }
            None => {}
        }
    }

    /// What operators are told of it.
    pub(super) fn stats(&self) -> CircuitStats {
        let (inner, now) = (locked(&self.inner), Instant::now());
        let mut spent = inner.spent;
        spent[inner.told() as usize] += now.saturating_duration_since(inner.since);
        CircuitStats { state: inner.told(), opened: inner.opened, spent }
    }
}

/// How a call went, as far as the circuit is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Went<'a> {
    Well,
    Badly(&'a str),
    /// Nobody knows.
    Away,
}

#[derive(PartialEq, Eq, Debug)]
enum Change {
    Opened(String),
    Closed(Duration),
}

impl Breaker {
    fn new(now: Instant) -> Self {
        Self { state: State::closed(now), since: now, spent: [Duration::ZERO; 3], opened: 0 }
    }

    fn told(&self) -> CircuitState {
        match self.state {
            State::Closed { .. } => CircuitState::Closed,
            State::Open { probing, good, .. } if probing || good > 0 => CircuitState::HalfOpen,
            State::Open { .. } => CircuitState::Open,
        }
    }

    /// Counts the time that was spent in a state, if it is over.
    fn moved(&mut self, before: CircuitState, now: Instant) {
        if self.told() != before {
            self.spent[before as usize] += now.saturating_duration_since(self.since);
            self.since = now;
        }
    }

    fn went(
        &mut self,
        settings: &CircuitSettings,
        went: Went<'_>,
        from: Instant,
        now: Instant,
        is_probe: bool,
    ) -> Option<Change> {
        let (before, mut change) = (self.told(), None);
        match &mut self.state {
            State::Closed { failures, window } => {
                window.count(went, now);
                let fails = match went {
                    Went::Well if settings.within.is_none() => {
                        failures.clear();
                        false
                    }
                    Went::Well | Went::Away => false,
                    Went::Badly(_) => {
                        remember(failures, settings, from, now);
                        failures.len() as u32 >= settings.failures || window.is_bad()
                    }
                };
                if let (true, Went::Badly(reason)) = (fails && settings.failures > 0, went) {
                    self.opened += 1;
                    let probe_at = now + jittered_by(settings.open_for, PROBE_JITTER);
                    let why = shut(reason);
                    self.state = State::Open { from: now, probe_at, probing: false, good: 0, why };
                    change = Some(Change::Opened(reason.to_owned()));
                }
            }
            // A call that began before it opened says nothing about now.
            State::Open { .. } if !is_probe => return None,
            State::Open { from, probe_at, probing, good, why } => {
                *probing = false;
                match went {
                    Went::Well => {
                        *good += 1;
                        *probe_at = now; // Who has answered once is asked again at once.
                    }
                    Went::Badly(reason) => {
                        *good = 0;
                        *why = shut(reason);
                        *probe_at = now + jittered_by(settings.open_for, PROBE_JITTER);
                    }
                    Went::Away => *probe_at = now + jittered_by(settings.open_for, PROBE_JITTER),
                }
                if *good >= GOOD_PROBES {
                    change = Some(Change::Closed(now.saturating_duration_since(*from)));
                    self.state = State::closed(now);
                }
            }
        }
        self.moved(before, now);
        change
    }
}

impl State {
    fn closed(now: Instant) -> Self {
        Self::Closed {
            failures: Vec::new(),
            window: Window { from: now, now: Calls::default(), before: Calls::default() },
        }
    }
}

/// What is said to calls that are not tried.
fn shut(why: &str) -> String {
    format!("{why} (its circuit is open)")
}

/// Keeps a failure in mind. One pause of a server makes every call late that is on its way, and is one failure: a call counts only if
/// it began after the last one that counts had ended.
fn remember(failures: &mut Vec<Instant>, settings: &CircuitSettings, from: Instant, now: Instant) {
    if failures.last().is_some_and(|last| from < *last) {
        return;
    }
    if let Some(within) = settings.within {
        failures.retain(|failure| now.saturating_duration_since(*failure) < within);
    }
    if failures.len() < FAILURES_MAX as usize {
        failures.push(now);
    }
}

impl Window {
    fn count(&mut self, went: Went<'_>, now: Instant) {
        let age = now.saturating_duration_since(self.from);
        if age >= SHARE_WINDOW {
            let before = if age < SHARE_WINDOW * 2 { self.now } else { Calls::default() };
            *self = Self { from: now, now: Calls::default(), before };
        }
        self.now.all = self.now.all.saturating_add(1);
        self.now.failed = self.now.failed.saturating_add(u32::from(matches!(went, Went::Badly(_))));
    }

    /// Has half of them failed, if there were enough?
    fn is_bad(&self) -> bool {
        let all = self.now.all.saturating_add(self.before.all);
        all >= SHARE_CALLS_MIN && self.now.failed.saturating_add(self.before.failed) >= all.div_ceil(2)
    }
}

/// The right to call a server. What comes of it has to be told; dropped, nobody knows.
pub(super) struct Try {
    server: Arc<Server>,
    from: Instant,
    is_probe: bool,
    is_told: bool,
}

impl Try {
    /// The right to call a server now; else why there is none.
    pub(super) fn new(server: &Arc<Server>, now: Instant) -> Result<Self, String> {
        let is_probe = server.circuit.enter(now)?;
        Ok(Self { server: server.clone(), from: now, is_probe, is_told: false })
    }

    /// The server has answered, whatever.
    pub(super) fn went_well(mut self) {
        self.tell(Went::Well);
    }

    /// The server has not, or with words that mean it cannot.
    pub(super) fn went_badly(mut self, why: &str) {
        self.tell(Went::Badly(why));
    }

    fn tell(&mut self, went: Went<'_>) {
        self.is_told = true;
        self.server.circuit.went(&self.server, went, self.from, Instant::now(), self.is_probe);
    }
}

impl Drop for Try {
    fn drop(&mut self) {
        if self.is_probe && !self.is_told {
            self.tell(Went::Away);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A breaker, and calls to it at times that the test says, in ms.
    struct Bench {
        born: Instant,
        breaker: Breaker,
        settings: CircuitSettings,
    }

    impl Bench {
        fn new(settings: CircuitSettings) -> Self {
            let born = Instant::now();
            Self { born, breaker: Breaker::new(born), settings }
        }

        fn at(&self, ms: u64) -> Instant {
            self.born + Duration::from_millis(ms)
        }

        /// A call from then until then; says what changed.
        fn call(&mut self, from_ms: u64, to_ms: u64, well: bool) -> Option<Change> {
            let (from, now) = (self.at(from_ms), self.at(to_ms));
            let went = if well { Went::Well } else { Went::Badly("silent") };
            self.breaker.went(&self.settings, went, from, now, false)
        }

        fn opens(&mut self, from_ms: u64, to_ms: u64) -> bool {
            matches!(self.call(from_ms, to_ms, false), Some(Change::Opened(_)))
        }
    }

    #[test]
    fn five_failures_in_a_row_open_it_and_a_success_between_starts_anew() {
        let mut bench = Bench::new(CircuitSettings::default());
        for call in 0..4 {
            assert!(!bench.opens(call * 12, call * 12 + 12));
        }
        assert_eq!(bench.call(48, 49, true), None);
        let opens: Vec<bool> = (5..10).map(|call| bench.opens(call * 12, call * 12 + 12)).collect();
        assert_eq!(opens, [false, false, false, false, true]);
        assert_eq!(bench.breaker.opened, 1);
    }

    #[test]
    fn one_pause_is_one_failure_however_many_calls_it_makes_late() {
        let mut bench = Bench::new(CircuitSettings::default());
        for call in 0..400 {
            assert_eq!(bench.call(call, call + 1, true), None);
        }
        for call in 0..100 {
            assert!(
                !bench.opens(400 + call / 10, 412 + call / 10),
                "all were on their way when the first was late"
            );
        }
    }

    #[test]
    fn half_of_twenty_calls_open_it_though_others_go_well() {
        let mut bench = Bench::new(CircuitSettings::default());
        let mut opened_at = None;
        for call in 0..30 {
            let (from, to) = (call * 10, call * 10 + 9);
            let change = bench.call(from, to, call % 2 == 0);
            if matches!(change, Some(Change::Opened(_))) {
                opened_at.get_or_insert(call);
            }
        }
        assert_eq!(opened_at, Some(19), "the twentieth call, of which ten failed");
    }

    #[test]
    fn five_failures_within_ten_seconds_open_it_for_thirty_as_the_seed_says() {
        let settings = CircuitSettings {
            failures: 5,
            within: Some(Duration::from_secs(10)),
            open_for: Duration::from_secs(30),
        };
        let mut bench = Bench::new(settings);
        for call in 0..4 {
            assert!(!bench.opens(call * 3_000, call * 3_000 + 12), "four in nine seconds");
            assert_eq!(bench.call(call * 3_000 + 100, call * 3_000 + 101, true), None);
        }
        assert!(!bench.opens(12_000, 12_012), "the first is forgotten");
        assert!(bench.opens(12_100, 12_112), "five since the third second");
        let mut bench = Bench::new(settings);
        for call in 0..4 {
            assert!(!bench.opens(call * 2_000, call * 2_000 + 12));
            assert_eq!(bench.call(call * 2_000 + 100, call * 2_000 + 101, true), None);
        }
        assert!(bench.opens(8_000, 8_012), "five in eight seconds");
        let State::Open { probe_at, .. } = bench.breaker.state else { panic!("it is open") };
        let wait = probe_at - bench.at(8_012);
        assert!(wait >= Duration::from_secs(24) && wait <= Duration::from_secs(36), "{wait:?}");
    }

    #[test]
    fn it_closes_after_three_good_probes_one_at_a_time() {
        let settings = CircuitSettings::default();
        let circuit = Circuit::new(settings);
        let server = Arc::new(Server::new(1, crate::redis::Address::Tcp("a".into(), 1), settings));
        let now = Instant::now();
        let later = |ms| now + Duration::from_millis(ms);
        for call in 0..5 {
            assert_eq!(circuit.enter(later(call * 12)), Ok(false));
            circuit.went(&server, Went::Badly("silent"), later(call * 12), later(call * 12 + 12), false);
        }
        assert!(circuit.is_open() && circuit.enter(later(61)).is_err(), "nobody waits for it");
        circuit.went(&server, Went::Well, later(50), later(62), false);
        assert!(circuit.is_open(), "what began before it opened says nothing");
        assert_eq!(circuit.enter(later(400)), Ok(true), "a probe");
        assert!(circuit.enter(later(401)).is_err(), "one at a time");
        assert_eq!(circuit.stats().state, CircuitState::HalfOpen);
        circuit.went(&server, Went::Badly("still silent"), later(400), later(412), true);
        assert!(circuit.enter(later(413)).is_err_and(|why| why.contains("still silent")));
        for probe in 0..3 {
            assert_eq!(circuit.enter(later(800 + probe)), Ok(true));
            circuit.went(&server, Went::Well, later(800 + probe), later(801 + probe), true);
        }
        assert!(!circuit.is_open());
        let stats = circuit.stats();
        assert_eq!((stats.state, stats.opened), (CircuitState::Closed, 1));
        assert!(stats.spent[CircuitState::Open as usize] >= Duration::from_millis(700), "{stats:?}");
    }

    #[test]
    fn a_probe_of_which_nothing_is_heard_lets_another_one_try() {
        let settings = CircuitSettings { failures: 1, within: None, open_for: Duration::from_millis(1) };
        let server = Arc::new(Server::new(1, crate::redis::Address::Tcp("a".into(), 1), settings));
        Try::new(&server, Instant::now()).expect("closed").went_badly("gone");
        let later = Instant::now() + Duration::from_millis(10);
        drop(Try::new(&server, later).expect("a probe"));
        assert!(Try::new(&server, Instant::now() + Duration::from_millis(10)).is_ok(), "another probe");
    }

    #[test]
    fn a_circuit_without_failures_never_opens() {
        let mut bench = Bench::new(CircuitSettings { failures: 0, ..CircuitSettings::default() });
        assert!((0..100).all(|call| !bench.opens(call * 12, call * 12 + 12)));
    }
}
