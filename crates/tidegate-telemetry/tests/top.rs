//! What is said about the keys that are refused most is true, within the error that is said with it.

mod support;

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use support::{book, node, verdict};
use tidegate_core::{Key, LimitError, Micros, Outcome, Role};
use tidegate_telemetry::{COUNTERS, RuleMetrics, Top, TopKeys};

const NOON: Micros = Micros::from_secs(1_800_000_000); // The start of a half.
const HALF_US: u64 = 300_000_000;
const CORES: usize = 3;

/// Refusals: on which core, after how many µs, of which key.
type Refusals = Vec<(usize, u64, u128)>;

fn rules() -> Result<RuleMetrics, LimitError> {
    let book = book("api", vec![node("key", Some("per-key"))?]);
    let rules = RuleMetrics::of(&book, CORES, None);
    rules.count(0, book.rules().first(), Role::Enforce, &verdict(Outcome::RateLimited, 0), false);
    Ok(rules)
}

fn run(refusals: &Refusals, count: usize, until_us: u64) -> Result<(Top, HashMap<Key, u64>), LimitError> {
    let book = book("api", vec![node("key", Some("per-key"))?]);
    let (top, rules) = (TopKeys::new(CORES), rules()?);
    let mut truth = HashMap::new();
    for (core, at_us, key) in refusals {
        // Keys are hashes: spread over all bits.
        let key = Key::of_bits(key.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835));
        top.refused(*core, NOON.plus(Micros::new(*at_us)), rules.mark(book.rules().first()), key, None);
        if at_us / HALF_US + 1 >= until_us / HALF_US {
            *truth.entry(key).or_default() += 1;
        }
    }
    Ok((top.top(count, NOON.plus(Micros::new(until_us)), &rules), truth))
}

fn check(top: &Top, truth: &HashMap<Key, u64>, count: usize) -> Result<(), TestCaseError> {
    for item in &top.keys {
        let truth = truth.get(&item.key).copied().unwrap_or(0);
        prop_assert!(item.count.abs_diff(truth) <= item.error, "{item:?}, and it was {truth}");
        prop_assert!(item.count >= truth, "{item:?}, and it was {truth}");
    }
    for (key, truth) in truth {
        let listed = top.keys.iter().any(|item| item.key == *key);
        prop_assert!(listed || *truth <= top.others_at_most, "{key} of {truth} is not there: {top:?}");
    }
    prop_assert!(top.keys.len() <= count);
    Ok(())
}

fn config() -> Config {
    let times = std::env::var("TIDEGATE_PROOF").ok().and_then(|times| times.parse().ok()).unwrap_or(0);
    let rng_seed = if times == 0 { RngSeed::Fixed(0x71DE_6A7E) } else { RngSeed::Random };
    Config { cases: 100 * times.max(1), failure_persistence: None, rng_seed, ..Config::default() }
}

/// A few keys that come again and again among many that come once or twice.
fn refusals() -> impl Strategy<Value = Refusals> {
    let key = prop_oneof![3 => 0_u128..10, 2 => 0_u128..700, 2 => any::<u128>()];
    let span_us = prop_oneof![Just(1_u64), Just(300_000), Just(2_000_000)];
    (proptest::collection::vec((0..CORES, key), 0..6_000), span_us).prop_map(|(keys, span_us)| {
        keys.into_iter().enumerate().map(|(at, (core, key))| (core, at as u64 * span_us, key)).collect()
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_count_is_off_by_no_more_than_its_error(refusals in refusals(), count in 0_usize..400, later_us in 0_u64..700_000_000) {
        let until_us = refusals.last().map_or(0, |(_, at_us, _)| *at_us) + later_us;
        let (top, truth) = run(&refusals, count, until_us).map_err(|error| TestCaseError::fail(error.to_string()))?;
        check(&top, &truth, count)?;
    }
}

#[test]
fn few_keys_are_counted_exactly() -> Result<(), LimitError> {
    let refusals: Refusals = (0..1_000).map(|at| (at % CORES, 1, [7, 7, 7, 8, 9][at % 5])).collect();
    let (top, truth) = run(&refusals, 2, 1)?;
    let found: Vec<(u64, u64)> = top.keys.iter().map(|item| (item.count, item.error)).collect();
    assert_eq!(found, [(600, 0), (200, 0)]);
    assert_eq!(top.keys[0].rule.as_ref().map(|labels| &*labels.rule), Some("api|key#per-key"));
    assert_eq!((top.others_at_most, truth.len()), (200, 3));
    assert_eq!(run(&refusals, 3, 1)?.0.others_at_most, 0, "there are no others");
    Ok(())
}

#[test]
fn an_error_is_said_as_small_as_it_is() -> Result<(), LimitError> {
    // All counters are taken, twice each, when another key comes.
    let keys = (0..2 * COUNTERS as u128).map(|at| at / 2).chain([9_999]);
    let (top, truth) = run(&keys.map(|key| (0, 1, key)).collect(), COUNTERS, 1)?;
    let sums = top.keys.iter().map(|item| (item.count - truth[&item.key], item.error));
    let (above, errors): (Vec<u64>, Vec<u64>) = sums.unzip();
    assert_eq!((above.iter().sum::<u64>(), errors.iter().sum::<u64>(), top.others_at_most), (2, 2, 2));
    Ok(())
}

#[test]
fn a_flood_of_keys_hides_nobody_who_is_refused_all_the_time() -> Result<(), LimitError> {
    let flood = |at: u128| if at.is_multiple_of(20) { 1 } else { 1_000 + at };
    let refusals: Refusals = (0..200_000).map(|at| (0, 1, flood(at))).collect();
    let (top, truth) = run(&refusals, 1, 1)?;
    let first = &top.keys[0];
    assert_eq!(truth.get(&first.key), Some(&10_000), "{top:?}");
    assert!(first.error <= 200_000 / COUNTERS as u64, "{first:?}");
    Ok(())
}

#[test]
fn what_is_older_than_two_halves_is_forgotten() -> Result<(), LimitError> {
    let refusals: Refusals = [(0, 0, 1), (0, HALF_US - 1, 1), (1, HALF_US, 1), (2, 2 * HALF_US, 1)].into();
    for (until_us, count, since_us) in [
        (2 * HALF_US, 2, HALF_US),
        (3 * HALF_US, 1, 2 * HALF_US),
        (4 * HALF_US - 1, 1, 2 * HALF_US),
        (4 * HALF_US, 0, 3 * HALF_US),
    ] {
        let (top, _) = run(&refusals, 9, until_us)?;
        let counts: Vec<u64> = top.keys.iter().map(|item| item.count).collect();
        assert_eq!(counts, if count > 0 { vec![count] } else { vec![] }, "after {until_us} µs");
        assert_eq!(top.since, NOON.plus(Micros::new(since_us)));
    }
    Ok(())
}

#[test]
fn who_comes_late_counts_in_the_half_that_runs() -> Result<(), LimitError> {
    let refusals: Refusals = [(0, HALF_US, 1), (0, HALF_US - 1, 1)].into();
    let counts = |until_us| -> Result<Vec<u64>, LimitError> {
        Ok(run(&refusals, 9, until_us)?.0.keys.iter().map(|item| item.count).collect())
    };
    assert_eq!((counts(HALF_US)?, counts(2 * HALF_US)?), (vec![2], vec![2]));
    Ok(())
}

#[test]
fn a_refusal_needs_no_room() -> Result<(), LimitError> {
    let (top, rules) = (TopKeys::new(1), rules()?);
    let counted = allocation_counter::measure(|| {
        for at in 0..100_000_u128 {
            let key = Key::of_bits(at.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835));
            let now = NOON.plus(Micros::from_millis(10 * at as u64));
            top.refused(0, now, rules.mark(None), key, None);
        }
    });
    assert_eq!(counted.count_total, 0);
    Ok(())
}
