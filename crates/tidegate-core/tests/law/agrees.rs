//! P1: the steps give the oracle's answers, on every number, whatever happens to the counter.

use proptest::prelude::*;
use tidegate_oracle::{self as oracle, Algorithm, Script};

use crate::subject::{self, Step};
use crate::traces::{self, EVERYTHING};

/// Fails with the script up to the first answer that differs, and both answers.
pub(crate) fn check(script: &Script) -> Result<(), TestCaseError> {
    let expected = oracle::run(script);
    subject::walk(script, |step: Step<'_>| {
        let got = subject::answer(&step.verdict);
        let expected = &expected[step.number];
        prop_assert_eq!(
            &got,
            expected,
            "operation #{} of this script:\n{}\n   steps: {}\n  oracle: {}\n   state: {:?}\n",
            step.number,
            script,
            got,
            expected,
            step.after
        );
        Ok(())
    })
}

macro_rules! agrees {
    ($($name:ident: $algorithm:ident,)*) => {
        proptest! {
            #![proptest_config(crate::traces::proof(1_500))]
            $(
                #[test]
                fn $name(script in traces::script(Algorithm::$algorithm, EVERYTHING)) {
                    check(&script)?;
                }
            )*
        }
    };
}

proptest! {
    #![proptest_config(crate::traces::proof(400))]

    #[test]
    fn p1_a_crowded_cell_log_agrees_with_the_oracle(script in traces::crowded_script()) {
        check(&script)?;
    }
}

agrees! {
    p1_fixed_window_agrees_with_the_oracle: FixedWindow,
    p1_sliding_log_agrees_with_the_oracle: SlidingLog,
    p1_two_window_counter_agrees_with_the_oracle: SlidingWindowCounter,
    p1_sub_windows_agree_with_the_oracle: SubWindow,
    p1_token_bucket_agrees_with_the_oracle: TokenBucket,
    p1_gcra_agrees_with_the_oracle: Gcra,
    p1_leaky_bucket_agrees_with_the_oracle: LeakyBucket,
    p1_cell_log_agrees_with_the_oracle: SlidingWindow,
    p1_concurrency_agrees_with_the_oracle: Concurrency,
    p1_calendar_agrees_with_the_oracle: Calendar,
}
