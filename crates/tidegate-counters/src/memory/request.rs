//! One request, from its takes to its answers. Start at [`Memory::request`].
//!
//! Most requests are one take on a key that is there: that is done here, if its state is packed within one cache line. All others are
//! laid out on a desk (`desk`).

use tidegate_core::{Ask, Key, Limit, Micros, Packed, Role, Verdict};

use crate::{Answer, Inspection, Take};

use super::Memory;
use super::keep::Found;
use super::slot::{Heat, Tag};
use super::stats::Removed;
use super::table::{Set, Spot};

/// How many takes are brought near at a time: about as many as a core can wait for at once.
pub(crate) const NEAR: usize = 16;

impl Memory {
    /// Brings near what some takes will need: the first set of each, so that the memory fetches them at the same time; then the second of
    /// those that are not there; then what their slots name in the arena.
    pub(crate) fn bring_near(&self, takes: &[Take<'_>]) {
        for take in takes {
            self.table.set(self.table.home(take.key).first).touch();
        }
        for take in takes {
            let home = self.table.home(take.key);
            if self.table.set(home.first).find(home.tag).is_none() {
                self.table.set(home.second).touch();
            }
        }
        for take in takes.iter().filter(|take| !take.limit.class().packs()) {
            let home = self.table.home(take.key);
            for set in [home.first, home.second].map(|set| self.table.set(set)) {
                if let Some(slot) = set.find(home.tag) {
                    self.arena.touch(set.word(slot) as u32);
                }
            }
        }
    }

    /// Judges one request and carries it out; says whether it is admitted.
    #[inline(always)]
    pub(crate) fn request(&self, takes: &[Take<'_>], now: Micros, answers: &mut Vec<Answer>) -> bool {
        if let [take] = takes {
            let home = self.table.home(take.key);
            // A key that is found in a set, under the lock of that set, is nowhere else.
            if self.step_in_set(home.first, home.tag, take, now, answers)
                || self.step_in_set(home.second, home.tag, take, now, answers)
            {
                let admitted = answers.last().is_some_and(|answer| answer.verdict.admitted());
                return admitted || take.role == Role::Shadow;
            }
        }
        self.request_on_desk(takes, now, answers)
    }

    /// The common case: one take, on a key that is in this set. One lock. Says whether it was that case.
    #[inline(always)]
    fn step_in_set(
        &self,
        number: usize,
        key_tag: u64,
        take: &Take<'_>,
        now: Micros,
        answers: &mut Vec<Answer>,
    ) -> bool {
        let set = self.table.set(number);
        let Some(slot) = set.find(key_tag) else { return false };
        let _locked = set.lock();
        let tag = set.tag(slot);
        if !tag.is_of(key_tag) {
            return false; // It was moved or forgotten before the lock was there.
        }
        let verdict = &mut answers.push_mut(Answer::BLANK).verdict;
        if !self.step_packed(set, slot, tag, take, now, verdict) {
            self.step_on_slot(Spot { set: number, slot }, take, now, verdict);
        }
        true
    }

    /// Steps on a slot of a locked set if its state is packed under the class of the limit, and stays so: nothing leaves the cache line.
    /// Says whether it did.
    #[inline(always)]
    fn step_packed(
        &self,
        set: Set<'_>,
        slot: usize,
        tag: Tag,
        take: &Take<'_>,
        now: Micros,
        verdict: &mut Verdict,
    ) -> bool {
        let class = take.limit.class();
        if !class.packs() || self.classes.get(tag.class()) != Some(class) {
            return false;
        }
        let packed = Packed { word: set.word(slot), extra: tag.extra() };
        let Some(packed) = take.limit.step_packed(packed, self.era(), take.ask, now, verdict) else {
            return false;
        };
        set.put_word(slot, packed.word);
        set.put_tag(slot, tag.touched(Heat::of(verdict, take.limit)).with_extra(packed.extra));
        true
    }

    /// Looks at a counter and touches nothing.
    pub(crate) fn inspect_now(&self, key: Key, limit: &Limit, now: Micros) -> Inspection {
        let mut state = limit.state();
        let stored = self.with_slot(key, |found| self.load(found, &mut state)).is_some();
        let verdict = limit.show(&mut state, Ask::Peek, now);
        Inspection { stored, used: limit.used(&mut state, now), verdict }
    }

    /// Forgets a counter; says whether there was one.
    pub(crate) fn reset_now(&self, key: Key) -> bool {
        self.with_slot(key, |found| self.remove(found, Removed::Reset)).is_some()
    }

    /// Does something with the slot of a key, if it has one, under the locks of both of its sets.
    fn with_slot<T>(&self, key: Key, act: impl FnOnce(&Found) -> T) -> Option<T> {
        let home = self.table.home(key);
        let locked = self.table.lock_all(home.sets());
        let spot = locked.numbers().iter().find_map(|set| self.table.find(*set, home.tag));
        spot.map(|spot| act(&self.read(spot)))
    }
}
