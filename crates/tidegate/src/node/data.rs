//! What outlives the process: the secret that keys are hashed under, and the counters of a node that ended gracefully. Rules that came from
//! a server are kept here too, by `xds.rs`.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tidegate_config::Settings;
use tidegate_core::{Micros, Secret};
use tidegate_counters::Memory;

use super::StartError;

const SECRET: &str = "secret";
/// That of the fleet, if it is another: should its store lose everything, the fleet goes on under the same.
const FLEET_SECRET: &str = "fleet-secret";
const COUNTERS: &str = "counters";
/// Held while a node runs: two that write to one folder would lose each other's counters.
const LOCK: &str = "lock";

/// Why the folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataError {
    /// Something in it cannot be read or written.
    #[error("{}: {why}", path.display())]
    File {
        /// What.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// Another node runs on it.
    #[error("{}: another node uses this folder; give each its own by node.data", path.display())]
    Taken {
        /// The folder.
        path: PathBuf,
    },
    /// The secret is not one.
    #[error(
        "{}: not a secret of 32 hexadecimal digits; remove it to have a new one made, which starts all counters afresh",
        path.display()
    )]
    Secret {
        /// Its file.
        path: PathBuf,
    },
}

/// The folder, or none: then there is a secret for this run alone.
#[derive(Debug)]
pub(crate) struct Data {
    folder: Option<PathBuf>,
    secret: [u8; 16],
    /// Locked as long as it is open.
    _lock: Option<File>,
}

impl Data {
    /// Opens the folder, and makes what is missing in it. A folder that nobody asked for may be missing: it costs the counters at a
    /// restart, and that is said.
    pub(super) fn open(settings: &Settings) -> Result<Self, StartError> {
        match Self::open_folder(&settings.data) {
            Ok(data) => Ok(data),
            Err(error) if settings.data_said => Err(StartError::Data(error)),
            Err(error) => {
                // With a store, what matters is there.
                match settings.store.url {
                    None => {
                        tracing::warn!(%error, "no folder for data: counters will not outlive this process")
                    }
                    Some(_) => {
                        tracing::info!(%error, "no folder for data: nothing is kept here for the next start")
                    }
                }
                Ok(Self { folder: None, secret: fresh_secret()?, _lock: None })
            }
        }
    }

    fn open_folder(folder: &Path) -> Result<Self, DataError> {
        let at = |path: &Path| {
            let path = path.to_path_buf();
            move |why| DataError::File { path, why }
        };
        let lock = lock(folder)?;
        let path = folder.join(SECRET);
        let secret = match fs::read_to_string(&path) {
            Ok(text) => hex(text.trim()).ok_or(DataError::Secret { path })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let secret = fresh_secret().map_err(at(&path))?;
                write_private(&path, digits(secret).as_bytes()).map_err(at(&path))?;
                secret
            }
            Err(error) => return Err(at(&path)(error)),
        };
        Ok(Self { folder: Some(folder.to_path_buf()), secret, _lock: Some(lock) })
    }

    pub(super) fn secret(&self) -> Secret {
        Secret::new(self.secret)
    }

    /// The one that a fleet is offered: the one that it had, if this node was of one before.
    pub(super) fn fleet_secret(&self) -> FleetSecret {
        let path = self.folder.as_ref().map(|folder| folder.join(FLEET_SECRET));
        let kept = path.as_ref().and_then(|path| hex(fs::read_to_string(path).ok()?.trim()));
        FleetSecret { path, kept: kept.unwrap_or(self.secret) }
    }

    /// The folder, if there is one.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Loads the counters of the last run, if it left any. A file that cannot be loaded is put aside.
    pub(super) fn load_counters(&self, counters: &Memory, now: Micros) {
        let Some(folder) = &self.folder else { return };
        let path = folder.join(COUNTERS);
        let Ok(file) = File::open(&path) else { return };
        match counters.load_snapshot(file, &self.label(), now) {
            Ok(loaded) => tracing::info!(
                keys = loaded.keys,
                ended_since = loaded.dead,
                left_out = loaded.left_out,
                "counters of the last run loaded"
            ),
            Err(error) => {
                let aside = folder.join(format!("{COUNTERS}.rejected"));
                tracing::warn!(%error, kept_as = %aside.display(), "counters of the last run not loaded");
                if let Err(error) = fs::rename(&path, &aside) {
                    tracing::warn!(%error, file = %path.display(), "a file of old counters cannot be renamed");
                }
            }
        }
    }

    /// Removes the counters of the last run. They are loaded once: after a crash, old ones would be wrong.
    pub(super) fn forget_counters(&self) {
        let Some(path) = self.folder.as_ref().map(|folder| folder.join(COUNTERS)) else { return };
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, file = %path.display(), "a file of old counters cannot be removed");
            }
            _ => {}
        }
    }

    /// Writes the counters for the next run.
    pub(super) fn save_counters(&self, counters: &Memory, now: Micros) {
        let Some(folder) = &self.folder else { return };
        let (part, path) = (folder.join(format!("{COUNTERS}.part")), folder.join(COUNTERS));
        let written = File::create(&part).and_then(|file| {
            let keys = counters.write_snapshot(&file, &self.label(), now)?;
            file.sync_all()?;
            fs::rename(&part, &path)?; // Whole or not at all.
            Ok(keys)
        });
        match written {
            Ok(keys) => tracing::info!(keys, file = %path.display(), "counters saved for the next run"),
            Err(error) => tracing::error!(%error, file = %path.display(), "counters not saved"),
        }
    }

    /// Says whose keys a file of counters has, without the secret in it.
    fn label(&self) -> [u8; 16] {
        self.secret().start().part(b"counters").key().bits().to_le_bytes()
    }
}

/// The secret of a fleet, as this node knows it.
pub(super) struct FleetSecret {
    path: Option<PathBuf>,
    kept: [u8; 16],
}

impl FleetSecret {
    pub(super) fn get(&self) -> Secret {
        Secret::new(self.kept)
    }

    /// This is the fleet's.
    pub(super) fn keep(&mut self, secret: Secret) {
        if std::mem::replace(&mut self.kept, secret.bytes()) == secret.bytes() {
            return;
        }
        let Some(path) = &self.path else { return };
        let part = path.with_extension("part");
        let _ = fs::remove_file(&part); // Of somebody who ended in the middle.
        let kept =
            write_private(&part, digits(secret.bytes()).as_bytes()).and_then(|()| fs::rename(&part, path));
        if let Err(error) = kept {
            tracing::warn!(%error, file = %path.display(), "the fleet's secret is not kept for the next start");
        }
    }
}

fn digits(secret: [u8; 16]) -> String {
    secret.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a folder if there is none, and takes it: no node runs on it as long as this is open.
pub(crate) fn lock(folder: &Path) -> Result<File, DataError> {
    let at = |path: &Path| {
        let path = path.to_path_buf();
        move |why| DataError::File { path, why }
    };
    fs::create_dir_all(folder).map_err(at(folder))?;
    let path = folder.join(LOCK);
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let lock = lock.map_err(at(&path))?;
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => DataError::Taken { path: folder.to_path_buf() },
        TryLockError::Error(why) => at(&path)(why),
    })?;
    Ok(lock)
}

fn fresh_secret() -> io::Result<[u8; 16]> {
    use ring::rand::SecureRandom as _;
    let mut secret = [0; 16];
    // From the system itself, and not from a file: where there is nothing but the binary, there is no `/dev`.
    let filled = ring::rand::SystemRandom::new().fill(&mut secret);
    filled.map_err(|_| io::Error::other("the system has no random numbers"))?;
    Ok(secret)
}

fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?.write_all(bytes)
}

fn hex(text: &str) -> Option<[u8; 16]> {
    let whole = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let bits = whole.then(|| u128::from_str_radix(text, 16).ok()).flatten()?;
    Some(bits.to_be_bytes())
}
