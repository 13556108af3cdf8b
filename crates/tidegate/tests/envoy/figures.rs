//! What was measured, for the table of `cargo xtask envoy`.

use std::fs::File;
use std::io::Write as _;

use serde_json::json;

const VARIABLE: &str = "TIDEGATE_ENVOY_FIGURES";

/// Is a table made of it? Then what is measured is measured more often.
pub(crate) fn are_wanted() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// Tells what a test measured.
pub(crate) fn tell(test: &str, figure: &str) {
    println!("{test}: {figure}");
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let line = format!("{}\n", json!({ "test": test, "figure": figure }));
    let file = File::options().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("figures can be written");
}
