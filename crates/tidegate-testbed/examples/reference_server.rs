//! Prints where the reference server is, and builds it first if need be. For `cargo xtask test`, so that no test has to wait for that.

use std::process::ExitCode;

fn main() -> ExitCode {
    match tidegate_testbed::reference_server() {
        Ok(program) => {
            println!("{}", program.display());
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
