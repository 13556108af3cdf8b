//! Refusals in a file of their own, to answer a customer by: a line of JSON for each, so many a second, in so many bytes.
//!
//! A decision hands over what is to be said, if there is room in a queue, and goes on; a thread writes it. What found no room, and what
//! could not be written, is counted.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use jiff::Timestamp;
use tidegate_core::{Key, Micros};

use crate::label::label;
use crate::log::write_json_text;
use crate::refusals::{Gate, Refusal};

/// How many may wait for the thread.
const WAITING_MAX: usize = 1_024;

/// The way into the file, for all cores.
#[derive(Debug)]
pub(crate) struct RefusalFile {
    enforced: Gate,
    shadow: Gate,
    records: SyncSender<Record>,
    counts: Arc<Counts>,
}

#[derive(Default, Debug)]
struct Counts {
    written: AtomicU64,
    lost: AtomicU64,
}

/// What one line says.
#[derive(Debug)]
struct Record {
    at: Micros,
    key: Key,
    caller: Option<Key>,
    tag: Option<String>,
    domain: String,
    rule: String,
    tier: Option<String>,
    limit: String,
    source: &'static str,
    state: &'static str,
    reason: &'static str,
    remaining: u32,
    retry_after: Option<Micros>,
    trace_id: Option<String>,
    left_out: u64,
}

impl RefusalFile {
    pub(crate) fn start(path: PathBuf, per_second: u32, bytes_max: u64, cores: usize) -> io::Result<Self> {
        let (records, waiting) = sync_channel(WAITING_MAX);
        let counts = Arc::new(Counts::default());
        let writer =
            Writer { path, half: bytes_max / 2, file: None, counts: counts.clone(), is_failing: false };
        std::thread::Builder::new().name("refusals".into()).spawn(move || writer.run(&waiting))?;
        let (enforced, shadow) = (Gate::new(per_second, cores), Gate::new(per_second, cores));
        Ok(Self { enforced, shadow, records, counts })
    }

    /// Whether this one is written: then says how many were left out before it.
    pub(crate) fn line(&self, is_shadow: bool, core: usize, now: Micros) -> Option<u64> {
        let gate = if is_shadow { &self.shadow } else { &self.enforced };
        gate.line(core, now)
    }

    pub(crate) fn add(&self, refusal: &Refusal<'_>, now: Micros, left_out: u64) {
        let record = Record {
            at: now,
            key: refusal.key,
            caller: refusal.caller,
            tag: refusal.tag.map(|tag| tag.to_string()),
            domain: refusal.domain.to_owned(),
            rule: refusal.rule.map_or("request".into(), |rule| label(rule).into_owned()),
            tier: refusal.tier.map(String::from),
            limit: refusal.limit.to_string(),
            source: refusal.source.word(),
            state: refusal.state,
            reason: refusal.reason.word(),
            remaining: refusal.remaining,
            retry_after: refusal.retry_after,
            trace_id: refusal.trace_id.map(String::from),
            left_out,
        };
        if self.records.try_send(record).is_err() {
            self.counts.lost.fetch_add(1, Relaxed);
        }
    }

    /// How many are written, and how many could not be.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.counts.written.load(Relaxed), self.counts.lost.load(Relaxed))
    }
}

impl Record {
    fn line(&self) -> String {
        let mut line = String::from("{\"time\":");
        let at = i64::try_from(self.at.get()).ok().and_then(|at| Timestamp::from_microsecond(at).ok());
        let mut text = |name: &str, value: &str| {
            if line.len() > "{\"time\":".len() {
                let _ = write!(line, ",\"{name}\":");
            }
            let _ = write_json_text(&mut line, value);
        };
        text("time", &at.map_or_else(String::new, |at| format!("{at:.6}")));
        text("domain", &self.domain);
        text("rule", &self.rule);
        if let Some(caller) = self.caller {
            text("caller", &caller.to_string());
        }
        text("key", &self.key.to_string());
        if let Some(tag) = &self.tag {
            text("tag", tag);
        }
        for (name, value) in [("reason", self.reason), ("state", self.state), ("source", self.source)] {
            text(name, value);
        }
        text("limit", &self.limit);
        if let Some(tier) = &self.tier {
            text("tier", tier);
        }
        if let Some(trace_id) = &self.trace_id {
            text("trace_id", trace_id);
        }
        let _ = write!(line, ",\"remaining\":{}", self.remaining);
        if let Some(wait) = self.retry_after {
            let _ = write!(line, ",\"retry_after_ms\":{}", wait.get().div_ceil(1_000));
        }
        if self.left_out > 0 {
            let _ = write!(line, ",\"left_out\":{}", self.left_out);
        }
        line.push_str("}\n");
        line
    }
}

/// The thread's side.
struct Writer {
    path: PathBuf,
    /// At this size another file is begun.
    half: u64,
    file: Option<(File, u64)>,
    counts: Arc<Counts>,
    is_failing: bool,
}

impl Writer {
    /// Ends when the last way in is gone.
    fn run(mut self, waiting: &Receiver<Record>) {
        for record in waiting {
            match self.write(record.line().as_bytes()) {
                Ok(()) => {
                    self.counts.written.fetch_add(1, Relaxed);
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!(file = %self.path.display(), "the file of refusals can be written again");
                    }
                }
                Err(error) => {
                    self.counts.lost.fetch_add(1, Relaxed);
                    if !std::mem::replace(&mut self.is_failing, true) {
                        tracing::error!(%error, file = %self.path.display(), "the file of refusals cannot be written");
                    }
                }
            }
        }
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        if self.file.as_ref().is_some_and(|(file, _)| !is_at(file, &self.path)) {
            self.file = None; // Somebody has moved it away.
        }
        let (mut file, mut bytes) = match self.file.take() {
            Some(open) => open,
            None => open(&self.path)?,
        };
        if bytes > 0 && bytes + line.len() as u64 > self.half {
            fs::rename(&self.path, before(&self.path))?;
            (file, bytes) = open(&self.path)?;
        }
        // In one piece: half a line is left only by a disk that is full. The file is opened again then.
        file.write_all(line)?;
        self.file = Some((file, bytes + line.len() as u64));
        Ok(())
    }
}

/// Opens a file for lines to be added, and says how long it is. Behind half a line, which a full disk left there, another line is begun:
/// else the next would be lost with it.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(path)?;
    let bytes = file.metadata()?.len();
    let mut last = [b'\n'];
    if bytes > 0 {
        file.read_exact_at(&mut last, bytes - 1)?;
    }
    if last == [b'\n'] {
        return Ok((file, bytes));
    }
    file.write_all(b"\n")?;
    Ok((file, bytes + 1))
}

fn is_at(file: &File, path: &Path) -> bool {
    let there = fs::metadata(path).map(|there| (there.dev(), there.ino()));
    let ours = file.metadata().map(|ours| (ours.dev(), ours.ino()));
    matches!((there, ours), (Ok(there), Ok(ours)) if there == ours)
}

/// Where the lines before those of a file are.
fn before(path: &Path) -> PathBuf {
    let mut name = path.to_path_buf().into_os_string();
    name.push(".1");
    name.into()
}
