//! How a state is stored in a slot, and who makes room for it.
//!
//! Everything here is done by somebody who holds the locks of both sets of the key. Another set is only ever tried, never waited for: so
//! nobody waits for two sets out of order.

use tidegate_core::{Class, Limit, Micros, Packed, State};

use super::Memory;
use super::arena::{Arena, BlockId, MakeRoom, REGION_UNITS, Resident};
use super::classes::{ClassId, UNNAMED};
use super::slot::{Heat, InArena, Tag};
use super::stats::Removed;
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
    Limit(&'a Limit),
    Class { class: Class, dead_at: Micros },
}

impl By<'_> {
    #[inline]
    fn class(self) -> Class {
        match self {
            Self::Limit(limit) => limit.class(),
            Self::Class { class, .. } => class,
        }
    }

    fn dead_at(self, state: &mut State, now: Micros) -> Micros {
        match self {
            Self::Limit(limit) => now.plus(limit.keep_for(state, now)),
            Self::Class { dead_at, .. } => dead_at,
        }
    }
}

/// A slot, read.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) spot: Spot,
    pub(crate) tag: Tag,
    pub(crate) word: u64,
}

impl Found {
    fn packed(&self) -> Packed {
        Packed { word: self.word, extra: self.tag.extra() }
    }
}

/// Where a slot's state is.
enum Kept {
    Packed(Class),
    InArena(InArena),
}

impl Memory {
    pub(crate) fn read(&self, spot: Spot) -> Found {
        Found { spot, tag: self.table.tag(spot), word: self.table.word(spot) }
    }

    /// The class that a slot's state is read by; if it has no number, `limit` says.
    #[inline]
    fn class_of(&self, found: &Found, limit: &Limit) -> Class {
        self.classes.get(found.tag.class()).unwrap_or_else(|| limit.class().loose())
    }

    fn kept(&self, found: &Found) -> Kept {
        match self.classes.get(found.tag.class()) {
            Some(class) if class.packs() => Kept::Packed(class),
            _ => Kept::InArena(InArena::of_word(found.word)),
        }
    }

    /// The number of a class, which nearly always is that of the slot where its state was.
    #[inline]
    fn number_of(&self, class: Class, before: ClassId) -> ClassId {
        if self.classes.get(before) == Some(class) { before } else { self.classes.id(class) }
    }

    /// Reads the state in a slot into `state`.
    #[inline]
    pub(crate) fn load(&self, found: &Found, limit: &Limit, state: &mut State) {
        let class = self.class_of(found, limit);
        if class.packs() {
            *state = class.unpack(found.packed(), self.era());
        } else {
            self.arena.load(InArena::of_word(found.word).block, class, state);
        }
    }

    /// May the state in a slot have been changed by what left it as `state`, although nothing was charged? A repaired clock does that.
    pub(crate) fn is_rewritten(&self, found: &Found, state: &State) -> bool {
        match self.kept(found) {
            Kept::Packed(_) => true, // Cheaper to write than to ask.
            Kept::InArena(at) => {
                let mut first = 0;
                if state.words() > 2 {
                    state.write_words(|at, word| {
                        if at == 0 {
                            first = word
                        }
                    });
                }
                state.words() <= 2 || first != self.arena.first_word(at.block)
            }
        }
    }

    /// The state in a slot, if it can be read without its limit, and its class.
    pub(crate) fn state_in(&self, found: &Found) -> Option<(Class, State)> {
        let class = self.classes.get(found.tag.class())?;
        let mut state = State::default();
        match self.kept(found) {
            Kept::Packed(class) => state = class.unpack(found.packed(), self.era()),
            Kept::InArena(at) => self.arena.load(at.block, class, &mut state),
        }
        Some((class, state))
    }

    /// Says how hot a slot is now.
    #[inline]
    pub(crate) fn heat(&self, found: &Found, heat: Heat) {
        if found.tag.heat() != heat {
            self.table.set_tag(found.spot, found.tag.heated(heat));
        }
    }

    /// Writes a state back into its slot.
    #[inline]
    pub(crate) fn write_back(
        &self,
        found: &Found,
        limit: &Limit,
        state: &mut State,
        heat: Heat,
        held: Held<'_>,
    ) {
        let class = limit.class();
        let before = match self.kept(found) {
            Kept::Packed(_) => 0,
            Kept::InArena(at) => at.block,
        };
        // The common case: packed before, packed now, under the same number.
        if before == 0
            && let Some(packed) = self.pack(By::Limit(limit), state, held.now)
            && let number = self.number_of(class, found.tag.class())
            && number != UNNAMED
        {
            let tag = Tag::new(found.tag.key_tag(), number, heat, packed.extra);
            if packed.word != found.word {
                self.table.set_word(found.spot, packed.word);
            }
            if tag != found.tag {
                self.table.set_tag(found.spot, tag);
            }
            return;
        }
        if !self.store(found.spot, found.tag.key_tag(), before, By::Limit(limit), state, heat, held) {
            // No room for what it has grown to: it stays as it was, and this charge is not remembered.
            self.counts.unremembered(found.spot.set);
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
        let Some(spot) = self.free_slot(home, held) else {
            self.counts.unremembered(home.first);
            return None;
        };
        if !self.store(spot, home.tag, 0, by, state, heat, held) {
            self.counts.unremembered(home.first);
            return None;
        }
        self.counts.inserted(home.first);
        Some(spot)
    }

    /// Fills a slot with a state, packed if that fits, else in the arena, where its words are in `before` (0: nowhere yet).
    #[expect(clippy::too_many_arguments, reason = "all of what a slot is made of")]
    fn store(
        &self,
        spot: Spot,
        key_tag: u64,
        before: BlockId,
        by: By<'_>,
        state: &mut State,
        heat: Heat,
        held: Held<'_>,
    ) -> bool {
        let class = by.class();
        if let Some(packed) = self.pack(by, state, held.now)
            && let number = self.classes.id(class)
            && number != UNNAMED
        {
            self.table.set_word(spot, packed.word);
            self.table.set_tag(spot, Tag::new(key_tag, number, heat, packed.extra));
            if before != 0 {
                self.arena.free(before);
            }
            return true;
        }
        let dead_at = by.dead_at(state, held.now);
        let mut room = Room { memory: self, held };
        let Some(block) = self.arena.store(state, before, spot.number(), key_tag, &mut room) else {
            return false;
        };
        self.table.set_word(spot, InArena::new(block, dead_at).word());
        self.table.set_tag(spot, Tag::new(key_tag, self.classes.id(class.loose()), heat, 0));
        true
    }

    /// Finds or makes a free slot in one of a key's sets.
    fn free_slot(&self, home: Home, held: Held<'_>) -> Option<Spot> {
        let sets = [home.first, home.second];
        let slots = || sets.into_iter().flat_map(spots).filter(|spot| !held.is_pinned(*spot));
        if let Some(free) = slots().find(|spot| self.table.tag(*spot).is_empty()) {
            return Some(free);
        }
        if let Some(dead) = slots().map(|spot| self.read(spot)).find(|found| self.is_dead(found, held.now)) {
            self.remove(&dead, Removed::Expired);
            return Some(dead.spot);
        }
        if let Some(moved) = slots().find(|spot| self.move_away(*spot, held)) {
            return Some(moved);
        }
        let least = slots().map(|spot| self.read(spot)).min_by_key(|found| self.rank(found))?;
        self.evict(&least);
        Some(least.spot)
    }

    /// Moves a state to the other set of its key, if there is a free slot.
    fn move_away(&self, spot: Spot, held: Held<'_>) -> bool {
        let found = self.read(spot);
        let other = self.table.other(spot.set, found.tag.key_tag());
        // A set whose lock is held is one of the two that are full, or another take's: leave it alone.
        if held.sets.contains(&other) || !self.table.try_lock(other) {
            return false;
        }
        let free = spots(other).find(|spot| self.table.tag(*spot).is_empty());
        if let Some(to) = free {
            if let Kept::InArena(at) = self.kept(&found) {
                self.arena.give_to(at.block, to.number());
            }
            self.table.set_word(to, found.word);
            self.table.set_tag(to, found.tag);
            self.table.set_tag(spot, Tag::EMPTY);
        }
        self.table.unlock(other);
        free.is_some()
    }

    fn evict(&self, found: &Found) {
        let refused = found.tag.heat() == Heat::REFUSED;
        self.remove(found, if refused { Removed::EvictedRefused } else { Removed::EvictedLive });
    }

    /// Empties a slot.
    pub(crate) fn remove(&self, found: &Found, why: Removed) {
        if let Kept::InArena(at) = self.kept(found) {
            self.arena.free(at.block);
        }
        self.table.set_tag(found.spot, Tag::EMPTY);
        self.counts.removed(found.spot.set, why);
    }

    /// What matters least comes first: what is far from its limit, then what is dead soonest.
    fn rank(&self, found: &Found) -> (Heat, Micros) {
        (found.tag.heat(), self.dead_at(found))
    }

    pub(crate) fn is_dead(&self, found: &Found, now: Micros) -> bool {
        self.dead_at(found) < now
    }

    /// Sees to it that a state can be read after the reference has moved; says whether it can.
    pub(crate) fn settle(&self, found: &Found, now: Micros) -> bool {
        let Kept::Packed(class) = self.kept(found) else { return true };
        let mut packed = found.packed();
        let readable = class.settle(&mut packed, self.era(), now);
        if packed != found.packed() {
            self.table.set_word(found.spot, packed.word);
            self.table.set_tag(found.spot, found.tag.with_extra(packed.extra));
        }
        readable
    }

    pub(crate) fn dead_at(&self, found: &Found) -> Micros {
        match self.kept(found) {
            Kept::Packed(class) => class.dead_at(found.packed(), self.era()),
            Kept::InArena(at) => at.dead_at(),
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
        // Of all runs of so many units the one whose loss matters least.
        let weights: Vec<u64> = residents.iter().map(|resident| self.weight(resident)).collect();
        let lost = |first: usize| {
            let overlaps = move |resident: &Resident| {
                let at = resident.block as usize % REGION_UNITS;
                at < first + units && first < at + resident.units
            };
            let lost = residents.iter().zip(&weights).filter(move |(resident, _)| overlaps(resident));
            lost.map(|(resident, weight)| (*resident, *weight))
        };
        let weight = |first: &usize| lost(*first).fold(0, |sum: u64, (_, weight)| sum.saturating_add(weight));
        let Some(first) = (1..=REGION_UNITS.saturating_sub(units)).min_by_key(weight) else { return false };
        if weight(&first) == u64::MAX {
            return false; // Everywhere is somebody who must not go.
        }
        let victims: Vec<Resident> = lost(first).map(|(resident, _)| resident).collect();
        victims.iter().filter(|victim| self.forget(victim)).count() > 0
    }
}

impl Room<'_> {
    /// How much the loss of a block matters; read without its lock, so only a hint.
    fn weight(&self, resident: &Resident) -> u64 {
        const DEAD: u64 = 1;
        let spot = Spot::of_number(resident.owner);
        if spot.set >= self.memory.table.sets() || self.held.is_pinned(spot) {
            return u64::MAX;
        }
        let found = self.memory.read(spot);
        if found.tag.is_empty() || self.memory.is_dead(&found, self.held.now) {
            return DEAD;
        }
        // A hotter one matters more than a whole region of colder ones; among equals what lives longer matters more.
        let heat = [8, 20, 32, 44][found.tag.heat().level()];
        let lives = self.memory.dead_at(&found).minus(self.held.now);
        (1 << heat) + (u64::from(lives.get().max(1).ilog2()) << (heat - 7))
    }

    /// Does a slot, whose lock is held, name this block?
    fn names(&self, found: &Found, resident: &Resident) -> bool {
        let in_arena = matches!(self.memory.kept(found), Kept::InArena(at) if self.memory.arena.holds(at.block, resident.block));
        !found.tag.is_empty() && in_arena
    }

    /// Forgets the state in a block, if its set is free; says whether it did.
    fn forget(&self, resident: &Resident) -> bool {
        let spot = Spot::of_number(resident.owner);
        let is_held = self.held.sets.contains(&spot.set);
        if self.held.is_pinned(spot) || (!is_held && !self.memory.table.try_lock(spot.set)) {
            return false;
        }
        let found = self.memory.read(spot);
        let is_it = self.names(&found, resident);
        if is_it && self.memory.is_dead(&found, self.held.now) {
            self.memory.remove(&found, Removed::Expired);
        } else if is_it {
            self.memory.evict(&found);
        }
        if !is_held {
            self.memory.table.unlock(spot.set);
        }
        is_it
    }
}
