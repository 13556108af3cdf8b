//! `cargo xtask run`: a node on embedded defaults, from a fresh clone.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::{Failure, Outcome, shell};

pub(crate) fn details() -> String {
    "\nBuilds Tidegate and runs `tidegate run` in this folder, with whatever flags follow: demo rules, counters in memory,\n\
     RLS on 127.0.0.1:8081, HTTP on 127.0.0.1:8080. It prints a curl to try. Ctrl-C ends it."
        .into()
}

pub(crate) fn run(arguments: &[String]) -> Outcome {
    shell::run(&mut shell::cargo(&["build", "--package=tidegate"]))?;
    let binary = shell::target_folder()?.join("debug/tidegate");
    // In place of this process, so that signals reach the node.
    let error = Command::new(&binary).arg("run").args(arguments).current_dir(shell::root()).exec();
    Err(Failure::Failed(format!("{} could not be started: {error}", binary.display())))
}
