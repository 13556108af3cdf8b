//! The log: one grammar, for people or for machines, written by a thread of its own.

mod line; // what a line looks like
mod queue; // how it gets out

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use tracing::Subscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{Registry, fmt};

pub use line::LogFormat;
pub(crate) use line::write_json_text;
use queue::Queue;

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The thread that writes it cannot be started. Trying again may help.
    #[error("cannot start the thread that writes the log")]
    Thread(#[source] io::Error),
    /// There is one already. Trying again does not help.
    #[error("there is a log already")]
    Started,
}

static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Starts the log of this process, to standard error: lines of this level and above, from the libraries below us only warnings and errors.
pub fn start(format: LogFormat, level: LevelFilter) -> Result<(), LogError> {
    let queue = Queue::start(io::stderr()).map_err(LogError::Thread)?;
    QUEUE.set(queue.clone()).map_err(|_| LogError::Started)?;
    tracing::subscriber::set_global_default(subscriber(format, level, queue)).map_err(|_| LogError::Started)
}

/// Waits until all lines so far are written, but no longer than this; for the end of a process. Says whether they are.
pub fn flush(at_most: Duration) -> bool {
    QUEUE.get().is_none_or(|queue| queue.flush(at_most))
}

/// How many lines were dropped since the start because nobody read them fast enough.
pub fn lines_lost() -> u64 {
    QUEUE.get().map_or(0, Queue::lines_lost)
}

fn subscriber(
    format: LogFormat,
    level: LevelFilter,
    writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
) -> impl Subscriber {
    let ours = Targets::new().with_target("tidegate", level).with_default(level.min(LevelFilter::WARN));
    let lines = fmt::layer().event_format(format).with_writer(writer).log_internal_errors(false);
    Registry::default().with(ours).with(lines)
}

/// What `speak` logs.
#[cfg(test)]
pub(crate) fn captured(format: LogFormat, level: LevelFilter, speak: impl FnOnce()) -> String {
    use std::sync::{Arc, Mutex, PoisonError};

    let written = Arc::new(Mutex::new(Vec::new()));
    let writer = {
        let written = written.clone();
        move || Captured(written.clone())
    };
    tracing::subscriber::with_default(subscriber(format, level, writer), speak);
    let bytes = written.lock().unwrap_or_else(PoisonError::into_inner).clone();
    return String::from_utf8_lossy(&bytes).into_owned();

    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::{debug, error, info, warn};

    use super::*;

    #[test]
    fn libraries_speak_only_of_trouble() {
        let text = captured(LogFormat::Text, LevelFilter::DEBUG, || {
            debug!(target: "tidegate_server::rls", "ours");
            info!(target: "hyper::proto", "theirs");
            warn!(target: "hyper::proto", "trouble");
        });
        assert!(text.contains("ours") && text.contains("trouble") && !text.contains("theirs"), "{text}");
    }

    #[test]
    fn a_level_silences_what_is_below_it_from_everybody() {
        let text = captured(LogFormat::Text, LevelFilter::ERROR, || {
            warn!(target: "tidegate", "ours");
            warn!(target: "hyper", "theirs");
            error!(target: "tidegate", "trouble");
        });
        assert!(text.contains("trouble") && !text.contains("ours") && !text.contains("theirs"), "{text}");
    }
}
