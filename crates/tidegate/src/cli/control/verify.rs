//! `tidegate audit verify`

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use http::Method;
use serde_json::json;
use tidegate_control::{
    AuditEntry, AuditFilter, AuditLine, AuditOrder, Broken, Chain, GENESIS, HASH_BYTES, Head, Verification,
};

use super::client::{Admin, Call, Ended};
use crate::cli::backup::{Named, runtime};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::settings::SettingFlags;

/// The longest line of a file.
const LINE_MAX: u64 = 16 << 20;
/// The hashes of so many rows are kept, to know a row that comes again.
const RECENT_MAX: usize = 1 << 16;

#[derive(Args, Debug)]
#[command(after_help = "\
Looks at the database that the settings name, and changes nothing there; or at lines of control.audit_sink, or at what the API tells.
Ends with 0 if every row is as it was written and none is missing, with 3 if not, with 1 if it could not be looked at.
Keep the head elsewhere: with --expect, it shows later that nobody wrote the whole trail anew.

Examples:
  tidegate audit verify                                           the database of this node
  tidegate audit verify --file audit.jsonl.1 --file audit.jsonl   what a sink wrote, the oldest first
  tidegate audit verify --api --admin https://admin.example       what a node tells
  tidegate audit verify --expect 1042:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
pub(crate) struct Verify {
    /// A file of lines of a sink; several are read as one, the oldest first
    #[arg(long, value_name = "FILE", conflicts_with = "api")]
    file: Vec<PathBuf>,
    /// Ask the admin API (--admin) for all rows
    #[arg(long)]
    api: bool,
    /// The number and the hash of a row, as they were told before
    #[arg(long, value_name = "ROW:HASH", value_parser = head)]
    expect: Option<Head>,
    #[command(flatten)]
    admin: Admin,
    #[command(flatten)]
    settings: SettingFlags,
}

fn head(said: &str) -> Result<Head, String> {
    let read = || {
        let (seq, hash) = said.split_once(':')?;
        Some(Head { seq: seq.parse().ok().filter(|seq| *seq > 0)?, hash: unhex(hash)? })
    };
    read().ok_or_else(|| "write the number of a row, a colon, and its hash of 64 hexadecimal digits".into())
}

fn unhex(text: &str) -> Option<[u8; HASH_BYTES]> {
    let mut bytes = [0; HASH_BYTES];
    let whole = text.len() == 2 * HASH_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (at, byte) in bytes.iter_mut().enumerate().filter(|_| whole) {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    whole.then_some(bytes)
}

impl Verify {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        if self.api {
            return self.admin.end(self.of_api());
        }
        if !self.file.is_empty() {
            return self.told(&self.of_files()?);
        }
        let Some(named) = Named::by(&self.settings)? else { return Ok(Exit::Config) };
        let walk = runtime()?.block_on(self.of_database(&named))?;
        self.told(&walk)
    }

    async fn of_database(&self, named: &Named) -> io::Result<Walk> {
        let store = named.open_to_read().await?;
        let trouble = |error| named.trouble(&error);
        let mut walk = Walk::new(self.expect);
        match store.verify(1, None).await.map_err(trouble)? {
            Verification::Broken(broken) => {
                walk.rows = broken.seq.saturating_sub(1);
                walk.first = (walk.rows > 0).then_some(1);
                walk.broken = Some(broken);
            }
            Verification::Intact { rows, last } => {
                (walk.rows, walk.first, walk.chain) =
                    (rows, (rows > 0).then_some(1), Some(Chain::after(last)));
                if let Some(expected) = self.expect {
                    let seq = Some(expected.seq);
                    let one = AuditFilter { since_seq: seq, until_seq: seq, ..AuditFilter::default() };
                    let found = store.audit(&one, AuditOrder::OldestFirst, None, 1).await.map_err(trouble)?;
                    if let Some(entry) = found.items.first() {
                        walk.meets(entry);
                    }
                }
            }
        }
        store.close().await;
        Ok(walk)
    }

    fn of_files(&self) -> io::Result<Walk> {
        let mut walk = Walk::new(self.expect);
        for path in &self.file {
            read(path, &mut walk)
                .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        }
        Ok(walk)
    }

    fn of_api(&self) -> Ended {
        let mut walk = Walk::new(self.expect);
        walk.chain = Some(Chain::after(GENESIS));
        let mut cursor: Option<String> = None;
        while walk.broken.is_none() {
            let call = Call::new(Method::GET, &["audit"], "tidegate audit list")
                .query("order", Some("oldest"))
                .query("limit", Some("1000"))
                .query("cursor", cursor.as_deref());
            let answer = self.admin.ask(call)?;
            let (lines, next) = AuditLine::read_page(&answer.bytes).map_err(io::Error::other)?;
            for line in lines {
                walk.add(line.entry().map_err(io::Error::other)?);
            }
            match next {
                Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                _ => break,
            }
        }
        Ok(self.told(&walk)?)
    }

    fn told(&self, walk: &Walk) -> io::Result<Exit> {
        let last = walk.chain.as_ref().map_or(GENESIS, Chain::last);
        let hash: String = last.hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let broken = walk.broken.clone().or_else(|| walk.unmet(last));
        if self.admin.is_json() {
            let told = match &broken {
                Some(broken) => {
                    json!({ "intact": false, "rows": walk.rows, "seq": broken.seq, "why": broken.why })
                }
                None => json!({
                    "intact": true, "rows": walk.rows, "first": walk.first, "last": last.seq, "hash": hash,
                    "repeated": walk.repeated, "notes": walk.notes,
                }),
            };
            output::write_json(&told)?;
        } else {
            let mut text: String = walk.notes.iter().map(|note| format!("note    {note}\n")).collect();
            text += &match (&broken, walk.first) {
                (Some(broken), _) => format!("broken  {broken}; {} rows before it are intact\n", walk.rows),
                (None, None) => "intact  there are no rows\n".to_owned(),
                (None, Some(first)) => {
                    let rows = if walk.rows == 1 { "row" } else { "rows" };
                    format!(
                        "intact  {} {rows}, {first} to {}\nhead    {}:{hash}\n",
                        walk.rows, last.seq, last.seq
                    )
                }
            };
            output::write(&text)?;
        }
        Ok(if broken.is_some() { Exit::No } else { Exit::Yes })
    }
}

/// The way along a chain, row by row.
struct Walk {
    chain: Option<Chain>,
    rows: u64,
    first: Option<u64>,
    /// Rows that came again.
    repeated: u64,
    recent: VecDeque<Head>,
    expected: Option<Head>,
    is_met: bool,
    notes: Vec<String>,
    broken: Option<Broken>,
}

impl Walk {
    fn new(expected: Option<Head>) -> Self {
        Self {
            chain: None,
            rows: 0,
            first: None,
            repeated: 0,
            recent: VecDeque::new(),
            expected,
            is_met: false,
            notes: Vec::new(),
            broken: None,
        }
    }

    /// The next row. Nothing is looked at behind one that is broken.
    fn add(&mut self, entry: AuditEntry) {
        if self.broken.is_some() {
            return;
        }
        let before = Head { seq: entry.seq.saturating_sub(1), hash: entry.prev_hash };
        let chain = self.chain.get_or_insert_with(|| {
            if before.seq > 0 {
                self.notes.push(format!("the rows before {} are not here", entry.seq));
            }
            Chain::after(before)
        });
        if self.rows > 0 && entry.seq <= chain.last().seq {
            return self.again(&entry);
        }
        match chain.verify(&entry) {
            Ok(()) => {
                self.rows += 1;
                self.first.get_or_insert(entry.seq);
                self.recent.push_back(entry.head());
                if self.recent.len() > RECENT_MAX {
                    self.recent.pop_front();
                }
                self.meets(&entry);
            }
            Err(broken) => self.broken = Some(broken),
        }
    }

    /// A sink writes every row at least once: one that comes again is the same.
    fn again(&mut self, entry: &AuditEntry) {
        self.repeated += 1;
        let known = self.recent.iter().rev().find(|known| known.seq == entry.seq);
        if entry.hash != entry.computed_hash() || known.is_some_and(|known| known.hash != entry.hash) {
            let why = "comes again, and is another than before".into();
            self.broken = Some(Broken { seq: entry.seq, why });
        }
    }

    fn meets(&mut self, entry: &AuditEntry) {
        if let Some(expected) = self.expected.filter(|expected| expected.seq == entry.seq) {
            self.is_met = true;
            if expected.hash != entry.hash {
                let why = "is not the one that is expected: the trail was written anew".into();
                self.broken = Some(Broken { seq: entry.seq, why });
            }
        }
    }

    /// A row that is expected has to be there.
    fn unmet(&self, last: Head) -> Option<Broken> {
        let expected = self.expected.filter(|_| !self.is_met)?;
        let why = format!("is expected, and not here: the last one is {}", last.seq);
        Some(Broken { seq: expected.seq, why })
    }
}

fn read(path: &Path, walk: &mut Walk) -> io::Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        if file.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.last() != Some(&b'\n') {
            if line.len() as u64 >= LINE_MAX {
                return Err(io::Error::other(format!("line {number} is too long")));
            }
            walk.notes.push(format!("{}: the last line is not whole; it is written again", path.display()));
            break;
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        match AuditLine::read(text).and_then(AuditLine::entry) {
            Ok(entry) => walk.add(entry),
            Err(why) => return Err(io::Error::other(format!("line {number} {why}"))),
        }
        if walk.broken.is_some() {
            break;
        }
    }
    Ok(())
}
