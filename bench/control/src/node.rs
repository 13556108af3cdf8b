//! A node with a control plane, in a process of its own, and what is asked of it over HTTP.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::process::{Process, controlled_node_command};
use tidegate_clock::Stopwatch;
use tidegate_testbed::free_port;

/// Until it has read all that is kept.
const READY_MAX: Duration = Duration::from_secs(300);
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Answers are a page of metrics at most.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Everybody has a limit that nobody reaches; who is in the tier has another one.
const RULES: &str = "\
domain: api
descriptors:
  - key: api_key
    rate_limit: { limit: 1000000/1h, name: per-key }
    tiers:
      pro: { limit: 2000000/1h }
";
pub(crate) const DOMAIN: &str = "api";
pub(crate) const TIER: &str = "pro";

/// A node. It ends when this is dropped.
pub(crate) struct Node {
    pub(crate) process: Process,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Node {
    /// Starts it by these flags, in a folder that `fill` is told of before, and waits until it is ready.
    pub(crate) fn start(
        name: &'static str,
        cores: Option<Cores>,
        flags: &[(&str, &str)],
        fill: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<Self, String> {
        let address = || free_port().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let (http, admin) = (address()?, address()?);
        let process = Process::start(name, cores, |folder| {
            let rules = folder.join("rules.yaml");
            std::fs::write(&rules, RULES).map_err(|error| format!("{}: {error}", rules.display()))?;
            fill(&folder.join("data"))?;
            let mut command = controlled_node_command(folder, &rules)?;
            command.args(["--http-listen", &http.to_string(), "--control-listen", &admin.to_string()]);
            for (flag, value) in flags {
                command.arg(format!("--{flag}")).arg(value);
            }
            Ok(command)
        })?;
        let node = Self { process, http, admin };
        let watch = Stopwatch::start();
        while Http::connect(http)?.ask("GET", "/readyz", None, "")?.0 != 200 {
            if watch.elapsed() > READY_MAX {
                return Err(format!("{name} is not ready after {READY_MAX:?}"));
            }
            pause(Duration::from_millis(20));
        }
        Ok(node)
    }

    /// The value of a metric without labels.
    pub(crate) fn metric(&self, name: &str) -> Result<u64, String> {
        let (_, page) = Http::connect(self.http)?.ask("GET", "/metrics", None, "")?;
        let row = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        row.and_then(|value| value.parse().ok()).ok_or_else(|| format!("no metric `{name}`"))
    }
}

/// Waits for other processes, which move no clock of ours.
pub(crate) fn pause(time: Duration) {
    std::thread::park_timeout(time); // Nobody unparks this thread; were it to wake early, it would only look earlier.
}

/// A connection.
pub(crate) struct Http(TcpStream);

impl Http {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self, String> {
        let of = |error: std::io::Error| format!("{address}: {error}");
        let stream = TcpStream::connect_timeout(&address, ANSWER_MAX).map_err(of)?;
        stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(ANSWER_MAX))).map_err(of)?;
        Ok(Self(stream))
    }

    /// Asks, and gives status and body.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> Result<(u16, String), String> {
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let (length, kind) = (body.len(), "content-type: application/json");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: node\r\n{kind}\r\ncontent-length: {length}\r\n{token}\r\n"
        );
        let of = |error: std::io::Error| format!("{path}: {error}");
        self.0.write_all((head + body).as_bytes()).map_err(of)?;
        let mut read = Vec::new();
        loop {
            if let Some(answer) = whole(&read) {
                return Ok(answer);
            }
            let mut bytes = [0; 16_384];
            let count = self.0.read(&mut bytes).map_err(of)?;
            if count == 0 || read.len() > ANSWER_BYTES_MAX {
                return Err(format!("{path}: no answer"));
            }
            read.extend_from_slice(&bytes[..count]);
        }
    }
}

/// Status and body, once all of it was read.
fn whole(read: &[u8]) -> Option<(u16, String)> {
    let end = read.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&read[..end]).ok()?.to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(Some(0), |length| length.trim().parse().ok())?;
    let body = read.get(end..end + length)?;
    Some((status, String::from_utf8_lossy(body).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_when_it_is_all_there() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{\"a\"";
        assert_eq!(whole(answer), Some((200, "{\"a\"".into())));
        assert_eq!(whole(&answer[..answer.len() - 1]), None);
        assert_eq!(whole(b"HTTP/1.1 204 No Content\r\n\r\n"), Some((204, String::new())));
    }
}
