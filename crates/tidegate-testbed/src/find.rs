//! Where the programs are.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Which store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Redis, 7.0 or later.
    Redis,
    /// Valkey, 8 or later.
    Valkey,
}

impl Kind {
    /// Each of them.
    pub const ALL: [Self; 2] = [Self::Redis, Self::Valkey];

    /// The name of its program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        }
    }

    /// What names another program, for those who have it elsewhere.
    fn variable(self) -> &'static str {
        match self {
            Self::Redis => "TIDEGATE_REDIS_SERVER",
            Self::Valkey => "TIDEGATE_VALKEY_SERVER",
        }
    }
}

/// Folders below `tools` are a few deep: a virtual environment of Python, a package, a platform.
const DEPTH_MAX: usize = 8;

/// The program of a store: named by `TIDEGATE_REDIS_SERVER` or `TIDEGATE_VALKEY_SERVER`, else on the `PATH`, else where `cargo xtask test`
/// puts it, `tools/valkey` in the target folder.
pub fn find(kind: Kind) -> Result<PathBuf, String> {
    static REDIS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    static VALKEY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = match kind {
        Kind::Redis => &REDIS,
        Kind::Valkey => &VALKEY,
    };
    found.get_or_init(|| look(kind)).clone()
}

fn look(kind: Kind) -> Result<PathBuf, String> {
    let (program, variable) = (kind.program(), kind.variable());
    if let Some(named) = named(variable) {
        return named;
    }
    let name = program.strip_suffix("-server").unwrap_or(program);
    on_path(program)
        .or_else(|| in_tools(name, program))
        .ok_or_else(|| format!("{program} is missing: install {program}, or run `cargo xtask test`"))
}

/// The program of Envoy: named by `TIDEGATE_ENVOY`, else where `cargo xtask test` puts it, `tools/envoy` in the target folder, else on the
/// `PATH`, where it may be of any version.
pub fn find_envoy() -> Result<PathBuf, String> {
    if let Some(named) = named("TIDEGATE_ENVOY") {
        return named;
    }
    // Not the script beside it, which Python has for it.
    in_tools("envoy", "_bin/envoy").or_else(|| on_path("envoy")).ok_or_else(|| {
        "envoy is missing: run `cargo xtask envoy`, which installs it, or name the program by TIDEGATE_ENVOY".into()
    })
}

/// The program of schemathesis: named by `TIDEGATE_SCHEMATHESIS`, else where `cargo xtask test` puts it, `tools/schemathesis` in the target
/// folder.
pub fn find_schemathesis() -> Result<PathBuf, String> {
    if let Some(named) = named("TIDEGATE_SCHEMATHESIS") {
        return named;
    }
    in_tools("schemathesis", "bin/schemathesis").ok_or_else(|| {
        "schemathesis is missing: run `cargo xtask test unit`, which installs it, or name the program by TIDEGATE_SCHEMATHESIS".into()
    })
}

/// The program that a variable names, if there is one.
fn named(variable: &str) -> Option<Result<PathBuf, String>> {
    let named = PathBuf::from(std::env::var_os(variable)?);
    Some(if named.is_file() {
        Ok(named)
    } else {
        Err(format!("{variable} names {}, and there is no such file", named.display()))
    })
}

pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Where xtask installs what the system does not have.
fn in_tools(name: &str, program: &str) -> Option<PathBuf> {
    target_folders().iter().find_map(|folder| below(&folder.join("tools").join(name), program, DEPTH_MAX))
}

/// A file of this name, in this folder or below.
fn below(folder: &Path, name: &str, depth_max: usize) -> Option<PathBuf> {
    let file = folder.join(name);
    if file.is_file() {
        return Some(file);
    }
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    // Links are not followed: an environment of Python has some that lead out of it.
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut folders = folders.map(|entry| entry.path());
    folders.find_map(|inner| depth_max.checked_sub(1).and_then(|depth_max| below(&inner, name, depth_max)))
}

/// Where the target folder may be. No variable tells it to a test that runs, but the test's program is in it, unless it is one of the
/// documentation.
fn target_folders() -> Vec<PathBuf> {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let program = std::env::current_exe().unwrap_or_default();
    let around = program.ancestors().skip(1).map(PathBuf::from);
    let usual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    named.into_iter().chain(around).chain([usual]).collect()
}

/// A folder for what is built once and used by many tests.
pub(crate) fn build_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let dependencies = program.ancestors().find(|folder| folder.ends_with("deps"));
    let built = dependencies.and_then(Path::parent).map(Path::to_path_buf);
    built.unwrap_or_else(std::env::temp_dir).join("tidegate-testbed")
}
