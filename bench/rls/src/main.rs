//! `cargo xtask bench rls`: a node under calls of `ShouldRateLimit`, beside a bare server of tonic that always gives the same answer.
//!
//! Start at [`plan::Plan`], which says what is measured. Every subject is a process of its own on one core ([`server`]), the load comes
//! from this process on another ([`tidegate_bench_common::generator`], which speaks HTTP/2 by hand); the subjects take
//! turns ([`measure`]), so that what
//! disturbs the machine disturbs all. [`report`] makes Markdown of the raw numbers.

mod arguments; // what can be asked for
mod plan; // what is measured

mod requests; // the same calls for everybody
mod rules; // what the node goes by

mod server; // a subject in a process of its own

mod measure; // the subjects take turns

mod machine; // what it was measured on
mod report; // Markdown from raw numbers
mod results; // the raw numbers

use std::path::Path;
use std::process::ExitCode;

use tidegate_bench_common::bare;
use tidegate_bench_common::plan::Run;

use arguments::Request;
use plan::Plan;
use server::Subject;

/// The bare server allocates by what the node allocates by.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = arguments::parse(&words).and_then(|request| match request {
        Request::Run(run) => run_all(run),
        Request::One(one) => measure::one(&one),
        Request::Rules(folder) => rules::write(&folder),
        Request::Child(subject) => match subject {
            Subject::Tidegate => Err("the node is a program of its own".into()),
            Subject::Bare => bare::serve(bare::Kind::CurrentThread),
            Subject::BareMulti => bare::serve(bare::Kind::MultiThread),
        },
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench rls: {message}");
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
    for (name, text) in [("rls.json", json), ("rls.md", markdown)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        std::fs::write(&path, text).map_err(|error| format!("bench/{name} cannot be written: {error}"))?;
        eprintln!("written: bench/{name}");
    }
    Ok(())
}
