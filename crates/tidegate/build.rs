//! Tells the binary which commit it is built from, where git knows.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    println!("cargo:rerun-if-env-changed=TIDEGATE_COMMIT");
    let asked = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let commit = asked.ok().filter(|output| output.status.success());
    let commit = commit.and_then(|output| String::from_utf8(output.stdout).ok());
    let commit = std::env::var("TIDEGATE_COMMIT").ok().or(commit);
    println!("cargo:rustc-env=TIDEGATE_COMMIT={}", commit.as_deref().map_or("unknown", str::trim));
}
