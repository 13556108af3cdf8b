//! Those who are called, each in a process of its own.

use std::process::Command;
use std::time::Duration;

use tidegate_bench_common::machine::said;
use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::process::{Process, child_command, node_command};
use tidegate_testbed::find_reference_server;

use crate::plan::Subject;
use crate::rules;

/// Names the program of envoyproxy/ratelimit, where it is not the one that `cargo xtask test` builds.
pub(crate) use tidegate_testbed::REFERENCE_VARIABLE as REFERENCE;
/// How to have one.
pub(crate) const REFERENCE_BUILD: &str = "go install github.com/envoyproxy/ratelimit/src/service_cmd@latest";
/// Until it listens.
const START_MAX: Duration = Duration::from_secs(10);

/// A node on the store at a URL, or in memory without one. It may wait long for the store: on a busy machine pauses of many milliseconds
/// are usual, and a run with a single call that fails is no run.
pub(crate) fn node(subject: Subject, cores: Option<Cores>, store: Option<&str>) -> Result<Process, String> {
    Process::start(subject.word(), cores, |folder| {
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

/// envoyproxy/ratelimit on the same store, if there is one: with one thread that runs Go's code, as the node has one that decides, and
/// with what its documents advise for speed left as it is by default.
pub(crate) fn reference(
    cores: Option<Cores>,
    store: std::net::SocketAddr,
) -> Result<Option<Process>, String> {
    let Some(program) = find_reference_server()? else { return Ok(None) };
    let [grpc, http, debug] = free_ports()?;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], grpc));
    let process = Process::start_at(Subject::Reference.word(), cores, address, START_MAX, |folder| {
        rules::write_reference(&folder.join("runtime/ratelimit/config"))?;
        let mut command = Command::new(program);
        command.current_dir(folder).env("GOMAXPROCS", "1").env("RUNTIME_ROOT", folder.join("runtime"));
        command.env("REDIS_URL", store.to_string());
        for (name, value) in [
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("RUNTIME_WATCH_ROOT", "false"),
            ("RUNTIME_IGNOREDOTFILES", "true"),
            ("USE_STATSD", "false"),
            ("LOG_LEVEL", "error"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("HOST", "127.0.0.1"),
            ("GRPC_HOST", "127.0.0.1"),
            ("DEBUG_HOST", "127.0.0.1"),
        ] {
            command.env(name, value);
        }
        for (name, port) in [("GRPC_PORT", grpc), ("PORT", http), ("DEBUG_PORT", debug)] {
            command.env(name, port.to_string());
        }
        Ok(command)
    })?;
    Ok(Some(process))
}

/// Its version, as Go wrote it into the program.
pub(crate) fn reference_version() -> Result<Option<String>, String> {
    let Some(program) = find_reference_server()? else { return Ok(None) };
    let text = said("go", &["version", "-m", &program.to_string_lossy()]);
    Ok(Some(reference_version_in(&text).unwrap_or("unknown").to_string()))
}

fn reference_version_in(text: &str) -> Option<&str> {
    let line =
        text.lines().find(|line| line.trim_start().starts_with("mod\tgithub.com/envoyproxy/ratelimit\t"))?;
    line.trim_start().split('\t').nth(2)
}

/// Ports that nobody listens on now.
fn free_ports() -> Result<[u16; 3], String> {
    let port =
        || std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|it| Ok((it.local_addr()?.port(), it)));
    let all = [port(), port(), port()]; // Held until all are known, so that they differ.
    let mut ports = [0; 3];
    for (place, port) in ports.iter_mut().zip(&all) {
        *place = port.as_ref().map_err(|error| format!("no free port: {error}"))?.0;
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_go_wrote() {
        let text = "service_cmd: go1.26\n\tpath\tgithub.com/envoyproxy/ratelimit/src/service_cmd\n\
                    \tmod\tgithub.com/envoyproxy/ratelimit\tv1.4.1\th1:abc\n";
        assert_eq!(reference_version_in(text), Some("v1.4.1"));
        assert_eq!(reference_version_in(""), None);
    }
}
