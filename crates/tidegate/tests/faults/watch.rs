//! What the node says about itself meanwhile: its page of metrics, read again and again on a thread of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_clock::Stopwatch;
use tokio::net::TcpStream;

use crate::support::Http;

/// How often the page is read.
const EVERY: Duration = Duration::from_millis(10);

/// A circuit of a node, at the moment at which its page showed something else than before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    /// The last time that it showed what was before; the change lies between.
    pub(crate) after_us: u64,
    pub(crate) seen_us: u64,
    pub(crate) node: usize,
    pub(crate) shard: String,
    pub(crate) state: Circuit,
}

/// As `ratelimit_circuit_state` tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Circuit {
    Closed,
    HalfOpen,
    Open,
}

/// What was seen.
#[derive(Clone, Default, Debug)]
pub(crate) struct Seen {
    /// In the order in which it was seen. The first state of each circuit is a change too.
    pub(crate) changes: Vec<Change>,
    /// The most requests that waited for the store.
    pub(crate) in_flight_max: u64,
    /// The most connections to servers of the store.
    pub(crate) connections_max: u64,
    pages: u64,
}

/// Reads the pages of some nodes until it is dropped.
pub(crate) struct Watcher {
    is_done: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub(crate) fn start(nodes: &[SocketAddr], watch: Stopwatch) -> Self {
        let (is_done, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Seen::default())));
        let (nodes, done, written) = (nodes.to_vec(), is_done.clone(), seen.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(run(&nodes, &done, &written, watch));
        });
        Self { is_done, seen, thread: Some(thread) }
    }

    /// What was seen so far.
    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A test that fails has its own panic to tell.
        }
    }
}

async fn run(nodes: &[SocketAddr], is_done: &AtomicBool, seen: &Mutex<Seen>, watch: Stopwatch) {
    let mut connections: Vec<Option<Http>> = nodes.iter().map(|_| None).collect();
    let mut states: BTreeMap<(usize, String), Circuit> = BTreeMap::new();
    let mut last_us = vec![0; nodes.len()];
    while !is_done.load(Ordering::Relaxed) {
        for (node, address) in nodes.iter().enumerate() {
            if connections[node].is_none() {
                connections[node] = TcpStream::connect(address).await.ok().map(Http::over);
            }
            let Some(http) = &mut connections[node] else { continue };
            let asked_us = watch.elapsed().as_micros() as u64;
            http.send(b"GET /metrics HTTP/1.1\r\nhost: node\r\ncontent-length: 0\r\n\r\n").await;
            let Some(page) = http.reply(true).await else {
                connections[node] = None;
                continue;
            };
            let seen_us = watch.elapsed().as_micros() as u64;
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.pages += 1;
            let (mut in_flight, mut connections) = (0, 0);
            for line in page.body.lines() {
                if let Some((shard, value)) = row(line, "ratelimit_circuit_state") {
                    let state = match value {
                        0 => Circuit::Closed,
                        1 => Circuit::HalfOpen,
                        _ => Circuit::Open,
                    };
                    if states.insert((node, shard.clone()), state) != Some(state) {
                        let after_us = last_us[node];
                        seen.changes.push(Change { after_us, seen_us, node, shard, state });
                    }
                } else if let Some((_, value)) = row(line, "ratelimit_store_in_flight") {
                    in_flight += value;
                } else if let Some((_, value)) = row(line, "ratelimit_store_connections") {
                    connections += value;
                }
            }
            seen.in_flight_max = seen.in_flight_max.max(in_flight);
            seen.connections_max = seen.connections_max.max(connections);
            last_us[node] = asked_us;
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// The value of a row of this metric, and its shard if it has one.
fn row(line: &str, name: &str) -> Option<(String, u64)> {
    let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
    let value = rest.rsplit(' ').next()?.parse::<f64>().ok()?;
    let shard = rest.split_once("shard=\"").and_then(|(_, rest)| rest.split('"').next());
    Some((shard.unwrap_or_default().to_string(), value as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_page_are_read() {
        let line = r#"ratelimit_circuit_state{shard="127.0.0.1:7000"} 2"#;
        assert_eq!(row(line, "ratelimit_circuit_state"), Some(("127.0.0.1:7000".into(), 2)));
        assert_eq!(
            row("ratelimit_store_in_flight 17", "ratelimit_store_in_flight"),
            Some((String::new(), 17))
        );
        assert_eq!(row("ratelimit_store_in_flight_x 17", "ratelimit_store_in_flight"), None);
        assert_eq!(row("# HELP ratelimit_store_in_flight Requests", "ratelimit_store_in_flight"), None);
    }
}
