//! `cargo xtask bench control`: what it costs to know a million callers, and how soon an edit holds on every node.
//!
//! Start at [`plan::Plan`], which says what is measured. [`known`] calls nodes that know no caller, some and very many, in turns: all are
//! asked the same. [`edits`] changes a quota by the API of one of three nodes on a PostgreSQL, and asks all three until it holds.
//! [`report`] makes Markdown of the raw numbers.

mod plan; // what is measured

mod node; // a node with a control plane, in a process of its own
mod known; // nodes that know no caller, some, and very many
mod edits; // from edit to effect

mod report; // Markdown from raw numbers
mod results; // the raw numbers

use std::path::Path;
use std::process::ExitCode;

use tidegate_bench_common::machine;
use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::plan::Run;

use plan::Plan;
use results::{Machine, Results};

const USAGE: &str = "usage: tidegate-bench-control [--quick | --smoke] [--write]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let asked = Run::parse(&words).map_err(|message| format!("{message}\n\n{USAGE}"));
    match asked.and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench control: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Measures all that the plan names and prints it, or writes it where it is published.
fn run(run: Run) -> Result<(), String> {
    let plan = Plan::of(run.scale);
    let cores = Cores::find();
    let machine = Machine {
        cores: machine::cores(), // Before this thread is kept on one core.
        pinned: cores.is_some(),
        cpu: machine::cpu(),
        kernel: machine::kernel(),
        rustc: machine::rustc(),
        commit: machine::commit(),
    };
    let edits = edits::measure(&plan)?;
    let (weights, rows) = known::measure(&plan, cores)?;
    let results = Results {
        scale: run.scale,
        machine,
        asked: plan.asked,
        turns: plan.turns,
        turn_ms: plan.turn.as_millis() as u64,
        weights,
        rows,
        edits,
    };
    let markdown = report::markdown(&results);
    if !run.write {
        println!("{markdown}");
        return Ok(());
    }
    let json = results.json().map_err(|error| format!("the numbers are no JSON: {error}"))?;
    for (name, text) in [("control.json", json), ("control.md", markdown)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        std::fs::write(&path, text).map_err(|error| format!("bench/{name} cannot be written: {error}"))?;
        eprintln!("written: bench/{name}");
    }
    Ok(())
}
