//! How many cases the properties of this crate are tried on.

use proptest::test_runner::{Config, RngSeed};

/// The same cases every time, or `TIDEGATE_PROOF` times as many, drawn anew.
pub(crate) fn config(cases: u32) -> Config {
    let times = std::env::var("TIDEGATE_PROOF").ok().and_then(|times| times.parse().ok()).unwrap_or(0);
    let rng_seed = if times == 0 { RngSeed::Fixed(0x71DE_6A7E) } else { RngSeed::Random };
    Config { cases: cases * times.max(1), failure_persistence: None, rng_seed, ..Config::default() }
}
