//! Calendar quotas: days, weeks and months as a time zone has them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::model::Family;
use crate::numbers::Numbers;
use crate::spec::{Calendar, Unit, Weekday};
use crate::truth::Given;

const US_PER_S: i128 = 1_000_000;
const S_PER_MINUTE: i64 = 60;
/// No zone is further ahead of UTC than this, so a date begins nowhere earlier.
const AHEAD_MAX_S: i64 = 16 * 3_600;

/// The use of one period.
#[derive(Debug, Clone)]
pub(crate) struct CalendarQuota {
    periods: Periods,
    /// The start of the period of the last write.
    stored: Option<i128>,
    used: i128,
}

impl CalendarQuota {
    pub(crate) fn new(calendar: &Calendar) -> Self {
        Self { periods: Periods::of(calendar), stored: None, used: 0 }
    }

    fn is_current(&self, at: i128) -> bool {
        self.stored == Some(self.periods.holding(at).start)
    }
}

impl Family for CalendarQuota {
    fn copy(&self) -> Box<dyn Family> {
        Box::new(self.clone())
    }

    fn stored(&self, _numbers: &Numbers) -> i128 {
        self.stored.unwrap_or(0)
    }

    /// The next period counts as the current one: clocks of two nodes may differ around its start.
    fn is_too_far_ahead(&self, _numbers: &Numbers, n: i128) -> bool {
        self.stored.is_some_and(|start| start > self.periods.holding(n).end)
    }

    fn move_back(&mut self, _numbers: &Numbers, n: i128) -> i128 {
        let start = self.periods.holding(n).start;
        let by = self.stored.map_or(0, |stored| stored - start);
        self.stored = Some(start);
        by
    }

    fn used(&self, _numbers: &Numbers, eff: i128) -> i128 {
        if self.is_current(eff) { self.used } else { 0 }
    }

    fn charge(&mut self, numbers: &Numbers, eff: i128, units: i128, _holder: Option<u64>) {
        self.keep(numbers, eff);
        self.used += units;
    }

    fn refund(&mut self, _numbers: &Numbers, eff: i128, units: i128, receipt_at: Option<i128>) -> Vec<Given> {
        let is_charged_now = receipt_at.is_none_or(|at| self.is_current(at));
        if !self.is_current(eff) || !is_charged_now {
            return Vec::new();
        }
        let given = units.min(self.used);
        self.used -= given;
        vec![Given::Newest { units: given }]
    }

    fn keep(&mut self, _numbers: &Numbers, eff: i128) {
        if !self.is_current(eff) {
            self.stored = Some(self.periods.holding(eff).start);
            self.used = 0;
        }
    }

    fn window_end(&self, _numbers: &Numbers, eff: i128) -> Option<i128> {
        Some(self.periods.holding(eff).end)
    }
}

/// From its first instant to the first instant of the next.
struct Period {
    start: i128,
    end: i128,
}

#[derive(Debug, Clone)]
struct Periods {
    calendar: Calendar,
    zone: TimeZone,
}

impl Periods {
    fn of(calendar: &Calendar) -> Self {
        let zone = TimeZone::get(&calendar.zone)
            .unwrap_or_else(|_| panic!("the tz database has no time zone {:?}", calendar.zone));
        Self { calendar: calendar.clone(), zone }
    }

    /// The last period that begins at or before an instant. A date that the zone skipped begins together with the
    /// next one and so is never the last; a date that the zone fell back to has been left for good.
    fn holding(&self, at: i128) -> Period {
        let second = i64::try_from(at.div_euclid(US_PER_S)).expect("times fit a calendar");
        let mut first_date = self.first_date_of(self.local_date(second));
        // The zone's own date is off by one period at most, and two are skipped nowhere.
        for _ in 0..2 {
            first_date = self.first_date_of(first_date.yesterday().expect("times are well after year 1"));
        }
        let mut start = self.boundary(first_date);
        assert!(start <= at, "two periods back is not far enough at {at} in {}", self.calendar);
        loop {
            first_date = self.next_first_date(first_date);
            let end = self.boundary(first_date);
            if end > at {
                return Period { start, end };
            }
            start = end;
        }
    }

    /// The first date of the period that has a date.
    fn first_date_of(&self, mut date: Date) -> Date {
        while !self.is_first_date(date) {
            date = date.yesterday().expect("times are well after year 1");
        }
        date
    }

    fn next_first_date(&self, date: Date) -> Date {
        let mut next = date.tomorrow().expect("times are well before year 9999");
        while !self.is_first_date(next) {
            next = next.tomorrow().expect("times are well before year 9999");
        }
        next
    }

    fn is_first_date(&self, date: Date) -> bool {
        match self.calendar.unit {
            Unit::Day => true,
            Unit::Week => date.weekday() == weekday_in_jiff(self.calendar.week_start),
            Unit::Month => date.day() == 1,
        }
    }

    /// The first instant whose local date is at least `date`.
    fn boundary(&self, date: Date) -> i128 {
        let known = BOUNDARIES.with_borrow(|zones| zones.get(&self.calendar.zone)?.get(&date).copied());
        known.unwrap_or_else(|| {
            let boundary = i128::from(self.search_boundary(date)) * US_PER_S;
            BOUNDARIES.with_borrow_mut(|zones| {
                zones.entry(self.calendar.zone.clone()).or_default().insert(date, boundary);
            });
            boundary
        })
    }

    /// Looks at every minute, then at the seconds of the one before: some zones were once off by odd seconds.
    fn search_boundary(&self, date: Date) -> i64 {
        let midnight = date.to_zoned(TimeZone::UTC).expect("times fit a calendar").timestamp().as_second();
        let mut minute = midnight - AHEAD_MAX_S;
        assert!(self.local_date(minute) < date, "{date} began too early in {}", self.calendar);
        while self.local_date(minute) < date {
            minute += S_PER_MINUTE;
        }
        let seconds = minute - S_PER_MINUTE + 1..=minute;
        seconds.into_iter().find(|second| self.local_date(*second) >= date).unwrap_or(minute)
    }

    fn local_date(&self, second: i64) -> Date {
        let instant = Timestamp::from_second(second).expect("times fit a calendar");
        self.zone.to_datetime(instant).date()
    }
}

thread_local! {
    /// The first instants of dates by zone: they never change and each takes a thousand looks to find.
    static BOUNDARIES: RefCell<HashMap<String, BTreeMap<Date, i128>>> = RefCell::default();
}

fn weekday_in_jiff(day: Weekday) -> jiff::civil::Weekday {
    match day {
        Weekday::Monday => jiff::civil::Weekday::Monday,
        Weekday::Tuesday => jiff::civil::Weekday::Tuesday,
        Weekday::Wednesday => jiff::civil::Weekday::Wednesday,
        Weekday::Thursday => jiff::civil::Weekday::Thursday,
        Weekday::Friday => jiff::civil::Weekday::Friday,
        Weekday::Saturday => jiff::civil::Weekday::Saturday,
        Weekday::Sunday => jiff::civil::Weekday::Sunday,
    }
}
