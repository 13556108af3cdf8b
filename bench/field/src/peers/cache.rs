//! Where peers are installed: in the project's folder of the user's cache, apart from the tree and from what cargo may clean.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Beside what tests keep there.
const PEERS: &str = "peers";

/// The folder of one version of one peer; it need not be there.
pub(super) fn folder(name: &str, version: &str) -> Result<PathBuf, String> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    let cache = cache.ok_or("there is no cache folder, since HOME is not set")?;
    Ok(cache.join("tidegate").join(PEERS).join(format!("{name}-{version}")))
}

/// Runs what installs a peer; what it says goes to the terminal's errors.
pub(super) fn run(what: &str, command: &mut Command) -> Result<(), String> {
    eprintln!("installing {what}, once");
    let program = Path::new(command.get_program()).display().to_string();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{what} could not be installed: {program} ended with {status}")),
        Err(error) => Err(format!("{what} could not be installed: {program} does not start: {error}")),
    }
}

/// The cargo that runs us.
pub(super) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // A build of its own, whatever we were built with.
    command.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS");
    command
}
