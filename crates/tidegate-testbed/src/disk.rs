//! A disk that gets full.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// Takes the disk away when its test ends, in whatever way. It learns of this by the end of its input.
const GUARD: &str = r#"trap '' INT TERM HUP
read -r line
umount -l "$1"
rmdir -- "$1""#;

/// What fills it.
const BALLAST: &str = "ballast";

/// A disk in memory of a certain size, that is gone when it is dropped.
pub struct Disk {
    folder: PathBuf,
    guard: Child,
}

impl Disk {
    /// Mounts one. That is for root: others are told why they cannot.
    pub fn mount(megabytes: u32) -> Result<Self, String> {
        let of = |error: std::io::Error| format!("no disk: {error}");
        let folder = tempfile::Builder::new().prefix("testbed").tempdir().map(TempDir::keep).map_err(of)?;
        let size = format!("size={megabytes}m,mode=1777");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "testbed"]).arg(&folder).output();
        let mount = mount.map_err(of)?;
        if !mount.status.success() {
            let _ = std::fs::remove_dir(&folder);
            return Err(format!("no disk: {}", String::from_utf8_lossy(&mount.stderr).trim()));
        }
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "guard"]).arg(&folder);
        let guard = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let guard = guard.map_err(|error| {
            let _ = Command::new("umount").arg(&folder).status();
            of(error)
        })?;
        Ok(Self { folder, guard })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Leaves no room on it.
    pub fn fill(&self) -> Result<(), String> {
        let of = |error: std::io::Error| format!("{BALLAST}: {error}");
        let mut ballast = std::fs::File::create(self.folder.join(BALLAST)).map_err(of)?;
        // Large pieces first, then single pages.
        for bytes in [1 << 20, 1 << 12, 1] {
            let piece = vec![0; bytes];
            while ballast.write_all(&piece).is_ok() {}
        }
        Ok(())
    }

    /// Makes room again.
    pub fn empty(&self) {
        let _ = std::fs::remove_file(self.folder.join(BALLAST));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}
