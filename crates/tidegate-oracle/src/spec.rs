//! Limits as plain numbers, and their text form.

use std::fmt;

use crate::duration;

/// The life of a held place where a text names none.
const TTL_DEFAULT_US: u64 = 60_000_000;

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spec {
    /// How use is counted.
    pub algorithm: Algorithm,
    /// The units a window may hold.
    pub amount: u64,
    /// The window, 0 for concurrency and calendar.
    pub window_us: u64,
    /// The units a bucket holds, the amount where absent.
    pub burst: Option<u64>,
    /// Into how many parts a window is cut, the largest number up to 60 that divides it where absent.
    pub sub_windows: Option<u32>,
    /// Whether what may have left the window is still counted whole.
    pub strict: bool,
    /// Whether what does not fit is charged all the same.
    pub always: bool,
    /// How long a place is held without renewal, for concurrency only.
    pub ttl_us: u64,
    /// The periods of a calendar limit.
    pub calendar: Option<Calendar>,
}

/// The ways to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Aligned windows, each counted alone.
    FixedWindow,
    /// Every charge remembered until it leaves the window.
    SlidingLog,
    /// The current window and a fading part of the one before.
    SlidingWindowCounter,
    /// The same with finer windows.
    SubWindow,
    /// A bucket that refills steadily.
    TokenBucket,
    /// The same bucket under its telecom name.
    Gcra,
    /// The same bucket seen from the other side.
    LeakyBucket,
    /// A log of cells, each of a few units and a short time.
    SlidingWindow,
    /// Places held until released or expired.
    Concurrency,
    /// Days, weeks or months of a time zone.
    Calendar,
}

/// The periods of a calendar limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Calendar {
    /// The length of a period.
    pub unit: Unit,
    /// The time zone's name in the tz database.
    pub zone: String,
    /// The first day of a week, heeded by weeks only.
    pub week_start: Weekday,
}

/// The length of a calendar period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unit {
    /// From one local date to the next.
    Day,
    /// Seven local dates.
    Week,
    /// From the first of a month to the first of the next.
    Month,
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Weekday {
    /// Monday.
    Monday,
    /// Tuesday.
    Tuesday,
    /// Wednesday.
    Wednesday,
    /// Thursday.
    Thursday,
    /// Friday.
    Friday,
    /// Saturday.
    Saturday,
    /// Sunday.
    Sunday,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 10] = [
        Self::FixedWindow,
        Self::SlidingLog,
        Self::SlidingWindowCounter,
        Self::SubWindow,
        Self::TokenBucket,
        Self::Gcra,
        Self::LeakyBucket,
        Self::SlidingWindow,
        Self::Concurrency,
        Self::Calendar,
    ];

    /// The name in a text.
    pub fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed_window",
            Self::SlidingLog => "sliding_log",
            Self::SlidingWindowCounter => "sliding_window_counter",
            Self::SubWindow => "sub_window",
            Self::TokenBucket => "token_bucket",
            Self::Gcra => "gcra",
            Self::LeakyBucket => "leaky_bucket",
            Self::SlidingWindow => "sliding_window",
            Self::Concurrency => "concurrency",
            Self::Calendar => "calendar",
        }
    }

    /// Whether the limit is a bucket under any of its names.
    pub fn is_bucket(self) -> bool {
        matches!(self, Self::TokenBucket | Self::Gcra | Self::LeakyBucket)
    }

    pub(crate) fn can_be_strict(self) -> bool {
        matches!(self, Self::SubWindow | Self::SlidingWindow)
    }
}

impl Unit {
    const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];

    fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }
}

impl Weekday {
    const ALL: [Self; 7] = [
        Self::Monday,
        Self::Tuesday,
        Self::Wednesday,
        Self::Thursday,
        Self::Friday,
        Self::Saturday,
        Self::Sunday,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Monday => "monday",
            Self::Tuesday => "tuesday",
            Self::Wednesday => "wednesday",
            Self::Thursday => "thursday",
            Self::Friday => "friday",
            Self::Saturday => "saturday",
            Self::Sunday => "sunday",
        }
    }
}

impl Spec {
    /// A limit with every option at its default.
    pub fn new(algorithm: Algorithm, amount: u64, window_us: u64) -> Self {
        Self {
            algorithm,
            amount,
            window_us,
            burst: None,
            sub_windows: None,
            strict: false,
            always: false,
            ttl_us: if algorithm == Algorithm::Concurrency { TTL_DEFAULT_US } else { 0 },
            calendar: None,
        }
    }

    /// Reads the words after `limit`; the error says what was expected.
    pub(crate) fn parse(words: &[&str]) -> Result<Self, String> {
        let [algorithm, amount, options @ ..] = words else {
            return Err("an algorithm and an amount".to_owned());
        };
        let algorithm = parse_algorithm(algorithm)?;
        let mut spec = match algorithm {
            Algorithm::Concurrency => Self::new(algorithm, parse_amount(amount)?, 0),
            Algorithm::Calendar => parse_calendar(amount)?,
            _ => parse_windowed(algorithm, amount)?,
        };
        for option in options {
            spec.read_option(option)?;
        }
        if spec.calendar.as_ref().is_some_and(|calendar| calendar.zone.is_empty()) {
            return Err("zone=<time zone>".to_owned());
        }
        Ok(spec)
    }

    fn read_option(&mut self, option: &str) -> Result<(), String> {
        let algorithm = self.algorithm;
        match (option.split_once('=').unwrap_or((option, "")), &mut self.calendar) {
            (("strict", ""), _) if algorithm.can_be_strict() => self.strict = true,
            (("charge", "always"), _) if algorithm != Algorithm::Concurrency => self.always = true,
            (("burst", units), _) if algorithm.is_bucket() => self.burst = Some(parse_amount(units)?),
            (("k", count), _) if algorithm == Algorithm::SubWindow => {
                self.sub_windows = Some(parse_count(count)?)
            }
            (("ttl", time), _) if algorithm == Algorithm::Concurrency => self.ttl_us = parse_window(time)?,
            (("zone", zone), Some(calendar)) => calendar.zone = parse_zone(zone)?,
            (("week_start", day), Some(calendar)) if calendar.unit == Unit::Week => {
                calendar.week_start = parse_weekday(day)?;
            }
            _ => return Err(format!("an option of {} instead of {option:?}", algorithm.name())),
        }
        Ok(())
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.algorithm.name(), self.amount)?;
        match (self.algorithm, &self.calendar) {
            (Algorithm::Concurrency, _) => write!(f, " ttl={}", duration::print(self.ttl_us))?,
            (Algorithm::Calendar, Some(calendar)) => write!(f, "{calendar}")?,
            _ => write!(f, "/{}", duration::print(self.window_us))?,
        }
        if let Some(burst) = self.burst {
            write!(f, " burst={burst}")?;
        }
        if let Some(count) = self.sub_windows {
            write!(f, " k={count}")?;
        }
        if self.strict {
            write!(f, " strict")?;
        }
        if self.always {
            write!(f, " charge=always")?;
        }
        Ok(())
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{} zone={}", self.unit.name(), self.zone)?;
        if self.unit == Unit::Week && self.week_start != Weekday::Monday {
            write!(f, " week_start={}", self.week_start.name())?;
        }
        Ok(())
    }
}

fn parse_algorithm(text: &str) -> Result<Algorithm, String> {
    let names = Algorithm::ALL.map(Algorithm::name);
    let found = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == text);
    found.ok_or_else(|| format!("one of {} instead of {text:?}", names.join(", ")))
}

fn parse_windowed(algorithm: Algorithm, text: &str) -> Result<Spec, String> {
    let (amount, window) =
        text.split_once('/').ok_or_else(|| format!("<amount>/<window> instead of {text:?}"))?;
    Ok(Spec::new(algorithm, parse_amount(amount)?, parse_window(window)?))
}

fn parse_calendar(text: &str) -> Result<Spec, String> {
    let wrong = || format!("<amount>/day, /week or /month instead of {text:?}");
    let (amount, unit) = text.split_once('/').ok_or_else(wrong)?;
    let unit = Unit::ALL.into_iter().find(|candidate| candidate.name() == unit).ok_or_else(wrong)?;
    let calendar = Calendar { unit, zone: String::new(), week_start: Weekday::Monday };
    Ok(Spec { calendar: Some(calendar), ..Spec::new(Algorithm::Calendar, parse_amount(amount)?, 0) })
}

fn parse_amount(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a number of units instead of {text:?}"))
}

fn parse_count(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("a number of sub-windows instead of {text:?}"))
}

fn parse_window(text: &str) -> Result<u64, String> {
    let window_us = duration::parse(text).filter(|us| *us > 0);
    window_us.ok_or_else(|| format!("a window such as 250ms, 10s or 1h instead of {text:?}"))
}

fn parse_zone(text: &str) -> Result<String, String> {
    match jiff::tz::TimeZone::get(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err(format!("a time zone of the tz database instead of {text:?}")),
    }
}

fn parse_weekday(text: &str) -> Result<Weekday, String> {
    let found = Weekday::ALL.into_iter().find(|day| day.name() == text);
    found.ok_or_else(|| format!("a day from monday to sunday instead of {text:?}"))
}
