//! `cargo xtask bench accuracy`: how many does everybody admit, against the limit that everybody has?
//!
//! The generator asks for a few keys far more often than their limit allows, and remembers of every admission when it was asked for and
//! when the answer was here ([`measure`]). Somebody outside can tell no more of when it was decided; so what is counted is what lies in a
//! window of the limit's length for certain ([`tidegate_bench_common::windows`]).

mod measure; // everybody in turn
mod report; // Markdown from raw numbers
mod results; // the raw numbers

use crate::arguments::Run;

/// Measures, prints the page, and writes it where it is published if it is to.
pub(crate) fn run(run: Run) -> Result<(), String> {
    let results = measure::all(run.extent)?;
    crate::pages::publish(run.write, "accuracy", results.json(), report::markdown(&results))
}
