//! A clock that jumps. The node's own does not (it counts on from the time at its start), so this is what remains if a machine's does.

use crate::node::{Inside, START};

const RULES: &str = "
domain: shop
descriptors:
  - key: window
    rate_limit: { limit: 3/1m }
  - key: fixed
    rate_limit: { limit: 3/1m, algorithm: fixed_window }
  - key: bucket
    rate_limit: { limit: 3/1m, algorithm: token_bucket }
  - key: log
    rate_limit: { limit: 3/1m, algorithm: sliding_log }
  - key: day
    rate_limit: { limit: 3/day, algorithm: calendar }
";

const HOUR_US: u64 = 3_600_000_000;
const KEYS: [&str; 5] = ["window", "fixed", "bucket", "log", "day"];

/// How many of ten are admitted; what is told to all of them makes sense.
fn admitted(node: &Inside, key: &str) -> usize {
    let asked = (0..10).map(|_| node.ask(&[(key, "alice")], 1).expect("an answer"));
    let seen = asked.filter(|response| {
        let status = &response.statuses[0];
        let reset = status.duration_until_reset.expect("a reset").seconds;
        let longest = if key == "day" { 2 * 86_400 } else { 120 };
        assert!((0..=longest).contains(&reset), "{key}: {reset} s");
        assert!(status.limit_remaining <= 3, "{key}: {}", status.limit_remaining);
        response.overall_code == 1
    });
    seen.count()
}

#[test]
fn a_clock_that_goes_back_frees_nothing_and_freezes_nothing() {
    for key in KEYS {
        let node = Inside::new(RULES, None);
        assert_eq!(admitted(&node, key), 3, "{key}");
        node.clock.set(START.get() - HOUR_US);
        assert_eq!(admitted(&node, key), 0, "{key}: the hour before is no fresh window");
        // By the time that it shows from then on, it is free again when a window has gone by.
        node.clock.advance(2 * 60_000_000);
        assert_eq!(admitted(&node, key), if key == "day" { 0 } else { 3 }, "{key}");
    }
}

#[test]
fn a_clock_that_goes_ahead_gives_one_window_at_most() {
    for key in KEYS {
        let node = Inside::new(RULES, None);
        assert_eq!(admitted(&node, key), 3, "{key}");
        node.clock.advance(HOUR_US);
        let ahead = admitted(&node, key);
        node.clock.set(START.get() + 1_000_000);
        assert!(ahead + admitted(&node, key) <= 3, "{key}: one window's worth, once");
    }
}

#[test]
fn a_period_that_has_ended_never_opens_again() {
    let node = Inside::new(RULES, None);
    assert_eq!(admitted(&node, "day"), 3);
    node.clock.advance(24 * HOUR_US);
    assert_eq!(admitted(&node, "day"), 3, "the next day");
    node.clock.set(START.get());
    assert_eq!(admitted(&node, "day"), 0, "yesterday is over");
    node.clock.advance(24 * HOUR_US);
    assert_eq!(admitted(&node, "day"), 0, "today is spent");
    node.clock.advance(24 * HOUR_US);
    assert_eq!(admitted(&node, "day"), 3);
}
