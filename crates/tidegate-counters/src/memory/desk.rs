//! The desk: where the counters of a request are laid out, their sets locked, all takes judged, and what changed is written.

use std::cell::RefCell;

use tidegate_core::{Algorithm, Ask, Charge, Class, Key, Limit, Micros, Packed, State, Verdict, admits};

use crate::{Answer, Inspection, Mode, Rehearsed, Take};

use super::Memory;
use super::keep::{By, Found, Held};
use super::slot::Heat;
use super::sweep::SETS_PER_INSERT;
use super::sync::thread_local;
use super::table::{Home, LockedSets, Spot};

/// What a thread works with, kept from request to request so that nothing is allocated for one.
#[derive(Default)]
struct Desk {
    /// The counters of this request, each once, are the first `len`; after them lie those of earlier requests, whose states are room for
    /// later ones.
    open: Vec<Open>,
    len: usize,
    /// Which of them each take is about.
    of_take: Vec<usize>,
    /// Room for the numbers of the sets that are locked.
    sets: Vec<usize>,
    /// The slots that must stay where they are.
    pinned: Vec<Option<Spot>>,
    spare: Spare,
}

/// How many states of each kind a thread keeps for their room: those of a log may be large.
const SPARE_MAX: usize = 8;

impl Desk {
    /// Throws away what was only needed for an unusually large request.
    fn tidy_up(&mut self) {
        self.open.truncate(SPARE_MAX);
        self.spare.iter_mut().for_each(|spare| spare.truncate(SPARE_MAX));
    }
}

/// States that were worked on before, by algorithm: their lists are room for the next.
type Spare = [Vec<State>; Algorithm::ALL.len()];

thread_local! {
    static DESK: RefCell<Desk> = RefCell::default();
}

/// A counter that a request has to do with.
struct Open {
    key: Key,
    home: Home,
    /// The last take on it: its limit says how it is kept.
    last_take: usize,
    /// Its slot, once its sets are locked; none if it was never touched.
    found: Option<Found>,
    /// The state that is worked on while it is packed, and its class.
    packed: Option<(Class, Packed)>,
    /// The state that is worked on otherwise, and whose room it has.
    state: State,
    algorithm: Algorithm,
    /// Was something done to the state that may have to be written?
    changed: bool,
}

impl Open {
    /// Room for a state of this limit.
    fn room(&mut self, limit: &Limit, spare: &mut Spare) -> &mut State {
        if self.algorithm != limit.algorithm() {
            let fitting = spare[limit.algorithm() as usize].pop().unwrap_or_default();
            spare[self.algorithm as usize].push(std::mem::replace(&mut self.state, fitting));
            self.algorithm = limit.algorithm();
        }
        &mut self.state
    }
}

impl Memory {
    /// One take on a slot whose set is locked: nothing has to be laid out for it.
    #[inline(never)]
    pub(crate) fn step_on_slot(&self, spot: Spot, take: &Take<'_>, now: Micros, verdict: &mut Verdict) {
        DESK.with(|desk| {
            let desk = &mut *desk.borrow_mut();
            let spare = &mut desk.spare[take.limit.algorithm() as usize];
            if spare.is_empty() {
                spare.push(State::default());
            }
            let state = &mut spare[0];
            let found = self.read(spot);
            self.load(&found, state);
            *verdict = take.limit.step(state, take.ask, now);
            if may_write(&take.ask, verdict) || self.is_repaired(&found, state) {
                let held = Held { sets: &[spot.set], pinned: &[Some(spot)], now };
                self.write_back(&found, take.limit, state, verdict, held);
            } else {
                self.touch(&found, Heat::of(verdict, take.limit));
            }
        });
    }

    /// Judges a request of any takes and carries it out; says whether it is admitted.
    #[inline(never)]
    pub(crate) fn request_on_desk(&self, takes: &[Take<'_>], now: Micros, answers: &mut [Answer]) -> bool {
        DESK.with(|desk| {
            let desk = &mut *desk.borrow_mut();
            self.lay_out(takes, desk);
            let locked = self.lock(desk);
            let admitted = self.judge(takes, now, answers, desk);
            let inserted = self.write(takes, now, answers, desk, locked.numbers());
            desk.sets = locked.unlock();
            desk.tidy_up();
            if inserted > 0 {
                self.sweep_sets(inserted * SETS_PER_INSERT, now);
            }
            admitted
        })
    }

    /// Judges a request like any other, writes nothing, and says whether it would be admitted. What each take found and would leave is
    /// added to `seen`.
    pub(crate) fn rehearse_on_desk(
        &self,
        takes: &[Take<'_>],
        now: Micros,
        answers: &mut [Answer],
        seen: &mut Vec<Rehearsed>,
    ) -> bool {
        DESK.with(|desk| {
            let desk = &mut *desk.borrow_mut();
            self.lay_out(takes, desk);
            let locked = self.lock(desk);
            self.load_all(takes, desk);
            let before = self.look(takes, desk, now);
            let admitted = self.judge(takes, now, answers, desk);
            let after = self.look(takes, desk, now);
            desk.sets = locked.unlock();
            desk.tidy_up();
            seen.extend(before.into_iter().zip(after).map(|(before, after)| Rehearsed { before, after }));
            admitted
        })
    }

    /// What an inspection would tell about the counter of each take, as it lies on the desk.
    fn look(&self, takes: &[Take<'_>], desk: &mut Desk, now: Micros) -> Vec<Inspection> {
        let look = |(take, at): (&Take<'_>, &usize)| {
            let open = &mut desk.open[*at];
            let mut unpacked = open.packed.map(|(class, packed)| class.unpack(packed, self.era()));
            let state = unpacked.as_mut().unwrap_or(&mut open.state);
            let stored = open.found.is_some() || open.changed;
            let verdict = take.limit.show(state, Ask::Peek, now);
            Inspection { stored, used: take.limit.used(state, now), verdict }
        };
        takes.iter().zip(&desk.of_take).map(look).collect()
    }

    /// Lays out the counters that the takes name, each once.
    fn lay_out(&self, takes: &[Take<'_>], desk: &mut Desk) {
        desk.of_take.clear();
        desk.len = 0;
        for (last_take, take) in takes.iter().enumerate() {
            if let Some(at) = desk.open[..desk.len].iter().position(|open| open.key == take.key) {
                desk.of_take.push(at);
                desk.open[at].last_take = last_take;
                continue;
            }
            desk.of_take.push(desk.len);
            let (key, home) = (take.key, self.table.home(take.key));
            if let Some(open) = desk.open.get_mut(desk.len) {
                (open.key, open.home, open.last_take) = (key, home, last_take);
            } else {
                let (state, algorithm) = (State::default(), take.limit.algorithm());
                let (found, packed, changed) = (None, None, false);
                desk.open.push(Open { key, home, last_take, found, packed, state, algorithm, changed });
            }
            desk.len += 1;
        }
    }

    /// Locks the sets of all counters, in order, and finds their slots.
    ///
    /// A key that is in a set is in no other, so that set is enough; both have to be locked only if it is in none. What was seen without
    /// a lock may have changed since: then both sets of all are locked, which is always enough.
    fn lock(&self, desk: &mut Desk) -> LockedSets<'_, Vec<usize>> {
        let sets = self.choose_sets(desk, |home, set| self.table.set(set).find(home.tag).is_some());
        let locked = self.table.lock_all(sets);
        if self.find_all(desk, locked.numbers()) {
            return locked;
        }
        desk.sets = locked.unlock();
        let locked = self.table.lock_all(self.choose_sets(desk, |_, _| false));
        self.find_all(desk, locked.numbers());
        locked
    }

    /// The sets that have to be locked, in order, each once: of each counter the one that it seems to be in, else both.
    fn choose_sets(&self, desk: &mut Desk, is_in: impl Fn(&Home, usize) -> bool) -> Vec<usize> {
        let mut sets = std::mem::take(&mut desk.sets);
        sets.clear();
        for Open { home, .. } in &desk.open[..desk.len] {
            match [home.first, home.second].into_iter().find(|set| is_in(home, *set)) {
                Some(set) => sets.push(set),
                None => sets.extend([home.first, home.second]),
            }
        }
        if sets.len() > 1 {
            sets.sort_unstable();
            sets.dedup();
        }
        sets
    }

    /// Finds the slots of all counters in the locked sets; says whether it is certain of those that have none.
    fn find_all(&self, desk: &mut Desk, sets: &[usize]) -> bool {
        for open in &mut desk.open[..desk.len] {
            let Home { tag, first, second } = open.home;
            let [in_first, in_second] = [first, second].map(|set| sets.binary_search(&set).is_ok());
            let spot = if in_first { self.table.find(first, tag) } else { None };
            let spot = spot.or_else(|| if in_second { self.table.find(second, tag) } else { None });
            if spot.is_none() && !(in_first && in_second) {
                return false;
            }
            open.found = spot.map(|spot| self.read(spot));
        }
        true
    }

    /// Judges all takes as if the request were admitted. If it is not, starts over and carries out only what is applied all the same.
    fn judge(&self, takes: &[Take<'_>], now: Micros, answers: &mut [Answer], desk: &mut Desk) -> bool {
        self.load_all(takes, desk);
        for ((take, at), answer) in takes.iter().zip(&desk.of_take).zip(&mut *answers) {
            answer.mode = Mode::Local;
            self.step(&mut desk.open[*at], take, now, &mut answer.verdict, &mut desk.spare);
        }
        let passed = |(take, answer): (&Take<'_>, &Answer)| (take.role, answer.verdict.admitted());
        let admitted = admits(takes.iter().zip(&*answers).map(passed));
        if admitted || takes.len() == 1 {
            return admitted; // The only take has done what a refusal does.
        }
        self.load_all(takes, desk);
        for ((take, at), answer) in takes.iter().zip(&desk.of_take).zip(answers) {
            let open = &mut desk.open[*at];
            if gives_back(&take.ask) || take.limit.charge() == Charge::Always {
                self.step(open, take, now, &mut answer.verdict, &mut desk.spare);
                continue;
            }
            // Shown in any case: a broken clock's times are repaired by whoever asks, or a key that is only refused stays frozen.
            let shown = self.show(open, take, now, &mut desk.spare);
            if answer.verdict.admitted() {
                answer.verdict = shown;
            }
        }
        false
    }

    /// Takes the states of all counters from their slots.
    fn load_all(&self, takes: &[Take<'_>], desk: &mut Desk) {
        for open in &mut desk.open[..desk.len] {
            let limit = takes[open.last_take].limit;
            open.changed = false;
            let class = limit.class();
            open.packed =
                open.found.as_ref().and_then(|found| found.packed_as(class)).map(|packed| (class, packed));
            if open.packed.is_none() {
                let found = open.found;
                let state = open.room(limit, &mut desk.spare);
                match &found {
                    Some(found) => {
                        self.load(found, state);
                    }
                    None => limit.renew(state),
                }
            }
        }
    }

    /// Judges a take and carries it out on the desk.
    fn step(&self, open: &mut Open, take: &Take<'_>, now: Micros, verdict: &mut Verdict, spare: &mut Spare) {
        if let Some((class, packed)) = open.packed
            && class == take.limit.class()
            && let Some(stepped) = take.limit.step_packed(packed, self.era(), take.ask, now, verdict)
        {
            open.packed = Some((class, stepped));
        } else {
            *verdict = take.limit.step(self.unpacked(open, take.limit, spare), take.ask, now);
            open.changed |= may_write(&take.ask, verdict);
        }
    }

    /// Judges a take and carries nothing out.
    fn show(&self, open: &mut Open, take: &Take<'_>, now: Micros, spare: &mut Spare) -> Verdict {
        let mut verdict = Verdict::BLANK;
        if let Some((class, packed)) = open.packed
            && class == take.limit.class()
            && let Some(shown) = take.limit.show_packed(packed, self.era(), take.ask, now, &mut verdict)
        {
            open.packed = Some((class, shown));
            return verdict;
        }
        take.limit.show(self.unpacked(open, take.limit, spare), take.ask, now)
    }

    /// The state that is worked on, unpacked if it was not.
    fn unpacked<'a>(&self, open: &'a mut Open, limit: &Limit, spare: &mut Spare) -> &'a mut State {
        if let Some((class, packed)) = open.packed.take() {
            *open.room(limit, spare) = class.unpack(packed, self.era());
            open.changed = true; // It may have been stepped on while it was packed.
        }
        &mut open.state
    }

    /// Writes what changed; says how many keys are new.
    fn write(
        &self,
        takes: &[Take<'_>],
        now: Micros,
        answers: &[Answer],
        desk: &mut Desk,
        sets: &[usize],
    ) -> usize {
        let mut inserted = 0;
        desk.pinned.clear();
        desk.pinned.extend(desk.open[..desk.len].iter().map(|open| open.found.map(|found| found.spot)));
        for at in 0..desk.len {
            let held = Held { sets, pinned: &desk.pinned, now };
            let open = &mut desk.open[at];
            let (limit, verdict) = (takes[open.last_take].limit, &answers[open.last_take].verdict);
            match (open.found, open.packed) {
                (Some(found), Some((_, packed))) => self.repack(&found, packed, Heat::of(verdict, limit)),
                (Some(found), None) if open.changed || self.is_repaired(&found, &open.state) => {
                    self.write_back(&found, limit, &mut open.state, verdict, held);
                }
                (Some(found), None) => self.touch(&found, Heat::of(verdict, limit)),
                (None, _) if open.changed => {
                    let by = By::Limit { limit, verdict };
                    let spot = self.insert(open.home, by, &mut open.state, Heat::of(verdict, limit), held);
                    inserted += usize::from(spot.is_some());
                    desk.pinned[at] = spot;
                }
                (None, _) => {}
            }
        }
        inserted
    }
}

/// Does it give something back? Then it is applied in a refused request too.
pub(crate) fn gives_back(ask: &Ask) -> bool {
    matches!(ask, Ask::Refund { .. } | Ask::Settle { .. } | Ask::Release { .. })
}

/// Can it have changed more of the state than a broken clock's times?
fn may_write(ask: &Ask, verdict: &Verdict) -> bool {
    let holds = matches!(ask, Ask::Acquire { .. } | Ask::Renew { .. });
    verdict.applied != 0 || (holds && verdict.admitted())
}
