//! The thread that writes lines: what it does may take as long as a disk or a reader wants.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::SinkTo;
use crate::audit::GENESIS;
use crate::audit_line::{AuditLine, unhex};
use crate::model::Head;
use crate::store::hex;

/// The longest line that is looked for: a row has two documents of a megabyte at most.
const LINE_MAX: usize = 16 << 20;
/// A file is read from its end in pieces of this size.
const PIECE: u64 = 64 << 10;
/// What every line begins with.
const BEGINNING: &[u8] = b"{\"seq\":";

/// What the thread is asked to do.
pub(super) enum Errand {
    /// Look how far it is.
    Open,
    /// Write these lines, which end with this row.
    Write { lines: Vec<u8>, last: Head },
    /// Move away what is there, and begin anew.
    SetAside,
}

type Answer = oneshot::Sender<io::Result<Head>>;

/// The way to the thread. It ends when this is dropped and its last errand is done.
pub(super) struct Pen(SyncSender<(Errand, Answer)>);

impl Pen {
    pub(super) fn start(to: SinkTo, position: Option<PathBuf>) -> io::Result<Self> {
        let (errands, waiting) = sync_channel(1);
        let hand = Hand { to, position, file: None, at: GENESIS, is_told: false };
        std::thread::Builder::new().name("audit-sink".into()).spawn(move || hand.work(&waiting))?;
        Ok(Self(errands))
    }

    pub(super) fn give(&self, errand: Errand, answer: Answer) -> Result<(), String> {
        self.0.try_send((errand, answer)).map_err(|_| "its thread does not listen".into())
    }
}

struct Hand {
    to: SinkTo,
    position: Option<PathBuf>,
    file: Option<File>,
    /// The last row that is written.
    at: Head,
    /// Has standard output had anything of us?
    is_told: bool,
}

impl Hand {
    fn work(mut self, waiting: &Receiver<(Errand, Answer)>) {
        for (errand, answer) in waiting {
            let done = match errand {
                Errand::Open => self.open(),
                Errand::Write { lines, last } => self.write(&lines, last).map(|()| last),
                Errand::SetAside => self.set_aside(),
            };
            if done.is_err() {
                self.file = None; // Half a line may stand at its end: the next look cuts that off.
            }
            let _ = answer.send(done); // Whoever does not wait any more does not need it.
        }
    }

    fn open(&mut self) -> io::Result<Head> {
        self.file = None; // Its lock goes with it.
        let kept = self.position.as_deref().and_then(read_position);
        let found = match &self.to {
            SinkTo::Stdout => None,
            SinkTo::File(path) => {
                let (file, found) = open(path).map_err(|error| at(path, error))?;
                self.file = Some(file);
                found
            }
        };
        self.at = found.or(kept).unwrap_or(GENESIS);
        Ok(self.at)
    }

    fn write(&mut self, lines: &[u8], last: Head) -> io::Result<()> {
        match self.to.clone() {
            SinkTo::Stdout => self.write_out(lines)?,
            SinkTo::File(path) => self.write_file(&path, lines).map_err(|error| at(&path, error))?,
        }
        self.at = last;
        match &self.position {
            Some(path) => write_position(path, last).map_err(|error| at(path, error)),
            None => Ok(()),
        }
    }

    fn write_out(&mut self, lines: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if !self.is_told && self.at.seq > 0 {
            out.write_all(b"\n")?; // The process before may have been killed in the middle of a line.
        }
        self.is_told = true;
        out.write_all(lines)?;
        out.flush()
    }

    fn write_file(&mut self, path: &Path, lines: &[u8]) -> io::Result<()> {
        // Twice, should somebody remove the file at this moment.
        for _ in 0..3 {
            let file = self.file_at(path)?;
            file.write_all(lines)?;
            file.sync_data()?;
            if file.metadata()?.nlink() > 0 {
                return Ok(());
            }
        }
        Err(io::Error::other("somebody removes it again and again"))
    }

    /// The file at this path: another than before, if that was moved away.
    fn file_at(&mut self, path: &Path) -> io::Result<&mut File> {
        let same = |file: &File| -> io::Result<bool> {
            let ours = file.metadata()?;
            match fs::metadata(path) {
                Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(error) => Err(error),
            }
        };
        if !self.file.as_ref().map(same).transpose()?.unwrap_or(false) {
            self.file = None;
            let (file, found) = open(path)?;
            if found.is_some_and(|found| found != self.at) {
                return Err(io::Error::other("another file of audit lines was put in its place"));
            }
            self.file = Some(file);
        }
        self.file.as_mut().ok_or_else(|| io::Error::other("it is not open"))
    }

    fn set_aside(&mut self) -> io::Result<Head> {
        self.file = None;
        if let Some(position) = &self.position {
            match fs::remove_file(position) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(position, error)),
                _ => {}
            }
        }
        if let SinkTo::File(path) = &self.to
            && path.exists()
        {
            let name = |number: u32| {
                let mut name = path.clone().into_os_string();
                name.push(format!(
                    ".replaced-{}{}",
                    self.at.seq,
                    if number > 0 { format!("-{number}") } else { String::new() }
                ));
                PathBuf::from(name)
            };
            let free = (0..1000).map(name).find(|name| !name.exists());
            let aside =
                free.ok_or_else(|| at(path, io::Error::other("there are too many old ones beside it")))?;
            fs::rename(path, &aside).map_err(|error| at(path, error))?;
        }
        self.open()
    }
}

fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Opens a file for lines to be added: for its owner alone, because subjects are API keys; for this process alone. Half a line at its end
/// is cut off. Gives the row of the last line.
fn open(path: &Path) -> io::Result<(File, Option<Head>)> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is no plain file"));
    }
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => io::Error::other("another process writes to it"),
        TryLockError::Error(error) => error,
    })?;
    let Tail { end, line, torn } = tail(&mut file)?;
    let found = match line {
        Some(line) => {
            let head = AuditLine::read(&line).ok().and_then(|line| line.head());
            Some(head.ok_or_else(|| foreign("its last line is no row of an audit trail"))?)
        }
        None if is_ours(&torn) => None,
        None => return Err(foreign("what stands in it is no row of an audit trail")),
    };
    if !torn.is_empty() {
        file.set_len(end)?;
    }
    file.sync_all()?;
    if let Some(folder) = path.parent() {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        File::open(folder)?.sync_all()?; // A new file is there after a loss of power too.
    }
    Ok((file, found))
}

fn foreign(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{why}: move it away, or name another file"))
}

/// The beginning of a first line, or what a loss of power makes of one.
fn is_ours(torn: &[u8]) -> bool {
    let common = torn.len().min(BEGINNING.len());
    torn[..common] == BEGINNING[..common] || torn.iter().all(|byte| *byte == 0)
}

/// How a file ends.
struct Tail {
    /// After its last whole line.
    end: u64,
    /// That line; none: there is none.
    line: Option<Vec<u8>>,
    /// What stands behind it.
    torn: Vec<u8>,
}

/// Reads no more of a file than its last lines.
fn tail(file: &mut File) -> io::Result<Tail> {
    let mut start = file.metadata()?.len();
    let mut bytes: Vec<u8> = Vec::new();
    loop {
        if let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') {
            // Empty lines say nothing.
            let last = bytes[..end].iter().rposition(|byte| *byte != b'\n');
            let begin = last.and_then(|last| bytes[..last].iter().rposition(|byte| *byte == b'\n'));
            let begin = begin.map(|newline| newline + 1).or((start == 0).then_some(0));
            if let Some(begin) = begin {
                let line = last.map(|last| bytes[begin..=last].to_vec());
                return Ok(Tail { end: start + end as u64 + 1, line, torn: bytes.split_off(end + 1) });
            }
        } else if start == 0 {
            return Ok(Tail { end: 0, line: None, torn: bytes });
        }
        if bytes.len() > 2 * LINE_MAX {
            return Err(foreign("it has no lines"));
        }
        // Twice as much each time, so that a long line is not copied again and again.
        let piece = start.min(PIECE.max(bytes.len() as u64));
        start -= piece;
        let mut before = vec![0; usize::try_from(piece).map_err(io::Error::other)?];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut before)?;
        before.append(&mut bytes);
        bytes = before;
    }
}

#[derive(Serialize, Deserialize)]
struct Position {
    seq: u64,
    hash: String,
}

/// None: there is none that can be read, so all is written once more.
fn read_position(path: &Path) -> Option<Head> {
    let Position { seq, hash } = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    Some(Head { seq, hash: unhex(&hash)? })
}

/// After the lines: what is killed in between writes them once more.
fn write_position(path: &Path, head: Head) -> io::Result<()> {
    let text = serde_json::to_string(&Position { seq: head.seq, hash: hex(&head.hash) })?;
    let mut part = path.to_path_buf().into_os_string();
    part.push(".part");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&part)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()?;
    fs::rename(&part, path) // Whole or not at all.
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::AuditEntry;

    fn line(seq: u64, filler: usize) -> (String, Head) {
        let mut entry = AuditEntry {
            seq,
            at: 1,
            actor: "a".into(),
            origin: String::new(),
            action: "create".into(),
            kind: "quota".into(),
            subject: "x".repeat(filler),
            before: None,
            after: None,
            prev_hash: GENESIS.hash,
            hash: [0; 32],
        };
        entry.hash = entry.computed_hash();
        let head = entry.head();
        (AuditLine::of(entry).text().unwrap(), head)
    }

    #[test]
    fn the_last_whole_line_is_found_and_what_is_torn_is_cut_off() {
        let folder = std::env::temp_dir().join(format!("tidegate-pen-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("audit.jsonl");
        let (one, (two, second), (long, last)) = (line(1, 3).0, line(2, 5), line(3, 300_000));
        let cases: [(String, usize, Option<Head>); 9] = [
            (String::new(), 0, None),
            (format!("{one}{two}"), one.len() + two.len(), Some(second)),
            (format!("{one}{two}\n\n"), one.len() + two.len() + 2, Some(second)),
            (format!("{one}{two}{}", &long[..200_000]), one.len() + two.len(), Some(second)),
            (format!("{one}{two}{long}{{"), one.len() + two.len() + long.len(), Some(last)),
            (format!("{one}{two}\0\0\0"), one.len() + two.len(), Some(second)),
            ("{\"se".into(), 0, None),
            ("\0\0\0".into(), 0, None),
            ("\n".into(), 1, None),
        ];
        for (text, length, expected) in cases {
            fs::write(&path, &text).unwrap();
            let (file, found) = open(&path).unwrap();
            assert_eq!(
                (found, file.metadata().unwrap().len()),
                (expected, length as u64),
                "{} bytes",
                text.len()
            );
        }
        // What somebody else wrote is not touched.
        for text in ["a diary", "a diary\n", "{\"seq\":1}\n", &format!("{one}dear diary\n")] {
            fs::write(&path, text).unwrap();
            assert!(open(&path).is_err(), "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
