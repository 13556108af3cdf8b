//! Calendar periods around the oddities of real time zones.

use jiff::civil::{DateTime, date};
use jiff::tz::TimeZone;
use tidegate_core::{Ask, Calendar, Limit, Micros, Unit, Weekday};

fn calendar(unit: Unit, zone: &str) -> Calendar {
    Calendar::new(unit, zone, Weekday::Monday).expect("a zone")
}

/// An instant by its UTC date and time.
fn utc(at: DateTime) -> Micros {
    let instant = TimeZone::UTC.to_timestamp(at).expect("an instant");
    Micros::new(u64::try_from(instant.as_microsecond()).expect("after 1970"))
}

/// Start and length, in hours, of the period that holds an instant.
fn period(calendar: &Calendar, at: Micros) -> (String, f64) {
    let period = calendar.period(at);
    assert!(period.start <= at && at < period.end, "a period holds its instants");
    let start = jiff::Timestamp::from_microsecond(period.start.get() as i64).expect("an instant");
    (start.to_string(), period.end.minus(period.start).get() as f64 / 3_600e6)
}

#[test]
fn days_of_23_and_25_hours() {
    let berlin = calendar(Unit::Day, "Europe/Berlin");
    assert_eq!(
        period(&berlin, utc(date(2026, 3, 29).at(12, 0, 0, 0))),
        ("2026-03-28T23:00:00Z".to_owned(), 23.0)
    );
    assert_eq!(
        period(&berlin, utc(date(2026, 10, 25).at(12, 0, 0, 0))),
        ("2026-10-24T22:00:00Z".to_owned(), 25.0)
    );
    assert_eq!(
        period(&berlin, utc(date(2026, 7, 1).at(0, 0, 0, 0))),
        ("2026-06-30T22:00:00Z".to_owned(), 24.0)
    );
}

#[test]
fn midnight_that_does_not_exist() {
    // São Paulo, 15 October 2017: from 23:59:59 to 01:00:00.
    let sao_paulo = calendar(Unit::Day, "America/Sao_Paulo");
    assert_eq!(
        period(&sao_paulo, utc(date(2017, 10, 15).at(12, 0, 0, 0))),
        ("2017-10-15T03:00:00Z".to_owned(), 23.0)
    );
}

#[test]
fn midnight_that_comes_twice_does_not_reopen_the_day() {
    // St. John's, 7 November 2010: one minute after midnight the clock went back to 23:01 of the day before.
    let st_johns = calendar(Unit::Day, "America/St_Johns");
    let first_midnight = utc(date(2010, 11, 7).at(2, 30, 0, 0));
    let second_2330 = utc(date(2010, 11, 7).at(3, 0, 0, 0));
    let sunday = ("2010-11-07T02:30:00Z".to_owned(), 25.0);
    assert_eq!(period(&st_johns, first_midnight), sunday);
    assert_eq!(period(&st_johns, second_2330), sunday);
    assert_eq!(
        period(&st_johns, first_midnight.minus(Micros::new(1))),
        ("2010-11-06T02:30:00Z".to_owned(), 24.0)
    );
}

#[test]
fn a_date_that_was_skipped() {
    // Samoa went from 29 to 31 December 2011.
    let apia = calendar(Unit::Day, "Pacific/Apia");
    let friday = utc(date(2011, 12, 30).at(10, 0, 0, 0));
    assert_eq!(period(&apia, friday.minus(Micros::new(1))), ("2011-12-29T10:00:00Z".to_owned(), 24.0));
    assert_eq!(period(&apia, friday), ("2011-12-30T10:00:00Z".to_owned(), 24.0));
    assert_eq!(apia.period(friday).id - apia.period(friday.minus(Micros::new(1))).id, 2);
}

#[test]
fn weeks_start_where_they_are_told_and_months_have_their_days() {
    let sundays = Calendar::new(Unit::Week, "UTC", Weekday::Sunday).expect("a zone");
    let thursday = utc(date(2026, 11, 19).at(5, 0, 0, 0));
    assert_eq!(period(&sundays, thursday), ("2026-11-15T00:00:00Z".to_owned(), 168.0));
    assert_eq!(period(&calendar(Unit::Week, "UTC"), thursday), ("2026-11-16T00:00:00Z".to_owned(), 168.0));
    let february = utc(date(2028, 2, 29).at(23, 59, 59, 0));
    assert_eq!(
        period(&calendar(Unit::Month, "UTC"), february),
        ("2028-02-01T00:00:00Z".to_owned(), 29.0 * 24.0)
    );
}

#[test]
fn periods_follow_each_other_without_a_gap_in_every_zone() {
    for zone in [
        "UTC",
        "America/New_York",
        "America/St_Johns",
        "Asia/Kathmandu",
        "Pacific/Apia",
        "Africa/Monrovia",
        "Asia/Gaza",
    ] {
        for unit in [Unit::Day, Unit::Week, Unit::Month] {
            let calendar = calendar(unit, zone);
            let mut at = utc(date(1971, 12, 1).at(0, 0, 0, 0));
            let end = utc(date(2038, 1, 1).at(0, 0, 0, 0));
            while at < end {
                let period = calendar.period(at);
                assert!(period.end > at, "{zone}: no progress at {at}");
                let next = calendar.period(period.end);
                assert_eq!(next.start, period.end, "{zone}: a gap at {at}");
                assert!(next.id > period.id, "{zone}: ids do not grow at {at}");
                assert_eq!(calendar.period(period.end.minus(Micros::new(1))), period, "{zone}: at {at}");
                at = period.end;
            }
        }
    }
}

#[test]
fn a_quota_opens_anew_with_its_period_and_a_closed_one_stays_closed() {
    let limit = Limit::calendar(100, calendar(Unit::Month, "America/New_York")).expect("a limit");
    let mut state = limit.state();
    let mut charge = |cost, at| limit.step(&mut state, Ask::Charge { cost }, at);
    let last_hour = utc(date(2026, 12, 1).at(4, 30, 0, 0));
    let first_hour = utc(date(2026, 12, 1).at(5, 0, 0, 0));
    assert_eq!(charge(100, last_hour).remaining, 0);
    let refused = charge(1, last_hour);
    assert_eq!(refused.retry_after, Some(Micros::from_secs(1_800)));
    assert_eq!(charge(60, first_hour).remaining, 40);
    // The clock goes back over the boundary: December stays, November does not reopen.
    assert!(!charge(41, last_hour).admitted());
    assert_eq!(charge(1, last_hour).remaining, 39);
    // A period further ahead than the next was written by a broken clock: it is set back, and what was used stays used.
    assert_eq!(charge(1, utc(date(2026, 9, 9).at(0, 0, 0, 0))).remaining, 38);
}
