//! Limitador's library in a thin server of ours (`bench/field/limitador`): its own server is in no registry.
//!
//! As it is published, its storage in Redis does not compile without the one on disk, which is RocksDB: a module and a function that both
//! use are compiled for the latter only. For the peer on Redis a copy of the library is made in the cache folder, in which those two
//! conditions are missing; nothing that runs is changed.

use std::path::{Path, PathBuf};
use std::process::Command;

use tidegate_bench_common::process::{Process, sibling};
use tidegate_bench_common::requests::Requests;

use super::{Family, Found, Install, Peer, Rule, Site, cache, push_rls};

/// As in the manifest of the server.
const VERSION: &str = "0.14.0";
const SERVER: &str = "tidegate-bench-limitador";
/// What keeps it from compiling: a condition, the file where it stands, and what it is about.
const ONLY_ON_DISK: &str = "#[cfg(feature = \"disk_storage\")]";
const NEEDED: [(&str, &str); 2] =
    [("src/storage/keys.rs", "pub mod bin {"), ("src/counter.rs", "pub(crate) fn variables_for_key(")];

/// Counters in its memory.
pub(crate) struct Memory;

/// Counters in Redis.
pub(crate) struct Redis;

impl Peer for Memory {
    fn word(&self) -> &'static str {
        "limitador"
    }

    fn title(&self) -> &'static str {
        "Limitador (library)"
    }

    fn algorithm(&self) -> &'static str {
        "fixed window"
    }

    fn family(&self) -> Family {
        Family::Memory
    }

    fn find(&self, _: Install) -> Result<Found, String> {
        Ok(Found { program: sibling(SERVER)?, version: VERSION.into() })
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        // Room for twice as many counters as there are callers: each of the two limits has its own.
        start(self.word(), site, ["memory".into(), (u64::from(site.keys) * 2).to_string()])
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str, cost: u32) {
        push_rls(requests, rule, caller, cost);
    }
}

impl Peer for Redis {
    fn word(&self) -> &'static str {
        "limitador_redis"
    }

    fn title(&self) -> &'static str {
        "Limitador (library), Redis"
    }

    fn algorithm(&self) -> &'static str {
        "fixed window"
    }

    fn family(&self) -> Family {
        Family::Redis
    }

    fn find(&self, install: Install) -> Result<Found, String> {
        let folder = cache::folder("limitador-redis", VERSION)?;
        let program = folder.join(SERVER);
        if !program.is_file() {
            match install {
                Install::Yes => build(&folder)?,
                Install::No => return Err("it is not built, and nothing is now".into()),
            }
        }
        Ok(Found {
            program,
            version: format!("{VERSION}, two conditions removed so that it compiles without RocksDB"),
        })
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        start(self.word(), site, ["redis".into(), site.store.server().url()])
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str, cost: u32) {
        push_rls(requests, rule, caller, cost);
    }
}

fn start(name: &'static str, site: &Site<'_>, storage: [String; 2]) -> Result<Process, String> {
    Process::start(name, site.cores, |folder| {
        let mut command = Command::new(site.program);
        command.current_dir(folder).args(storage);
        for rule in Rule::ALL {
            command.arg(format!("{}={}/{}", rule.word(), rule.amount(), rule.seconds()));
        }
        Ok(command)
    })
}

/// Builds the server with the copy, beside its place, and moves it there when it is whole.
fn build(folder: &Path) -> Result<(), String> {
    let of = |what: &str, error: std::io::Error| format!("{what}: {error}");
    let (library, server) = (folder.join("library"), folder.join("server"));
    copy(&published()?, &library).map_err(|error| of("the library cannot be copied", error))?;
    for (file, what) in NEEDED {
        let path = library.join(file);
        let text = std::fs::read_to_string(&path).map_err(|error| of(file, error))?;
        let text = mended(&text, what)
            .ok_or_else(|| format!("{file} is not as it was: perhaps it compiles by itself now"))?;
        std::fs::write(&path, text).map_err(|error| of(file, error))?;
    }
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("limitador");
    copy(&ours, &server).map_err(|error| of("the server cannot be copied", error))?;
    let manifest =
        std::fs::read_to_string(ours.join("Cargo.toml")).map_err(|error| of("the manifest", error))?;
    let manifest = manifest_beside(&manifest, &ours.join("../../common"));
    std::fs::write(server.join("Cargo.toml"), manifest).map_err(|error| of("the manifest", error))?;
    let mut command = cache::cargo();
    command.args(["build", "--quiet", "--release", "--features", "redis"]);
    command.arg("--target-dir").arg(folder.join("target")).current_dir(&server);
    cache::run("Limitador's library with its storage in Redis", &mut command)?;
    let built = folder.join("target").join("release").join(SERVER);
    std::fs::rename(built, folder.join(SERVER)).map_err(|error| of("it cannot be moved", error))
}

/// Without the condition before `what`.
fn mended(text: &str, what: &str) -> Option<String> {
    let (before, after) = text.split_once(what)?;
    let before = before.trim_end().strip_suffix(ONLY_ON_DISK)?;
    Some([before, what, after].concat())
}

/// Where cargo keeps the library as it was published.
fn published() -> Result<PathBuf, String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("limitador").join("Cargo.toml");
    let mut command = cache::cargo();
    command.args(["metadata", "--format-version=1", "--manifest-path"]).arg(manifest);
    let output = command.output().map_err(|error| format!("cargo does not start: {error}"))?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("`cargo metadata` is not JSON: {error}"))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut found =
        packages.filter(|package| package["name"] == "limitador" && package["version"] == VERSION);
    let manifest = found.next().and_then(|package| package["manifest_path"].as_str());
    let folder = manifest.and_then(|manifest| Path::new(manifest).parent());
    folder.map(Path::to_path_buf).ok_or_else(|| format!("cargo knows no limitador {VERSION}"))
}

/// The manifest of the server, for a place outside the tree, with the copy in the place of the library.
fn manifest_beside(manifest: &str, common: &Path) -> String {
    let common = format!("path = \"{}\"", common.display());
    let alone = "[workspace]\n\n[patch.crates-io]\nlimitador = { path = \"../library\" }\n\n\
                 [profile.release]\nlto = \"thin\"\ncodegen-units = 1\n";
    manifest.replace("path = \"../../common\"", &common).replace("[lints]\nworkspace = true\n", alone)
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&source, &target)?;
        } else {
            std::fs::copy(&source, &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_condition_before_what_is_needed_goes() {
        let text = "#[cfg(feature = \"disk_storage\")]\nmod a {}\n    #[cfg(feature = \"disk_storage\")]\n    mod b {}\n";
        let mended_b = "#[cfg(feature = \"disk_storage\")]\nmod a {}\n    mod b {}\n";
        assert_eq!(mended(text, "mod b {").as_deref(), Some(mended_b));
        assert_eq!(mended(mended_b, "mod b {"), None, "it is mended already");
        assert_eq!(mended(text, "mod c {"), None);
    }

    #[test]
    fn the_manifest_of_the_copy_names_the_copy_and_nothing_in_the_tree_by_half() {
        let manifest = manifest_beside(include_str!("../../limitador/Cargo.toml"), Path::new("/tree/common"));
        assert!(manifest.contains("tidegate-bench-common = { path = \"/tree/common\" }"), "{manifest}");
        assert!(manifest.contains("limitador = { path = \"../library\" }"), "{manifest}");
        assert!(!manifest.contains("lints"), "{manifest}");
        assert!(manifest.contains(&format!("limitador = {{ version = \"={VERSION}\"")), "{manifest}");
    }
}
