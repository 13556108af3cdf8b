//! A limit for stores that take its steps elsewhere: its numbers, how long its states have to be kept, and the verdict from what such a
//! store tells of a list that is too long to send.

use crate::calendar::Calendar;
use crate::limit::Kind;
use crate::step::{self, Applied, Law, ceiling};
use crate::{Ask, Bound, Charge, Limit, Micros, Outcome, Tick, Verdict};

/// What a step needs to know of a limit besides its amount and capacity.
#[derive(Clone, Copy, Debug)]
pub enum Numbers<'a> {
    /// One aligned window.
    Fixed {
        /// In µs.
        window_us: u64,
    },
    /// Aligned parts of a window.
    Parted {
        /// How many.
        k: u32,
        /// How long each is, in ticks.
        width: u64,
        /// The tick.
        tick: Tick,
        /// Is the one that leaves counted in full?
        strict: bool,
    },
    /// A level that leaks.
    Level {
        /// How high it may be.
        burst: u32,
        /// The window, in ticks.
        window: u64,
        /// The tick.
        tick: Tick,
    },
    /// The cell log.
    Cells {
        /// The window, in ticks.
        window: u64,
        /// The tick.
        tick: Tick,
        /// Is the cell at the edge counted in full?
        strict: bool,
    },
    /// Every charge with its time.
    Log {
        /// In µs.
        window_us: u64,
    },
    /// Places that are held.
    Places {
        /// For how long, in µs.
        ttl_us: u64,
    },
    /// A quota per period.
    Calendar(&'a Calendar),
}

impl Limit {
    /// Its numbers.
    pub fn numbers(&self) -> Numbers<'_> {
        match self.kind() {
            Kind::Fixed(law) => Numbers::Fixed { window_us: law.window_us },
            Kind::Sub(law) => {
                Numbers::Parted { k: law.k, width: law.width, tick: law.tick, strict: law.strict }
            }
            Kind::Cells(law) => Numbers::Cells { window: law.window, tick: law.tick, strict: law.strict },
            Kind::Log(law) => Numbers::Log { window_us: law.window_us },
            Kind::Bucket { law, .. } => {
                Numbers::Level { burst: law.burst, window: law.window, tick: law.tick }
            }
            Kind::Concurrency(law) => Numbers::Places { ttl_us: law.ttl_us },
            Kind::Calendar { calendar, .. } => Numbers::Calendar(calendar),
        }
    }

    /// The longest that a state which was just written can matter, from its own time on ([`Verdict::at`]), whatever was charged. A
    /// calendar's is up to its periods.
    pub fn kept_max(&self) -> Option<Micros> {
        let us = match self.kind() {
            Kind::Fixed(law) => 2 * law.window_us,
            Kind::Sub(law) => law.window_us() + law.window_us() / u64::from(law.k),
            Kind::Cells(law) => law.window_us(),
            Kind::Log(law) => law.window_us,
            Kind::Bucket { law, .. } if law.amount == 0 => law.window_us(),
            Kind::Bucket { law, .. } => {
                let full = u128::from(ceiling(law.capacity())) * u128::from(law.window);
                let ticks = full.div_ceil(u128::from(law.amount));
                law.tick.to_us(u64::try_from(ticks).unwrap_or(u64::MAX / law.tick.us()))
            }
            Kind::Concurrency(law) => law.ttl_us,
            Kind::Calendar { .. } => return None,
        };
        Some(Micros::new(us))
    }

    /// The verdict on a log or on places, from what a store that took the step tells. None if the limit has no list.
    pub fn verdict_of(&self, ask: &Ask, told: ListTold, now: Micros) -> Option<Verdict> {
        let (window_us, is_list) = match self.kind() {
            Kind::Log(law) => (law.window_us, true),
            Kind::Concurrency(law) => (law.ttl_us, true),
            _ => (0, false),
        };
        let law = ToldLaw { amount: self.amount(), window_us };
        let asked = match *ask {
            Ask::Charge { cost } | Ask::Acquire { cost, .. } => cost,
            Ask::Settle { receipt, actual } => actual.saturating_sub(receipt.units),
            _ => 0,
        };
        let refused = matches!(told.outcome, Outcome::RateLimited | Outcome::CostExceedsLimit);
        let is_forced = matches!(ask, Ask::Settle { .. }) || (refused && self.charge() == Charge::Always);
        let charged = u64::try_from(told.applied).unwrap_or(0);
        let forgiven = if is_forced { asked.saturating_sub(charged) } else { 0 };
        let applied = Applied { units: told.applied, forgiven };
        let cost = if refused { asked.max(1) } else { 1 };
        let seen = SeenTold { told, now };
        is_list.then(|| step::numbers(&law, &(), seen, told.outcome, cost, applied))
    }
}

/// What a store tells of a list after a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListTold {
    /// Admitted, or why not.
    pub outcome: Outcome,
    /// Units in use.
    pub used: u64,
    /// Units charged or given back.
    pub applied: i64,
    /// The counter's own time.
    pub at: Micros,
    /// When the cost fits, on a refusal; else when a unit does. Now, if it is before now.
    pub ready: Micros,
    /// When the last item leaves; zero if there is none.
    pub latest: Micros,
}

/// A list that somebody else looked at.
struct ToldLaw {
    amount: u32,
    window_us: u64,
}

#[derive(Clone, Copy)]
struct SeenTold {
    told: ListTold,
    now: Micros,
}

impl Law for ToldLaw {
    type State<'a> = ();
    type Seen = SeenTold;

    fn amount(&self) -> u32 {
        self.amount
    }

    fn window_us(&self) -> u64 {
        self.window_us
    }

    fn repair(&self, (): &mut (), _: Micros) {}

    fn see(&self, (): &(), now: Micros) -> SeenTold {
        let told = ListTold {
            outcome: Outcome::Admitted,
            used: 0,
            applied: 0,
            at: now,
            ready: now,
            latest: Micros::ZERO,
        };
        SeenTold { told, now }
    }

    fn at(&self, seen: SeenTold) -> Micros {
        seen.told.at
    }

    fn used(&self, seen: SeenTold) -> u64 {
        seen.told.used
    }

    fn wait(&self, (): &(), seen: SeenTold, _: u64) -> Micros {
        seen.told.ready.minus(seen.now)
    }

    fn reset_after(&self, (): &(), seen: SeenTold) -> Micros {
        seen.told.latest.minus(seen.now)
    }

    fn bound(&self, (): &(), _: SeenTold) -> Bound {
        Bound::EXACT
    }

    fn charge(&self, (): &mut (), seen: SeenTold, _: u32) -> SeenTold {
        seen
    }

    fn refund(&self, (): &mut (), _: SeenTold, _: u64, _: Option<Micros>) -> u64 {
        0
    }
}
