//! What is shown where nothing is carried out.

use tidegate_oracle::{Ask, Oracle, Receipt, Spec};

const SECOND: u64 = 1_000_000;

fn counter(limit: &str) -> Oracle {
    let spec: Spec = limit.parse().unwrap_or_else(|error| panic!("{limit}: {error}"));
    Oracle::new(&spec)
}

/// Shows an ask and compares it with the words expected; then makes sure that it left no trace.
#[track_caller]
fn shows(oracle: &mut Oracle, ask: Ask, at_s: u64, expected: &str) {
    let untouched = oracle.clone().ask(&Ask::Peek, at_s * SECOND);
    let shown = oracle.show(&ask, at_s * SECOND).to_string();
    let words: Vec<&str> = shown.split(' ').collect();
    for word in expected.split(' ') {
        assert!(words.contains(&word), "{ask:?} has no {word} in\n{shown}");
    }
    assert_eq!(oracle.clone().ask(&Ask::Peek, at_s * SECOND), untouched, "{ask:?} left a trace");
}

#[test]
fn a_charge_that_fits_shows_what_is_untouched() {
    let mut oracle = counter("fixed_window 10/1m");
    oracle.ask(&Ask::Charge { cost: 4 }, 10 * SECOND);
    shows(&mut oracle, Ask::Charge { cost: 6 }, 15, "admitted remaining=6 applied=0 retry=- reset=45s");
    shows(&mut oracle, Ask::Charge { cost: 7 }, 15, "rate_limited remaining=6 applied=0 retry=45s reset=45s");
    shows(&mut oracle, Ask::Charge { cost: 11 }, 15, "cost_exceeds_limit remaining=6 applied=0 retry=-");
    shows(&mut oracle, Ask::Peek, 15, "admitted remaining=6 applied=0");
}

#[test]
fn what_gives_back_passes_and_gives_nothing() {
    let mut oracle = counter("sliding_log 10/1m");
    let charged = oracle.ask(&Ask::Charge { cost: 10 }, 10 * SECOND);
    let receipt = Receipt { at_us: charged.at_us, units: 10 };
    shows(
        &mut oracle,
        Ask::Refund { units: 4, receipt: None },
        15,
        "admitted remaining=0 applied=0 reset=55s",
    );
    shows(&mut oracle, Ask::Settle { receipt, actual: 2 }, 15, "admitted remaining=0 applied=0");
    shows(&mut oracle, Ask::Settle { receipt, actual: 99 }, 15, "admitted remaining=0 applied=0 forgiven=0");
}

#[test]
fn what_is_charged_always_is_not_charged_where_it_is_shown() {
    let mut oracle = counter("token_bucket 10/1m charge=always");
    shows(&mut oracle, Ask::Charge { cost: 11 }, 15, "cost_exceeds_limit remaining=10 applied=0 forgiven=0");
}

#[test]
fn places_are_neither_taken_nor_prolonged() {
    let mut oracle = counter("concurrency 2 ttl=1m");
    shows(&mut oracle, Ask::Acquire { id: 1, cost: 2 }, 5, "admitted remaining=2 applied=0 reset=0s");
    shows(&mut oracle, Ask::Renew { id: 1 }, 5, "not_held remaining=2 applied=0");
    oracle.ask(&Ask::Acquire { id: 1, cost: 2 }, 10 * SECOND);
    // Held: it passes though nothing is left, and the wait for a place is what it was.
    shows(&mut oracle, Ask::Acquire { id: 1, cost: 2 }, 20, "admitted remaining=0 applied=0 reset=50s");
    shows(&mut oracle, Ask::Renew { id: 1 }, 30, "admitted remaining=0 applied=0 reset=40s");
    shows(&mut oracle, Ask::Release { id: 1 }, 30, "admitted remaining=0 applied=0 reset=40s");
    shows(&mut oracle, Ask::Acquire { id: 2, cost: 1 }, 30, "rate_limited remaining=0 retry=40s");
}

#[test]
fn a_broken_clock_stays_repaired() {
    let mut oracle = counter("sliding_log 2/1m");
    oracle.ask(&Ask::Charge { cost: 2 }, 86_400 * SECOND);
    let shown = oracle.show(&Ask::Charge { cost: 1 }, 3_600 * SECOND);
    assert_eq!(shown.retry_after_us, Some(60 * SECOND));
    let later = oracle.show(&Ask::Charge { cost: 1 }, 3_660 * SECOND);
    assert_eq!((later.remaining, later.at_us), (2, 3_660 * SECOND));
}
