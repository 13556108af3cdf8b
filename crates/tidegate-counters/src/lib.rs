//! The numbers of Tidegate: where counters live.
//!
//! A request for a decision is a list of [`Take`]s, judged together: all are charged or none. A store of counters takes a [`Batch`]
//! of such requests and leaves a verdict for each take and a decision for each request in it. [`Memory`] answers at once; a store
//! elsewhere answers later, through the same trait.

mod batch; // takes in, verdicts out
#[cfg(not(loom))]
mod hand; // whichever store a node counts in
mod memory; // counters in this process's memory
#[cfg(not(loom))]
mod redis; // counters that a fleet shares, in Redis or Valkey

use std::future::Future;

use tidegate_core::{Key, Limit, Micros, Tag, Verdict};

pub use batch::{Answer, Batch, Mode, Take};
#[cfg(not(loom))]
pub use hand::{Hand, Store};
pub use memory::{Loaded, Memory, MemoryError, MemorySize, SnapshotError, Stats, ask_for_large_pages};
#[cfg(not(loom))]
pub use redis::{
    Address, Asking, CircuitSettings, CircuitState, CircuitStats, DenialStats, Login, NewsEars, Password,
    RedisCounters, RedisSettings, RedisStats, RedisStore, STORE_TIMES_US, ServerStats, StoreClock, StoreTls,
    Times, Topology, UrlError,
};

/// A store of counters.
///
/// The shape of a counter (algorithm, window, parts, calendar) is part of its key; amounts may differ from take to take.
pub trait Counters {
    /// Judges every request of the batch and carries it out, in order.
    ///
    /// A request is admitted as [`tidegate_core::admits`] says. Admitted: every take that passes is charged. Refused: only what gives
    /// back (refunds, settlements, releases) and what is charged always is applied; the other takes show their verdict without a charge.
    /// Takes of one request on the same key are judged one after the other; whoever wants them to count once merges them before.
    ///
    /// A store may have done all of it when the future is made: one that is dropped may have charged. Takes that it cannot answer go by
    /// their policy ([`Mode::Degraded`]); whether they were charged is not known then. Where that is an error, the request has a failure
    /// in the batch instead of answers ([`Batch::failure`]).
    ///
    /// `now` is the node's clock; a store that has a clock of its own goes by that.
    fn take(&self, batch: &mut Batch<'_>, now: Micros) -> impl Future<Output = ()>;

    /// Gives the answers that [`Counters::take`] would give now, and touches nothing: nothing is charged, kept, moved or repaired.
    ///
    /// Each request of the batch is judged as if it were the only one.
    fn rehearse(&self, batch: &mut Batch<'_>, now: Micros) -> impl Future<Output = ()>;

    /// Looks at a counter and touches nothing.
    fn inspect(
        &self,
        key: Key,
        tag: Tag,
        limit: &Limit,
        now: Micros,
    ) -> impl Future<Output = Result<Inspection, Unavailable>>;

    /// Makes a counter as if never touched; says whether there was one.
    fn reset(&self, key: Key, tag: Tag) -> impl Future<Output = Result<bool, Unavailable>>;
}

/// What a counter holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspection {
    /// Is there anything to remember? A counter that was never touched, or that was forgotten since, is not stored.
    pub stored: bool,
    /// Units in use, as the algorithm estimates them.
    pub used: u64,
    /// What a peek would be told.
    pub verdict: Verdict,
}

/// What a rehearsed take found in its counter, and what its request would leave there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rehearsed {
    /// What an inspection tells before the request.
    pub before: Inspection,
    /// What it would tell afterwards.
    pub after: Inspection,
}

/// A store that cannot answer now.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the store cannot answer: {why}")]
pub struct Unavailable {
    /// What is the matter with it.
    pub why: String,
}
