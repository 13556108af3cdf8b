//! Quotas per day, week or month in a time zone, right across daylight saving.
//!
//! A period starts at the first instant of its first local date, even where midnight does not exist or comes twice; so days of
//! 23 and 25 hours are legal, and a clock that falls back over midnight does not reopen yesterday. Zones are bundled.

use jiff::Timestamp;
use jiff::civil::{Date, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};

use crate::step::Law;
use crate::{Bound, LimitError, Micros};

/// How long a period of a calendar quota is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A local date.
    Day,
    /// Seven local dates from a given weekday.
    Week,
    /// A calendar month.
    Month,
}

impl Unit {
    /// The name used in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }
}

/// The weekday on which weeks start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "weekdays name themselves")]
pub enum Weekday {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

/// The periods of a quota: their unit, in a time zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Calendar {
    unit: Unit,
    zone: TimeZone,
    week_start: Weekday,
}

/// One period: the local date it starts on, and when it starts and ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Period {
    /// Its first local date, in days since 1970-01-01 (0 for those before it). What a counter remembers: zone data may move the
    /// start, never the date.
    pub id: u32,
    /// The first instant that belongs to it.
    pub start: Micros,
    /// The first instant that does not.
    pub end: Micros,
}

impl Calendar {
    /// Periods of `unit` in the IANA time zone `zone`; weeks start on `week_start`.
    pub fn new(unit: Unit, zone: &str, week_start: Weekday) -> Result<Self, LimitError> {
        match TimeZone::get(zone) {
            Ok(found) if !found.is_unknown() => Ok(Self { unit, zone: found, week_start }),
            _ => Err(LimitError::ZoneUnknown { zone: zone.to_owned() }),
        }
    }

    /// The same calendar, with periods of another unit.
    #[must_use]
    pub(crate) fn by(&self, unit: Unit) -> Self {
        Self { unit, zone: self.zone.clone(), week_start: self.week_start }
    }

    /// The unit of its periods.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// The time zone's IANA name.
    pub fn zone(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// The weekday on which its weeks start.
    pub fn week_start(&self) -> Weekday {
        self.week_start
    }

    /// The period that holds `now`.
    pub fn period(&self, now: Micros) -> Period {
        let (first, end_us) = self.holding(now);
        Period { id: days(first), start: Micros::new(self.start_of(first)), end: Micros::new(end_us) }
    }

    /// The first date of the period that holds `now`, and its end in µs.
    fn holding(&self, now: Micros) -> (Date, u64) {
        let mut first = self.first_date(self.zone.to_datetime(timestamp(now)).date());
        loop {
            let next = self.next_date(first);
            let end_us = self.start_of(next);
            // The local date may lie before a period that has begun: clocks fell back over midnight. And a period may hold no
            // instant at all: its only date was skipped. So the right one is at most two further.
            if now.get() < end_us || next == first {
                return (first, end_us);
            }
            first = next;
        }
    }

    /// The first date of the period that holds a local date.
    fn first_date(&self, date: Date) -> Date {
        match self.unit {
            Unit::Day => date,
            Unit::Week => {
                let since_monday = i64::from(date.weekday().to_monday_zero_offset());
                let back = (since_monday - self.week_start as i64).rem_euclid(7);
                plus_days(date, -back)
            }
            Unit::Month => date.first_of_month(),
        }
    }

    fn next_date(&self, first: Date) -> Date {
        match self.unit {
            Unit::Day => plus_days(first, 1),
            Unit::Week => plus_days(first, 7),
            Unit::Month => plus_days(first.last_of_month(), 1),
        }
    }

    /// The first instant whose local date is `date` or later, in µs; it may lie after the last of [`Micros`].
    fn start_of(&self, date: Date) -> u64 {
        let midnight = self.zone.to_ambiguous_timestamp(date.to_datetime(Time::midnight()));
        let instant = match midnight.offset() {
            // Midnight is skipped. Read with the offset after the gap it names an instant before the jump: the jump is the next one.
            AmbiguousOffset::Gap { after, .. } => after
                .to_timestamp(date.to_datetime(Time::midnight()))
                .ok()
                .and_then(|before_jump| self.zone.following(before_jump).next())
                .map(|jump| jump.timestamp()),
            _ => midnight.compatible().ok(), // Of two midnights the earlier.
        };
        instant.map_or(0, |instant| u64::try_from(instant.as_microsecond()).unwrap_or(0))
    }
}

fn timestamp(now: Micros) -> Timestamp {
    // All of [`Micros`] (to the year 2255) is within what a time stamp can hold (to 9999).
    Timestamp::from_microsecond(now.get() as i64).unwrap_or(Timestamp::MAX)
}

fn plus_days(date: Date, days: i64) -> Date {
    date.saturating_add(jiff::Span::new().days(days))
}

fn days(date: Date) -> u32 {
    let epoch = jiff::civil::date(1970, 1, 1);
    epoch.until(date).ok().and_then(|span| u32::try_from(span.get_days()).ok()).unwrap_or(0)
}

/// What a calendar quota remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) period: u32,
    pub(crate) used: u32,
}

/// A calendar quota in the period that counts now.
pub(crate) struct Quota<'a> {
    amount: u32,
    calendar: &'a Calendar,
    /// The period's first date, and that as its id.
    first: Date,
    id: u32,
    end: Micros,
    /// When it opens, if the clock is still in the period before; else 0. (Its true start is asked for by few.)
    opens: Micros,
}

impl<'a> Quota<'a> {
    /// The quota as `spent` sees it at `now`: in the period of `now`, but in the next one if that has been written to, since a closed
    /// period never reopens. A period further ahead was written by a broken clock and is set back, with what was used.
    pub(crate) fn at(amount: u32, calendar: &'a Calendar, spent: &mut Spent, now: Micros) -> Self {
        let in_period = |at: Micros, opens: Micros| {
            let (first, end_us) = calendar.holding(at);
            Self { amount, calendar, first, id: days(first), end: Micros::new(end_us), opens }
        };
        let current = in_period(now, Micros::ZERO);
        if spent.period <= current.id {
            return current;
        }
        let next = in_period(current.end, current.end);
        if spent.period == next.id {
            return next;
        }
        spent.period = current.id;
        current
    }

    fn start(&self) -> Micros {
        Micros::new(self.calendar.start_of(self.first))
    }
}

/// A quota's counter at an instant.
#[derive(Clone, Copy)]
pub(crate) struct InPeriod {
    now: Micros,
    used: u64,
}

impl Law for Quota<'_> {
    type State<'a> = &'a mut Spent;
    type Seen = InPeriod;

    fn amount(&self) -> u32 {
        self.amount
    }

    fn window_us(&self) -> u64 {
        self.end.minus(self.start()).get()
    }

    fn repair(&self, _spent: &mut &mut Spent, _now: Micros) {} // Done when the period was chosen.

    fn see(&self, spent: &&mut Spent, now: Micros) -> InPeriod {
        InPeriod { now, used: if spent.period == self.id { u64::from(spent.used) } else { 0 } }
    }

    fn at(&self, seen: InPeriod) -> Micros {
        seen.now.max(self.opens)
    }

    fn used(&self, seen: InPeriod) -> u64 {
        seen.used
    }

    fn wait(&self, _spent: &&mut Spent, seen: InPeriod, cost: u64) -> Micros {
        let fits = seen.used + cost <= u64::from(self.amount);
        if fits { Micros::ZERO } else { self.end.minus(seen.now) }
    }

    fn reset_after(&self, _spent: &&mut Spent, seen: InPeriod) -> Micros {
        if seen.used == 0 { Micros::ZERO } else { self.end.minus(seen.now) }
    }

    fn window_end(&self, seen: InPeriod) -> Option<Micros> {
        Some(self.end.minus(seen.now))
    }

    /// Exact in its own window, which is the period.
    fn bound(&self, _spent: &&mut Spent, _seen: InPeriod) -> Bound {
        Bound::EXACT
    }

    fn charge(&self, spent: &mut &mut Spent, seen: InPeriod, units: u32) -> InPeriod {
        let used = (seen.used as u32).saturating_add(units);
        **spent = Spent { period: self.id, used };
        InPeriod { used: u64::from(used), ..seen }
    }

    fn refund(&self, spent: &mut &mut Spent, seen: InPeriod, units: u64, of: Option<Micros>) -> u64 {
        if of.is_some_and(|of| of >= self.end || of < self.start()) {
            return 0;
        }
        let given = units.min(seen.used);
        spent.used -= given as u32;
        given
    }
}
