//! P6: the bound that a verdict states holds against an exact window of the counter's own net charges.

use proptest::prelude::*;
use tidegate_core::{Ask, Micros};
use tidegate_oracle::{Algorithm, Oracle, Script};

use crate::subject::{self, Step};
use crate::traces::{self, EVERYTHING, Mix};

/// Checks each verdict's bound against the oracle's exact window.
pub(crate) fn check(script: &Script) -> Result<(), TestCaseError> {
    let mut oracle: Option<(Oracle, tidegate_oracle::Spec)> = None;
    let mut constant_since = Micros::ZERO;
    subject::walk(script, |step: Step<'_>| {
        let (oracle, spec) = oracle.get_or_insert_with(|| (Oracle::new(step.spec), step.spec.clone()));
        if spec != step.spec {
            oracle.change(step.spec);
            *spec = step.spec.clone();
            constant_since = step.verdict.at;
        }
        constant_since = constant_since.min(step.verdict.at); // A repair moves the counter's time back.
        oracle.ask(&step.asked, step.now.get());
        let exact = matches!(step.spec.algorithm, Algorithm::Calendar | Algorithm::Concurrency);
        let truth = oracle.used_exactly(step.now.get());
        let estimate = step.limit.used(step.after, step.now);
        let (verdict, bound) = (&step.verdict, step.verdict.bound);
        let (over, under) = (u64::from(bound.over), u64::from(bound.under));
        let told = format!(
            "operation #{} of\n{script}\nestimate {estimate}, truth {truth}, over {over}, under {under}; {verdict:?}",
            step.number
        );
        if step.spec.algorithm.is_bucket() {
            // A bucket's contract is its own; it speaks of windows once its rate has been the same for one.
            if verdict.at.minus(constant_since) < step.limit.window().unwrap_or_default() {
                return Ok(());
            }
        } else {
            prop_assert!(truth <= estimate + over, "more than the estimate and its bound: {}", told);
            prop_assert!(truth + under >= estimate, "less than the estimate and its bound: {}", told);
        }
        let Ask::Charge { cost: cost @ 1.. } = step.ask else { return Ok(()) };
        if verdict.admitted() {
            prop_assert!(truth <= step.spec.amount + over || exact, "admitted too much: {}", told);
        } else if step.spec.amount > 0 {
            let before = truth - verdict.applied.unsigned_abs();
            let asked = u128::from(before) + u128::from(cost);
            prop_assert!(
                asked + u128::from(under) > u128::from(step.spec.amount),
                "refused too early: {}",
                told
            );
        }
        Ok(())
    })
}

/// Only charges on a steady clock under one limit: here the bound can be counted without any model.
const PLAIN: Mix = Mix { jumps: false, changes: false, refunds: false, always: false };

proptest! {
    #![proptest_config(crate::traces::proof(1_500))]

    #[test]
    fn p6_the_stated_bound_holds_whatever_happens(script in traces::any_script(EVERYTHING)) {
        check(&script)?;
    }

    #[test]
    fn p6_the_stated_bound_of_a_crowded_cell_log_holds(script in traces::crowded_script()) {
        check(&script)?;
    }

    #[test]
    fn p6_no_window_holds_more_than_the_limit_and_its_bound(script in traces::any_script(PLAIN)) {
        let mut charged: Vec<(u64, u64)> = Vec::new();
        subject::walk(&script, |step| {
            let Some(window) = step.limit.window().filter(|_| step.spec.algorithm != Algorithm::Concurrency) else { return Ok(()) };
            if let Some(receipt) = step.verdict.receipt() {
                charged.push((receipt.at.get(), receipt.units));
            }
            let start = step.verdict.at.get() - window.get();
            let inside: u64 = charged.iter().filter(|(at, _)| *at > start).map(|(_, units)| units).sum();
            let most = step.spec.amount + u64::from(step.limit.bound_max().over);
            prop_assert!(inside <= most, "{inside} in a window of at most {most}:\n{script}");
            let (bound, worst) = (step.verdict.bound, step.limit.bound_max());
            prop_assert!(bound.over <= worst.over && bound.under <= worst.under, "{bound:?} is worse than {worst:?}:\n{script}");
            Ok(())
        })?;
    }

    #[test]
    fn p6_a_refund_adds_one_unit_to_the_bound_of_the_cell_log(
        script in traces::script(Algorithm::SlidingWindow, Mix { jumps: true, changes: false, refunds: true, always: false }),
    ) {
        subject::walk(&script, |step| {
            let (bound, worst) = (step.verdict.bound, step.limit.bound_max());
            let within = bound.over <= worst.over + 1 && bound.under <= worst.under + 1;
            prop_assert!(within, "{bound:?} against {worst:?}:\n{script}");
            Ok(())
        })?;
    }
}
