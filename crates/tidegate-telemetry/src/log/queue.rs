//! Lines wait here for the thread that writes them. Whoever reads our standard error may stop reading; no decision waits for that: when
//! the queue is full, lines are dropped and counted.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// How many lines may wait.
const LINES_MAX: usize = 1_024;

/// The way in. Copies lead to the same thread.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    lines: SyncSender<Vec<u8>>,
    state: Arc<State>,
}

#[derive(Default, Debug)]
struct State {
    queued: AtomicU64,
    lost: AtomicU64,
    written: Mutex<u64>,
    progress: Condvar,
}

impl Queue {
    /// Starts the thread that writes.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(LINES_MAX);
        let state = Arc::new(State::default());
        let of_thread = state.clone();
        thread::Builder::new().name("log".into()).spawn(move || write(&waiting, out, &of_thread))?;
        Ok(Self { lines, state })
    }

    /// Waits until all lines so far are written, but no longer than this; says whether they are.
    pub(super) fn flush(&self, at_most: Duration) -> bool {
        let queued = self.state.queued.load(Ordering::SeqCst);
        let written = self.state.written.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = |written: &mut u64| *written < queued;
        let waited = self.state.progress.wait_timeout_while(written, at_most, missing);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    pub(super) fn lines_lost(&self) -> u64 {
        self.state.lost.load(Ordering::Relaxed)
    }
}

/// Ends when the last way in is gone.
fn write(waiting: &Receiver<Vec<u8>>, mut out: impl Write, state: &State) {
    for line in waiting {
        // There is nowhere to say that it failed.
        let _ = out.write_all(&line).and_then(|()| out.flush());
        *state.written.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        state.progress.notify_all();
    }
}

impl<'w> MakeWriter<'w> for Queue {
    type Writer = &'w Self;

    fn make_writer(&'w self) -> Self::Writer {
        self
    }
}

impl Write for &Queue {
    /// A whole line: nobody writes less.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.lines.try_send(line.to_vec()) {
            Ok(()) => self.state.queued.fetch_add(1, Ordering::SeqCst),
            Err(_) => self.state.lost.fetch_add(1, Ordering::Relaxed),
        };
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Standard error that nobody reads, until somebody does.
    struct Stuck {
        go: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.go.recv(); // Ends as soon as the other side is dropped.
            self.written.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_log_that_nobody_reads() -> io::Result<()> {
        let (unstick, go) = sync_channel(0);
        let written = Arc::new(Mutex::new(Vec::new()));
        let queue = Queue::start(Stuck { go, written: written.clone() })?;
        let lines: u64 = 2 * LINES_MAX as u64;
        (&queue).write_all(b"x")?;
        assert!(!queue.flush(Duration::ZERO), "one that is not written counts");
        for _ in 1..lines {
            (&queue).write_all(b"x")?;
        }
        let lost = queue.lines_lost();
        // One more than fits may be in the hands of the thread already.
        assert!((LINES_MAX as u64 - 1..=LINES_MAX as u64).contains(&lost), "{lost}");
        assert!(!queue.flush(Duration::ZERO));
        drop(unstick);
        assert!(queue.flush(Duration::from_secs(60)));
        let written = written.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        assert_eq!(written + lost, lines);
        Ok(())
    }
}
