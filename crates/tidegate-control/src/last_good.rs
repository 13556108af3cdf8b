//! What a node knew last, in a file of its own: for a start while the database is away. Changes are added to it line by line, so that it
//! is as new as the node was when it ended, however it ended; a new one is written whole when everything was read again, or much of it is
//! old. Where it cannot be written, it is put aside as one that lacks edits, until a new one is whole.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::audit::HASH_BYTES;
use crate::audit_line::unhex;
use crate::model::{Quota, Revision, RuleState, Tier};
use crate::store::hex;

/// The form of the file, by which programs of the version before know that they do not understand it; and the oldest that is read here.
const FORMAT: u32 = 2;
const FORMAT_MIN: u32 = 1;
/// So many lines may be old before the file is written anew, and as many as are not: a large file is not written for a few.
const OLD_MAX: u64 = 10_000;
/// A line that is longer is none of ours.
const LINE_BYTES_MAX: usize = 8 << 20;

/// One line: what became known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    Quota(Quota),
    NoQuota(String),
    Tier(Tier),
    NoTier(String),
    Rule { id: String, document: String },
    NoRule(String),
    State(RuleState),
    NoState(String),
}

/// The lines that are about the file itself.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mark {
    /// The first: whose file it is.
    File { format: u32, of: String },
    /// All changes up to this revision stand above.
    At { revision: Revision, hash: String },
    /// The same, from programs that did not keep the hash of its row.
    Revision(Revision),
}

impl Mark {
    fn at((revision, hash): Known) -> Self {
        match hash {
            Some(hash) => Self::At { revision, hash: hex(&hash) },
            None => Self::Revision(revision),
        }
    }
}

/// Up to where all changes are known: a revision, and the hash of its row of the audit trail, if that is known.
pub(crate) type Known = (Revision, Option<[u8; HASH_BYTES]>);

/// What a line is about: a later one about the same thing makes it old.
#[derive(Clone, PartialEq, Eq, Hash)]
enum About {
    Quota(String),
    Tier(String),
    Rule(String),
    State(String),
}

impl Line {
    fn about(&self) -> About {
        match self {
            Self::Quota(quota) => About::Quota(quota.api_key.clone()),
            Self::NoQuota(key) => About::Quota(key.clone()),
            Self::Tier(Tier { name, .. }) | Self::NoTier(name) => About::Tier(name.clone()),
            Self::Rule { id, .. } | Self::NoRule(id) => About::Rule(id.clone()),
            Self::State(RuleState { rule, .. }) | Self::NoState(rule) => About::State(rule.clone()),
        }
    }

    fn is_gone(&self) -> bool {
        matches!(self, Self::NoQuota(_) | Self::NoTier(_) | Self::NoRule(_) | Self::NoState(_))
    }
}

/// The file.
#[derive(Debug)]
pub struct LastGood {
    path: PathBuf,
    /// Whose it is: what another database said is not ours.
    of: String,
    out: Option<BufWriter<File>>,
    /// Lines that were added since it was written whole, and lines that it had then.
    added: u64,
    live: u64,
    /// While one without what is old is written.
    tidying: Option<Tidying>,
    /// It could not be written, and that was said.
    broken: bool,
}

/// A thread that writes the file anew.
#[derive(Debug)]
struct Tidying {
    thread: std::thread::JoinHandle<io::Result<Tidied>>,
    /// There is a new file already, or none.
    is_void: bool,
    /// What had been added when it began.
    added: u64,
}

/// The file without what was old in it.
#[derive(Debug)]
struct Tidied {
    file: Rewrite,
    live: u64,
    /// Up to where it was read: what stands behind was added later.
    whole_bytes: u64,
}

/// A new file, that takes the other's place when it is whole.
#[derive(Debug)]
pub(crate) struct Rewrite {
    out: BufWriter<File>,
    part: Part,
    failed: Option<io::Error>,
    known: Known,
    lines: u64,
}

/// Where a new file is until it is whole. If it never is, it goes away: on a full disk it would take the room that others wait for.
#[derive(Debug)]
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // One that took its place is not here any more.
    }
}

impl LastGood {
    /// The file of a database that is called so.
    pub fn new(path: impl Into<PathBuf>, of: impl Into<String>) -> Self {
        Self { path: path.into(), of: of.into(), out: None, added: 0, live: 0, tidying: None, broken: false }
    }

    /// Shows all lines to `tell`, in order, up to the last whole revision, which comes back; none where there is no file of this database.
    pub(crate) fn read(&mut self, tell: impl FnMut(Line)) -> io::Result<Option<Known>> {
        let read = read(&self.path, &self.of, tell)?;
        let Some(Read { known, lines, live, whole_bytes }) = read else { return Ok(None) };
        // What was cut off, by a crash, would spoil the line behind it.
        let file = OpenOptions::new().append(true).open(&self.path)?;
        file.set_len(whole_bytes)?;
        self.out = Some(BufWriter::new(file));
        (self.added, self.live) = (lines.saturating_sub(live), live);
        Ok(Some(known))
    }

    /// Shows all lines of a file that was put aside, since edits are missing in it. That is more than nothing, but not what the node had.
    pub(crate) fn read_aside(&mut self, tell: impl FnMut(Line)) -> io::Result<Option<Known>> {
        Ok(read(&self.aside(), &self.of, tell)?.map(|read| read.known))
    }

    /// Could it not be written? Then nothing is added until there is a new one.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Adds what became known. It is in the file with the next [`Self::end_of`].
    pub(crate) fn add(&mut self, line: &Line) {
        let Some(out) = &mut self.out else { return };
        self.added += 1;
        let written = write_line(out, line);
        self.tell_broken(written);
    }

    /// All of a revision has been added.
    pub(crate) fn end_of(&mut self, known: Known) {
        let Some(out) = &mut self.out else { return };
        let written = write_line(out, &Mark::at(known)).and_then(|()| out.flush());
        self.tell_broken(written);
    }

    /// Has the file written anew once much of it is old. That takes a while where it is large, so it is done on a thread of its own, and
    /// a later call puts the new file in the place of the old one. To be called when all that was added belongs to a whole revision.
    pub(crate) fn tidy_up(&mut self) {
        match &self.tidying {
            Some(tidying) if tidying.thread.is_finished() => {}
            Some(_) => return,
            None if self.out.is_some() && self.added > self.live.max(OLD_MAX) => return self.begin_to_tidy(),
            None => return,
        }
        let Some(Tidying { thread, is_void, added }) = self.tidying.take() else { return };
        let tidied = thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread broke")));
        if is_void {
            return; // Another has taken the old one's place meanwhile.
        }
        // Where there is no room for two files, this one is as good as before: it goes on, and it is tried again when as much has come.
        self.added -= added.min(self.added);
        if let Err(error) = tidied.and_then(|tidied| self.put(tidied)) {
            let file = self.path.display();
            tracing::warn!(%error, %file, "what is old in it cannot be left out: it grows until there is room for a new one");
        }
    }

    fn begin_to_tidy(&mut self) {
        let (path, of, added) = (self.path.clone(), self.of.clone(), self.added);
        let thread =
            std::thread::Builder::new().name("last-good".into()).spawn(move || Tidied::new(&path, &of));
        match thread {
            Ok(thread) => self.tidying = Some(Tidying { thread, is_void: false, added }),
            Err(error) => {
                tracing::debug!(%error, "no thread for what is old in the last-good file: another time")
            }
        }
    }

    /// Puts a tidied file in the place of this one, with what was added to this one meanwhile.
    fn put(&mut self, tidied: Tidied) -> io::Result<()> {
        let Tidied { mut file, live, whole_bytes } = tidied;
        if let Some(out) = &mut self.out {
            out.flush()?;
        }
        let mut old = File::open(&self.path)?;
        old.seek(io::SeekFrom::Start(whole_bytes))?;
        io::copy(&mut old, &mut file.out)?;
        (self.out, self.live) = (Some(file.put(&self.path)?), live);
        Ok(())
    }

    /// A file that is being tidied is not this one any more.
    fn give_up_tidying(&mut self) {
        if let Some(tidying) = &mut self.tidying {
            tidying.is_void = true;
        }
    }

    /// Begins a new file, of everything at a revision. None where there is no room for one.
    pub(crate) fn rewrite(&mut self, known: Known) -> Option<Rewrite> {
        match Rewrite::new(self.path.with_extension("part"), &self.of, known) {
            Ok(rewrite) => Some(rewrite),
            Err(error) => {
                self.tell_broken(Err(error));
                None
            }
        }
    }

    /// Puts a new file in the place of the old one.
    pub(crate) fn replace(&mut self, rewrite: Rewrite) {
        let lines = rewrite.lines;
        match rewrite.finish(&self.path) {
            Ok(out) => {
                self.give_up_tidying();
                (self.out, self.added, self.live) = (Some(out), 0, lines);
                let _ = fs::remove_file(self.aside()); // Mostly there is none; and the new one is read first.
                if std::mem::replace(&mut self.broken, false) {
                    let file = self.path.display();
                    tracing::info!(%file, "what the control plane knows is kept again for a start without its database");
                }
            }
            Err(error) => self.tell_broken(Err(error)),
        }
    }

    /// Says once that the file cannot be written; a start without the database would know less. Nothing else suffers.
    fn tell_broken(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.out = None;
            self.give_up_tidying();
            // From now on the node knows more than the file. What is in it is still better than the rules alone, and so it is not removed;
            // but no node should be ready by it, as if it were all. A mark inside would need room: another name needs none.
            let _ = fs::rename(&self.path, self.aside());
            if !std::mem::replace(&mut self.broken, true) {
                let file = self.path.display();
                tracing::warn!(
                    %error, %file, "what the control plane knows cannot be kept for a start without its database; it is tried again"
                );
            }
        }
    }

    fn aside(&self) -> PathBuf {
        self.path.with_extension("old")
    }
}

impl Rewrite {
    fn new(part: PathBuf, of: &str, known: Known) -> io::Result<Self> {
        let part = Part(part);
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600); // There are names of callers in it.
        let mut out = BufWriter::new(options.open(&part.0)?);
        write_line(&mut out, &Mark::File { format: FORMAT, of: of.to_owned() })?;
        out.flush()?; // A disk that is full says so here, before anybody reads a whole database for it.
        Ok(Self { out, part, failed: None, known, lines: 0 })
    }

    pub(crate) fn add(&mut self, line: &Line) {
        if self.failed.is_none() {
            self.lines += 1;
            self.failed = write_line(&mut self.out, line).err();
        }
    }

    /// Is there no use in adding more?
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    fn finish(mut self, path: &Path) -> io::Result<BufWriter<File>> {
        self.end()?;
        self.put(path)
    }

    /// All of it is there, and on the disk.
    fn end(&mut self) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        write_line(&mut self.out, &Mark::at(self.known))?;
        self.out.flush()?;
        self.out.get_ref().sync_all()
    }

    fn put(mut self, path: &Path) -> io::Result<BufWriter<File>> {
        self.out.flush()?;
        fs::rename(&self.part.0, path)?;
        Ok(self.out)
    }
}

impl Tidied {
    fn new(path: &Path, of: &str) -> io::Result<Self> {
        let mut lines: HashMap<About, Line> = HashMap::new();
        let read = read(path, of, |line| drop(lines.insert(line.about(), line)))?;
        let Some(Read { known, whole_bytes, .. }) = read else { return Err(io::Error::other("it is gone")) };
        // By a name of its own: one of everything may be written at the same time.
        let mut file = Rewrite::new(path.with_extension("tidy"), of, known)?;
        lines.values().filter(|line| !line.is_gone()).for_each(|line| file.add(line));
        file.end()?;
        let live = file.lines;
        Ok(Self { file, live, whole_bytes })
    }
}

fn write_line(out: &mut impl io::Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

/// What was read.
struct Read {
    known: Known,
    /// How many lines there are, and how many of them are not old.
    lines: u64,
    live: u64,
    /// Bytes up to the end of the last whole revision.
    whole_bytes: u64,
}

fn read(path: &Path, of: &str, mut tell: impl FnMut(Line)) -> io::Result<Option<Read>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut lines = Lines { file: BufReader::new(file), at: 0 };
    match lines.next()?.map(|text| serde_json::from_str(&text)) {
        Some(Ok(Mark::File { format: FORMAT_MIN..=FORMAT, of: whose })) if whose == of => {}
        Some(Ok(Mark::File { format: FORMAT_MIN..=FORMAT, .. })) | None => return Ok(None),
        _ => return Err(damaged("it has no head that is known here")),
    }
    // What stands behind the last mark may not be whole: its revision is not known.
    let (mut last, mut waiting, mut seen, mut abouts) = (None, Vec::new(), 0, HashMap::new());
    while let Some(text) = lines.next()? {
        let known: Option<Known> = match serde_json::from_str(&text) {
            Ok(Mark::At { revision, hash }) => Some((revision, unhex(&hash))),
            Ok(Mark::Revision(revision)) => Some((revision, None)),
            _ => None,
        };
        if let Some(known) = known {
            for line in waiting.drain(..) {
                let line: Line = line;
                abouts.insert(line.about(), !line.is_gone());
                tell(line);
            }
            last = Some((known, lines.at));
        } else {
            match serde_json::from_str(&text) {
                Ok(line) => waiting.push(line),
                Err(_) => break, // Cut off by a crash; or by somebody else, and then the database will know.
            }
            seen += 1;
        }
    }
    let live = abouts.values().filter(|live| **live).count() as u64;
    Ok(last.map(|(known, whole_bytes)| Read { known, lines: seen, live, whole_bytes }))
}

/// Whole lines of a file, of a bounded length each.
struct Lines {
    file: BufReader<File>,
    at: u64,
}

impl Lines {
    fn next(&mut self) -> io::Result<Option<String>> {
        let mut bytes = Vec::new();
        let mut limited = io::Read::take(&mut self.file, LINE_BYTES_MAX as u64);
        let read = limited.read_until(b'\n', &mut bytes)?;
        if bytes.last() != Some(&b'\n') {
            return if read == LINE_BYTES_MAX { Err(damaged("a line is too long")) } else { Ok(None) };
        }
        self.at += read as u64;
        String::from_utf8(bytes).map(Some).map_err(|_| damaged("it is not text"))
    }
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(key: &str, tier: &str) -> Line {
        Line::Quota(Quota { tier: Some(tier.into()), ..Quota::of(key) })
    }

    /// Some row of a trail.
    fn head(seq: Revision) -> Known {
        (seq, Some([seq as u8; HASH_BYTES]))
    }

    fn lines(path: &Path) -> (Option<Revision>, HashMap<String, Line>) {
        let mut lines = HashMap::new();
        let mut file = LastGood::new(path, "db");
        let revision = file.read(|line| match line {
            Line::NoQuota(key) => drop(lines.remove(&key)),
            Line::Quota(ref quota) => drop(lines.insert(quota.api_key.clone(), line)),
            other => panic!("{other:?}"),
        });
        let known = revision.expect("it can be read");
        if let Some((revision, hash)) = known {
            assert_eq!(hash, head(revision).1);
        }
        (known.map(|(revision, _)| revision), lines)
    }

    fn begin(path: &Path) -> LastGood {
        let mut file = LastGood::new(path, "db");
        let mut rewrite = file.rewrite(head(5)).expect("a file");
        rewrite.add(&quota("a", "free"));
        rewrite.add(&quota("b", "free"));
        file.replace(rewrite);
        file
    }

    #[test]
    fn what_was_kept_comes_back_up_to_the_last_whole_revision() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("last");
        assert_eq!(lines(&path), (None, HashMap::new()));
        let mut file = begin(&path);
        file.add(&quota("a", "pro"));
        file.add(&Line::NoQuota("b".into()));
        file.end_of(head(7));
        file.add(&quota("c", "half of a revision"));
        drop(file); // As flushed as it will be.
        let expected = HashMap::from([("a".to_owned(), quota("a", "pro"))]);
        assert_eq!(lines(&path), (Some(7), expected.clone()));
        let mut text = fs::read(&path).expect("the file");
        text.extend(b"{\"quota\":{\"api_key\":\"torn");
        fs::write(&path, &text).expect("written");
        assert_eq!(lines(&path), (Some(7), expected), "a torn line is nothing");
        let mut file = LastGood::new(&path, "db");
        file.read(|_| ()).expect("read");
        file.add(&quota("d", "free"));
        file.end_of(head(9));
        drop(file);
        assert_eq!(lines(&path).0, Some(9), "and nothing is lost behind it");
    }

    #[test]
    fn what_a_program_before_wrote_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("last");
        let text = "{\"file\":{\"format\":1,\"of\":\"db\"}}\n{\"no_tier\":\"gold\"}\n{\"revision\":4}\n";
        fs::write(&path, text).expect("written");
        let mut seen = Vec::new();
        let known = LastGood::new(&path, "db").read(|line| seen.push(line)).expect("it can be read");
        assert_eq!((known, seen), (Some((4, None)), vec![Line::NoTier("gold".into())]));
    }

    #[test]
    fn what_another_database_said_is_not_ours() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("last");
        drop(begin(&path));
        let mut other = LastGood::new(&path, "another");
        assert_eq!(other.read(|line| panic!("{line:?}")).expect("read"), None);
        fs::write(&path, "{\"file\":{\"format\":3,\"of\":\"db\"}}\n").expect("written");
        assert!(LastGood::new(&path, "db").read(|_| ()).is_err(), "another form");
    }

    /// Until it is done, if there is something to do.
    fn tidy(file: &mut LastGood) {
        file.tidy_up();
        while file.tidying.is_some() {
            std::thread::yield_now();
            file.tidy_up();
        }
    }

    #[test]
    fn what_is_old_is_left_out_when_there_is_much_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("last");
        let mut file = begin(&path);
        for at in 0..=OLD_MAX {
            file.add(&quota("a", &format!("t{at}")));
            file.end_of(head(6 + at));
        }
        file.add(&Line::NoQuota("b".into()));
        file.end_of(head(6 + OLD_MAX + 1));
        tidy(&mut file);
        drop(file);
        assert!(fs::metadata(&path).expect("the file").len() < 2_000);
        let expected = HashMap::from([("a".to_owned(), quota("a", &format!("t{OLD_MAX}")))]);
        assert_eq!(lines(&path), (Some(6 + OLD_MAX + 1), expected));
    }

    #[test]
    fn a_large_file_is_not_written_anew_for_a_few_lines_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("last");
        let mut file = LastGood::new(&path, "db");
        let mut rewrite = file.rewrite(head(5)).expect("a file");
        (0..2 * OLD_MAX).for_each(|key| rewrite.add(&quota(&key.to_string(), "free")));
        file.replace(rewrite);
        let add = |file: &mut LastGood, count: u64| {
            (0..count).for_each(|_| file.add(&quota("0", "pro")));
            file.end_of(head(6));
            file.tidy_up();
            file.tidying.is_some()
        };
        assert!(!add(&mut file, 2 * OLD_MAX));
        drop(file);
        let mut file = LastGood::new(&path, "db");
        file.read(|_| ()).expect("read");
        assert!(!add(&mut file, 0), "nor by the next run");
        assert!(add(&mut file, 1));
        tidy(&mut file);
        assert!(!add(&mut file, 2 * OLD_MAX));
        assert!(add(&mut file, 1));
    }

    #[test]
    fn what_comes_while_the_file_is_written_anew_is_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("last");
        for is_replaced in [false, true] {
            let mut file = begin(&path);
            (0..=OLD_MAX).for_each(|at| file.add(&quota("a", &format!("t{at}"))));
            file.end_of(head(6));
            file.tidy_up();
            let is_read = |file: &LastGood| file.tidying.as_ref().map(|tidying| tidying.thread.is_finished());
            assert!(is_read(&file).is_some(), "nobody waits for it");
            while is_read(&file) == Some(false) {
                std::thread::yield_now();
            }
            if is_replaced {
                let mut rewrite = file.rewrite(head(7)).expect("a file");
                rewrite.add(&quota("b", "new"));
                file.replace(rewrite);
            }
            file.add(&quota("c", "came"));
            file.end_of(head(8));
            tidy(&mut file);
            file.add(&quota("d", "came later"));
            file.end_of(head(9));
            drop(file);
            let (revision, lines) = lines(&path);
            let mut tiers: Vec<_> = lines.into_values().collect();
            tiers.sort_by_key(|line| format!("{line:?}"));
            let old = quota("a", &format!("t{OLD_MAX}"));
            let expected = match is_replaced {
                false => vec![old, quota("b", "free"), quota("c", "came"), quota("d", "came later")],
                true => vec![quota("b", "new"), quota("c", "came"), quota("d", "came later")],
            };
            assert_eq!((revision, tiers), (Some(9), expected));
            assert!(fs::metadata(&path).expect("the file").len() < 2_000);
            assert!(!path.with_extension("tidy").exists());
        }
    }

    #[test]
    fn without_room_for_two_the_file_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("last");
        let mut file = begin(&path);
        fs::create_dir(path.with_extension("tidy")).expect("what is in the way of a new one");
        for at in 0..=OLD_MAX {
            file.add(&quota("a", &format!("t{at}")));
        }
        file.end_of(head(6));
        tidy(&mut file);
        assert!(!file.is_broken());
        file.add(&quota("a", "last"));
        file.end_of(head(7));
        let expected = HashMap::from([("a".into(), quota("a", "last")), ("b".into(), quota("b", "free"))]);
        assert_eq!(lines(&path), (Some(7), expected));
    }
}
