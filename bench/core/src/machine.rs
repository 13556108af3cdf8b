//! What it was measured on and with.

use std::process::Command;

use crate::results::Machine;

pub(crate) fn here() -> Machine {
    Machine {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        cpu: cpu(&file("/proc/cpuinfo")),
        kernel: format!("{} {}", file("/proc/sys/kernel/ostype"), file("/proc/sys/kernel/osrelease")),
        huge_pages: chosen(&file("/sys/kernel/mm/transparent_hugepage/enabled")),
        rustc: rustc(),
        governor: version("governor"),
        throttlecrab: version("throttlecrab"),
        limitador: version("limitador"),
        mimalloc: version("mimalloc"),
    }
}

fn file(path: &str) -> String {
    std::fs::read_to_string(path).map_or_else(|_| "unknown".into(), |text| text.trim().to_string())
}

fn cpu(text: &str) -> String {
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':'))
        .map_or_else(|| "unknown".into(), |(_, name)| name.trim().to_string())
}

/// The word in brackets: `always [madvise] never`.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or_else(|| "unknown".into(), |(word, _)| word.to_string())
}

fn rustc() -> String {
    let output = Command::new("rustc").arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.split_whitespace().nth(1).unwrap_or("unknown").to_string()
}

/// The version that we were built with.
fn version(package: &str) -> String {
    const LOCK: &str = include_str!("../../field/Cargo.lock");
    let after = LOCK.split_once(&format!("name = \"{package}\"\nversion = \"")).map(|(_, after)| after);
    after.and_then(|after| after.split('"').next()).unwrap_or("unknown").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_read_from_what_linux_writes() {
        assert_eq!(cpu("processor\t: 0\nmodel name\t: Some Processor @ 2 GHz\n"), "Some Processor @ 2 GHz");
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!((cpu("").as_str(), chosen("").as_str()), ("unknown", "unknown"));
    }

    #[test]
    fn the_versions_of_the_others_are_known() {
        for package in ["governor", "throttlecrab", "limitador"] {
            assert!(version(package).starts_with("0."), "{package}");
        }
        assert_eq!(version("no-such-package"), "unknown");
    }
}
