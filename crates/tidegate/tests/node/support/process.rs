//! The node as a process, in a folder of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, Resource, Rlimit, Signal};
use serde_json::Value;
use tempfile::TempDir;
use tidegate_clock::Stopwatch;
use tokio::net::UnixStream;

use super::{Grpc, Http, SOON, soon};

/// A folder with rules, and settings to start nodes by.
#[derive(Clone)]
pub(crate) struct Setup {
    folder: Arc<TempDir>,
    verb: &'static str,
    flags: BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
}

impl Setup {
    /// Rules in the folder `rules`. Few bytes for counters, so that nodes start quickly, and no wait at their end.
    pub(crate) fn new(rules: &str) -> Self {
        let setup = Self::demo();
        setup.write("rules/rules.yaml", rules);
        setup
    }

    /// The same without rules: a node has its demo rules then.
    pub(crate) fn demo() -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        Self { folder, verb: "run", flags: BTreeMap::new(), variables: BTreeMap::new() }
            .set("rls-listen", "127.0.0.1:0")
            .set("http-listen", "127.0.0.1:0")
            .set("control-enabled", "false")
            .set("node-data", "data")
            .set("counters-memory", "8MiB")
            .set("node-drain-delay", "0s")
    }

    pub(crate) fn set(mut self, flag: &str, value: &str) -> Self {
        self.flags.insert(flag.into(), value.into());
        self
    }

    /// Leaves out a flag, so that something else says it.
    #[allow(dead_code, reason = "only the tests of nodes need it")]
    pub(crate) fn without(mut self, flag: &str) -> Self {
        self.flags.remove(flag);
        self
    }

    /// By another verb than `run`.
    pub(crate) fn verb(self, verb: &'static str) -> Self {
        Self { verb, ..self }
    }

    /// With a control plane, at any address.
    #[allow(dead_code, reason = "only the tests of nodes need it")]
    pub(crate) fn controlled(self) -> Self {
        self.set("control-enabled", "true").set("control-listen", "127.0.0.1:0")
    }

    /// A variable of the node's environment.
    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file whole, as an operator's tool would: beside it, then renamed.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        let part = self.path().join("part");
        fs::write(&part, text).and_then(|()| fs::rename(&part, &path)).expect("written");
    }

    /// A command of the binary; `TIDEGATE_BINARY` names another, such as the one that is to be shipped.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let binary = std::env::var_os("TIDEGATE_BINARY");
        let mut command = Command::new(binary.unwrap_or_else(|| env!("CARGO_BIN_EXE_tidegate").into()));
        command.args(words).current_dir(self.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TIDEGATE_")) {
            command.env_remove(name);
        }
        command.envs(&self.variables);
        command
    }

    /// Runs a verb that ends by itself.
    pub(crate) fn run(&self, words: &[&str]) -> Answer {
        let mut command = self.command(words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary");
        let out = read_to_end(child.stdout.take().expect("stdout"));
        let err = read_to_end(child.stderr.take().expect("stderr"));
        let (Ok(out), Ok(err)) = (out.recv_timeout(SOON), err.recv_timeout(SOON)) else {
            let _ = child.kill();
            panic!("`tidegate {}` does not end", words.join(" "));
        };
        let status = child.wait().expect("a child");
        Answer { code: status.code().unwrap_or(-1), out, err }
    }

    /// `tidegate run` by the settings, which is expected to end at once.
    pub(crate) fn run_node(&self) -> Answer {
        let words = self.words();
        self.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Starts a node, and waits until it says where it listens.
    pub(crate) fn start(&self) -> Node {
        let words = self.words();
        let mut command = self.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary");
        let (log, log_ended) = collect(child.stderr.take().expect("stderr"));
        let (told, lines) = channel();
        let said = BufReader::new(child.stdout.take().expect("stdout"));
        std::thread::spawn(move || said.lines().map_while(Result::ok).try_for_each(|line| told.send(line)));
        // One that decides nothing has no RLS.
        let decides = self.flags.get("node-role").is_none_or(|role| role != "control");
        let nowhere = SocketAddr::from(([0; 4], 0));
        let (mut addresses, mut greeting) = ([Some(nowhere).filter(|_| !decides), None], String::new());
        let (mut debug, mut rls_socket, mut admin) = (None, None, None);
        let has_admin = self.flags.contains_key("control-listen");
        let setup = self.clone();
        while addresses.contains(&None) || (has_admin && admin.is_none()) {
            let line = match lines.recv_timeout(SOON) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let _ = child.kill();
                    panic!("the node does not start: {}", text(&log));
                }
            };
            greeting.push_str(&line);
            greeting.push('\n');
            // Where there is one, it stands before the last of the others.
            let places = [&mut debug, &mut admin].into_iter().chain(&mut addresses);
            let places = places.zip(["Debug", "Admin", "RLS", "HTTP"]);
            for (address, name) in places {
                let told =
                    line.trim_start().strip_prefix(name).and_then(|rest| rest.split_whitespace().next());
                if let Some(path) = told.and_then(|told| told.strip_prefix("unix:")) {
                    rls_socket = Some(self.path().join(path));
                    *address = Some(nowhere); // Nobody can connect to it.
                } else if let Some(told) = told {
                    *address = told
                        .trim_start_matches("http://")
                        .trim_start_matches("https://")
                        .parse::<SocketAddr>()
                        .ok();
                }
            }
        }
        let [rls, http] = addresses.map(|address| address.expect("an address"));
        Node { child, rls, rls_socket, http, debug, admin, greeting, log, log_ended, setup }
    }

    /// Starts a node whose standard output is not for people.
    #[allow(dead_code, reason = "only the tests of nodes need it")]
    pub(crate) fn spawn(&self) -> Child {
        let words = self.words();
        let mut command = self.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary")
    }

    fn words(&self) -> Vec<String> {
        let flags = self.flags.iter().flat_map(|(flag, value)| [format!("--{flag}"), value.clone()]);
        std::iter::once(self.verb.to_string()).chain(flags).collect()
    }
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A node that runs. It is killed when this is dropped.
pub(crate) struct Node {
    child: Child,
    pub(crate) rls: SocketAddr,
    /// The socket that RLS is at, if it is at one instead.
    pub(crate) rls_socket: Option<PathBuf>,
    pub(crate) http: SocketAddr,
    /// Where the pages of the reference server are, if it stands in for it.
    pub(crate) debug: Option<SocketAddr>,
    /// Where the control plane's API is, if it has one.
    #[allow(dead_code, reason = "only the tests of nodes need it")]
    pub(crate) admin: Option<SocketAddr>,
    /// What it said first.
    #[allow(dead_code, reason = "only the tests of nodes need it")]
    pub(crate) greeting: String,
    log: Arc<Mutex<String>>,
    /// Is closed when all of it was read.
    log_ended: Receiver<()>,
    pub(crate) setup: Setup,
}

impl Node {
    /// A node with these rules and no other settings.
    pub(crate) fn start(rules: &str) -> Self {
        Setup::new(rules).start()
    }

    pub(crate) async fn rls(&self) -> Grpc {
        let Some(path) = &self.rls_socket else { return Grpc::connect(self.rls).await };
        let stream = soon("a connection", UnixStream::connect(path)).await.expect("a connection");
        Grpc::over(stream).await.expect("a greeting")
    }

    pub(crate) async fn http(&self) -> Http {
        Http::connect(self.http).await
    }

    /// The value of a metric, all rows whose labels hold `labels` added up.
    pub(crate) async fn metric(&self, name: &str, labels: &str) -> u64 {
        let page = self.http().await.get("/metrics").await.body;
        let rows = page.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(labels)
        });
        rows.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
    }

    /// What the counters of a request hold: the units used, one for each.
    pub(crate) async fn used(&self, body: &str) -> Vec<u64> {
        let answer = self.http().await.post("/v1/inspect", body).await.json();
        let counters = answer["counters"].as_array().cloned().unwrap_or_default();
        counters.iter().filter_map(|counter| counter["used"].as_u64()).collect()
    }

    /// Runs a verb that asks this node.
    pub(crate) fn ask(&self, words: &[&str]) -> Answer {
        let address = self.http.to_string();
        self.setup.run(&[words, &["--node", &address]].concat())
    }

    /// What it logged so far.
    pub(crate) fn log(&self) -> String {
        text(&self.log)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).expect("it runs");
        // A thread that is at work on another core stops a moment later.
        while signal == Signal::STOP && !self.is_stopped() {
            std::thread::yield_now();
        }
    }

    /// Are all of its threads stopped?
    fn is_stopped(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        tasks.flatten().all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // Behind the name, which may have anything in it.
            stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['T', 'Z']))
        })
    }

    /// Kills it, and waits until it is gone: only then are its ports free again.
    #[allow(dead_code, reason = "only the rows of faults need it")]
    pub(crate) fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it runs");
    }

    /// Bytes of memory that it has in use.
    pub(crate) fn rss_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a row");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib * 1_024
    }

    /// How many threads it has.
    pub(crate) fn threads(&self) -> usize {
        fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs").count()
    }

    /// The ports of TCP that it listens on, as the kernel tells them.
    #[allow(dead_code, reason = "only the tests of nodes need it")]
    pub(crate) fn listens_on(&self) -> Vec<u16> {
        let handles = fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("it runs").flatten();
        let of_socket =
            |link: PathBuf| Some(link.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned());
        let own: Vec<String> =
            handles.filter_map(|handle| of_socket(fs::read_link(handle.path()).ok()?)).collect();
        let mut ports = Vec::new();
        for table in ["tcp", "tcp6"] {
            let table = fs::read_to_string(format!("/proc/{}/net/{table}", self.child.id()));
            for line in table.unwrap_or_default().lines() {
                let fields: Vec<&str> = line.split_whitespace().collect();
                let [_, local, _, state, .., inode] = fields.get(..10).unwrap_or_default() else { continue };
                let port = local.rsplit(':').next().and_then(|port| u16::from_str_radix(port, 16).ok());
                ports.extend(port.filter(|_| *state == "0A" && own.iter().any(|own| own == inode)));
            }
        }
        ports.sort_unstable();
        ports
    }

    /// Lets it have so many file handles, and no more.
    pub(crate) fn limit_files(&self, count: u64) {
        let limit = Rlimit { current: Some(count), maximum: Some(count) };
        rustix::process::prlimit(Some(Pid::from_child(&self.child)), Resource::Nofile, limit)
            .expect("a limit");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Asks it to end, and waits for that: its exit code and its log.
    pub(crate) async fn stop(self) -> (i32, String) {
        self.signal(Signal::TERM);
        self.ended().await
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(mut self) -> (i32, String) {
        let watch = Stopwatch::start();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                let _ = self.log_ended.recv_timeout(SOON);
                return (status.code().unwrap_or(-1), self.log());
            }
            assert!(watch.elapsed() < SOON, "it does not end: {}", self.log());
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the node's log:\n{}", self.log());
        }
    }
}

fn read_to_end(mut from: impl Read + Send + 'static) -> Receiver<String> {
    let (told, text) = channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).expect("text");
        let _ = told.send(text); // Nobody waits any more.
    });
    text
}

fn collect(mut from: impl Read + Send + 'static) -> (Arc<Mutex<String>>, Receiver<()>) {
    let log = Arc::new(Mutex::new(String::new()));
    let (written, (ends, ended)) = (log.clone(), channel());
    std::thread::spawn(move || {
        let _ends = ends;
        let mut bytes = [0; 4_096];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..count]);
            written.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
        }
    });
    (log, ended)
}

fn text(log: &Mutex<String>) -> String {
    log.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The JSON of a body.
pub(crate) fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in\n{text}"))
}
