//! `cargo xtask bench growth`: what a decision costs as rules, takes and keys become more. Nodes of ours that differ in one number, asked
//! the same in turns; a ratio is to the smallest of its kind, within the round.

mod measure; // they take turns
mod plan; // who grows, and how far
mod report; // Markdown from raw numbers
mod results; // the raw numbers

use crate::arguments::Run;

/// Measures, and prints the page or writes it where it is published.
pub(crate) fn run(run: Run) -> Result<(), String> {
    let results = measure::all(run.extent)?;
    let markdown = report::markdown(&results);
    if !run.write {
        println!("{markdown}");
        return Ok(());
    }
    let json = results.json().map_err(|error| format!("the numbers are no JSON: {error}"))?;
    crate::pages::write(&[("growth.json", json), ("growth.md", markdown)])
}
