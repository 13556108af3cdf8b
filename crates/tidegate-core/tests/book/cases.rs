//! Random cases: a book of one or two domains, and what is asked of it.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tidegate_oracle::rules::{Dice, Known, Matching, Request, RuleTree};

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
    /// What is known about callers.
    pub(crate) known: Known,
}

/// The same, where something is known about the callers.
pub(crate) fn case_of_callers() -> impl Strategy<Value = Case> {
    prop::collection::vec(any::<u8>(), 600..1_800).prop_map(|bytes| {
        let mut dice = Dice::new(bytes);
        let mut case = Case::from_dice(&mut dice);
        case.know_other_names(&mut dice);
        case.known = Known::random(&mut dice, &case.trees, &case.requests);
        case
    })
}

pub(crate) fn case() -> impl Strategy<Value = Case> {
    prop::collection::vec(any::<u8>(), 500..1_500).prop_map(|bytes| Case::from_dice(&mut Dice::new(bytes)))
}

impl Case {
    /// Some rules become rules about users and clients, and some requests say who those are.
    fn know_other_names(&mut self, dice: &mut Dice) {
        let names = [("a", "user_id"), ("b", "client_id")];
        for node in self.trees.iter_mut().flat_map(|tree| &mut tree.descriptors) {
            let name = names.iter().find(|(key, _)| *key == node.key);
            if let Some((_, name)) = name.filter(|_| !dice.once_in(3)) {
                node.key = (*name).to_owned();
            }
        }
        let descriptors = self.requests.iter_mut().flat_map(|request| &mut request.descriptors);
        for (key, _) in descriptors.flat_map(|descriptor| &mut descriptor.entries) {
            let name = names.iter().find(|(other, _)| other == key);
            if let Some((_, name)) = name.filter(|_| dice.once_in(4)) {
                *key = (*name).to_owned();
            } else if dice.once_in(6) {
                *key = self.trees[0].quota_key.clone();
            }
        }
    }

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
        Self { trees, requests, known: Known::default() }
    }
}

impl std::fmt::Debug for Case {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for tree in &self.trees {
            writeln!(out, "---\n{}", tree.to_yaml())?;
        }
        if self.known == Known::default() { Ok(()) } else { writeln!(out, "{:#?}", self.known) }
    }
}
