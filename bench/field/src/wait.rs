//! Waiting for the clock of others.

use std::time::Duration;

use tidegate_clock::Stopwatch;

/// Waits so long. Nobody unparks this thread; were it to wake early, it would look again.
pub(crate) fn wait(time: Duration) {
    let watch = Stopwatch::start();
    while let Some(rest) = time.checked_sub(watch.elapsed()).filter(|rest| !rest.is_zero()) {
        std::thread::park_timeout(rest);
    }
}
