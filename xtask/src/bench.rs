//! `cargo xtask bench`: how fast are we, and how exact? Ten answers, see [`Bench`].
//!
//! Without a name it is the comparison with others of our kind over the network: the package `bench/field`, a workspace of its own; with
//! `--full` all that has a page, one after the other, each as large as it comes ([`WHOLE`]).
//!
//! `steps` counts the instructions of one step of each algorithm and of lookups in the book, beside a committed baseline. Instructions
//! and not time: the count is the same on a busy machine and on an idle one, so a change of one per cent is seen. It still depends on the
//! compiler, so the baseline says which one it was counted with.
//!
//! `core` times the table of counters beside other limiters, `rls` a node under calls beside a bare server, `redis` a node on Redis beside
//! its script alone, `control` what quotas of a million callers cost and how soon an edit holds; the work is done by the packages
//! `bench/core`, `bench/rls`, `bench/redis` and `bench/control`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::{Failure, Outcome, shell, unknown};

/// Instructions by the name of the step.
type Counts = BTreeMap<String, u64>;

const BASELINE: &str = "bench/steps.baseline";
const SAVE: &str = "--save";
const QUICK: &str = "--quick";
const FULL: &str = "--full";
const SMOKE: &str = "--smoke";
const WRITE: &str = "--write";

pub(crate) fn details() -> String {
    let whole = WHOLE.join(", ");
    format!(
        "\nWithout a name: installs the others of our kind into the user's cache folder, starts each, calls each in turn with ours\n\
         between them, and prints Markdown: ratios, absolute figures, goals. Twenty minutes, installs excluded; Linux, two cores.\n  \
         {QUICK}  short turns, three minutes\n  \
         {SMOKE}  with those who are there already: does it run at all?\n  \
         {FULL}   the whole, one after the other: {whole}.\n          \
         Ten million keys, 10 to 100 000 rules, 1 to 10 takes. Hours, and {FULL_GB} GB; what fails is named at the end\n  \
         {WRITE}  write bench/results/field.md, field.json and plots too, to be committed; with {FULL} all pages\n\n\
         field: the same by its name, and nothing else.\n  \
         {FULL}   ten million keys, longer turns, one table of the page after the other: more than an hour, and {FULL_GB} GB\n\n\
         accuracy: asks everybody of that comparison for a few keys far above their limit, without a pause and in bursts at the edge of a\n\
         window, and prints Markdown: what was admitted in the worst window, as a multiple of the limit, beside what is promised. Two\n\
         minutes.\n  \
         {QUICK}  few bursts, a minute\n  \
         {SMOKE}  with those who are there already: does it run at all?\n  \
         {WRITE}  write bench/results/accuracy.md and accuracy.json too, to be committed\n\n\
         strangers: calls a node by generators that we did not write (ghz and h2load over gRPC, wrk over HTTP) in \
         turns with ours, holds what\n\
         each says against what the node counted, accounts for every call of mixed loads, and sends h2spec to every port. Three minutes;\n\
         ghz and h2spec are built by Go into the user's cache folder, once.\n  \
         {QUICK}  short turns, a minute\n  \
         {SMOKE}  with those who are there already: does it run at all?\n  \
         {WRITE}  write bench/results/strangers.md and strangers.json too, to be committed\n\n\
         growth: calls nodes of ours that differ in one number (10 to 100 000 rules, 1 to 10 takes, 100 000 keys and more) in turns, and\n\
         prints Markdown: what a decision costs by the smallest of its kind, memory, and what the first keys after a start wait. Four\n\
         minutes.\n  \
         {QUICK}  short turns, a minute\n  \
         {FULL}   ten million keys\n  \
         {SMOKE}  few of everything: does it run at all?\n  \
         {WRITE}  write bench/results/growth.md and growth.json too, to be committed\n\n\
         memory: starts one server of that comparison after the other, has 100 000, a million and ten million callers ask each once, and\n\
         prints Markdown: resident bytes, what each caller takes of them and of Redis, and what a node says of its counters. Half an\n\
         hour; {MEMORY_GB} GB, and who would leave less than 2 GB is asked for no more and named.\n  \
         {QUICK}  up to a million callers, four minutes\n  \
         {SMOKE}  a thousand, with those who are there already: does it run at all?\n  \
         {WRITE}  write bench/results/memory.md and memory.json too, to be committed\n\n\
         steps: prints a Markdown table of the steps and lookups in bench/benches beside {BASELINE}.\n  \
         {SAVE}   write the counts to that file, to be committed\n\
         It needs valgrind, which is installed where that needs no password, and gungraun-runner, which is built once\n\
         into the target folder.\n\n\
         core: times takes from our table of counters, governor, throttlecrab and Limitador on the same keys in one run, with 100 000 to\n\
         ten million of them, and prints Markdown: ratios, bytes per key, single takes, heavy callers in a flood of new keys, goals.\n\
         Twelve minutes; it needs Linux and 6 GB.\n  \
         {QUICK}  a million keys only, under a minute\n  \
         {SMOKE}  ten thousand keys: does it run at all?\n  \
         {WRITE}  write bench/core.md and bench/core.json, to be committed, instead of printing\n\
         One workload alone, for a profiler:\n  \
         cargo run --release --manifest-path bench/field/Cargo.toml -p tidegate-bench-core -- one \\\n    \
         --subject slot --keys 10000000 --dist uniform --threads 1 --takes 1 --batch 16 --seconds 10\n\n\
         rls: calls a node and a bare server of tonic with a fixed answer in turns, in closed and open loops, and prints Markdown:\n\
         shares, latencies, goals. Four minutes; it needs Linux and two cores.\n  \
         {QUICK}  short turns, under a minute\n  \
         {SMOKE}  does it run at all?\n  \
         {WRITE}  write bench/rls.md and bench/rls.json, to be committed, instead of printing\n\
         One load alone, for a profiler (the node has to be built before: cargo build --release -p tidegate):\n  \
         cargo run --release -p tidegate-bench-rls -- one --subject tidegate --load 2x128 --seconds 10\n\n\
         redis: calls a node on a real Redis, which has to be installed, and sends the same scripts to it without a node, in turns, and\n\
         prints Markdown: decisions per second of each processor, latencies at half load, bytes per key, goals. Ten minutes; Linux and\n\
         two cores. If there is a program of envoyproxy/ratelimit (`cargo xtask test unit` builds one), it is measured beside it.\n  \
         {QUICK}  short turns, two minutes\n  \
         {SMOKE}  does it run at all?\n  \
         {WRITE}  write bench/redis.md and bench/redis.json, to be committed, instead of printing\n\n\
         control: calls nodes that know no caller, ten thousand and a million in turns, and edits a quota that three nodes on a real\n\
         PostgreSQL have to hear of; prints Markdown: shares, bytes per key, times from edit to effect, goals. Eight minutes; Linux, two\n\
         cores, 3 GB on disk.\n  \
         {QUICK}  short turns, three minutes\n  \
         {SMOKE}  few keys: does it run at all?\n  \
         {WRITE}  write bench/control.md and bench/control.json, to be committed, instead of printing"
    )
}

pub(crate) fn run(arguments: &[String]) -> Outcome {
    run_one(parse(arguments)?)
}

/// Everything that has a page, one after the other. A part that fails, after hours perhaps, takes nothing from the others.
fn run_whole(parts: Vec<Bench>) -> Outcome {
    let (count, mut failed) = (parts.len(), Vec::new());
    for (number, (name, part)) in WHOLE.iter().zip(parts).enumerate() {
        eprintln!("\n{name}: {} of {count}\n", number + 1);
        if let Err(Failure::Failed(reason) | Failure::Usage(reason)) = run_one(part) {
            eprintln!("{name}: {reason}");
            failed.push(format!("{name}: {reason}"));
        }
    }
    match failed.len() {
        0 => Ok(()),
        some => Err(Failure::Failed(format!("{some} of {count} failed:\n{}", failed.join("\n")))),
    }
}

fn run_one(bench: Bench) -> Outcome {
    match bench {
        Bench::Whole { parts } => run_whole(parts),
        Bench::Field { flags } => {
            if flags.contains(&FULL) {
                need_memory()?;
            }
            need_peers()?;
            timed(&mut node_command())?;
            timed(&mut field_build()?)?;
            timed(&mut field_command(&flags)?)
        }
        Bench::Accuracy { flags } => {
            shell::need_redis()?;
            timed(&mut node_command())?;
            timed(&mut field_build()?)?;
            timed(&mut field_command(&[&["accuracy"], &flags[..]].concat())?)
        }
        Bench::Strangers { flags } => {
            shell::need_redis()?;
            shell::need_generators();
            timed(&mut node_command())?;
            timed(&mut field_build()?)?;
            timed(&mut field_command(&[&["strangers"], &flags[..]].concat())?)
        }
        Bench::Growth { flags } => {
            shell::need_redis()?;
            timed(&mut node_command())?;
            timed(&mut field_build()?)?;
            timed(&mut field_command(&[&["growth"], &flags[..]].concat())?)
        }
        Bench::Memory { flags } => {
            need_peers()?;
            timed(&mut node_command())?;
            timed(&mut field_build()?)?;
            timed(&mut field_command(&[&["memory"], &flags[..]].concat())?)
        }
        Bench::Steps { save } => steps(&Tools::find()?, save),
        Bench::Core { flags } => timed(&mut core_command(&flags)?),
        Bench::Rls { flags } => {
            // What it says goes to stderr, as all that cargo says.
            timed(&mut node_command())?;
            timed(&mut rls_command(&flags))
        }
        Bench::Redis { flags } => {
            shell::need_redis()?;
            timed(&mut node_command())?;
            timed(&mut redis_command(&flags))
        }
        Bench::Control { flags } => {
            shell::need_postgres()?;
            timed(&mut node_command())?;
            timed(&mut control_command(&flags))
        }
    }
}

/// What can be measured.
#[derive(PartialEq, Debug)]
enum Bench {
    Whole { parts: Vec<Bench> },
    Field { flags: Vec<&'static str> },
    Accuracy { flags: Vec<&'static str> },
    Strangers { flags: Vec<&'static str> },
    Growth { flags: Vec<&'static str> },
    Memory { flags: Vec<&'static str> },
    Steps { save: bool },
    Core { flags: Vec<&'static str> },
    Rls { flags: Vec<&'static str> },
    Redis { flags: Vec<&'static str> },
    Control { flags: Vec<&'static str> },
}

/// What is run without a name,
const FIELD: &str = "field";

/// and with `--full`: all that has a page, those that need more installed last.
const WHOLE: [&str; 9] =
    ["field", "growth", "core", "accuracy", "memory", "strangers", "rls", "redis", "control"];

/// What ten million callers need, by what 100 000 did on the page: gRPC in memory has the most, 12 GB of it Limitador's and 4 GB
/// throttlecrab's, besides a node and the requests.
const FULL_GB: u64 = 20;

/// What the largest of them needs alone: Limitador with ten million callers, and what is to stay free.
const MEMORY_GB: u64 = 15;

/// The benches by name, each with its flags.
const BENCHES: &[(&str, &[&str])] = &[
    (FIELD, &[QUICK, FULL, SMOKE, WRITE]),
    ("accuracy", &[QUICK, SMOKE, WRITE]),
    ("strangers", &[QUICK, SMOKE, WRITE]),
    ("growth", &[QUICK, FULL, SMOKE, WRITE]),
    ("memory", &[QUICK, SMOKE, WRITE]),
    ("steps", &[SAVE]),
    ("core", &[QUICK, SMOKE, WRITE]),
    ("rls", &[QUICK, SMOKE, WRITE]),
    ("redis", &[QUICK, SMOKE, WRITE]),
    ("control", &[QUICK, SMOKE, WRITE]),
];

fn parse(arguments: &[String]) -> Result<Bench, Failure> {
    let is_flag = |argument: &&String| argument.starts_with('-');
    let names: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).collect();
    let mut named = arguments.iter().filter(|argument| !is_flag(argument));
    let first = named.next();
    let name = first.map_or(FIELD, String::as_str);
    let Some((name, known)) = BENCHES.iter().find(|(known, _)| *known == name) else {
        return Err(Failure::Usage(unknown("bench", name, &names)));
    };
    if let Some(more) = named.next() {
        return Err(Failure::Usage(format!("`{more}` is one too many: one bench at a time")));
    }
    let mut flags = Vec::new();
    for argument in arguments.iter().filter(is_flag) {
        match known.iter().find(|flag| *flag == argument) {
            Some(flag) => flags.push(*flag),
            None => return Err(Failure::Usage(unknown("flag", argument, known))),
        }
    }
    if flags.iter().filter(|flag| [QUICK, FULL, SMOKE].contains(flag)).count() > 1 {
        return Err(Failure::Usage(format!("one of {QUICK}, {FULL} and {SMOKE}, not both")));
    }
    if first.is_none() && flags.contains(&FULL) {
        return Ok(Bench::Whole { parts: WHOLE.iter().map(|name| part(name, &flags)).collect() });
    }
    Ok(part(name, &flags))
}

/// A bench by its name, with those of the flags that it knows.
fn part(name: &str, flags: &[&'static str]) -> Bench {
    let known = BENCHES.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, known)| *known);
    let flags: Vec<&'static str> = flags.iter().copied().filter(|flag| known.contains(flag)).collect();
    match name {
        FIELD => Bench::Field { flags },
        "accuracy" => Bench::Accuracy { flags },
        "strangers" => Bench::Strangers { flags },
        "growth" => Bench::Growth { flags },
        "memory" => Bench::Memory { flags },
        "steps" => Bench::Steps { save: !flags.is_empty() },
        "core" => Bench::Core { flags },
        "rls" => Bench::Rls { flags },
        "redis" => Bench::Redis { flags },
        _ => Bench::Control { flags },
    }
}

/// What the others of our kind need besides what they are built by.
fn need_peers() -> Outcome {
    shell::need_redis()?;
    for need in [shell::need_nginx, shell::need_protoc] {
        if let Err(Failure::Failed(reason) | Failure::Usage(reason)) = need() {
            eprintln!("{reason}"); // The page will name who is missing.
        }
    }
    Ok(())
}

/// A machine that runs out of memory ends whom it likes, and perhaps not a bench.
fn need_memory() -> Outcome {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default(); // Elsewhere it does not run anyway.
    match available_gb(&text).filter(|gb| *gb < FULL_GB) {
        Some(gb) => Err(Failure::Failed(format!(
            "ten million keys of everybody need {FULL_GB} GB of memory, and {gb} are free: without {FULL} it is 100 000"
        ))),
        None => Ok(()),
    }
}

/// The line `MemAvailable:   1234 kB`.
fn available_gb(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1_024 / 1_000_000_000)
}

/// Builds and runs a bench that is a program of its own.
fn timed(command: &mut Command) -> Outcome {
    // Not by `shell::run`, which says what it runs: this output is Markdown and may be going to a file.
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Failed(format!("the bench ended with {status}"))),
        Err(error) => Err(Failure::Failed(format!("cargo could not be started: {error}"))),
    }
}

/// The comparison with others, with those who are there, at a size that says nothing about speed; and its tests, built as it is, since
/// that is most of what they take.
pub(crate) fn field_smoke() -> Outcome {
    shell::need_redis()?;
    shell::run(&mut node_command())?;
    shell::run(&mut field_build()?)?;
    shell::run(&mut field_cargo(&["test", "--quiet", "--release", "--workspace"])?)?;
    shell::run_quietly(&mut field_command(&[SMOKE])?)
}

/// How many those admit who are there.
pub(crate) fn accuracy_smoke() -> Outcome {
    shell::need_redis()?;
    shell::run(&mut node_command())?;
    shell::run(&mut field_build()?)?;
    shell::run_quietly(&mut field_command(&["accuracy", SMOKE])?)
}

/// Generators that we did not write, those that are there.
pub(crate) fn strangers_smoke() -> Outcome {
    shell::need_redis()?;
    shell::run(&mut node_command())?;
    shell::run(&mut field_build()?)?;
    shell::run_quietly(&mut field_command(&["strangers", SMOKE])?)
}

/// Nodes that grow, a little.
pub(crate) fn growth_smoke() -> Outcome {
    shell::need_redis()?;
    shell::run(&mut node_command())?;
    shell::run(&mut field_build()?)?;
    shell::run_quietly(&mut field_command(&["growth", SMOKE])?)
}

/// What a few callers take of memory.
pub(crate) fn memory_smoke() -> Outcome {
    shell::need_redis()?;
    shell::run(&mut node_command())?;
    shell::run(&mut field_build()?)?;
    shell::run_quietly(&mut field_command(&["memory", SMOKE])?)
}

/// The bench of the table at a size that says nothing about speed, but that everything in it works.
pub(crate) fn core_smoke() -> Outcome {
    shell::run_quietly(&mut core_command(&[SMOKE])?)
}

/// The same of the bench of calls.
pub(crate) fn rls_smoke() -> Outcome {
    shell::run(&mut node_command())?;
    shell::run_quietly(&mut rls_command(&[SMOKE]))
}

/// The same of the bench of a node on Redis.
pub(crate) fn redis_smoke() -> Outcome {
    shell::need_redis()?;
    shell::run(&mut node_command())?;
    shell::run_quietly(&mut redis_command(&[SMOKE]))
}

/// The same of the bench of the control plane.
pub(crate) fn control_smoke() -> Outcome {
    shell::need_postgres()?;
    shell::run(&mut node_command())?;
    shell::run_quietly(&mut control_command(&[SMOKE]))
}

/// A command of cargo on the workspace of the comparison. What it builds goes where the product is: both depend on much the same.
pub(crate) fn field_cargo(words: &[&str]) -> Result<Command, Failure> {
    let (verb, rest) = words.split_first().ok_or_else(|| Failure::Failed("cargo what?".into()))?;
    let mut command = shell::cargo(&[verb, "--manifest-path=bench/field/Cargo.toml", "--locked"]);
    command.arg("--target-dir").arg(shell::target_folder()?).args(rest);
    Ok(command)
}

fn field_build() -> Result<Command, Failure> {
    field_cargo(&["build", "--quiet", "--release", "--workspace"])
}

fn field_command(flags: &[&str]) -> Result<Command, Failure> {
    let mut command = field_cargo(&["run", "--quiet", "--release", "--package=tidegate-bench-field", "--"])?;
    command.args(flags);
    Ok(command)
}

fn core_command(flags: &[&str]) -> Result<Command, Failure> {
    let mut command = field_cargo(&["run", "--quiet", "--release", "--package=tidegate-bench-core", "--"])?;
    command.args(flags);
    Ok(command)
}

fn rls_command(flags: &[&str]) -> Command {
    let mut command = shell::cargo(&["run", "--quiet", "--release", "--package=tidegate-bench-rls", "--"]);
    command.args(flags);
    command
}

fn redis_command(flags: &[&str]) -> Command {
    let mut command = shell::cargo(&["run", "--quiet", "--release", "--package=tidegate-bench-redis", "--"]);
    command.args(flags);
    command
}

fn control_command(flags: &[&str]) -> Command {
    let mut command =
        shell::cargo(&["run", "--quiet", "--release", "--package=tidegate-bench-control", "--"]);
    command.args(flags);
    command
}

/// The node is built by itself: together with the bench it would get features of libraries that only the bench has use for.
fn node_command() -> Command {
    shell::cargo(&["build", "--quiet", "--release", "--package=tidegate"])
}

/// Counts, prints the table and, if asked to, makes the counts the new baseline.
pub(crate) fn steps(tools: &Tools, save: bool) -> Outcome {
    let counts = count(tools)?;
    let compiler = compiler()?;
    let path = shell::root().join(BASELINE);
    let text = std::fs::read_to_string(&path).unwrap_or_default(); // No file: every step is new.
    let (baseline, counted_with) = parse_baseline(&text)?;
    println!("\n{}", table(&counts, &baseline));
    if let Some(report) = rises(&counts, &baseline) {
        println!("{report}");
    }
    same_for_any_size(&counts)?;
    if let Some(other) = counted_with.filter(|other| *other != compiler) {
        println!(
            "The baseline was counted with {other}, this with {compiler}: small differences mean nothing."
        );
    }
    if save {
        std::fs::write(&path, write_baseline(&counts, &compiler))
            .map_err(|error| Failure::Failed(format!("{BASELINE} cannot be written: {error}")))?;
        println!("Saved to {BASELINE}.");
    }
    Ok(())
}

/// A lookup in a large book may cost at most a fifth more than in a small one. Instructions are no speed, so this can be checked.
fn same_for_any_size(counts: &Counts) -> Outcome {
    let of = |rules| counts.get(&format!("lookup_{rules}_rules")).copied().unwrap_or_default();
    let (small, large) = (of(10), of(100_000));
    if small == 0 || large * 5 > small * 6 {
        return Err(Failure::Failed(format!(
            "a lookup among 100 000 rules takes {large} instructions, among 10 {small}: more than a fifth apart"
        )));
    }
    Ok(())
}

/// What must be there to count instructions.
pub(crate) struct Tools {
    /// The folder of gungraun-runner; it goes to the front of the PATH, where the bench looks for it.
    runner_folder: PathBuf,
    output_folder: PathBuf,
}

impl Tools {
    /// Finds valgrind and the runner, or installs them.
    pub(crate) fn find() -> Result<Self, Failure> {
        shell::need_valgrind()?;
        let target = shell::target_folder()?;
        // The runner must have the very version of the library: one folder for each, so that an update fetches anew.
        let version = gungraun_version()?;
        let tools = target.join("tools").join(format!("gungraun-runner-{version}"));
        let runner_folder = tools.join("bin");
        if !runner_folder.join("gungraun-runner").exists() {
            println!("gungraun-runner {version} is missing, building it: a minute or two, once");
            let mut install =
                shell::cargo(&["install", "gungraun-runner", "--version", &version, "--locked"]);
            // It only starts valgrind and reads what that wrote; unoptimised it builds in half the time.
            install.args(["--debug", "--root"]).arg(&tools).env("CARGO_PROFILE_DEV_DEBUG", "0");
            shell::run(&mut install).map_err(|_| {
                Failure::Failed(format!(
                    "gungraun-runner {version} could not be installed (see above): is the network there?\n\
                     by hand: cargo install gungraun-runner --version {version} --locked --root {}",
                    tools.display()
                ))
            })?;
        }
        Ok(Self { runner_folder, output_folder: target.join("gungraun") })
    }
}

fn gungraun_version() -> Result<String, Failure> {
    let tree = shell::read(&mut shell::cargo(&["tree", "--package=gungraun", "--depth=0", "--prefix=none"]))?;
    let version = tree.split_whitespace().nth(1).and_then(|word| word.strip_prefix('v'));
    version
        .map(String::from)
        .ok_or_else(|| Failure::Failed("`cargo tree` names no version of gungraun".into()))
}

/// The compiler and its target, as the baseline names them.
fn compiler() -> Result<String, Failure> {
    let text = shell::read(&mut shell::program("rustc", &["-vV"]))?;
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("unknown").trim();
    Ok(format!("rustc {} for {}", field("release:"), field("host:")))
}

fn count(tools: &Tools) -> Result<Counts, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(tools.runner_folder.clone()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(folders).map_err(|error| Failure::Failed(format!("PATH: {error}")))?;
    let words = ["bench", "--quiet", "--package=tidegate-bench", "--", "--output-format=json"];
    let mut bench = shell::cargo(&words);
    bench.env("PATH", path).env("GUNGRAUN_HOME", &tools.output_folder);
    parse_counts(&shell::read(&mut bench)?)
}

/// The runner writes one JSON object a line, one for each case.
fn parse_counts(text: &str) -> Result<Counts, Failure> {
    let mut counts = Counts::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let (name, count) = parse_count(line).ok_or_else(|| {
            Failure::Failed(format!("gungraun-runner wrote something new, without a count: {line}"))
        })?;
        counts.insert(name, count);
    }
    if counts.is_empty() {
        return Err(Failure::Failed("gungraun-runner counted nothing".into()));
    }
    Ok(counts)
}

fn parse_count(line: &str) -> Option<(String, u64)> {
    let case: Value = serde_json::from_str(line).ok()?;
    let profiles = case["profiles"].as_array()?;
    let callgrind = profiles.iter().find(|profile| profile["tool"] == "Callgrind")?;
    let count = callgrind["data"]["total"]["metrics"]["Ir"]["values"]["new"].as_u64()?;
    Some((case["id"].as_str()?.to_string(), count))
}

/// The counts of a baseline, and the compiler that its first lines name.
fn parse_baseline(text: &str) -> Result<(Counts, Option<String>), Failure> {
    let mut counts = Counts::new();
    let mut compiler = None;
    for (at, line) in text.lines().enumerate() {
        if let Some(comment) = line.strip_prefix('#') {
            compiler = compiler.or_else(|| comment.trim().strip_prefix("counted with ").map(String::from));
        } else if let Some((name, count)) = line.split_once(' ')
            && let Ok(count) = count.trim().parse()
        {
            counts.insert(name.to_string(), count);
        } else {
            return Err(Failure::Failed(format!("{BASELINE}:{}: not a name and a count: {line}", at + 1)));
        }
    }
    Ok((counts, compiler))
}

fn write_baseline(counts: &Counts, compiler: &str) -> String {
    let mut text = format!(
        "# Instructions of one step or lookup (bench/benches), written by `cargo xtask bench steps --save`.\n\
         # counted with {compiler}\n"
    );
    for (name, count) in counts {
        text += &format!("{name} {count}\n");
    }
    text
}

/// A Markdown table of every step, also those that only the baseline knows.
fn table(counts: &Counts, baseline: &Counts) -> String {
    let mut names: Vec<&String> = counts.keys().chain(baseline.keys()).collect();
    names.sort();
    names.dedup();
    let width = names.iter().map(|name| name.len()).max().unwrap_or(0).max("step".len());
    let mut text = format!("| {:width$} | instructions | baseline | ratio |\n", "step");
    text += &format!("|{}|-------------:|---------:|------:|\n", "-".repeat(width + 2));
    for name in names {
        let (now, before) = (counts.get(name), baseline.get(name));
        let number = |count: Option<&u64>| count.map_or("-".to_string(), u64::to_string);
        let ratio = match (now, before) {
            (Some(now), Some(before)) => format!("{:.3}", *now as f64 / *before as f64),
            (Some(_), None) => "new".into(),
            (None, _) => "gone".into(),
        };
        text += &format!("| {name:width$} | {:>12} | {:>8} | {ratio:>5} |\n", number(now), number(before));
    }
    text
}

/// What takes more instructions than it did by more than this many per cent is told.
const RISE_PERCENT: u64 = 3;

/// Those that do, the worst first; none where none does.
fn rises(counts: &Counts, baseline: &Counts) -> Option<String> {
    let risen = |(name, now): (&String, &u64)| {
        let before = *baseline.get(name)?;
        let is_more = *now * 100 > before * (100 + RISE_PERCENT);
        is_more.then(|| (*now as f64 / before as f64 * 100.0 - 100.0, name.clone()))
    };
    let mut all: Vec<(f64, String)> = counts.iter().filter_map(risen).collect();
    all.sort_by(|one, other| other.0.total_cmp(&one.0));
    let all: Vec<String> = all.iter().map(|(percent, name)| format!("{name} {percent:.0} %")).collect();
    (!all.is_empty())
        .then(|| format!("**More than {RISE_PERCENT} % above the baseline**: {}.", all.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"id":"fixed_window","profiles":[{"tool":"DHAT","data":{}},{"tool":"Callgrind",
        "data":{"total":{"metrics":{"Ir":{"values":{"new":73,"old":80}}}}}}]}"#;

    fn counts(pairs: &[(&str, u64)]) -> Counts {
        pairs.iter().map(|(name, count)| (name.to_string(), *count)).collect()
    }

    fn parsed(line: &str) -> Result<Bench, Failure> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn each_bench_has_its_own_flags() {
        for (line, bench) in [
            ("", Bench::Field { flags: vec![] }),
            ("field --full --write", Bench::Field { flags: vec![FULL, WRITE] }),
            ("accuracy --quick", Bench::Accuracy { flags: vec![QUICK] }),
            ("strangers --write", Bench::Strangers { flags: vec![WRITE] }),
            ("growth --full", Bench::Growth { flags: vec![FULL] }),
            ("memory --quick --write", Bench::Memory { flags: vec![QUICK, WRITE] }),
            ("steps", Bench::Steps { save: false }),
            ("--save steps", Bench::Steps { save: true }),
            ("core", Bench::Core { flags: vec![] }),
            ("core --quick --write", Bench::Core { flags: vec![QUICK, WRITE] }),
            ("rls --smoke", Bench::Rls { flags: vec![SMOKE] }),
            ("redis --quick", Bench::Redis { flags: vec![QUICK] }),
            ("control --smoke", Bench::Control { flags: vec![SMOKE] }),
        ] {
            assert_eq!(parsed(line).expect(line), bench);
        }
        for (line, reason) in [
            ("--quick --full", "not both"),
            ("core --full", "unknown flag `--full`"),
            ("memory --full", "unknown flag `--full`"),
            ("cor", "did you mean `core`?"),
            ("core --save", "unknown flag `--save`"),
            ("core --quik", "did you mean `--quick`?"),
            ("steps --quick", "unknown flag `--quick`"),
            ("rls --save", "unknown flag `--save`"),
            ("core --quick --smoke", "not both"),
            ("core steps", "one too many"),
        ] {
            match parsed(line) {
                Err(Failure::Usage(message)) => assert!(message.contains(reason), "{line}: {message}"),
                other => panic!("`{line}` ended with {other:?}"),
            }
        }
    }

    #[test]
    fn the_whole_is_all_that_has_a_page_and_as_large_as_it_comes() {
        let Ok(Bench::Whole { parts }) = parsed("--full --write") else { panic!("not the whole") };
        let [field, growth, core] = &parts[..3] else { panic!("{parts:?}") };
        assert_eq!(*field, Bench::Field { flags: vec![FULL, WRITE] });
        assert_eq!(*growth, Bench::Growth { flags: vec![FULL, WRITE] });
        assert_eq!(*core, Bench::Core { flags: vec![WRITE] }, "which is as large without a flag");
        let has_page = |(name, flags): &&(&str, &[&str])| flags.contains(&WRITE) && WHOLE.contains(name);
        let written = BENCHES.iter().filter(|(_, flags)| flags.contains(&WRITE)).count();
        assert_eq!((BENCHES.iter().filter(has_page).count(), parts.len()), (written, written));
    }

    #[test]
    fn free_memory_is_read_from_what_linux_writes() {
        assert_eq!(available_gb("MemTotal: 99 kB\nMemAvailable:   19531250 kB\n"), Some(20));
        assert_eq!(available_gb("MemTotal: 99 kB\n"), None);
    }

    #[test]
    fn the_new_count_is_read_from_the_runner() {
        let text = format!("a line for people\n{}\n", LINE.replace('\n', ""));
        assert_eq!(parse_counts(&text).expect("counts"), counts(&[("fixed_window", 73)]));
    }

    #[test]
    fn a_runner_that_counts_nothing_is_a_failure() {
        assert!(parse_counts("").is_err());
        assert!(parse_counts(r#"{"id":"fixed_window","profiles":[]}"#).is_err());
    }

    #[test]
    fn a_lookup_that_grows_with_the_book_is_a_failure() {
        let lookups = |large| counts(&[("lookup_10_rules", 500), ("lookup_100000_rules", large)]);
        assert!(same_for_any_size(&lookups(600)).is_ok());
        assert!(same_for_any_size(&lookups(601)).is_err());
        assert!(same_for_any_size(&counts(&[])).is_err());
    }

    #[test]
    fn a_baseline_reads_back_as_it_was_written() {
        let written = counts(&[("b", 2), ("a", 1)]);
        let (read, compiler) = parse_baseline(&write_baseline(&written, "rustc 1.95.0")).expect("a baseline");
        assert_eq!((read, compiler.as_deref()), (written, Some("rustc 1.95.0")));
    }

    #[test]
    fn a_broken_baseline_is_named_by_its_line() {
        let Err(Failure::Failed(message)) = parse_baseline("a 1\nb many\n") else { panic!("it was taken") };
        assert!(message.starts_with("bench/steps.baseline:2:"), "{message}");
    }

    #[test]
    fn a_rise_of_more_than_three_per_cent_is_told_the_worst_first() {
        let before = counts(&[("a", 100), ("b", 100), ("c", 1_000), ("d", 100)]);
        let now = counts(&[("a", 103), ("b", 104), ("c", 1_200), ("new", 9)]);
        let told = rises(&now, &before).expect("a report");
        assert_eq!(told, "**More than 3 % above the baseline**: c 20 %, b 4 %.");
        assert_eq!(rises(&counts(&[("a", 103), ("d", 90)]), &before), None);
    }

    #[test]
    fn the_table_shows_what_changed_came_and_went() {
        let text =
            table(&counts(&[("cells", 150), ("new_one", 7)]), &counts(&[("cells", 100), ("old_one", 9)]));
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            rows,
            [
                "| cells   |          150 |      100 | 1.500 |",
                "| new_one |            7 |        - |   new |",
                "| old_one |            - |        9 |  gone |",
            ]
        );
    }
}
