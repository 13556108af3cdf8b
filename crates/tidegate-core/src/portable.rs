//! States as bytes, for stores and snapshots: little-endian, unsigned, versioned.
//!
//! The first byte is version (high four bits) and form (low four). [`FORMS`] is the table of all forms; `docs/algorithms.md` shows it,
//! and a test keeps the two the same. What cannot be read is refused with a reason and left alone: a store never overwrites
//! a state of an unknown version.

use crate::bucket::Level;
use crate::calendar::Spent;
use crate::cells::{CELLS_MAX, Cell, CellHead, CellLog};
use crate::concurrency::{Place, PlaceHead};
use crate::limit::{Kind, WINDOW_MAX};
use crate::log::{Entry, LogHead};
use crate::state::{Inner, State};
use crate::step::{Law, ceiling};
use crate::{LOG_AMOUNT_MAX, Limit, Micros, PLACES_MAX, SUB_WINDOWS_MAX, Tick};

/// The version that is written.
pub const PORTABLE_VERSION: u8 = 1;

/// One portable form: how many bytes it has, and how long a store keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// The low four bits of the first byte.
    pub code: u8,
    /// What it is called.
    pub name: &'static str,
    /// The algorithms that write it.
    pub algorithms: &'static str,
    /// Its fields, in order, with their bytes.
    pub layout: &'static str,
    /// Bytes before the list.
    pub head_bytes: usize,
    /// Bytes of each item of the list.
    pub item_bytes: usize,
    /// The most items.
    pub items_max: usize,
    /// Until when a store has to keep it, besides 5 s of slack.
    pub kept_until: &'static str,
}

impl Form {
    /// The most bytes a state of this form can have.
    pub const fn bytes_max(&self) -> usize {
        self.head_bytes + self.items_max * self.item_bytes
    }
}

/// Every form there is.
pub const FORMS: [Form; 6] = [
    Form {
        code: 1,
        name: "windows",
        algorithms: "fixed_window, sliding_window_counter, sub_window",
        layout: "tag 1, index 7; per window, newest first: units 4",
        head_bytes: 8,
        item_bytes: 4,
        items_max: SUB_WINDOWS_MAX as usize + 1,
        kept_until: "the newest count has left: 2 windows from the start of its own, or W + W/k",
    },
    Form {
        code: 2,
        name: "level",
        algorithms: "token_bucket, gcra, leaky_bucket",
        layout: "tag 1, flags 1, used 7, last 7",
        head_bytes: 16,
        item_bytes: 0,
        items_max: 0,
        kept_until: "the bucket is empty",
    },
    Form {
        code: 3,
        name: "cells",
        algorithms: "sliding_window",
        layout: "tag 1, flags 1, last 7, total 5; per cell: first 4, last 4, units 4",
        head_bytes: 14,
        item_bytes: 12,
        items_max: CELLS_MAX,
        kept_until: "W after the last charge",
    },
    Form {
        code: 4,
        name: "log",
        algorithms: "sliding_log",
        layout: "tag 1, last 7, total 4; per entry: at 7, units 4",
        head_bytes: 12,
        item_bytes: 11,
        items_max: 2 * LOG_AMOUNT_MAX as usize,
        kept_until: "W after the last charge",
    },
    Form {
        code: 5,
        name: "places",
        algorithms: "concurrency",
        layout: "tag 1, last 7, total 4; per place: id 8, expires 7, units 4",
        head_bytes: 12,
        item_bytes: 19,
        items_max: PLACES_MAX as usize,
        kept_until: "the last place expires",
    },
    Form {
        code: 6,
        name: "spent",
        algorithms: "calendar",
        layout: "tag 1, period 4, used 4",
        head_bytes: 9,
        item_bytes: 0,
        items_max: 0,
        kept_until: "the period ends",
    },
];

/// Why bytes are not a state of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PortableError {
    /// Nothing there.
    #[error("the state is empty")]
    Empty,
    /// Written by another release.
    #[error("the state has version {found}, this release reads {PORTABLE_VERSION}: it was left as it is")]
    UnknownVersion {
        /// The version found.
        found: u8,
    },
    /// Written by another algorithm.
    #[error("the state has form {found}, the limit needs form {expected}: it was left as it is")]
    WrongForm {
        /// The form found.
        found: u8,
        /// The form that the limit needs.
        expected: u8,
    },
    /// Cut or foreign.
    #[error("the state has {found} bytes, which no state of this form and limit has: it was left as it is")]
    WrongLength {
        /// The bytes found.
        found: usize,
    },
    /// Right length, wrong content.
    #[error("the state is damaged ({what}): it was left as it is")]
    Damaged {
        /// What is impossible about it.
        what: &'static str,
    },
}

/// The flag bit of a level that is owed, or of cells that were refunded; a level's low three bits are its tick's exponent.
const FLAG: u8 = 0x80;
const FLAG_TICK: u8 = 0x07;

impl Limit {
    /// The form that this limit's states are written in.
    pub fn form(&self) -> &'static Form {
        &FORMS[form_index(self.kind())]
    }

    /// The most bytes that a portable state of this limit can have.
    pub fn bytes_max(&self) -> usize {
        let form = self.form();
        let items = match self.kind() {
            Kind::Fixed(_) => 2,
            Kind::Sub(law) => law.k as usize + 1,
            Kind::Cells(_) => CELLS_MAX,
            Kind::Log(law) => ceiling(law.amount) as usize,
            Kind::Concurrency(law) => law.amount as usize,
            Kind::Bucket { .. } | Kind::Calendar { .. } => 0,
        };
        form.head_bytes + items * form.item_bytes
    }

    /// Reads a state of this limit from its portable form. Whatever the bytes are, the steps on what is read are safe.
    pub fn from_portable(&self, bytes: &[u8]) -> Result<State, PortableError> {
        let tag = *bytes.first().ok_or(PortableError::Empty)?;
        let (version, code) = (tag >> 4, tag & 0x0f);
        if version != PORTABLE_VERSION {
            return Err(PortableError::UnknownVersion { found: version });
        }
        let form = self.form();
        if code != form.code {
            return Err(PortableError::WrongForm { found: code, expected: form.code });
        }
        let wrong_length = PortableError::WrongLength { found: bytes.len() };
        let list = bytes.len().checked_sub(form.head_bytes).ok_or(wrong_length)?;
        let items = list.checked_div(form.item_bytes).unwrap_or(0);
        if items * form.item_bytes != list || items > form.items_max {
            return Err(wrong_length);
        }
        let mut reader = Reader { bytes: &bytes[1..] };
        let inner = match self.kind() {
            Kind::Fixed(law) if items == 2 => windows(&mut reader, items, law.window_us)?,
            Kind::Sub(law) if items == law.k as usize + 1 => {
                windows(&mut reader, items, law.window_us() / u64::from(law.k))?
            }
            Kind::Fixed(_) | Kind::Sub(_) => return Err(wrong_length),
            Kind::Bucket { .. } => level(&mut reader)?,
            Kind::Cells(law) => cells(&mut reader, items, law)?,
            Kind::Log(law) => log(&mut reader, items, items.max(ceiling(law.amount) as usize))?,
            Kind::Concurrency(law) => places(&mut reader, items, items.max(law.amount as usize))?,
            Kind::Calendar { .. } => {
                Inner::Spent(Spent { period: reader.take(4) as u32, used: reader.take(4) as u32 })
            }
        };
        Ok(State { inner })
    }
}

impl State {
    /// The portable form.
    pub fn to_portable(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write_portable(&mut bytes);
        bytes
    }

    /// Appends the portable form to `out`.
    pub fn write_portable(&self, out: &mut Vec<u8>) {
        let tag = |code: u64| (u64::from(PORTABLE_VERSION) << 4) | code;
        let flags = |tick: Tick, flag: bool| u64::from(tick.exponent() | if flag { FLAG } else { 0 });
        let mut put = |value: u64, bytes: usize| out.extend_from_slice(&value.to_le_bytes()[..bytes]);
        match &self.inner {
            Inner::Pair { index, counts } => {
                put(tag(1), 1);
                put(*index, 7);
                counts.iter().for_each(|count| put((*count).into(), 4));
            }
            Inner::Ring { index, counts } => {
                put(tag(1), 1);
                put(*index, 7);
                counts.iter().for_each(|count| put((*count).into(), 4));
            }
            Inner::Level(level) => {
                put(tag(2), 1);
                put(flags(level.tick, level.owed), 1);
                put(level.used, 7);
                put(level.last_us, 7);
            }
            Inner::Cells { head, cells } => {
                put(tag(3), 1);
                put(flags(Tick::default(), head.refunded), 1);
                put(head.last, 7);
                put(head.total, 5);
                for cell in &cells[..head.len as usize] {
                    put(cell.first.into(), 4);
                    put(cell.last.into(), 4);
                    put(cell.units.into(), 4);
                }
            }
            Inner::Log { head, entries } => {
                put(tag(4), 1);
                put(head.last_us, 7);
                put(head.total, 4);
                for entry in &entries[..head.len as usize] {
                    put(entry.at_us, 7);
                    put(entry.units.into(), 4);
                }
            }
            Inner::Places { head, places } => {
                put(tag(5), 1);
                put(head.last_us, 7);
                put(head.total, 4);
                for place in &places[..head.len as usize] {
                    put(place.id, 8);
                    put(place.expires_us, 7);
                    put(place.units.into(), 4);
                }
            }
            Inner::Spent(spent) => {
                put(tag(6), 1);
                put(spent.period.into(), 4);
                put(spent.used.into(), 4);
            }
        }
    }
}

const fn form_index(kind: &Kind) -> usize {
    match kind {
        Kind::Fixed(_) | Kind::Sub(_) => 0,
        Kind::Bucket { .. } => 1,
        Kind::Cells(_) => 2,
        Kind::Log(_) => 3,
        Kind::Concurrency(_) => 4,
        Kind::Calendar { .. } => 5,
    }
}

/// Takes integers off the front; the length was checked before.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl Reader<'_> {
    fn take(&mut self, len: usize) -> u64 {
        let (head, rest) = self.bytes.split_at(len);
        self.bytes = rest;
        head.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    fn flags(&mut self) -> Result<(Tick, bool), PortableError> {
        let flags = self.take(1) as u8;
        let tick = Tick::of_exponent(flags & FLAG_TICK).filter(|_| flags & !(FLAG | FLAG_TICK) == 0);
        Ok((tick.ok_or(PortableError::Damaged { what: "unknown flags" })?, flags & FLAG != 0))
    }

    /// An instant in µs.
    fn instant(&mut self) -> Result<u64, PortableError> {
        sound(self.take(7), |us| us <= Micros::MAX.get(), "a time after the year 2255")
    }
}

fn sound(value: u64, is: impl Fn(u64) -> bool, what: &'static str) -> Result<u64, PortableError> {
    if is(value) { Ok(value) } else { Err(PortableError::Damaged { what }) }
}

fn windows(reader: &mut Reader<'_>, items: usize, width_us: u64) -> Result<Inner, PortableError> {
    let in_time = |index: u64| index <= Micros::MAX.get() / width_us;
    let index = sound(reader.take(7), in_time, "a window after the year 2255")?;
    let mut counts = (0..items).map(|_| reader.take(4) as u32);
    if items == 2 {
        let counts = [counts.next().unwrap_or(0), counts.next().unwrap_or(0)];
        return Ok(Inner::Pair { index, counts });
    }
    Ok(Inner::Ring { index, counts: counts.collect() })
}

fn level(reader: &mut Reader<'_>) -> Result<Inner, PortableError> {
    let (tick, owed) = reader.flags()?;
    let used = sound(reader.take(7), |used| used < 1 << 53, "a level that no limit reaches")?;
    let last_us = reader.instant()?;
    Ok(Inner::Level(Level { used, last_us, tick, owed }))
}

fn cells(reader: &mut Reader<'_>, items: usize, law: &CellLog) -> Result<Inner, PortableError> {
    let (tick, refunded) = reader.flags()?;
    sound(tick.exponent().into(), |exponent| exponent == 0, "unknown flags")?;
    let last = sound(
        reader.take(7),
        |last| last <= Micros::MAX.get() / law.tick.us(),
        "a time after the year 2255",
    )?;
    let total = reader.take(5);
    let mut cells: Box<[Cell]> = [Cell::default(); CELLS_MAX].into();
    let age = |low: u32| u64::from((last as u32).wrapping_sub(low));
    let (mut units, mut before) = (0, None);
    for cell in &mut cells[..items] {
        *cell =
            Cell { first: reader.take(4) as u32, last: reader.take(4) as u32, units: reader.take(4) as u32 };
        let in_order = before.is_none_or(|before: Cell| age(before.last) >= age(cell.first));
        sound(age(cell.last), |last| in_order && last <= age(cell.first), "cells out of order")?;
        // What steps keep to, and what the bound on their number is proved from.
        sound(age(cell.first) - age(cell.last), |span| law.is_short(span), "a cell that is too long")?;
        let tied = before.filter(|before| before.last == cell.first);
        let alone = tied.is_none_or(|before| before.first != before.last && cell.first == cell.last);
        sound(alone.into(), |alone| alone == 1, "an instant in too many cells")?;
        sound(cell.units.into(), |units| units > 0, "an empty cell")?;
        units += u64::from(cell.units);
        before = Some(*cell);
    }
    sound(total, |total| total == units, "a total that is not the sum")?;
    Ok(Inner::Cells { head: CellHead { last, total, len: items as u32, refunded }, cells })
}

fn log(reader: &mut Reader<'_>, items: usize, capacity: usize) -> Result<Inner, PortableError> {
    let last_us = reader.instant()?;
    let total = reader.take(4);
    let mut entries: Box<[Entry]> = vec![Entry::default(); capacity].into();
    let (mut units, mut newest) = (0, 0);
    for entry in &mut entries[..items] {
        let at_us = sound(reader.take(7), |at| at >= newest && at <= last_us, "entries out of order")?;
        *entry = Entry { at_us, units: sound(reader.take(4), |units| units > 0, "an empty entry")? as u32 };
        newest = at_us;
        units += u64::from(entry.units);
    }
    sound(total, |total| total == units, "a total that is not the sum")?;
    Ok(Inner::Log { head: LogHead { last_us, total, len: items as u32 }, entries })
}

fn places(reader: &mut Reader<'_>, items: usize, capacity: usize) -> Result<Inner, PortableError> {
    let last_us = reader.instant()?;
    let total = reader.take(4);
    let mut places: Box<[Place]> = vec![Place::default(); capacity].into();
    let (mut units, mut latest) = (0, 0);
    for place in &mut places[..items] {
        let id = reader.take(8);
        let in_time = |expires: u64| expires >= latest && expires <= last_us + WINDOW_MAX.get();
        let expires_us = sound(reader.take(7), in_time, "places out of order")?;
        *place = Place {
            id,
            expires_us,
            units: sound(reader.take(4), |units| units > 0, "an empty place")? as u32,
        };
        latest = expires_us;
        units += u64::from(place.units);
    }
    sound(total, |total| total == units, "a total that is not the sum")?;
    Ok(Inner::Places { head: PlaceHead { last_us, total, len: items as u32, lapsed: 0 }, places })
}
