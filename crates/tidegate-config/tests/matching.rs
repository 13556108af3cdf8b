//! A rule file means what it says: random rules, written in one of the many ways in which they can be, find what the judge finds.

#[path = "../../tidegate-core/tests/law/subject.rs"]
#[expect(dead_code, reason = "only limits are made here, no steps")]
mod subject; // limits from the oracle's words

#[path = "../../tidegate-core/tests/book/cases.rs"]
#[expect(dead_code, reason = "nothing is known about callers")]
mod cases; // random trees with requests
#[path = "../../tidegate-core/tests/book/compare.rs"]
mod compare; // a book beside the judge
#[path = "../../tidegate-core/tests/book/drafts.rs"]
#[expect(dead_code, reason = "only requests: the rules come from a file")]
mod drafts; // the oracle's requests as the core's

use proptest::prelude::*;
use tidegate_config::{Code, RuleFiles, Severity, load};
use tidegate_core::{Book, Secret};
use tidegate_oracle::rules::{Dice, RuleTree};

/// How a file is spelled. What came of it is told in full, so it need not be.
#[derive(Clone)]
struct Spelling(Vec<u8>);

impl std::fmt::Debug for Spelling {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("…")
    }
}

fn spelling() -> impl Strategy<Value = Spelling> {
    prop::collection::vec(any::<u8>(), 500).prop_map(Spelling)
}

/// All trees in one file.
fn text(trees: &[RuleTree], spelling: Spelling) -> String {
    let mut dice = Dice::new(spelling.0);
    let documents: Vec<String> = trees.iter().map(|tree| tree.to_yaml_by(&mut dice)).collect();
    documents.join("---\n")
}

fn book(text: &str) -> Result<Book, TestCaseError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.yaml");
    std::fs::write(&path, text).expect("a file");
    let loaded = load(&RuleFiles { paths: vec![path], ..RuleFiles::default() });
    let errors = loaded.report.diagnostics();
    let mut codes = errors.iter().filter(|told| told.severity() == Severity::Error).map(|told| told.code);
    if !loaded.is_valid() && codes.all(|code| code == Code::ReplacesInACircle) {
        return Err(TestCaseError::reject("the dice replaced in a circle, which a file may not"));
    }
    prop_assert!(loaded.is_valid(), "{:?}\n{}", loaded.report, text);
    Ok(Book::new(loaded.domains, Secret::new([7; 16])))
}

proptest! {
    #![proptest_config(cases::proof(1_000))]

    #[test]
    fn a_file_finds_what_the_judge_finds(case in cases::case(), spelling in spelling()) {
        let text = text(&case.trees, spelling);
        compare::check(&book(&text)?, &case).map_err(|error| {
            TestCaseError::fail(format!("{error}\nof this file:\n{text}"))
        })?;
    }
}

/// It lost the burst, as if it had been another.
#[test]
fn a_tier_that_names_the_same_algorithm_keeps_its_fields() {
    for (defaults, base, tier, burst) in [
        ("sliding_window", "algorithm: token_bucket, burst: 7", "algorithm: token_bucket", 7),
        ("token_bucket", "burst: 7", "algorithm: token_bucket", 7),
        ("token_bucket", "burst: 7", "requests_per_unit: 3", 7),
        ("sliding_window", "algorithm: token_bucket, burst: 7", "algorithm: gcra", 5),
        ("gcra", "algorithm: token_bucket, burst: 7", "algorithm: gcra", 5),
    ] {
        let text = format!(
            "domain: d\ndefaults: {{ algorithm: {defaults} }}\ndescriptors:\n  - key: a\n    \
             rate_limit: {{ limit: 5/1m, {base} }}\n    tiers: {{ pro: {{ {tier} }} }}\n"
        );
        let book = book(&text).expect("a valid file");
        let of_tier = book.rules().iter().find(|rule| rule.tier.is_some()).expect("a rule for the tier");
        let capacity = of_tier.said.limit.as_ref().map(|limit| limit.capacity());
        assert_eq!(capacity, Some(burst), "{text}");
    }
}
