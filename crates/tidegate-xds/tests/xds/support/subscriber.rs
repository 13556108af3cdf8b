//! Somebody who wants rules: judges them as a test says, and remembers what happened.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_clock::Stopwatch;
use tidegate_xds::{ClientSettings, Event, Place, Subscriber, Update, follow};
use tokio::task::JoinHandle;

/// What is awaited takes milliseconds; the machine may be busy.
const SOON: Duration = Duration::from_secs(30);

/// Asks again and again until the answer is the one that is awaited.
pub(crate) async fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let watch = Stopwatch::start();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(watch.elapsed() < SOON, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A client, and what it saw. It ends when this is dropped.
pub(crate) struct Following {
    seen: Arc<Seen>,
    task: JoinHandle<()>,
}

type Judge = dyn Fn(&Update) -> Result<(), String> + Send + Sync;

struct Seen {
    judge: Box<Judge>,
    updates: Mutex<Vec<Update>>,
    events: Mutex<Vec<Told>>,
}

/// What a client told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    Connected,
    Disconnected(String, Duration),
    Accepted(String),
    Rejected(String, String),
}

impl Subscriber for Seen {
    fn apply(&self, update: &Update) -> Result<(), String> {
        locked(&self.updates).push(update.clone());
        (self.judge)(update)
    }

    fn tell(&self, event: Event<'_>) {
        locked(&self.events).push(match event {
            Event::Connected => Told::Connected,
            Event::Disconnected { why, wait } => Told::Disconnected(why.into(), wait),
            Event::Accepted { version } => Told::Accepted(version.into()),
            Event::Rejected { version, why } => Told::Rejected(version.into(), why.into()),
        });
    }
}

impl Following {
    /// Follows by these settings, and takes whatever comes.
    pub(crate) fn start(settings: ClientSettings) -> Self {
        Self::judging(settings, |_| Ok(()))
    }

    pub(crate) fn judging(
        settings: ClientSettings,
        judge: impl Fn(&Update) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let seen = Seen { judge: Box::new(judge), updates: Mutex::default(), events: Mutex::default() };
        let seen = Arc::new(seen);
        let task = tokio::spawn(follow(settings, seen.clone()));
        Self { seen, task }
    }

    /// The versions that were judged.
    pub(crate) fn versions(&self) -> Vec<String> {
        locked(&self.seen.updates).iter().map(|update| update.version.clone()).collect()
    }

    pub(crate) fn updates(&self) -> Vec<Update> {
        locked(&self.seen.updates).clone()
    }

    pub(crate) fn events(&self) -> Vec<Told> {
        locked(&self.seen.events).clone()
    }

    /// Why connections ended, and how long it waited after each.
    pub(crate) fn ends(&self) -> Vec<(String, Duration)> {
        let ended = |told| match told {
            Told::Disconnected(why, wait) => Some((why, wait)),
            _ => None,
        };
        self.events().into_iter().filter_map(ended).collect()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
        if std::thread::panicking() {
            eprintln!("events: {:?}", self.events());
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Settings for a server on this machine, with short waits.
pub(crate) fn settings(server: SocketAddr) -> ClientSettings {
    ClientSettings {
        server: Place { host: server.ip().to_string(), port: server.port() },
        node_id: "test-node".into(),
        node_metadata: Vec::new(),
        headers: Vec::new(),
        tls: None,
        message_bytes_max: 1 << 20,
        connect_timeout: Duration::from_secs(20),
        // A machine that pauses would have it ask twice where a test counts.
        settled_after: Duration::from_secs(20),
        keepalive: (Duration::from_secs(60), Duration::from_secs(20)),
        backoff: (Duration::from_millis(10), Duration::from_millis(160)),
    }
}
