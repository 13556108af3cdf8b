//! `cargo xtask test`: every check there is, in groups, the cheapest first. Start at [`GROUPS`].

use std::time::Duration;

use tidegate_clock::Stopwatch;

use crate::{Failure, Outcome, bench, fuzz, image, shell, tidy, unknown};

/// Some checks that belong together and can be run alone.
struct Group {
    name: &'static str,
    about: &'static str,
    run: fn() -> Result<Done, Failure>,
}

/// How a group ended, if it did not fail.
enum Done {
    Passed,
    /// Nothing was found wrong, but not everything could be looked at; says why.
    Skipped(String),
}

const GROUPS: &[Group] = &[
    Group { name: "format", about: "the code is formatted (rustfmt.toml)", run: format },
    Group { name: "lint", about: "clippy has nothing to say (Cargo.toml, clippy.toml)", run: lint },
    Group {
        name: "tidy",
        about: "the text of the repository keeps its rules (xtask/src/tidy.rs)",
        run: tidy,
    },
    Group {
        name: "unit",
        about: "unit, property and documentation tests, some with real Redis, Valkey, PostgreSQL, Envoy and others",
        run: unit,
    },
    Group {
        name: "races",
        about: "the counters in memory under loom, in every order of a few threads, and under Miri",
        run: races,
    },
    Group { name: "fuzz", about: "15 seconds of each target of `cargo xtask fuzz`", run: fuzz },
    Group {
        name: "image",
        about: "a static binary, built with the profile of the tests, runs in an empty root as nobody",
        run: image,
    },
    Group { name: "docs", about: "the documentation builds without a warning", run: docs },
    Group { name: "accuracy", about: "the quick run of `cargo xtask accuracy`", run: accuracy },
    Group {
        name: "bench",
        about: "the benches build and run; counts of instructions, which never fail",
        run: bench,
    },
];

const FAIL_FAST: &str = "--fail-fast";

pub(crate) fn details() -> String {
    let mut text = String::from("\nGroups, in the order they run:\n");
    for group in GROUPS {
        text += &format!("  {:9} {}\n", group.name, group.about);
    }
    text + "\nAll groups run even if one fails, so that one run shows everything; --fail-fast stops at the first.\n\
            What is missing (rustfmt, clippy, nightly with Miri, valgrind, Redis, Valkey, PostgreSQL, Envoy,\n\
            schemathesis, envoyproxy/ratelimit by Go, musl)\n\
            is installed where that needs no password."
}

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let (fail_fast, chosen) = parse(arguments)?;
    let whole = Stopwatch::start();
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    let mut skipped = 0;
    for group in chosen {
        if fail_fast && !failed.is_empty() {
            rows.push(row(group.name, "not run", None));
            continue;
        }
        println!("\n== {}: {}", group.name, group.about);
        let watch = Stopwatch::start();
        let result = (group.run)();
        let took = watch.elapsed();
        let word = match &result {
            Ok(Done::Passed) => "passed".to_string(),
            Ok(Done::Skipped(reason)) => {
                skipped += 1;
                format!("skipped: {}", first_line(reason))
            }
            Err(Failure::Failed(message) | Failure::Usage(message)) => {
                eprintln!("{message}");
                failed.push(group.name);
                "FAILED".to_string()
            }
        };
        println!("== {} {} ({})", group.name, first_word(&word), seconds(took));
        rows.push(row(group.name, &word, Some(took)));
    }
    let total = match (failed.len(), skipped) {
        (0, 0) => "passed".to_string(),
        (0, _) => format!("passed, {skipped} skipped"),
        _ => "FAILED".to_string(),
    };
    rows.push(row("total", &total, Some(whole.elapsed())));
    println!("\n{}", rows.join("\n"));
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "failed: {}\nrepeat {} alone: cargo xtask test {}",
        failed.join(", "),
        if failed.len() == 1 { "it" } else { "them" },
        failed.join(" ")
    )))
}

/// The groups that were named, or all; always in the order of the table, each once.
fn parse(arguments: &[String]) -> Result<(bool, Vec<&'static Group>), Failure> {
    let mut fail_fast = false;
    let mut named = Vec::new();
    for argument in arguments {
        if argument == FAIL_FAST {
            fail_fast = true;
        } else if argument.starts_with('-') {
            return Err(Failure::Usage(unknown("flag", argument, &[FAIL_FAST])));
        } else if GROUPS.iter().any(|group| group.name == argument) {
            named.push(argument.as_str());
        } else {
            let names: Vec<&str> = GROUPS.iter().map(|group| group.name).collect();
            return Err(Failure::Usage(unknown("group", argument, &names)));
        }
    }
    let chosen = GROUPS.iter().filter(|group| named.is_empty() || named.contains(&group.name));
    Ok((fail_fast, chosen.collect()))
}

fn format() -> Result<Done, Failure> {
    shell::need_component("rustfmt", "fmt")?;
    // Two are workspaces of their own.
    for manifest in ["Cargo.toml", "bench/field/Cargo.toml", "fuzz/Cargo.toml"] {
        let path = format!("--manifest-path={manifest}");
        shell::run(&mut shell::cargo(&["fmt", &path, "--all", "--check"])).map_err(
            |failure| match failure {
                Failure::Failed(message) => {
                    Failure::Failed(format!("{message}\nto format everything: cargo fmt {path} --all"))
                }
                usage => usage,
            },
        )?;
    }
    Ok(Done::Passed)
}

fn lint() -> Result<Done, Failure> {
    shell::need_component("clippy", "clippy")?;
    let words = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    shell::run(&mut shell::cargo(&words))?;
    passed(shell::run(&mut bench::field_cargo(&words)?))
}

fn tidy() -> Result<Done, Failure> {
    passed(tidy::run())
}

fn unit() -> Result<Done, Failure> {
    // If one cannot be had, the tests that need it fail and say so again; the others are still of interest.
    for need in [
        shell::need_cc,
        shell::need_redis,
        shell::need_valkey,
        shell::need_postgres,
        shell::need_envoy,
        shell::need_schemathesis,
        shell::need_reference_server,
    ] {
        if let Err(Failure::Failed(reason) | Failure::Usage(reason)) = need() {
            println!("{reason}");
        }
    }
    passed(shell::run(&mut shell::cargo(&["test", "--workspace", "--no-fail-fast"])))
}

/// Each has a target folder of its own: they build everything with other flags, and would throw the ordinary build away.
fn races() -> Result<Done, Failure> {
    let target = shell::target_folder()?;
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut models =
        shell::cargo(&["test", "--profile=models", "--package=tidegate-counters", "--lib", "models"]);
    models.env("RUSTFLAGS", format!("{flags} --cfg loom").trim());
    shell::run(models.env("CARGO_TARGET_DIR", target.join("loom")))?;
    if let Err(Failure::Failed(reason) | Failure::Usage(reason)) = shell::need_miri() {
        println!("{reason}");
        return Ok(Done::Skipped(reason));
    }
    let mut miri = shell::miri(&["test", "--package=tidegate-counters", "--test=stress"]);
    // What is looked for is races. To watch borrows too takes ten times as long, and here they are all the compiler's.
    miri.env("MIRIFLAGS", "-Zmiri-disable-stacked-borrows");
    passed(shell::run(miri.env("CARGO_TARGET_DIR", target.join("miri"))))
}

fn fuzz() -> Result<Done, Failure> {
    if let Err(Failure::Failed(reason) | Failure::Usage(reason)) = shell::need_nightly() {
        println!("{reason}");
        return Ok(Done::Skipped(reason));
    }
    passed(fuzz::brief())
}

fn image() -> Result<Done, Failure> {
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return passed(image::check());
    }
    Ok(Done::Skipped("the image is for Linux on x86-64".into()))
}

fn docs() -> Result<Done, Failure> {
    let flags = std::env::var("RUSTDOCFLAGS").unwrap_or_default();
    let mut doc = shell::cargo(&["doc", "--workspace", "--no-deps"]);
    passed(shell::run(doc.env("RUSTDOCFLAGS", format!("{flags} -D warnings").trim())))
}

fn accuracy() -> Result<Done, Failure> {
    // Its tables are for readers of docs/accuracy.md; here only a failure is of interest.
    passed(shell::run_quietly(&mut shell::cargo(&["xtask", "accuracy", "--quick"])))
}

fn bench() -> Result<Done, Failure> {
    shell::run(&mut shell::cargo(&["bench", "--workspace", "--bench=*", "--no-run"]))?;
    if cfg!(target_os = "linux") {
        bench::core_smoke()?; // Elsewhere nobody tells of memory,
        bench::rls_smoke()?; // or of other processes.
        bench::redis_smoke()?;
        bench::control_smoke()?;
        bench::field_smoke()?;
        bench::accuracy_smoke()?;
        bench::growth_smoke()?;
        bench::memory_smoke()?;
        bench::strangers_smoke()?;
    }
    match bench::Tools::find() {
        Ok(tools) => passed(bench::steps(&tools, false)),
        Err(Failure::Failed(reason) | Failure::Usage(reason)) => {
            println!("{reason}");
            Ok(Done::Skipped(reason))
        }
    }
}

fn passed(outcome: Outcome) -> Result<Done, Failure> {
    outcome.map(|()| Done::Passed)
}

fn row(name: &str, word: &str, took: Option<Duration>) -> String {
    format!("{name:9} {:>8}  {word}", took.map(seconds).unwrap_or_default())
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn first_word(text: &str) -> &str {
    text.split([':', ' ']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &str) -> Vec<&'static str> {
        let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
        let (_, groups) = parse(&arguments).expect("a line that can be read");
        groups.iter().map(|group| group.name).collect()
    }

    #[test]
    fn no_name_means_every_group() {
        assert_eq!(names("").len(), GROUPS.len());
        assert_eq!(names("--fail-fast").len(), GROUPS.len());
    }

    #[test]
    fn named_groups_run_once_and_the_cheapest_first() {
        assert_eq!(names("unit format unit"), ["format", "unit"]);
    }
}
