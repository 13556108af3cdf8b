//! The questions a counter can be asked.

/// What one question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// Asks for units.
    Charge {
        /// The units asked for; 0 is a peek.
        cost: u64,
    },
    /// Asks whether one unit would fit.
    Peek,
    /// Gives units back.
    Refund {
        /// The units given back.
        units: u64,
        /// What was said when they were charged; blind where absent.
        receipt: Option<Receipt>,
    },
    /// Tells what a reservation really used.
    Settle {
        /// What was said when it was charged.
        receipt: Receipt,
        /// The units really used.
        actual: u64,
    },
    /// Takes a place.
    Acquire {
        /// The holder's name for it.
        id: u64,
        /// The units it takes.
        cost: u64,
    },
    /// Holds a place for longer.
    Renew {
        /// The holder's name for it.
        id: u64,
    },
    /// Gives a place back.
    Release {
        /// The holder's name for it.
        id: u64,
    },
}

/// When and how much an earlier question charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// The answer's time.
    pub at_us: u64,
    /// The units charged.
    pub units: u64,
}
