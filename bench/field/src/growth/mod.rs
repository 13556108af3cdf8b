//! `cargo xtask bench growth`: what a decision costs as rules, takes and keys become more. Nodes of ours that differ in one number, asked
//! the same in turns; a ratio is to the smallest of its kind, within the round.

mod measure; // they take turns
mod plan; // who grows, and how far
mod report; // Markdown from raw numbers
mod results; // the raw numbers

use crate::arguments::Run;

/// Measures, prints the page, and writes it where it is published if it is to.
pub(crate) fn run(run: Run) -> Result<(), String> {
    let results = measure::all(run.extent)?;
    crate::pages::publish(run.write, "growth", results.json(), report::markdown(&results))
}
