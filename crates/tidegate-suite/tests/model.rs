//! Who checks the model? Its counters are the oracle's, which has tests of its own; the rules of a request are worked out here by hand.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate_suite::{Model, Player, Said, Script};

/// Plays a script and compares what is said about each request: `yes` or `no`, then the remaining units of each take, in
/// brackets where the take itself did not pass.
fn check(script: &str, expected: &[&str]) {
    let script: Script = script.parse().unwrap_or_else(|error| panic!("{error}\n{script}"));
    let model = Model::new();
    let mut player = Player::new(&model, "");
    let mut told = Vec::new();
    for line in script.lines() {
        let Poll::Ready(said) = pin!(player.play(line)).poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("the model answers at once")
        };
        match said {
            Said::Decided(decided) => told.extend(decided.iter().map(|decided| {
                let remaining = decided.verdicts.iter().map(|verdict| match verdict.admitted() {
                    true => format!(" {}", verdict.remaining),
                    false => format!(" ({})", verdict.remaining),
                });
                let decision = if decided.admitted { "yes" } else { "no" };
                decision.to_owned() + &remaining.collect::<String>()
            })),
            Said::Inspected(Ok(seen)) => told.push(format!("used {}", seen.used)),
            _ => {}
        }
    }
    assert_eq!(told, expected, "\n{script}");
}

const LIMITS: &str = "\
limit a sliding_log 10/1m
limit b fixed_window 10/1m
limit full fixed_window 0/1m
limit always fixed_window 10/1m charge=always
limit p concurrency 2 ttl=1m
";

fn check_with_limits(lines: &str, expected: &[&str]) {
    check(&format!("{LIMITS}{lines}"), expected);
}

#[test]
fn a_refused_request_charges_nothing_and_shows_what_is_untouched() {
    check_with_limits(
        "at 0s: a charge 3, b charge 4
         at 0s: a charge 7, b charge 7
         at 0s: b charge 7, a charge 7
         at 0s: a charge 7, b charge 6",
        &["yes 7 6", "no 7 (6)", "no (6) 7", "yes 0 0"],
    );
}

#[test]
fn shadow_never_decides_and_is_charged_if_it_fits() {
    check_with_limits(
        "at 0s: a charge 1, shadow full charge 1, shadow b charge 2
         at 0s: shadow full charge 1
         at 0s: shadow a charge 1, full charge 1
         at 0s: shadow b charge 9
         inspect b at 0s",
        &["yes 9 (0) 8", "yes (0)", "no 9 (0)", "yes (8)", "used 2"],
    );
}

#[test]
fn of_a_quota_one_has_to_pass() {
    check_with_limits(
        "at 0s: quota full charge 1, quota a charge 1
         at 0s: quota a charge 1, quota b charge 1
         at 0s: quota full charge 1, quota full charge 1
         at 0s: quota full charge 1, a charge 1
         at 0s: quota a charge 1, full charge 1
         at 0s: quota full charge 1, shadow a charge 1",
        &["yes (0) 9", "yes 8 9", "no (0) (0)", "no (0) 8", "no 8 (0)", "no (0) 8"],
    );
}

#[test]
fn what_gives_back_is_applied_in_a_refused_request() {
    check_with_limits(
        "at 0s: a charge 9, p acquire 1 cost 2
         at 0s: a refund 4, p release 1, full charge 1
         at 0s: a settle #0 as 7, full charge 1
         at 0s: a settle #0 as 10, full peek
         inspect a at 0s
         inspect p at 0s",
        // 9 − 4 = 5; 7 instead of 9 gives 2 back: 3; 10 instead of 9 charges 1: 4.
        &["yes 1 0", "no 5 2 (0)", "no 7 (0)", "no 6 (0)", "used 4", "used 0"],
    );
}

#[test]
fn what_is_charged_always_is_charged_in_a_refused_request() {
    check_with_limits(
        "at 0s: always charge 4, full charge 1
         at 0s: always charge 7, a charge 1
         at 0s: shadow always charge 20, a charge 1
         inspect always at 0s
         inspect a at 0s",
        // 4; 11, which does not fit; 20, the largest debt.
        &["no 6 (0)", "no (0) 10", "yes (0) 9", "used 20", "used 1"],
    );
}

#[test]
fn takes_on_one_counter_see_each_other() {
    check_with_limits(
        "at 0s: a charge 6, a charge 4
         at 1m: a charge 6, a charge 5
         at 1m: a charge 6, shadow a charge 5, a charge 4
         at 1m: a refund 4, a charge 4, full peek",
        // The second is told what the first would have left; in the refused request the refund stays, the charge is shown.
        &["yes 4 0", "no 10 (4)", "yes 4 (4) 0", "no 4 4 (0)"],
    );
}

#[test]
fn places_of_a_refused_request_are_not_taken() {
    check_with_limits(
        "at 0s: p acquire 1 cost 1, p renew 1, full charge 1
         at 0s: p renew 1
         at 0s: p acquire 1 cost 2, p acquire 1 cost 1
         at 30s: p renew 1, full peek
         at 1m: p renew 1",
        // Shown without the place, a renewal finds nothing to renew; one in a refused request prolongs nothing.
        &["no 2 (2) (0)", "no (2)", "yes 0 0", "no 0 (0)", "no (2)"],
    );
}

#[test]
fn requests_of_a_batch_are_judged_in_order() {
    check_with_limits(
        "at 0s: a charge 6 | a charge 6, b charge 1 | - | a charge 4 | b peek",
        &["yes 4", "no (4) 10", "yes", "yes 0", "yes 10"],
    );
}

#[test]
fn a_refusal_repairs_a_broken_clock_for_good() {
    check(
        "limit a sliding_log 2/1m
         at 1d: a charge 2
         at 1h: a charge 1
         at 3659s: a peek
         at 3660s: a peek",
        // The refusal at 1 h told a wait of a minute, and that is what it takes.
        &["yes 0", "no (0)", "no (0)", "yes 2"],
    );
}
