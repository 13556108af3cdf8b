//! `cargo xtask bench`: a node beside the others of its kind, over the network, on the same machine in the same run.
//!
//! Start at [`plan::Plan`], which says what is measured, and at [`peers::ALL`], which says who: a file for each. A peer is installed from
//! its registry into the user's cache folder, started on one core, seen refusing at its limit, and called from another core; ours has its
//! turn before and after each of them ([`measure`]). [`report`] makes Markdown and [`plot`] pictures of the raw numbers.

mod arguments; // what can be asked for
mod plan; // what is measured

mod peers; // who is measured, a file for each

use std::process::ExitCode;

use tidegate_bench_common::bare;
use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::store::Store;

use arguments::Request;
use peers::{Install, Site};

/// The bare server allocates by what the node allocates by.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let outcome = arguments::parse(&words).and_then(|request| match request {
        Request::Run(run) => run_all(run),
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

fn run_all(run: arguments::Run) -> Result<(), String> {
    let plan = plan::Plan::of(run.extent);
    let cores = Cores::find();
    let store = Store::start(cores)?;
    for peer in peers::ALL {
        let found = peer.find(Install::No)?;
        let site = Site { program: &found.program, cores, store: &store, keys: plan.keys };
        let process = peer.start(&site)?;
        eprintln!("{} {} listens on {}", peer.title(), found.version, process.address);
    }
    Ok(())
}
