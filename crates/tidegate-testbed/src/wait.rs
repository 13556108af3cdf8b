//! Until something has happened.

use std::time::Duration;

use tidegate_clock::Stopwatch;

/// How often a server is asked again.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks again and again until there is something to see, at most for so long; then says what was still wrong. This is for what other
/// processes do, of which nobody sends word.
pub fn until<T>(
    what: &str,
    at_most: Duration,
    mut look: impl FnMut() -> Result<T, String>,
) -> Result<T, String> {
    let watch = Stopwatch::start();
    loop {
        match look() {
            Ok(seen) => return Ok(seen),
            Err(reason) if watch.elapsed() > at_most => {
                return Err(format!("{what}: not within {} ms: {reason}", at_most.as_millis()));
            }
            Err(_) => std::thread::park_timeout(PAUSE),
        }
    }
}
