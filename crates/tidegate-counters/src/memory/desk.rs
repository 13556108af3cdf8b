//! The desk: where the counters of a request are laid out, their sets locked, all takes judged, and what changed is written.

use std::cell::RefCell;

use tidegate_core::{Algorithm, Ask, Charge, Class, Key, Limit, Micros, Packed, State, Verdict, admits};

use crate::{Answer, Take};

use super::Memory;
use super::keep::{By, Found, Held};
use super::slot::Heat;
use super::sweep::SETS_PER_INSERT;
use super::table::{Home, Spot};

/// What a thread works with, kept from request to request so that nothing is allocated for one.
#[derive(Default)]
struct Desk {
    /// The counters, each once.
    open: Vec<Open>,
    /// Which of them each take is about.
    of_take: Vec<usize>,
    /// The sets whose locks are held, in order.
    sets: Vec<usize>,
    /// The slots that must stay where they are.
    pinned: Vec<Option<Spot>>,
    /// States that were worked on before, by algorithm: their lists are room for the next.
    spare: [Vec<State>; Algorithm::ALL.len()],
}

thread_local! {
    static DESK: RefCell<Desk> = RefCell::default();
}

/// A counter that a request has to do with.
struct Open {
    key: Key,
    home: Home,
    /// Its slot, once its sets are locked; none if it was never touched.
    found: Option<Found>,
    work: Work,
    /// Was something done to it that may have to be written?
    changed: bool,
    heat: Heat,
}

/// The state that is worked on: packed for as long as it can be.
enum Work {
    Packed(Class, Packed),
    State(Algorithm, State),
}

impl Memory {
    /// Judges a request of any takes and carries it out; says whether it is admitted.
    pub(crate) fn request_on_desk(&self, takes: &[Take<'_>], now: Micros, answers: &mut Vec<Answer>) -> bool {
        DESK.with_borrow_mut(|desk| {
            self.lay_out(takes, desk);
            self.lock(desk);
            let admitted = self.judge(takes, now, answers, desk);
            let inserted = self.write(takes, now, desk);
            self.clear(desk);
            if inserted > 0 {
                self.sweep_sets(inserted * SETS_PER_INSERT, now);
            }
            admitted
        })
    }

    /// Lays out the counters that the takes name, each once.
    fn lay_out(&self, takes: &[Take<'_>], desk: &mut Desk) {
        desk.of_take.clear();
        for take in takes {
            let known = desk.open.iter().position(|open| open.key == take.key);
            desk.of_take.push(known.unwrap_or(desk.open.len()));
            if known.is_none() {
                let home = self.table.home(take.key);
                let work = Work::Packed(take.limit.class(), Packed::default());
                desk.open.push(Open {
                    key: take.key,
                    home,
                    found: None,
                    work,
                    changed: false,
                    heat: Heat::COLD,
                });
            }
        }
    }

    /// Locks the sets of all counters, in order, and finds their slots.
    ///
    /// A key that is in a set is in no other, so that set is enough; both have to be locked only if it is in none. What was seen without a lock
    /// may have changed since: then both sets of all are locked, which is always enough.
    fn lock(&self, desk: &mut Desk) {
        let mut whole = false;
        loop {
            desk.sets.clear();
            for Open { home, .. } in &desk.open {
                let seen = [home.first, home.second]
                    .into_iter()
                    .find(|set| self.table.find(*set, home.tag).is_some());
                match seen.filter(|_| !whole) {
                    Some(set) => desk.sets.push(set),
                    None => desk.sets.extend([home.first, home.second]),
                }
            }
            if desk.sets.len() > 1 {
                desk.sets.sort_unstable();
                desk.sets.dedup();
            }
            desk.sets.iter().for_each(|set| self.table.lock(*set));
            if self.find_all(desk) {
                return;
            }
            desk.sets.iter().for_each(|set| self.table.unlock(*set));
            whole = true;
        }
    }

    /// Finds the slots of all counters in the locked sets; says whether it is certain of those that have none.
    fn find_all(&self, desk: &mut Desk) -> bool {
        for open in &mut desk.open {
            let Home { tag, first, second } = open.home;
            let mut locked = 0;
            open.found = None;
            for set in [first, second] {
                if desk.sets.contains(&set) {
                    locked += 1;
                    if let Some(spot) = self.table.find(set, tag) {
                        open.found = Some(self.read(spot));
                        break;
                    }
                }
            }
            if open.found.is_none() && locked < 2 {
                return false;
            }
        }
        true
    }

    /// Unlocks everything and puts the states away.
    fn clear(&self, desk: &mut Desk) {
        desk.sets.iter().for_each(|set| self.table.unlock(*set));
        for open in desk.open.drain(..) {
            if let Work::State(algorithm, state) = open.work {
                desk.spare[algorithm as usize].push(state);
            }
        }
    }

    /// Judges all takes as if the request were admitted. If it is not, starts over and carries out only what is applied all the same.
    fn judge(&self, takes: &[Take<'_>], now: Micros, answers: &mut Vec<Answer>, desk: &mut Desk) -> bool {
        let from = answers.len();
        self.load_all(takes, desk);
        for (take, at) in takes.iter().zip(&desk.of_take) {
            let verdict = &mut answers.push_mut(Answer::BLANK).verdict;
            self.step(&mut desk.open[*at], take, now, verdict, &mut desk.spare);
        }
        let answers = &mut answers[from..];
        let passed = |(take, answer): (&Take<'_>, &Answer)| (take.role, answer.verdict.admitted());
        let admitted = admits(takes.iter().zip(&*answers).map(passed));
        if admitted || takes.len() == 1 {
            return admitted; // A refusal of the only take has charged nothing.
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
            open.heat = Heat::of(&answer.verdict);
        }
        false
    }

    /// Takes the states of all counters from their slots.
    fn load_all(&self, takes: &[Take<'_>], desk: &mut Desk) {
        for (take, at) in takes.iter().zip(&desk.of_take) {
            let open = &mut desk.open[*at];
            open.changed = false;
            let class = take.limit.class();
            if let Some(packed) = open.found.and_then(|found| found.packed_as(class)) {
                open.work = Work::Packed(class, packed);
                continue;
            }
            let state = take_out(&mut open.work, take.limit, &mut desk.spare);
            match &open.found {
                Some(found) => self.load(found, take.limit, state),
                None => take.limit.renew(state),
            }
        }
    }

    /// Judges a take and carries it out on the desk.
    fn step(&self, open: &mut Open, take: &Take<'_>, now: Micros, verdict: &mut Verdict, spare: &mut Spare) {
        if let Work::Packed(class, packed) = open.work
            && class == take.limit.class()
            && let Some(stepped) = take.limit.step_packed(packed, self.era(), take.ask, now, verdict)
        {
            open.work = Work::Packed(class, stepped);
            open.changed |= stepped != packed;
        } else {
            let state = self.unpacked(open, take.limit, spare);
            *verdict = take.limit.step(state, take.ask, now);
            open.changed |= may_write(&take.ask, verdict);
        }
        open.heat = Heat::of(verdict);
    }

    /// Judges a take and carries nothing out.
    fn show(&self, open: &mut Open, take: &Take<'_>, now: Micros, spare: &mut Spare) -> Verdict {
        take.limit.show(self.unpacked(open, take.limit, spare), take.ask, now)
    }

    /// The state that is worked on, as one.
    fn unpacked<'a>(&self, open: &'a mut Open, limit: &Limit, spare: &mut Spare) -> &'a mut State {
        let packed = if let Work::Packed(class, packed) = open.work { Some((class, packed)) } else { None };
        let state = take_out(&mut open.work, limit, spare);
        if let Some((class, packed)) = packed {
            *state = class.unpack(packed, self.era());
        }
        state
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
            match (open.found, &mut open.work) {
                (Some(found), Work::Packed(_, packed)) => self.repack(&found, *packed, open.heat),
                (Some(found), Work::State(_, state)) if open.changed || self.is_repaired(&found, state) => {
                    self.write_back(&found, limit, state, open.heat, held);
                }
                (Some(found), _) => self.heat(&found, open.heat),
                (None, Work::State(_, state)) if open.changed => {
                    let spot = self.insert(open.home, By::Limit(limit), state, open.heat, held);
                    inserted += usize::from(spot.is_some());
                    desk.pinned[at] = spot;
                }
                (None, _) => {}
            }
        }
        inserted
    }
}

type Spare = [Vec<State>; Algorithm::ALL.len()];

/// Makes the work on a counter a state, whatever is in it.
fn take_out<'a>(work: &'a mut Work, limit: &Limit, spare: &mut Spare) -> &'a mut State {
    if let Work::Packed(..) = work {
        let algorithm = limit.algorithm();
        *work = Work::State(algorithm, spare[algorithm as usize].pop().unwrap_or_default());
    }
    match work {
        Work::State(_, state) => state,
        Work::Packed(..) => unreachable!("it was just made a state"),
    }
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
