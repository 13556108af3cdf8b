//! `cargo xtask bench rls`: a node under calls of `ShouldRateLimit`, beside a bare server of tonic that always gives the same answer.
//!
//! Start at [`plan::Plan`], which says what is measured. Every subject is a process of its own on one core ([`server`]), the load comes
//! from this process on another ([`generator`], which speaks HTTP/2 by [`client`]); the subjects take turns ([`measure`]), so that what
//! disturbs the machine disturbs all. [`report`] makes Markdown of the raw numbers.

mod arguments; // what can be asked for
mod plan; // what is measured

mod messages; // the messages of the protocol
mod requests; // the same calls for everybody
mod rules; // what the node goes by

mod bare; // the server with the fixed answer
mod pin; // who runs where
mod server; // a subject in a process of its own

mod client; // one connection
mod generator; // many of them, closed loop and open
mod measure; // the subjects take turns

mod machine; // what it was measured on
mod report; // Markdown from raw numbers
mod results; // the raw numbers

use std::path::Path;
use std::process::ExitCode;

use arguments::{Request, Run};

/// The bare server allocates by what the node allocates by.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = arguments::parse(&words).and_then(|request| match request {
        Request::Run(run) => run_all(run),
        Request::One(one) => measure::one(&one),
        Request::Rules(folder) => rules::write(&folder),
        Request::Child(subject) => bare::serve(subject),
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
    let results = measure::all(&run.scale.plan())?;
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
