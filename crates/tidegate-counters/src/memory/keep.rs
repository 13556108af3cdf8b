//! How a state is stored in a slot, and who makes room for it.
//!
//! Everything here is done by somebody who holds the lock of the slot's set and, to insert a key, of both of its sets. Another set is
//! only ever tried, never waited for: so nobody waits for two sets out of order.

use tidegate_core::{Class, Era, Limit, Micros, Packed, State, Verdict};

use super::Memory;
use super::arena::{Arena, BlockId, Kept, MakeRoom, REGION_UNITS, Resident};
use super::classes::{ClassId, UNNAMED};
use super::slot::{Heat, InArena, Tag};
use super::stats::Removed;
use super::sync::Ordering;
use super::table::{Home, Spot, spots};

/// What the holder of some locks holds: it may not lock those sets again, nor move or evict the slots of its own request.
#[derive(Clone, Copy)]
pub(crate) struct Held<'a> {
    /// The sets whose locks are held, in order.
    pub(crate) sets: &'a [usize],
    /// The slots that the request has to do with.
    pub(crate) pinned: &'a [Option<Spot>],
    pub(crate) now: Micros,
}

impl Held<'_> {
    fn is_pinned(&self, spot: Spot) -> bool {
        self.pinned.contains(&Some(spot))
    }
}

/// What a state is kept by: the limit that stepped on it or, where there is none, its class and when it is dead.
#[derive(Clone, Copy)]
pub(crate) enum By<'a> {
    Limit { limit: &'a Limit, verdict: &'a Verdict },
    Class { class: Class, dead_at: Micros },
}

impl By<'_> {
    #[inline]
    fn class(self) -> Class {
        match self {
            Self::Limit { limit, .. } => limit.class(),
            Self::Class { class, .. } => class,
        }
    }

    fn dead_at(self, state: &mut State, now: Micros) -> Micros {
        match self {
            Self::Limit { limit, verdict } => limit.kept_until(state, verdict, now),
            Self::Class { dead_at, .. } => dead_at,
        }
    }
}

/// A slot, read.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) spot: Spot,
    pub(crate) tag: Tag,
    word: u64,
    /// The class that its state is read by, if that has a number.
    class: Option<Class>,
}

impl Found {
    fn packed(&self) -> Packed {
        Packed { word: self.word, extra: self.tag.extra() }
    }

    /// Its packed state, if it is packed under this class.
    #[inline]
    pub(crate) fn packed_as(&self, class: Class) -> Option<Packed> {
        (class.packs() && self.class == Some(class)).then(|| self.packed())
    }

    #[inline]
    fn unpack(&self, era: Era) -> State {
        self.class.map_or_else(State::default, |class| class.unpack(self.packed(), era))
    }

    /// Where its state is, if that is not packed.
    #[inline]
    fn in_arena(&self) -> Option<InArena> {
        let packed = self.tag.is_empty() || self.class.is_some_and(Class::packs);
        (!packed).then(|| InArena::of_word(self.word))
    }
}

impl Memory {
    #[inline]
    pub(crate) fn read(&self, spot: Spot) -> Found {
        let set = self.table.set(spot.set);
        let (tag, word) = (set.tag(spot.slot), set.word(spot.slot));
        Found { spot, tag, word, class: self.classes.get(tag.class()) }
    }

    #[inline]
    fn put(&self, spot: Spot, tag: Tag, word: u64) {
        let set = self.table.set(spot.set);
        set.put_word(spot.slot, word);
        set.put_tag(spot.slot, tag);
    }

    /// Reads the state in a slot into `state`; says of which class it is.
    #[inline]
    pub(crate) fn load(&self, found: &Found, state: &mut State) -> Option<Class> {
        let Some(at) = found.in_arena() else {
            *state = found.unpack(self.era());
            return found.class;
        };
        Some(self.arena.load(at.block, found.class, state))
    }

    /// Can the state in a slot have become `state` although nothing was charged? A repaired clock does that.
    pub(crate) fn is_repaired(&self, found: &Found, state: &State) -> bool {
        let Some(at) = found.in_arena().filter(|_| state.words() > 2) else {
            return true; // Cheaper to write than to ask.
        };
        state.first_word() != self.arena.first_word(at.block, found.class.is_some())
    }

    /// Says that a slot was touched, and how hot it is now.
    #[inline]
    pub(crate) fn touch(&self, found: &Found, heat: Heat) {
        let tag = found.tag.touched(heat);
        if tag != found.tag {
            self.table.set(found.spot.set).put_tag(found.spot.slot, tag);
        }
    }

    /// Forgets that a slot was touched.
    pub(crate) fn untouch(&self, spot: Spot) {
        let set = self.table.set(spot.set);
        let tag = set.tag(spot.slot);
        if tag.untouched() != tag {
            set.put_tag(spot.slot, tag.untouched());
        }
    }

    /// Writes a state back that was packed and still is.
    #[inline]
    pub(crate) fn repack(&self, found: &Found, packed: Packed, heat: Heat) {
        self.put(found.spot, found.tag.touched(heat).with_extra(packed.extra), packed.word);
    }

    /// Writes a state back into its slot, after `verdict` was given on it.
    #[inline]
    pub(crate) fn write_back(
        &self,
        found: &Found,
        limit: &Limit,
        state: &mut State,
        verdict: &Verdict,
        held: Held<'_>,
    ) {
        let (by, heat) = (By::Limit { limit, verdict }, Heat::of(verdict, limit));
        let before = found.in_arena().map_or(0, |at| at.block);
        if !self.store(found.spot, found.tag, before, by, state, heat, held) {
            // No room for what it has grown to: it stays as it was, and this charge is not remembered.
            self.counts.unremembered(found.spot.set);
        } else {
            self.counts.places_expired(found.spot.set, state.take_lapsed().into());
        }
    }

    #[inline]
    fn pack(&self, by: By<'_>, state: &mut State, now: Micros) -> Option<Packed> {
        let class = by.class();
        if !class.packs() {
            return None;
        }
        // Only a quota's own bits do not say when it is dead, and only time zones know.
        let dead_at = if class.is_quota() { by.dead_at(state, now) } else { Micros::ZERO };
        class.pack(state, self.era(), dead_at)
    }

    /// Stores the state of a key that has no slot yet.
    pub(crate) fn insert(
        &self,
        home: Home,
        by: By<'_>,
        state: &mut State,
        heat: Heat,
        held: Held<'_>,
    ) -> Option<Spot> {
        let tag = Tag::unnamed(home.tag, self.ghosts.comes_back(home));
        let Some(spot) = self.free_slot(home, held) else {
            self.counts.unremembered(home.first);
            return None;
        };
        if !self.store(spot, tag, 0, by, state, heat, held) {
            self.counts.unremembered(home.first);
            return None;
        }
        self.counts.inserted(home.first);
        Some(spot)
    }

    /// Fills a slot with a state, packed if that fits, else in the arena, where its words are in `before` (0: nowhere yet). `tag` is the
    /// slot's so far, or that of the key.
    #[expect(clippy::too_many_arguments, reason = "all of what a slot is made of")]
    fn store(
        &self,
        spot: Spot,
        tag: Tag,
        before: BlockId,
        by: By<'_>,
        state: &mut State,
        heat: Heat,
        held: Held<'_>,
    ) -> bool {
        if let Some(packed) = self.pack(by, state, held.now)
            && let number = self.number_of(by.class(), tag.class())
            && number != UNNAMED
        {
            self.put(spot, tag.renamed(number, heat, packed.extra), packed.word);
            if before != 0 {
                self.arena.free(before);
            }
            return true;
        }
        let dead_at = by.dead_at(state, held.now);
        let mut room = Room { memory: self, held };
        let class = by.class().loose();
        let number = self.number_of(class, tag.class());
        let kept = Kept { state, unnumbered: (number == UNNAMED).then_some(class) };
        let Some(block) = self.arena.store(&kept, before, spot.number(), tag.key_tag(), &mut room) else {
            return false;
        };
        self.put(spot, tag.renamed(number, heat, 0), InArena::new(block, dead_at).word());
        true
    }

    /// The number of a class, which nearly always is the one that the slot had.
    #[inline]
    fn number_of(&self, class: Class, before: ClassId) -> ClassId {
        if self.classes.is(before, class) { before } else { self.classes.id(class) }
    }

    /// Finds or makes a free slot in one of a key's sets.
    fn free_slot(&self, home: Home, held: Held<'_>) -> Option<Spot> {
        let sets = [home.first, home.second];
        let slots = || sets.into_iter().flat_map(spots).filter(|spot| !held.is_pinned(*spot));
        if let Some(free) = slots().find(|spot| self.table.set(spot.set).tag(spot.slot).is_empty()) {
            return Some(free);
        }
        if let Some(dead) = slots().map(|spot| self.read(spot)).find(|found| self.is_dead(found, held.now)) {
            self.remove(&dead, Removed::Expired);
            return Some(dead.spot);
        }
        let nobody = |_: &Found| false;
        if let Some(moved) = slots().find(|spot| self.move_away(*spot, nobody, held)) {
            return Some(moved);
        }
        let least = slots().map(|spot| self.read(spot)).min_by_key(|found| self.rank(found))?;
        // All are being refused: one of them may take the place of somebody who is not, in its other set.
        let cooler = |found: &Found| found.tag.heat() < Heat::REFUSED;
        if !cooler(&least)
            && let Some(moved) = slots().find(|spot| self.move_away(*spot, cooler, held))
        {
            return Some(moved);
        }
        self.evict(&least);
        Some(least.spot)
    }

    /// Moves a state to the other set of its key, if there is a free slot, or one that `may_go`.
    fn move_away(&self, spot: Spot, may_go: impl Fn(&Found) -> bool, held: Held<'_>) -> bool {
        if self.snapshots.load(Ordering::Relaxed) > 0 {
            return false; // Or it might be in both parts of a snapshot, the written and the coming, or in none.
        }
        let found = self.read(spot);
        let other = self.table.other(spot.set, found.tag.key_tag());
        let set = self.table.set(other);
        // A set whose lock is held is one of the two that are full, or another take's: leave it alone.
        if held.sets.contains(&other) {
            return false;
        }
        let Some(_locked) = set.try_lock() else { return false };
        let there = || spots(other).map(|spot| self.read(spot));
        let free = there().find(|there| there.tag.is_empty());
        let room = free.or_else(|| there().filter(may_go).min_by_key(|there| self.rank(there)));
        if let Some(there) = room {
            if !there.tag.is_empty() {
                self.forget(&there, held.now);
            }
            if let Some(at) = found.in_arena() {
                self.arena.give_to(at.block, there.spot.number());
            }
            self.put(there.spot, found.tag, found.word);
            self.put(spot, Tag::EMPTY, 0);
        }
        room.is_some()
    }

    /// Forgets a state to make room.
    fn forget(&self, found: &Found, now: Micros) {
        if self.is_dead(found, now) {
            self.remove(found, Removed::Expired);
        } else {
            self.evict(found);
        }
    }

    fn evict(&self, found: &Found) {
        let refused = found.tag.heat() == Heat::REFUSED;
        self.ghosts.leave(found.spot.set, found.tag.key_tag());
        self.remove(found, if refused { Removed::EvictedRefused } else { Removed::EvictedLive });
    }

    /// Empties a slot.
    pub(crate) fn remove(&self, found: &Found, why: Removed) {
        if let Some(at) = found.in_arena() {
            if why == Removed::Expired && found.class.is_none_or(Class::holds) {
                let mut state = State::default();
                self.load(found, &mut state);
                self.counts.places_expired(found.spot.set, state.places());
            }
            self.arena.free(at.block);
        }
        self.put(found.spot, Tag::EMPTY, 0);
        self.counts.removed(found.spot.set, why);
    }

    /// What matters least comes first; among equals what is dead soonest.
    fn rank(&self, found: &Found) -> (u8, Micros) {
        (found.tag.matters(), self.dead_at(found))
    }

    pub(crate) fn is_dead(&self, found: &Found, now: Micros) -> bool {
        self.dead_at(found) < now
    }

    /// Sees to it that a state can be read after the reference has moved; says whether it can.
    pub(crate) fn settle(&self, found: &Found, now: Micros) -> bool {
        let Some(class) = found.class.filter(|_| found.in_arena().is_none()) else { return true };
        let mut packed = found.packed();
        let readable = class.settle(&mut packed, self.era(), now);
        if packed != found.packed() {
            self.put(found.spot, found.tag.with_extra(packed.extra), packed.word);
        }
        readable
    }

    pub(crate) fn dead_at(&self, found: &Found) -> Micros {
        match (found.in_arena(), found.class) {
            (None, Some(class)) => class.dead_at(found.packed(), self.era()),
            (None, None) => Micros::ZERO,
            (Some(at), _) => at.dead_at(),
        }
    }
}

/// Makes room in the arena by forgetting what matters least there.
struct Room<'a> {
    memory: &'a Memory,
    held: Held<'a>,
}

impl MakeRoom for Room<'_> {
    fn make_room(&mut self, arena: &Arena, region: usize, units: usize) -> bool {
        let residents = arena.residents(region);
        let losses: Vec<Option<Loss>> = residents.iter().map(|resident| self.loss(resident)).collect();
        // Of all runs of so many units that begin where a block does, or at the start, the one whose loss matters least.
        let run = |first: usize| {
            let lost = residents.iter().zip(&losses).filter(move |(resident, _)| {
                let at = resident.block as usize % REGION_UNITS;
                at < first + units && first < at + resident.units
            });
            lost.map(|(resident, loss)| (*resident, *loss))
        };
        let matters = |first: &usize| {
            run(*first).try_fold(Loss::default(), |sum, (_, loss)| loss.map(|loss| sum.and(loss)))
        };
        let starts = residents.iter().map(|resident| resident.block as usize % REGION_UNITS);
        let starts = std::iter::once(1).chain(starts).filter(|first| first + units <= REGION_UNITS);
        let least = starts.filter_map(|first| Some((matters(&first)?, first))).min();
        let Some((_, first)) = least else { return false }; // Everywhere is somebody who must not go.
        let victims: Vec<Resident> = run(first).map(|(resident, _)| resident).collect();
        victims.iter().filter(|victim| self.forget(victim)).count() > 0
    }

    fn relocate(&mut self, arena: &Arena, resident: &Resident, to: BlockId) -> bool {
        let moved = self.with_owner(resident, |found, at| {
            // A block of a chain is as long as a region: there is nowhere to move it.
            let alone = at.block == resident.block;
            if alone {
                arena.copy_down(resident, to);
                self.memory.put(found.spot, found.tag, at.moved(to).word());
            }
            alone
        });
        moved.unwrap_or(false)
    }
}

/// What is lost with some blocks: how much the one that matters most does, and how long they would all have lived.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Loss {
    most: u8,
    lives: Micros,
}

impl Loss {
    fn and(self, other: Self) -> Self {
        Self { most: self.most.max(other.most), lives: self.lives.plus(other.lives) }
    }
}

impl Room<'_> {
    /// What is lost with a block; nothing if it must stay. Read without a lock, so only a hint.
    fn loss(&self, resident: &Resident) -> Option<Loss> {
        let spot = Spot::of_number(resident.owner);
        if spot.set >= self.memory.table.sets() || self.held.is_pinned(spot) {
            return None;
        }
        let found = self.memory.read(spot);
        if found.tag.is_empty() {
            return None; // It is being filled.
        }
        if self.memory.is_dead(&found, self.held.now) {
            return Some(Loss::default());
        }
        let lives = self.memory.dead_at(&found).minus(self.held.now);
        Some(Loss { most: found.tag.matters(), lives })
    }

    /// Forgets the state in a block, if its owner can be told; says whether it did.
    fn forget(&self, resident: &Resident) -> bool {
        let forgotten = self.with_owner(resident, |found, _| self.memory.forget(found, self.held.now));
        forgotten.is_some()
    }

    /// Does something with the slot that names a block, under its lock; nothing if that is taken, or if the slot has to stay as it is.
    fn with_owner<T>(&self, resident: &Resident, act: impl FnOnce(&Found, InArena) -> T) -> Option<T> {
        let (memory, spot) = (self.memory, Spot::of_number(resident.owner));
        if spot.set >= memory.table.sets() || self.held.is_pinned(spot) {
            return None;
        }
        let _locked = match self.held.sets.contains(&spot.set) {
            true => None,
            false => Some(memory.table.set(spot.set).try_lock()?),
        };
        let found = memory.read(spot);
        let named = found.in_arena().filter(|at| memory.arena.holds(at.block, resident.block));
        named.map(|at| act(&found, at))
    }
}
