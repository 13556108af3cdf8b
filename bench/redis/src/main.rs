//! `cargo xtask bench redis`: a node whose counters are in Redis, under calls of `ShouldRateLimit`.
//!
//! Start at [`plan::Plan`] and [`plan::Case`], which say what is measured. The store is a real one ([`tidegate_bench_common::store`]), the
//! nodes are the program that users run ([`servers`]). What one of them asks the store is written down
//! ([`tidegate_bench_common::relay`]) and sent once more by a client that does nothing else ([`tidegate_bench_common::plain`]): what the
//! store can do at most. The subjects take turns ([`measure`]); counters are weighed in the store ([`weigh`]). [`report`] makes Markdown
//! of the raw numbers.

mod plan; // what is measured

mod rules; // what the nodes go by
mod servers; // those who are called

mod measure; // the subjects take turns
mod weigh; // what a counter takes of memory

mod report; // Markdown from raw numbers
mod results; // the raw numbers

use std::path::Path;
use std::process::ExitCode;

use tidegate_bench_common::bare;
use tidegate_bench_common::plan::Run;

use plan::Plan;

const USAGE: &str = "usage: tidegate-bench-redis [--quick | --smoke] [--write]";

/// The bare server allocates by what the node allocates by.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match words.first().map(String::as_str) {
        Some("child") => bare::serve(bare::Kind::CurrentThread),
        _ => Run::parse(&words).map_err(|message| format!("{message}\n\n{USAGE}")).and_then(run_all),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench redis: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Measures all that the plan names and prints it, or writes it where it is published.
fn run_all(run: Run) -> Result<(), String> {
    let results = measure::all(&Plan::of(run.scale))?;
    let markdown = report::markdown(&results);
    if !run.write {
        println!("{markdown}");
        return Ok(());
    }
    let json = results.json().map_err(|error| format!("the numbers are no JSON: {error}"))?;
    for (name, text) in [("redis.json", json), ("redis.md", markdown)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        std::fs::write(&path, text).map_err(|error| format!("bench/{name} cannot be written: {error}"))?;
        eprintln!("written: bench/{name}");
    }
    Ok(())
}
