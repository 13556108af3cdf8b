//! Limits that cannot be wrong: a constructor refuses impossible numbers with a reason and fixes the tick; after that no step fails.

use std::fmt;

use crate::bucket::Bucket;
use crate::calendar::{Calendar, Unit, Weekday};
use crate::cells::{CellLog, PARTS, cell_units};
use crate::concurrency::Concurrency;
use crate::log::SlidingLog;
use crate::step::{self, Law};
use crate::time::PRODUCT_MAX;
use crate::window::{FixedWindow, SubWindows};
use crate::{Bound, Class, Grant, KeyParts, Micros, Tick};

pub use crate::step::Charge;

/// The largest amount and burst: 2^32 − 1.
pub const AMOUNT_MAX: u64 = u32::MAX as u64;
/// The largest amount of a sliding log, which keeps an entry for each unit.
pub const LOG_AMOUNT_MAX: u64 = 10_000;
/// The largest amount of a concurrency limit, which keeps a place for each unit.
pub const PLACES_MAX: u64 = 10_000;
/// The most sub-windows a window may be cut into.
pub const SUB_WINDOWS_MAX: u32 = 1_024;
/// How many sub-windows there are unless the limit says.
const SUB_WINDOWS_DEFAULT: u32 = 60;
/// The shortest window and time to live.
pub(crate) const WINDOW_MIN: Micros = Micros::from_millis(1);
/// The longest window and time to live: 366 days.
pub(crate) const WINDOW_MAX: Micros = Micros::from_secs(366 * 86_400);
/// The longest time in which a bucket refills: 70 years. Twice that, with a debt, is still a time that [`Micros`] can tell.
const REFILL_MAX: Micros = Micros::from_secs(70 * 365 * 86_400);
/// The ways to count.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Algorithm {
    /// The cell log: a sliding window off by less than 5 % of the limit. The default.
    SlidingWindow,
    /// Two aligned windows, the older weighted by what is left of it.
    SlidingWindowCounter,
    /// The window cut into k aligned parts.
    SubWindow,
    /// Every charge with its time: exact.
    SlidingLog,
    /// One aligned window.
    FixedWindow,
    /// Tokens that refill at a rate, up to a burst.
    TokenBucket,
    /// The generic cell rate algorithm: the same decisions as a token bucket.
    Gcra,
    /// A bucket that leaks at a rate: the same decisions as a token bucket.
    LeakyBucket,
    /// Places held at once.
    Concurrency,
    /// A quota per day, week or month.
    Calendar,
}

impl Algorithm {
    /// All of them, in the order in which they are documented.
    pub const ALL: [Self; 10] = [
        Self::SlidingWindow,
        Self::SlidingLog,
        Self::SlidingWindowCounter,
        Self::SubWindow,
        Self::FixedWindow,
        Self::TokenBucket,
        Self::Gcra,
        Self::LeakyBucket,
        Self::Concurrency,
        Self::Calendar,
    ];

    /// The name used in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SlidingWindow => "sliding_window",
            Self::SlidingWindowCounter => "sliding_window_counter",
            Self::SubWindow => "sub_window",
            Self::SlidingLog => "sliding_log",
            Self::FixedWindow => "fixed_window",
            Self::TokenBucket => "token_bucket",
            Self::Gcra => "gcra",
            Self::LeakyBucket => "leaky_bucket",
            Self::Concurrency => "concurrency",
            Self::Calendar => "calendar",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Why numbers do not make a limit, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LimitError {
    /// More than 32 bits.
    #[error("amount {amount} is above {AMOUNT_MAX}: use a smaller amount, or count in larger units")]
    AmountTooLarge {
        /// The amount asked for.
        amount: u64,
    },
    /// Too short or too long.
    #[error(
        "window {window} is not between {WINDOW_MIN} and {WINDOW_MAX}: use a longer or shorter one, or algorithm `calendar` for months"
    )]
    WindowOutOfRange {
        /// The window asked for.
        window: Micros,
    },
    /// No burst at all, or more than 32 bits.
    #[error(
        "burst {burst} is not between 1 and {AMOUNT_MAX}: leave it out to allow a burst of the whole amount"
    )]
    BurstOutOfRange {
        /// The burst asked for.
        burst: u64,
    },
    /// It would take longer than anybody lives to refill.
    #[error(
        "a burst of {burst} at {amount} per {window} takes longer than {REFILL_MAX} to refill: use a smaller burst or a higher rate"
    )]
    BurstTooSlow {
        /// The burst asked for.
        burst: u64,
        /// The amount asked for.
        amount: u64,
        /// The window asked for.
        window: Micros,
    },
    /// Amount and window cannot be multiplied exactly in ticks of up to a second that divide the window.
    #[error(
        "{amount} per {window} cannot be counted exactly: no tick from 1us to 1s divides the window and keeps products below 2^52; \
         use a smaller amount, a shorter window, or a window of whole seconds"
    )]
    TickTooCoarse {
        /// The amount or burst asked for.
        amount: u64,
        /// The window asked for.
        window: Micros,
    },
    /// The window cannot be cut like that.
    #[error("{k} sub-windows do not fit: use 1 to {SUB_WINDOWS_MAX}, and a number that divides the window of {}us", window.get())]
    SubWindowsDoNotFit {
        /// The number of sub-windows asked for.
        k: u32,
        /// The window asked for.
        window: Micros,
    },
    /// The log would be too long.
    #[error(
        "a sliding log keeps an entry for each unit, {LOG_AMOUNT_MAX} at most, not {amount}: \
         use `sliding_window` with `strict: true`, which never admits more either"
    )]
    LogTooLong {
        /// The amount asked for.
        amount: u64,
    },
    /// Too many places.
    #[error(
        "a concurrency limit has {PLACES_MAX} places at most, not {amount}: use a smaller amount, or one limit per shard"
    )]
    PlacesTooMany {
        /// The amount asked for.
        amount: u64,
    },
    /// Too short or too long.
    #[error(
        "time to live {ttl} is not between {WINDOW_MIN} and {WINDOW_MAX}: it should be longer than the longest request"
    )]
    TtlOutOfRange {
        /// The time to live asked for.
        ttl: Micros,
    },
    /// A delay nobody waits for.
    #[error("a longest delay of {delay} is above {WINDOW_MAX}: use a shorter one")]
    DelayTooLong {
        /// The delay asked for.
        delay: Micros,
    },
    /// Not in the time zone database.
    #[error("time zone `{zone}` is unknown: use an IANA name such as `Europe/Berlin` or `UTC`")]
    ZoneUnknown {
        /// The name asked for.
        zone: String,
    },
    /// A place cannot be owed.
    #[error("a concurrency limit cannot be charged always: a place is held or it is not; leave `charge` out")]
    AlwaysWithoutWindow,
}

/// How much, how often, counted how. Made by the constructors; every limit that exists can be stepped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit {
    algorithm: Algorithm,
    charge: Charge,
    /// Worked out once: every take asks for them.
    class: Class,
    capacity: u32,
    kind: Kind,
}

/// What makes a counter another one, besides the algorithm: window, sub-windows, strictness, calendar. Not the numbers, which may change
/// while it counts, nor a time to live, which would let go of the places that are held.
#[derive(PartialEq, Eq)]
enum Shape<'l> {
    Window { us: u64, k: u32, strict: bool },
    Places,
    Calendar { unit: Unit, zone: &'l str, week_start: Weekday },
}

/// The algorithms' own numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Fixed(FixedWindow),
    Sub(SubWindows),
    Cells(CellLog),
    Log(SlidingLog),
    /// The law for levels in units × window, and the one for those in a table's slots.
    Bucket {
        law: Bucket,
        reduced: Bucket,
    },
    Concurrency(Concurrency),
    Calendar {
        amount: u32,
        calendar: Box<Calendar>,
    },
}

impl Limit {
    /// `amount` in any `window`, by the cell log: off by less than 5 % of the amount.
    pub fn sliding_window(amount: u64, window: Micros) -> Result<Self, LimitError> {
        Self::cells(amount, window, false)
    }

    /// `amount` in any `window`, never more; budget returns late by less than 5 % of the amount.
    pub fn sliding_window_strict(amount: u64, window: Micros) -> Result<Self, LimitError> {
        Self::cells(amount, window, true)
    }

    /// `amount` in any `window`, exactly; up to [`LOG_AMOUNT_MAX`].
    pub fn sliding_log(amount: u64, window: Micros) -> Result<Self, LimitError> {
        let window_us = self::window(window)?;
        if amount > LOG_AMOUNT_MAX {
            return Err(LimitError::LogTooLong { amount });
        }
        let law = SlidingLog { amount: self::amount(amount)?, window_us };
        Ok(Self::of(Algorithm::SlidingLog, Kind::Log(law)))
    }

    /// `amount` in each aligned `window`.
    pub fn fixed_window(amount: u64, window: Micros) -> Result<Self, LimitError> {
        let law = FixedWindow { amount: self::amount(amount)?, window_us: self::window(window)? };
        Ok(Self::of(Algorithm::FixedWindow, Kind::Fixed(law)))
    }

    /// `amount` in any `window`, estimated from this aligned window and a part of the one before.
    pub fn sliding_window_counter(amount: u64, window: Micros) -> Result<Self, LimitError> {
        Ok(Self::of(Algorithm::SlidingWindowCounter, Self::sub_windows(amount, window, 1, false)?))
    }

    /// `amount` in any `window`, estimated from `k` aligned parts of it and a part of the one before; `strict` counts that in full.
    /// By default k is the largest number up to 60 that divides the window.
    pub fn sub_window(amount: u64, window: Micros, k: Option<u32>, strict: bool) -> Result<Self, LimitError> {
        let window_us = self::window(window)?;
        let largest = || (1..=SUB_WINDOWS_DEFAULT).rev().find(|k| window_us.is_multiple_of(u64::from(*k)));
        let k = k.or_else(largest).unwrap_or(1);
        Ok(Self::of(Algorithm::SubWindow, Self::sub_windows(amount, window, k, strict)?))
    }

    /// `amount` per `window`, as tokens that refill steadily, up to `burst` (by default the amount) at once.
    pub fn token_bucket(amount: u64, window: Micros, burst: Option<u64>) -> Result<Self, LimitError> {
        Self::bucket(Algorithm::TokenBucket, amount, window, burst)
    }

    /// `amount` per `window`, evenly spaced but for `burst` (by default the amount) at once: the decisions of a token bucket.
    pub fn gcra(amount: u64, window: Micros, burst: Option<u64>) -> Result<Self, LimitError> {
        Self::bucket(Algorithm::Gcra, amount, window, burst)
    }

    /// A bucket of `burst` (by default the amount) that leaks `amount` per `window`: the decisions of a token bucket.
    pub fn leaky_bucket(amount: u64, window: Micros, burst: Option<u64>) -> Result<Self, LimitError> {
        Self::bucket(Algorithm::LeakyBucket, amount, window, burst)
    }

    /// `amount` places held at once, each for `ttl` unless renewed or released; up to [`PLACES_MAX`].
    pub fn concurrency(amount: u64, ttl: Micros) -> Result<Self, LimitError> {
        if amount > PLACES_MAX {
            return Err(LimitError::PlacesTooMany { amount });
        }
        let ttl_us = self::window(ttl).map_err(|_| LimitError::TtlOutOfRange { ttl })?;
        let law = Concurrency { amount: self::amount(amount)?, ttl_us };
        Ok(Self::of(Algorithm::Concurrency, Kind::Concurrency(law)))
    }

    /// `amount` per period of a calendar.
    pub fn calendar(amount: u64, calendar: Calendar) -> Result<Self, LimitError> {
        let kind = Kind::Calendar { amount: self::amount(amount)?, calendar: Box::new(calendar) };
        Ok(Self::of(Algorithm::Calendar, kind))
    }

    /// The same limit, charging refusals too or not.
    pub fn charging(self, charge: Charge) -> Result<Self, LimitError> {
        if charge == Charge::Always && self.algorithm == Algorithm::Concurrency {
            return Err(LimitError::AlwaysWithoutWindow);
        }
        Ok(Self { charge, ..self })
    }

    /// The same limit of `units` only, a bucket's burst in proportion: what one node may spend of it alone. Never more than the limit
    /// itself, and never nothing of something.
    #[must_use]
    pub fn part(&self, units: u32) -> Self {
        let amount = u64::from(self.amount());
        let part = u64::from(units).clamp(amount.min(1), amount);
        if part == amount {
            return self.clone();
        }
        let of_window = self.window().unwrap_or(WINDOW_MAX);
        let smaller = match &self.kind {
            Kind::Fixed(_) => Self::fixed_window(part, of_window),
            Kind::Sub(law) => Self::sub_windows(part, of_window, law.k, law.strict)
                .map(|kind| Self::of(self.algorithm, kind)),
            Kind::Cells(law) => Self::cells(part, of_window, law.strict),
            Kind::Log(_) => Self::sliding_log(part, of_window),
            Kind::Bucket { .. } => {
                let burst = u64::from(self.capacity) * part / amount; // Below 2^64: both are 32 bits.
                Self::bucket(self.algorithm, part, of_window, Some(burst.max(1)))
            }
            Kind::Concurrency(_) => Self::concurrency(part, of_window),
            Kind::Calendar { calendar, .. } => Self::calendar(part, (**calendar).clone()),
        };
        // Smaller numbers fit wherever larger ones did.
        smaller.map_or_else(|_| self.clone(), |smaller| Self { charge: self.charge, ..smaller })
    }

    /// The same limit with a grant's amount, if that is all that a grant changes; it counts like this one then. What nearly all grants of
    /// the default algorithm are: nothing that was worked out depends on the amount.
    #[inline]
    pub(crate) fn granting_amount(&self, grant: Grant) -> Option<Self> {
        let Kind::Cells(law) = &self.kind else { return None };
        if law.window_us() != grant.unit.window().get() {
            return None;
        }
        let kind = Kind::Cells(CellLog { amount: grant.amount, ..*law });
        let Self { algorithm, charge, class, .. } = *self;
        Some(Self { algorithm, charge, class, capacity: grant.amount, kind })
    }

    /// The limit that counts like this one, with a grant's numbers in the place of its own. A bucket's burst stays as many seconds of its
    /// rate, and is the whole amount where it was that; places have no window and are never more than there may be; a calendar goes on by
    /// days, weeks and months. Numbers that the algorithm cannot count are counted by the default one.
    pub fn granting(&self, grant: Grant) -> Result<Self, LimitError> {
        let (amount, window) = (u64::from(grant.amount), grant.unit.window());
        let granted = match &self.kind {
            Kind::Fixed(_) => Self::fixed_window(amount, window),
            Kind::Sub(law) if self.algorithm == Algorithm::SlidingWindowCounter || law.k == 1 => {
                Self::sub_windows(amount, window, 1, law.strict).map(|kind| Self::of(self.algorithm, kind))
            }
            Kind::Sub(law) => {
                let fits = window.get().is_multiple_of(u64::from(law.k));
                Self::sub_window(amount, window, fits.then_some(law.k), law.strict)
            }
            Kind::Cells(law) => Self::cells(amount, window, law.strict),
            Kind::Log(_) => Self::sliding_log(amount, window),
            Kind::Bucket { law, .. } => {
                let burst = (law.burst != law.amount).then(|| scaled_burst(law, amount, window));
                Self::bucket(self.algorithm, amount, window, burst)
            }
            Kind::Concurrency(law) => Self::concurrency(amount.min(PLACES_MAX), Micros::new(law.ttl_us)),
            Kind::Calendar { calendar, .. } => match grant.unit.of_calendar() {
                Some(unit) => Self::calendar(amount, calendar.by(unit)),
                None => Self::sliding_window(amount, window),
            },
        };
        let granted = granted.or_else(|_| Self::sliding_window(amount, window))?;
        match self.charge {
            Charge::Admitted => Ok(granted),
            charge => granted.clone().charging(charge).or(Ok(granted)),
        }
    }

    fn of(algorithm: Algorithm, kind: Kind) -> Self {
        let class = Class::of(&kind);
        let mut limit = Self { algorithm, charge: Charge::Admitted, class, capacity: 0, kind };
        limit.capacity = match &limit.kind {
            Kind::Bucket { law, .. } => law.capacity(),
            _ => limit.amount(),
        };
        limit
    }

    fn cells(amount: u64, window: Micros, strict: bool) -> Result<Self, LimitError> {
        let window_us = self::window(window)?;
        let amount = self::amount(amount)?;
        // By the window alone: as fine as the largest amount allows.
        let tick = Tick::finest(window_us, |ticks| {
            cell_units(u32::MAX).saturating_mul(ticks.div_ceil(PARTS)) < PRODUCT_MAX
        });
        let tick = tick.ok_or(LimitError::TickTooCoarse { amount: amount.into(), window })?;
        let law = CellLog { amount, window: window_us / tick.us(), tick, strict };
        Ok(Self::of(Algorithm::SlidingWindow, Kind::Cells(law)))
    }

    fn sub_windows(amount: u64, window: Micros, k: u32, strict: bool) -> Result<Kind, LimitError> {
        let window_us = self::window(window)?;
        let amount = self::amount(amount)?;
        if k == 0 || k > SUB_WINDOWS_MAX || !window_us.is_multiple_of(u64::from(k)) {
            return Err(LimitError::SubWindowsDoNotFit { k, window });
        }
        let width_us = window_us / u64::from(k);
        let tick = Tick::finest(width_us, |ticks| u64::from(amount).saturating_mul(ticks) < PRODUCT_MAX);
        let tick = tick.ok_or(LimitError::TickTooCoarse { amount: amount.into(), window })?;
        Ok(Kind::Sub(SubWindows { amount, k, width: width_us / tick.us(), tick, strict }))
    }

    fn bucket(
        algorithm: Algorithm,
        amount: u64,
        window: Micros,
        burst: Option<u64>,
    ) -> Result<Self, LimitError> {
        let window_us = self::window(window)?;
        let amount = self::amount(amount)?;
        let burst = match burst {
            None => amount,
            Some(burst) if burst == 0 || burst > AMOUNT_MAX => {
                return Err(LimitError::BurstOutOfRange { burst });
            }
            Some(burst) => burst as u32,
        };
        let refill_us = u128::from(burst) * u128::from(window_us);
        if amount > 0 && refill_us > u128::from(amount) * u128::from(REFILL_MAX.get()) {
            return Err(LimitError::BurstTooSlow { burst: burst.into(), amount: amount.into(), window });
        }
        let most = u64::from(amount.max(burst));
        let tick = Tick::finest(window_us, |ticks| most.saturating_mul(ticks) < PRODUCT_MAX);
        let tick = tick.ok_or(LimitError::TickTooCoarse { amount: most, window })?;
        let law = Bucket::new(amount, burst, window_us / tick.us(), tick);
        Ok(Self::of(algorithm, Kind::Bucket { law, reduced: law.reduced() }))
    }

    /// How it counts.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether refusals are charged.
    pub fn charge(&self) -> Charge {
        self.charge
    }

    /// Is it about places that are held?
    pub fn holds(&self) -> bool {
        matches!(self.kind, Kind::Concurrency(_))
    }

    /// How much.
    pub fn amount(&self) -> u32 {
        match &self.kind {
            Kind::Fixed(law) => law.amount,
            Kind::Sub(law) => law.amount,
            Kind::Cells(law) => law.amount,
            Kind::Log(law) => law.amount,
            Kind::Bucket { law, .. } => law.amount,
            Kind::Concurrency(law) => law.amount,
            Kind::Calendar { amount, .. } => *amount,
        }
    }

    /// The most that can be used: the amount, or a bucket's burst.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The window; for concurrency the time to live, for a calendar none.
    pub fn window(&self) -> Option<Micros> {
        let us = match &self.kind {
            Kind::Fixed(law) => law.window_us,
            Kind::Sub(law) => law.window_us(),
            Kind::Cells(law) => law.window_us(),
            Kind::Log(law) => law.window_us,
            Kind::Bucket { law, .. } => law.window_us(),
            Kind::Concurrency(law) => law.ttl_us,
            Kind::Calendar { .. } => return None,
        };
        Some(Micros::new(us))
    }

    /// The grain in which it tells time.
    pub fn tick(&self) -> Tick {
        match &self.kind {
            Kind::Sub(law) => law.tick,
            Kind::Cells(law) => law.tick,
            Kind::Bucket { law, .. } => law.tick,
            Kind::Fixed(_) | Kind::Log(_) | Kind::Concurrency(_) | Kind::Calendar { .. } => Tick::default(),
        }
    }

    /// The calendar, if it counts by one.
    pub fn periods(&self) -> Option<&Calendar> {
        if let Kind::Calendar { calendar, .. } = &self.kind { Some(calendar) } else { None }
    }

    /// What a table has to know to keep its states.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Algorithm and window, as ids of rules without a name end: `sliding_window/1m`, `calendar/month`, `concurrency`.
    pub fn label(&self) -> String {
        match &self.kind {
            Kind::Concurrency(_) => self.algorithm.to_string(),
            Kind::Calendar { calendar, .. } => format!("{}/{}", self.algorithm, calendar.unit().name()),
            _ => format!("{}/{}", self.algorithm, self.window().unwrap_or_default()),
        }
    }

    /// Adds what makes a counter another one to its key.
    #[must_use]
    pub(crate) fn shape(&self, parts: KeyParts) -> KeyParts {
        let parts = parts.part(self.algorithm.name().as_bytes());
        match self.shape_of() {
            Shape::Window { us, k, strict } => {
                parts.part(&us.to_le_bytes()).part(&k.to_le_bytes()).part(&[u8::from(strict)])
            }
            Shape::Places => parts,
            Shape::Calendar { unit, zone, week_start } => {
                parts.part(unit.name().as_bytes()).part(zone.as_bytes()).part(&[week_start as u8])
            }
        }
    }

    fn shape_of(&self) -> Shape<'_> {
        let window = |us, k, strict| Shape::Window { us, k, strict };
        match &self.kind {
            Kind::Fixed(law) => window(law.window_us, 1, false),
            Kind::Sub(law) => window(law.window_us(), law.k, law.strict),
            Kind::Cells(law) => window(law.window_us(), 1, law.strict),
            Kind::Log(law) => window(law.window_us, 1, false),
            Kind::Bucket { law, .. } => window(law.window_us(), 1, false),
            Kind::Concurrency(_) => Shape::Places,
            Kind::Calendar { calendar, .. } => Shape::Calendar {
                unit: calendar.unit(),
                zone: calendar.zone(),
                week_start: calendar.week_start(),
            },
        }
    }

    /// Would the other limit, in the same place, go on with this one's counters?
    pub fn counts_like(&self, other: &Self) -> bool {
        self.algorithm == other.algorithm && self.shape_of() == other.shape_of()
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The worst bound that a verdict of this limit can state while its numbers stay the same and nothing but charges happens. A refund
    /// adds one unit to a cell log's; a settlement above its reservation makes a debt, as `charge: always` does.
    pub fn bound_max(&self) -> Bound {
        let amount = u64::from(self.amount());
        // What one window can hold: with `charge: always` a debt of one limit on top.
        let full = match self.charge {
            Charge::Admitted => amount,
            Charge::Always => step::ceiling(self.amount()),
        };
        match &self.kind {
            Kind::Fixed(_) => Bound::new(full, 0),
            Kind::Sub(law) if law.strict => Bound::new(0, full),
            Kind::Sub(_) => Bound::new(full, full),
            Kind::Cells(law) if law.strict => Bound::new(0, cell_units(law.amount) - 1),
            Kind::Cells(law) => {
                let inner = cell_units(law.amount).saturating_sub(2);
                Bound::new(inner, inner)
            }
            Kind::Bucket { law, .. } if law.amount == 0 => Bound::EXACT,
            Kind::Bucket { law, .. } => match self.charge {
                Charge::Admitted => Bound { over: law.burst, under: law.amount.saturating_sub(law.burst) },
                Charge::Always => Bound { over: law.burst, under: law.amount },
            },
            Kind::Log(_) | Kind::Concurrency(_) | Kind::Calendar { .. } => Bound::EXACT,
        }
    }
}

/// The burst of a bucket that has another rate: as many seconds of it.
fn scaled_burst(law: &Bucket, amount: u64, window: Micros) -> u64 {
    let before = u128::from(law.amount) * u128::from(window.get());
    let now = u128::from(amount) * u128::from(law.window_us());
    // Below 2^32 · 2^32 · 2^45: no overflow.
    let burst = (u128::from(law.burst) * now).checked_div(before).unwrap_or(law.burst.into());
    u64::try_from(burst).unwrap_or(AMOUNT_MAX).clamp(1, AMOUNT_MAX)
}

/// A limit's amount, checked.
pub(crate) fn amount(amount: u64) -> Result<u32, LimitError> {
    u32::try_from(amount).map_err(|_| LimitError::AmountTooLarge { amount })
}

/// A limit's window in µs, checked.
pub(crate) fn window(window: Micros) -> Result<u64, LimitError> {
    if window < WINDOW_MIN || window > WINDOW_MAX {
        return Err(LimitError::WindowOutOfRange { window });
    }
    Ok(window.get())
}

impl fmt::Display for Limit {
    /// As a person would write it: `sliding_window 100/1m`, `token_bucket 10/1s burst=20`, `calendar 1000/month zone=UTC`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.algorithm, self.amount())?;
        match &self.kind {
            Kind::Fixed(_) | Kind::Log(_) => write!(out, "/{}", self.window().unwrap_or_default())?,
            Kind::Sub(law) => {
                write!(out, "/{}", Micros::new(law.window_us()))?;
                if self.algorithm == Algorithm::SubWindow {
                    write!(out, " k={}", law.k)?;
                }
                write!(out, "{}", if law.strict { " strict" } else { "" })?;
            }
            Kind::Cells(law) => {
                write!(out, "/{}{}", Micros::new(law.window_us()), if law.strict { " strict" } else { "" })?;
            }
            Kind::Bucket { law, .. } => write!(out, "/{} burst={}", Micros::new(law.window_us()), law.burst)?,
            Kind::Concurrency(law) => write!(out, " ttl={}", Micros::new(law.ttl_us))?,
            Kind::Calendar { calendar, .. } => {
                write!(out, "/{} zone={}", calendar.unit().name(), calendar.zone())?;
                if calendar.unit() == Unit::Week {
                    write!(out, " week_start={}", format!("{:?}", calendar.week_start()).to_lowercase())?;
                }
            }
        }
        if self.charge == Charge::Always { out.write_str(" charge=always") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use crate::QuotaUnit;

    use super::*;

    #[test]
    fn a_grant_that_changes_the_amount_alone_makes_the_limit_that_it_would_make_anyway()
    -> Result<(), LimitError> {
        let mut short_cuts = 0;
        for unit in QuotaUnit::ALL {
            for window in [Micros::from_secs(1), unit.window()] {
                let same = [
                    Limit::sliding_window(7, window)?,
                    Limit::sliding_window_strict(7, window)?,
                    Limit::sliding_window(7, window)?.charging(Charge::Always)?,
                    Limit::fixed_window(7, window)?,
                    Limit::token_bucket(7, window, None)?,
                ];
                for (limit, amount) in
                    same.iter().flat_map(|limit| [0, 1, u32::MAX].map(|amount| (limit, amount)))
                {
                    let grant = Grant { amount, unit };
                    let Some(short_cut) = limit.granting_amount(grant) else { continue };
                    short_cuts += 1;
                    assert_eq!(short_cut, limit.granting(grant)?, "{limit:?} {grant:?}");
                    assert!(short_cut.counts_like(limit), "{limit:?} {grant:?}");
                }
            }
        }
        assert_eq!(short_cuts, 3 * 3 * (QuotaUnit::ALL.len() + 1), "three kinds and amounts, a second twice");
        Ok(())
    }
}
