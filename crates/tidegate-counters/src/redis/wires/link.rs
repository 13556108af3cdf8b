//! One thread's way to one server: at most one connection, opened when somebody needs it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use redis::{Cmd, ServerError, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::connection::{Connection, Lost, OpenFailed, Purpose};
use super::servers::{Permit, Server, Servers};
use crate::redis::stats::{TimesTally, Trouble};

/// After how many calls in a row without a sign of life a connection is given up. Each of them began after the one before was over:
/// one pause of the server makes all calls late that are on their way, and is no reason.
const SILENT_CALLS_MAX: u32 = 3;
/// After how long without a sign of life since a call's time was over.
const SILENT_MAX: Duration = Duration::from_secs(1);

/// For how long the number of a server's replicas is believed.
const REPLICAS_KNOWN: Duration = Duration::from_secs(5);

/// One thread's way to one server.
pub(super) struct Link {
    pub(super) server: Arc<Server>,
    servers: Arc<Servers>,
    state: RefCell<State>,
    /// Told when opening has ended.
    changed: Notify,
    pub(super) used_at: Cell<Instant>,
    /// How many replicas it has, and when it said so.
    replicas: Cell<Option<(u32, Instant)>>,
    /// When the server replied last.
    pub(super) heard_at: Cell<Instant>,
    times: RefCell<Vec<(&'static str, Arc<TimesTally>)>>,
}

enum State {
    Closed,
    Opening,
    Open(Rc<Connection>),
    Failed(String),
}

/// Why there is no connection, and so nothing was sent.
pub(super) struct NoConnection {
    pub(super) why: String,
    /// Was it tried for this call? If not, it is left alone for a while.
    pub(super) was_tried: bool,
}

/// What came of a command that was sent.
pub(super) enum Outcome {
    Done(Value),
    Refused(ServerError),
    /// The connection ended before anything of it was sent, and took it along.
    NotSent(String),
    /// Sent, and there will be no reply.
    Lost(String),
    /// Sent, and there was no reply in time.
    TimedOut,
}

impl Link {
    pub(super) fn new(server: Arc<Server>, servers: Arc<Servers>) -> Rc<Self> {
        Rc::new(Self {
            server,
            servers,
            state: RefCell::new(State::Closed),
            changed: Notify::new(),
            used_at: Cell::new(Instant::now()),
            replicas: Cell::new(None),
            heard_at: Cell::new(Instant::now()),
            times: RefCell::default(),
        })
    }

    /// The connection, if there is one that works as far as is known.
    pub(super) fn open_one(&self) -> Option<Rc<Connection>> {
        match &*self.state.borrow() {
            State::Open(connection) if !connection.is_closed() => Some(connection.clone()),
            _ => None,
        }
    }

    /// The connection. Whoever finds none opens it for all who wait.
    pub(super) async fn connection(self: &Rc<Self>, until: Instant) -> Result<Rc<Connection>, NoConnection> {
        if let Some(connection) = self.open_one() {
            return Ok(connection);
        }
        let changed = self.changed.notified();
        if !matches!(*self.state.borrow(), State::Opening) {
            let permit = self.server.may_connect(self.servers.threads.load(Relaxed));
            let permit = permit.map_err(|why| NoConnection { why, was_tried: false })?;
            *self.state.borrow_mut() = State::Opening;
            tokio::task::spawn_local(Opening(self.clone()).run(permit));
        }
        let no_connection = |why| NoConnection { why, was_tried: true };
        if tokio::time::timeout_at(until, changed).await.is_err() {
            return Err(no_connection(format!("{} is not connected yet", self.server.address)));
        }
        match &*self.state.borrow() {
            State::Open(connection) if !connection.is_closed() => Ok(connection.clone()),
            State::Failed(why) => Err(no_connection(why.clone())),
            State::Open(_) | State::Closed | State::Opening => {
                Err(no_connection(format!("{} was lost again", self.server.address)))
            }
        }
    }

    /// Sends a command and waits for its reply.
    pub(super) async fn exchange(
        self: &Rc<Self>,
        connection: &Rc<Connection>,
        command: &Cmd,
        asking: bool,
        op: &'static str,
        until: Instant,
    ) -> Outcome {
        let (from, reads, writes) = (Instant::now(), connection.reads(), connection.writes());
        self.used_at.set(from);
        let reply = match asking {
            false => tokio::time::timeout_at(until, connection.send(command)).await,
            true => tokio::time::timeout_at(until, connection.send_asking(command)).await,
        };
        let now = Instant::now();
        self.took(op, now - from);
        if matches!(reply, Ok(Ok(_))) {
            self.heard_at.set(now);
        }
        match reply {
            Ok(Ok(Value::ServerError(error))) => Outcome::Refused(error),
            Ok(Ok(value)) => Outcome::Done(value),
            Ok(Err(Lost(why))) if connection.is_closed() && connection.writes() == writes => {
                Outcome::NotSent(why)
            }
            Ok(Err(Lost(why))) => {
                // Also if it was no end but a reply that nobody can read: the next ones would belong to nobody knows whom.
                self.give_up(connection);
                Outcome::Lost(why)
            }
            Err(_) => {
                self.was_silent(connection, from, reads);
                Outcome::TimedOut
            }
        }
    }

    /// Waits until the replicas have all that was written on a connection.
    pub(super) async fn replicated(
        self: &Rc<Self>,
        connection: &Rc<Connection>,
        until: Instant,
    ) -> Result<(), String> {
        let address = &self.server.address;
        let left = until.saturating_duration_since(Instant::now());
        let wanted = match self.replicas.get() {
            Some((replicas, asked)) if asked.elapsed() < REPLICAS_KNOWN => replicas,
            _ => {
                let role = self.exchange(connection, &redis::cmd("ROLE"), false, "role", until).await;
                let replicas = replicas_of(role).ok_or_else(|| {
                    format!("{address} does not tell its replicas: whether they have the charge is not known")
                })?;
                self.replicas.set(Some((replicas, Instant::now())));
                replicas
            }
        };
        let mut wait = redis::cmd("WAIT");
        // The server's wait ends before ours does, so that it can say how far it came.
        wait.arg(wanted).arg((left.as_millis() as u64 * 4 / 5).max(1));
        match self.exchange(connection, &wait, false, "wait", until).await {
            Outcome::Done(Value::Int(have)) if have >= i64::from(wanted) => Ok(()),
            Outcome::Done(Value::Int(have)) => {
                self.replicas.set(None);
                Err(format!("{have} of {wanted} replicas of {address} have the charge"))
            }
            _ => Err(format!("{address} did not tell in time whether its replicas have the charge")),
        }
    }

    /// Closes the connection, so that the next call opens another one.
    pub(super) fn give_up(&self, connection: &Rc<Connection>) {
        connection.close();
        self.leave(connection);
    }

    /// The next call opens another connection; this one ends once nobody waits for a reply on it.
    pub(super) fn leave(&self, connection: &Rc<Connection>) {
        let mut state = self.state.borrow_mut();
        if matches!(&*state, State::Open(current) if Rc::ptr_eq(current, connection)) {
            *state = State::Closed;
        }
    }

    /// A call's time was over. A server that has sent anything since is slow; if not, it may be gone, and TCP would notice only later.
    fn was_silent(self: &Rc<Self>, connection: &Rc<Connection>, from: Instant, reads: u64) {
        let mut silence = connection.silence.borrow_mut();
        if connection.reads() != reads {
            silence.calls = 0;
            return;
        }
        if silence.reads != reads {
            silence.calls = 0;
        }
        if silence.calls > 0 && silence.last.is_some_and(|last| from < last) {
            return;
        }
        silence.calls += 1;
        silence.last = Some(Instant::now());
        silence.reads = reads;
        if silence.calls >= SILENT_CALLS_MAX {
            return self.give_up(connection);
        }
        if silence.calls == 1 {
            let (link, connection) = (self.clone(), connection.clone());
            tokio::task::spawn_local(async move {
                tokio::time::sleep(SILENT_MAX).await;
                if connection.reads() == reads {
                    link.give_up(&connection);
                }
            });
        }
    }

    /// Counts a call. The shared tally is looked for once: a lock, and a count of who holds it, that all threads would pull at.
    fn took(&self, op: &'static str, took: Duration) {
        let mut times = self.times.borrow_mut();
        match times.iter().find(|(known, _)| *known == op) {
            Some((_, tally)) => tally.add(took),
            None => {
                let tally = self.server.times(op);
                tally.add(took);
                times.push((op, tally));
            }
        }
    }
}

/// How many replicas have to have a charge: all that a primary has, and one at least.
fn replicas_of(role: Outcome) -> Option<u32> {
    let Outcome::Done(Value::Array(role)) = role else { return None };
    match role.as_slice() {
        [Value::BulkString(master), _, Value::Array(replicas), ..] if master == b"master" => {
            Some((replicas.len() as u32).max(1))
        }
        _ => None,
    }
}

/// Opens the connection of a link. However it ends, nobody is left waiting.
struct Opening(Rc<Link>);

impl Opening {
    async fn run(self, permit: Permit) {
        let link = &self.0;
        let (settings, address) = (&link.servers.settings, &link.server.address);
        let connected = Some(link.server.connected());
        let opened = Connection::open(address, settings, Purpose::Counters, connected);
        let opened = match tokio::time::timeout(settings.connect_timeout, opened).await {
            Ok(opened) => opened,
            Err(_) => Err(OpenFailed {
                trouble: Trouble::Connect,
                why: format!(
                    "{address} was not connected within {} ms",
                    settings.connect_timeout.as_millis()
                ),
            }),
        };
        *link.state.borrow_mut() = match opened {
            Ok(connection) => {
                permit.succeeded();
                State::Open(connection)
            }
            Err(failed) => {
                link.servers.troubles.count(failed.trouble);
                permit.failed(&failed.why);
                State::Failed(failed.why)
            }
        };
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut state = self.0.state.borrow_mut();
        if matches!(*state, State::Opening) {
            *state = State::Closed;
        }
        self.0.changed.notify_waiters();
    }
}
