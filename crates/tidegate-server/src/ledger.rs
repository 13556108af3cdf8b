//! What calendar quotas were charged since it was last written down. Counters are lost with the store that they are in, and a month is too
//! long to be forgotten: so what was used is written to SQL every moment, by a thread where no decision waits, and given back to counters
//! that are found empty (`crates/tidegate/src/node/control/calendars.rs`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_clock::Clock;
use tidegate_core::{Algorithm, Key, Limit, Micros, Period, Tag, Verdict};
use tidegate_telemetry::CalendarGauges;
use tokio::sync::{Notify, mpsc, oneshot};

/// So many counters may wait for SQL, which may be away for hours. What is charged to others then is not written down, and counted.
const WAITING_MAX: usize = 1 << 18;
/// So many empty counters may wait for what SQL knows of them.
const FRESH_MAX: usize = 1 << 16;
/// So many resets may wait.
const RESETS_MAX: usize = 64;
/// How long one may take.
const RESET_MAX: Duration = Duration::from_secs(5);
/// A day in µs.
const DAY_US: i64 = 86_400_000_000;

/// What was used of a period, as far as one thread saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spent {
    /// The counter.
    pub key: Key,
    /// The period's first date as µs since 1970, as if it were in UTC: zone data may move its start, never the date.
    pub period: i64,
    /// Units in use after the last charge.
    pub used: u64,
    /// Units that were given back since this was last written down.
    pub given_back: u64,
    /// When, by the wall clock.
    pub at_us: u64,
}

/// A counter that was empty when it was charged: new, or lost.
#[derive(Clone, PartialEq, Debug)]
pub struct Fresh {
    /// The counter.
    pub key: Key,
    /// What it is kept near to.
    pub tag: Tag,
    /// What it is charged by.
    pub limit: Limit,
    /// The period, as in [`Spent`].
    pub period: i64,
    /// When it was found so, by the wall clock.
    pub at_us: u64,
}

impl Fresh {
    /// Is its period the one of this moment? What was used of another is not to be charged to this one.
    pub fn is_of(&self, now: Micros) -> bool {
        self.limit.periods().is_some_and(|calendar| date(calendar.period(now)) == self.period)
    }
}

/// A counter that is to be as if never charged, in SQL too.
#[derive(Debug)]
pub struct Reset {
    /// The counter.
    pub key: Key,
    /// The period, as in [`Spent`].
    pub period: i64,
    /// Who waits for it; why not, if not.
    pub done: oneshot::Sender<Result<(), String>>,
}

/// See above.
#[derive(Debug)]
pub struct Ledger {
    pages: Box<[Mutex<Page>]>,
    resets: mpsc::Sender<Reset>,
    hurry: Notify,
    /// How much waits that a page does not hold any more.
    taken: AtomicU64,
    left_out: AtomicU64,
    written: AtomicU64,
    restored: AtomicU64,
}

/// What one thread saw.
#[derive(Debug, Default)]
struct Page {
    open: HashMap<Key, (Period, Spent)>,
    /// Periods that ended before they were written down.
    closed: Vec<Spent>,
    fresh: Vec<Fresh>,
}

/// What was seen since the last time.
#[derive(Debug, Default)]
pub struct Seen {
    /// What was used.
    pub spent: Vec<Spent>,
    /// What was empty.
    pub fresh: Vec<Fresh>,
}

impl Ledger {
    /// For so many threads, and what is to be reset.
    pub fn new(cores: usize) -> (Self, mpsc::Receiver<Reset>) {
        let (resets, asked) = mpsc::channel(RESETS_MAX);
        let ledger = Self {
            pages: (0..cores.max(1)).map(|_| Mutex::default()).collect(),
            resets,
            hurry: Notify::new(),
            taken: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            written: AtomicU64::new(0),
            restored: AtomicU64::new(0),
        };
        (ledger, asked)
    }

    /// Notes what became of a counter, if it is one of a calendar and something did.
    #[inline]
    pub(crate) fn note(
        &self,
        core: usize,
        key: Key,
        tag: Tag,
        limit: &Limit,
        verdict: &Verdict,
        clock: &Clock,
    ) {
        if limit.algorithm() == Algorithm::Calendar && verdict.applied != 0 {
            self.note_applied(core, key, tag, limit, verdict, clock.wall_now_us());
        }
    }

    fn note_applied(&self, core: usize, key: Key, tag: Tag, limit: &Limit, verdict: &Verdict, now_us: u64) {
        let Some(calendar) = limit.periods() else { return };
        let used = u64::from(verdict.limit - verdict.remaining.min(verdict.limit)) + u64::from(verdict.debt);
        let applied = verdict.applied;
        let given_back = if applied < 0 { applied.unsigned_abs() } else { 0 };
        let mut page = self.page(core);
        let known = page.open.get_mut(&key);
        let is_known = known.is_some();
        if let Some((period, spent)) = known
            && (period.start..period.end).contains(&verdict.at)
        {
            (spent.used, spent.at_us) = (used, now_us);
            spent.given_back += given_back;
        } else if !is_known && page.len() >= WAITING_MAX / self.pages.len() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        } else {
            let period = calendar.period(verdict.at);
            let spent = Spent { key, period: date(period), used, given_back, at_us: now_us };
            if let Some((_, ended)) = page.open.insert(key, (period, spent)) {
                page.closed.push(ended);
            }
        }
        if applied > 0 && used <= applied.unsigned_abs() {
            if page.fresh.len() >= FRESH_MAX / self.pages.len() {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let period = page.open.get(&key).map_or(0, |(_, spent)| spent.period);
            page.fresh.push(Fresh { key, tag, limit: limit.clone(), period, at_us: now_us });
        }
    }

    /// Takes all that was seen since the last time. Whoever takes it says when it is [`Self::written`].
    pub fn take(&self) -> Seen {
        let mut seen = Seen::default();
        for core in 0..self.pages.len() {
            let mut page = self.page(core);
            self.taken.fetch_add(page.len() as u64, Ordering::Relaxed);
            seen.spent.extend(page.open.drain().map(|(_, (_, spent))| spent));
            seen.spent.append(&mut page.closed);
            seen.fresh.append(&mut page.fresh);
        }
        seen
    }

    /// Of what was taken, so much still waits, and so much more has been written down.
    pub fn written(&self, waiting: usize, written: usize) {
        self.taken.store(waiting as u64, Ordering::Relaxed);
        self.written.fetch_add(written as u64, Ordering::Relaxed);
    }

    /// So many waited for too long, and are not written down.
    pub fn left_out(&self, count: usize) {
        self.left_out.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// A counter was found empty and has again what was used.
    pub fn restored(&self) {
        self.restored.fetch_add(1, Ordering::Relaxed);
    }

    /// What became of charges so far.
    pub fn gauges(&self) -> CalendarGauges {
        let waiting: usize = (0..self.pages.len()).map(|core| self.page(core).len()).sum();
        CalendarGauges {
            waiting: waiting as u64 + self.taken.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            left_out: self.left_out.load(Ordering::Relaxed),
            restored: self.restored.load(Ordering::Relaxed),
        }
    }

    /// Waits until somebody is in a hurry.
    pub async fn hurried(&self) {
        self.hurry.notified().await;
    }

    /// Waits until all is written down, for a node that ends; says whether it is.
    pub async fn finish(&self, patience: Duration) -> bool {
        let all_written = async {
            while self.gauges().waiting > 0 {
                self.hurry.notify_one();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(patience, all_written).await.is_ok()
    }

    /// Makes SQL forget what was used of a counter in the current period, and what anybody saw of it so far. A counter of another kind is
    /// not in SQL.
    pub async fn reset(&self, key: Key, limit: &Limit, now: Micros) -> Result<(), String> {
        let Some(calendar) = limit.periods() else { return Ok(()) };
        let (done, waits) = oneshot::channel();
        let reset = Reset { key, period: date(calendar.period(now)), done };
        self.resets.try_send(reset).map_err(|_| "too many resets at the same time".to_owned())?;
        match tokio::time::timeout(RESET_MAX, waits).await {
            Ok(done) => done.unwrap_or_else(|_| Err("the node is ending".to_owned())),
            Err(_) => Err("it did not answer in time".to_owned()),
        }
    }

    /// Nothing that was seen of a counter so far counts.
    pub fn forget(&self, key: Key) {
        for core in 0..self.pages.len() {
            let mut page = self.page(core);
            page.open.remove(&key);
            page.closed.retain(|spent| spent.key != key);
            page.fresh.retain(|fresh| fresh.key != key);
        }
    }

    fn page(&self, core: usize) -> MutexGuard<'_, Page> {
        self.pages[core % self.pages.len()].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Page {
    fn len(&self) -> usize {
        self.open.len() + self.closed.len()
    }
}

fn date(period: Period) -> i64 {
    i64::from(period.id) * DAY_US
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Ask, Calendar, Unit, Weekday};

    use super::*;

    /// 2026-03-31 12:00 UTC, in µs.
    const NOON: u64 = 1_774_958_400_000_000;
    const MARCH: i64 = 20_513 * DAY_US;

    fn monthly() -> Limit {
        let calendar = Calendar::new(Unit::Month, "UTC", Weekday::Monday).expect("a calendar");
        Limit::calendar(100, calendar).expect("a limit")
    }

    /// Takes steps on one counter, and notes each.
    struct Counter<'l> {
        ledger: &'l Ledger,
        limit: Limit,
        state: tidegate_core::State,
    }

    impl<'l> Counter<'l> {
        fn new(ledger: &'l Ledger) -> Self {
            let limit = monthly();
            Self { ledger, state: limit.state(), limit }
        }

        fn step(&mut self, core: usize, key: u128, ask: Ask, at_us: u64) {
            let verdict = self.limit.step(&mut self.state, ask, Micros::new(at_us));
            let clock = Clock::from(&tidegate_clock::ManualClock::at(at_us));
            self.ledger.note(core, Key::of_bits(key), Tag::default(), &self.limit, &verdict, &clock);
        }
    }

    fn spent(period: i64, used: u64, given_back: u64, at_us: u64) -> Spent {
        Spent { key: Key::of_bits(7), period, used, given_back, at_us }
    }

    #[test]
    fn what_was_used_last_is_noted_and_what_was_given_back_in_all() {
        let (ledger, _resets) = Ledger::new(2);
        let mut counter = Counter::new(&ledger);
        counter.step(0, 7, Ask::Charge { cost: 30 }, NOON);
        counter.step(0, 7, Ask::Charge { cost: 900 }, NOON + 1); // Refused: nothing to note.
        counter.step(0, 7, Ask::Peek, NOON + 2);
        counter.step(0, 7, Ask::Refund { units: 10, receipt: None }, NOON + 3);
        counter.step(0, 7, Ask::Refund { units: 5, receipt: None }, NOON + 4);
        counter.step(0, 7, Ask::Charge { cost: 1 }, NOON + 5);
        counter.step(1, 7, Ask::Charge { cost: 1 }, NOON + 6);
        assert_eq!(ledger.gauges().waiting, 2, "one of each thread");
        let seen = ledger.take();
        assert_eq!(seen.spent, [spent(MARCH, 16, 15, NOON + 5), spent(MARCH, 17, 0, NOON + 6)]);
        let fresh: Vec<_> = seen.fresh.iter().map(|fresh| (fresh.key.bits(), fresh.period)).collect();
        assert_eq!(fresh, [(7, MARCH)], "only the first charge found nothing");
        assert_eq!(ledger.gauges().waiting, 2, "taken, but not written down");
        ledger.written(0, 2);
        assert_eq!((ledger.gauges().waiting, ledger.gauges().written), (0, 2));
        assert!(ledger.take().spent.is_empty(), "each once");
    }

    #[test]
    fn a_period_that_ended_is_noted_beside_the_next() {
        let (ledger, _resets) = Ledger::new(1);
        let mut counter = Counter::new(&ledger);
        let april = NOON + 43_200_000_000;
        counter.step(0, 7, Ask::Charge { cost: 30 }, NOON);
        counter.step(0, 7, Ask::Charge { cost: 2 }, april);
        let mut seen = ledger.take();
        seen.spent.sort_unstable_by_key(|spent| spent.period);
        assert_eq!(seen.spent, [spent(MARCH, 30, 0, NOON), spent(MARCH + 31 * DAY_US, 2, 0, april)]);
        let fresh: Vec<_> = seen.fresh.iter().map(|fresh| fresh.period).collect();
        assert_eq!(fresh, [MARCH, MARCH + 31 * DAY_US]);
        let is_of =
            |at_us| seen.fresh.iter().map(|fresh| fresh.is_of(Micros::new(at_us))).collect::<Vec<_>>();
        assert_eq!((is_of(NOON), is_of(april)), (vec![true, false], vec![false, true]));
    }

    #[test]
    fn nothing_of_other_limits_and_no_more_than_there_is_room_for() {
        let (ledger, _resets) = Ledger::new(1);
        let mut counter = Counter::new(&ledger);
        counter.limit = Limit::fixed_window(100, Micros::from_secs(60)).expect("a limit");
        counter.state = counter.limit.state();
        counter.step(0, 7, Ask::Charge { cost: 1 }, NOON);
        assert_eq!(ledger.gauges().waiting, 0);
        for key in 0..=WAITING_MAX as u128 {
            Counter::new(&ledger).step(0, key, Ask::Charge { cost: 1 }, NOON);
        }
        let gauges = ledger.gauges();
        assert_eq!(gauges.waiting, WAITING_MAX as u64);
        assert_eq!(gauges.left_out, (1 + WAITING_MAX - FRESH_MAX) as u64);
        Counter::new(&ledger).step(0, 1, Ask::Charge { cost: 1 }, NOON + 9);
        assert_eq!(
            ledger.take().spent.iter().filter(|spent| spent.at_us == NOON + 9).count(),
            1,
            "known ones go on"
        );
    }

    #[test]
    fn what_is_forgotten_was_never_seen() {
        let (ledger, _resets) = Ledger::new(2);
        for core in [0, 1] {
            Counter::new(&ledger).step(core, 7, Ask::Charge { cost: 3 }, NOON);
            Counter::new(&ledger).step(core, 8, Ask::Charge { cost: 3 }, NOON);
        }
        ledger.forget(Key::of_bits(7));
        let seen = ledger.take();
        assert_eq!(seen.spent.iter().map(|spent| spent.key.bits()).collect::<Vec<_>>(), [8, 8]);
        assert_eq!(seen.fresh.len(), 2);
    }
}
