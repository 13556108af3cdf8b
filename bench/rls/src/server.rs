//! A subject in a process of its own: started, asked where it listens, and what it has used of its processor.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::pin::Cores;
use crate::rules;

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Subject {
    /// The node: the program that users run.
    Tidegate,
    /// tonic with a fixed answer, on a runtime of one thread.
    Bare,
    /// The same on tonic's usual runtime, with one worker.
    BareMulti,
}

impl Subject {
    pub(crate) const ALL: [Self; 3] = [Self::Tidegate, Self::Bare, Self::BareMulti];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::Bare => "bare",
            Self::BareMulti => "bare_multi",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Tidegate => "Tidegate",
            Self::Bare => "bare tonic, `current_thread`",
            Self::BareMulti => "bare tonic, multi-thread with one worker",
        }
    }
}

/// A subject that serves. It ends when it is dropped.
pub(crate) struct Server {
    pub(crate) subject: Subject,
    pub(crate) address: SocketAddr,
    process: Child,
    /// Rules, data and log of the node.
    _folder: TempDir,
}

impl Server {
    /// Starts it, and waits until it listens.
    pub(crate) fn start(subject: Subject, cores: Option<Cores>) -> Result<Self, String> {
        let wrong = |what: &str, error: std::io::Error| format!("{}: {what}: {error}", subject.word());
        let folder = tempfile::tempdir().map_err(|error| wrong("no folder for it", error))?;
        let log = folder.path().join("log");
        let mut command = command(subject, folder.path())?;
        let errors = File::create(&log).map_err(|error| wrong("no log", error))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let started = Cores::started(cores, || command.spawn());
        let mut process = started.map_err(|error| {
            wrong(&format!("{} could not be started", Path::new(command.get_program()).display()), error)
        })?;
        let output = process.stdout.take().ok_or("a child without an output")?;
        let Some(address) = listens_on(BufReader::new(output)) else {
            let _ = process.kill().and_then(|()| process.wait());
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(format!("{} does not listen:\n{said}", subject.word()));
        };
        Ok(Self { subject, address, process, _folder: folder })
    }

    /// What it has used of its processor so far, all its threads together.
    pub(crate) fn cpu_ns(&self) -> Result<u64, String> {
        cpu_ns(&self.process.id().to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.process.kill().and_then(|()| self.process.wait()) {
            eprintln!("{} did not end: {error}", self.subject.word());
        }
    }
}

fn command(subject: Subject, folder: &Path) -> Result<Command, String> {
    let ours = std::env::current_exe().map_err(|error| format!("where am I? {error}"))?;
    if subject != Subject::Tidegate {
        let mut command = Command::new(ours);
        command.args(["child", subject.word()]);
        return Ok(command);
    }
    let (rules, data) = (folder.join("rules"), folder.join("data"));
    rules::write(&rules)?;
    let mut command = Command::new(node_program(&ours));
    command.arg("run").args(["--rls-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]);
    command.args(["--node-threads", "1"]);
    command.arg("--rules-path").arg(rules).arg("--node-data").arg(data).current_dir(folder);
    Ok(command)
}

/// The node stands beside us; a test stands one folder further down.
fn node_program(ours: &Path) -> PathBuf {
    let mut folders = ours.ancestors().skip(1).map(|folder| folder.join("tidegate"));
    folders.find(|program| program.is_file()).unwrap_or_else(|| "tidegate".into())
}

/// Everybody says it in a line of this form: `RLS 127.0.0.1:8081`.
fn listens_on(output: impl BufRead) -> Option<SocketAddr> {
    output.lines().map_while(Result::ok).find_map(|line| {
        let mut words = line.split_whitespace();
        if words.next()? == "RLS" { words.next()?.parse().ok() } else { None }
    })
}

/// What a process has used of its processor, as the scheduler counts it: in nanoseconds, where other files have ticks of 10 ms.
pub(crate) fn cpu_ns(process: &str) -> Result<u64, String> {
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
        assert_eq!(listens_on(greeting.as_bytes()), "127.0.0.1:4711".parse().ok());
        assert_eq!(listens_on("RLS here\nbye\n".as_bytes()), None);
    }

    #[test]
    fn processor_time_is_read_from_what_linux_writes() {
        assert_eq!(used_ns("288630331 474239035 269\n"), Some(288_630_331));
        assert_eq!(used_ns(""), None);
        assert!(cpu_ns("self").is_ok_and(|used| used > 0));
    }
}
