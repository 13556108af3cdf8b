//! The command line. Start at [`Verb`]: a new verb is a file and a line.

mod config; // rule files: check, show, schema, diff
mod exit; // what the numbers mean
mod output; // tables for people, JSON for machines
mod settings; // every setting as a flag
mod test; // rules, tested
mod words; // the words of rule files

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use exit::Exit;

/// Tidegate: a rate limiter that states its error bound.
#[derive(Parser, Debug)]
#[command(name = "tidegate", version, about, after_help = exit::HELP, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Check, show and compare rule files
    #[command(subcommand)]
    Config(config::Config),
    /// Test rules: requests in, verdicts out, at a time that only the test moves
    Test(test::Test),
}

/// Reads the command line, does what it says, and says how it went.
pub(crate) fn run() -> ExitCode {
    let exit = match Arguments::parse().verb {
        Verb::Config(config) => config.run(),
        Verb::Test(test) => test.run(),
    };
    let exit = exit.unwrap_or_else(|trouble| {
        anstream::eprintln!("tidegate: {trouble}");
        Exit::Failed
    });
    exit.into()
}
