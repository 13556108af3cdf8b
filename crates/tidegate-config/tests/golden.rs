//! What an operator is told about a bad file: each `tests/golden/NAME.yaml` beside what is said about it, `NAME.txt`.
//!
//! `TIDEGATE_BLESS=1 cargo test -p tidegate-config` writes the texts again; read the difference before it is committed.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::differs;
use tidegate_config::{Caps, Report, RuleFiles, Sources, Style, document, load_tests_text, load_texts};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Reads a file by its name and bytes, and says all that is wrong with it.
type Check = fn(&str, Vec<u8>) -> (Sources, Report);

/// A folder of cases, and who reads them. Other languages are another row.
const FOLDERS: &[(&str, Check)] = &[
    ("golden", |name, bytes| support::check(name, bytes, &Caps::default())),
    ("golden/rules", |name, bytes| {
        let loaded = load_texts([(name.into(), bytes)], &RuleFiles::default());
        (loaded.sources, loaded.report)
    }),
    ("golden/tests", |name, bytes| {
        let loaded = load_tests_text(Path::new(name), bytes, &Caps::default());
        (loaded.sources, loaded.report)
    }),
];

#[test]
fn bad_files_are_told_as_written_down() -> Outcome {
    let mut stale = Vec::new();
    for (folder, check) in FOLDERS {
        let mut cases: Vec<PathBuf> = fs::read_dir(tests().join(folder))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        cases.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
        cases.sort();
        assert!(!cases.is_empty(), "no case in {folder}");
        for case in cases {
            let name = case.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let (sources, report) = check(&name, fs::read(&case)?);
            stale.extend(differs(&case.with_extension("txt"), &report.render(&sources, Style::Plain))?);
            // What machines are told is often shown to people all the same.
            let json = Value::Array(report.json(&sources)).to_string();
            let obeyed = |letter: char| letter.is_control() || ('\u{2028}'..='\u{202e}').contains(&letter);
            assert!(!json.contains(obeyed), "{name}: {json:?}");
        }
    }
    assert!(stale.is_empty(), "{}\n{BLESS}", stale.join("\n"));
    Ok(())
}

#[test]
fn the_page_of_diagnostics_is_made_from_the_table() -> Outcome {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/diagnostics.md");
    if let Some(stale) = differs(&page, &document())? {
        return Err(format!("{stale}\n{BLESS}").into());
    }
    Ok(())
}

const BLESS: &str = "if that is right: TIDEGATE_BLESS=1 cargo test -p tidegate-config";

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}
