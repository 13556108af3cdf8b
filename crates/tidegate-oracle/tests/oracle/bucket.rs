//! Token bucket, GCRA, leaky bucket.

use super::check;

#[test]
fn ten_at_two_a_second() {
    for name in ["token_bucket", "gcra", "leaky_bucket"] {
        check(
            &format!(
                "limit {name} 2/1s burst=10
                 at 0s charge 10
                 at 0s charge 3
                 at 0s charge 11
                 at 499999us charge 1
                 at 500ms charge 1
                 at 5499999us peek
                 at 5500ms peek"
            ),
            &[
                "admitted remaining=0 reset=500ms reset_after=5s over=10 under=0",
                "rate_limited retry=1500ms reset=1500ms",
                "cost_exceeds_limit retry=- reset=1s",
                "rate_limited retry=1us",
                "admitted remaining=0 reset=500ms",
                "remaining=9 reset_after=1us",
                "remaining=10 reset_after=0s reset=0s",
            ],
        );
    }
}

#[test]
fn a_hundred_a_minute_refills_fifty_in_thirty_seconds() {
    check(
        "limit token_bucket 100/1m
         at 0s charge 100
         at 30s peek
         at 30s charge 51
         at 60s peek",
        &[
            "remaining=0 reset_after=1m",
            "remaining=50 reset_after=30s",
            "rate_limited retry=600ms",
            "remaining=100",
        ],
    );
}

#[test]
fn refunds_lower_the_level() {
    // 10 units less 0.5 s · 2/s = 9, given back 4; then 0.5 of a unit makes one, and the level is 0.
    check(
        "limit token_bucket 2/1s burst=10
         at 0s charge 10
         at 500ms refund 4 of #0
         at 2750ms refund 9
         at 2750ms refund 1",
        &["remaining=0", "remaining=5 applied=-4", "remaining=10 applied=-1", "applied=0"],
    );
}

#[test]
fn debt_is_bounded_and_remembered_until_empty() {
    check(
        "limit token_bucket 2/1s burst=10 charge=always
         at 0s charge 10
         at 0s charge 15
         at 0s charge 1
         at 5s peek
         at 9999999us peek
         at 10s peek",
        &[
            "admitted applied=10 forgiven=0 over=10 under=0",
            "cost_exceeds_limit applied=10 forgiven=5 retry=- reset=1s reset_after=10s under=2",
            "rate_limited applied=0 forgiven=1 retry=5500ms",
            "rate_limited remaining=0 retry=500ms under=2",
            "remaining=9 under=2",
            "remaining=10 under=0",
        ],
    );
}

#[test]
fn the_leak_since_the_last_write_runs_at_the_rate_now_in_force() {
    check(
        "limit token_bucket 10/10s
         at 0s charge 10
         at 5s peek
         limit token_bucket 4/10s
         at 5s peek
         at 5s charge 1
         limit token_bucket 10/10s
         at 5s peek",
        // Looked at with 4/10s the 10 units are at most 8, of which 2 have leaked.
        &["remaining=0", "remaining=5", "remaining=0", "rate_limited retry=7500ms", "remaining=5"],
    );
}

#[test]
fn a_large_limit_counts_in_coarser_ticks() {
    // (2^32 − 1) · 60 s is below 2^52 only in ticks of 100 µs.
    check(
        "limit token_bucket 3/1m
         at 0s charge 1
         at 7us charge 1
         limit token_bucket 4294967295/1m
         at 99us peek
         at 150us charge 4294967295
         limit token_bucket 3/1m
         at 110us peek",
        &[
            "remaining=2 reset_after=20s",
            // 120 000 000 − 21 unit·µs at 3 a µs.
            "remaining=1 reset_after=39999993us",
            "remaining=4294967293 at=0s reset_after=100us",
            "admitted at=100us",
            "at=110us remaining=0 retry=79999990us",
        ],
    );
}
