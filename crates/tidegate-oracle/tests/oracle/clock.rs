//! Clocks that jump back.

use super::check;

#[test]
fn a_small_jump_is_waited_out_and_a_large_one_repaired() {
    check(
        "limit sliding_log 10/10s
         at 100s charge 10
         at 95s charge 1
         at 90s charge 1
         at 89s charge 1
         at 90s charge 1",
        &[
            "at=100s",
            "rate_limited at=100s retry=15s reset_after=15s",
            "rate_limited at=100s retry=20s",
            "rate_limited at=89s retry=10s",
            "rate_limited at=90s retry=9s",
        ],
    );
}

#[test]
fn short_windows_tolerate_five_seconds() {
    check(
        "limit sliding_window 10/1s
         at 100s charge 10
         at 95s peek
         at 94999999us peek",
        &["at=100s", "at=100s retry=6s", "at=94999999us retry=1s"],
    );
}

#[test]
fn windows_move_back_whole() {
    check(
        "limit fixed_window 10/10s
         at 105s charge 4
         at 103s charge 1
         at 91s charge 1
         at 85s peek
         at 89s charge 1
         at 90s peek",
        &[
            "remaining=6 at=105s reset=5s",
            "remaining=5 at=103s",
            "remaining=4 at=100s reset=19s",
            "remaining=4 at=85s reset=5s",
            "remaining=3 at=89s reset=1s",
            "remaining=10 at=90s over=7",
        ],
    );
    check(
        "limit sub_window 10/10s k=5
         at 101s charge 4
         at 105s charge 2
         at 94s peek
         at 89s peek
         at 95s peek",
        // Parts of 2 s: the newest begins at 104 s and becomes the next to begin, at 90 s; the older becomes the one at 86 s.
        &["remaining=6", "remaining=4", "at=104s remaining=4", "at=90s remaining=4", "at=95s remaining=4"],
    );
}

#[test]
fn a_bucket_stops_leaking_until_the_clock_has_caught_up() {
    check(
        "limit token_bucket 1/1s burst=10
         at 100s charge 10
         at 98s charge 1
         at 101s charge 1
         at 50s peek
         at 51s peek",
        &[
            "remaining=0",
            "rate_limited at=100s retry=3s",
            "admitted",
            "at=50s retry=1s",
            "admitted at=51s remaining=1",
        ],
    );
}

#[test]
fn places_move_back_with_the_clock() {
    check(
        "limit concurrency 1 ttl=10s
         at 100s acquire 1 cost 1
         at 95s acquire 2 cost 1
         at 50s acquire 2 cost 1
         at 55s renew 1",
        &[
            "admitted",
            "rate_limited at=100s retry=15s",
            "rate_limited at=50s retry=10s",
            "admitted reset_after=10s",
        ],
    );
}
