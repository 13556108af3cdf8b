//! A state that was packed or written as words is the state that comes back, and lives as long as a store has to keep it.

use proptest::prelude::*;
use tidegate_core::{Ask, Class, Era, Limit, Micros, State};

use crate::subject;
use crate::traces::{self, EVERYTHING};

fn around(now: Micros) -> Era {
    Era { reference: now, next: now }
}

/// As words and back, into room that held something else.
fn through_words(class: Class, state: &State) -> State {
    let mut words = vec![0; state.words()];
    state.write_words(|at, word| words[at] = word);
    let mut back = State::default();
    class.read_words(&mut back, |at| words[at]);
    class.read_words(&mut back, |at| words[at]);
    back
}

proptest! {
    #![proptest_config(crate::traces::proof(1_000))]

    #[test]
    fn what_is_packed_comes_back(script in traces::any_script(EVERYTHING)) {
        subject::walk(&script, |step| {
            let (class, now) = (step.limit.class(), step.now);
            prop_assert_eq!(&through_words(class, step.after), &*step.after, "words of {}", script);
            prop_assert_eq!(&through_words(class.loose(), step.after), &*step.after, "words of {}", script);
            prop_assert_eq!(Class::of_bits(class.bits()), Some(class));
            let keep_for = step.limit.keep_for(step.after, now);
            let kept_until = now.plus(keep_for);
            let until = step.limit.kept_until(step.after, &step.verdict, now);
            prop_assert!(until >= kept_until || keep_for <= Micros::from_secs(5), "{until:?} {kept_until:?} {script}");
            if let Some(packed) = class.pack(step.after, around(now), kept_until) {
                prop_assert!(class.packs());
                prop_assert_eq!(&class.unpack(packed, around(now)), &*step.after, "{}", script);
                let dead_at = class.dead_at(packed, around(now));
                // Five seconds are left of whatever is dead already; and waits are told from the start of a tick.
                let dead = keep_for <= Micros::from_secs(5);
                let tick = Micros::new(step.limit.tick().us());
                prop_assert!(dead || dead_at.plus(tick) > kept_until, "{dead_at:?} {kept_until:?}: {script}");
            }
            let portable = step.after.to_portable();
            prop_assert_eq!(class.from_portable(&portable), Ok(step.after.clone()));
            Ok(())
        })?;
    }

    /// Whatever the reference was when a level was packed, it is read right after the reference has moved.
    #[test]
    fn a_level_is_read_from_the_next_reference(
        start in 1_u64 << 37..1 << 52, last in -(1_i64 << 36)..1 << 36, moves in -(1_i64 << 36)..1 << 36, cost in 1_u64..100,
    ) {
        let limit = Limit::gcra(100, Micros::from_secs(60), None).expect("a limit");
        let reference = Micros::new(start);
        let (at, next) = (Micros::new(start.saturating_add_signed(last)), Micros::new(start.saturating_add_signed(moves)));
        let mut state = limit.state();
        limit.step(&mut state, Ask::Charge { cost }, at);
        let era = Era { reference, next };
        if let Some(packed) = limit.class().pack(&state, era, Micros::ZERO) {
            prop_assert_eq!(&limit.class().unpack(packed, era), &state);
            prop_assert_eq!(&limit.class().unpack(packed, around(next)), &state, "after the reference has moved");
            let mut settled = packed;
            prop_assert!(limit.class().settle(&mut settled, era, at));
            prop_assert_eq!(settled, packed, "what is not ahead stays as it is");
        } else {
            prop_assert!(at.get().abs_diff(next.get()) >= Era::REACH.get());
        }
    }
}

/// The common limits fit a slot, full and in debt too.
#[test]
fn common_limits_fit() {
    let (second, minute, hour, day) =
        (Micros::from_secs(1), Micros::from_secs(60), Micros::from_secs(3_600), Micros::from_secs(86_400));
    let limits = [
        Limit::gcra(1, second, None),
        Limit::gcra(7, minute, None),
        Limit::token_bucket(10, second, Some(20)),
        Limit::token_bucket(60, minute, Some(100)),
        Limit::leaky_bucket(128, minute, None),
        Limit::gcra(1_000, minute, None),
        Limit::gcra(1_000_000, second, None),
        Limit::gcra(10_000, hour, None),
        Limit::fixed_window(250_000, second),
        Limit::fixed_window(2_000_000, minute),
        Limit::fixed_window(100_000_000, day),
        Limit::sliding_window_counter(1_000_000, hour),
    ];
    let now = Micros::from_secs(1_800_000_000);
    for limit in limits.map(|limit| limit.expect("a limit")) {
        let mut state = limit.state();
        let full = Ask::Charge { cost: limit.amount().into() };
        assert!(limit.step(&mut state, full, now).admitted(), "{limit}");
        let receipt = tidegate_core::Receipt { at: now, units: 1 };
        let owe = Ask::Settle { receipt, actual: u64::from(limit.amount()) + 1 };
        limit.step(&mut state, owe, now.plus(Micros::new(1)));
        assert!(limit.class().pack(&state, around(now), Micros::ZERO).is_some(), "{limit}");
    }
}

#[test]
fn bits_that_no_class_has_are_refused() {
    let class = Limit::sliding_window(10, Micros::from_secs(60)).expect("a limit").class();
    for bits in [
        0,
        1,
        u64::MAX,
        1 << 60,
        1 << 60 | 1,
        1 << 60 | 1 << 32,
        class.bits() & !0xffff_ffff_ffff,
        class.bits() | 1 << 59,
        11 << 60,
    ] {
        assert_eq!(Class::of_bits(bits), None, "{bits:x}");
    }
}
