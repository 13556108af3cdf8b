//! The time that a server sees, which a test can move while the server runs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_clock::Clock;

use crate::find::build_folder;
use crate::server::Server;
use crate::wait::until;

/// What the library reads.
pub(crate) const VARIABLE: &str = "TIDEGATE_CLOCK_OFFSET";

/// A busy machine lets some time go by between the server's look at its clock and ours; then it is asked again.
const NEAR_US: i64 = 50_000;

const SEEN_MAX: Duration = Duration::from_secs(10);

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/shim/clock.c");

/// The wall clock of a server, or of several, as far as it is off. Needs Linux. Give it to [`crate::Options::clock`], and keep it while the
/// server runs.
pub struct ServerClock {
    folder: TempDir,
    file: File,
    library: PathBuf,
}

impl ServerClock {
    /// A clock that is not off yet.
    pub fn new() -> Result<Self, String> {
        let library = clock_shim()?;
        let of = |error: std::io::Error| format!("no file for the clock: {error}");
        let folder = tempfile::tempdir().map_err(of)?;
        let file = File::create(folder.path().join("offset_us")).map_err(of)?;
        let clock = Self { folder, file, library };
        clock.set_offset_us(0)?;
        Ok(clock)
    }

    /// From now on, these servers see the machine's time and so many microseconds more; waits until they do, since Valkey asks for the wall
    /// time only every tenth of a second and counts on from there. (A move by less than 50 ms is not waited for.)
    pub fn shift(&self, offset_us: i64, servers: &[&Server]) -> Result<(), String> {
        self.set_offset_us(offset_us)?;
        servers.iter().try_for_each(|server| {
            until("a server sees the new time", SEEN_MAX, || {
                let off_us = ahead_us(server)? - offset_us;
                if off_us.abs() < NEAR_US { Ok(()) } else { Err(format!("it is {off_us} µs from it")) }
            })
        })
    }

    /// The same without waiting.
    pub fn set_offset_us(&self, offset_us: i64) -> Result<(), String> {
        let written = self.file.write_all_at(&offset_us.to_ne_bytes(), 0);
        written.map_err(|error| format!("the clock cannot be moved: {error}"))
    }

    pub(crate) fn library(&self) -> &Path {
        &self.library
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("offset_us")
    }
}

/// What a server's time is more than ours.
fn ahead_us(server: &Server) -> Result<i64, String> {
    let mut client = server.client()?;
    // Asked last of all, so that little time goes by between the two.
    let (now_us, reply) = (Clock::real().wall_now_us(), client.command(&["TIME"])?);
    let [seconds, micros] = reply.items() else { return Err(format!("TIME: {reply:?}")) };
    let time_us =
        seconds.integer().zip(micros.integer()).map(|(seconds, micros)| seconds * 1_000_000 + micros);
    Ok(time_us.ok_or_else(|| format!("TIME: {reply:?}"))? - now_us as i64)
}

/// The library that is put before the C library; built by `cc` when it is first asked for, and when its source has changed.
pub fn clock_shim() -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(build).clone()
}

fn build() -> Result<PathBuf, String> {
    let of = |what: &Path, error: std::io::Error| format!("{}: {error}", what.display());
    let folder = build_folder();
    std::fs::create_dir_all(&folder).map_err(|error| of(&folder, error))?;
    let (library, source) = (folder.join("clock.so"), Path::new(SOURCE));
    let changed = |path: &Path| path.metadata().and_then(|about| about.modified());
    let source_changed = changed(source).map_err(|error| of(source, error))?;
    if changed(&library).is_ok_and(|built| built > source_changed) {
        return Ok(library);
    }
    // Under another name first: several tests may be at it, and some may be using an older one.
    let fresh = folder.join(format!("clock.{}.so", std::process::id()));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]).arg(&fresh).arg(source).arg("-ldl");
    let output = compiler.output().map_err(|error| {
        format!("`cc` is missing ({error}): install a C compiler, or run `cargo xtask test`")
    })?;
    if !output.status.success() {
        return Err(format!("`cc` refused {SOURCE}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    std::fs::rename(&fresh, &library).map_err(|error| of(&library, error))?;
    Ok(library)
}
