//! Days, weeks and months around the odd hours of time zones.

use super::check;
use jiff::Timestamp;

/// A line at an instant.
fn at(instant: &str, op: &str) -> String {
    let instant: Timestamp = instant.parse().expect("an instant");
    format!("at {}us {op}\n", instant.as_microsecond())
}

#[test]
fn days_have_23_24_or_25_hours() {
    for (midnight, reset) in [
        ("2024-03-09T00:00:00-05:00", "reset=1d"),
        ("2024-03-10T00:00:00-05:00", "reset=23h"),
        ("2024-11-03T00:00:00-04:00", "reset=25h"),
    ] {
        let script = format!("limit calendar 5/day zone=America/New_York\n{}", at(midnight, "charge 1"));
        check(&script, &[&format!("admitted remaining=4 over=0 under=0 {reset}")]);
    }
}

#[test]
fn weeks_and_months_contain_the_change_of_the_clock() {
    for (limit, instant, reset) in [
        ("5/week zone=America/New_York week_start=sunday", "2024-03-10T00:00:00-05:00", "reset=167h"),
        ("5/week zone=America/New_York", "2024-03-10T00:00:00-05:00", "reset=23h"),
        ("5/week zone=America/New_York", "2024-03-04T00:00:00-05:00", "reset=167h"),
        ("5/month zone=America/New_York", "2024-03-01T00:00:00-05:00", "reset=743h"),
        ("5/month zone=UTC", "2024-02-01T00:00:00Z", "reset=29d"),
    ] {
        check(&format!("limit calendar {limit}\n{}", at(instant, "charge 1")), &[reset]);
    }
}

#[test]
fn a_day_never_reopens_when_the_clock_falls_back_over_midnight() {
    // At 00:01 on the 7th St. John's went back to 23:01 on the 6th.
    let script = ["limit calendar 5/day zone=America/St_Johns\n".to_owned()]
        .into_iter()
        .chain([
            at("2010-11-06T23:59:59-02:30", "charge 5"),
            at("2010-11-07T00:00:00-02:30", "charge 5"),
            at("2010-11-06T23:30:00-03:30", "charge 1"),
            at("2010-11-07T00:00:00-03:30", "charge 1"),
            at("2010-11-08T00:00:00-03:30", "charge 1"),
        ])
        .collect::<String>();
    check(
        &script,
        &[
            "remaining=0 reset=1s",
            "remaining=0 reset=25h",
            "rate_limited retry=1470m",
            "rate_limited retry=1d",
            "remaining=4",
        ],
    );
}

#[test]
fn a_skipped_date_holds_no_instant() {
    // Samoa went from the 29th to the 31st of December 2011.
    let script = ["limit calendar 5/day zone=Pacific/Apia\n".to_owned()]
        .into_iter()
        .chain([
            at("2011-12-29T00:00:00-10:00", "charge 1"),
            at("2011-12-29T23:59:59-10:00", "charge 1"),
            at("2011-12-31T00:00:00+14:00", "charge 1"),
            // The 31st is exactly the next day that exists, so it counts as the current one.
            at("2011-12-29T23:59:58-10:00", "charge 1"),
            at("2011-12-28T23:59:58-10:00", "charge 1"),
        ])
        .collect::<String>();
    check(
        &script,
        &[
            "remaining=4 reset=1d",
            "remaining=3 reset=1s",
            "remaining=4 reset=1d",
            "remaining=3 reset=86402s applied=1",
            "remaining=2 reset=2s",
        ],
    );
}

#[test]
fn a_midnight_that_does_not_exist_is_the_hour_after() {
    // São Paulo skipped the hour after midnight on 2017-10-15.
    let script = ["limit calendar 5/day zone=America/Sao_Paulo\n".to_owned()]
        .into_iter()
        .chain([at("2017-10-14T23:59:59-03:00", "charge 1"), at("2017-10-15T01:00:00-02:00", "charge 1")])
        .collect::<String>();
    check(&script, &["remaining=4 reset=1s", "remaining=4 reset=23h"]);
}

#[test]
fn a_zone_may_be_off_by_odd_seconds() {
    // Liberia was 44 min 30 s behind until 1972-01-07.
    let script = ["limit calendar 5/day zone=Africa/Monrovia\n".to_owned()]
        .into_iter()
        .chain([at("1972-01-02T00:44:29Z", "charge 1"), at("1972-01-02T00:44:30Z", "charge 1")])
        .collect::<String>();
    check(&script, &["remaining=4 reset=1s", "remaining=4 reset=1d"]);
}

#[test]
fn a_clock_one_period_behind_waits_and_one_further_behind_repairs() {
    let script = ["limit calendar 5/month zone=UTC\n".to_owned()]
        .into_iter()
        .chain([
            at("2024-03-01T00:00:00Z", "charge 5"),
            at("2024-02-29T00:00:00Z", "charge 1"),
            at("2024-01-31T00:00:00Z", "charge 1"),
            at("2024-01-31T00:00:00Z", "refund 2 of #0"),
            at("2024-01-31T00:00:00Z", "refund 2"),
            at("2024-02-01T00:00:00Z", "peek"),
        ])
        .collect::<String>();
    check(
        &script,
        &[
            "remaining=0 reset=31d",
            "rate_limited retry=32d at=19783d",
            "rate_limited retry=1d at=19753d",
            "remaining=0 applied=0",
            "remaining=2 applied=-2",
            "remaining=5",
        ],
    );
}

#[test]
fn the_epoch_lies_within_a_period_that_began_before_it() {
    check(
        "limit calendar 5/week zone=Pacific/Kiritimati
         at 0s charge 5
         at 1h peek
         at 100000h peek",
        &["remaining=0", "rate_limited", "remaining=5"],
    );
}
