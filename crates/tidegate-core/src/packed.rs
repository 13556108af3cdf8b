//! States as a memory table keeps them: in 73 bits where the state fits, else as a list of words.
//!
//! A [`Class`] is what has to be known of a limit to read such a state without it: a table that evicts, sweeps or writes a snapshot has
//! no limit at hand. It is fixed by the limit's constructor and small enough to be numbered, so that a slot names it in a few bits.
//! Whether a state fits depends on the state, not on a promise: what does not is kept as words, and nothing is ever rounded.

use crate::bucket::Level;
use crate::calendar::Spent;
use crate::cells::{CELLS_MAX, Cell, CellHead};
use crate::concurrency::{Place, PlaceHead};
use crate::limit::Kind;
use crate::log::{Entry, LogHead};
use crate::state::Inner;
use crate::step::{self, Law};
use crate::window::Windows;
use crate::{Ask, Calendar, Limit, LimitError, Micros, PortableError, State, Tick, Unit, Verdict, Weekday};

/// A state in 73 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packed {
    /// The lower 64.
    pub word: u64,
    /// The upper [`Packed::EXTRA_BITS`].
    pub extra: u16,
}

impl Packed {
    /// How many of `extra` are used.
    pub const EXTRA_BITS: u32 = 9;
    const BITS: u32 = 64 + Self::EXTRA_BITS;

    fn of(bits: u128) -> Self {
        debug_assert_eq!(bits >> Self::BITS, 0);
        Self { word: bits as u64, extra: (bits >> 64) as u16 }
    }

    fn bits(self) -> u128 {
        u128::from(self.extra) << 64 | u128::from(self.word)
    }
}

/// The time around which packed states are: what is further away than [`Era::REACH`] cannot be packed.
///
/// A level keeps only the low bits of its time, so a reader has to know which years it speaks of. Whoever keeps packed states sees to it
/// that all of them are within twice the reach of `reference`, also when that moves on; `next` is where it is about to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Era {
    /// Where packed states are read from.
    pub reference: Micros,
    /// Where they will be read from next.
    pub next: Micros,
}

impl Era {
    /// 19 hours.
    pub const REACH: Micros = Micros::new(1 << 36);

    /// Is an instant so near that a state of that time can be packed, and stays readable when the reference moves?
    fn holds(self, us: u64) -> bool {
        us.abs_diff(self.reference.get()) < Self::REACH.get()
            && us.abs_diff(self.next.get()) < Self::REACH.get()
    }
}

/// Bits of a packed level: its time modulo 76 hours, what it holds, whether it is owed.
const LAST_BITS: u32 = 38;
const USED_BITS: u32 = 34;
const USED_LOW_BITS: u32 = 64 - LAST_BITS;
const _: () = assert!(LAST_BITS + USED_BITS < Packed::BITS && 2 * Era::REACH.get() == 1 << (LAST_BITS - 1));

/// Bits of a packed quota: its period in days, what it has used, when it ends in units of 71 minutes.
const PERIOD_BITS: u32 = 18;
const ENDS_SHIFT: u32 = 32;
const _: () = assert!(PERIOD_BITS + 32 + (53 - ENDS_SHIFT) < Packed::BITS);

/// How long after its death a state is kept, so that a clock set back by less finds its counts.
pub(crate) const SLACK: Micros = Micros::from_secs(5);

/// What has to be known of a limit to read its packed states.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Class(u64);

/// The class, read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    /// A level in steps of `step`, of which `rate` leak per µs.
    Level {
        step: u64,
        rate: u64,
    },
    /// Two counts per window of so many µs.
    Pair {
        window_us: u64,
    },
    Spent,
    /// The same three, as words.
    LooseLevel,
    LoosePair {
        window_us: u64,
    },
    LooseSpent,
    /// k + 1 counts.
    Ring {
        window_us: u64,
        k: usize,
    },
    Cells {
        window_us: u64,
    },
    Log {
        window_us: u64,
    },
    Places,
}

const KIND_SHIFT: u32 = 60;
const WINDOW_BITS: u32 = 45; // 366 days.
const STEP_BITS: u32 = 32;

impl Class {
    /// The class of the states of a limit.
    pub(crate) fn of(kind: &Kind) -> Self {
        let of = match kind {
            Kind::Fixed(law) => Of::Pair { window_us: law.window_us },
            Kind::Sub(law) if law.k == 1 => Of::Pair { window_us: law.tick.to_us(law.width) },
            Kind::Sub(law) => {
                Of::Ring { window_us: law.tick.to_us(law.width) * u64::from(law.k), k: law.k as usize }
            }
            Kind::Bucket { law, .. } => {
                let step = law.step();
                let rate = u64::from(law.amount).checked_div(step).unwrap_or(0);
                let near = law.window < Era::REACH.get() / 2; // So that a table may repair what is further ahead than that.
                if law.tick == Tick::default() && rate > 0 && rate < 1 << (KIND_SHIFT - STEP_BITS) && near {
                    Of::Level { step, rate }
                } else {
                    Of::LooseLevel
                }
            }
            Kind::Cells(law) => Of::Cells { window_us: law.tick.to_us(law.window) },
            Kind::Log(law) => Of::Log { window_us: law.window_us },
            Kind::Concurrency(_) => Of::Places,
            Kind::Calendar { .. } => Of::Spent,
        };
        Self::from_read(of)
    }

    fn from_read(of: Of) -> Self {
        let (kind, rest) = match of {
            Of::Level { step, rate } => (1, rate << STEP_BITS | step),
            Of::Pair { window_us } => (2, window_us),
            Of::Spent => (3, 0),
            Of::LooseLevel => (4, 0),
            Of::LoosePair { window_us } => (5, window_us),
            Of::LooseSpent => (6, 0),
            Of::Ring { window_us, k } => (7, (k as u64) << WINDOW_BITS | window_us),
            Of::Cells { window_us } => (8, window_us),
            Of::Log { window_us } => (9, window_us),
            Of::Places => (10, 0),
        };
        Self(kind << KIND_SHIFT | rest)
    }

    fn read(self) -> Of {
        let rest = self.0 & ((1 << KIND_SHIFT) - 1);
        let window_us = rest & ((1 << WINDOW_BITS) - 1);
        match self.0 >> KIND_SHIFT {
            1 => Of::Level { step: rest & ((1 << STEP_BITS) - 1), rate: rest >> STEP_BITS },
            2 => Of::Pair { window_us },
            3 => Of::Spent,
            4 => Of::LooseLevel,
            5 => Of::LoosePair { window_us },
            6 => Of::LooseSpent,
            7 => Of::Ring { window_us, k: (rest >> WINDOW_BITS) as usize },
            8 => Of::Cells { window_us },
            9 => Of::Log { window_us },
            _ => Of::Places,
        }
    }

    /// Its bits, never 0: to be kept and given to [`Class::of_bits`].
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The class with these bits, if there is one.
    pub fn of_bits(bits: u64) -> Option<Self> {
        let class = Self(bits);
        let canonical = matches!(bits >> KIND_SHIFT, 1..=10) && Self::from_read(class.read()) == class;
        let divides = !matches!(class.read(), Of::Level { step: 0, .. } | Of::Level { rate: 0, .. });
        (canonical && divides && class.stand_in().is_ok()).then_some(class)
    }

    /// The class with these bits, which [`Class::bits`] gave.
    pub const fn trusted(bits: u64) -> Self {
        Self(bits)
    }

    /// May its states be packed? Others are words.
    pub fn packs(self) -> bool {
        matches!(self.0 >> KIND_SHIFT, 1..=3)
    }

    /// The class of the same states, as words.
    pub fn loose(self) -> Self {
        match self.read() {
            Of::Level { .. } => Self::from_read(Of::LooseLevel),
            Of::Pair { window_us } => Self::from_read(Of::LoosePair { window_us }),
            Of::Spent => Self::from_read(Of::LooseSpent),
            _ => self,
        }
    }

    /// Is it the class of calendar quotas?
    pub fn is_quota(self) -> bool {
        matches!(self.read(), Of::Spent | Of::LooseSpent)
    }

    /// Are its states places that are held?
    pub fn holds(self) -> bool {
        matches!(self.read(), Of::Places)
    }

    /// Packs a state of this class if it fits. `dead_at` is when a quota may be forgotten; others know that themselves.
    #[inline]
    pub fn pack(self, state: &State, era: Era, dead_at: Micros) -> Option<Packed> {
        match (self.read(), &state.inner) {
            (Of::Level { step, .. }, Inner::Level(level)) => {
                let used = level.used / step;
                let fits =
                    used * step == level.used && used < 1 << USED_BITS && level.tick == Tick::default();
                let last = level.last_us & ((1 << LAST_BITS) - 1);
                let high = u64::from(level.owed) << (USED_BITS - USED_LOW_BITS) | used >> USED_LOW_BITS;
                let packed = Packed { word: used << LAST_BITS | last, extra: high as u16 };
                (fits && era.holds(level.last_us)).then_some(packed)
            }
            (Of::Pair { window_us }, Inner::Pair { index, counts }) => pack_pair(*index, *counts, window_us),
            (Of::Spent, Inner::Spent(spent)) => {
                let ends = (dead_at.get() >> ENDS_SHIFT) + 1;
                let bits = (u128::from(ends) << 32 | u128::from(spent.used)) << PERIOD_BITS;
                (spent.period >> PERIOD_BITS == 0).then(|| Packed::of(bits | u128::from(spent.period)))
            }
            _ => None,
        }
    }

    /// The state that was packed.
    #[inline]
    pub fn unpack(self, packed: Packed, era: Era) -> State {
        let bits = packed.bits();
        let inner = match self.read() {
            Of::Pair { window_us } => {
                let (index, counts) = unpack_pair(packed, window_us);
                Inner::Pair { index, counts }
            }
            Of::Spent => Inner::Spent(Spent {
                period: (bits & ((1 << PERIOD_BITS) - 1)) as u32,
                used: (bits >> PERIOD_BITS) as u32,
            }),
            Of::Level { step, .. } => {
                let level = unpack_level(packed, era);
                Inner::Level(Level { used: level.used * step, ..level })
            }
            _ => Inner::Level(Level::default()), // Nothing else is ever packed.
        };
        State { inner }
    }

    /// When a packed state may be forgotten: nothing in it counts any more, and has not for 5 s.
    pub fn dead_at(self, packed: Packed, era: Era) -> Micros {
        let bits = packed.bits();
        let dead_at_us = match self.read() {
            Of::Level { rate, .. } => level_last(packed, era) + level_used(packed).div_ceil(rate),
            Of::Pair { window_us } => {
                let (index_bits, _) = pair_bits(window_us);
                ((bits & ((1 << index_bits) - 1)) as u64 + 2) * window_us
            }
            Of::Spent => (bits >> (PERIOD_BITS + 32) << ENDS_SHIFT) as u64,
            _ => 0,
        };
        Micros::new(dead_at_us).plus(SLACK)
    }

    /// Before the reference moves to `era.next`: sets a packed state's time back if it is so far ahead of `now` that whatever touched it
    /// would. Says whether the state can be read from there.
    pub fn settle(self, packed: &mut Packed, era: Era, now: Micros) -> bool {
        let Of::Level { .. } = self.read() else { return true };
        let mut last_us = level_last(*packed, era);
        if last_us > now.get() + Era::REACH.get() / 2 {
            last_us = now.get();
            packed.word = packed.word >> LAST_BITS << LAST_BITS | last_us & ((1 << LAST_BITS) - 1);
        }
        last_us.abs_diff(era.next.get()) < 2 * Era::REACH.get()
    }

    /// Reads a state from words into `state`, whose room is used again where it suffices.
    #[inline]
    pub fn read_words(self, state: &mut State, word: impl Fn(usize) -> u64) {
        match self.read() {
            Of::Level { .. } | Of::LooseLevel => {
                let (used, last_us) = (word(0), word(1));
                let tick = Tick::of_exponent((used >> 53 & 7) as u8).unwrap_or_default();
                state.inner =
                    Inner::Level(Level { used: used & TIME_MASK, last_us, tick, owed: used >> 56 != 0 });
            }
            Of::Pair { .. } | Of::LoosePair { .. } => {
                let counts = word(1);
                state.inner = Inner::Pair { index: word(0), counts: [counts as u32, (counts >> 32) as u32] };
            }
            Of::Spent | Of::LooseSpent => {
                let spent = word(0);
                state.inner = Inner::Spent(Spent { period: spent as u32, used: (spent >> 32) as u32 });
            }
            Of::Ring { k, .. } => {
                if !matches!(&state.inner, Inner::Ring { counts, .. } if counts.len() == k + 1) {
                    state.inner = Inner::Ring { index: 0, counts: vec![0; k + 1].into() };
                }
                if let Inner::Ring { index, counts } = &mut state.inner {
                    *index = word(0);
                    for (at, count) in counts.iter_mut().enumerate() {
                        *count = (word(1 + at / 2) >> (32 * (at % 2))) as u32;
                    }
                }
            }
            Of::Cells { .. } => {
                if !matches!(state.inner, Inner::Cells { .. }) {
                    state.inner = Inner::Cells {
                        head: CellHead::default(),
                        cells: [Cell::default(); CELLS_MAX].into(),
                    };
                }
                if let Inner::Cells { head, cells } = &mut state.inner {
                    read_cells(head, cells, word);
                }
            }
            Of::Log { .. } => {
                let len = word(1) as usize;
                if !matches!(&state.inner, Inner::Log { entries, .. } if entries.len() >= len) {
                    state.inner =
                        Inner::Log { head: LogHead::default(), entries: vec![Entry::default(); len].into() };
                }
                if let Inner::Log { head, entries } = &mut state.inner {
                    *head = LogHead { last_us: word(0), total: 0, len: len as u32 };
                    for (at, entry) in entries[..len].iter_mut().enumerate() {
                        let [low, middle, high] = read_triple(at, &word);
                        *entry = Entry { at_us: u64::from(middle) << 32 | u64::from(low), units: high };
                        head.total += u64::from(high);
                    }
                }
            }
            Of::Places => {
                let len = word(1) as usize;
                if !matches!(&state.inner, Inner::Places { places, .. } if places.len() >= len) {
                    state.inner = Inner::Places {
                        head: PlaceHead::default(),
                        places: vec![Place::default(); len].into(),
                    };
                }
                if let Inner::Places { head, places } = &mut state.inner {
                    *head = PlaceHead { last_us: word(0), total: 0, len: len as u32, lapsed: 0 };
                    for (at, place) in places[..len].iter_mut().enumerate() {
                        let first = 2 + 3 * at;
                        *place = Place {
                            id: word(first),
                            expires_us: word(first + 1),
                            units: word(first + 2) as u32,
                        };
                        head.total += u64::from(place.units);
                    }
                }
            }
        }
    }

    /// Reads a portable state of this class.
    pub fn from_portable(self, bytes: &[u8]) -> Result<State, PortableError> {
        let wrong_class = |_| PortableError::Damaged { what: "a class that no limit has" };
        self.stand_in().map_err(wrong_class)?.from_portable(bytes)
    }

    /// Some limit whose states are of this class.
    fn stand_in(self) -> Result<Limit, LimitError> {
        let second = Micros::from_secs(1);
        match self.read() {
            Of::Level { .. } | Of::LooseLevel => Limit::gcra(1, second, None),
            Of::Pair { window_us } | Of::LoosePair { window_us } => {
                Limit::fixed_window(1, Micros::new(window_us))
            }
            Of::Spent | Of::LooseSpent => {
                Limit::calendar(1, Calendar::new(Unit::Day, "UTC", Weekday::Monday)?)
            }
            Of::Ring { window_us, k } => Limit::sub_window(1, Micros::new(window_us), Some(k as u32), false),
            Of::Cells { window_us } => Limit::sliding_window(1, Micros::new(window_us)),
            Of::Log { window_us } => Limit::sliding_log(1, Micros::new(window_us)),
            Of::Places => Limit::concurrency(1, second),
        }
    }
}

const TIME_MASK: u64 = (1 << 53) - 1;

impl State {
    /// How many words it is.
    pub fn words(&self) -> usize {
        match &self.inner {
            Inner::Pair { .. } | Inner::Level(_) => 2,
            Inner::Spent(_) => 1,
            Inner::Ring { counts, .. } => 1 + counts.len().div_ceil(2),
            Inner::Cells { head, .. } => 1 + (3 * head.len as usize).div_ceil(2),
            Inner::Log { head, .. } => 2 + (3 * head.len as usize).div_ceil(2),
            Inner::Places { head, .. } => 2 + 3 * head.len as usize,
        }
    }

    /// The first of its words: that of a list changes when a broken clock is repaired.
    #[inline]
    pub fn first_word(&self) -> u64 {
        match &self.inner {
            Inner::Pair { index, .. } | Inner::Ring { index, .. } => *index,
            Inner::Level(level) => {
                level.used | u64::from(level.tick.exponent()) << 53 | u64::from(level.owed) << 56
            }
            Inner::Spent(spent) => u64::from(spent.used) << 32 | u64::from(spent.period),
            Inner::Cells { head, .. } => cells_head(head),
            Inner::Log { head, .. } => head.last_us,
            Inner::Places { head, .. } => head.last_us,
        }
    }

    /// The state as words.
    #[inline]
    pub fn write_words(&self, mut put: impl FnMut(usize, u64)) {
        put(0, self.first_word());
        match &self.inner {
            Inner::Pair { counts: [newest, before], .. } => {
                put(1, u64::from(*before) << 32 | u64::from(*newest));
            }
            Inner::Level(level) => put(1, level.last_us),
            Inner::Spent(_) => {}
            Inner::Ring { counts, .. } => {
                for (at, pair) in counts.chunks(2).enumerate() {
                    put(1 + at, u64::from(pair.get(1).copied().unwrap_or(0)) << 32 | u64::from(pair[0]));
                }
            }
            Inner::Cells { head, cells } => {
                let triple = |cell: &Cell| [cell.first, cell.last, cell.units];
                write_triples(1, &cells[..head.len as usize], triple, put);
            }
            Inner::Log { head, entries } => {
                put(1, u64::from(head.len));
                let triple = |entry: &Entry| [entry.at_us as u32, (entry.at_us >> 32) as u32, entry.units];
                write_triples(2, &entries[..head.len as usize], triple, put);
            }
            Inner::Places { head, places } => {
                put(1, u64::from(head.len));
                for (at, place) in places[..head.len as usize].iter().enumerate() {
                    let first = 2 + 3 * at;
                    put(first, place.id);
                    put(first + 1, place.expires_us);
                    put(first + 2, place.units.into());
                }
            }
        }
    }
}

impl Limit {
    /// Judges `ask` at `now` on a packed state of this limit's class, as [`Limit::step`] would, and says what it is afterwards. Nothing
    /// if it has to be unpacked for that, or does not fit any more. The verdict is written where it is wanted: it is large.
    #[inline(always)]
    pub fn step_packed(
        &self,
        packed: Packed,
        era: Era,
        ask: Ask,
        now: Micros,
        verdict: &mut Verdict,
    ) -> Option<Packed> {
        match (self.kind(), ask) {
            (Kind::Bucket { reduced, .. }, Ask::Charge { cost }) if cost > 0 => {
                let law = reduced.in_micros();
                let mut level = unpack_level(packed, era);
                *verdict = step::charge_inline(&law, self.charge(), &mut &mut level, cost, now);
                pack_level(&level, era)
            }
            (Kind::Fixed(law), Ask::Charge { cost }) if cost > 0 => {
                let (mut index, mut counts) = unpack_pair(packed, law.window_us);
                let mut windows = Windows { index: &mut index, counts: &mut counts };
                *verdict = step::charge_inline(law, self.charge(), &mut windows, cost, now);
                pack_pair(index, counts, law.window_us)
            }
            _ => self.judge_packed(packed, era, ask, now, true, verdict),
        }
    }

    /// Judges `ask` on a packed state in the same way, and carries nothing out, as [`Limit::show`] does.
    pub fn show_packed(
        &self,
        packed: Packed,
        era: Era,
        ask: Ask,
        now: Micros,
        verdict: &mut Verdict,
    ) -> Option<Packed> {
        self.judge_packed(packed, era, ask, now, false, verdict)
    }

    /// What is done less often, in a function of its own: together with the charges it would be too large to be fast.
    #[inline(never)]
    fn judge_packed(
        &self,
        packed: Packed,
        era: Era,
        ask: Ask,
        now: Micros,
        carried_out: bool,
        verdict: &mut Verdict,
    ) -> Option<Packed> {
        match self.kind() {
            Kind::Bucket { reduced, .. } => {
                let mut level = unpack_level(packed, era);
                *verdict = self.judge_by(reduced, &mut &mut level, ask, now, carried_out);
                pack_level(&level, era)
            }
            Kind::Fixed(law) => on_pair(packed, law.window_us, |windows| {
                *verdict = self.judge_by(law, windows, ask, now, carried_out);
            }),
            Kind::Sub(law) if law.k == 1 => on_pair(packed, law.tick.to_us(law.width), |windows| {
                *verdict = self.judge_by(law, windows, ask, now, carried_out);
            }),
            _ => None,
        }
    }

    fn judge_by<L: Law>(
        &self,
        law: &L,
        state: &mut L::State<'_>,
        ask: Ask,
        now: Micros,
        carried_out: bool,
    ) -> Verdict {
        if carried_out {
            step::step(law, self.charge(), state, ask, now)
        } else {
            step::show(law, state, ask, now)
        }
    }
}

/// Does something to two packed counts; says what they are afterwards, if that fits.
fn on_pair(packed: Packed, window_us: u64, act: impl FnOnce(&mut Windows<'_>)) -> Option<Packed> {
    let (mut index, mut counts) = unpack_pair(packed, window_us);
    act(&mut Windows { index: &mut index, counts: &mut counts });
    pack_pair(index, counts, window_us)
}

#[inline(always)]
fn pack_pair(index: u64, [newest, before]: [u32; 2], window_us: u64) -> Option<Packed> {
    let (index_bits, count_bits) = pair_bits(window_us);
    let fits = u64::from(newest | before) >> count_bits == 0 && index >> index_bits == 0;
    let counts = u128::from(newest) << count_bits | u128::from(before);
    fits.then(|| Packed::of(counts << index_bits | u128::from(index)))
}

#[inline(always)]
fn unpack_pair(packed: Packed, window_us: u64) -> (u64, [u32; 2]) {
    let (index_bits, count_bits) = pair_bits(window_us);
    let bits = packed.bits();
    let counts = (bits >> index_bits) as u64; // At most twice 32 bits.
    let count = |bits: u64| (bits & ((1 << count_bits) - 1)) as u32;
    let index = bits as u64 & ((1 << index_bits) - 1);
    (index, [count(counts >> count_bits), count(counts)])
}

#[inline]
fn pair_bits(window_us: u64) -> (u32, u32) {
    // A window's number is at most 2^53 ÷ its width.
    let index_bits = 53 - window_us.ilog2();
    (index_bits, ((Packed::BITS - index_bits) / 2).min(32))
}

/// Packs a level that is in steps and ticks of 1 µs.
#[inline(always)]
fn pack_level(level: &Level, era: Era) -> Option<Packed> {
    let last = level.last_us & ((1 << LAST_BITS) - 1);
    let high = u64::from(level.owed) << (USED_BITS - USED_LOW_BITS) | level.used >> USED_LOW_BITS;
    let packed = Packed { word: level.used << LAST_BITS | last, extra: high as u16 };
    (level.used < 1 << USED_BITS && era.holds(level.last_us)).then_some(packed)
}

#[inline(always)]
fn unpack_level(packed: Packed, era: Era) -> Level {
    let owed = packed.extra >> (USED_BITS - USED_LOW_BITS) != 0;
    Level { used: level_used(packed), last_us: level_last(packed, era), tick: Tick::default(), owed }
}

#[inline]
fn level_used(packed: Packed) -> u64 {
    let high = u64::from(packed.extra) & ((1 << (USED_BITS - USED_LOW_BITS)) - 1);
    high << USED_LOW_BITS | packed.word >> LAST_BITS
}

/// The instant nearest to the reference that has these low bits.
#[inline]
fn level_last(packed: Packed, era: Era) -> u64 {
    let ahead = packed.word.wrapping_sub(era.reference.get()) << (64 - LAST_BITS);
    let ahead = ahead as i64 >> (64 - LAST_BITS); // With its sign.
    (era.reference.get() as i64 + ahead).max(0) as u64 // A time has 53 bits.
}

fn cells_head(head: &CellHead) -> u64 {
    head.last | u64::from(head.len) << 53 | u64::from(head.refunded) << 61
}

#[inline]
fn read_cells(head: &mut CellHead, cells: &mut [Cell], word: impl Fn(usize) -> u64) {
    let first = word(0);
    let len = (first >> 53 & 0xff) as usize;
    let (pairs, odd) = cells[..len.min(CELLS_MAX)].as_chunks_mut::<2>();
    let (mut at, mut total) = (1, 0);
    for [one, two] in pairs {
        let (low, middle, high) = (word(at), word(at + 1), word(at + 2));
        *one = Cell { first: low as u32, last: (low >> 32) as u32, units: middle as u32 };
        *two = Cell { first: (middle >> 32) as u32, last: high as u32, units: (high >> 32) as u32 };
        total += u64::from(one.units) + u64::from(two.units);
        at += 3;
    }
    if let [cell] = odd {
        let (low, middle) = (word(at), word(at + 1));
        *cell = Cell { first: low as u32, last: (low >> 32) as u32, units: middle as u32 };
        total += u64::from(cell.units);
    }
    *head = CellHead { last: first & TIME_MASK, total, len: len as u32, refunded: first >> 61 & 1 != 0 };
}

/// Three halves of words for each item, one after the other: two items are three words.
#[inline]
fn write_triples<T>(
    first: usize,
    items: &[T],
    triple: impl Fn(&T) -> [u32; 3],
    mut put: impl FnMut(usize, u64),
) {
    let word = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    let (pairs, odd) = items.as_chunks::<2>();
    let mut at = first;
    for [one, two] in pairs {
        let ([a, b, c], [d, e, f]) = (triple(one), triple(two));
        put(at, word(a, b));
        put(at + 1, word(c, d));
        put(at + 2, word(e, f));
        at += 3;
    }
    if let [last] = odd {
        let [a, b, c] = triple(last);
        put(at, word(a, b));
        put(at + 1, c.into());
    }
}

fn read_triple(item: usize, word: impl Fn(usize) -> u64) -> [u32; 3] {
    let half = |at: usize| (word(2 + at / 2) >> (32 * (at % 2))) as u32;
    [half(3 * item), half(3 * item + 1), half(3 * item + 2)]
}
