//! Envoy's process.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_testbed::{find_envoy, free_port};

use crate::config::{self, Manners, Ports};
use crate::support::{Http, SOON, soon};

/// Somebody else may take a port between our look at it and Envoy's.
const STARTS_MAX: usize = 5;
const LOG_TAIL_LINES: usize = 30;

/// An Envoy that runs. It is killed when this is dropped.
pub(crate) struct Envoy {
    child: Child,
    folder: TempDir,
    ports: Ports,
}

/// Which of its doors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Door {
    /// Lets requests pass that nobody decides about.
    Open,
    /// Stops them.
    Closed,
    /// Asks nobody.
    Bare,
}

/// Where Envoy is; none where it cannot be had, which only a build server must not put up with.
pub(crate) fn program() -> Option<PathBuf> {
    match find_envoy() {
        Ok(program) => Some(program),
        Err(reason) if std::env::var_os("CI").is_some_and(|ci| ci == "true") => panic!("{reason}"),
        Err(reason) => {
            println!("skipped: {reason}");
            None
        }
    }
}

impl Envoy {
    /// Starts one in front of these, and waits until it answers.
    pub(crate) async fn start(
        program: PathBuf,
        upstream: SocketAddr,
        nodes: &[String],
        manners: Manners,
    ) -> Self {
        for _ in 0..STARTS_MAX {
            let mut envoy = Self::spawn(&program, upstream, nodes, manners);
            if envoy.is_up().await {
                return envoy;
            }
            assert!(envoy.log().contains("Address already in use"), "Envoy does not start:\n{}", envoy.log());
        }
        panic!("no ports for Envoy");
    }

    fn spawn(program: &Path, upstream: SocketAddr, nodes: &[String], manners: Manners) -> Self {
        let folder = tempfile::Builder::new().prefix("envoy").tempdir().expect("a folder");
        let port = || free_port().unwrap_or_else(|error| panic!("{error}"));
        let ports = Ports { admin: port(), open: port(), closed: port(), bare: port() };
        let path = |name: &str| folder.path().join(name);
        let text = config::envoy(&ports, upstream, nodes, manners, &path("access"));
        std::fs::write(path("envoy.yaml"), text).expect("written");
        let log = File::create(path("log")).expect("a file");
        let errors = log.try_clone().expect("a file");
        let mut command = Command::new(program);
        command.arg("--config-path").arg(path("envoy.yaml")).current_dir(folder.path());
        command.args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warn"]);
        command.args(["--file-flush-interval-msec", "50"]); // Else what happened is in the access log after ten seconds.
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("Envoy");
        Self { child, folder, ports }
    }

    /// Waits until it serves; false if it ends instead.
    async fn is_up(&mut self) -> bool {
        let up = async {
            loop {
                if self.child.try_wait().expect("a child").is_some() {
                    return false;
                }
                if self.admin("/ready").await.contains("LIVE") {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(SOON, up).await.unwrap_or(false)
    }

    pub(crate) fn address(&self, door: Door) -> SocketAddr {
        let port = match door {
            Door::Open => self.ports.open,
            Door::Closed => self.ports.closed,
            Door::Bare => self.ports.bare,
        };
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    /// One of its own numbers; 0 if it has counted nothing there yet.
    pub(crate) async fn stat(&self, name: &str) -> u64 {
        let page = self.admin(&format!("/stats?filter=^{name}$")).await;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.map_or(0, |number| number.trim().parse().unwrap_or_else(|_| panic!("{page}")))
    }

    /// What it wrote of each request.
    pub(crate) fn access_log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("access")).unwrap_or_default()
    }

    /// A page for operators, with its head; empty if nobody answers.
    async fn admin(&self, path: &str) -> String {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports.admin));
        let Ok(stream) = soon("a connection", tokio::net::TcpStream::connect(address)).await else {
            return String::new();
        };
        let mut http = Http::over(stream);
        http.send(format!("GET {path} HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\n\r\n").as_bytes())
            .await;
        String::from_utf8_lossy(&http.closed().await).into_owned()
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("Envoy's log:\n{}", self.log());
        }
    }
}
