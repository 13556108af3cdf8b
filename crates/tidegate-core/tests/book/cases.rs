//! Random cases: a book of one or two domains, and what is asked of it.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tidegate_oracle::rules::{Dice, Matching, Request, RuleTree};

/// Requests to one book, so that their counters can be compared.
const REQUESTS: usize = 12;

/// How many cases a property runs on: the same ones every time, or `TIDEGATE_PROOF` times as many, drawn anew.
pub(crate) fn proof(cases: u32) -> ProptestConfig {
    let times = std::env::var("TIDEGATE_PROOF").ok().and_then(|times| times.parse().ok()).unwrap_or(0);
    let rng_seed = if times == 0 { RngSeed::Fixed(0x71DE_6A7E) } else { RngSeed::Random };
    ProptestConfig {
        cases: cases * times.max(1),
        rng_seed,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Rules, and requests that are judged by them.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) trees: Vec<RuleTree>,
    pub(crate) requests: Vec<Request>,
}

pub(crate) fn case() -> impl Strategy<Value = Case> {
    prop::collection::vec(any::<u8>(), 500..1_500).prop_map(|bytes| Case::from_dice(&mut Dice::new(bytes)))
}

impl Case {
    fn from_dice(dice: &mut Dice) -> Self {
        let mut trees = vec![RuleTree::random(dice, RuleTree::DOMAINS[0])];
        match dice.roll(4) {
            // The same rules under another name, and otherwise: no counter may be shared.
            2 => {
                let matching = dice.pick(&[Matching::Path, Matching::Leaf]);
                let domain = RuleTree::DOMAINS[1].to_owned();
                trees.push(RuleTree { domain, matching, ..trees[0].clone() });
            }
            3 => trees.push(RuleTree::random(dice, RuleTree::DOMAINS[1])),
            _ => {}
        }
        let mut requests: Vec<Request> = Vec::new();
        for _ in 0..REQUESTS {
            requests.push(match requests.last() {
                Some(last) if dice.roll(3) == 1 => last.twisted(dice, &trees),
                _ => Request::random(dice, &trees),
            });
        }
        Self { trees, requests }
    }
}

impl std::fmt::Debug for Case {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for tree in &self.trees {
            writeln!(out, "---\n{}", tree.to_yaml())?;
        }
        Ok(())
    }
}
