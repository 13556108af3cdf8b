//! How a node ends: it says so, still serves for a while, lets everybody finish, writes its counters down. A second signal ends it at once.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_counters::Store;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use super::{Running, Serving};

/// How long a node that ends waits for SQL.
const WRITTEN_DOWN_MAX: Duration = Duration::from_secs(2);

/// Signals that end a node.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

/// Who asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    /// Whoever runs the node: balancers have to notice.
    Terminate,
    /// Somebody at a keyboard: nobody else is there.
    Interrupt,
}

impl Signals {
    /// From now on they are waited for.
    pub(super) fn install(runtime: &Runtime) -> io::Result<Self> {
        let _inside = runtime.enter();
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Terminate,
            _ = self.interrupt.recv() => Asked::Interrupt,
        }
    }
}

impl Running {
    /// Serves until a signal says to end, then ends.
    pub(crate) fn wait(self) -> ExitCode {
        let Self { serving, runtime, mut signals } = self;
        let asked = runtime.block_on(signals.next());
        let hurried = runtime.block_on(async {
            tokio::select! {
                () = serving.drain(asked) => false,
                _ = signals.next() => true,
            }
        });
        if hurried {
            tracing::warn!("told to end a second time: ending at once, counters are not saved");
            return ExitCode::FAILURE;
        }
        if let Store::Memory(counters) = &serving.node.store {
            serving.data.save_counters(counters, serving.node.now());
        }
        tracing::info!("ended");
        ExitCode::SUCCESS
    }
}

impl Serving {
    async fn drain(&self, asked: Asked) {
        self.node.draining.store(true, Ordering::Relaxed);
        self.beside.tell_health(false).await;
        let delay = if asked == Asked::Terminate { self.settings.drain_delay } else { Duration::ZERO };
        tracing::info!(delay_ms = delay.as_millis() as u64, "ending: not ready any more, still serving");
        sleep(delay).await;
        self.cores.end();
        self.beside.end().await;
        let waited = tokio::time::timeout(self.settings.drain_timeout, self.cores.idle());
        if waited.await.is_err() {
            tracing::warn!("some connections did not end in time");
        }
        if let Some(ledger) = &self.node.ledger
            && !ledger.finish(WRITTEN_DOWN_MAX).await
        {
            tracing::warn!("what calendars used could not be written down in time");
        }
    }
}
