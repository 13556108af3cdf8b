//! What is judged: the algorithms that we ship, seen through a keyhole.

use tidegate_core::{Ask, Limit, LimitError, Micros, State};

use crate::trace::WINDOW_US;

/// A limiter as the judge sees it. Tests put hand-made ones here.
pub(crate) trait Limiter {
    /// Forgets everything: the next hit meets an untouched key.
    fn reset(&mut self);
    /// One request of cost 1.
    fn hit(&mut self, now_us: u64) -> Hit;
    /// Units in use, as the algorithm believes, rounded up.
    fn used(&mut self, now_us: u64) -> u64;
    /// Size of the state as a store would keep it now.
    fn bytes(&mut self) -> u64;
}

/// What the limiter said, and what it believed just after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) admitted: bool,
    pub(crate) estimate: u64,
    /// The bound that the verdict states; [`crate::judge`] holds it to its word.
    pub(crate) over: u64,
    pub(crate) under: u64,
}

/// What an algorithm promises about the window it reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Promise {
    /// No useful bound on an exact window; shown for comparison.
    None,
    /// Off by at most 5 % of the limit either way, exact up to a limit of 20.
    Near,
    /// Never lets more than the limit through; may refuse too early.
    NeverOver,
    /// Both of the above: refuses too early by at most 5 % of the limit.
    NearAndNeverOver,
    /// Equal to the exact log.
    Exact,
}

pub(crate) struct Algorithm {
    /// As a rule's file spells it.
    pub(crate) name: &'static str,
    /// What sets this row apart from others of the same name.
    pub(crate) note: &'static str,
    pub(crate) promise: Promise,
    /// Does it estimate a window at all? A bucket's level is a contract of its own.
    pub(crate) estimates_window: bool,
    pub(crate) limit: fn(u64) -> Result<Limit, LimitError>,
}

const WINDOW: Micros = Micros::new(WINDOW_US);

pub(crate) const FIXED_WINDOW: Algorithm = Algorithm {
    name: "fixed_window",
    note: "",
    promise: Promise::None,
    estimates_window: true,
    limit: |amount| Limit::fixed_window(amount, WINDOW),
};

pub(crate) const TOKEN_BUCKET: Algorithm = Algorithm {
    name: "token_bucket",
    note: "B = L",
    promise: Promise::None,
    estimates_window: false,
    limit: |amount| Limit::token_bucket(amount, WINDOW, Some(amount)),
};

pub(crate) const TWO_WINDOW: Algorithm = Algorithm {
    name: "sliding_window_counter",
    note: "two windows",
    promise: Promise::None,
    estimates_window: true,
    limit: |amount| Limit::sliding_window_counter(amount, WINDOW),
};

pub(crate) const SUB_WINDOW_10: Algorithm = Algorithm {
    name: "sub_window",
    note: "k = 10",
    promise: Promise::None,
    estimates_window: true,
    limit: |amount| Limit::sub_window(amount, WINDOW, Some(10), false),
};

pub(crate) const SUB_WINDOW_60: Algorithm = Algorithm {
    name: "sub_window",
    note: "k = 60",
    promise: Promise::None,
    estimates_window: true,
    limit: |amount| Limit::sub_window(amount, WINDOW, Some(60), false),
};

pub(crate) const SUB_WINDOW_10_STRICT: Algorithm = Algorithm {
    name: "sub_window",
    note: "k = 10, strict",
    promise: Promise::NeverOver,
    estimates_window: true,
    limit: |amount| Limit::sub_window(amount, WINDOW, Some(10), true),
};

pub(crate) const SLIDING_LOG: Algorithm = Algorithm {
    name: "sliding_log",
    note: "",
    promise: Promise::Exact,
    estimates_window: true,
    limit: |amount| Limit::sliding_log(amount, WINDOW),
};

pub(crate) const CELL_LOG: Algorithm = Algorithm {
    name: "sliding_window",
    note: "cell log, m = 20: the default",
    promise: Promise::Near,
    estimates_window: true,
    limit: |amount| Limit::sliding_window(amount, WINDOW),
};

pub(crate) const CELL_LOG_STRICT: Algorithm = Algorithm {
    name: "sliding_window",
    note: "strict",
    promise: Promise::NearAndNeverOver,
    estimates_window: true,
    limit: |amount| Limit::sliding_window_strict(amount, WINDOW),
};

/// The rows of every table, in their order.
pub(crate) const ALGORITHMS: [Algorithm; 9] = [
    FIXED_WINDOW,
    TOKEN_BUCKET,
    TWO_WINDOW,
    SUB_WINDOW_10,
    SUB_WINDOW_60,
    SUB_WINDOW_10_STRICT,
    SLIDING_LOG,
    CELL_LOG,
    CELL_LOG_STRICT,
];

impl Algorithm {
    pub(crate) fn title(&self) -> String {
        match self.note {
            "" => self.name.to_owned(),
            note => format!("{} ({note})", self.name),
        }
    }

    pub(crate) fn shipped(&self, amount: u64) -> Result<Shipped, String> {
        Shipped::new((self.limit)(amount), 1)
            .map_err(|error| format!("{} of {amount}: {error}", self.title()))
    }
}

/// The shipped code itself.
pub(crate) struct Shipped {
    limit: Limit,
    state: State,
    cost: u64,
    portable: Vec<u8>,
}

impl Shipped {
    pub(crate) fn new(limit: Result<Limit, LimitError>, cost: u64) -> Result<Self, LimitError> {
        let limit = limit?;
        let state = limit.state();
        Ok(Self { limit, state, cost, portable: Vec::new() })
    }

    /// The largest state that can be, refunds and debts included, as a store keeps it.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.limit.bytes_max() as u64
    }
}

impl Limiter for Shipped {
    fn reset(&mut self) {
        self.state = self.limit.state();
    }

    fn hit(&mut self, now_us: u64) -> Hit {
        let now = Micros::new(now_us);
        let verdict = self.limit.step(&mut self.state, Ask::Charge { cost: self.cost }, now);
        Hit {
            admitted: verdict.admitted(),
            estimate: self.limit.used(&mut self.state, now),
            over: u64::from(verdict.bound.over),
            under: u64::from(verdict.bound.under),
        }
    }

    fn used(&mut self, now_us: u64) -> u64 {
        self.limit.used(&mut self.state, Micros::new(now_us))
    }
    fn bytes(&mut self) -> u64 {
        self.portable.clear();
        self.state.write_portable(&mut self.portable);
        self.portable.len() as u64
    }
}
