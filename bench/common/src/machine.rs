//! What it was measured on and with.

use std::process::Command;

/// How many cores there are.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The processor.
pub fn cpu() -> String {
    cpu_in(&file("/proc/cpuinfo"))
}

/// The system.
pub fn kernel() -> String {
    format!("{} {}", file("/proc/sys/kernel/ostype"), file("/proc/sys/kernel/osrelease"))
}

fn file(path: &str) -> String {
    std::fs::read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().to_string())
}

fn cpu_in(text: &str) -> String {
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':'))
        .map_or_else(|| "unknown".into(), |(_, name)| name.trim().to_string())
}

/// The version of the compiler.
pub fn rustc() -> String {
    said("rustc", &["--version"]).split_whitespace().nth(1).unwrap_or("unknown").to_string()
}

/// The commit that is checked out, with a plus if there is more than it says. Pages of the benches themselves do not count.
pub fn commit() -> String {
    let commit = said("git", &["rev-parse", "--short=10", "HEAD"]);
    let changed = said(
        "git",
        &[
            "status",
            "--porcelain",
            "--",
            ":/",
            ":(top,exclude)bench/*.md",
            ":(top,exclude)bench/*.json",
            ":(top,exclude)bench/results",
        ],
    );
    match commit.trim() {
        "" => "unknown".into(),
        commit if changed.trim().is_empty() => commit.to_string(),
        commit => format!("{commit}+"),
    }
}

/// What a program says, or nothing.
pub fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// The version of a package that we were built with.
pub fn version(package: &str) -> String {
    const LOCK: &str = include_str!("../../../Cargo.lock");
    let after = LOCK.split_once(&format!("name = \"{package}\"\nversion = \"")).map(|(_, after)| after);
    after.and_then(|after| after.split('"').next()).unwrap_or("unknown").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_read_from_what_linux_writes() {
        assert_eq!(
            cpu_in("processor\t: 0\nmodel name\t: Some Processor @ 2 GHz\n"),
            "Some Processor @ 2 GHz"
        );
        assert_eq!(cpu_in(""), "unknown");
    }

    #[test]
    fn the_versions_of_the_others_are_known() {
        assert!(version("tonic").starts_with("0.") && version("h2").starts_with("0."));
        assert_eq!(version("no-such-package"), "unknown");
    }
}
