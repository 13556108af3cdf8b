//! What stands between a client and a server and breaks things. Start at [`Proxy`].
//!
//! Bytes are read, told apart into commands and replies, and passed on by another thread, so that a delay holds back each message by the
//! same time, however many there are. All that is decided is decided where a message is passed on, under one lock ([`state`]), so counts
//! and cuts are exact over all connections.
//!
//! Connections that stop being questions and answers (a replica's, `MONITOR`, `SUBSCRIBE`), and those that never were (TLS), are passed on
//! as bytes: they can be delayed, held and cut, but nothing on them is counted from then on.

mod frames; // where a message ends
mod state; // what is passed on, and what becomes of the connection

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_clock::Stopwatch;

use crate::server::free_port;
use frames::{Frame, FrameKind};
pub use state::{ConnectionCounts, Counts};
use state::{Fate, Spoil, State};

/// For a connection to the server, for the proxy's own doors, and for what a test waits for.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Nothing is waited for longer than this without looking again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Reads that wait to be passed on, for each direction of each connection.
const CHUNKS_MAX: usize = 1024;

const READ_BYTES: usize = 64 << 10;

/// A direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Commands.
    ToServer,
    /// Replies.
    ToClient,
}

/// A proxy that breaks what it is told to, until it is dropped. Everything can be changed while it runs.
///
/// Where a number of commands or replies is given, it counts from the call: 1 is the next one, over all connections. What counts can be
/// restricted by [`Proxy::count_only`].
pub struct Proxy {
    shared: Arc<Shared>,
    doorman: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Told of everything that changes in the state.
    changed: Condvar,
    watch: Stopwatch,
    address: SocketAddr,
}

/// What one read brought.
struct Chunk {
    read_at: Duration,
    frames: Vec<Frame>,
}

impl Proxy {
    /// Starts one before this server.
    pub fn start(target: SocketAddr) -> Result<Self, String> {
        let proxy = Self::start_without_target()?;
        proxy.set_target(target);
        Ok(proxy)
    }

    /// Where clients are to be sent.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// New connections go to another server.
    pub fn set_target(&self, target: SocketAddr) {
        self.set(|state| state.target = Some(target));
    }

    /// Only these commands, and the replies to them, are counted; without any, all are.
    pub fn count_only(&self, names: &[&str]) {
        self.set(|state| {
            state.counted = names.iter().map(|name| name.to_ascii_uppercase().into_bytes()).collect()
        });
    }

    /// Every message in this direction arrives so much later.
    pub fn delay(&self, way: Way, delay: Duration) {
        self.set(|state| state.way_mut(way).delay = delay);
    }

    /// Connections stay open and can be made, but nothing passes in this direction. What was held passes when this ends, as after a
    /// network's outage.
    pub fn black_hole(&self, way: Way, is_on: bool) {
        self.set(|state| state.way_mut(way).is_held = is_on);
    }

    /// Cuts all connections now.
    pub fn cut_all(&self) {
        self.set(|state| {
            let open: Vec<u64> = state.open().collect();
            open.into_iter().for_each(|id| state.cut(id));
        });
    }

    /// Resets all connections now: whoever reads or writes on one is told so, instead of seeing its end.
    pub fn reset_all(&self) {
        self.set(|state| {
            let open: Vec<u64> = state.open().collect();
            open.into_iter().for_each(|id| state.reset(id));
        });
    }

    /// From now on nobody listens: who connects is refused at once. Connections that are there stay.
    pub fn refuse(&self, is_on: bool) {
        self.set(|state| state.is_refusing = is_on);
        if is_on {
            self.wake_doorman();
        }
        self.wait_for("the door", |state| state.is_listening != is_on);
    }

    /// The n-th command is carried out: it is passed on, the server's reply to it is awaited, and then both sides are cut instead of
    /// passing that reply on. Replies to earlier commands pass.
    pub fn cut_after_command(&self, n: u64) {
        self.set(|state| state.cut_after = Some(state.total.commands + n));
    }

    /// The n-th command never reaches the server: both sides are cut instead of passing it on, once all earlier commands of that
    /// connection were answered.
    pub fn cut_before_command(&self, n: u64) {
        self.set(|state| state.cut_before = Some(state.total.commands + n));
    }

    /// Every n-th reply is lost; 0 ends this. Replies have no number and are told apart by their order alone, so one that is missing
    /// would make each later one the answer to the question before. So the connection stays open and its commands are still passed on,
    /// but no byte of the server reaches that client again.
    pub fn swallow_replies(&self, every_nth: u64) {
        self.set(|state| {
            state.swallow_every = (every_nth > 0).then_some(every_nth);
            state.swallow_from = state.total.replies;
        });
    }

    /// Of the n-th reply only so many bytes arrive; then both sides are cut.
    pub fn truncate_reply(&self, n: u64, bytes: usize) {
        self.set(|state| state.spoil = Some((state.total.replies + n, Spoil::Truncate { bytes })));
    }

    /// In the n-th reply, these bits of one byte are flipped; of its last byte if it is shorter.
    pub fn flip_reply(&self, n: u64, at: usize, bits: u8) {
        self.set(|state| state.spoil = Some((state.total.replies + n, Spoil::Flip { at, bits })));
    }

    /// The n-th reply never comes, and all later ones do: each then answers the question before, and no client can know it. This is no
    /// fault of networks; it is how to see whether a test would notice answers that are given to others.
    pub fn drop_reply(&self, n: u64) {
        self.set(|state| state.spoil = Some((state.total.replies + n, Spoil::Drop)));
    }

    /// What was seen on all connections.
    pub fn counts(&self) -> Counts {
        self.shared.state().total
    }

    /// What was seen on each connection, in the order in which they came. The oldest of those that are closed are forgotten after a while.
    pub fn connections(&self) -> Vec<ConnectionCounts> {
        self.shared.state().connections()
    }

    /// Waits until what was seen is as expected; panics if that takes more than 10 s.
    pub fn wait(&self, what: &str, is_so: impl Fn(&Counts) -> bool) {
        self.wait_for(what, |state| is_so(&state.total));
    }

    /// For a server that is told the proxy's address when it starts.
    pub(crate) fn start_without_target() -> Result<Self, String> {
        let mut last = String::new();
        for _ in 0..5 {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
            match TcpListener::bind(address) {
                Ok(listener) => {
                    let (state, changed) = (Mutex::new(State::new()), Condvar::new());
                    let shared = Arc::new(Shared { state, changed, watch: Stopwatch::start(), address });
                    let doorman = std::thread::spawn({
                        let shared = Arc::clone(&shared);
                        move || keep_door(&shared, listener)
                    });
                    return Ok(Self { shared, doorman: Some(doorman) });
                }
                // Somebody took it since we looked.
                Err(error) => last = format!("no proxy at {address}: {error}"),
            }
        }
        Err(last)
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state());
        self.shared.changed.notify_all();
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&State) -> bool) {
        let state = self.shared.state();
        let waited = self.shared.changed.wait_timeout_while(state, WAIT_MAX, |state| !is_so(state));
        let (state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        let seen = state.total;
        drop(state);
        assert!(!timeout.timed_out(), "{what}: not within {} s; seen: {seen:?}", WAIT_MAX.as_secs());
    }

    /// It only looks up when somebody comes.
    fn wake_doorman(&self) {
        // If nobody listens, there is nobody to wake.
        let _ = TcpStream::connect_timeout(&self.shared.address, LOOK_EVERY);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(|state| state.is_ended = true);
        self.cut_all();
        self.wake_doorman();
        if let Some(doorman) = self.doorman.take() {
            // A panic of it was told already, and this may be one.
            let _ = doorman.join();
        }
        self.cut_all(); // Who came in while we waited.
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, at_most: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, at_most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until what was read at this time may pass; false if the connection is cut by then.
    fn hold(&self, id: u64, way: Way, read_at: Duration) -> bool {
        let mut state = self.state();
        loop {
            if !state.is_open(id) {
                return false;
            }
            let settings = state.way(way);
            let left = (read_at + settings.delay).saturating_sub(self.watch.elapsed());
            if settings.is_held {
                state = self.wait(state, LOOK_EVERY);
            } else if left.is_zero() {
                return true;
            } else {
                state = self.wait(state, left.min(LOOK_EVERY));
            }
        }
    }
}

/// Lets clients in, as long as nobody is refused.
fn keep_door(shared: &Arc<Shared>, first: TcpListener) {
    let mut listener = Some(first);
    loop {
        if let Some(listener) = listener.take().or_else(|| TcpListener::bind(shared.address).ok()) {
            shared.state().is_listening = true;
            shared.changed.notify_all();
            while let Ok((client, _)) = listener.accept() {
                let mut state = shared.state();
                if state.is_ended || state.is_refusing {
                    break;
                }
                if let Some(id) = state.enter(&client) {
                    let shared = Arc::clone(shared);
                    std::thread::spawn(move || serve(&shared, id, client));
                }
                drop(state);
                shared.changed.notify_all();
            }
            // To close it is not enough: a process that is being started has a copy of it for a moment, and would keep it open.
            let _ = rustix::net::shutdown(&listener, rustix::net::Shutdown::Both);
        }
        let mut state = shared.state();
        state.is_listening = false;
        shared.changed.notify_all();
        loop {
            if state.is_ended {
                return;
            }
            state = shared.wait(state, LOOK_EVERY);
            if !state.is_refusing {
                break;
            }
        }
    }
}

/// One connection, until it ends.
fn serve(shared: &Arc<Shared>, id: u64, client: TcpStream) {
    let target = shared.state().target;
    let server = target.and_then(|target| TcpStream::connect_timeout(&target, WAIT_MAX).ok());
    let Some(server) = server.filter(|server| shared.state().reach(id, server)) else {
        return shared.state().close(id);
    };
    // Messages are small, and each is to arrive when it is passed on.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    std::thread::scope(|scope| {
        let (commands, passing_commands) = sync_channel(CHUNKS_MAX);
        let (replies, passing_replies) = sync_channel(CHUNKS_MAX);
        scope.spawn(|| read(shared, id, &client, frames::command, commands));
        scope.spawn(|| read(shared, id, &server, frames::reply, replies));
        scope.spawn(|| {
            pass(shared, id, Way::ToServer, &server, passing_commands);
            // The client has said all; the server may still have to answer.
            let _ = server.shutdown(Shutdown::Write);
        });
        pass(shared, id, Way::ToClient, &client, passing_replies);
        shared.state().close(id);
        shared.changed.notify_all();
    });
}

/// Takes the next message off what was read.
type Next = fn(&mut Vec<u8>) -> Result<Option<Frame>, frames::NoFrame>;

/// Reads until the end, and hands on what is there as messages.
fn read(shared: &Shared, id: u64, mut from: &TcpStream, next: Next, to: SyncSender<Chunk>) {
    let mut buffer = vec![0; READ_BYTES];
    let mut rest = Vec::new();
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let read_at = shared.watch.elapsed();
        rest.extend_from_slice(&buffer[..count]);
        let mut frames = Vec::new();
        loop {
            let is_stream = shared.state().is_stream(id);
            match if is_stream { Err(frames::NoFrame) } else { next(&mut rest) } {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(frames::NoFrame) => {
                    shared.state().becomes_stream(id);
                    if !rest.is_empty() {
                        frames.push(Frame { bytes: std::mem::take(&mut rest), kind: FrameKind::Other });
                    }
                    break;
                }
            }
        }
        if to.send(Chunk { read_at, frames }).is_err() {
            return;
        }
    }
}

/// Passes on what was read, when and as far as it may.
fn pass(shared: &Shared, id: u64, way: Way, mut to: &TcpStream, chunks: Receiver<Chunk>) {
    for chunk in chunks {
        if !shared.hold(id, way, chunk.read_at) {
            return;
        }
        // What was read at once is written at once, up to where something happens.
        let mut bytes = Vec::new();
        let mut is_last = false;
        for mut frame in chunk.frames {
            // Not in the `match` itself, which would hold the lock to its end.
            let fate = shared.state().fate(id, way, &frame.kind);
            match fate {
                Fate::Pass => bytes.append(&mut frame.bytes),
                Fate::PassThenCut => {
                    bytes.append(&mut frame.bytes);
                    is_last = true;
                }
                Fate::Drop => {}
                Fate::Cut => is_last = true,
                Fate::Wait => {
                    // All that came before has to be answered; then the one that passes replies on cuts.
                    let _ = to.write_all(&bytes);
                    shared.changed.notify_all();
                    return wait_for_cut(shared, id);
                }
                Fate::Spoil(Spoil::Truncate { bytes: count }) => {
                    bytes.extend(frame.bytes.iter().take(count));
                    is_last = true;
                }
                Fate::Spoil(Spoil::Drop) => {}
                Fate::Spoil(Spoil::Flip { at, bits }) => {
                    let last = frame.bytes.len().saturating_sub(1);
                    if let Some(byte) = frame.bytes.get_mut(at.min(last)) {
                        *byte ^= bits;
                    }
                    bytes.append(&mut frame.bytes);
                }
            }
            if is_last {
                break;
            }
        }
        let written = to.write_all(&bytes);
        if is_last {
            shared.state().cut(id);
        }
        shared.changed.notify_all();
        if is_last || written.is_err() {
            return shared.state().close(id);
        }
    }
}

fn wait_for_cut(shared: &Shared, id: u64) {
    let mut state = shared.state();
    while state.is_open(id) {
        state = shared.wait(state, LOOK_EVERY);
    }
}
