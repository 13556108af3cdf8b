//! Programs that Go builds from its registry, each once, into the project's cache folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::reference::cache_folder;

/// A program of a package in Go's registry, in one version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoProgram {
    /// The package; its last word is the program's name.
    pub package: &'static str,
    /// Which version.
    pub version: &'static str,
}

impl GoProgram {
    /// Its name.
    pub fn name(&self) -> &'static str {
        self.package.rsplit('/').next().unwrap_or(self.package)
    }

    /// Where it is, if it is there; nothing is built.
    pub fn find(&self) -> Option<PathBuf> {
        Some(self.folder()?.join(self.name())).filter(|program| program.is_file())
    }

    /// Where it is; it is built if it is not there yet, which takes a minute or more, once.
    pub fn find_or_build(&self) -> Result<PathBuf, String> {
        if let Some(program) = self.find() {
            return Ok(program);
        }
        let folder = self.folder().ok_or("there is no cache folder, since HOME is not set")?;
        self.build(&folder)
    }

    fn folder(&self) -> Option<PathBuf> {
        // A `+` in a version is no part of a path that everybody likes.
        Some(cache_folder()?.join("go").join(self.name()).join(self.version.replace('+', "-")))
    }

    /// Builds it beside its place and moves it there whole: several processes may do this at the same time.
    pub(crate) fn build(&self, folder: &Path) -> Result<PathBuf, String> {
        let (name, what) = (self.name(), format!("{}@{}", self.package, self.version));
        let of = |what: &str, error: std::io::Error| format!("{what}: {error}");
        std::fs::create_dir_all(folder).map_err(|error| of("no cache folder", error))?;
        let beside = tempfile::tempdir_in(folder).map_err(|error| of("no cache folder", error))?;
        eprintln!("building {name}, once: go install {what}");
        let mut command = Command::new("go");
        command.arg("install").arg(&what).current_dir(beside.path());
        command.env("GOBIN", beside.path()).stdin(Stdio::null());
        let output = command.output().map_err(|error| of("`go` does not start", error))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim().lines().last().unwrap_or_default().to_string();
            return Err(format!("`go install {what}` ended with {}: {said}", output.status));
        }
        let program = folder.join(name);
        std::fs::rename(beside.path().join(name), &program)
            .map_err(|error| of("it cannot be moved", error))?;
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_like_the_end_of_its_package() {
        let program = GoProgram { package: "example.org/some/cmd/tool", version: "v1.0.0+odd" };
        assert_eq!(program.name(), "tool");
        assert_eq!(program.find(), None);
        if let Some(folder) = program.folder() {
            assert!(folder.ends_with("go/tool/v1.0.0-odd"), "{}", folder.display());
        }
    }
}
