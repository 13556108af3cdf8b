//! What a counter remembers, with all the room that its limit can need.

use std::fmt;

use crate::Limit;
use crate::bucket::Level;
use crate::calendar::Spent;
use crate::cells::{CELLS_MAX, Cell, CellHead, Cells};
use crate::concurrency::{Place, PlaceHead, Places};
use crate::limit::Kind;
use crate::log::{Entry, Log, LogHead};
use crate::step::ceiling;
use crate::window::Windows;

/// One counter's memory. Made by [`Limit::state`] or read from its portable form; equal if the portable forms are.
///
/// It does not know its limit. Amounts, bursts and times to live may change from step to step; algorithm, window, parts and
/// calendar belong into the key under which a store keeps it.
#[derive(Clone)]
pub struct State {
    pub(crate) inner: Inner,
}

#[derive(Clone)]
pub(crate) enum Inner {
    /// Fixed window and two-window counter.
    Pair {
        index: u64,
        counts: [u32; 2],
    },
    /// Sub-windows.
    Ring {
        index: u64,
        counts: Box<[u32]>,
    },
    Level(Level),
    Cells {
        head: CellHead,
        cells: Box<[Cell]>,
    },
    Log {
        head: LogHead,
        entries: Box<[Entry]>,
    },
    Places {
        head: PlaceHead,
        places: Box<[Place]>,
    },
    Spent(Spent),
}

/// A state as its algorithm works on it: small parts by reference, lists as slices in memory that is never grown by a step.
pub(crate) enum View<'a> {
    Windows(Windows<'a>),
    Level(&'a mut Level),
    Cells(Cells<'a>),
    Log(Log<'a>),
    Places(Places<'a>),
    Spent(&'a mut Spent),
}

impl State {
    /// Places that expired, in units, and were forgotten by steps on this state since it was read. They are told once.
    #[inline]
    pub fn take_lapsed(&mut self) -> u32 {
        match &mut self.inner {
            Inner::Places { head, .. } => std::mem::take(&mut head.lapsed),
            _ => 0,
        }
    }

    /// Units of all places that it remembers, those among them that have expired too.
    pub fn places(&self) -> u64 {
        match &self.inner {
            Inner::Places { head, .. } => head.total,
            _ => 0,
        }
    }

    /// An untouched counter.
    pub(crate) fn of(kind: &Kind) -> Self {
        let inner = match kind {
            Kind::Fixed(_) => Inner::Pair { index: 0, counts: [0; 2] },
            Kind::Sub(law) if law.k == 1 => Inner::Pair { index: 0, counts: [0; 2] },
            Kind::Sub(law) => Inner::Ring { index: 0, counts: vec![0; law.k as usize + 1].into() },
            Kind::Bucket { .. } => Inner::Level(Level::default()),
            Kind::Cells(_) => {
                Inner::Cells { head: CellHead::default(), cells: [Cell::default(); CELLS_MAX].into() }
            }
            Kind::Log(_) => Inner::Log {
                head: LogHead::default(),
                entries: vec![Entry::default(); list_capacity(kind)].into(),
            },
            Kind::Concurrency(_) => Inner::Places {
                head: PlaceHead::default(),
                places: vec![Place::default(); list_capacity(kind)].into(),
            },
            Kind::Calendar { .. } => Inner::Spent(Spent::default()),
        };
        Self { inner }
    }

    pub(crate) fn view(&mut self) -> View<'_> {
        match &mut self.inner {
            Inner::Pair { index, counts } => View::Windows(Windows { index, counts }),
            Inner::Ring { index, counts } => View::Windows(Windows { index, counts }),
            Inner::Level(level) => View::Level(level),
            Inner::Cells { head, cells } => View::Cells(Cells { head, cells }),
            Inner::Log { head, entries } => View::Log(Log { head, entries }),
            Inner::Places { head, places } => View::Places(Places { head, places }),
            Inner::Spent(spent) => View::Spent(spent),
        }
    }

    /// Has it the shape and the room that the limit needs?
    fn fits(&self, kind: &Kind) -> bool {
        match (kind, &self.inner) {
            (Kind::Fixed(_), Inner::Pair { .. })
            | (Kind::Bucket { .. }, Inner::Level(_))
            | (Kind::Cells(_), Inner::Cells { .. })
            | (Kind::Calendar { .. }, Inner::Spent(_)) => true,
            (Kind::Sub(law), Inner::Pair { .. }) => law.k == 1,
            (Kind::Sub(law), Inner::Ring { counts, .. }) => counts.len() == law.k as usize + 1,
            (Kind::Log(_), Inner::Log { entries, .. }) => entries.len() >= list_capacity(kind),
            (Kind::Concurrency(_), Inner::Places { places, .. }) => places.len() >= list_capacity(kind),
            _ => false,
        }
    }
}

/// The most entries or places that a limit's list can hold: one per unit.
fn list_capacity(kind: &Kind) -> usize {
    match kind {
        Kind::Log(law) => ceiling(law.amount) as usize,
        Kind::Concurrency(law) => law.amount as usize,
        _ => 0,
    }
}

/// The state of no limit in particular: whatever steps on it starts untouched.
impl Default for State {
    fn default() -> Self {
        Self { inner: Inner::Level(Level::default()) }
    }
}

impl Limit {
    /// Makes a state an untouched one of this limit, in the room that it has where that suffices.
    pub fn renew(&self, state: &mut State) {
        match &mut self.fitted(state).inner {
            Inner::Pair { index, counts } => (*index, *counts) = (0, [0; 2]),
            Inner::Ring { index, counts } => {
                *index = 0;
                counts.fill(0);
            }
            Inner::Level(level) => *level = Level::default(),
            Inner::Cells { head, .. } => *head = CellHead::default(),
            Inner::Log { head, .. } => *head = LogHead::default(),
            Inner::Places { head, .. } => *head = PlaceHead::default(),
            Inner::Spent(spent) => *spent = Spent::default(),
        }
    }

    /// The state with this limit's shape and room.
    ///
    /// Where the amount of a log or a concurrency limit was raised, its list is given the room, before any step and with its counts.
    /// A state of another form, or with another number of sub-windows, means a new counter: it starts untouched.
    #[inline]
    pub(crate) fn fitted<'a>(&self, state: &'a mut State) -> &'a mut State {
        if !state.fits(self.kind()) {
            self.refit(state);
        }
        state
    }

    #[cold]
    fn refit(&self, state: &mut State) {
        let mut fitting = State::of(self.kind());
        match (&mut fitting.inner, &state.inner) {
            (Inner::Log { head, entries }, Inner::Log { head: old, entries: kept }) => {
                *head = *old;
                entries[..kept.len()].copy_from_slice(kept);
            }
            (Inner::Places { head, places }, Inner::Places { head: old, places: kept }) => {
                *head = *old;
                places[..kept.len()].copy_from_slice(kept);
            }
            _ => {}
        }
        *state = fitting;
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.to_portable() == other.to_portable()
    }
}

impl Eq for State {}

impl fmt::Debug for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            Inner::Pair { index, counts } => write!(out, "windows {index} {counts:?}"),
            Inner::Ring { index, counts } => write!(out, "windows {index} {counts:?}"),
            Inner::Level(level) => write!(out, "{level:?}"),
            Inner::Cells { head, cells } => write!(out, "{head:?} {:?}", &cells[..head.len as usize]),
            Inner::Log { head, entries } => write!(out, "{head:?} {:?}", &entries[..head.len as usize]),
            Inner::Places { head, places } => write!(out, "{head:?} {:?}", &places[..head.len as usize]),
            Inner::Spent(spent) => write!(out, "{spent:?}"),
        }
    }
}
