//! `cargo xtask accuracy`: every algorithm against an exact log. The work is done by the package `accuracy`.

use crate::{Failure, Outcome, shell};

pub(crate) fn details() -> String {
    String::from(
        "\nPrints Markdown, and fails if a hard claim does not hold (docs/accuracy.md lists them).\n\n  \
         --quick   a short run, for tests\n  \
         --seed N  other random traces\n  \
         --write   write docs/accuracy.md and docs/plots/*.svg instead of printing\n  \
         --plots   write docs/plots/*.svg alone, which takes no time",
    )
}

pub(crate) fn run(arguments: &[String]) -> Outcome {
    // Hundreds of millions of decisions want a release build; the short run is over before one is built.
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let profile = if quick { "--profile=dev" } else { "--profile=release" };
    let mut words = vec!["run", "--quiet", "--package=tidegate-accuracy", profile, "--"];
    words.extend(arguments.iter().map(String::as_str));
    // Not by `shell::run`, which says what it runs: this output is Markdown and may be going to a file.
    match shell::cargo(&words).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Failed(format!("accuracy ended with {status}"))),
        Err(error) => Err(Failure::Failed(format!("cargo could not be started: {error}"))),
    }
}
