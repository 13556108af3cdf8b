//! Numbers worked out by hand, as they are usually given to explain these algorithms, as named vectors.
//!
//! Each is a script with words beside it that must stand in the answers.

use tidegate_oracle::Script;

use crate::subject;

/// Plays a script; each word expected of an answer must stand in it as the oracle's language prints it.
fn check(script: &str, expected: &[&str]) {
    let script: Script = script.parse().expect("a script");
    let mut answers = Vec::new();
    let Ok::<(), ()>(()) = subject::walk(&script, |step| {
        answers.push(subject::answer(&step.verdict).to_string());
        Ok(())
    }) else {
        unreachable!()
    };
    assert_eq!(answers.len(), expected.len(), "one expectation per operation");
    for (number, (answer, wanted)) in answers.iter().zip(expected).enumerate() {
        for word in wanted.split_whitespace() {
            assert!(
                answer.split_whitespace().any(|told| told == word),
                "#{number}: no `{word}` in `{answer}`"
            );
        }
    }
}

/// 80 in the last window, 40 in this one, 70 % through it: 40 + 80 × 0.30 = 64.
#[test]
fn two_windows_weigh_40_and_80_to_64() {
    check(
        "limit sliding_window_counter 100/1m
         at 600s charge 80
         at 660s charge 20
         at 690s charge 20
         at 702s peek",
        &["admitted", "admitted remaining=0", "admitted", "admitted remaining=36"],
    );
}

/// 84 in the last window, 36 in this one, 15 s in: 84 × 45/60 + 36 = 99. One more is admitted, the next refused.
#[test]
fn two_windows_weigh_84_and_36_to_99_and_admit_one_more() {
    check(
        "limit sliding_window_counter 100/1m
         at 600s charge 84
         at 675s charge 36
         at 675s charge 1
         at 675s charge 1",
        &["admitted", "admitted remaining=1", "admitted remaining=0", "rate_limited remaining=0"],
    );
}

/// Where `count < limit` on a fraction would be one unit laxer: 85 × 45/60 + 36 = 99.75 leaves no whole unit.
#[test]
fn an_estimate_of_99_75_leaves_no_whole_unit() {
    check(
        "limit sliding_window_counter 100/1m
         at 600s charge 85
         at 675s charge 36
         at 675s charge 1",
        &["admitted", "admitted remaining=0", "rate_limited"],
    );
}

/// A bucket of 10 that refills at 2/s: ten at once, two a second later, and full again after five.
#[test]
fn a_bucket_of_10_at_2_per_second() {
    for algorithm in ["token_bucket", "gcra", "leaky_bucket"] {
        check(
            &format!(
                "limit {algorithm} 2/1s burst=10
                 at 100s charge 10
                 at 100s charge 1
                 at 101s charge 1
                 at 101s charge 1
                 at 101s charge 1
                 at 106s peek
                 at 106s charge 10"
            ),
            &[
                "admitted remaining=0",
                "rate_limited retry=500ms",
                "admitted remaining=1",
                "admitted remaining=0",
                "rate_limited retry=500ms",
                "admitted remaining=10",
                "admitted remaining=0",
            ],
        );
    }
}

/// 100 a minute refill 50 in 30 s, and never more than the bucket holds.
#[test]
fn a_bucket_of_100_per_minute_refills_50_in_30_seconds() {
    check(
        "limit token_bucket 100/1m
         at 100s charge 100
         at 130s peek
         at 130s charge 51
         at 130s charge 50
         at 999s peek",
        &[
            "admitted remaining=0",
            "admitted remaining=50",
            "rate_limited retry=600ms",
            "admitted remaining=0",
            "remaining=100",
        ],
    );
}

/// 100 at the end of a minute and 100 at the start of the next: what each algorithm makes of 200 in two seconds.
#[test]
fn two_hundred_in_two_seconds_at_the_edge_of_a_window() {
    let at_the_edge = |limit: &str, expected: &[&str]| {
        check(&format!("limit {limit}\n at 659s charge 100\n at 661s charge 100\n at 661s peek"), expected);
    };
    // The flaw: both minutes are legal. The verdict says so itself: up to 100 over.
    at_the_edge("fixed_window 100/1m", &["admitted over=0", "admitted over=100", "rate_limited"]);
    // Everybody else refuses the second hundred whole.
    at_the_edge("sliding_log 100/1m", &["admitted", "rate_limited retry=58s", "rate_limited"]);
    at_the_edge("sliding_window 100/1m", &["admitted", "rate_limited retry=58s", "rate_limited"]);
    at_the_edge("sliding_window 100/1m strict", &["admitted", "rate_limited retry=58s", "rate_limited"]);
    at_the_edge("sub_window 100/1m k=60", &["admitted", "rate_limited", "rate_limited"]);
    // The two-window counter has let go of one already, a bucket of three.
    at_the_edge("sliding_window_counter 100/1m", &["admitted", "rate_limited", "admitted remaining=1"]);
    at_the_edge("token_bucket 100/1m", &["admitted", "rate_limited", "admitted remaining=3"]);
}

/// Reserve, then settle for what it cost: the rest is back at once.
#[test]
fn a_reservation_settled_for_less_gives_back_the_rest() {
    check(
        "limit sliding_window 1000/1m
         at 100s charge 800
         at 110s settle #0 as 300
         at 110s charge 700
         at 110s charge 1",
        &["remaining=200", "applied=-500 remaining=700", "admitted remaining=0", "rate_limited retry=50s"],
    );
}

/// Peek, then report what it cost: the budget closes once it is spent, and the debt is at most one limit.
#[test]
fn charge_always_closes_once_the_budget_is_spent() {
    check(
        "limit fixed_window 100/1m charge=always
         at 100s peek
         at 101s charge 90
         at 102s peek
         at 103s charge 500
         at 104s peek
         at 125s peek",
        &[
            "admitted remaining=100",
            "admitted remaining=10",
            "admitted remaining=10",
            "cost_exceeds_limit applied=110 forgiven=390 remaining=0 retry=-",
            "rate_limited retry=16s",
            "admitted remaining=100 over=200",
        ],
    );
}
