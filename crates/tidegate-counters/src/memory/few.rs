//! A request of a few takes whose counters are all there, each packed in its slot: what most requests of several takes are. Nothing is laid
//! out for it: the sets are locked in order, every take steps on a copy of its slot, and what the decision says is written.

use tidegate_core::{Charge, Era, Micros, Packed, admits};

use crate::{Answer, Mode, Take};

use super::Memory;
use super::desk::gives_back;
use super::slot::{Heat, Tag};
use super::table::{Set, Spot};

/// How many takes are a few: with more of them the desk's vectors weigh little.
pub(crate) const FEW: usize = 8;

/// A counter of such a request, and what it becomes.
#[derive(Clone, Copy)]
struct Opened<'a> {
    set: Set<'a>,
    slot: usize,
    tag: Tag,
    packed: Packed,
}

impl Opened<'_> {
    fn write(&self, heat: Heat) {
        self.set.put_word(self.slot, self.packed.word);
        self.set.put_tag(self.slot, self.tag.touched(heat).with_extra(self.packed.extra));
    }
}

impl Memory {
    /// Judges a request of up to [`FEW`] takes and carries it out; says whether it is admitted, or nothing if this takes a desk: then no
    /// counter was changed.
    #[inline(never)]
    pub(crate) fn request_of_few(
        &self,
        takes: &[Take<'_>],
        now: Micros,
        answers: &mut [Answer],
    ) -> Option<bool> {
        let mut spots = [Spot::default(); FEW];
        let spots = spots.get_mut(..takes.len())?;
        for (at, take) in takes.iter().enumerate() {
            if !take.limit.class().packs() {
                return None;
            }
            let home = self.table.home(take.key);
            let find = |set: usize| self.table.find(set, home.tag);
            let found = find(home.first).or_else(|| find(home.second))?;
            if spots[..at].contains(&found) {
                return None; // Two takes on one counter are judged one after the other.
            }
            spots[at] = found;
        }
        let mut sets = [0; FEW];
        let _locked = self.table.lock_all(in_order(spots, &mut sets));
        self.judge_few(takes, spots, self.era(), now, answers)
    }

    fn judge_few(
        &self,
        takes: &[Take<'_>],
        spots: &[Spot],
        era: Era,
        now: Micros,
        answers: &mut [Answer],
    ) -> Option<bool> {
        let set = self.table.set(0);
        let mut opened = [Opened { set, slot: 0, tag: Tag::EMPTY, packed: Packed::default() }; FEW];
        let opened = &mut opened[..takes.len()];
        for ((take, spot), (opened, answer)) in
            takes.iter().zip(spots).zip(opened.iter_mut().zip(&mut *answers))
        {
            *opened = self.open(take, *spot)?;
            answer.mode = Mode::Local;
            let verdict = &mut answer.verdict;
            opened.packed = take.limit.step_packed(opened.packed, era, take.ask, now, verdict)?;
        }
        let passed = |(take, answer): (&Take<'_>, &Answer)| (take.role, answer.verdict.admitted());
        let admitted = admits(takes.iter().zip(&*answers).map(passed));
        if !admitted {
            for ((take, spot), (opened, answer)) in
                takes.iter().zip(spots).zip(opened.iter_mut().zip(&mut *answers))
            {
                let is_applied = gives_back(&take.ask) || take.limit.charge() == Charge::Always;
                // What was refused has charged nothing, and has repaired a broken clock's times, as everybody does who asks.
                if !is_applied && answer.verdict.admitted() {
                    *opened = self.open(take, *spot)?;
                    let verdict = &mut answer.verdict;
                    opened.packed = take.limit.show_packed(opened.packed, era, take.ask, now, verdict)?;
                }
            }
        }
        for ((take, answer), opened) in takes.iter().zip(&*answers).zip(&*opened) {
            opened.write(Heat::of(&answer.verdict, take.limit));
        }
        Some(admitted)
    }

    /// Reads a slot whose set is locked, if it is the take's and of the class of its limit, which packs.
    #[inline]
    fn open(&self, take: &Take<'_>, spot: Spot) -> Option<Opened<'_>> {
        let set = self.table.set(spot.set);
        let (tag, class) = (set.tag(spot.slot), take.limit.class());
        let packs = tag.is_of(self.table.home(take.key).tag) && self.classes.is(tag.class(), class);
        let packed = Packed { word: set.word(spot.slot), extra: tag.extra() };
        packs.then_some(Opened { set, slot: spot.slot, tag, packed })
    }
}

/// The sets of these slots, in order, each once.
fn in_order<'a>(spots: &[Spot], sets: &'a mut [usize; FEW]) -> &'a [usize] {
    let mut len = 0;
    for spot in spots {
        if sets[..len].contains(&spot.set) {
            continue;
        }
        let mut at = len;
        while at > 0 && sets[at - 1] > spot.set {
            sets[at] = sets[at - 1];
            at -= 1;
        }
        sets[at] = spot.set;
        len += 1;
    }
    &sets[..len]
}
