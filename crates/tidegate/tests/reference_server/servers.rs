//! Both servers, started in the same way: a program, and variables of its environment.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use tempfile::TempDir;
use tidegate_testbed::{free_port, reference_server};

use crate::rules::MARKER;
use crate::statsd::Statsd;
use crate::support::grpc::{Grpc, SHOULD_RATE_LIMIT};
use crate::support::http::Http;
use crate::support::{asks, descriptor, until};

/// Short, so that a step does not wait long for its stats.
const FLUSH: &str = "10ms";
const LOG_TAIL_LINES: usize = 20;
/// Somebody else may take a port between our look at it and the server's.
const STARTS_MAX: usize = 3;

/// A program that takes the reference server's variables.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    path: PathBuf,
    words: &'static [&'static str],
}

impl Program {
    /// The reference server. Where it cannot be had the tests say so and end, but never where everything is checked (`CI=true`).
    pub(crate) fn reference() -> Option<Self> {
        match reference_server() {
            Ok(path) => Some(Self { name: "theirs", path, words: &[] }),
            Err(reason) if std::env::var("CI").is_ok_and(|ci| ci == "true") => panic!("{reason}"),
            Err(reason) => {
                eprintln!("skipped: {reason}");
                None
            }
        }
    }

    /// Ours, in its place. It may wait long for the store: on a busy machine pauses are longer than its deadline.
    pub(crate) fn ours() -> Self {
        let words = &[
            "ratelimit",
            "--node-deadline",
            "10s",
            "--store-timeout",
            "9s",
            "--store-connect-timeout",
            "5s",
        ];
        Self { name: "ours", path: env!("CARGO_BIN_EXE_tidegate").into(), words }
    }
}

/// A folder with rules, as the reference server is told to find them.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn write(files: &[(&str, String)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("ratelimit/config");
        std::fs::create_dir_all(&config).expect("a folder");
        for (name, text) in files {
            std::fs::write(config.join(name), text).expect("written");
        }
        Self(folder)
    }

    /// Puts a file in place all at once: half a file is none that anybody wrote.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        let beside = self.root().join(name);
        std::fs::write(&beside, text).expect("written");
        std::fs::rename(beside, self.config().join(name)).expect("renamed");
    }

    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.config().join(name)).expect("removed");
    }

    fn config(&self) -> PathBuf {
        self.root().join("ratelimit/config")
    }

    fn root(&self) -> &Path {
        self.0.path()
    }
}

/// A server that runs. It is killed when this is dropped.
pub(crate) struct Running {
    pub(crate) name: &'static str,
    process: Process,
    folder: TempDir,
    http: SocketAddr,
    debug: SocketAddr,
    pub(crate) grpc: Grpc,
    pub(crate) stats: Statsd,
    markers: u64,
}

/// Variables of its environment.
pub(crate) type Variables<'a> = &'a [(&'a str, &'a str)];

impl Running {
    /// Starts it on a store, and waits until it is healthy. Later variables win.
    pub(crate) async fn start(
        program: &Program,
        files: &Files,
        redis: SocketAddr,
        prefix: &str,
        variables: Variables<'_>,
    ) -> Self {
        let mut reasons = Vec::new();
        for _ in 0..STARTS_MAX {
            match Self::try_start(program, files, redis, prefix, variables).await {
                Ok(running) => return running,
                Err(reason) => reasons.push(reason),
            }
        }
        panic!("{} does not start:\n{}", program.name, reasons.join("\n"));
    }

    async fn try_start(
        program: &Program,
        files: &Files,
        redis: SocketAddr,
        prefix: &str,
        variables: Variables<'_>,
    ) -> Result<Self, String> {
        let [http, grpc, debug] = [(); 3].map(|()| free_port());
        let (http, grpc, debug) = (http?, grpc?, debug?);
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let stats = Statsd::start();
        let log = File::create(folder.path().join("log")).map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new(&program.path);
        command.args(program.words).env_clear().current_dir(folder.path());
        for (name, port) in
            [("PORT", http), ("GRPC_PORT", grpc), ("DEBUG_PORT", debug), ("STATSD_PORT", stats.port())]
        {
            command.env(name, port.to_string());
        }
        for name in ["HOST", "GRPC_HOST", "DEBUG_HOST", "STATSD_HOST"] {
            command.env(name, "127.0.0.1");
        }
        command.env("RUNTIME_ROOT", files.root()).env("RUNTIME_SUBDIRECTORY", "ratelimit");
        command.env("RUNTIME_WATCH_ROOT", "false").env("RUNTIME_IGNOREDOTFILES", "true");
        command.env("REDIS_SOCKET_TYPE", "tcp").env("REDIS_URL", redis.to_string());
        command.env("CACHE_KEY_PREFIX", prefix).env("LOG_LEVEL", "warn");
        command.env("USE_STATSD", "true").env("STATS_FLUSH_INTERVAL", FLUSH);
        command.envs(variables.iter().copied());
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
        let mut process = Process(child.map_err(|error| format!("{}: {error}", program.path.display()))?);
        let [http, grpc, debug] =
            [http, grpc, debug].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let healthy = until("the server's health", async || {
            if let Some(status) = process.status() {
                return Some(Err(format!("it ended with {status}: {}", log_tail(folder.path()))));
            }
            let is_open = tokio::net::TcpStream::connect(grpc).await.is_ok();
            is_open.then_some(())?;
            tokio::net::TcpStream::connect(http).await.ok()?;
            (fetch(http, "GET", "/healthcheck", "").await.status == 200).then_some(Ok(()))
        });
        healthy.await?;
        let grpc = Grpc::connect(grpc).await;
        let name = program.name;
        Ok(Self { name, process, folder, http, debug, grpc, stats, markers: 0 })
    }

    /// Waits until all that was counted so far was told. Counters are told one after the other, round by round, and the marker may be
    /// in a round that passed by another counter before that one was raised: `rounds` of 3 leave no doubt.
    pub(crate) async fn settle(&mut self, rounds: usize) {
        let total = format!("ratelimit.service.rate_limit.{MARKER}.{MARKER}.total_hits");
        for _ in 0..rounds {
            let answer = self.grpc.call(SHOULD_RATE_LIMIT, &marker(), &[]).await;
            answer.unwrap_or_else(|error| panic!("{}: {error:?}: {}", self.name, self.log()));
            self.markers += 1;
            until("the stats", async || (self.stats.total(&total) >= self.markers).then_some(())).await;
        }
    }

    /// A page of its HTTP port.
    pub(crate) async fn http(&self, method: &str, path: &str, body: &str) -> Page {
        fetch(self.http, method, path, body).await
    }

    /// A page of the debug port.
    pub(crate) async fn debug(&self, path: &str) -> Page {
        fetch(self.debug, "GET", path, "").await
    }

    /// The end of what it logged.
    pub(crate) fn log(&self) -> String {
        log_tail(self.folder.path())
    }

    /// All that it logged.
    pub(crate) fn whole_log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.path().join("log")).unwrap_or_default()).into()
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self) {
        until("its end", async || self.process.status().map(drop)).await;
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.process.status().is_none()
    }
}

/// A child that is killed when this is dropped.
struct Process(Child);

impl Process {
    fn status(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("a child")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An answer over HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

/// Asks by HTTP/1.0: nobody answers that in chunks, however long the answer is.
async fn fetch(address: SocketAddr, method: &str, path: &str, body: &str) -> Page {
    let mut http = Http::connect(address).await;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.0\r\nhost: node\r\ncontent-length: {length}\r\n\r\n");
    http.send((head + body).as_bytes()).await;
    let answer = String::from_utf8(http.closed().await).expect("a text");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let named = head.lines().filter_map(|line| line.split_once(": "));
    let content_type =
        named.filter(|(name, _)| name.eq_ignore_ascii_case("content-type")).map(|(_, value)| value);
    let content_type = content_type.collect();
    Page { status: status.expect("a status"), content_type, body: body.into() }
}

fn marker() -> Vec<u8> {
    use prost::Message as _;
    asks(MARKER, [descriptor(&[(MARKER, "")])]).encode_to_vec()
}

fn log_tail(folder: &Path) -> String {
    let log = std::fs::read(folder.join("log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of {} ends with:\n{}", self.name, self.log());
        }
    }
}
