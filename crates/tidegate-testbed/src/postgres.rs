//! A PostgreSQL.
//!
//! It runs as the user that runs the tests; as root, which PostgreSQL refuses to be, as the user `postgres` or `nobody`.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use crate::find::on_path;
use crate::reference::cache_folder;
use crate::server::free_port;
use crate::wait::until;

/// Names the folder with `postgres` and `initdb`, for those who have them elsewhere.
pub const POSTGRES_VARIABLE: &str = "TIDEGATE_POSTGRES_BIN";

/// Where Debian and Ubuntu put what is not meant to be called by hand, one folder for each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// A server that was killed reads its log again first.
const START_MAX: Duration = Duration::from_secs(60);
const END_MAX: Duration = Duration::from_secs(5);
const STARTS_MAX: usize = 5;
const LOG_TAIL_LINES: usize = 30;

/// The one that may do everything, without a password.
pub(crate) const USER: &str = "tidegate";

/// Ends a server whose test ended without doing so. A server that is asked to quit takes its shared memory with it.
const GUARD: &str = r#"trap '' INT TERM HUP
read -r line
[ "$(readlink "/proc/$1/cwd")" = "$2/data" ] && kill -QUIT "$1" && kill -CONT "$1" && sleep 1
[ "$(readlink "/proc/$1/cwd")" = "$2/data" ] && kill -KILL "$1"
rm -rf -- "$2""#;

/// What a PostgreSQL is like.
#[derive(Clone, Default, Debug)]
pub struct PostgresOptions {
    settings: Vec<String>,
    syncs: bool,
    folder: Option<PathBuf>,
}

impl PostgresOptions {
    /// The plainest: it does not wait for the disk, because nobody turns the machine off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for the disk, as one does that has something to lose.
    pub fn syncs(mut self) -> Self {
        self.syncs = true;
        self
    }

    /// One more setting, such as `max_connections=20`.
    pub fn setting(mut self, setting: impl Into<String>) -> Self {
        self.settings.push(setting.into());
        self
    }

    /// Has its temporary folder in this one, which is on a disk of a certain size.
    pub fn below(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }
}

/// A PostgreSQL that runs until it is dropped.
pub struct Postgres {
    programs: PathBuf,
    folder: TempDir,
    port: u16,
    options: PostgresOptions,
    process: Mutex<Option<Process>>,
}

struct Process {
    server: Child,
    guard: Child,
}

impl Postgres {
    /// Starts one and waits until it answers.
    pub fn start(options: &PostgresOptions) -> Result<Self, String> {
        let mut last = String::new();
        for _ in 0..STARTS_MAX {
            let server = Self::place(options)?;
            match server.run() {
                Ok(()) => return Ok(server),
                // Another port is another chance.
                Err(reason) if reason.contains("Address already in use") => last = reason,
                Err(reason) => return Err(reason),
            }
        }
        Err(last)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// How the product is told to connect. The database `postgres` is there from the beginning.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.address())
    }

    /// Its temporary folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its first process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(|process| process.server.id())
    }

    /// Has it ended by itself?
    pub fn has_ended(&self) -> bool {
        self.process().as_mut().is_none_or(|process| !matches!(process.server.try_wait(), Ok(None)))
    }

    /// Kills all its processes (SIGKILL), as a machine does that loses its power.
    pub fn kill(&self) {
        let Some(mut process) = self.process().take() else { return };
        // Stopped first, so that it has no more children than are seen now.
        signal(Pid::from_child(&process.server), Signal::STOP);
        let family = family(process.server.id());
        for child in [&mut process.guard, &mut process.server] {
            let _ = child.kill();
            let _ = child.wait();
        }
        family.into_iter().for_each(|pid| signal(pid, Signal::KILL));
    }

    /// Stops all its processes as a machine that hangs does (SIGSTOP): connections stay open, nobody answers.
    pub fn stop(&self) {
        if let Some(pid) = self.pid().and_then(pid) {
            signal(pid, Signal::STOP);
            family(pid.as_raw_pid().unsigned_abs()).into_iter().for_each(|pid| signal(pid, Signal::STOP));
        }
    }

    /// Lets them go on (SIGCONT).
    pub fn cont(&self) {
        if let Some(pid) = self.pid().and_then(pid) {
            family(pid.as_raw_pid().unsigned_abs()).into_iter().for_each(|pid| signal(pid, Signal::CONT));
            signal(pid, Signal::CONT);
        }
    }

    /// Kills it if it still runs, and starts it again on the same port, with what it had on disk.
    pub fn restart(&self) -> Result<(), String> {
        self.kill();
        self.run()
    }

    /// The end of its log.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
        format!("the log of PostgreSQL at {} ends with:\n{}", self.address(), tail.join("\n"))
    }

    /// A folder with an empty cluster of databases, but nothing that runs yet.
    fn place(options: &PostgresOptions) -> Result<Self, String> {
        let programs = find_postgres()?;
        let builder = || {
            let mut builder = tempfile::Builder::new();
            builder.prefix("testbed");
            builder
        };
        let folder = match &options.folder {
            Some(folder) => builder().tempdir_in(folder),
            None => builder().tempdir(),
        };
        let folder = folder.map_err(|error| format!("no temporary folder: {error}"))?;
        own(folder.path())?;
        let data = folder.path().join("data");
        match template(&programs)? {
            Some(template) => copy(&template, &data)?,
            None => make(&programs, folder.path())?,
        }
        let (port, options) = (free_port()?, options.clone());
        Ok(Self { programs, folder, port, options, process: Mutex::default() })
    }

    fn run(&self) -> Result<(), String> {
        let folder = self.folder.path();
        let of = |what: &str, error: std::io::Error| format!("{what}: {error}");
        let log = File::options().create(true).append(true).open(folder.join("log"));
        let log = log.map_err(|error| of("no log", error))?;
        let errors = log.try_clone().map_err(|error| of("no log", error))?;
        let data = folder.join("data");
        // Of one that was killed. Its number may be another's by now, and that one would be taken for it.
        let _ = std::fs::remove_file(data.join("postmaster.pid"));
        let mut command = Command::new(self.programs.join("postgres"));
        command.arg("-D").arg(&data).args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        let mut set = |setting: &str| {
            command.args(["-c", setting]);
        };
        set("unix_socket_directories=");
        // In the data folder, so that it is gone with it.
        set("dynamic_shared_memory_type=mmap");
        set("shared_buffers=16MB");
        set("max_wal_size=64MB");
        set("min_wal_size=32MB");
        if !self.options.syncs {
            set("fsync=off");
        }
        self.options.settings.iter().for_each(|setting| set(setting));
        command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0).current_dir(&data);
        as_user(&mut command);
        let mut server = command.spawn().map_err(|error| of("PostgreSQL does not start", error))?;
        let guard = guard(server.id(), folder).inspect_err(|_| {
            let _ = server.kill();
            let _ = server.wait();
        })?;
        *self.process() = Some(Process { server, guard });
        self.wait_until_it_answers().map_err(|reason| {
            self.kill();
            format!("{reason}\n{}", self.log_tail())
        })
    }

    fn wait_until_it_answers(&self) -> Result<(), String> {
        let mut ended = None;
        let answered = until("PostgreSQL answers", START_MAX, || {
            let state = self.process().as_mut().map(|process| process.server.try_wait());
            if let Some(Ok(Some(status))) = state {
                ended = Some(status);
                return Ok(());
            }
            greet(self.address())
        });
        match ended {
            Some(status) => Err(format!("PostgreSQL ended with {status}")),
            None => answered,
        }
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.guard.kill();
        let _ = self.guard.wait();
        let pid = Pid::from_child(&self.server);
        if let Ok(None) = self.server.try_wait() {
            // It ends its children and takes its shared memory with it; one that was stopped has to go on for that.
            signal(pid, Signal::QUIT);
            family(self.server.id()).into_iter().for_each(|pid| signal(pid, Signal::CONT));
            signal(pid, Signal::CONT);
            let _ = until("PostgreSQL ends", END_MAX, || match self.server.try_wait() {
                Ok(None) => Err("it runs".to_string()),
                _ => Ok(()),
            });
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The folder with the programs of PostgreSQL: named by `TIDEGATE_POSTGRES_BIN`, else that of `initdb` on the `PATH`, else the newest below
/// `/usr/lib/postgresql`.
pub fn find_postgres() -> Result<PathBuf, String> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOUND.get_or_init(look).clone()
}

fn look() -> Result<PathBuf, String> {
    let has_both = |folder: &PathBuf| ["initdb", "postgres"].iter().all(|name| folder.join(name).is_file());
    if let Some(named) = std::env::var_os(POSTGRES_VARIABLE).map(PathBuf::from) {
        let wrong =
            || format!("{POSTGRES_VARIABLE} names {}, and there is no PostgreSQL in it", named.display());
        return Some(named.clone()).filter(has_both).ok_or_else(wrong);
    }
    // A link on the PATH leads to the folder with the others.
    let linked = on_path("initdb").and_then(|file| file.canonicalize().ok());
    let linked = linked.and_then(|file| file.parent().map(Path::to_path_buf)).filter(has_both);
    let versions = std::fs::read_dir(DEBIAN).into_iter().flatten().flatten().map(|entry| entry.path());
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let mut versions: Vec<_> = versions.filter_map(|path| Some((number(&path)?, path.join("bin")))).collect();
    versions.sort();
    let newest = versions.into_iter().map(|(_, folder)| folder).rev().find(has_both);
    linked.or(newest).ok_or_else(|| {
        "PostgreSQL is missing: install postgresql (Debian, Ubuntu) or postgresql-server (Fedora), or run `cargo xtask test`".into()
    })
}

/// An empty cluster, kept in the project's cache folder since making one takes seconds; none if there is no such folder.
fn template(programs: &Path) -> Result<Option<PathBuf>, String> {
    static MADE: OnceLock<Result<Option<PathBuf>, String>> = OnceLock::new();
    MADE.get_or_init(|| {
        let Some(cache) = cache_folder() else { return Ok(None) };
        let said = Command::new(programs.join("initdb")).arg("--version").output();
        let said = said.map_err(|error| format!("`initdb` does not start: {error}"))?;
        let version: String = String::from_utf8_lossy(&said.stdout)
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' })
            .collect();
        let place = cache.join("postgres").join(format!("{}-1", version.trim_matches('-')));
        if place.is_dir() {
            return Ok(Some(place));
        }
        let of = |what: &str, error: std::io::Error| format!("{what}: {error}");
        // The user that PostgreSQL runs as may not come into the cache folder, so it is made elsewhere.
        let made = tempfile::tempdir().map_err(|error| of("no temporary folder", error))?;
        own(made.path())?;
        make(programs, made.path())?;
        let parent = cache.join("postgres");
        std::fs::create_dir_all(&parent).map_err(|error| of("no cache folder", error))?;
        let beside = tempfile::tempdir_in(&parent).map_err(|error| of("no cache folder", error))?;
        copy(&made.path().join("data"), &beside.path().join("data"))?;
        // Whole or not at all: tests of several processes may do this at the same time, and the first wins.
        match std::fs::rename(beside.path().join("data"), &place) {
            Err(error) if !place.is_dir() => Err(of("the template cannot be moved", error)),
            _ => Ok(Some(place)),
        }
    })
    .clone()
}

/// An empty cluster in `data` of this folder.
fn make(programs: &Path, folder: &Path) -> Result<(), String> {
    let mut command = Command::new(programs.join("initdb"));
    command.arg("-D").arg(folder.join("data"));
    command.args(["--username", USER, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
    command.arg("--wal-segsize=1").current_dir(folder).stdin(Stdio::null());
    as_user(&mut command);
    let output = command.output().map_err(|error| format!("`initdb` does not start: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`initdb` ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}

/// Copies a folder, for the user that PostgreSQL runs as.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let of = |error: std::io::Error| format!("{} cannot be copied: {error}", from.display());
    std::fs::create_dir(to).map_err(of)?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o700)).map_err(of)?;
    own(to)?;
    for entry in std::fs::read_dir(from).map_err(of)? {
        let entry = entry.map_err(of)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().map_err(of)?.is_dir() {
            copy(&source, &target)?;
        } else {
            std::fs::copy(&source, &target).map_err(of)?;
            own(&target)?;
        }
    }
    Ok(())
}

/// Who PostgreSQL runs as, if not as we do: user and group.
fn user() -> Option<(u32, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line.split(':').skip(2).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    named("postgres").or_else(|| named("nobody"))
}

fn own(path: &Path) -> Result<(), String> {
    let Some((user, group)) = user() else { return Ok(()) };
    chown(path, Some(user), Some(group)).map_err(|error| format!("{}: {error}", path.display()))
}

fn as_user(command: &mut Command) {
    if let Some((user, group)) = user() {
        command.uid(user).gid(group);
    }
}

/// The processes that this one has started. Each is in a session of its own, so that no signal reaches them all.
fn family(parent: u32) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let number = |name: &std::ffi::OsStr| name.to_str()?.parse::<u32>().ok();
    let numbers = processes.filter_map(|entry| number(&entry.file_name()));
    let is_child = |process: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // After the name, which may hold anything: the state and the parent.
        let parent_of = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        parent_of == Some(parent)
    };
    numbers.filter(is_child).filter_map(pid).collect()
}

fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

/// If it has ended meanwhile, there is nothing to do.
fn signal(pid: Pid, signal: Signal) {
    let _ = kill_process(pid, signal);
}

/// Does it let somebody in? The first message of a client, and the first letter of the answer.
fn greet(address: SocketAddr) -> Result<(), String> {
    let of = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).map_err(of)?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(of)?;
    let words = format!("user\0{USER}\0database\0postgres\0\0");
    let length = u32::try_from(words.len() + 8).unwrap_or(0);
    let protocol: u32 = 3 << 16;
    let message = [&length.to_be_bytes()[..], &protocol.to_be_bytes(), words.as_bytes()].concat();
    stream.write_all(&message).map_err(of)?;
    let mut letter = [0];
    stream.read_exact(&mut letter).map_err(of)?;
    if letter == *b"R" { Ok(()) } else { Err("it is starting up".into()) }
}

fn guard(pid: u32, folder: &Path) -> Result<Child, String> {
    // As the kernel will name it.
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.into());
    let mut command = Command::new("sh");
    command.args(["-c", GUARD, "guard", &pid.to_string()]).arg(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    command.spawn().map_err(|error| format!("no guard: {error}"))
}
