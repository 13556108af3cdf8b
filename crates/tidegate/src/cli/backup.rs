//! `tidegate backup` and `tidegate restore`: the control plane's database as one file, from which either database can be filled.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal as _, Read as _, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tidegate_control::{BackedUp, ControlStore, Options, Restored, Who};
use tokio::runtime::{Builder, Runtime};

use super::config::tell;
use super::exit::Exit;
use super::settings::SettingFlags;
use crate::node::{control, data};

/// How long one page of rows may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// The file that is standard output, or standard input.
const STANDARD: &str = "-";

#[derive(Args, Debug)]
#[command(after_help = "\
All of one moment, whatever is changed meanwhile; nodes go on. The database is the one that the settings name: control.database, or SQLite
in node.data. A backup holds hashes of tokens and the key of these hashes: keep it as a secret. (A file is made for its owner alone.)

Examples:
  tidegate backup --to control.backup
  tidegate backup --settings /etc/tidegate.yaml --to - | gzip > control.backup.gz")]
pub(crate) struct Backup {
    /// The file to write, which must not be there yet; `-` is standard output
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    #[command(flatten)]
    settings: SettingFlags,
}

#[derive(Args, Debug)]
#[command(after_help = "\
In one transaction: all of it, or nothing if the backup is cut short, was changed, or its audit trail does not verify. The database is
the one that the settings name, and has to be empty; with --replace all that is there goes first. A node on SQLite is
stopped before; nodes on PostgreSQL see it and read all again. A move from SQLite to PostgreSQL is a backup and a restore.

Examples:
  tidegate restore --from control.backup
  tidegate restore --from control.backup --control-database postgres://tidegate@db/tidegate
  gunzip < control.backup.gz | tidegate restore --from - --replace --yes")]
pub(crate) struct Restore {
    /// The backup; `-` is standard input
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Take away all that is there
    #[arg(long)]
    replace: bool,
    /// Do not ask before
    #[arg(long, requires = "replace")]
    yes: bool,
    #[command(flatten)]
    settings: SettingFlags,
}

/// The database that the settings name.
pub(super) struct Named {
    pub(super) options: Options,
    /// For people.
    pub(super) place: String,
    /// The folder that it is in, if it is in one.
    folder: Option<PathBuf>,
}

impl Named {
    /// None: the settings have errors, which were told.
    pub(super) fn by(flags: &SettingFlags) -> io::Result<Option<Self>> {
        let resolved = flags.resolve();
        tell(&resolved.report, &resolved.sources);
        if resolved.report.errors() > 0 {
            return Ok(None);
        }
        let settings = &resolved.settings;
        let named = control::database(&settings.control, Some(&settings.data));
        let named = named.map_err(|error| io::Error::other(error.to_string()))?;
        let (options, place) = named.ok_or_else(|| io::Error::other("the settings name no database"))?;
        let folder = settings.control.database.is_none().then(|| settings.data.clone());
        Ok(Some(Self { options: options.deadline(DEADLINE), place, folder }))
    }

    /// Nothing is written through it.
    pub(super) async fn open_to_read(&self) -> io::Result<ControlStore> {
        let opened = ControlStore::open(&self.options.clone().only_reads()).await;
        opened.map_err(|error| self.trouble(&error))
    }

    pub(super) fn trouble(&self, error: &tidegate_control::Error) -> io::Error {
        io::Error::other(format!("{}: {error}", self.place))
    }
}

pub(super) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

impl Backup {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        let Some(named) = Named::by(&self.settings)? else { return Ok(Exit::Config) };
        let held = match self.to.as_os_str() == STANDARD {
            true => runtime()?.block_on(write(&named, &mut io::stdout().lock()))?,
            false => self.write_file(&named)?,
        };
        tell_held("backed up", &named.place, &held);
        Ok(Exit::Yes)
    }

    /// Whole or not at all.
    fn write_file(&self, named: &Named) -> io::Result<BackedUp> {
        let here = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| io::Error::other(format!("{path}: {error}"))
        };
        if self.to.exists() {
            return Err(here(&self.to)(io::Error::other("is there already: a backup replaces nothing")));
        }
        let mut part = self.to.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&part);
        let mut file = BufWriter::new(file.map_err(here(&part))?);
        let written = runtime()?.block_on(write(named, &mut file)).and_then(|held| {
            file.get_ref().sync_all()?;
            fs::rename(&part, &self.to)?;
            Ok(held)
        });
        if written.is_err() {
            let _ = fs::remove_file(&part); // What failed is told; half of it is worth nothing.
        }
        written
    }
}

async fn write(named: &Named, to: &mut impl Write) -> io::Result<BackedUp> {
    let store = named.open_to_read().await?;
    let mut backup = store.backup().await.map_err(|error| named.trouble(&error))?;
    while let Some(lines) = backup.next().await.map_err(|error| named.trouble(&error))? {
        to.write_all(lines.as_bytes())?;
    }
    to.flush()?;
    let held = backup.so_far();
    drop(backup);
    store.close().await;
    Ok(held)
}

impl Restore {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        let Some(named) = Named::by(&self.settings)? else { return Ok(Exit::Config) };
        if self.replace && !self.yes && !self.is_meant(&named)? {
            anstream::eprintln!("nothing was restored");
            return Ok(Exit::No);
        }
        // As long as this is held, no node starts on it; one that runs already holds it.
        let _lock = match &named.folder {
            Some(folder) => Some(data::lock(folder).map_err(|error| {
                io::Error::other(format!("{error}; a node that runs there has to be stopped before"))
            })?),
            None => None,
        };
        let held = match self.from.as_os_str() == STANDARD {
            true => self.fill(&named, io::stdin().lock())?,
            false => {
                let file = File::open(&self.from);
                let file =
                    file.map_err(|error| io::Error::other(format!("{}: {error}", self.from.display())))?;
                self.fill(&named, BufReader::new(file))?
            }
        };
        let (rows, was, is) = (held.held.rows, held.held.head.seq, held.head.seq);
        anstream::eprintln!(
            "restored: {rows} rows of revision {was}, and one about this: revision {is}, {}",
            named.place
        );
        Ok(Exit::Yes)
    }

    fn fill(&self, named: &Named, from: impl BufRead) -> io::Result<Restored> {
        runtime()?.block_on(async {
            let store = ControlStore::open(&named.options).await.map_err(|error| named.trouble(&error))?;
            let restored = store.restore(&whoever(), from, self.replace).await;
            store.close().await;
            restored.map_err(|error| {
                let advice = "nothing was changed";
                io::Error::other(format!("{}: {error}; {advice}", named.place))
            })
        })
    }

    /// Where nobody can answer, nobody is asked.
    fn is_meant(&self, named: &Named) -> io::Result<bool> {
        if !io::stdin().is_terminal() {
            return Err(io::Error::other("nobody can be asked whether this is meant: add --yes"));
        }
        anstream::eprint!("all that is in {} will be gone. Replace it? [y/N] ", named.place);
        let mut line = String::new();
        io::stdin().lock().take(64).read_line(&mut line)?;
        Ok(matches!(line.trim(), "y" | "Y" | "yes"))
    }
}

/// Who runs this, for the audit trail: whoever has the database needs no token, so it is the system's word that counts.
fn whoever() -> Who {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let id = fs::metadata("/proc/self").map(|process| process.uid().to_string()).unwrap_or_default();
    let of_id = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == id).then(|| name.to_owned())
    };
    let user = read("/etc/passwd").lines().find_map(of_id).unwrap_or_else(|| format!("user {id}"));
    let origin = format!("{user}@{}", read("/proc/sys/kernel/hostname").trim());
    Who::new("cli", origin)
}

fn tell_held(done: &str, place: &str, held: &BackedUp) {
    let (rows, revision) = (held.rows, held.head.seq);
    anstream::eprintln!("{done}: {rows} rows, revision {revision}, {place}");
}
