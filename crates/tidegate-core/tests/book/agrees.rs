//! The book finds what the judge finds, whatever the rules and the requests.

use proptest::prelude::*;

use crate::cases::{self, Case};
use crate::{compare, drafts};

/// A flag that says nothing where there is no wildcard. Whoever reads it from a text refuses it.
fn with_idle_flag(mut case: Case) -> Case {
    if let Some(node) = case.trees[0].descriptors.iter_mut().find(|node| !node.has_wildcard()) {
        node.share_threshold = true;
    }
    case
}

proptest! {
    #![proptest_config(cases::proof(3_000))]

    #[test]
    fn the_book_finds_what_the_judge_finds(case in cases::case()) {
        compare::check(&drafts::book(&case.trees), &case)?;
    }

    #[test]
    fn the_book_grants_what_the_judge_grants(case in cases::case_of_callers()) {
        let book = drafts::book(&case.trees).with_default_domain(Some(&case.known.default_domain));
        compare::check(&book, &case)?;
    }

    #[test]
    fn sharing_without_a_wildcard_changes_nothing(case in cases::case().prop_map(with_idle_flag)) {
        compare::check(&drafts::book(&case.trees), &case)?;
    }
}
