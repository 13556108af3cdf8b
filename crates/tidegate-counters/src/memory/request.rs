//! One request from lock to lock: find the counters, lock their sets, judge all takes, write, unlock.

use std::cell::RefCell;

use tidegate_core::{Algorithm, Ask, Charge, Key, Limit, Micros, Role, State, Verdict, admits};

use crate::{Answer, Inspection, Mode, Take};

use super::Memory;
use super::keep::{By, Found, Held};
use super::slot::Heat;
use super::stats::Removed;
use super::sweep::SETS_PER_INSERT;
use super::sync::thread_local;
use super::table::{Home, Spot};

/// How many takes ahead a set is brought nearer, and what its slot names in the arena.
const SETS_AHEAD: usize = 12;
const BLOCKS_AHEAD: usize = 6;

/// A counter that a request has to do with.
struct Open {
    key: Key,
    algorithm: Algorithm,
    home: Home,
    /// Its slot, once its sets are locked; none if it was never touched.
    found: Option<Found>,
    state: State,
    /// Was something done to it that may have to be written?
    changed: bool,
    heat: Heat,
}

/// What a thread works with, kept from request to request so that nothing is allocated for one.
#[derive(Default)]
struct Desk {
    open: Vec<Open>,
    /// States that were worked on before, by their algorithm: their lists are room for the next.
    spare: [Vec<State>; Algorithm::ALL.len()],
    /// Which of `open` each take is about.
    of_take: Vec<usize>,
    sets: Vec<usize>,
    pinned: Vec<Option<Spot>>,
}

thread_local! {
    static DESK: RefCell<Desk> = RefCell::default();
}

impl Memory {
    /// Brings near what the takes after a request of `len` takes will need.
    #[inline]
    pub(crate) fn bring_near(&self, len: usize, rest: &[Take<'_>]) {
        for take in rest.iter().skip(SETS_AHEAD.saturating_sub(len)).take(len.min(SETS_AHEAD)) {
            self.table.set(self.table.home(take.key).first).touch();
        }
        for take in rest.iter().skip(BLOCKS_AHEAD.saturating_sub(len)).take(len.min(BLOCKS_AHEAD)) {
            if !take.limit.class().packs() {
                let home = self.table.home(take.key);
                let set = self.table.set(home.first);
                if let Some(slot) = set.find(home.tag) {
                    self.arena.touch(set.word(slot) as u32);
                }
            }
        }
    }

    /// Judges one request and carries it out; says whether it is admitted.
    #[inline]
    pub(crate) fn request(&self, takes: &[Take<'_>], now: Micros, answers: &mut Vec<Answer>) -> bool {
        if let [take] = takes
            && let Some(admitted) = self.step_in_place(take, now, answers)
        {
            return admitted;
        }
        self.request_of_many(takes, now, answers)
    }

    /// The common case: one take, on a key that is in the first of its sets. One lock. Nothing if it is another case.
    #[inline]
    fn step_in_place(&self, take: &Take<'_>, now: Micros, answers: &mut Vec<Answer>) -> Option<bool> {
        let home = self.table.home(take.key);
        let set = self.table.set(home.first);
        let slot = set.find(home.tag)?;
        set.lock();
        if !set.tag(slot).is_of(home.tag) {
            set.unlock(); // It was moved or forgotten before the lock was there.
            return None;
        }
        let found = self.read(Spot { set: home.first, slot });
        let held = Held { sets: &[home.first], pinned: &[Some(found.spot)], now };
        let verdict = if take.limit.class().packs() {
            self.step_on(&found, take, &mut State::default(), held)
        } else {
            self.step_on_desk(&found, take, held)
        };
        set.unlock();
        answers.push(local(verdict));
        Some(verdict.admitted() || take.role == Role::Shadow)
    }

    fn step_on_desk(&self, found: &Found, take: &Take<'_>, held: Held<'_>) -> Verdict {
        DESK.with(|desk| {
            let desk = &mut *desk.borrow_mut();
            let spare = &mut desk.spare[take.limit.algorithm() as usize];
            let mut state = spare.pop().unwrap_or_default();
            let verdict = self.step_on(found, take, &mut state, held);
            spare.push(state);
            verdict
        })
    }

    #[inline]
    fn step_on(&self, found: &Found, take: &Take<'_>, state: &mut State, held: Held<'_>) -> Verdict {
        self.load(found, take.limit, state);
        let verdict = take.limit.step(state, take.ask, held.now);
        let heat = Heat::of(&verdict);
        if may_write(&take.ask, &verdict) || self.is_repaired(found, state) {
            self.write_back(found, take.limit, state, heat, held);
        } else {
            self.heat(found, heat);
        }
        verdict
    }

    fn request_of_many(&self, takes: &[Take<'_>], now: Micros, answers: &mut Vec<Answer>) -> bool {
        DESK.with(|desk| {
            let desk = &mut *desk.borrow_mut();
            self.open(takes.iter().map(|take| (take.key, take.limit)), desk);
            self.lock(desk);
            let admitted = self.judge(takes, now, answers, desk);
            let inserted = self.write(takes, now, desk);
            self.unlock(desk);
            if inserted > 0 {
                self.sweep_sets(inserted * SETS_PER_INSERT, now);
            }
            admitted
        })
    }

    /// Lays out the counters that some keys name, each once.
    fn open<'a>(&self, counters: impl Iterator<Item = (Key, &'a Limit)>, desk: &mut Desk) {
        desk.of_take.clear();
        for (key, limit) in counters {
            let known = desk.open.iter().position(|open| open.key == key);
            desk.of_take.push(known.unwrap_or(desk.open.len()));
            if known.is_none() {
                let algorithm = limit.algorithm();
                let state = desk.spare[algorithm as usize].pop().unwrap_or_default();
                let home = self.table.home(key);
                let heat = Heat::COLD;
                desk.open.push(Open { key, algorithm, home, found: None, state, changed: false, heat });
            }
        }
    }

    /// Locks the sets of all open counters, in order, and finds their slots.
    ///
    /// A key is nearly always in its first set, or in none; only if it is not in the first does the second have to be locked as well. What
    /// was seen without a lock may have changed since; then both sets of all are locked, which is always enough.
    fn lock(&self, desk: &mut Desk) {
        let mut whole = false;
        loop {
            desk.sets.clear();
            for open in &desk.open {
                desk.sets.push(open.home.first);
                if whole || self.table.find(open.home.first, open.home.tag).is_none() {
                    desk.sets.push(open.home.second);
                }
            }
            desk.sets.sort_unstable();
            desk.sets.dedup();
            desk.sets.iter().for_each(|set| self.table.lock(*set));
            let mut all_found = true;
            for open in &mut desk.open {
                let Home { tag, first, second } = open.home;
                let spot = self.table.find(first, tag);
                all_found &= spot.is_some() || desk.sets.binary_search(&second).is_ok();
                let spot = spot.or_else(|| self.table.find(second, tag));
                open.found = spot.map(|spot| self.read(spot));
            }
            if all_found {
                return;
            }
            desk.sets.iter().for_each(|set| self.table.unlock(*set));
            whole = true;
        }
    }

    fn unlock(&self, desk: &mut Desk) {
        desk.sets.iter().for_each(|set| self.table.unlock(*set));
        for open in desk.open.drain(..) {
            desk.spare[open.algorithm as usize].push(open.state);
        }
    }

    /// Judges all takes as if the request were admitted. If it is not, starts over and carries out only what is applied all the same.
    fn judge(&self, takes: &[Take<'_>], now: Micros, answers: &mut Vec<Answer>, desk: &mut Desk) -> bool {
        let from = answers.len();
        self.load_all(takes, desk);
        for (take, at) in takes.iter().zip(&desk.of_take) {
            let open = &mut desk.open[*at];
            let verdict = take.limit.step(&mut open.state, take.ask, now);
            open.heat = Heat::of(&verdict);
            open.changed |= may_write(&take.ask, &verdict);
            answers.push(local(verdict));
        }
        let answers = &mut answers[from..];
        let passed = |(take, answer): (&Take<'_>, &Answer)| (take.role, answer.verdict.admitted());
        let admitted = admits(takes.iter().zip(&*answers).map(passed));
        if admitted || takes.len() == 1 {
            return admitted; // A refusal of the only take has touched nothing.
        }
        self.load_all(takes, desk);
        for ((take, at), answer) in takes.iter().zip(&desk.of_take).zip(answers) {
            let open = &mut desk.open[*at];
            if gives_back(&take.ask) || take.limit.charge() == Charge::Always {
                answer.verdict = take.limit.step(&mut open.state, take.ask, now);
                open.changed |= may_write(&take.ask, &answer.verdict);
            } else {
                // Shown in any case: a broken clock's times are repaired by whoever asks, or a key that is only refused stays frozen.
                let shown = take.limit.show(&mut open.state, take.ask, now);
                if answer.verdict.admitted() {
                    answer.verdict = shown;
                }
            }
            open.heat = Heat::of(&answer.verdict);
        }
        false
    }

    /// Reads the states of all open counters from their slots.
    fn load_all(&self, takes: &[Take<'_>], desk: &mut Desk) {
        for (take, at) in takes.iter().zip(&desk.of_take) {
            let open = &mut desk.open[*at];
            open.changed = false;
            match &open.found {
                Some(found) => self.load(found, take.limit, &mut open.state),
                None => take.limit.renew(&mut open.state),
            }
        }
    }

    /// Writes what changed; says how many keys are new.
    fn write(&self, takes: &[Take<'_>], now: Micros, desk: &mut Desk) -> usize {
        let mut inserted = 0;
        desk.pinned.clear();
        desk.pinned.extend(desk.open.iter().map(|open| open.found.map(|found| found.spot)));
        for at in 0..desk.open.len() {
            // The last take on a counter says by which limit it is kept.
            let Some(last) = desk.of_take.iter().rposition(|of| *of == at) else { continue };
            let limit = takes[last].limit;
            let held = Held { sets: &desk.sets, pinned: &desk.pinned, now };
            let open = &mut desk.open[at];
            match open.found {
                Some(found) if open.changed || self.is_repaired(&found, &open.state) => {
                    self.write_back(&found, limit, &mut open.state, open.heat, held);
                }
                Some(found) => self.heat(&found, open.heat),
                None if open.changed => {
                    let spot = self.insert(open.home, By::Limit(limit), &mut open.state, open.heat, held);
                    inserted += usize::from(spot.is_some());
                    desk.pinned[at] = spot;
                }
                None => {}
            }
        }
        inserted
    }

    /// Looks at a counter and touches nothing.
    pub(crate) fn inspect_now(&self, key: Key, limit: &Limit, now: Micros) -> Inspection {
        let mut state = limit.state();
        let stored = self.with_slot(key, |found| self.load(found, limit, &mut state)).is_some();
        let verdict = limit.show(&mut state, Ask::Peek, now);
        Inspection { stored, used: limit.used(&mut state, now), verdict }
    }

    /// Forgets a counter; says whether there was one.
    pub(crate) fn reset_now(&self, key: Key) -> bool {
        self.with_slot(key, |found| self.remove(found, Removed::Reset)).is_some()
    }

    /// Does something with the slot of a key, if it has one, under the locks of both of its sets.
    fn with_slot<T>(&self, key: Key, act: impl FnOnce(&Found) -> T) -> Option<T> {
        let Home { tag, first, second } = self.table.home(key);
        let (low, high) = (first.min(second), first.max(second));
        self.table.lock(low);
        if high != low {
            self.table.lock(high);
        }
        let spot = self.table.find(first, tag).or_else(|| self.table.find(second, tag));
        let result = spot.map(|spot| act(&self.read(spot)));
        if high != low {
            self.table.unlock(high);
        }
        self.table.unlock(low);
        result
    }
}

fn local(verdict: Verdict) -> Answer {
    Answer { verdict, mode: Mode::Local }
}

/// Does it give something back? Then it is applied in a refused request too.
fn gives_back(ask: &Ask) -> bool {
    matches!(ask, Ask::Refund { .. } | Ask::Settle { .. } | Ask::Release { .. })
}

/// Can it have changed more of the state than a broken clock's times?
fn may_write(ask: &Ask, verdict: &Verdict) -> bool {
    let holds = matches!(ask, Ask::Acquire { .. } | Ask::Renew { .. });
    verdict.applied != 0 || (holds && verdict.admitted())
}
