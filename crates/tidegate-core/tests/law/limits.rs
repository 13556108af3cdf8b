//! P14: constructors refuse impossible numbers with a reason; what they let through cannot overflow, whatever is asked.

use proptest::prelude::*;
use tidegate_core::{
    Ask, Calendar, Charge, Limit, LimitError, Micros, Numbers, Receipt, Shaper, Unit, Weekday,
};

/// Numbers around every edge of the range, and all between.
fn edgy(max: u64) -> impl Strategy<Value = u64> {
    let edges = vec![0, 1, 2, 19, 20, 21, max / 2, max - 1, max];
    prop_oneof![3 => prop::sample::select(edges), 1 => 0..=max, 1 => (0..=max, 0..53_u32).prop_map(|(n, shift)| n >> shift)]
}

fn any_limit(algorithm: u8) -> impl Strategy<Value = Result<Limit, LimitError>> {
    let day = 86_400_000_000_u64;
    let window = prop_oneof![
        2 => prop::sample::select(vec![1_000, 1_001, 1_000_000, 60_000_000, 61_000_000, 3_600_000_000, day, 30 * day, 366 * day]),
        1 => 1_000..=366 * day,
        1 => (1..=366 * 86_400_u64).prop_map(|seconds| seconds * 1_000_000),
    ];
    let amount = edgy(u64::from(u32::MAX));
    let burst = prop::option::of(edgy(u64::from(u32::MAX)));
    (amount, window, burst, 1..70_u32, any::<bool>(), any::<bool>()).prop_map(
        move |(amount, window, burst, k, strict, always)| {
            let window = Micros::new(window);
            let limit = match algorithm {
                0 => Limit::fixed_window(amount, window),
                1 => Limit::sliding_log(amount % 10_001, window),
                2 => Limit::sliding_window_counter(amount, window),
                3 => Limit::sub_window(amount, window, None, strict),
                4 => Limit::sub_window(amount, window, Some(k), strict),
                5 => Limit::token_bucket(amount, window, burst),
                6 => Limit::gcra(amount, window, None),
                7 => Limit::sliding_window(amount, window),
                8 => Limit::sliding_window_strict(amount, window),
                9 => return Limit::concurrency(amount % 10_001, window),
                _ => Calendar::new(Unit::Month, "Asia/Tokyo", Weekday::Monday)
                    .and_then(|calendar| Limit::calendar(amount, calendar)),
            };
            limit.and_then(|limit| limit.charging(if always { Charge::Always } else { Charge::Admitted }))
        },
    )
}

proptest! {
    #![proptest_config(crate::traces::proof(20_000))]

    /// Tests are built with overflow checks, so whatever overflows fails here.
    #[test]
    fn p14_nothing_overflows_on_the_whole_range(
        limits in (0..11_u8).prop_flat_map(|algorithm| prop::collection::vec(any_limit(algorithm), 1..4)),
        asks in prop::collection::vec((0..12_u8, edgy(u64::MAX), edgy(Micros::MAX.get()), edgy(u64::MAX)), 1..12),
    ) {
        let limits: Vec<Limit> = limits.into_iter().flatten().collect();
        let Some(mut state) = limits.first().map(Limit::state) else { return Ok(()) };
        for (index, (ask, cost, now, other)) in asks.into_iter().enumerate() {
            let limit = &limits[index % limits.len()];
            let receipt = Receipt { at: Micros::new(other), units: cost };
            let ask = match ask {
                0 => Ask::Peek,
                1 => Ask::Refund { units: cost, receipt: None },
                2 => Ask::Refund { units: other, receipt: Some(receipt) },
                3 => Ask::Settle { receipt, actual: other },
                4 => Ask::Acquire { id: other, cost },
                5 => Ask::Release { id: other },
                6 => Ask::Renew { id: other },
                _ => Ask::Charge { cost },
            };
            let now = Micros::new(now);
            let verdict = limit.step(&mut state, ask, now);
            limit.show(&mut state, ask, now);
            limit.used(&mut state, now);
            limit.keep_for(&mut state, now);
            prop_assert!(verdict.reset_after <= Micros::MAX && verdict.reset <= Micros::MAX);
            prop_assert!(state.to_portable().len() <= limit.form().bytes_max());
        }
    }
}

proptest! {
    #![proptest_config(crate::traces::proof(20_000))]

    #[test]
    fn p14_no_shaper_overflows_on_the_whole_range(
        amount in edgy(u64::from(u32::MAX)),
        window in edgy(366 * 86_400_000_000),
        delay in edgy(366 * 86_400_000_000),
        asks in prop::collection::vec((edgy(u64::MAX), edgy(Micros::MAX.get()), any::<bool>()), 1..10),
    ) {
        let Ok(shaper) = Shaper::new(amount, Micros::new(window), Micros::new(delay)) else { return Ok(()) };
        let mut level = tidegate_core::Level::default();
        for (cost, now, leaves) in asks {
            if let tidegate_core::Shaped::Go { reservation, .. } = shaper.reserve(&mut level, cost, Micros::new(now)) && leaves {
                prop_assert_eq!(shaper.cancel(&mut level, reservation, Micros::new(now)), Ok(()), "nobody is behind it");
            }
        }
    }
}

proptest! {
    #![proptest_config(crate::traces::proof(5_000))]

    /// What a node may spend alone is the same limit, only smaller; were it not to be had, the whole limit would be spent.
    #[test]
    fn a_part_of_a_limit_counts_as_the_limit_does(
        limit in (0..11_u8).prop_flat_map(any_limit),
        units in edgy(u64::from(u32::MAX)),
    ) {
        let Ok(limit) = limit else { return Ok(()) };
        let part = limit.part(u32::try_from(units).unwrap_or(u32::MAX));
        let (whole, least) = (u64::from(limit.amount()), u64::from(limit.amount().min(1)));
        prop_assert_eq!(u64::from(part.amount()), units.clamp(least, whole));
        let shape = |limit: &Limit| (limit.algorithm(), limit.charge(), limit.window(), limit.periods().cloned(), limit.holds());
        prop_assert_eq!(shape(&part), shape(&limit));
        let parted = |limit: &Limit| match limit.numbers() {
            Numbers::Parted { k, strict, .. } => Some((k, strict)),
            _ => None,
        };
        prop_assert_eq!(parted(&part), parted(&limit));
        let burst = u64::from(limit.capacity()) * u64::from(part.amount()) / whole.max(1);
        prop_assert_eq!(u64::from(part.capacity()), burst.max(u64::from(limit.capacity().min(1))));
    }
}

/// What a constructor says when it refuses.
fn refusal<T: std::fmt::Debug>(limit: Result<T, LimitError>) -> String {
    limit.expect_err("an impossible limit").to_string()
}

#[test]
fn impossible_numbers_are_refused_with_a_reason_and_a_way_out() {
    let (minute, year) = (Micros::from_secs(60), Micros::from_secs(366 * 86_400));
    let calendar = |zone| Calendar::new(Unit::Day, zone, Weekday::Monday);
    let said = [
        refusal(Limit::fixed_window(1 << 32, minute)),
        refusal(Limit::sliding_window(10, Micros::new(999))),
        refusal(Limit::sliding_window(10, year.plus(Micros::new(1)))),
        refusal(Limit::token_bucket(10, minute, Some(0))),
        refusal(Limit::token_bucket(1, minute, Some(4_000_000_000))),
        refusal(Limit::gcra(4_000_000_000, year, None)),
        refusal(Limit::sliding_window(10, year.minus(Micros::new(1)))),
        refusal(Limit::sub_window(10, minute, Some(7), false)),
        refusal(Limit::sub_window(10, minute, Some(0), false)),
        refusal(Limit::sliding_log(10_001, minute)),
        refusal(Limit::concurrency(10_001, minute)),
        refusal(Limit::concurrency(10, Micros::ZERO)),
        refusal(Shaper::new(10, minute, year.plus(year))),
        refusal(calendar("Europe/Berlln")),
        refusal(calendar("Etc/Unknown")),
        refusal(Limit::concurrency(10, minute).and_then(|limit| limit.charging(Charge::Always))),
    ];
    let expected = include_str!("refusals.txt");
    assert_eq!(said.join("\n"), expected.trim_end());
}

#[test]
fn the_finest_tick_is_taken_and_told() {
    let tick = |limit: Result<Limit, LimitError>| limit.expect("a limit").tick().us();
    let (minute, day) = (Micros::from_secs(60), Micros::from_secs(86_400));
    assert_eq!(tick(Limit::sliding_window(100, minute)), 1);
    assert_eq!(tick(Limit::sliding_window(100, Micros::from_secs(3_600))), 10);
    assert_eq!(tick(Limit::sliding_window(100, day)), 1_000);
    assert_eq!(tick(Limit::sliding_window(4_000_000_000, day)), 1_000, "by the window alone");
    assert_eq!(tick(Limit::token_bucket(100, minute, None)), 1);
    assert_eq!(tick(Limit::token_bucket(1_000_000, day, None)), 100);
    assert_eq!(tick(Limit::fixed_window(4_000_000_000, day)), 1);
}

#[test]
fn a_limit_prints_as_a_person_would_write_it() {
    let minute = Micros::from_secs(60);
    let shown = [
        Limit::sliding_window_strict(100, minute),
        Limit::sub_window(100, minute, None, false).and_then(|limit| limit.charging(Charge::Always)),
        Limit::token_bucket(5, Micros::from_secs(1), Some(10)),
        Limit::concurrency(20, minute),
        Calendar::new(Unit::Week, "Asia/Tokyo", Weekday::Sunday)
            .and_then(|calendar| Limit::calendar(7, calendar)),
    ]
    .map(|limit| limit.expect("a limit").to_string());
    let expected = [
        "sliding_window 100/1m strict",
        "sub_window 100/1m k=60 charge=always",
        "token_bucket 5/1s burst=10",
        "concurrency 20 ttl=1m",
        "calendar 7/week zone=Asia/Tokyo week_start=sunday",
    ];
    assert_eq!(shown, expected);
}
