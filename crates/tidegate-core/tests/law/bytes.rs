//! P15: a state survives its portable form; what cannot be read is refused, and what can be read cannot hurt.

use proptest::prelude::*;
use tidegate_core::{Ask, FORMS, Limit, Micros, PORTABLE_VERSION, PortableError, State};
use tidegate_oracle::Algorithm;

use crate::subject;
use crate::traces::{self, EVERYTHING};

/// Whatever was read, every ask can be answered on it, at any time.
fn stays_safe(limit: &Limit, state: &State, now: Micros) {
    for now in [now, Micros::ZERO, Micros::MAX, now.plus(Micros::from_secs(60))] {
        let mut state = state.clone();
        for cost in [1, 20, u64::MAX] {
            let verdict = limit.step(&mut state, Ask::Charge { cost }, now);
            limit.step(&mut state, Ask::Refund { units: cost, receipt: verdict.receipt() }, now);
        }
        limit.step(&mut state, Ask::Refund { units: 3, receipt: None }, now);
        limit.step(&mut state, Ask::Acquire { id: 7, cost: 1 }, now);
        limit.keep_for(&mut state, now);
        let read = limit.from_portable(&state.to_portable());
        assert_eq!(read.as_ref(), Ok(&state), "steps leave a state that can be read");
    }
}

proptest! {
    #![proptest_config(crate::traces::proof(2_000))]

    #[test]
    fn p15_a_state_is_the_same_after_a_journey_as_bytes(script in traces::any_script(EVERYTHING)) {
        subject::walk(&script, |step| {
            let bytes = step.after.to_portable();
            let read = step.limit.from_portable(&bytes);
            prop_assert_eq!(read.as_ref(), Ok(&*step.after), "{}", script);
            prop_assert_eq!(bytes.first(), Some(&(PORTABLE_VERSION << 4 | step.limit.form().code)));
            prop_assert!(bytes.len() <= step.limit.form().bytes_max());
            Ok(())
        })?;
    }

    #[test]
    fn p15_other_versions_and_forms_are_refused(script in traces::any_script(EVERYTHING), tag in any::<u8>()) {
        subject::walk(&script, |step| {
            let mut bytes = step.after.to_portable();
            let own = bytes[0];
            bytes[0] = tag;
            let expected = match (tag >> 4, tag & 0x0f) {
                _ if tag == own => Ok(step.after.clone()),
                (version, _) if version != PORTABLE_VERSION => Err(PortableError::UnknownVersion { found: version }),
                (_, found) => Err(PortableError::WrongForm { found, expected: step.limit.form().code }),
            };
            prop_assert_eq!(step.limit.from_portable(&bytes), expected);
            Ok(())
        })?;
    }

    #[test]
    fn p15_cut_bytes_are_refused(script in traces::any_script(EVERYTHING), cut in any::<prop::sample::Index>()) {
        subject::walk(&script, |step| {
            let bytes = step.after.to_portable();
            let cut = &bytes[..cut.index(bytes.len())];
            prop_assert!(step.limit.from_portable(cut).is_err(), "{} of {} bytes were taken for a state", cut.len(), bytes.len());
            Ok(())
        })?;
    }

    #[test]
    fn p15_damaged_bytes_are_refused_or_harmless(
        script in traces::any_script(EVERYTHING),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        subject::walk(&script, |step| {
            let mut bytes = step.after.to_portable();
            let len = bytes.len();
            damage.iter().for_each(|(at, byte)| bytes[at.index(len)] = *byte);
            if let Ok(state) = step.limit.from_portable(&bytes) {
                stays_safe(step.limit, &state, step.now);
            }
            Ok::<(), TestCaseError>(())
        })?;
    }

    #[test]
    fn p15_foreign_bytes_are_refused_or_harmless(
        script in traces::any_script(EVERYTHING),
        form in 1..7_u8,
        foreign in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        subject::walk(&script, |step| {
            let mut bytes = vec![PORTABLE_VERSION << 4 | form];
            bytes.extend(&foreign);
            if let Ok(state) = step.limit.from_portable(&bytes) {
                stays_safe(step.limit, &state, step.now);
            }
            Ok::<(), TestCaseError>(())
        })?;
    }

    #[test]
    fn p16_a_store_keeps_a_state_at_least_until_it_is_reset(script in traces::any_script(EVERYTHING)) {
        subject::walk(&script, |step| {
            let kept = step.limit.keep_for(step.after, step.now);
            prop_assert!(kept >= step.verdict.reset_after.plus(Micros::from_secs(5)));
            // Long enough that forgetting it afterwards changes no answer, the bound included.
            let later = step.now.plus(kept);
            let remembered = step.limit.step(&mut step.after.clone(), Ask::Peek, later);
            let forgotten = step.limit.step(&mut step.limit.state(), Ask::Peek, later);
            let closed_bucket = step.spec.amount == 0 && step.spec.algorithm.is_bucket();
            prop_assert!(remembered == forgotten || closed_bucket, "{remembered:?}\n{forgotten:?}\n{script}");
            Ok(())
        })?;
    }
}

#[test]
fn every_form_has_its_own_code_and_every_algorithm_its_form() {
    for (index, form) in FORMS.iter().enumerate() {
        assert_eq!(usize::from(form.code), index + 1);
    }
    for algorithm in Algorithm::ALL {
        let named =
            FORMS.iter().filter(|form| form.algorithms.split(", ").any(|name| name == algorithm.name()));
        assert_eq!(named.count(), 1, "{} is in one form", algorithm.name());
    }
}

#[test]
fn an_empty_state_and_a_missing_one_are_told_apart() {
    let limit = Limit::fixed_window(10, Micros::from_secs(1)).expect("a limit");
    assert_eq!(limit.from_portable(&[]), Err(PortableError::Empty));
    assert_eq!(limit.from_portable(&limit.state().to_portable()), Ok(limit.state()));
}

/// The bytes are a promise to every store that holds some: a change of layout is a change of version.
#[test]
fn the_layouts_do_not_change_unnoticed() {
    let hex = |limit: Limit| {
        let mut state = limit.state();
        let now = Micros::new(0x0001_0203_0405_0600);
        limit.step(&mut state, Ask::Acquire { id: 0xAABB, cost: 2 }, now);
        limit.step(&mut state, Ask::Acquire { id: 0xCCDD, cost: 1 }, now.plus(Micros::from_millis(1)));
        state.to_portable().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let minute = Micros::from_secs(60);
    let got = [
        hex(Limit::fixed_window(10, minute).expect("a limit")),
        hex(Limit::sub_window(10, minute, Some(3), true).expect("a limit")),
        hex(Limit::token_bucket(10, minute, None).expect("a limit")),
        hex(Limit::sliding_window(100, minute).expect("a limit")),
        hex(Limit::sliding_log(10, minute).expect("a limit")),
        hex(Limit::concurrency(10, minute).expect("a limit")),
    ];
    let expected = [
        "11332548000000000300000000000000",
        "119b6fd80000000003000000000000000000000000000000",
        "1200f06dba0a000000e8090504030201",
        "1300e8090504030201030000000000060504e809050403000000",
        "14e8090504030201030000000006050403020102000000e809050403020101000000",
        "15e809050403020103000000bbaa000000000000008d980703020102000000ddcc000000000000e890980703020101000000",
    ];
    assert_eq!(got, expected);
}
