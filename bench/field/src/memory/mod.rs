//! `cargo xtask bench memory`: what a caller takes of memory, where 100 000, a million and ten million ask, of everybody in the comparison.
//! One peer at a time, so that ten million fit: all of them at once need more than most machines have.

mod left; // how much the machine has left
mod told; // what a node says of its counters

mod measure; // one after the other
mod plan; // who, and how many callers
mod report; // Markdown from raw numbers
mod results; // the raw numbers

use crate::arguments::Run;

/// Measures, prints the page, and writes it where it is published if it is to.
pub(crate) fn run(run: Run) -> Result<(), String> {
    let results = measure::all(run.extent)?;
    crate::pages::publish(run.write, "memory", results.json(), report::markdown(&results))
}
