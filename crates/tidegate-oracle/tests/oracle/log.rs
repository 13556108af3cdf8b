//! Sliding log.

use super::check;

#[test]
fn a_charge_counts_for_exactly_one_window() {
    check(
        "limit sliding_log 10/1m
         at 5s charge 6
         at 20s charge 4
         at 30s charge 7
         at 30s charge 3
         at 64999999us peek
         at 65s charge 6",
        &[
            "remaining=4 reset=1m reset_after=1m",
            "remaining=0 reset=45s reset_after=1m over=0 under=0",
            "rate_limited retry=50s reset=50s",
            "rate_limited retry=35s",
            "rate_limited retry=1us",
            "admitted remaining=0",
        ],
    );
}

#[test]
fn refunds_go_to_the_charge_or_to_the_newest() {
    check(
        "limit sliding_log 10/1m
         at 5s charge 6
         at 20s charge 4
         at 21s refund 2 of #0
         at 22s refund 5
         at 70s peek
         at 70s refund 1 of #0",
        &[
            "remaining=4",
            "remaining=0",
            "remaining=2 applied=-2",
            "remaining=7 applied=-5 reset_after=43s",
            "remaining=10",
            "remaining=10 applied=0",
        ],
    );
}

#[test]
fn a_refund_never_gives_more_than_its_receipt() {
    check(
        "limit sliding_log 10/1m
         at 5s charge 3
         at 5s charge 4
         at 6s refund 9 of #0
         at 6s refund 9 of #0
         at 6s refund 9 of #0",
        &["remaining=7", "remaining=3", "applied=-3", "applied=-3", "applied=-1"],
    );
}
