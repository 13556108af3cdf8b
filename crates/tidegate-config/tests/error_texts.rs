//! Bad rules are told in the words of envoyproxy/ratelimit too.

#[path = "support/error_texts.rs"]
mod error_texts;

use std::error::Error;
use std::fs;

use error_texts::{ERROR_TEXTS, ErrorText, Ours};
use tidegate_config::{Loaded, RuleFiles, Severity, load, load_texts};

type Outcome = Result<(), Box<dyn Error>>;

fn loaded(row: &ErrorText) -> Loaded {
    let files = RuleFiles { merge_domains: row.merge, as_reference: true, ..RuleFiles::default() };
    let texts = row.files.iter().map(|(name, text)| (name.to_string(), text.as_bytes().to_vec()));
    load_texts(texts, &files)
}

/// What envoyproxy/ratelimit says of each error.
fn theirs(loaded: &Loaded) -> Vec<&str> {
    let errors = loaded.report.diagnostics().into_iter().filter(|told| told.severity() == Severity::Error);
    errors.map(|told| told.reference.as_deref().unwrap_or("nothing")).collect()
}

#[test]
fn bad_rules_are_told_word_for_word() {
    for row in ERROR_TEXTS {
        let loaded = loaded(row);
        match row.ours {
            Ours::Takes(_) => assert!(loaded.is_valid(), "{:?}: {:?}", row.files, theirs(&loaded)),
            // More than one thing may be wrong: there only the first is told.
            Ours::Same | Ours::SameAsNewest(_) => {
                assert_eq!(
                    theirs(&loaded).first(),
                    Some(&row.text),
                    "{:?}: {:?}",
                    row.files,
                    theirs(&loaded)
                );
            }
        }
    }
}

#[test]
fn every_text_stands_beside_a_place() {
    for row in ERROR_TEXTS {
        let loaded = loaded(row);
        for told in loaded.report.diagnostics().into_iter().filter(|told| told.reference.is_some()) {
            assert!(told.at.is_some() && !told.message.is_empty(), "{:?}: {told:?}", row.files);
        }
    }
}

/// Files are named by their way below the folder that is watched there.
#[test]
fn files_have_the_names_that_they_have_there() -> Outcome {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("config/sub"))?;
    fs::write(root.join("config/sub/bad.yaml"), "descriptors:\n")?;
    let file = root.join("config/sub/bad.yaml").display().to_string();
    for (below, name) in [
        (Some(root.clone()), "config.sub.bad.yaml"),
        (Some(root.join("config")), "sub.bad.yaml"),
        (Some(folder.path().join("elsewhere")), &file),
        (None, &file),
    ] {
        let files = RuleFiles {
            paths: vec![root.join("config")],
            as_reference: true,
            reference_root: below,
            ..RuleFiles::default()
        };
        let loaded = load(&files);
        assert_eq!(theirs(&loaded), [format!("{name}: config file cannot have empty domain")]);
    }
    Ok(())
}

/// A file that says nothing is told of by its own name, whichever came before it.
#[test]
fn a_file_without_a_word_is_named() {
    let texts = [("a.yaml", "domain: a\n"), ("b.yaml", "")];
    let texts = texts.map(|(name, text)| (name.to_string(), text.as_bytes().to_vec()));
    let loaded = load_texts(texts, &RuleFiles::default());
    assert_eq!(theirs(&loaded), ["b.yaml: config file cannot have empty domain"]);
}

/// What is taken there is taken here too, with a word about it.
#[test]
fn what_has_no_effect_there_has_none_here() {
    for (text, words) in [
        ("domain: a\ndomain: d\n", "`domain` is given twice"),
        ("domain: d\ndescriptors:\n  - { key: a, key: b }\n", "`key` is given twice"),
        (
            "domain: d\ndescriptors:\n  - { key: a, rate_limit: { unlimited: true, unit: foo } }\n",
            "`foo` is no unit",
        ),
        ("domain: d\ndescriptors:\n  - { key: a, unit: day }\n", "`unit` does not belong in `descriptor`"),
    ] {
        let text = [("r.yaml".to_string(), text.as_bytes().to_vec())];
        let loaded = load_texts(text.clone(), &RuleFiles { as_reference: true, ..RuleFiles::default() });
        assert!(loaded.is_valid(), "{:?}", loaded.report);
        assert_eq!(loaded.domains[0].name, "d", "the last one holds");
        assert!(loaded.report.diagnostics().iter().any(|told| told.message == words), "{:?}", loaded.report);
        assert!(!load_texts(text, &RuleFiles::default()).is_valid(), "everywhere else it is an error");
    }
}

/// A file may say anything, and as much of it as it likes.
#[test]
fn a_text_is_bounded() {
    let (key, long) = ("ä".repeat(500), "ä".repeat(100_000));
    for text in [
        format!("domain: d\n{key}: x\n"),
        format!("domain: d\ndescriptors: [[{long}, {long}]]\n"),
        format!("domain: d\ndescriptors: [{{ key: a, rate_limit: {{ unit: {long} }} }}]\n"),
        format!("domain: {long}\ndescriptors: [{{ key: a }}, {{ key: a }}]\n"),
    ] {
        let loaded = load_texts([("r.yaml".to_string(), text.into_bytes())], &RuleFiles::default());
        assert!(
            theirs(&loaded).iter().all(|text| (100..1_000).contains(&text.len())),
            "{:?}",
            theirs(&loaded)
        );
    }
}

/// Those of settings are nobody else's.
#[test]
fn only_rules_have_such_texts() {
    let given = tidegate_config::Given {
        flags: vec![("rls.listen".into(), "nowhere".into()), ("node.threads".into(), "many".into())],
        ..tidegate_config::Given::default()
    };
    let resolved = tidegate_config::resolve(&given);
    assert!(resolved.report.errors() >= 2);
    assert!(resolved.report.diagnostics().iter().all(|told| told.reference.is_none()));
}
