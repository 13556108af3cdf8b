//! A program of somebody else that runs for a while and ends.

use std::process::{Child, ExitStatus};
use std::time::Duration;

use tidegate_clock::Stopwatch;

/// Waits until it has ended; ends it if that takes longer.
pub(crate) fn finish(name: &str, mut child: Child, within: Duration) -> Result<ExitStatus, String> {
    let watch = Stopwatch::start();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            // Nobody unparks this thread; were it to wake early, it would only look earlier.
            Ok(None) if watch.elapsed() < within => std::thread::park_timeout(Duration::from_millis(5)),
            Ok(None) | Err(_) => {
                let _ = child.kill().and_then(|()| child.wait());
                return Err(format!("{name} has not ended in {within:?}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn who_does_not_end_is_ended() {
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let pid = child.id();
        let message = finish("cat", child, Duration::from_millis(20)).expect_err("nobody writes to it");
        assert!(message.starts_with("cat has not ended"), "{message}");
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
        let child = Command::new("true").spawn().expect("true");
        assert!(finish("true", child, Duration::from_secs(10)).is_ok_and(|status| status.success()));
    }
}
