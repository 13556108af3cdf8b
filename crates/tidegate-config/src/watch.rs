//! Says when something below a path may have changed: edits, atomic renames, and the symbolic links that Kubernetes swaps.
//!
//! Folders are watched, not files: an editor that writes a new file and renames it leaves a watch on the old one behind. In the folders
//! around, only the names count that lead to the rules: a log beside them that grows with every load would be a change for ever. After
//! every change the watches are made anew, because what a path leads to may be another folder now.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Component, Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Config, Event, EventKind, PollWatcher, RecommendedWatcher, RecursiveMode, Watcher};
use tidegate_clock::Stopwatch;

use crate::load::{FileNames, rule_files};

/// A change is told once nothing has happened for so long: a copy of ten files is one change.
const QUIET: Duration = Duration::from_millis(50);
/// But after so long at the latest, so that somebody who never stops writing does not put it off.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often files are looked at where the system cannot tell of changes.
const POLL: Duration = Duration::from_millis(400);

/// How often files are loaded where nothing could be watched at all: a folder went while it was looked at.
const UNWATCHED: Duration = Duration::from_secs(1);

/// How many links a path may lead through; the system follows as many.
const LINKS_MAX: usize = 40;

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watch {
    messages: Sender<Message>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug)]
enum Message {
    Changed,
    Stop,
}

impl Watch {
    /// Calls `on_change`, on a thread of its own, after something below one of the paths may have changed. A path that does not exist yet
    /// is waited for.
    pub fn start(paths: Vec<PathBuf>, mut on_change: impl FnMut() + Send + 'static) -> std::io::Result<Self> {
        let (messages, changes) = channel();
        // Before this returns, so that no change after it is missed.
        let mut watcher = watch(&paths, &messages);
        let sender = messages.clone();
        let thread = std::thread::Builder::new().name("watch".into()).spawn(move || {
            while wait(&changes, watcher.is_some()) {
                // Before the files are read, so that a change while they are is seen.
                watcher = watch(&paths, &sender);
                // A panic has been told by its hook. It must not end all changes after it.
                let _ = catch_unwind(AssertUnwindSafe(&mut on_change));
            }
            drop(watcher);
        })?;
        Ok(Self { messages, thread: Some(thread) })
    }

    /// As if something had changed: for a signal.
    pub fn nudge(&self) {
        let _ = self.messages.send(Message::Changed); // The thread ends only with this.
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // Its panic has been told already.
        }
    }
}

/// Waits for a change, and for the quiet after it; where nothing is watched, for a second. False is the end.
fn wait(changes: &Receiver<Message>, watched: bool) -> bool {
    let first = match watched {
        true => changes.recv().map_err(|_| RecvTimeoutError::Disconnected),
        false => changes.recv_timeout(UNWATCHED),
    };
    match first {
        Ok(Message::Changed) => {}
        Err(RecvTimeoutError::Timeout) => return true,
        Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return false,
    }
    let waited = Stopwatch::start();
    while waited.elapsed() < PATIENCE {
        match changes.recv_timeout(QUIET) {
            Ok(Message::Changed) => {}
            Ok(Message::Stop) => return false,
            Err(_) => break,
        }
    }
    true
}

fn watch(paths: &[PathBuf], messages: &Sender<Message>) -> Option<Box<dyn Watcher + Send>> {
    let spots = Spots::of(paths);
    let handler = || {
        let (messages, spots) = (messages.clone(), spots.clone());
        move |event: notify::Result<Event>| {
            if event.map_or(true, |event| is_change(event.kind) && spots.hold(&event)) {
                let _ = messages.send(Message::Changed);
            }
        }
    };
    let config = Config::default().with_follow_symlinks(true);
    let watcher: notify::Result<Box<dyn Watcher + Send>> = RecommendedWatcher::new(handler(), config)
        .map(|watcher| Box::new(watcher) as _)
        .and_then(|watcher| spots.watch(watcher));
    // The system may have run out of watches, or never had any.
    let polled = || {
        PollWatcher::new(handler(), config.with_poll_interval(POLL))
            .map(|watcher| Box::new(watcher) as _)
            .and_then(|watcher| spots.watch(watcher))
    };
    watcher.or_else(|_| polled()).ok()
}

/// Where changes count. All paths are real, without links: the system tells of a folder by one name only.
#[derive(Clone, Debug, Default)]
struct Spots {
    /// Folders of which everything counts.
    folders: BTreeSet<PathBuf>,
    /// Names that count in their folders: links on the way to rules, files, and what is not there yet.
    names: BTreeSet<PathBuf>,
}

impl Spots {
    fn of(paths: &[PathBuf]) -> Self {
        let mut spots = Self::default();
        for path in paths {
            spots.trace(path);
            let Ok(real) = fs::canonicalize(path) else { continue };
            // A file that a link in the folder leads to may be anywhere.
            for file in rule_files(&real, FileNames::Any) {
                if !fs::canonicalize(&file).is_ok_and(|file| file.starts_with(&real)) {
                    spots.trace(&file);
                }
            }
            if real.is_dir() {
                spots.folders.insert(real);
            }
        }
        spots
    }

    /// Follows a path as the system does, and takes down each link and what is at the end.
    fn trace(&mut self, path: &Path) {
        let mut next = std::path::absolute(path).ok();
        for _ in 0..LINKS_MAX {
            let Some(path) = next.take() else { return };
            let (mut real, mut parts) = (PathBuf::new(), path.components());
            while let Some(part) = parts.next() {
                if part == Component::ParentDir {
                    real.pop();
                    continue;
                }
                let folder = real.clone();
                real.push(part);
                if let Ok(leads_to) = fs::read_link(&real) {
                    self.names.insert(real.clone());
                    next = Some(folder.join(leads_to).join(parts.as_path()));
                    break;
                }
                if !real.exists() {
                    break;
                }
            }
            self.names.insert(real);
        }
    }

    fn watch(&self, mut watcher: Box<dyn Watcher + Send>) -> notify::Result<Box<dyn Watcher + Send>> {
        let around: BTreeSet<&Path> = self.names.iter().filter_map(|name| name.parent()).collect();
        for folder in around.into_iter().filter(|folder| !self.folders.contains(*folder)) {
            watcher.watch(folder, RecursiveMode::NonRecursive)?;
        }
        for folder in &self.folders {
            watcher.watch(folder, RecursiveMode::Recursive)?;
        }
        Ok(watcher)
    }

    fn hold(&self, event: &Event) -> bool {
        let within = |path: &Path| self.folders.iter().any(|folder| path.starts_with(folder));
        let on_the_way = |path: &Path| self.names.iter().any(|name| name.starts_with(path));
        // Without a path, something was missed.
        event.paths.is_empty() || event.paths.iter().any(|path| within(path) || on_the_way(path))
    }
}

/// Reading is no change: whoever loads would be told of it for ever.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}
