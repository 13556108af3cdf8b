//! One request, from its takes to its answers. Start at [`Memory::request`].
//!
//! Most requests are one take on a key that is there: that is done here, if its state is packed within one cache line. A few takes on such
//! keys need little more (`few`). All others are laid out on a desk (`desk`).

use tidegate_core::{Ask, Key, Limit, Micros, Packed, Role, Verdict};

use crate::{Answer, Inspection, Mode, Take};

use super::Memory;
use super::few::FEW;
use super::keep::Found;
use super::slot::{Heat, Tag};
use super::stats::Removed;
use super::table::Set;

/// How many takes are brought near at a time: about as many as a core can wait for at once.
pub(crate) const NEAR: usize = 16;

impl Memory {
    /// Brings near what some takes will need: the first set of each, so that the memory fetches them at the same time; then what their
    /// slots name in the arena, or the second set of those that are not there.
    #[inline(never)]
    pub(crate) fn bring_near(&self, takes: &[Take<'_>]) {
        takes.iter().for_each(|take| self.bring_set_near(take.key));
        takes.iter().for_each(|take| self.bring_state_near(take.key, take.limit));
    }

    /// Brings near where a counter is looked for first. For whoever will ask it soon, and does something else meanwhile.
    #[inline]
    pub fn bring_set_near(&self, key: Key) {
        self.table.set(self.table.home(key).first).bring_near();
    }

    /// Brings near what its slot leads to, when the slot itself has come: its state if that is elsewhere, or the other place where it is
    /// looked for.
    #[inline]
    pub fn bring_state_near(&self, key: Key, limit: &Limit) {
        let home = self.table.home(key);
        let set = self.table.set(home.first);
        match set.find(home.tag) {
            Some(_) if limit.class().packs() => {}
            Some(slot) => self.arena.bring_near(set.word(slot) as u32),
            None => self.table.set(home.second).bring_near(),
        }
    }

    /// Judges one request and carries it out; says whether it is admitted.
    #[inline]
    pub(crate) fn request(&self, takes: &[Take<'_>], now: Micros, answers: &mut [Answer]) -> bool {
        if let ([take], [answer]) = (takes, &mut *answers)
            && self.request_of_one(take, now, answer)
        {
            return answer.verdict.admitted() || take.role == Role::Shadow;
        }
        let is_of_few = (2..=FEW).contains(&takes.len());
        if is_of_few && let Some(admitted) = self.request_of_few(takes, now, answers) {
            return admitted;
        }
        self.request_on_desk(takes, now, answers)
    }

    /// The common case: one take, on a key that is there. One lock. Says whether it was that case.
    #[inline(never)]
    fn request_of_one(&self, take: &Take<'_>, now: Micros, answer: &mut Answer) -> bool {
        let home = self.table.home(take.key);
        let find = |set: usize| self.table.find(set, home.tag);
        let Some(spot) = find(home.first).or_else(|| find(home.second)) else { return false };
        let set = self.table.set(spot.set);
        let _locked = set.lock();
        let tag = set.tag(spot.slot);
        if !tag.is_of(home.tag) {
            return false; // It was moved or forgotten before the lock was there.
        }
        answer.mode = Mode::Local;
        if !self.step_packed(set, spot.slot, tag, take, now, &mut answer.verdict) {
            self.step_on_slot(spot, take, now, &mut answer.verdict);
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
        if !class.packs() || !self.classes.is(tag.class(), class) {
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
