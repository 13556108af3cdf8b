//! One property per promise, each on traces that mix everything that can happen to one counter.

use proptest::prelude::*;
use tidegate_core::{Ask, Charge, Limit, Micros, Outcome, State, Verdict};
use tidegate_oracle::{Algorithm, Script};

use crate::subject::{self, Step};
use crate::traces::{self, EVERYTHING};

/// Runs a property on every operation of a script; a failure shows the script.
fn on_each(
    script: &Script,
    mut holds: impl FnMut(Step<'_>) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    subject::walk(script, |step| {
        let number = step.number;
        holds(step).map_err(|error| TestCaseError::fail(format!("operation #{number} of\n{script}\n{error}")))
    })
}

/// What a step on a copy of the state would say.
fn try_on(limit: &Limit, state: &State, ask: Ask, now: Micros) -> Verdict {
    limit.step(&mut state.clone(), ask, now)
}

fn used(limit: &Limit, state: &State, now: Micros) -> u64 {
    limit.used(&mut state.clone(), now)
}

/// The state with nothing done to it but the repair of a broken clock's times.
fn repaired(limit: &Limit, state: &State, now: Micros) -> State {
    let mut state = state.clone();
    limit.used(&mut state, now);
    state
}

fn capacity(step: &Step<'_>) -> u64 {
    let burst = if step.spec.algorithm.is_bucket() { step.spec.burst } else { None };
    if step.spec.amount == 0 { 0 } else { burst.unwrap_or(step.spec.amount) }
}

/// What asks the same thing again: a place that is held would only be renewed.
fn is_held_again(step: &Step<'_>) -> bool {
    step.spec.algorithm == Algorithm::Concurrency && matches!(step.ask, Ask::Renew { .. })
}

proptest! {
    #![proptest_config(crate::traces::proof(3_000))]

    #[test]
    fn p3_remaining_is_the_largest_cost_that_fits_at_the_same_instant(script in traces::any_script(EVERYTHING)) {
        on_each(&script, |step| {
            let remaining = u64::from(step.verdict.remaining);
            let fits = |cost| try_on(step.limit, step.after, Ask::Charge { cost }, step.now).admitted();
            prop_assert!(remaining == 0 || fits(remaining), "remaining {remaining} does not fit");
            prop_assert!(!fits(remaining + 1), "one more than remaining {remaining} fits");
            prop_assert_eq!(try_on(step.limit, step.after, Ask::Peek, step.now).admitted(), remaining > 0, "a peek");
            prop_assert!(remaining <= capacity(&step));
            Ok(())
        })?;
    }

    #[test]
    fn p4_retry_after_is_the_least_wait_that_cures(script in traces::any_script(EVERYTHING)) {
        on_each(&script, |step| {
            let tick = Micros::new(step.limit.tick().us());
            let passes_in = |wait: Micros| try_on(step.limit, step.after, step.ask, step.now.plus(wait)).admitted();
            match step.verdict.retry_after {
                Some(wait) => {
                    prop_assert!(!step.verdict.admitted());
                    prop_assert!(passes_in(wait), "refused after waiting {wait}");
                    prop_assert!(wait >= tick, "a refusal that no wait cures");
                    prop_assert!(!passes_in(wait.minus(tick)), "passes before {wait}");
                }
                None if step.verdict.admitted() || is_held_again(&step) => {}
                None => {
                    for wait in [tick, Micros::from_secs(5), Micros::from_secs(1_000 * 86_400)] {
                        prop_assert!(!passes_in(wait), "no wait was named, but {wait} cures");
                    }
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn p4_reset_after_is_the_least_wait_to_an_untouched_counter(script in traces::any_script(EVERYTHING)) {
        on_each(&script, |step| {
            if step.spec.amount == 0 {
                return Ok(()); // A closed bucket never leaks, and says a window.
            }
            let tick = Micros::new(step.limit.tick().us());
            let (wait, now) = (step.verdict.reset_after, step.now);
            prop_assert_eq!(used(step.limit, step.after, now.plus(wait)), 0, "something left after {}", wait);
            if wait > Micros::ZERO {
                prop_assert!(used(step.limit, step.after, now.plus(wait.minus(tick))) > 0, "untouched before {wait}");
            }
            Ok(())
        })?;
    }

    #[test]
    fn p4_the_reset_shown_follows_the_one_rule(script in traces::any_script(EVERYTHING)) {
        on_each(&script, |step| {
            let tick = Micros::new(step.limit.tick().us());
            let verdict = &step.verdict;
            let room_in = |wait: Micros| try_on(step.limit, step.after, Ask::Peek, step.now.plus(wait)).admitted();
            let aligned = matches!(step.spec.algorithm, Algorithm::FixedWindow | Algorithm::Calendar);
            if let Some(wait) = verdict.retry_after {
                prop_assert_eq!(verdict.reset, wait);
            } else if verdict.admitted() && verdict.remaining == 0 && step.spec.amount > 0 {
                prop_assert!(room_in(verdict.reset) && !room_in(verdict.reset.minus(tick)), "not the wait for one unit");
            } else if verdict.admitted() && verdict.remaining > 0 && !aligned {
                prop_assert_eq!(verdict.reset, verdict.reset_after);
            } else if !aligned && !verdict.admitted() && verdict.outcome != Outcome::NotHeld {
                prop_assert_eq!(Some(verdict.reset), step.limit.window());
            }
            Ok(())
        })?;
    }

    #[test]
    fn p5_p9_what_is_used_never_grows_with_the_clock_alone(
        script in traces::any_script(EVERYTHING),
        earlier in 0..40_000_000_000_000_u64,
        later in 0..40_000_000_000_000_u64,
        shrink in 0..40_u32,
    ) {
        // Also backwards: a clock that is set back, by however much, never frees anything.
        let (earlier, later) = (Micros::new(earlier >> shrink), Micros::new(later >> shrink));
        on_each(&script, |step| {
            let at = |now: Micros| used(step.limit, step.after, now);
            let now = at(step.now);
            prop_assert!(at(step.now.minus(earlier)) >= now, "less is used {earlier} earlier");
            prop_assert!(at(step.now.plus(later)) <= now, "more is used {later} later");
            Ok(())
        })?;
    }

    #[test]
    fn p7_a_refusal_and_a_peek_leave_no_trace(script in traces::any_script(EVERYTHING)) {
        on_each(&script, |step| {
            let charged = step.limit.charge() == Charge::Always && matches!(step.ask, Ask::Charge { .. } | Ask::Acquire { .. });
            let refused = !step.verdict.admitted() && !charged;
            if refused || step.ask == Ask::Peek {
                prop_assert_eq!(&*step.after, &repaired(step.limit, &step.before, step.now));
                prop_assert_eq!((step.verdict.applied, step.verdict.forgiven), (0, 0));
            }
            Ok(())
        })?;
    }

    #[test]
    fn p7_showing_a_verdict_charges_nothing_and_foretells_the_step(script in traces::any_script(EVERYTHING)) {
        on_each(&script, |step| {
            let mut shown = step.before.clone();
            let verdict = step.limit.show(&mut shown, step.ask, step.now);
            prop_assert_eq!(&shown, &repaired(step.limit, &step.before, step.now));
            prop_assert_eq!(verdict.outcome, step.verdict.outcome);
            prop_assert_eq!(verdict.applied, 0);
            Ok(())
        })?;
    }

    #[test]
    fn p8_a_refund_right_after_a_charge_restores_the_counts(
        script in traces::any_script(EVERYTHING),
        cost in 1..30_u64,
        blind in any::<bool>(),
    ) {
        on_each(&script, |step| {
            let mut state = step.after.clone();
            let before = used(step.limit, &state, step.now);
            let charge = step.limit.step(&mut state, Ask::Charge { cost }, step.now);
            if step.spec.algorithm == Algorithm::Concurrency || !charge.admitted() {
                return Ok(());
            }
            let receipt = charge.receipt().filter(|_| !blind);
            let refund = step.limit.step(&mut state, Ask::Refund { units: cost, receipt }, step.now);
            prop_assert_eq!(refund.applied, -(cost as i64));
            prop_assert_eq!(used(step.limit, &state, step.now), before);
            Ok(())
        })?;
    }

    #[test]
    fn p10_a_changed_limit_keeps_what_was_used(script in traces::any_script(EVERYTHING), amount in 1..2_000_u64) {
        on_each(&script, |step| {
            let mut spec = step.spec.clone();
            (spec.amount, spec.burst) = (amount, None);
            let (Ok(changed), mut state) = (subject::limit(&spec), step.after.clone()) else { return Ok(()) };
            // At the instant of the last write, so that no bucket has leaked at either rate.
            let now = step.verdict.at;
            let before = used(step.limit, &state, now);
            let verdict = changed.show(&mut state, Ask::Peek, now);
            let after = used(&changed, &state, now);
            let written = matches!(step.verdict.applied, 1..);
            let same_tick = changed.tick() == step.limit.tick();
            if same_tick && (!step.spec.algorithm.is_bucket() || written && before <= 2 * amount) {
                prop_assert_eq!(after, before);
                prop_assert_eq!(u64::from(verdict.remaining), amount.saturating_sub(before));
            }
            // And nothing was lost by looking with other eyes.
            prop_assert_eq!(used(step.limit, &state, now), before);
            Ok(())
        })?;
    }

    #[test]
    fn p11_a_cost_is_as_many_units_at_the_same_instant(script in traces::any_script(EVERYTHING), cost in 2..40_u64) {
        on_each(&script, |step| {
            if step.spec.algorithm == Algorithm::Concurrency || step.limit.charge() == Charge::Always {
                return Ok(()); // Places taken one by one are several places; forced units are no question of all or none.
            }
            let (mut at_once, mut one_by_one) = (step.after.clone(), step.after.clone());
            let verdict = step.limit.step(&mut at_once, Ask::Charge { cost }, step.now);
            let mut admitted = 0;
            for _ in 0..cost {
                admitted += u64::from(step.limit.step(&mut one_by_one, Ask::Charge { cost: 1 }, step.now).admitted());
            }
            prop_assert_eq!(verdict.admitted(), admitted == cost, "{} of {} were admitted one by one", admitted, cost);
            if verdict.admitted() {
                prop_assert_eq!(at_once, one_by_one);
            }
            Ok(())
        })?;
    }

    #[test]
    fn p17_counters_do_not_know_of_each_other(
        first in traces::any_script(EVERYTHING),
        second in traces::any_script(EVERYTHING),
        turns in prop::collection::vec(any::<bool>(), 120),
    ) {
        let mut scripts = [steps_of(&first), steps_of(&second)].map(|steps| {
            let state = steps.first().map(|(limit, ..)| limit.state());
            (steps.into_iter(), state)
        });
        for turn in turns {
            let (steps, state) = &mut scripts[usize::from(turn)];
            if let (Some((limit, ask, now, alone)), Some(state)) = (steps.next(), state) {
                prop_assert_eq!(limit.step(state, ask, now), alone, "asked in turns");
            }
        }
    }
}

/// What was asked of a counter that was alone, and what it said.
fn steps_of(script: &Script) -> Vec<(Limit, Ask, Micros, Verdict)> {
    let mut steps = Vec::new();
    let Ok::<(), ()>(()) = subject::walk(script, |step| {
        steps.push((step.limit.clone(), step.ask, step.now, step.verdict));
        Ok(())
    }) else {
        unreachable!()
    };
    steps
}
