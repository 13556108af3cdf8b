//! The rules that all algorithms share.

use super::check;
use tidegate_oracle::{Script, run};

#[test]
fn a_limit_of_nothing_refuses_without_a_time_to_retry() {
    check(
        "limit fixed_window 0/1m charge=always
         at 10s charge 3
         at 10s peek
         at 10s refund 1",
        &[
            "rate_limited remaining=0 retry=- reset=50s applied=0 forgiven=3",
            "rate_limited retry=- reset=50s",
            "admitted remaining=0 reset=50s applied=0",
        ],
    );
    check(
        "limit token_bucket 0/1m burst=9
         at 10s charge 1
         at 10s settle #0 as 4",
        &["rate_limited retry=- reset=1m over=0 under=0", "admitted applied=0 forgiven=4 reset=1m"],
    );
}

#[test]
fn charges_that_must_count_make_a_debt_of_one_limit() {
    check(
        "limit sliding_log 10/1m charge=always
         at 0s charge 8
         at 1s charge 7
         at 2s charge 7
         at 3s charge 1",
        &[
            "admitted applied=8 remaining=2",
            "rate_limited applied=7 remaining=0 retry=1m",
            "rate_limited applied=5 forgiven=2 retry=1m",
            "rate_limited applied=0 forgiven=1 retry=58s",
        ],
    );
}

#[test]
fn settlements_apply_the_difference() {
    check(
        "limit sliding_log 10/1m
         at 0s charge 8
         at 10s settle #0 as 5
         at 20s charge 6
         at 30s settle #2 as 25
         at 31s settle #2 as 6
         at 32s settle #9 as 1",
        &[
            "remaining=2",
            "admitted remaining=5 applied=-3",
            "rate_limited applied=0",
            // The refused charge has no receipt, so all 25 are charged as far as the debt allows.
            "admitted remaining=0 applied=15 forgiven=10 reset=1m",
            "admitted applied=0 forgiven=6",
            "admitted applied=0 forgiven=1",
        ],
    );
}

#[test]
fn a_refund_that_names_no_charge_is_blind() {
    check(
        "limit sliding_log 10/1m
         at 0s charge 4
         at 1s refund 1 of #1
         at 2s refund 1 of #1
         at 3s refund 1 of #7",
        &["remaining=6", "applied=-1", "applied=-1", "applied=-1 remaining=9"],
    );
}

#[test]
fn places_of_other_limits_are_plain_charges() {
    check(
        "limit fixed_window 10/1m
         at 0s acquire 1 cost 4
         at 0s acquire 1 cost 4
         at 0s renew 1
         at 0s release 1",
        &["applied=4", "applied=4 remaining=2", "admitted applied=0", "admitted applied=0 remaining=2"],
    );
}

#[test]
fn a_changed_limit_keeps_what_was_used() {
    for algorithm in
        ["fixed_window", "sliding_log", "sliding_window_counter", "sub_window", "sliding_window", "gcra"]
    {
        check(
            &format!(
                "limit {algorithm} 10/1m
                 at 0s charge 8
                 limit {algorithm} 5/1m
                 at 0s charge 1
                 limit {algorithm} 20/1m
                 at 0s charge 12
                 at 0s peek"
            ),
            &["remaining=2", "rate_limited remaining=0", "admitted remaining=0", "rate_limited"],
        );
    }
}

#[test]
#[should_panic(expected = "no tick up to 1 s suits the limit gcra 4294967295/366d")]
fn a_limit_without_a_tick_is_not_counted() {
    let script: Script = "limit gcra 4294967295/366d".parse().expect("a script");
    run(&script);
}

#[test]
#[should_panic(expected = "count in different ways")]
fn a_counter_keeps_its_window() {
    let script: Script = "limit gcra 1/1m\nlimit gcra 1/2m".parse().expect("a script");
    run(&script);
}
