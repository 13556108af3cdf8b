//! Tidegate decides, for every API request, whether its caller may go on.

mod cli; // one file for each verb
mod node; // a node, put together
mod rule_tests; // what `tidegate test` runs

mod differences; // what changes from some rules to others
mod words; // the words of rule files

use std::process::ExitCode;

/// Decisions allocate little; what they do, they do on all cores at once.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
