//! The decision rules, written once for all algorithms. Start at [`Oracle::ask`].

use std::fmt;

use crate::answer::{Answer, Outcome};
use crate::ask::{Ask, Receipt};
use crate::bucket::Bucket;
use crate::calendar::CalendarQuota;
use crate::cells::Cells;
use crate::concurrency::Places;
use crate::log::Log;
use crate::numbers::Numbers;
use crate::spec::{Algorithm, Spec};
use crate::truth::{Given, Ledger};
use crate::windows::{FixedWindow, SubWindows};

/// A clock may be behind the stored time by this much, or by a window, without being thought broken before.
const JUMP_TOLERATED: i128 = 5_000_000;

/// What the rules need to know of an algorithm. `eff` is never before the stored time.
pub(crate) trait Family: fmt::Debug + Send {
    fn copy(&self) -> Box<dyn Family>;
    /// The time of the last write, 0 at first.
    fn stored(&self, numbers: &Numbers) -> i128;
    /// Floors every stored time to the tick in force.
    fn floor(&mut self, _numbers: &Numbers) {}
    /// Whether the stored time comes from a clock that was wrong.
    fn is_too_far_ahead(&self, numbers: &Numbers, n: i128) -> bool {
        self.stored(numbers) - n > numbers.window.max(JUMP_TOLERATED)
    }
    /// Moves all stored times so that the newest is `n`'s, and says by how much.
    fn move_back(&mut self, numbers: &Numbers, n: i128) -> i128;
    /// The units in use, rounded up.
    fn used(&self, numbers: &Numbers, eff: i128) -> i128;
    /// Counts units; only places heed the holder.
    fn charge(&mut self, numbers: &Numbers, eff: i128, units: i128, holder: Option<u64>);
    /// Gives back what it can of at least one unit and says how much of what; changes nothing if that is nothing.
    fn refund(&mut self, numbers: &Numbers, eff: i128, units: i128, receipt_at: Option<i128>) -> Vec<Given>;
    /// Makes `eff` the stored time and forgets what has left the window.
    fn keep(&mut self, numbers: &Numbers, eff: i128);
    /// How far an exact window may be from `used`: units over it, units under it.
    fn bound(&self, _numbers: &Numbers, _eff: i128) -> (i128, i128) {
        (0, 0)
    }
    /// The end of the window that holds `eff`, for aligned windows.
    fn window_end(&self, _numbers: &Numbers, _eff: i128) -> Option<i128> {
        None
    }
    /// The places, if this is what is counted.
    fn places(&mut self) -> Option<&mut Places> {
        None
    }
}

/// One counter.
#[derive(Debug)]
pub struct Oracle {
    spec: Spec,
    numbers: Numbers,
    family: Box<dyn Family>,
    ledger: Ledger,
}

impl Clone for Oracle {
    fn clone(&self) -> Self {
        Self {
            spec: self.spec.clone(),
            numbers: self.numbers.clone(),
            family: self.family.copy(),
            ledger: self.ledger.clone(),
        }
    }
}

impl Oracle {
    /// An untouched counter; panics on a limit that no counter can hold.
    pub fn new(spec: &Spec) -> Self {
        Self {
            spec: spec.clone(),
            numbers: Numbers::of(spec),
            family: family_of(spec),
            ledger: Ledger::default(),
        }
    }

    /// Puts other numbers in force, the shape being the same; nothing is counted or moved until the next question.
    pub fn change(&mut self, spec: &Spec) {
        let numbers = Numbers::of(spec);
        let shape = |spec: &Spec, numbers: &Numbers| {
            let parts = (numbers.sub_windows, numbers.strict);
            (spec.algorithm, spec.window_us, parts, spec.calendar.clone())
        };
        let is_same = shape(&self.spec, &self.numbers) == shape(spec, &numbers);
        assert!(is_same, "{} and {spec} count in different ways", self.spec);
        self.numbers = numbers;
        self.spec = spec.clone();
    }

    /// Decides, counts and answers.
    pub fn ask(&mut self, ask: &Ask, now_us: u64) -> Answer {
        let mut draft = self.look(now_us);
        let step = draft.decide(ask);
        if step.wrote {
            draft.keep();
        }
        let (answer, n, repaired) = (draft.answer(&step), draft.n, draft.repaired);
        // A draft that wrote nothing is thrown away, and with it the floored times it was computed with; but a clock that was
        // wrong stays corrected.
        if step.wrote {
            (self.family, self.ledger) = (draft.family, draft.ledger);
        } else if repaired {
            self.correct(n);
        }
        answer
    }

    /// Decides and counts nothing: the answer that a question has while its request is refused for another reason. What gives back
    /// passes and gives nothing. A clock that was wrong is corrected for good, as by any question.
    pub fn show(&mut self, ask: &Ask, now_us: u64) -> Answer {
        let decided = self.look(now_us).decide(ask);
        let untouched = self.look(now_us);
        let answer = untouched.answer(&Step { applied: 0, forgiven: 0, wrote: false, ..decided });
        let (n, repaired) = (untouched.n, untouched.repaired);
        if repaired {
            self.correct(n);
        }
        answer
    }

    /// Moves all stored times, which a wrong clock wrote, back to `n`.
    fn correct(&mut self, n: i128) {
        self.ledger.move_back(self.family.move_back(&self.numbers, n));
    }

    /// What an exact sliding window would hold of this counter's own net charges; for calendars and concurrency, what
    /// is used.
    pub fn used_exactly(&self, now_us: u64) -> u64 {
        let draft = self.look(now_us);
        let used = match self.spec.algorithm {
            Algorithm::Calendar | Algorithm::Concurrency => draft.used(),
            _ => draft.ledger.live(self.numbers.window, draft.eff),
        };
        to_u64(used)
    }

    /// The tick of the limit in force.
    pub fn tick_us(&self) -> u64 {
        to_u64(self.numbers.tick)
    }

    /// What this counter takes to be used.
    pub fn used(&self, now_us: u64) -> u64 {
        to_u64(self.look(now_us).used())
    }

    /// A copy of the state as it is to be seen now: times floored, a wrong clock repaired.
    fn look(&self, now_us: u64) -> Draft<'_> {
        let numbers = &self.numbers;
        let n = numbers.floor(i128::from(now_us));
        let (mut family, mut ledger) = (self.family.copy(), self.ledger.clone());
        family.floor(numbers);
        ledger.floor(numbers);
        let repaired = family.is_too_far_ahead(numbers, n);
        if repaired {
            ledger.move_back(family.move_back(numbers, n));
        }
        let eff = n.max(family.stored(numbers));
        Draft { numbers, family, ledger, n, eff, repaired }
    }
}

/// The state while one question is decided.
struct Draft<'a> {
    numbers: &'a Numbers,
    family: Box<dyn Family>,
    ledger: Ledger,
    /// The clock, floored to the tick; all waits are measured from here.
    n: i128,
    /// The time that counts: never before the last write.
    eff: i128,
    repaired: bool,
}

/// What was decided and done.
struct Step {
    outcome: Outcome,
    applied: i128,
    forgiven: i128,
    wrote: bool,
    /// The units whose fitting is waited for after a refusal.
    wanted: i128,
}

impl Step {
    fn admitted() -> Self {
        Self { outcome: Outcome::Admitted, applied: 0, forgiven: 0, wrote: false, wanted: 1 }
    }
}

impl Draft<'_> {
    fn decide(&mut self, ask: &Ask) -> Step {
        match *ask {
            Ask::Charge { cost } => self.charge(i128::from(cost), None),
            Ask::Peek => self.peek(),
            Ask::Refund { units, receipt } => self.refund(i128::from(units), receipt),
            Ask::Settle { receipt, actual } => self.settle(receipt, i128::from(actual)),
            Ask::Acquire { id, cost } => self.acquire(id, i128::from(cost)),
            Ask::Renew { id } => self.renew(id),
            Ask::Release { id } => self.release(id),
        }
    }

    fn charge(&mut self, cost: i128, holder: Option<u64>) -> Step {
        if cost == 0 {
            return self.peek();
        }
        let outcome = if self.numbers.amount == 0 {
            Outcome::RateLimited
        } else if cost > self.numbers.capacity {
            Outcome::CostExceedsLimit
        } else if cost <= self.room() {
            Outcome::Admitted
        } else {
            Outcome::RateLimited
        };
        if outcome == Outcome::Admitted {
            self.count(cost, holder);
            return Step { applied: cost, wrote: true, ..Step::admitted() };
        }
        let refused = Step { outcome, wanted: cost, ..Step::admitted() };
        if self.numbers.always { Step { outcome, wanted: cost, ..self.force(cost) } } else { refused }
    }

    fn peek(&self) -> Step {
        let fits = self.numbers.amount > 0 && self.room() >= 1;
        let outcome = if fits { Outcome::Admitted } else { Outcome::RateLimited };
        Step { outcome, ..Step::admitted() }
    }

    /// Charges what does not ask to fit, up to the largest debt.
    fn force(&mut self, cost: i128) -> Step {
        let applied = cost.min((self.numbers.ceiling - self.used()).max(0));
        if applied > 0 {
            self.count(applied, None);
        }
        Step { applied, forgiven: cost - applied, wrote: applied > 0, ..Step::admitted() }
    }

    fn count(&mut self, units: i128, holder: Option<u64>) {
        self.family.charge(self.numbers, self.eff, units, holder);
        self.ledger.add(self.eff, units);
    }

    fn refund(&mut self, units: i128, receipt: Option<Receipt>) -> Step {
        let units = receipt.map_or(units, |receipt| units.min(i128::from(receipt.units)));
        if units == 0 {
            return Step::admitted();
        }
        let receipt_at = receipt.map(|receipt| self.numbers.floor(i128::from(receipt.at_us)));
        let mut given = 0;
        for part in self.family.refund(self.numbers, self.eff, units, receipt_at) {
            // A bucket gives back to its level as it is, whatever the receipt says.
            self.ledger.take(&part, receipt_at.filter(|_| !self.numbers.is_bucket));
            given += part.units();
        }
        Step { applied: -given, wrote: given > 0, ..Step::admitted() }
    }

    fn settle(&mut self, receipt: Receipt, actual: i128) -> Step {
        if self.family.places().is_some() {
            return Step::admitted();
        }
        let difference = actual - i128::from(receipt.units);
        if difference > 0 { self.force(difference) } else { self.refund(-difference, Some(receipt)) }
    }

    fn acquire(&mut self, id: u64, cost: i128) -> Step {
        let (numbers, eff) = (self.numbers, self.eff);
        match self.family.places().map(|places| places.extend(numbers, eff, id)) {
            Some(true) => Step { wrote: true, ..Step::admitted() },
            Some(false) | None => self.charge(cost, Some(id)),
        }
    }

    fn renew(&mut self, id: u64) -> Step {
        let (numbers, eff) = (self.numbers, self.eff);
        match self.family.places().map(|places| places.extend(numbers, eff, id)) {
            Some(true) => Step { wrote: true, ..Step::admitted() },
            Some(false) => Step { outcome: Outcome::NotHeld, ..Step::admitted() },
            None => Step::admitted(),
        }
    }

    fn release(&mut self, id: u64) -> Step {
        let eff = self.eff;
        match self.family.places().and_then(|places| places.release(eff, id)) {
            Some(cost) => Step { applied: -cost, wrote: true, ..Step::admitted() },
            None => Step::admitted(),
        }
    }

    fn keep(&mut self) {
        self.family.keep(self.numbers, self.eff);
        // By the stored time, not by `eff`: within a window that time may still go back.
        self.ledger.forget(self.numbers.window, self.family.stored(self.numbers));
    }

    fn answer(&self, step: &Step) -> Answer {
        let limits = self.numbers.amount > 0;
        let retry_after =
            if step.outcome == Outcome::RateLimited && limits { self.wait(step.wanted) } else { None };
        let (over, under) = self.family.bound(self.numbers, self.eff);
        Answer {
            outcome: step.outcome,
            remaining: to_u64(self.room()),
            debt: to_u64((self.used() - self.numbers.capacity).max(0)),
            reset_after_us: to_u64(self.reset_after()),
            retry_after_us: retry_after.map(to_u64),
            reset_us: to_u64(self.reset(step.outcome, retry_after)),
            applied: i64::try_from(step.applied).expect("applied units fit 33 bits"),
            forgiven: to_u64(step.forgiven),
            at_us: to_u64(self.eff),
            over: to_u64(over),
            under: to_u64(under),
        }
    }

    fn reset(&self, outcome: Outcome, retry_after: Option<i128>) -> i128 {
        let window_end = self.family.window_end(self.numbers, self.eff).map(|end| end - self.n);
        let without_retry = window_end.unwrap_or(self.numbers.window);
        if outcome.is_refusal() {
            return retry_after.unwrap_or(without_retry);
        }
        if self.room() > 0 {
            return window_end.unwrap_or_else(|| self.reset_after());
        }
        let first_unit = if self.numbers.amount > 0 { self.wait(1) } else { None };
        first_unit.unwrap_or(without_retry)
    }

    fn reset_after(&self) -> i128 {
        if self.numbers.is_bucket && self.numbers.amount == 0 && self.used() > 0 {
            return self.numbers.window; // A bucket that does not leak is never empty.
        }
        self.first_wait(|used| used == 0)
    }

    /// The least wait until `cost` fits, if it ever does.
    fn wait(&self, cost: i128) -> Option<i128> {
        let capacity = self.numbers.capacity;
        (cost <= capacity).then(|| self.first_wait(|used| cost <= capacity - used))
    }

    fn used(&self) -> i128 {
        self.family.used(self.numbers, self.eff)
    }

    fn room(&self) -> i128 {
        (self.numbers.capacity - self.used()).max(0)
    }

    /// The least whole number of ticks after which the use satisfies, given that use only falls without traffic.
    fn first_wait(&self, satisfies: impl Fn(i128) -> bool) -> i128 {
        let stored = self.family.stored(self.numbers);
        let satisfied_after = |ticks: i128| {
            let eff = stored.max(self.n + ticks * self.numbers.tick);
            satisfies(self.family.used(self.numbers, eff))
        };
        if satisfied_after(0) {
            return 0;
        }
        let (mut too_early, mut enough) = (0, 1);
        while !satisfied_after(enough) {
            assert!(enough < 1 << 100, "use never falls enough");
            (too_early, enough) = (enough, enough * 2);
        }
        while enough - too_early > 1 {
            let middle = too_early + (enough - too_early) / 2;
            if satisfied_after(middle) { enough = middle } else { too_early = middle }
        }
        enough * self.numbers.tick
    }
}

fn family_of(spec: &Spec) -> Box<dyn Family> {
    match spec.algorithm {
        Algorithm::FixedWindow => Box::<FixedWindow>::default(),
        Algorithm::SlidingWindowCounter | Algorithm::SubWindow => Box::<SubWindows>::default(),
        Algorithm::SlidingLog => Box::<Log>::default(),
        Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => Box::<Bucket>::default(),
        Algorithm::SlidingWindow => Box::<Cells>::default(),
        Algorithm::Concurrency => Box::<Places>::default(),
        Algorithm::Calendar => {
            let calendar =
                spec.calendar.as_ref().unwrap_or_else(|| panic!("the limit {spec} has no calendar"));
            Box::new(CalendarQuota::new(calendar))
        }
    }
}

/// Waits of very slow buckets exceed what an answer can hold and show as the largest number.
fn to_u64(number: i128) -> u64 {
    assert!(number >= 0, "an answer has no negative numbers: {number}");
    u64::try_from(number).unwrap_or(u64::MAX)
}
