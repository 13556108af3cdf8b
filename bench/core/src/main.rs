//! `cargo xtask bench core`: our table of counters beside the limiters that others use in Rust, on the same keys in the same run.
//!
//! Start at [`plan::Plan`], which says what is measured. Every subject lives in a process of its own ([`child`]), so that its memory can
//! be told; the processes take turns ([`measure`]), so that what disturbs the machine disturbs all. [`report`] makes Markdown of the raw
//! numbers.

mod arguments; // what can be asked for
mod plan; // what is measured

mod keys; // the same keys for everybody
mod subject; // who is measured

mod ours; // our table
mod peers; // the others

mod child; // a subject in a process of its own
mod measure; // the processes take turns
mod flood; // a heavy caller among a flood of new keys

mod machine; // what it was measured on
mod report; // Markdown from raw numbers
mod results; // the raw numbers

use std::path::Path;
use std::process::ExitCode;

use arguments::{Request, Run};
use plan::Scale;

/// Everybody allocates by the same allocator, the one that the node has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = arguments::parse(&words).and_then(|request| match request {
        Request::Run(run) => run_all(run),
        Request::Flood => flood_alone(),
        Request::One(one) => child::one(&one),
        Request::Child { subject, keys, draws } => child::serve(subject, keys, draws),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench core: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Plays the floods of the whole bench and prints how the heavy callers fared.
fn flood_alone() -> Result<(), String> {
    for row in flood::measure(&Scale::Full.plan().flood)? {
        let ratio = |admitted: u64, exact: u64| admitted as f64 / exact.max(1) as f64;
        let (all, worst) = (ratio(row.admitted, row.exact), ratio(row.worst_admitted, row.worst_exact));
        let (heavy, kind) = (&row.heavy, row.kind.title());
        println!("{heavy:15} {kind:25} {:3} tables  {all:.4} [{worst:.3}]", row.table_fulls);
    }
    Ok(())
}

/// Measures all that the plan names and prints it, or writes it where it is published.
fn run_all(run: Run) -> Result<(), String> {
    let plan = run.scale.plan();
    let mut results = measure::speed_and_memory(&plan)?;
    results.flood = flood::measure(&plan.flood)?;
    let markdown = report::markdown(&results);
    if !run.write {
        println!("{markdown}");
        return Ok(());
    }
    let json = results.json().map_err(|error| format!("the numbers are no JSON: {error}"))?;
    for (name, text) in [("core.json", json), ("core.md", markdown)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        std::fs::write(&path, text).map_err(|error| format!("bench/{name} cannot be written: {error}"))?;
        eprintln!("written: bench/{name}");
    }
    Ok(())
}
