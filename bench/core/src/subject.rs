//! Who is measured, and what everybody has to be able to do.

use crate::keys::Draws;
use crate::ours::Ours;
use crate::peers::{Governor, Limitador, Nothing, Throttlecrab};

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Name {
    /// Our table, keys of limits whose state fits a slot.
    Slot,
    /// Our table, keys of the default algorithm with one cell each.
    DefaultIdle,
    /// Our table, keys of the default algorithm with all the cells of a caller who is always there.
    DefaultFull,
    Governor,
    Throttlecrab,
    Limitador,
    /// Copies the keys and asks nobody: what the bench itself costs.
    Nothing,
}

impl Name {
    pub(crate) const ALL: [Self; 7] = [
        Self::Slot,
        Self::DefaultIdle,
        Self::DefaultFull,
        Self::Governor,
        Self::Throttlecrab,
        Self::Limitador,
        Self::Nothing,
    ];

    /// The word for command lines.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Slot => "slot",
            Self::DefaultIdle => "default_idle",
            Self::DefaultFull => "default_full",
            Self::Governor => "governor",
            Self::Throttlecrab => "throttlecrab",
            Self::Limitador => "limitador",
            Self::Nothing => "nothing",
        }
    }

    /// The words for readers.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Slot => "Tidegate, simple limits",
            Self::DefaultIdle => "Tidegate, `sliding_window`, idle keys",
            Self::DefaultFull => "Tidegate, `sliding_window`, full keys",
            Self::Governor => "governor",
            Self::Throttlecrab => "throttlecrab",
            Self::Limitador => "Limitador",
            Self::Nothing => "copying the key alone",
        }
    }

    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Slot | Self::DefaultIdle | Self::DefaultFull)
    }

    /// Builds it, empty, for so many keys.
    pub(crate) fn build(self, keys: u32) -> Box<dyn Subject> {
        match self {
            Self::Slot | Self::DefaultIdle | Self::DefaultFull => Box::new(Ours::new(self, keys)),
            Self::Governor => Box::new(Governor::new()),
            Self::Throttlecrab => Box::new(Throttlecrab::new(keys)),
            Self::Limitador => Box::new(Limitador::new(keys)),
            Self::Nothing => Box::new(Nothing),
        }
    }
}

/// How the takes of a run come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// Keys that each request asks about.
    pub(crate) takes: usize,
    /// Requests that are handed over together, by those who can.
    pub(crate) batch: usize,
    /// Is there no other thread? Then nobody needs a lock around what only has `&mut`.
    pub(crate) alone: bool,
}

/// A limiter under measurement. Everybody hashes, finds, judges and answers for the same strings.
pub(crate) trait Subject: Sync {
    /// Makes the keys 0 to `keys` live: each has half of its budget used (an idle key of the default: one unit).
    fn fill(&self, keys: u32);

    /// One unit from each of these keys, copied into a `String` first, which one of them asks for; says how many were refused.
    fn run(&self, draws: Draws<'_>, shape: Shape) -> u64;

    /// Does a caller who has used up a limit hear no? What cannot refuse is not worth timing.
    fn refuses_at_its_limit(&self) -> bool;

    /// Counters that were forgotten while they still counted.
    fn evicted_live(&self) -> u64 {
        0
    }

    /// Bytes that it was allowed to use, if there is a limit.
    fn bytes_max(&self) -> Option<u64> {
        None
    }
}

/// The budget of every simple limit, per minute; how much of it [`Subject::fill`] uses, so that a key stays live for half a minute.
pub(crate) const AMOUNT: u32 = 100;
pub(crate) const USED: u32 = AMOUNT / 2;
