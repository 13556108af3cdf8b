//! Says when something below a path may have changed: edits, atomic renames, and the symbolic links that Kubernetes swaps.
//!
//! Folders are watched, not files: an editor that writes a new file and renames it leaves a watch on the old one behind. After every change
//! the watches are made anew, because what a path leads to may be another folder now.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Config, EventKind, PollWatcher, RecommendedWatcher, RecursiveMode, Watcher};
use tidegate_clock::Stopwatch;

/// A change is told once nothing has happened for so long: a copy of ten files is one change.
const QUIET: Duration = Duration::from_millis(50);
/// But after so long at the latest, so that somebody who never stops writing does not put it off.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often files are looked at where the system cannot tell of changes.
const POLL: Duration = Duration::from_millis(400);

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
            while wait(&changes) {
                // Before the files are read, so that a change while they are is seen.
                watcher = watch(&paths, &sender);
                on_change();
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

/// Waits for a change, and for the quiet after it. False is the end.
fn wait(changes: &Receiver<Message>) -> bool {
    let Ok(Message::Changed) = changes.recv() else { return false };
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
    let handler = || {
        let messages = messages.clone();
        move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| is_change(event.kind)) {
                let _ = messages.send(Message::Changed);
            }
        }
    };
    let config = Config::default().with_follow_symlinks(true);
    let watcher: notify::Result<Box<dyn Watcher + Send>> = RecommendedWatcher::new(handler(), config)
        .map(|watcher| Box::new(watcher) as _)
        .and_then(|watcher| all(watcher, paths));
    // The system may have run out of watches, or never had any.
    let polled = || {
        PollWatcher::new(handler(), config.with_poll_interval(POLL))
            .map(|watcher| Box::new(watcher) as _)
            .and_then(|watcher| all(watcher, paths))
    };
    watcher.or_else(|_| polled()).ok()
}

fn all(mut watcher: Box<dyn Watcher + Send>, paths: &[PathBuf]) -> notify::Result<Box<dyn Watcher + Send>> {
    for path in paths {
        if path.is_dir() {
            watcher.watch(path, RecursiveMode::Recursive)?;
        }
        // The folder around it, where the path itself is swapped or made.
        let around = path.ancestors().skip(1).map(named).find(|folder| folder.is_dir());
        watcher.watch(around.unwrap_or(Path::new("/")), RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}

/// The folder around `rules` is called nothing, and is here.
fn named(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// Reading is no change: whoever loads would be told of it for ever.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}
