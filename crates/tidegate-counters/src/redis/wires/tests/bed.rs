//! Real servers, and a proxy that cuts.

use std::cell::Cell;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use redis::{FromRedisValue, Value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;

use super::super::{Script, Servers, Wires};
use crate::redis::settings::RedisSettings;

/// Adds to every key.
pub(super) static ADD: Script = Script::new(
    "local sum = 0; for _, key in ipairs(KEYS) do sum = sum + redis.call('INCRBY', key, ARGV[1]) end; return sum",
);

/// A server of its own, which ends with the test.
pub(super) struct Redis {
    child: Child,
    pub(super) port: u16,
    folder: tempfile::TempDir,
}

pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Redis {
    pub(super) fn start(arguments: &[&str]) -> Self {
        Self::start_as(None, arguments)
    }

    fn start_as(config: Option<&str>, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Somebody else may take the port in between.
        for _ in 0..10 {
            let port = free_port();
            let arguments: Vec<String> = arguments
                .iter()
                .map(|word| word.replace("FOLDER", folder.path().to_str().unwrap()))
                .collect();
            if let Some(child) = spawn(config, folder.path(), port, &arguments) {
                return Self { child, port, folder };
            }
        }
        panic!("redis-server does not start");
    }

    /// A sentinel, which writes into its configuration.
    pub(super) fn start_sentinel(config: &str) -> Self {
        Self::start_as(Some(config), &["--sentinel"])
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it (`STOP`) without its knowing, or lets it go on (`CONT`).
    pub(super) fn signal(&self, name: &str) {
        let done = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(done.is_ok_and(|status| status.success()));
    }

    /// Again, on the same port.
    pub(super) fn restart(&mut self) {
        self.kill();
        self.child = spawn(None, self.folder.path(), self.port, &[]).expect("the port is still free");
    }

    /// Asks it over a connection that the test has for itself.
    pub(super) fn try_ask<T: FromRedisValue>(&self, words: &str) -> redis::RedisResult<T> {
        let mut connection = redis::Client::open(self.url())?.get_connection()?;
        let mut command = redis::Cmd::new();
        words.split_whitespace().for_each(|word| _ = command.arg(word));
        command.query(&mut connection)
    }

    pub(super) fn ask<T: FromRedisValue>(&self, words: &str) -> T {
        self.try_ask(words).unwrap_or_else(|error| panic!("{words}: {error}"))
    }

    pub(super) fn number(&self, key: &str) -> u64 {
        self.ask::<Option<u64>>(&format!("GET {key}")).unwrap_or(0)
    }

    /// How often a command was carried out.
    pub(super) fn calls(&self, command: &str) -> u64 {
        let info: String = self.ask("INFO commandstats");
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
    }
}

fn spawn(config: Option<&str>, folder: &std::path::Path, port: u16, arguments: &[String]) -> Option<Child> {
    let port = port.to_string();
    let mut child = Command::new("redis-server")
        .args(config)
        .args([
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--repl-diskless-sync-delay",
            "0",
            "--dir",
        ])
        .arg(folder)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is installed");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines
        .by_ref()
        .map_while(Result::ok)
        .any(|line| line.contains("Ready to accept") || line.contains("monitor master"));
    if !ready {
        let _ = child.wait();
        return None;
    }
    std::thread::spawn(move || lines.count()); // Or the pipe would be full some day.
    Some(child)
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Three primaries that share the slots.
pub(super) struct Cluster {
    pub(super) nodes: Vec<Redis>,
}

impl Cluster {
    pub(super) fn start() -> Self {
        let nodes: Vec<Redis> = (0..3)
            .map(|_| {
                let bus = free_port().to_string();
                Redis::start(&[
                    "--cluster-enabled",
                    "yes",
                    "--cluster-port",
                    &bus,
                    "--cluster-node-timeout",
                    "5000",
                    "--cluster-require-full-coverage",
                    "no",
                ])
            })
            .collect();
        for (at, (node, range)) in nodes.iter().zip(["0 5460", "5461 10922", "10923 16383"]).enumerate() {
            node.ask::<()>(&format!("CLUSTER ADDSLOTSRANGE {range}"));
            node.ask::<()>(&format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1));
            let bus: Vec<String> = node.ask("CONFIG GET cluster-port");
            nodes[0].ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {} {}", node.port, bus[1]));
        }
        Self { nodes }
    }

    /// Started, and every node knows all of it.
    pub(super) async fn ready() -> Self {
        let cluster = Self::start();
        until("all nodes know the cluster", || {
            cluster.nodes.iter().all(|node| {
                let slots: Vec<Value> = node.ask("CLUSTER SLOTS");
                slots.len() == 3 && node.ask::<String>("CLUSTER INFO").contains("cluster_state:ok")
            })
        })
        .await;
        cluster
    }

    pub(super) fn url(&self) -> String {
        format!("redis+cluster://127.0.0.1:{}", self.nodes[0].port)
    }

    pub(super) fn slot(&self, key: &str) -> u16 {
        self.nodes[0].ask(&format!("CLUSTER KEYSLOT {key}"))
    }

    pub(super) fn owner(&self, slot: u16) -> usize {
        [5460, 10922, 16383].iter().position(|last| slot <= *last).unwrap()
    }

    pub(super) fn id(&self, node: usize) -> String {
        self.nodes[node].ask("CLUSTER MYID")
    }
}

/// Waits until something is so that nobody tells of.
pub(super) async fn until(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < end, "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Runs as a thread of a node does.
pub(super) fn run<F: Future>(test: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test)
}

/// Wires with patience: a noisy machine is not what these tests are about.
pub(super) fn wires(url: &str) -> Rc<Wires> {
    let mut settings = RedisSettings::of_url(url).unwrap();
    settings.connect_timeout = Duration::from_secs(5);
    Wires::new(Servers::new(settings))
}

pub(super) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// What a proxy does with what the server says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    Pass,
    /// Replies go nowhere, and the connection ends.
    Cut,
    /// Replies go nowhere.
    Swallow,
    /// Replies are none.
    Garble,
}

/// Between wires and a server, on the same thread.
pub(super) struct Proxy {
    pub(super) port: u16,
    pub(super) manner: Rc<Cell<Manner>>,
    pub(super) accepted: Rc<Cell<u32>>,
}

impl Proxy {
    pub(super) async fn start(server: u16) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (manner, accepted) = (Rc::new(Cell::new(Manner::Pass)), Rc::new(Cell::new(0)));
        let proxy = Self { port, manner: manner.clone(), accepted: accepted.clone() };
        tokio::task::spawn_local(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepted.set(accepted.get() + 1);
                tokio::task::spawn_local(pass(client, server, manner.clone()));
            }
        });
        proxy
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

async fn pass(client: tokio::net::TcpStream, server: u16, manner: Rc<Cell<Manner>>) {
    let Ok(server) = tokio::net::TcpStream::connect(("127.0.0.1", server)).await else { return };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let up = tokio::task::spawn_local(async move {
        let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
    });
    let mut bytes = vec![0; 65_536];
    while let Ok(length @ 1..) = from_server.read(&mut bytes).await {
        match manner.get() {
            Manner::Pass => to_client.write_all(&bytes[..length]).await.unwrap(),
            Manner::Cut => break,
            Manner::Swallow => {}
            Manner::Garble => to_client.write_all(b"?what\r\n").await.unwrap(),
        }
    }
    up.abort();
}
