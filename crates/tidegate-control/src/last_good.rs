//! What a node knew last, in a file of its own: for a start while the database is away. Changes are added to it line by line, so that it
//! is as new as the node was when it ended, however it ended; a new one is written whole when everything was read again, or much of it is
//! old. Where it cannot be written, it is put aside as one that lacks edits, until a new one is whole.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::audit::HASH_BYTES;
use crate::audit_line::unhex;
use crate::model::{Quota, Revision, RuleState, Tier};
use crate::store::hex;

/// The form of the file, by which programs of the version before know that they do not understand it; and the oldest that is read here.
const FORMAT: u32 = 2;
const FORMAT_MIN: u32 = 1;
/// So many lines may be old before the file is written anew.
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
    /// Lines that were added since it was written whole.
    added: u64,
    /// It could not be written, and that was said.
    broken: bool,
}

/// A new file, that takes the other's place when it is whole.
pub(crate) struct Rewrite {
    out: BufWriter<File>,
    part: Part,
    failed: Option<io::Error>,
    known: Known,
}

/// Where a new file is until it is whole. If it never is, it goes away: on a full disk it would take the room that others wait for.
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // One that took its place is not here any more.
    }
}

impl LastGood {
    /// The file of a database that is called so.
    pub fn new(path: impl Into<PathBuf>, of: impl Into<String>) -> Self {
        Self { path: path.into(), of: of.into(), out: None, added: 0, broken: false }
    }

    /// Shows all lines to `tell`, in order, up to the last whole revision, which comes back; none where there is no file of this database.
    pub(crate) fn read(&mut self, tell: impl FnMut(Line)) -> io::Result<Option<Known>> {
        let read = read(&self.path, &self.of, tell)?;
        let Some(Read { known, lines, live, whole_bytes }) = read else { return Ok(None) };
        // What was cut off, by a crash, would spoil the line behind it.
        let file = OpenOptions::new().append(true).open(&self.path)?;
        file.set_len(whole_bytes)?;
        self.out = Some(BufWriter::new(file));
        self.added = lines.saturating_sub(live);
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

    /// Writes the file anew if much of it is old. That takes a while where it is large: nobody should wait for it.
    pub(crate) fn tidy_up(&mut self) {
        if self.out.is_some() && self.added > OLD_MAX {
            let compacted = self.compact();
            self.tell_broken(compacted);
        }
    }

    /// Begins a new file, of everything at a revision. None where there is no room for one.
    pub(crate) fn rewrite(&mut self, known: Known) -> Option<Rewrite> {
        match Rewrite::new(&self.path, &self.of, known) {
            Ok(rewrite) => Some(rewrite),
            Err(error) => {
                self.tell_broken(Err(error));
                None
            }
        }
    }

    /// Puts a new file in the place of the old one.
    pub(crate) fn replace(&mut self, rewrite: Rewrite) {
        match rewrite.finish(&self.path) {
            Ok(out) => {
                (self.out, self.added) = (Some(out), 0);
                let _ = fs::remove_file(self.aside()); // Mostly there is none; and the new one is read first.
                if std::mem::replace(&mut self.broken, false) {
                    let file = self.path.display();
                    tracing::info!(%file, "what the control plane knows is kept again for a start without its database");
                }
            }
            Err(error) => self.tell_broken(Err(error)),
        }
    }

    /// Writes the file anew, without what is old in it.
    fn compact(&mut self) -> io::Result<()> {
        let mut lines: HashMap<About, Line> = HashMap::new();
        let read = read(&self.path, &self.of, |line| drop(lines.insert(line.about(), line)))?;
        let Some(Read { known, .. }) = read else { return Err(io::Error::other("it is gone")) };
        let rewritten = Rewrite::new(&self.path, &self.of, known).and_then(|mut rewrite| {
            lines.values().filter(|line| !line.is_gone()).for_each(|line| rewrite.add(line));
            rewrite.finish(&self.path)
        });
        // Where there is no room for two files, this one is as good as before: it goes on, and it is tried again when as much has come.
        self.added = 0;
        match rewritten {
            Ok(out) => self.out = Some(out),
            Err(error) => {
                let file = self.path.display();
                tracing::warn!(%error, %file, "what is old in it cannot be left out: it grows until there is room for a new one");
            }
        }
        Ok(())
    }

    /// Says once that the file cannot be written; a start without the database would know less. Nothing else suffers.
    fn tell_broken(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.out = None;
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
    fn new(path: &Path, of: &str, known: Known) -> io::Result<Self> {
        let part = Part(path.with_extension("part"));
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600); // There are names of callers in it.
        let mut out = BufWriter::new(options.open(&part.0)?);
        write_line(&mut out, &Mark::File { format: FORMAT, of: of.to_owned() })?;
        out.flush()?; // A disk that is full says so here, before anybody reads a whole database for it.
        Ok(Self { out, part, failed: None, known })
    }

    pub(crate) fn add(&mut self, line: &Line) {
        if self.failed.is_none() {
            self.failed = write_line(&mut self.out, line).err();
        }
    }

    /// Is there no use in adding more?
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    fn finish(mut self, path: &Path) -> io::Result<BufWriter<File>> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        write_line(&mut self.out, &Mark::at(self.known))?;
        self.out.flush()?;
        self.out.get_ref().sync_all()?;
        fs::rename(&self.part.0, path)?;
        Ok(self.out)
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
        file.tidy_up();
        drop(file);
        assert!(fs::metadata(&path).expect("the file").len() < 2_000);
        let expected = HashMap::from([("a".to_owned(), quota("a", &format!("t{OLD_MAX}")))]);
        assert_eq!(lines(&path), (Some(6 + OLD_MAX + 1), expected));
    }

    #[test]
    fn without_room_for_two_the_file_goes_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("last");
        let mut file = begin(&path);
        fs::create_dir(path.with_extension("part")).expect("what is in the way of a new one");
        for at in 0..=OLD_MAX {
            file.add(&quota("a", &format!("t{at}")));
        }
        file.end_of(head(6));
        file.tidy_up();
        assert!(!file.is_broken());
        file.add(&quota("a", "last"));
        file.end_of(head(7));
        let expected = HashMap::from([("a".into(), quota("a", "last")), ("b".into(), quota("b", "free"))]);
        assert_eq!(lines(&path), (Some(7), expected));
    }
}
