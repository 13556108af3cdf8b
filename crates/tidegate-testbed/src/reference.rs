//! The server that ours takes the place of: envoyproxy/ratelimit, built by Go.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::go::GoProgram;

/// Which one. There are no releases; this is the newest commit that Go's registry has.
pub const REFERENCE_VERSION: &str = "v1.4.1-0.20260122083618-3fb702589d36";

/// Names another program, for those who have one.
pub const REFERENCE_VARIABLE: &str = "TIDEGATE_REFERENCE_SERVER";

const PACKAGE: &str = "github.com/envoyproxy/ratelimit/src/service_cmd";
const PROGRAM: &str = "service_cmd";

/// The program of the reference server: named by `TIDEGATE_REFERENCE_SERVER`, else in the project's cache folder
/// (`tidegate` in the user's), where it is built by `go install` if it is not there yet. That takes minutes, once.
pub fn reference_server() -> Result<PathBuf, String> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOUND.get_or_init(|| find_reference_server()?.map_or_else(install, Ok)).clone()
}

/// The same, for those who can do without: nothing is built.
pub fn find_reference_server() -> Result<Option<PathBuf>, String> {
    if let Some(named) = std::env::var_os(REFERENCE_VARIABLE).map(PathBuf::from) {
        return if named.is_file() {
            Ok(Some(named))
        } else {
            Err(format!("{REFERENCE_VARIABLE} names {}, and there is no such file", named.display()))
        };
    }
    Ok(folder().map(|folder| folder.join(PROGRAM)).filter(|program| program.is_file()))
}

/// Its folder, outside the tree and apart from what cargo may clean: it changes less often than anything that is built here.
fn folder() -> Option<PathBuf> {
    Some(cache_folder()?.join("reference-server").join(REFERENCE_VERSION))
}

/// The project's cache folder.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("tidegate"))
}

fn install() -> Result<PathBuf, String> {
    let missing = |reason: String| {
        format!(
            "the reference server (envoyproxy/ratelimit) is missing: {reason}\n\
             with Go 1.25 or later on the PATH it is built by itself; by hand: go install {PACKAGE}@{REFERENCE_VERSION}\n\
             then name the program by {REFERENCE_VARIABLE}"
        )
    };
    let folder = folder().ok_or_else(|| missing("there is no cache folder, since HOME is not set".into()))?;
    GoProgram { package: PACKAGE, version: REFERENCE_VERSION }.build(&folder).map_err(missing)
}
