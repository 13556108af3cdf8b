//! `cargo xtask bench`: a node beside the others of its kind, over the network, on the same machine in the same run.
//!
//! Start at [`plan::Plan`], which says what is measured, and at [`peers::ALL`], which says who: a file for each. A peer is installed from
//! its registry into the user's cache folder, started on one core, seen refusing at its limit, and called from another core; ours has its
//! turn before and after each of them ([`measure`]). [`report`] makes Markdown and [`plot`] pictures of the raw numbers.

mod arguments; // what can be asked for
mod plan; // what is measured

mod peers; // who is measured, a file for each
mod subject; // one of them, started and seen refusing

mod measure; // everybody in turn

mod figures; // ratios within rounds
mod goals; // what is to be reached
mod plot; // pictures from raw numbers
mod report; // Markdown from raw numbers
mod results; // the raw numbers

mod accuracy; // how many they admit
mod strangers; // generators that we did not write

mod growth; // what a decision costs as things grow
mod memory; // what a caller takes of memory

mod machine; // what it was measured on
mod pages; // where it is published
mod wait; // for the clock of others

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tidegate_bench_common::bare;

use arguments::{Request, Run};
use plan::Plan;

/// The bare server allocates by what the node allocates by.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = arguments::parse(&words).and_then(|request| match request {
        Request::Run(run) => run_all(run),
        Request::Accuracy(run) => accuracy::run(run),
        Request::Strangers(run) => strangers::run(run),
        Request::Growth(run) => growth::run(run),
        Request::Memory(run) => memory::run(run),
        Request::Bare => bare::serve(bare::Kind::CurrentThread),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Measures all that the plan names and prints it, and writes it where it is published if it is to.
fn run_all(run: Run) -> Result<(), String> {
    let results = measure::all(&Plan::of(run.extent))?;
    pages::publish(run.write, run.extent.name(), results.json(), report::markdown(&results))?;
    if run.write {
        let plots = plot::all(&results);
        let plots: Vec<_> = plots.iter().map(|(name, text)| (&**name, text.clone())).collect();
        pages::write(&plots)?;
    }
    Ok(())
}

/// Where the page, its numbers and its pictures are.
fn published() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join("results")
}
