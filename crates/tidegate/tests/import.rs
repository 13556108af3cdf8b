//! `tidegate import envoy`: each folder of `tests/import` has rule files of envoyproxy/ratelimit, `theirs`, beside what is made of them,
//! `ours.yaml`, and what is explained, `said.txt`.
//!
//! `TIDEGATE_BLESS=1 cargo test -p tidegate --test import` writes both again; read the difference before it is committed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn import(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["import", "envoy"]).args(words).current_dir(folder).output().expect("the binary")
}

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import");
    let mut cases: Vec<PathBuf> =
        fs::read_dir(folder).expect("cases").map(|entry| entry.expect("an entry").path()).collect();
    cases.sort();
    assert!(!cases.is_empty());
    cases
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("a text")
}

/// Compares with a file, or writes it.
fn is_as_written(path: &Path, text: &str) {
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(path, text).expect("written");
    }
    let written = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(written, text, "{}: if that is right: TIDEGATE_BLESS=1", path.display());
}

#[test]
fn rules_are_converted_and_every_difference_is_explained() {
    for case in cases() {
        let output = import(&case, &["theirs"]);
        let said = text(output.stderr);
        assert!(output.status.success(), "{}: {said}", case.display());
        is_as_written(&case.join("ours.yaml"), &text(output.stdout));
        is_as_written(&case.join("said.txt"), &said);
    }
}

/// A file of ours for each of theirs, which are valid and say the same; and nobody's file is written over.
#[test]
fn what_is_written_is_valid_and_written_once() {
    for case in cases() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("rules");
        let words = ["theirs", "--write", out.to_str().expect("a path")];
        let output = import(&case, &words);
        assert!(output.status.success(), "{}", text(output.stderr));
        assert!(text(output.stdout).contains("What to know about every rule:"));
        let mut check = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let check = check.args(["config", "check"]).arg(&out).args(["--rules-merge-domains", "true"]);
        let checked = check.current_dir(folder.path()).output().expect("the binary");
        assert!(checked.status.success(), "{}", text(checked.stderr));
        let again = import(&case, &words);
        assert_eq!(again.status.code(), Some(1));
        assert!(text(again.stderr).contains("exists"), "the files of somebody");
    }
}

#[test]
fn files_that_are_not_valid_there_are_not_converted() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("bad.yaml"), "domain: shop\ndescriptors:\n  - value: x\n").expect("written");
    let output = import(folder.path(), &["."]);
    assert_eq!(output.status.code(), Some(78));
    assert!(output.stdout.is_empty() && text(output.stderr).contains("bad.yaml:3"));
}
