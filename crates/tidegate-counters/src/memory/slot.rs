//! One slot: two words that hold the tag of a key and its state.
//!
//! ```text
//! tag word    63 touched · 62 lock (of the set, in its first slot) · 61..58 heat · 57..48 class · 47..39 extra · 38..0 tag of the key
//! state word  a packed state (with `extra`), or  63..32 dead at, in units of 4 s · 31..0 where its words are in the arena
//! ```

use tidegate_core::{Limit, Micros, Outcome, Packed, Verdict};

use super::classes::{CLASS_BITS, ClassId};
use super::sync::LOCK;

/// Bits of the key that a slot remembers. With the 22 that choose the set, in a table of 16 M slots, a key that is not in the table is
/// taken for one that is once in 10^11 lookups.
pub(crate) const TAG_BITS: u32 = 39;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const EXTRA_SHIFT: u32 = TAG_BITS;
const EXTRA_MASK: u64 = (1 << Packed::EXTRA_BITS) - 1;
const CLASS_SHIFT: u32 = EXTRA_SHIFT + Packed::EXTRA_BITS;
const CLASS_MASK: u64 = (1 << CLASS_BITS) - 1;
const HEAT_SHIFT: u32 = CLASS_SHIFT + CLASS_BITS;
const HEAT_MASK: u64 = 15;
const TOUCHED: u64 = 1 << 63;
const _: () = assert!(1 << (HEAT_SHIFT + 4) == LOCK && LOCK << 1 == TOUCHED);

/// How much would be lost if a key were forgotten.
///
/// Hottest is a key that was refused when it was last asked about. All others are as hot as what they have used, in units, by powers of
/// two: so whoever wants a key to be forgotten has to spend as much as that on each of many others, whatever the limits are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Heat(u64);

impl Heat {
    pub(crate) const REFUSED: Self = Self(15);
    const ADMITTED_MAX: u64 = 14;

    /// How hot a verdict of this limit leaves a key.
    #[inline]
    pub(crate) fn of(verdict: &Verdict, limit: &Limit) -> Self {
        if verdict.outcome == Outcome::RateLimited {
            return Self::REFUSED;
        }
        let used = limit.capacity().saturating_sub(verdict.remaining);
        Self(u64::from((used | 1).ilog2()).min(Self::ADMITTED_MAX))
    }

    pub(crate) fn of_level(level: u8) -> Option<Self> {
        (u64::from(level) <= HEAT_MASK).then_some(Self(level.into()))
    }

    pub(crate) fn level(self) -> u8 {
        self.0 as u8
    }
}

/// The tag word, without the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag(u64);

impl Tag {
    pub(crate) const EMPTY: Self = Self(0);

    /// Of a key that has no slot yet; touched if it `comes_back`.
    pub(crate) fn unnamed(key_tag: u64, comes_back: bool) -> Self {
        debug_assert!(key_tag != 0 && key_tag <= TAG_MASK);
        Self(key_tag | if comes_back { TOUCHED } else { 0 })
    }

    /// The tag of the same key after its state was stored; touched, unless that is new and did not come back.
    pub(crate) fn renamed(self, class: ClassId, heat: Heat, extra: u16) -> Self {
        debug_assert!(class != 0);
        let touched = if self.is_empty() { self.0 & TOUCHED } else { TOUCHED };
        let named = u64::from(class) << CLASS_SHIFT | u64::from(extra) << EXTRA_SHIFT;
        Self(self.key_tag() | named | heat.0 << HEAT_SHIFT | touched)
    }

    pub(crate) fn of_word(word: u64) -> Self {
        Self(word & !LOCK)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 & CLASS_MASK << CLASS_SHIFT == 0
    }

    /// Is it of this key? An empty slot has no tag, and no key the tag 0.
    #[inline]
    pub(crate) fn is_of(self, key_tag: u64) -> bool {
        (self.0 ^ key_tag) & TAG_MASK == 0
    }

    pub(crate) fn key_tag(self) -> u64 {
        self.0 & TAG_MASK
    }

    pub(crate) fn class(self) -> ClassId {
        (self.0 >> CLASS_SHIFT & CLASS_MASK) as ClassId
    }

    pub(crate) fn heat(self) -> Heat {
        Heat(self.0 >> HEAT_SHIFT & HEAT_MASK)
    }

    /// Touched again, and as hot as that has left it.
    #[inline]
    pub(crate) fn touched(self, heat: Heat) -> Self {
        Self(self.0 & !(HEAT_MASK << HEAT_SHIFT) | heat.0 << HEAT_SHIFT | TOUCHED)
    }

    pub(crate) fn untouched(self) -> Self {
        Self(self.0 & !TOUCHED)
    }

    /// How much it would matter if the key were forgotten. Most: that it is being refused. Then: that it was touched again since the hand
    /// of the sweeper came by, as the keys of a flood are not. Then: what it has used.
    pub(crate) fn matters(self) -> u8 {
        let refused = u8::from(self.heat() == Heat::REFUSED);
        refused << 5 | u8::from(self.0 & TOUCHED != 0) << 4 | self.heat().level()
    }

    pub(crate) fn with_extra(self, extra: u16) -> Self {
        Self(self.0 & !(EXTRA_MASK << EXTRA_SHIFT) | u64::from(extra) << EXTRA_SHIFT)
    }

    pub(crate) fn extra(self) -> u16 {
        (self.0 >> EXTRA_SHIFT & EXTRA_MASK) as u16
    }
}

/// The state word of a state that is in the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct InArena {
    /// The number of its first block.
    pub(crate) block: u32,
    /// When it may be forgotten, in units of 4 s: in seconds, the bits would not last until [`Micros::MAX`].
    dead_at_4s: u32,
}

const _: () = assert!(Micros::MAX.secs_up().div_ceil(4) <= u32::MAX as u64);

impl InArena {
    pub(crate) fn new(block: u32, dead_at: Micros) -> Self {
        Self { block, dead_at_4s: dead_at.secs_up().div_ceil(4) as u32 }
    }

    /// The same state, in another block.
    pub(crate) fn moved(self, block: u32) -> Self {
        Self { block, ..self }
    }

    pub(crate) fn of_word(word: u64) -> Self {
        Self { block: word as u32, dead_at_4s: (word >> 32) as u32 }
    }

    pub(crate) fn word(self) -> u64 {
        u64::from(self.dead_at_4s) << 32 | u64::from(self.block)
    }

    pub(crate) fn dead_at(self) -> Micros {
        Micros::from_secs(u64::from(self.dead_at_4s) * 4)
    }
}
