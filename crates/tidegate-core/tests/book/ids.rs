//! Rules that differ have ids that differ, whatever their words hold.

use std::collections::HashMap;

use proptest::prelude::*;
use tidegate_core::{PathEntry, RuleDraft, rule_id};

use crate::{cases, compare, drafts};

/// Words that end in, begin with and are made of what separates words.
const WORDS: [&str; 10] = ["a", "a:", "a|", "a#", "\\", "a\\", "a:b", "|", "#", ":"];

#[test]
fn words_cannot_be_cut_elsewhere() {
    let mut seen: HashMap<String, String> = HashMap::new();
    let values = || std::iter::once(None).chain(WORDS.map(Some));
    let levels: Vec<(&str, Option<&str>)> =
        WORDS.iter().flat_map(|key| values().map(move |value| (*key, value))).collect();
    let one = levels.iter().map(|level| vec![*level]);
    let two = levels.iter().flat_map(|above| levels.iter().map(move |below| vec![*above, *below]));
    let paths: Vec<Vec<_>> = one.chain(two).collect();
    for domain in ["d", "d|", "d\\", "d#", "d|a"] {
        for path in &paths {
            for name in ["n", "n#", "|n", ""] {
                let said = RuleDraft { name: Some(name.into()), ..RuleDraft::default() };
                let levels: Vec<PathEntry> =
                    path.iter().map(|(key, value)| PathEntry::new(key, *value, false, false)).collect();
                let id = rule_id(domain, &levels, &said);
                let rule = format!("{domain:?} {path:?} {name:?}");
                if let Some(other) = seen.insert(id.clone(), rule.clone()) {
                    panic!("{id} is the id of {other} and of {rule}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(cases::proof(1_000))]

    #[test]
    fn rules_that_differ_have_ids_that_differ(case in cases::case()) {
        let mut seen = HashMap::new();
        for tree in &case.trees {
            for rule in drafts::book(std::slice::from_ref(tree)).rules() {
                let name = compare::name_of(&tree.domain, rule);
                let other = seen.entry(rule.id.clone()).or_insert_with(|| name.clone());
                prop_assert_eq!(&*other, &name, "both are {}", rule.id);
            }
        }
    }
}
