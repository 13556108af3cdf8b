//! Those who are called, each in a process of its own.

use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::process::{Entrance, Process, child_command, node_command};
use tidegate_bench_common::reference;
use tidegate_testbed::find_reference_server;

use crate::plan::Subject;
use crate::rules;

/// Names the program of envoyproxy/ratelimit, where it is not the one that `cargo xtask test` builds.
pub(crate) use tidegate_testbed::REFERENCE_VARIABLE as REFERENCE;
/// How to have one.
pub(crate) const REFERENCE_BUILD: &str =
    "go install github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36";

/// A node on the store at a URL, or in memory without one. It may wait long for the store: on a busy machine pauses of many milliseconds
/// are usual, and a run with a single call that fails is no run.
pub(crate) fn node(subject: Subject, cores: Option<Cores>, store: Option<&str>) -> Result<Process, String> {
    Process::start_node(Entrance::Rls, subject.word(), cores, |folder| {
        let rules = folder.join("rules");
        rules::write(&rules)?;
        let mut command = node_command(folder, &rules)?;
        if let Some(url) = store {
            command.args([
                "--store-url",
                url,
                "--store-timeout",
                "5s",
                "--store-connect-timeout",
                "5s",
                "--node-deadline",
                "6s",
            ]);
            command.args(["--defaults-on-store-failure", "error"]);
        }
        Ok(command)
    })
}

/// A server of tonic with a fixed answer.
pub(crate) fn bare(cores: Option<Cores>) -> Result<Process, String> {
    Process::start(Subject::Bare.word(), cores, |_| child_command(&["child"]))
}

/// envoyproxy/ratelimit on the same store, if there is one.
pub(crate) fn reference(
    cores: Option<Cores>,
    store: std::net::SocketAddr,
) -> Result<Option<Process>, String> {
    let Some(program) = find_reference_server()? else { return Ok(None) };
    let name = Subject::Reference.word();
    reference::start(name, &program, cores, store, rules::write_reference).map(Some)
}

/// Its version.
pub(crate) fn reference_version() -> Result<Option<String>, String> {
    Ok(find_reference_server()?.map(|program| reference::version(&program)))
}
