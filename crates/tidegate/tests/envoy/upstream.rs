//! What Envoy protects: a small server that does what the query of a request says.
//!
//! - `delay_ms`: answers after so many milliseconds.
//! - `size`: with a body of so many bytes.
//! - `cost`: with the header `x-cost`.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A server that runs on a thread of its own, so that tests may block theirs.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    keys: Keys,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What it saw of the requests of each key.
#[derive(Clone, Default)]
struct Keys(Arc<Mutex<HashMap<String, Seen>>>);

/// Requests of one key.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Seen {
    pub(crate) in_flight: usize,
    /// The most that were in flight at the same time.
    pub(crate) most: usize,
    pub(crate) all: usize,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let (told, address) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel();
        let keys = Keys::default();
        let shared = keys.clone();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
                let _ = told.send(listener.local_addr().expect("an address"));
                let serve = async {
                    while let Ok((stream, _)) = listener.accept().await {
                        tokio::spawn(serve(stream, shared.clone()));
                    }
                };
                tokio::select! {
                    () = serve => {}
                    _ = ended => {}
                }
            });
        });
        let address = address.recv().expect("an upstream");
        Self { address, keys, end: Some(end), thread: Some(thread) }
    }

    /// What it saw of a key.
    pub(crate) fn seen(&self, key: &str) -> Seen {
        self.keys.lock().get(key).copied().unwrap_or_default()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.end.take().map(|end| end.send(()));
        self.thread.take().map(JoinHandle::join);
    }
}

impl Keys {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, key: &str) -> InFlight {
        let mut keys = self.lock();
        let seen = keys.entry(key.into()).or_default();
        seen.all += 1;
        seen.in_flight += 1;
        seen.most = seen.most.max(seen.in_flight);
        InFlight { keys: self.clone(), key: key.into() }
    }
}

/// A request in flight, until this is dropped.
struct InFlight {
    keys: Keys,
    key: String,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.keys.lock().entry(std::mem::take(&mut self.key)).or_default().in_flight -= 1;
    }
}

/// One connection, until it ends.
async fn serve(mut stream: TcpStream, keys: Keys) {
    let mut read = Vec::new();
    while let Some(head) = head(&mut stream, &mut read).await {
        let header = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            line.unwrap_or_default().to_string()
        };
        let length: usize = header("content-length").parse().unwrap_or(0);
        while read.len() < length {
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        }
        read.drain(..length);
        let path = head.split(' ').nth(1).unwrap_or_default();
        let in_flight = keys.enter(&header("x-api-key"));
        let wait = tokio::time::sleep(Duration::from_millis(number(path, "delay_ms").unwrap_or(0)));
        tokio::select! {
            () = wait => {}
            _ = stream.read_buf(&mut read) => return, // Nobody sends a second request here before the first is answered: it has ended.
        }
        // Before the answer: whoever has it may send the next.
        drop(in_flight);
        let cost = number(path, "cost").map(|cost| format!("x-cost: {cost}\r\n")).unwrap_or_default();
        let body = "x".repeat(number(path, "size").unwrap_or(2) as usize);
        let answer = format!("HTTP/1.1 200 OK\r\n{cost}content-length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The head of the next request; none if the connection has ended.
async fn head(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head: Vec<u8> = read.drain(..end + 4).collect();
            return String::from_utf8(head).ok();
        }
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
}

/// A number of the query.
fn number(path: &str, name: &str) -> Option<u64> {
    let pairs = path.split_once('?')?.1.split('&');
    pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name)?.1.parse().ok()
}
