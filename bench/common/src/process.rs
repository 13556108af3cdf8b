//! A server in a process of its own: started, asked where it listens, and what it has used of its processor.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_clock::Stopwatch;

use crate::pin::{Cores, Place};

/// A server that serves. It ends when it is dropped.
pub struct Process {
    /// What it is called in messages.
    pub name: &'static str,
    /// Where it listens for calls.
    pub address: SocketAddr,
    /// How it was started, as one would type it; its folder is `.`.
    pub command: String,
    /// Where it tells its metrics, and by which entrance it is called, if it is a node.
    pub metrics: Option<(SocketAddr, Entrance)>,
    process: Child,
    _folder: Folder,
}

/// Rules, data and log of a server.
struct Folder {
    name: &'static str,
    folder: TempDir,
}

impl Folder {
    fn new(name: &'static str) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| format!("{name}: no folder for it: {error}"))?;
        Ok(Self { name, folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn log(&self) -> PathBuf {
        self.path().join("log")
    }

    fn spawn(&self, cores: Option<Cores>, mut command: Command) -> Result<Child, String> {
        let name = self.name;
        let errors = File::create(self.log()).map_err(|error| format!("{name}: no log: {error}"))?;
        command.stdin(Stdio::piped()).stderr(errors);
        let program = Path::new(command.get_program()).display().to_string();
        let started = Cores::on(cores, Place::Server, || command.spawn());
        started.map_err(|error| format!("{name}: {program} could not be started: {error}"))
    }

    /// Ends it, and tells what it said.
    fn gave_up(&self, mut process: Child) -> String {
        let _ = process.kill().and_then(|()| process.wait());
        let said = std::fs::read_to_string(self.log()).unwrap_or_default();
        format!("{} does not listen:\n{said}", self.name)
    }
}

impl Process {
    /// Starts what `command` says for a folder of its own, on the core of the servers, and waits until it says where it listens for RLS.
    pub fn start(
        name: &'static str,
        cores: Option<Cores>,
        command: impl FnOnce(&Path) -> Result<Command, String>,
    ) -> Result<Self, String> {
        Self::start_and_read(name, cores, command, |output| Some((listens_on(output, Entrance::Rls)?, None)))
    }

    /// The same of a node, for one of its entrances. It says where the other is too, and that tells its metrics.
    pub fn start_node(
        entrance: Entrance,
        name: &'static str,
        cores: Option<Cores>,
        command: impl FnOnce(&Path) -> Result<Command, String>,
    ) -> Result<Self, String> {
        Self::start_and_read(name, cores, command, |mut output| {
            let (rls, http) = (listens_on(&mut output, Entrance::Rls)?, listens_on(output, Entrance::Http)?);
            Some((if entrance == Entrance::Rls { rls } else { http }, Some((http, entrance))))
        })
    }

    fn start_and_read(
        name: &'static str,
        cores: Option<Cores>,
        command: impl FnOnce(&Path) -> Result<Command, String>,
        read: impl FnOnce(BufReader<ChildStdout>) -> Option<(SocketAddr, Option<(SocketAddr, Entrance)>)>,
    ) -> Result<Self, String> {
        let folder = Folder::new(name)?;
        let mut command = command(folder.path())?;
        command.stdout(Stdio::piped());
        let spoken = spoken(&command, folder.path());
        let mut process = folder.spawn(cores, command)?;
        let output = process.stdout.take().ok_or("a child without an output")?;
        match read(BufReader::new(output)) {
            Some((address, metrics)) => {
                Ok(Self { name, address, command: spoken, metrics, process, _folder: folder })
            }
            None => Err(folder.gave_up(process)),
        }
    }

    /// The same of a server that does not say where it listens, but was told to: waits until it does.
    pub fn start_at(
        name: &'static str,
        cores: Option<Cores>,
        address: SocketAddr,
        within: Duration,
        command: impl FnOnce(&Path) -> Result<Command, String>,
    ) -> Result<Self, String> {
        let folder = Folder::new(name)?;
        let mut command = command(folder.path())?;
        command.stdout(Stdio::null());
        let spoken = spoken(&command, folder.path());
        let process = folder.spawn(cores, command)?;
        let watch = Stopwatch::start();
        while TcpStream::connect_timeout(&address, within).is_err() {
            if watch.elapsed() > within {
                return Err(folder.gave_up(process));
            }
            std::thread::yield_now(); // It may be waiting for this very core.
        }
        Ok(Self { name, address, command: spoken, metrics: None, process, _folder: folder })
    }

    /// What it has used of its processor so far, all its threads together.
    pub fn cpu_ns(&self) -> Result<u64, String> {
        cpu_ns(&self.process.id().to_string())
    }

    /// Bytes of memory that it has in use.
    pub fn rss_bytes(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        rss_in(&status).ok_or_else(|| format!("{path} does not tell of memory"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.process.kill().and_then(|()| self.process.wait()) {
            eprintln!("{} did not end: {error}", self.name);
        }
    }
}

/// A node with one thread that decides, on free ports, with the rules of a folder.
pub fn node_command(folder: &Path, rules: &Path) -> Result<Command, String> {
    let mut command = controlled_node_command(folder, rules)?;
    command.args(["--http-listen", "127.0.0.1:0", "--control-enabled", "false"]);
    Ok(command)
}

/// The same with a control plane. Where it listens for HTTP, and for the control plane, whoever starts it says.
pub fn controlled_node_command(folder: &Path, rules: &Path) -> Result<Command, String> {
    let mut command = Command::new(node_program(&ours()?));
    command.arg("run").args(["--rls-listen", "127.0.0.1:0"]);
    command.args(["--node-threads", "1"]);
    command.arg("--rules-path").arg(rules).arg("--node-data").arg(folder.join("data")).current_dir(folder);
    Ok(command)
}

/// This program once more, with these words.
pub fn child_command(words: &[&str]) -> Result<Command, String> {
    let mut command = Command::new(ours()?);
    command.args(words);
    Ok(command)
}

/// Addresses that nobody listens on now, for servers that have to be told one.
pub fn free_addresses<const COUNT: usize>() -> Result<[SocketAddr; COUNT], String> {
    let wrong = |error: std::io::Error| format!("no free port: {error}");
    let mut held = Vec::new(); // Until all are known, so that they differ.
    let mut addresses = [SocketAddr::from(([127, 0, 0, 1], 0)); COUNT];
    for address in &mut addresses {
        let listener = TcpListener::bind(*address).map_err(wrong)?;
        *address = listener.local_addr().map_err(wrong)?;
        held.push(listener);
    }
    Ok(addresses)
}

/// One such address.
pub fn free_address() -> Result<SocketAddr, String> {
    free_addresses().map(|[address]| address)
}

/// Another program that was built with this one.
pub fn sibling(name: &str) -> Result<PathBuf, String> {
    let ours = ours()?;
    let mut folders = ours.ancestors().skip(1).map(|folder| folder.join(name));
    folders.find(|program| program.is_file()).ok_or_else(|| format!("{name} was not built"))
}

fn ours() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("where am I? {error}"))
}

/// The node stands beside us; a test stands one folder further down.
fn node_program(ours: &Path) -> PathBuf {
    let mut folders = ours.ancestors().skip(1).map(|folder| folder.join("tidegate"));
    folders.find(|program| program.is_file()).unwrap_or_else(|| "tidegate".into())
}

/// A command as one would type it in the folder: without what only this machine has.
fn spoken(command: &Command, folder: &Path) -> String {
    let folder = folder.to_string_lossy();
    let here = |text: &std::ffi::OsStr| text.to_string_lossy().replace(&*folder, ".");
    let set = |(name, value): (&std::ffi::OsStr, Option<&std::ffi::OsStr>)| {
        Some(format!("{}={}", name.to_string_lossy(), here(value?)))
    };
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program.to_string_lossy().into_owned()).chain(command.get_args().map(here));
    command.get_envs().filter_map(set).chain(words).collect::<Vec<_>>().join(" ")
}

/// Which of a node's listeners is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entrance {
    /// That of Envoy's protocol.
    Rls,
    /// That of plain HTTP.
    Http,
}

/// Everybody says it in a line of this form: `RLS 127.0.0.1:8081` or `HTTP http://127.0.0.1:8080`.
fn listens_on(output: impl BufRead, entrance: Entrance) -> Option<SocketAddr> {
    let (word, scheme) = match entrance {
        Entrance::Rls => ("RLS", ""),
        Entrance::Http => ("HTTP", "http://"),
    };
    output.lines().map_while(Result::ok).find_map(|line| {
        let mut words = line.split_whitespace();
        if words.next()? == word { words.next()?.strip_prefix(scheme)?.parse().ok() } else { None }
    })
}

/// What a process has used of its processor, as the scheduler counts it: in nanoseconds, where other files have ticks of 10 ms.
pub fn cpu_ns(process: &str) -> Result<u64, String> {
    let folder = format!("/proc/{process}/task");
    let wrong = |error: std::io::Error| format!("{folder} does not tell of processor time: {error}");
    let mut sum = 0;
    for thread in std::fs::read_dir(&folder).map_err(wrong)? {
        let path = thread.map_err(wrong)?.path().join("schedstat");
        // A thread may have ended since; what it used was little.
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        sum += used_ns(&text).ok_or_else(|| format!("{} is not understood", path.display()))?;
    }
    Ok(sum)
}

/// The line `VmRSS:   1234 kB`.
fn rss_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1_024)
}

/// The first of three numbers.
fn used_ns(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_says_of_its_address_is_read() {
        let greeting =
            "Tidegate is running.\n\n  RLS   127.0.0.1:4711  (gRPC)\n  HTTP  http://127.0.0.1:80\n";
        assert_eq!(listens_on(greeting.as_bytes(), Entrance::Rls), "127.0.0.1:4711".parse().ok());
        assert_eq!(listens_on(greeting.as_bytes(), Entrance::Http), "127.0.0.1:80".parse().ok());
        assert_eq!(listens_on("RLS here\nbye\n".as_bytes(), Entrance::Rls), None);
    }

    #[test]
    fn a_command_is_told_without_what_only_this_machine_has() {
        let mut command = Command::new("/somewhere/bin/server");
        command.args(["--rules", "/scratch/a1/rules"]).env("ROOT", "/scratch/a1").env("THREADS", "1");
        assert_eq!(spoken(&command, Path::new("/scratch/a1")), "ROOT=. THREADS=1 server --rules ./rules");
    }

    #[test]
    fn processor_time_is_read_from_what_linux_writes() {
        assert_eq!(used_ns("288630331 474239035 269\n"), Some(288_630_331));
        assert_eq!(used_ns(""), None);
        assert!(cpu_ns("self").is_ok_and(|used| used > 0));
        assert_eq!(rss_in("Name:\tx\nVmRSS:\t    1234 kB\n"), Some(1_234 * 1_024));
    }
}
