//! Edges that random traces hardly meet, one by one.

use tidegate_core::{
    Ask, Level, Limit, LimitError, Micros, Outcome, PortableError, Reservation, Shaped, Shaper,
};

const START: Micros = Micros::from_secs(1_800_000_000);

/// A portable state: its first byte, then numbers with their bytes, little-endian.
fn bytes(tag: u8, fields: &[(u64, usize)]) -> Vec<u8> {
    let mut bytes = vec![tag];
    fields.iter().for_each(|(value, len)| bytes.extend(&value.to_le_bytes()[..*len]));
    bytes
}

fn damage(limit: &Limit, bytes: &[u8]) -> &'static str {
    match limit.from_portable(bytes) {
        Err(PortableError::Damaged { what }) => what,
        Err(PortableError::WrongLength { .. }) => "length",
        other => panic!("{other:?} from {bytes:02x?}"),
    }
}

#[test]
fn damaged_windows_and_levels_are_refused_by_name() {
    let last = Micros::MAX.get();
    let fixed = Limit::fixed_window(10, Micros::from_secs(1)).expect("a limit");
    let end = last / 1_000_000;
    assert!(fixed.from_portable(&bytes(0x11, &[(end, 7), (1, 4), (1, 4)])).is_ok());
    assert_eq!(damage(&fixed, &bytes(0x11, &[(end + 1, 7), (1, 4), (1, 4)])), "a window after the year 2255");

    let parts = Limit::sub_window(10, Micros::from_secs(1), Some(5), false).expect("a limit");
    for items in [2, 5, 7] {
        let mut state = bytes(0x11, &[(9, 7)]);
        state.resize(8 + 4 * items, 0);
        assert_eq!(damage(&parts, &state), "length", "{items} counts for 5 sub-windows");
    }

    let bucket = Limit::token_bucket(10, Micros::from_secs(1), None).expect("a limit");
    let level = |flags, used, at| bytes(0x12, &[(flags, 1), (used, 7), (at, 7)]);
    assert!(bucket.from_portable(&level(0x86, (1 << 53) - 1, last)).is_ok());
    assert_eq!(damage(&bucket, &level(0x08, 1, 1)), "unknown flags");
    assert_eq!(damage(&bucket, &level(0x40, 1, 1)), "unknown flags");
    assert_eq!(damage(&bucket, &level(0x07, 1, 1)), "unknown flags");
    assert_eq!(damage(&bucket, &level(0, 1 << 53, 1)), "a level that no limit reaches");
    assert_eq!(damage(&bucket, &level(0, 1, last + 1)), "a time after the year 2255");
}

#[test]
fn damaged_cells_are_refused_by_name() {
    let limit = Limit::sliding_window(100, Micros::from_millis(1)).expect("a limit");
    let state = |flags: u64, last: u64, cells: &[[u64; 3]]| {
        let total = cells.iter().map(|cell| cell[2]).sum();
        let mut fields = vec![(flags, 1), (last, 7), (total, 5)];
        cells.iter().for_each(|cell| fields.extend(cell.map(|number| (number, 4))));
        bytes(0x13, &fields)
    };
    let last = Micros::MAX.get();
    assert!(limit.from_portable(&state(0x80, last, &[])).is_ok());
    assert_eq!(damage(&limit, &state(0, last + 1, &[])), "a time after the year 2255");
    assert_eq!(damage(&limit, &state(0x01, last, &[])), "unknown flags");
    // A cell is shorter than a twentieth of the window, here of 1000 µs.
    assert!(limit.from_portable(&state(0, 5_000, &[[1_000, 1_049, 3]])).is_ok());
    assert_eq!(damage(&limit, &state(0, 5_000, &[[1_000, 1_050, 3]])), "a cell that is too long");
    // An instant may be in the end of a cell and in one of its own, not in others.
    assert!(
        limit
            .from_portable(&state(0, 5_000, &[[1_000, 1_010, 3], [1_010, 1_010, 2], [1_011, 1_012, 2]]))
            .is_ok()
    );
    assert_eq!(
        damage(&limit, &state(0, 5_000, &[[1_000, 1_010, 3], [1_010, 1_020, 2]])),
        "an instant in too many cells"
    );
    assert_eq!(
        damage(&limit, &state(0, 5_000, &[[1_010, 1_010, 3], [1_010, 1_010, 2]])),
        "an instant in too many cells"
    );
    assert_eq!(
        damage(&limit, &state(0, 5_000, &[[1_500, 1_530, 3], [1_529, 1_530, 2]])),
        "cells out of order"
    );
    assert_eq!(damage(&limit, &state(0, 5_000, &[[1_500, 1_499, 3]])), "cells out of order");
    assert_eq!(damage(&limit, &state(0, 5_000, &[[4_999, 5_001, 3]])), "cells out of order");
    assert_eq!(damage(&limit, &state(0, 5_000, &[[1_000, 1_000, 0]])), "an empty cell");
    let full: Vec<_> = (0..163).map(|index| [1_000 + index, 1_000 + index, 1]).collect();
    assert!(limit.from_portable(&state(0, 5_000, &full)).is_ok());
    assert_eq!(damage(&limit, &state(0, 5_000, &[full, vec![[2_000, 2_000, 1]]].concat())), "length");
}

#[test]
fn damaged_logs_and_places_are_refused_by_name() {
    let (log, places) = (
        Limit::sliding_log(10, Micros::from_secs(1)).expect("a limit"),
        Limit::concurrency(10, Micros::from_secs(1)).expect("a limit"),
    );
    let entries = |last: u64, entries: &[[u64; 2]]| {
        let total = entries.iter().map(|entry| entry[1]).sum();
        let mut fields = vec![(last, 7), (total, 4)];
        entries.iter().for_each(|[at, units]| fields.extend([(*at, 7), (*units, 4)]));
        bytes(0x14, &fields)
    };
    assert!(log.from_portable(&entries(20, &[[10, 1], [10, 1], [20, 1]])).is_ok());
    assert_eq!(damage(&log, &entries(20, &[[10, 1], [9, 1]])), "entries out of order");
    assert_eq!(damage(&log, &entries(20, &[[10, 1], [21, 1]])), "entries out of order");
    assert_eq!(damage(&log, &entries(20, &[[10, 0]])), "an empty entry");
    assert_eq!(damage(&log, &entries(Micros::MAX.get() + 1, &[])), "a time after the year 2255");
    assert_eq!(damage(&log, &entries(20, &vec![[10, 1]; 20_001])), "length");

    let held = |last: u64, held: &[[u64; 2]]| {
        let total = held.iter().map(|place| place[1]).sum();
        let mut fields = vec![(last, 7), (total, 4)];
        held.iter().for_each(|[expires, units]| fields.extend([(7, 8), (*expires, 7), (*units, 4)]));
        bytes(0x15, &fields)
    };
    let furthest = 20 + 366 * 86_400_000_000;
    assert!(places.from_portable(&held(20, &[[10, 1], [10, 1], [furthest, 1]])).is_ok());
    assert_eq!(damage(&places, &held(20, &[[10, 1], [9, 1]])), "places out of order");
    assert_eq!(damage(&places, &held(20, &[[10, 1], [furthest + 1, 1]])), "places out of order");
    assert_eq!(damage(&places, &held(20, &[[10, 0]])), "an empty place");
    assert_eq!(damage(&places, &held(20, &vec![[10, 1]; 10_001])), "length");
}

#[test]
fn places_without_an_id_belong_to_nobody() {
    let limit = Limit::concurrency(3, Micros::from_secs(10)).expect("a limit");
    let mut state = limit.state();
    let mut step = |ask| limit.step(&mut state, ask, START);
    assert_eq!(step(Ask::Acquire { id: Ask::ANONYMOUS, cost: 1 }).remaining, 2);
    assert_eq!(
        step(Ask::Acquire { id: Ask::ANONYMOUS, cost: 1 }).remaining,
        1,
        "another place, not the same one renewed"
    );
    assert_eq!(step(Ask::Renew { id: Ask::ANONYMOUS }).outcome, Outcome::NotHeld);
    assert_eq!(step(Ask::Release { id: Ask::ANONYMOUS }).applied, 0);
}

fn reserve(shaper: &Shaper, level: &mut Level, cost: u64, at: Micros) -> (Micros, Reservation) {
    match shaper.reserve(level, cost, at) {
        Shaped::Go { delay, reservation, .. } => (delay, reservation),
        Shaped::Refused { retry_after, .. } => panic!("refused: {retry_after:?}"),
    }
}

#[test]
fn a_place_in_a_queue_that_has_drained_cannot_be_left() {
    let shaper = Shaper::new(10, Micros::from_secs(1), Micros::from_secs(5)).expect("a shaper");
    let mut level = Level::default();
    let (_, reservation) = reserve(&shaper, &mut level, 1, START);
    shaper.cancel(&mut level, reservation, START.plus(Micros::from_millis(100))).expect_err("it is gone");
}

#[test]
fn a_broken_clock_does_not_freeze_a_queue() {
    let shaper = Shaper::new(10, Micros::from_secs(60), Micros::from_secs(60)).expect("a shaper");
    let ms = Micros::from_millis;
    // As far ahead as a window: somebody's clock may be right, the queue waits for it.
    let mut level = Level::default();
    reserve(&shaper, &mut level, 1, START);
    let refused = shaper.reserve(&mut level, 1, START.minus(Micros::from_secs(60)));
    assert!(matches!(refused, Shaped::Refused { retry_after: Some(wait), .. } if wait == ms(6_000)));
    // Further: it was broken. The queue is as long as it was, from now on.
    let past = START.minus(Micros::from_secs(61));
    assert_eq!(reserve(&shaper, &mut level, 1, past).0, ms(6_000));
    // Whoever leaves is repaired first, too.
    let (_, last) = reserve(&shaper, &mut level, 1, START);
    shaper.cancel(&mut level, last, past).expect_err("told on another clock");
    assert_eq!(reserve(&shaper, &mut level, 1, past).0, ms(6_000));
}

#[test]
fn the_bound_of_a_departure_is_the_rest_of_its_own_cost() {
    let shaper = Shaper::new(10, Micros::from_secs(1), Micros::from_secs(5)).expect("a shaper");
    let Shaped::Go { bound, .. } = shaper.reserve(&mut Level::default(), 4, START) else {
        panic!("an empty queue")
    };
    assert_eq!((bound.over, bound.under), (3, 10));
}

#[test]
fn the_largest_numbers_that_fit_are_let_through_and_no_larger_ones() {
    let (second, minute) = (Micros::from_secs(1), Micros::from_secs(60));
    assert!(Limit::sliding_log(10_000, minute).is_ok());
    assert!(Limit::concurrency(10_000, minute).is_ok());
    assert!(Limit::token_bucket(u64::from(u32::MAX), second, Some(u64::from(u32::MAX))).is_ok());
    let burst = 1 << 32;
    assert_eq!(Limit::token_bucket(10, second, Some(burst)), Err(LimitError::BurstOutOfRange { burst }));
    assert_eq!(
        Limit::token_bucket(10, second, Some(burst + 1)),
        Err(LimitError::BurstOutOfRange { burst: burst + 1 })
    );
    let window = Micros::new(1_025_000);
    assert!(Limit::sub_window(10, Micros::new(1_024_000), Some(1_024), false).is_ok());
    assert_eq!(
        Limit::sub_window(10, window, Some(1_025), false),
        Err(LimitError::SubWindowsDoNotFit { k: 1_025, window })
    );
    // 70 years to refill, to the window.
    let year = Micros::from_secs(365 * 86_400);
    assert!(Limit::token_bucket(1, year, Some(70)).is_ok());
    assert_eq!(
        Limit::token_bucket(1, year, Some(71)),
        Err(LimitError::BurstTooSlow { burst: 71, amount: 1, window: year })
    );
}

#[test]
fn products_stay_below_2_to_the_52() {
    // 2^32 µs cannot be told in ticks of 10 µs: where 1 µs does not fit, nothing does.
    let window = Micros::new(1 << 32);
    let most = (1 << 20) - 1;
    assert_eq!(Limit::token_bucket(most, window, None).map(|limit| limit.tick().us()), Ok(1));
    let too_coarse = Err(LimitError::TickTooCoarse { amount: most + 1, window });
    assert_eq!(Limit::token_bucket(most + 1, window, None), too_coarse);
    assert_eq!(Limit::token_bucket(most, window, Some(most + 1)), too_coarse);
    assert_eq!(Limit::sliding_window_counter(most + 1, window), too_coarse);
    // A cell log's tick is that of the largest amount, whatever its own: 214 748 365 units in a cell, for a twentieth of the window.
    let cells = |window| Limit::sliding_window(10, Micros::new(window)).map(|limit| limit.tick().us());
    assert_eq!((cells(419_430_380), cells(419_430_390)), (Ok(1), Ok(10)));
    assert!(cells(419_430_381).is_err(), "no tick but 1 us divides it");
}

#[test]
fn the_worst_bound_of_a_cell_log_is_a_cell_without_its_ends() {
    let worst = |amount| Limit::sliding_window(amount, Micros::from_secs(60)).expect("a limit").bound_max();
    assert_eq!((worst(100).over, worst(100).under), (3, 3));
    assert_eq!((worst(20).over, worst(20).under), (0, 0));
    let strict = Limit::sliding_window_strict(100, Micros::from_secs(60)).expect("a limit").bound_max();
    assert_eq!((strict.over, strict.under), (0, 4));
}

#[test]
fn seconds_are_rounded_up() {
    let us = [0, 1, 1_000_000, 1_000_001];
    assert_eq!(us.map(|us| Micros::new(us).secs_up()), [0, 1, 1, 2]);
}

#[test]
fn a_cell_log_that_a_refund_emptied_is_as_good_as_new() {
    let limit = Limit::sliding_window(100, Micros::from_secs(60)).expect("a limit");
    let mut state = limit.state();
    limit.step(&mut state, Ask::Charge { cost: 2 }, START);
    limit.step(&mut state, Ask::Refund { units: 1, receipt: None }, START);
    assert_eq!(state.to_portable()[1], 0x80, "refunded");
    limit.step(&mut state, Ask::Refund { units: 1, receipt: None }, START);
    assert_eq!(state.to_portable()[1], 0, "empty");
}

#[test]
fn a_state_is_kept_as_long_as_it_matters_and_5_seconds() {
    let minute = Micros::from_secs(60);
    let kept = |limit: Result<Limit, LimitError>| {
        let limit = limit.expect("a limit");
        let mut state = limit.state();
        limit.step(&mut state, Ask::Charge { cost: 10 }, START);
        limit.keep_for(&mut state, START).get() / 1_000_000
    };
    assert_eq!(kept(Limit::fixed_window(10, minute)), 2 * 60 + 5, "the bound speaks of the window before");
    assert_eq!(kept(Limit::sliding_window_counter(10, minute)), 2 * 60 + 5);
    assert_eq!(kept(Limit::sub_window(10, minute, Some(6), false)), 60 + 10 + 5);
    assert_eq!(kept(Limit::sliding_window(10, minute)), 60 + 5);
    assert_eq!(kept(Limit::sliding_log(10, minute)), 60 + 5);
    assert_eq!(kept(Limit::token_bucket(10, minute, None)), 60 + 5);
    assert_eq!(kept(Limit::concurrency(10, minute)), 60 + 5);
}

#[test]
fn a_limit_says_how_many_bytes_its_states_can_have() {
    let minute = Micros::from_secs(60);
    let most = |limit: Result<Limit, LimitError>| limit.expect("a limit").bytes_max();
    assert_eq!(most(Limit::fixed_window(10, minute)), 8 + 2 * 4);
    assert_eq!(most(Limit::sub_window(10, minute, Some(5), false)), 8 + 6 * 4);
    assert_eq!(most(Limit::token_bucket(10, minute, None)), 16);
    assert_eq!(most(Limit::sliding_window(10, minute)), 14 + 163 * 12);
    assert_eq!(most(Limit::sliding_log(10, minute)), 12 + 20 * 11, "a debt of one limit, too");
    assert_eq!(most(Limit::concurrency(10, minute)), 12 + 10 * 19);
}

#[test]
fn places_that_expire_together_stay_in_the_order_they_were_taken() {
    let limit = Limit::concurrency(3, Micros::from_secs(10)).expect("a limit");
    let mut state = limit.state();
    for id in [5, 3, 4] {
        limit.step(&mut state, Ask::Acquire { id, cost: 1 }, START);
    }
    let bytes = state.to_portable();
    assert_eq!([bytes[12], bytes[31], bytes[50]], [5, 3, 4]);
}

#[test]
fn a_place_that_expired_stays_expired_under_a_clock_set_to_1970() {
    let limit = Limit::concurrency(10, Micros::from_secs(1)).expect("a limit");
    let (expired, last) = (10_000_000, 20_000_000);
    let state = bytes(0x15, &[(last, 7), (1, 4), (7, 8), (expired, 7), (1, 4)]);
    let mut state = limit.from_portable(&state).expect("a state");
    assert_eq!(limit.used(&mut state, Micros::from_secs(1)), 0);
}
