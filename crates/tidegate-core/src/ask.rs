//! What can be asked of a counter.

use crate::Micros;

/// One question to one counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// May this go on? Charged if it fits. A cost of 0 is a [`Ask::Peek`].
    Charge {
        /// Units that the request takes.
        cost: u64,
    },
    /// Is there room for at least one unit? Charges nothing.
    Peek,
    /// Give units back: to where they were charged if there is a receipt, else to the newest.
    Refund {
        /// Units to give back, with a receipt never more than it says.
        units: u64,
        /// When and how much was charged.
        receipt: Option<Receipt>,
    },
    /// A reservation turned out to cost `actual`: the difference is given back, or charged whatever the room, up to a debt of one limit.
    Settle {
        /// The reservation.
        receipt: Receipt,
        /// What it came to.
        actual: u64,
    },
    /// Take places of a concurrency limit under an id. While it is held, the same id again only renews it, at its first cost.
    /// Elsewhere a charge.
    Acquire {
        /// The caller's id for the places, keyed-hashed. See [`Ask::ANONYMOUS`].
        id: u64,
        /// Places to take.
        cost: u64,
    },
    /// Keep held places for another time to live.
    Renew {
        /// The id they were acquired under.
        id: u64,
    },
    /// Give held places back. Unknown ids are no trouble: the answer is the same the second time.
    Release {
        /// The id they were acquired under.
        id: u64,
    },
}

impl Ask {
    /// The id of places taken without one: nobody can renew or release them, they expire.
    pub const ANONYMOUS: u64 = 0;

    /// Whose places it is about.
    pub(crate) fn id(&self) -> u64 {
        match *self {
            Self::Acquire { id, .. } | Self::Renew { id } | Self::Release { id } => id,
            _ => Self::ANONYMOUS,
        }
    }
}

/// When and how much was charged: what a refund or settlement needs to find it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// The counter's own time of the charge ([`crate::Verdict::at`]).
    pub at: Micros,
    /// Units that were charged.
    pub units: u64,
}
