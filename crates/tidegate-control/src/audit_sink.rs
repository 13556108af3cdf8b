//! The audit trail as lines of a file, or on standard output: every row at least once, in order, whatever is killed when.
//!
//! Rows are read from the database and from nowhere else, so nothing that was acknowledged can be missed; how far it is is told by the last
//! whole line of the file, and by a small file beside it when that was moved away. What can wait or fail is done by a thread of its own: a
//! disk that is full, or a pipe that nobody reads, holds up nothing but the sink.

mod pen; // the thread that writes

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::audit_line::AuditLine;
use crate::error::{Error, Result};
use crate::model::{AuditFilter, AuditOrder, Head, Revision};
use crate::store::{ControlStore, Wakeups};
use pen::{Errand, Pen};

/// Rows that are written, and synced, at once. Each may hold two documents of a rule.
const ROWS: usize = 64;
/// How often it is looked for rows that nobody told of.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// After which time what failed is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// After which time it is said that the sink takes nothing. It is still waited for: what was begun cannot be taken back.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where lines go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SinkTo {
    /// Standard output.
    Stdout,
    /// The end of this file, which is made if it is not there.
    File(PathBuf),
}

/// Writes the audit trail down.
#[derive(Clone, Debug)]
pub struct AuditSink {
    to: SinkTo,
    position: Option<PathBuf>,
}

/// How far it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SinkProgress {
    /// The last row that is written and synced.
    pub written: Revision,
    /// The last row that there is, as far as is known.
    pub head: Revision,
    /// Why it does not go on.
    pub trouble: Option<String>,
    /// How often something failed.
    pub failures: u64,
}

impl SinkProgress {
    /// Rows that are not written yet.
    pub fn behind(&self) -> u64 {
        self.head.saturating_sub(self.written)
    }
}

impl AuditSink {
    /// To this place. `position` is the file that says how far it is; without one, standard output begins at the first row at each start.
    pub fn new(to: SinkTo, position: Option<PathBuf>) -> Self {
        Self { to, position }
    }

    /// Writes for as long as it is asked to, and tells how far it is.
    pub async fn run(self, store: &ControlStore, told: impl Fn(&SinkProgress)) {
        let pen = match Pen::start(self.to, self.position) {
            Ok(pen) => pen,
            Err(error) => return tracing::error!(%error, "the sink of the audit trail has no thread"),
        };
        let mut work = Work { pen, store, told, at: None, progress: SinkProgress::default() };
        let mut wakeups = store.wakeups();
        loop {
            match work.step().await {
                Ok(is_level) => {
                    work.goes_on();
                    if is_level {
                        wait(&mut wakeups).await;
                    }
                }
                Err(why) => {
                    work.at = None; // What is there is looked at again.
                    work.fails(why);
                    sleep(RETRY).await;
                }
            }
        }
    }
}

async fn wait(wakeups: &mut Wakeups) {
    tokio::select! {
        changed = wakeups.changed() => {
            if changed.is_none() {
                sleep(LOOK_EVERY).await;
            }
        }
        () = sleep(LOOK_EVERY) => {}
    }
}

struct Work<'s, T> {
    pen: Pen,
    store: &'s ControlStore,
    told: T,
    /// The last row that was written; none: nobody has looked yet.
    at: Option<Head>,
    progress: SinkProgress,
}

impl<T: Fn(&SinkProgress)> Work<'_, T> {
    /// Writes some rows; says whether these were all.
    async fn step(&mut self) -> std::result::Result<bool, String> {
        let head = self.store.head().await.map_err(told_of)?;
        self.progress.head = head.seq;
        let at = match self.at.filter(|at| at.seq <= head.seq) {
            Some(at) => at,
            None => self.find().await?,
        };
        self.at = Some(at);
        self.progress.written = at.seq;
        let filter = AuditFilter { until_seq: Some(head.seq), ..AuditFilter::default() };
        let page = self.store.audit(&filter, AuditOrder::OldestFirst, Some(at.seq), ROWS).await;
        let page = page.map_err(told_of)?;
        let (Some(first), Some(last)) = (page.items.first(), page.items.last().map(|last| last.head()))
        else {
            return Ok(true);
        };
        // Either somebody has changed a row, which verifying will tell, or this is another trail since we looked.
        if first.prev_hash != at.hash && !self.is_of_this_trail(at).await.map_err(told_of)? {
            self.at = None;
            return Ok(false);
        }
        let mut lines = String::new();
        for entry in page.items {
            lines.push_str(&AuditLine::of(entry).text()?);
        }
        self.ask(Errand::Write { lines: lines.into_bytes(), last }).await?;
        self.at = Some(last);
        self.progress.written = last.seq;
        Ok(false)
    }

    /// Where to go on. What was written of a trail that is no longer there is put aside, and this one is written from its first row.
    async fn find(&mut self) -> std::result::Result<Head, String> {
        let found = self.ask(Errand::Open).await?;
        if self.is_of_this_trail(found).await.map_err(told_of)? {
            return Ok(found);
        }
        tracing::error!(
            row = found.seq,
            "the sink of the audit trail holds rows that the database has not: those are put aside, and all rows are written from the first"
        );
        self.ask(Errand::SetAside).await
    }

    async fn is_of_this_trail(&self, at: Head) -> Result<bool> {
        if at.seq == 0 {
            return Ok(true);
        }
        let one = AuditFilter { since_seq: Some(at.seq), until_seq: Some(at.seq), ..AuditFilter::default() };
        let found = self.store.audit(&one, AuditOrder::OldestFirst, None, 1).await?;
        Ok(found.items.first().is_some_and(|row| row.hash == at.hash))
    }

    /// Has the thread do something, however long that takes.
    async fn ask(&mut self, errand: Errand) -> std::result::Result<Head, String> {
        let (answer, mut answered) = oneshot::channel();
        self.pen.give(errand, answer)?;
        let mut waited = Duration::ZERO;
        loop {
            match timeout(PATIENCE, &mut answered).await {
                Ok(answer) => {
                    let ended = || Err(io::Error::other("its thread has ended"));
                    return answer.unwrap_or_else(|_| ended()).map_err(|error| error.to_string());
                }
                Err(_) => {
                    waited += PATIENCE;
                    if let Ok(head) = self.store.head().await {
                        self.progress.head = head.seq;
                    }
                    self.fails(format!("it has taken nothing for {} s", waited.as_secs()));
                }
            }
        }
    }

    fn goes_on(&mut self) {
        if self.progress.trouble.take().is_some() {
            tracing::info!(row = self.progress.written, "the sink of the audit trail goes on");
        }
        (self.told)(&self.progress);
    }

    fn fails(&mut self, why: String) {
        self.progress.failures += 1;
        if self.progress.trouble.is_none() {
            let behind = self.progress.behind();
            tracing::error!(%why, behind, "the sink of the audit trail cannot be written; it is tried again");
        }
        self.progress.trouble = Some(why);
        (self.told)(&self.progress);
    }
}

fn told_of(error: Error) -> String {
    error.to_string()
}
