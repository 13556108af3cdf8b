//! Clients that never stop, until they are told to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::support::{Http, SOON, until};

/// Clients of one path and key, each on a connection of its own, on a thread of their own.
pub(crate) struct Load {
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    decided: AtomicU64,
    undecided: AtomicU64,
    failed: AtomicU64,
    ends: AtomicBool,
}

/// How requests were answered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Answers {
    /// They passed, with what Envoy makes of a node's answer.
    pub(crate) decided: u64,
    /// They passed without.
    pub(crate) undecided: u64,
    /// They did not pass.
    pub(crate) failed: u64,
}

/// A request of each client in so many milliseconds: enough to notice everything, and no more than a busy machine can do.
const PAUSE: Duration = Duration::from_millis(4);

impl Load {
    pub(crate) fn start(address: SocketAddr, path: &'static str, key: &'static str, clients: usize) -> Self {
        let counts = Arc::new(Counts::default());
        let shared = counts.clone();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let clients = (0..clients).map(|_| tokio::spawn(client(address, path, key, shared.clone())));
                for client in clients.collect::<Vec<_>>() {
                    client.await.expect("a client");
                }
            });
        });
        Self { counts, thread: Some(thread) }
    }

    pub(crate) fn answers(&self) -> Answers {
        let Counts { decided, undecided, failed, .. } = &*self.counts;
        Answers {
            decided: decided.load(Relaxed),
            undecided: undecided.load(Relaxed),
            failed: failed.load(Relaxed),
        }
    }

    /// Waits until so many more requests were decided.
    pub(crate) async fn goes_on(&self, count: u64) {
        let last = self.answers().decided + count;
        until("the load goes on", async || (self.answers().decided >= last).then_some(())).await;
    }

    /// Ends it.
    pub(crate) fn finish(mut self) -> Answers {
        self.end();
        self.answers()
    }

    fn end(&mut self) {
        self.counts.ends.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking(), "a client panicked");
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.end();
    }
}

async fn client(address: SocketAddr, path: &str, key: &str, counts: Arc<Counts>) {
    let mut http = Http::connect(address).await;
    while !counts.ends.load(Relaxed) {
        let reply = tokio::time::timeout(SOON, http.request("GET", path, &[("x-api-key", key)], "")).await;
        let count = match &reply {
            Ok(reply) if reply.status != 200 => &counts.failed,
            Ok(reply) if reply.header("x-ratelimit-remaining").is_empty() => &counts.undecided,
            Ok(_) => &counts.decided,
            Err(_) => &counts.failed,
        };
        count.fetch_add(1, Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
}
