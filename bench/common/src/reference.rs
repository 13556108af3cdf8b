//! envoyproxy/ratelimit on a store, with one thread that runs Go's code, as a node has one that decides, and with what its documents
//! advise for speed left as it is by default.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::machine::said;
use crate::pin::Cores;
use crate::process::{Process, free_addresses};

/// Until it listens.
const START_MAX: Duration = Duration::from_secs(10);

/// Starts it with the rules that are written into a folder of its own.
pub fn start(
    name: &'static str,
    program: &Path,
    cores: Option<Cores>,
    store: SocketAddr,
    write_rules: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<Process, String> {
    let [grpc, http, debug] = free_addresses()?;
    Process::start_at(name, cores, grpc, START_MAX, |folder| {
        write_rules(&folder.join("runtime/ratelimit/config"))?;
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
        for (name, address) in [("GRPC_PORT", grpc), ("PORT", http), ("DEBUG_PORT", debug)] {
            command.env(name, address.port().to_string());
        }
        Ok(command)
    })
}

/// The version of a program, as Go wrote it into it.
pub fn version(program: &Path) -> String {
    let text = said("go", &["version", "-m", &program.to_string_lossy()]);
    version_in(&text).unwrap_or("unknown").to_string()
}

fn version_in(text: &str) -> Option<&str> {
    let line =
        text.lines().find(|line| line.trim_start().starts_with("mod\tgithub.com/envoyproxy/ratelimit\t"))?;
    line.trim_start().split('\t').nth(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_go_wrote() {
        let text = "service_cmd: go1.26\n\tpath\tgithub.com/envoyproxy/ratelimit/src/service_cmd\n\
                    \tmod\tgithub.com/envoyproxy/ratelimit\tv1.4.1\th1:abc\n";
        assert_eq!(version_in(text), Some("v1.4.1"));
        assert_eq!(version_in(""), None);
    }
}
