//! One server.

use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::certificates::TlsFiles;
use crate::client::{Client, Reply};
use crate::clock::{self, ServerClock};
use crate::find::{Kind, find};
use crate::wait::until;

/// Until a server that was started answers; a busy machine may take seconds for it.
const START_MAX: Duration = Duration::from_secs(10);

/// Somebody else may take a port between our look at it and the server's.
const STARTS_MAX: usize = 5;

/// Below the ports that the machine gives to connections that go out: a server that is restarted has to find its port free.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

const LOG_TAIL_LINES: usize = 30;

/// Keys that one `SCAN` looks at.
const SCAN_COUNT: &str = "1000";

/// Ends a server whose test ended without doing so (it was killed, or kept the server in a `static`), and removes its folder. It learns of
/// this by the end of its input, and looks first whether the process of that number is still the same.
const GUARD: &str = r#"trap '' INT TERM HUP
read -r line
[ "$(readlink "/proc/$1/cwd")" = "$2" ] && kill -KILL "$1"
rm -rf -- "$2""#;

/// What a server is like. Without anything: on a free port, keeping nothing on disk, open to everybody. A Unix socket is always there.
#[derive(Clone, Default, Debug)]
pub struct Options {
    lines: Vec<String>,
    port: Option<u16>,
    user: Option<(String, String)>,
    tls: Option<Clients>,
    preload: Option<PathBuf>,
    environment: Vec<(String, PathBuf)>,
    mode: Mode,
}

/// Must clients show a certificate?
#[derive(Clone, Copy, PartialEq, Debug)]
enum Clients {
    Unknown,
    Certified,
}

#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) enum Mode {
    #[default]
    Alone,
    Cluster {
        /// The port that clients and other servers are told, if it is not the server's own.
        announced: Option<u16>,
    },
    Sentinel,
}

const DEFAULT_USER: &str = "default";

impl Options {
    /// The plainest server.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more line of its configuration file, such as `maxmemory 1mb`.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// On this port, and no other. ([`Server::restart`] keeps the port in any case.)
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Only for those who know this password (`requirepass`).
    pub fn password(self, password: &str) -> Self {
        self.user(DEFAULT_USER, password)
    }

    /// Only for this user with this password, who may do everything; the user `default` is switched off.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Speaks TLS on its port, and nothing else. (The Valkey that `cargo xtask test` installs was built without.)
    pub fn tls(mut self) -> Self {
        self.tls = Some(Clients::Unknown);
        self
    }

    /// The same, and clients must show a certificate of the same authority.
    pub fn mutual_tls(mut self) -> Self {
        self.tls = Some(Clients::Certified);
        self
    }

    /// Loads a library before all others (`LD_PRELOAD`).
    pub fn preload(mut self, library: impl Into<PathBuf>) -> Self {
        self.preload = Some(library.into());
        self
    }

    /// Sees the time of this clock.
    pub fn clock(mut self, clock: &ServerClock) -> Self {
        self.environment.push((clock::VARIABLE.into(), clock.file()));
        self.preload(clock.library())
    }

    pub(crate) fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }
}

/// A server that runs until it is dropped.
pub struct Server {
    kind: Kind,
    program: PathBuf,
    folder: TempDir,
    port: u16,
    bus_port: u16,
    options: Options,
    tls: Option<TlsFiles>,
    process: Mutex<Option<Process>>,
}

struct Process {
    server: Child,
    guard: Child,
    is_stopped: bool,
}

impl Server {
    /// Starts one and waits until it answers.
    pub fn start(kind: Kind, options: &Options) -> Result<Self, String> {
        let mut last = String::new();
        for _ in 0..STARTS_MAX {
            let server = Self::place(kind, options)?;
            match server.run() {
                Ok(()) => return Ok(server),
                // Another port is another chance, unless it must be this one.
                Err(reason) if options.port.is_none() && reason.contains("Address already in use") => {
                    last = reason;
                }
                Err(reason) => return Err(reason),
            }
        }
        Err(last)
    }

    /// Which store it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Its Unix socket.
    pub fn unix_path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// How the product is told to connect: `redis://` or `rediss://`, with user and password.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        let credentials = match &self.options.user {
            Some((name, password)) if name == DEFAULT_USER => format!(":{}@", percent(password)),
            Some((name, password)) => format!("{}:{}@", percent(name), percent(password)),
            None => String::new(),
        };
        format!("{scheme}://{credentials}{}", self.address())
    }

    /// The same by its Unix socket, without user and password.
    pub fn unix_url(&self) -> String {
        format!("unix://{}", self.unix_path().display())
    }

    /// Its certificates, if it speaks TLS.
    pub fn tls(&self) -> Option<&TlsFiles> {
        self.tls.as_ref()
    }

    /// Its temporary folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(|process| process.server.id())
    }

    /// Kills it (SIGKILL): all that it counted is lost.
    pub fn kill(&self) {
        let process = self.process().take();
        drop(process);
    }

    /// Stops it as a machine that hangs does (SIGSTOP): connections stay open, nobody answers.
    pub fn stop(&self) {
        self.signal(Signal::STOP, true);
    }

    /// Lets it go on (SIGCONT).
    pub fn cont(&self) {
        self.signal(Signal::CONT, false);
    }

    /// Kills it if it still runs, and starts it again on the same port, empty.
    pub fn restart(&self) -> Result<(), String> {
        self.kill();
        self.run()
    }

    /// Runs, and was not stopped.
    pub fn is_awake(&self) -> bool {
        self.process().as_ref().is_some_and(|process| !process.is_stopped)
    }

    /// A connection to it by its Unix socket, as the user that it knows.
    pub fn client(&self) -> Result<Client, String> {
        let mut client = Client::connect_unix(&self.unix_path())?;
        if let Some((name, password)) = &self.options.user {
            let reply = client.command(&["AUTH", name, password])?;
            if let Some(error) = reply.error() {
                return Err(error.into());
            }
        }
        Ok(client)
    }

    /// Sends a command on a connection of its own; panics if there is no reply. (An error of the server is a reply.)
    pub fn command<W: AsRef<[u8]>>(&self, words: &[W]) -> Reply {
        self.try_command(words).unwrap_or_else(|reason| {
            let name = words.first().map(|word| String::from_utf8_lossy(word.as_ref()).into_owned());
            panic!("{}: {reason}\n{}", name.unwrap_or_default(), self.log_tail())
        })
    }

    /// The same, for servers that may not answer.
    pub fn try_command<W: AsRef<[u8]>>(&self, words: &[W]) -> Result<Reply, String> {
        self.client()?.command(words)
    }

    /// Every key of database 0.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        self.scan(|_, keys| {
            all.extend(keys);
            Ok(())
        });
        all
    }

    /// Every key of database 0 that never expires, but for these.
    pub fn immortal_keys(&self, except: &[&str]) -> Vec<Vec<u8>> {
        let mut immortal = Vec::new();
        self.scan(|client, keys| {
            let asks: Vec<_> = keys.iter().map(|key| vec![b"PTTL".to_vec(), key.clone()]).collect();
            let replies = client.pipeline(&asks)?;
            let lives = keys.into_iter().zip(replies);
            immortal.extend(lives.filter(|(_, life)| life.integer() == Some(-1)).map(|(key, _)| key));
            Ok(())
        });
        immortal.retain(|key| !except.iter().any(|name| name.as_bytes() == key));
        immortal
    }

    /// Forgets all scripts.
    pub fn script_flush(&self) {
        let reply = self.command(&["SCRIPT", "FLUSH", "SYNC"]);
        assert_eq!(reply.text().as_deref(), Some("OK"), "{reply:?}");
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
        format!("the log of {} at {} ends with:\n{}", self.kind.program(), self.address(), tail.join("\n"))
    }

    /// The port by which servers of a cluster talk to each other.
    pub(crate) fn bus_port(&self) -> u16 {
        self.bus_port
    }

    /// A folder, a port and a configuration, but nothing that runs yet.
    fn place(kind: Kind, options: &Options) -> Result<Self, String> {
        let program = find(kind)?;
        let folder = tempfile::Builder::new().prefix("testbed").tempdir();
        let folder = folder.map_err(|error| format!("no temporary folder: {error}"))?;
        let (free, bus_port) = (free_port()?, free_port()?);
        let tls = options.tls.map(|_| TlsFiles::write(folder.path())).transpose()?;
        let (port, options, process) = (options.port.unwrap_or(free), options.clone(), Mutex::default());
        let server = Self { kind, program, folder, port, bus_port, options, tls, process };
        let written = std::fs::write(server.folder.path().join("conf"), server.configuration());
        written.map_err(|error| format!("no configuration: {error}"))?;
        Ok(server)
    }

    fn configuration(&self) -> String {
        let folder = self.folder.path().display();
        let mut text = format!(
            "bind 127.0.0.1\nprotected-mode no\ndir {folder}\nunixsocket {}\n",
            self.unix_path().display()
        );
        let port = self.port;
        let mut line = |line: std::fmt::Arguments<'_>| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line}");
        };
        match &self.tls {
            None => line(format_args!("port {port}")),
            Some(files) => {
                line(format_args!("port 0\ntls-port {port}"));
                line(format_args!("tls-ca-cert-file {}", files.ca.display()));
                line(format_args!("tls-cert-file {}", files.certificate.display()));
                line(format_args!("tls-key-file {}", files.key.display()));
                let certified = self.options.tls == Some(Clients::Certified);
                line(format_args!("tls-auth-clients {}", if certified { "yes" } else { "no" }));
            }
        }
        if self.options.mode != Mode::Sentinel {
            // A replica waits for others five seconds by default, and a test waits for it.
            line(format_args!("save \"\"\nappendonly no\nenable-debug-command yes"));
            line(format_args!("repl-diskless-sync yes\nrepl-diskless-sync-delay 0"));
        }
        if let Mode::Cluster { announced } = self.options.mode {
            line(format_args!(
                "cluster-enabled yes\ncluster-config-file nodes.conf\ncluster-port {}",
                self.bus_port
            ));
            if let Some(announced) = announced {
                line(format_args!("cluster-announce-ip 127.0.0.1\ncluster-announce-port {announced}"));
                line(format_args!("cluster-announce-bus-port {}", self.bus_port));
            }
        }
        match &self.options.user {
            Some((name, password)) if name == DEFAULT_USER => {
                line(format_args!("requirepass \"{password}\""))
            }
            Some((name, password)) => {
                line(format_args!("user {DEFAULT_USER} off"));
                line(format_args!("user {name} on \">{password}\" ~* &* +@all"));
            }
            None => {}
        }
        self.options.lines.iter().for_each(|own| line(format_args!("{own}")));
        text
    }

    /// Starts the process and waits until it answers.
    fn run(&self) -> Result<(), String> {
        let folder = self.folder.path();
        let of = |what: &str, error: std::io::Error| format!("{what}: {error}");
        let log = File::options().create(true).append(true).open(folder.join("log"));
        let log = log.map_err(|error| of("no log", error))?;
        let errors = log.try_clone().map_err(|error| of("no log", error))?;
        let mut command = Command::new(&self.program);
        command.arg(folder.join("conf")).current_dir(folder);
        if self.options.mode == Mode::Sentinel {
            command.arg("--sentinel");
        }
        if let Some(library) = &self.options.preload {
            command.env("LD_PRELOAD", library);
        }
        command.envs(self.options.environment.iter().map(|(name, value)| (name, value)));
        // A group of its own, so that an interrupt at the terminal ends the test first.
        command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        let _ = std::fs::remove_file(self.unix_path()); // Of a run before this one: it would not answer.
        let mut server = command
            .spawn()
            .map_err(|error| of(&format!("{} does not start", self.program.display()), error))?;
        let guard = guard(server.id(), folder).inspect_err(|_| {
            let _ = server.kill();
            let _ = server.wait();
        })?;
        *self.process() = Some(Process { server, guard, is_stopped: false });
        self.wait_until_it_answers().map_err(|reason| {
            self.kill();
            format!("{reason}\n{}", self.log_tail())
        })
    }

    fn wait_until_it_answers(&self) -> Result<(), String> {
        let mut ended = None;
        let answered = until("a server answers", START_MAX, || {
            let state = self.process().as_mut().map(|process| process.server.try_wait());
            if let Some(Ok(Some(status))) = state {
                ended = Some(status);
                return Ok(());
            }
            match self.try_command(&["PING"])? {
                Reply::Status(pong) if pong == "PONG" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        match ended {
            Some(status) => Err(format!("{} ended with {status}", self.program.display())),
            None => answered,
        }
    }

    fn signal(&self, signal: Signal, stops: bool) {
        let mut process = self.process();
        let process = process.as_mut().expect("a server that runs");
        kill_process(Pid::from_child(&process.server), signal).expect("a process of ours");
        process.is_stopped = stops;
    }

    /// Calls with the keys of database 0, some at a time.
    fn scan(&self, mut with: impl FnMut(&mut Client, Vec<Vec<u8>>) -> Result<(), String>) {
        let mut run = || {
            let mut client = self.client()?;
            let mut cursor = b"0".to_vec();
            loop {
                let reply = client.command(&[b"SCAN", &cursor[..], b"COUNT", SCAN_COUNT.as_bytes()])?;
                let [Reply::Bytes(next), Reply::Array(keys)] = reply.items() else {
                    return Err(format!("SCAN: {reply:?}"));
                };
                let bytes = |key: &Reply| match key {
                    Reply::Bytes(bytes) => bytes.clone(),
                    _ => Vec::new(),
                };
                with(&mut client, keys.iter().map(bytes).collect())?;
                cursor.clone_from(next);
                if cursor == b"0" {
                    return Ok(());
                }
            }
        };
        run().unwrap_or_else(|reason| panic!("{reason}\n{}", self.log_tail()));
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The guard first: once the server is reaped, its number may be another's.
        for child in [&mut self.guard, &mut self.server] {
            // If it has ended already, there is nothing to do.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn guard(pid: u32, folder: &Path) -> Result<Child, String> {
    // As the kernel will name it.
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.into());
    let mut command = Command::new("sh");
    command.args(["-c", GUARD, "guard", &pid.to_string()]).arg(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.spawn().map_err(|error| format!("no guard: {error}"))
}

/// A port that nobody listens on now, and that no connection that goes out is given: a server that is restarted finds it free again.
pub fn free_port() -> Result<u16, String> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    // Each process begins somewhere else: tests of several run at the same time.
    let first = (std::process::id().wrapping_mul(7919) % u32::from(count)) as u16;
    for _ in 0..count {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % count;
        let port = PORTS.start + ((u32::from(first) + u32::from(step)) % u32::from(count)) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(format!("no free port from {} to {}", PORTS.start, PORTS.end))
}

/// For a URL.
fn percent(text: &str) -> String {
    text.bytes().fold(String::new(), |mut all, byte| {
        if byte.is_ascii_alphanumeric() {
            all.push(char::from(byte));
        } else {
            let _ = write!(all, "%{byte:02X}");
        }
        all
    })
}
