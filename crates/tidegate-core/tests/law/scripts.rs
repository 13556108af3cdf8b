//! Every script under `tests/scripts` is played: the counterexamples of the past, and examples for readers.

use std::fs;
use std::path::Path;

use tidegate_oracle::Script;

#[test]
fn every_script_agrees_with_the_oracle() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut played = 0;
    for entry in fs::read_dir(&folder).expect("the folder of scripts") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a script is text");
        let script: Script = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        crate::agrees::check(&script).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        crate::bounds::check(&script).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        played += 1;
    }
    assert!(played >= 8, "only {played} scripts were found in {}", folder.display());
}
