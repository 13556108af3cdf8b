//! Tidegate decides, for every API request, whether its caller may go on.

mod cli; // one file for each verb
mod rule_tests; // what `tidegate test` runs

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
