//! `cargo xtask fuzz`: rule files that nobody would write and clients that nobody has, until one breaks a promise. The targets and what
//! they check are in `fuzz/`.
//!
//! libFuzzer is linked into each target and the compiler is asked for its counters, as cargo-fuzz does; that program is not needed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, Outcome, shell, unknown};

/// Each target, by the name of its file in `fuzz/fuzz_targets`.
const TARGETS: &[&str] = &["load_rules", "talk_http2", "write_rules"];

/// What inputs are first made from, with all that is below.
const SEEDS: &[&str] = &["examples/rules", "crates/tidegate-config/tests/golden"];

/// The fuzzer learns from which branches were taken. (It can also be shown every comparison, but then it runs at half the speed, and
/// the words that it would find are in its dictionary.)
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table";

/// Bounds of one input: how long it is, how long it may take on a busy machine, and how much memory.
const BOUNDS: &[&str] = &["-max_len=4096", "-timeout=20", "-rss_limit_mb=2048"];

const SECONDS: &str = "--seconds";
const SECONDS_DEFAULT: u64 = 300;
/// In the tests, for each target.
const SECONDS_BRIEF: u64 = 15;
/// A day.
const SECONDS_MAX: u64 = 86_400;

pub(crate) fn details() -> String {
    format!(
        "\nTargets: {}. Without a name, all of them run, one after the other, each for {SECONDS_DEFAULT} seconds.\n\n  \
         {SECONDS} N  another time for each\n  \
         INPUT        a file that was found before: is checked, and shown, alone\n\n\
         Inputs that reached something new are kept in the target folder, and the next run goes on from there.\n\
         It needs a nightly compiler, which is installed if rustup is there, and a C++ compiler.",
        TARGETS.join(", ")
    )
}

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let Fuzz { seconds, target, input } = parse(arguments)?;
    let tools = Tools::build()?;
    if let (Some(target), Some(input)) = (target, &input) {
        return tools.replay(target, input);
    }
    for name in TARGETS.iter().filter(|name| target.is_none_or(|target| target == **name)) {
        tools.fuzz(name, "corpus", &[&format!("-max_total_time={seconds}")], shell::run)?;
    }
    Ok(())
}

/// A short run from the same start every time.
pub(crate) fn brief() -> Outcome {
    let tools = Tools::build()?;
    let corpora = tools.folder.join("brief");
    if corpora.exists() {
        fs::remove_dir_all(&corpora).map_err(|error| trouble(&corpora, &error))?;
    }
    let time = format!("-max_total_time={SECONDS_BRIEF}");
    TARGETS
        .iter()
        .try_for_each(|name| tools.fuzz(name, "brief", &["-seed=1", "-verbosity=0", &time], run_briefly))
}

/// Runs the fuzzer, and tells of all that it says only how far it came; everything if it failed.
fn run_briefly(command: &mut Command) -> Outcome {
    let (outcome, said) = shell::listen(command);
    let counts = |line: &&str| line.starts_with("stat::") || line.contains(" files found in ");
    said.lines().filter(|line| outcome.is_err() || counts(line)).for_each(|line| println!("{line}"));
    outcome
}

/// What is asked for.
#[derive(PartialEq, Debug)]
struct Fuzz {
    seconds: u64,
    target: Option<&'static str>,
    input: Option<PathBuf>,
}

fn parse(arguments: &[String]) -> Result<Fuzz, Failure> {
    let mut fuzz = Fuzz { seconds: SECONDS_DEFAULT, target: None, input: None };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if argument == SECONDS {
            let number = arguments.next().and_then(|number| number.parse().ok());
            fuzz.seconds = number.filter(|number| (1..=SECONDS_MAX).contains(number)).ok_or_else(|| {
                Failure::Usage(format!(
                    "{SECONDS} takes a number from 1 to {SECONDS_MAX}, such as {SECONDS} 600"
                ))
            })?;
        } else if argument.starts_with('-') {
            return Err(Failure::Usage(unknown("flag", argument, &[SECONDS])));
        } else if fuzz.target.is_none() {
            let known = TARGETS.iter().find(|known| *known == argument);
            fuzz.target = Some(known.ok_or_else(|| Failure::Usage(unknown("target", argument, TARGETS)))?);
        } else if fuzz.input.is_none() {
            fuzz.input = Some(argument.into());
        } else {
            return Err(Failure::Usage(format!("`{argument}` is one too many: one input at a time")));
        }
    }
    Ok(fuzz)
}

/// The targets, built.
struct Tools {
    /// What is built and found, apart from the ordinary build: it has other flags.
    folder: PathBuf,
}

impl Tools {
    fn build() -> Result<Self, Failure> {
        shell::need_nightly()?;
        let tools = Self { folder: shell::target_folder()?.join("fuzz") };
        shell::run(&mut tools.cargo("build", &[])).map_err(|failure| match failure {
            Failure::Failed(message) => Failure::Failed(format!(
                "{message}\nif fuzz/Cargo.lock is behind: cargo update --workspace --manifest-path fuzz/Cargo.toml\n\
                 if a C++ compiler is missing: install g++ or clang"
            )),
            usage => usage,
        })?;
        Ok(tools)
    }

    /// A command of cargo on the package of targets. For a named system, even if it is this one: otherwise build scripts would be
    /// given the flags too.
    fn cargo(&self, verb: &str, more: &[&str]) -> Command {
        let words = ["--release", "--locked", "--manifest-path=fuzz/Cargo.toml", "--target=host-tuple"];
        let mut cargo = shell::nightly(&[&["cargo", verb], &words[..], more].concat());
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        cargo.env("RUSTFLAGS", format!("{flags} {FLAGS}").trim()).env("CARGO_TARGET_DIR", &self.folder);
        cargo
    }

    /// Runs a target until its time is over or an input breaks it.
    fn fuzz(&self, name: &str, corpora: &str, options: &[&str], run: fn(&mut Command) -> Outcome) -> Outcome {
        let (corpus, found) = (self.folder.join(corpora).join(name), self.folder.join("found"));
        for folder in [&corpus, &found] {
            fs::create_dir_all(folder).map_err(|error| trouble(folder, &error))?;
        }
        let known = files(&found);
        let mut command = self.cargo("run", &["--quiet", "--bin", name, "--"]);
        command.args(options).args(BOUNDS).args([
            "-dict=fuzz/rules.dict",
            "-print_final_stats=1",
            "-print_funcs=0",
        ]);
        command.arg(format!("-artifact_prefix={}", found.join(format!("{name}-")).display()));
        let outcome = run(command.arg(corpus).args(SEEDS));
        let new = files(&found).into_iter().filter(|file| !known.contains(file));
        let new: Vec<String> =
            new.map(|file| format!("cargo xtask fuzz {name} {}", file.display())).collect();
        match outcome {
            Err(Failure::Failed(message)) if !new.is_empty() => Err(Failure::Failed(format!(
                "{message}\n{name} found an input that breaks a promise (see above); to see it alone:\n  {}\n\
                 once it is mended, keep it as a case: of rules, the text that is shown there in crates/tidegate-config/tests/golden",
                new.join("\n  ")
            ))),
            outcome => outcome,
        }
    }

    fn replay(&self, name: &str, input: &Path) -> Outcome {
        let input = std::path::absolute(input).map_err(|error| trouble(input, &error))?;
        let mut command = self.cargo("run", &["--quiet", "--bin", name, "--"]);
        command.env("TIDEGATE_FUZZ_SHOW", "1").env("RUST_BACKTRACE", "1");
        shell::run(command.args(BOUNDS).arg(input))
    }
}

fn files(folder: &Path) -> BTreeSet<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn trouble(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Fuzz, Failure> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn time_target_and_input_are_read() {
        for (line, seconds, target, input) in [
            ("", SECONDS_DEFAULT, None, None),
            ("--seconds 20", 20, None, None),
            ("load_rules --seconds 20", 20, Some("load_rules"), None),
            ("load_rules a.yaml", SECONDS_DEFAULT, Some("load_rules"), Some(PathBuf::from("a.yaml"))),
        ] {
            let fuzz = parsed(line).expect("a line that can be read");
            assert_eq!(fuzz, Fuzz { seconds, target, input }, "{line}");
        }
        for line in ["--seconds", "--seconds 0", "--seconds x", "--second 5", "load_rule", "load_rules a b"] {
            assert!(matches!(parsed(line), Err(Failure::Usage(_))), "{line}");
        }
    }

    #[test]
    fn every_target_has_a_file_and_every_file_is_a_target() {
        let named = |file: PathBuf| file.file_stem().map(|name| name.to_string_lossy().into_owned());
        let found: Vec<String> =
            files(&shell::root().join("fuzz/fuzz_targets")).into_iter().filter_map(named).collect();
        assert_eq!(found, TARGETS);
        for seeds in SEEDS {
            assert!(!files(&shell::root().join(seeds)).is_empty(), "nothing in {seeds}");
        }
    }
}
