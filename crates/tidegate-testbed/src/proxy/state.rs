//! What is passed on, and what becomes of the connection. No threads and no bytes here: [`State::fate`] is the whole of it.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use super::Way;
use super::frames::FrameKind;

/// Connections that are open at the same time; more are closed at once.
const OPEN_MAX: usize = 4096;

/// Closed connections whose counts are still told.
const CLOSED_MAX: usize = 1024;

/// Commands of one connection that wait for a reply. A client that sends more is no longer understood.
const WAITING_MAX: usize = 1 << 20;

/// What was seen.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Connections that were let in.
    pub connections: u64,
    /// Commands that were passed on.
    pub commands: u64,
    /// Replies that came from the server, whether or not they were passed on.
    pub replies: u64,
    /// Connections that were cut.
    pub cuts: u64,
}

/// What was seen on one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionCounts {
    /// Which one, counted from 1.
    pub id: u64,
    /// Commands that were passed on.
    pub commands: u64,
    /// Replies that came from the server, whether or not they were passed on.
    pub replies: u64,
    /// Neither side has closed it, and it was not cut.
    pub is_open: bool,
}

/// What is to be done with a message.
#[derive(PartialEq, Debug)]
pub(super) enum Fate {
    Pass,
    PassThenCut,
    Drop,
    Cut,
    /// Do not pass it, nor any after it; the connection is cut behind the reply to the one before.
    Wait,
    Spoil(Spoil),
}

/// How a reply is spoiled.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Spoil {
    Truncate { bytes: usize },
    Flip { at: usize, bits: u8 },
    Drop,
}

pub(super) struct State {
    pub(super) target: Option<SocketAddr>,
    pub(super) is_listening: bool,
    pub(super) is_refusing: bool,
    pub(super) is_ended: bool,
    to_server: WaySettings,
    to_client: WaySettings,
    /// Names of commands in capitals; empty if all are counted.
    pub(super) counted: Vec<Vec<u8>>,
    pub(super) total: Counts,
    /// These are totals at which something happens.
    pub(super) cut_before: Option<u64>,
    pub(super) cut_after: Option<u64>,
    pub(super) spoil: Option<(u64, Spoil)>,
    pub(super) swallow_every: Option<u64>,
    pub(super) swallow_from: u64,
    connections: BTreeMap<u64, Connection>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct WaySettings {
    pub(super) delay: Duration,
    pub(super) is_held: bool,
}

struct Connection {
    counts: ConnectionCounts,
    /// No longer questions and answers.
    is_stream: bool,
    /// A reply was lost, so no other may pass.
    is_silent: bool,
    /// Commands that were passed on and not answered yet.
    waiting: VecDeque<Waiting>,
    /// Both ends, to be shut when it is cut.
    ends: Vec<TcpStream>,
}

struct Waiting {
    is_counted: bool,
    cut: Cut,
}

/// When its reply comes.
#[derive(PartialEq)]
enum Cut {
    No,
    Instead,
    Behind,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            target: None,
            is_listening: false,
            is_refusing: false,
            is_ended: false,
            to_server: WaySettings::default(),
            to_client: WaySettings::default(),
            counted: Vec::new(),
            total: Counts::default(),
            cut_before: None,
            cut_after: None,
            spoil: None,
            swallow_every: None,
            swallow_from: 0,
            connections: BTreeMap::new(),
        }
    }

    pub(super) fn way(&self, way: Way) -> WaySettings {
        match way {
            Way::ToServer => self.to_server,
            Way::ToClient => self.to_client,
        }
    }

    pub(super) fn way_mut(&mut self, way: Way) -> &mut WaySettings {
        match way {
            Way::ToServer => &mut self.to_server,
            Way::ToClient => &mut self.to_client,
        }
    }

    /// Decides about a message, and counts it.
    pub(super) fn fate(&mut self, id: u64, way: Way, kind: &FrameKind) -> Fate {
        let Some(connection) = self.connections.get_mut(&id).filter(|connection| connection.counts.is_open)
        else {
            return Fate::Drop;
        };
        match (way, kind) {
            (Way::ToServer, FrameKind::Command(name)) if !connection.is_stream => {
                let is_counted = self.counted.is_empty() || self.counted.contains(name);
                let number = self.total.commands + 1;
                if is_counted && self.cut_before == Some(number) {
                    self.cut_before = None;
                    return match connection.waiting.back_mut() {
                        None => Fate::Cut,
                        // A cut that is due at its reply is enough.
                        Some(last) if last.cut != Cut::No => Fate::Wait,
                        Some(last) => {
                            last.cut = Cut::Behind;
                            Fate::Wait
                        }
                    };
                }
                let is_last = is_counted && self.cut_after == Some(number);
                if is_counted {
                    self.total.commands = number;
                    connection.counts.commands += 1;
                }
                if is_last {
                    self.cut_after = None;
                }
                connection.is_stream |= kind.starts_stream() || connection.waiting.len() >= WAITING_MAX;
                let cut = if is_last { Cut::Instead } else { Cut::No };
                connection.waiting.push_back(Waiting { is_counted, cut });
                Fate::Pass
            }
            (Way::ToClient, FrameKind::Reply) if !connection.is_stream => {
                match connection.waiting.pop_front() {
                    Some(waiting) => self.fate_of_reply(id, &waiting),
                    None => Fate::Pass,
                }
            }
            (Way::ToClient, _) if connection.is_silent => Fate::Drop,
            _ => Fate::Pass,
        }
    }

    fn fate_of_reply(&mut self, id: u64, waiting: &Waiting) -> Fate {
        let Some(connection) = self.connections.get_mut(&id) else { return Fate::Drop };
        let mut spoil = None;
        if waiting.is_counted {
            self.total.replies += 1;
            connection.counts.replies += 1;
            let since = self.total.replies - self.swallow_from;
            connection.is_silent |= self.swallow_every.is_some_and(|every| since.is_multiple_of(every));
            spoil = self.spoil.take_if(|(number, _)| *number == self.total.replies).map(|(_, spoil)| spoil);
        }
        match (&waiting.cut, spoil) {
            (Cut::Instead, _) => Fate::Cut,
            (Cut::Behind, _) if connection.is_silent => Fate::Cut,
            (Cut::No, _) if connection.is_silent => Fate::Drop,
            (Cut::No, Some(spoil)) => Fate::Spoil(spoil),
            (Cut::No, None) => Fate::Pass,
            (Cut::Behind, _) => Fate::PassThenCut,
        }
    }

    /// A client has come. None if there are too many.
    pub(super) fn enter(&mut self, client: &TcpStream) -> Option<u64> {
        let client = client.try_clone().ok().filter(|_| self.open().count() < OPEN_MAX)?;
        let closed: Vec<u64> =
            self.connections.values().filter(|one| !one.counts.is_open).map(|one| one.counts.id).collect();
        if closed.len() >= CLOSED_MAX {
            self.connections.remove(&closed[0]);
        }
        self.total.connections += 1;
        let id = self.total.connections;
        let counts = ConnectionCounts { id, commands: 0, replies: 0, is_open: true };
        let (is_stream, is_silent, waiting, ends) = (false, false, VecDeque::new(), vec![client]);
        self.connections.insert(id, Connection { counts, is_stream, is_silent, waiting, ends });
        Some(id)
    }

    /// The server was reached for it. False if the connection was cut meanwhile.
    pub(super) fn reach(&mut self, id: u64, server: &TcpStream) -> bool {
        let open = self.connections.get_mut(&id).filter(|connection| connection.counts.is_open);
        open.zip(server.try_clone().ok()).map(|(connection, server)| connection.ends.push(server)).is_some()
    }

    /// Shuts both ends, on purpose.
    pub(super) fn cut(&mut self, id: u64) {
        self.total.cuts += u64::from(self.is_open(id));
        self.close(id);
    }

    /// The same, and tells both ends by a reset.
    pub(super) fn reset(&mut self, id: u64) {
        for end in self.connections.get(&id).into_iter().flat_map(|connection| &connection.ends) {
            // To dissolve the association of a socket is, in TCP, to reset the connection. It may be shut already.
            let _ = rustix::net::connect_unspec(end);
        }
        self.cut(id);
    }

    /// Shuts both ends, since one is gone.
    pub(super) fn close(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.counts.is_open = false;
            connection.waiting = VecDeque::new();
            for end in connection.ends.drain(..) {
                // It may be shut already.
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }

    pub(super) fn is_open(&self, id: u64) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.counts.is_open)
    }

    pub(super) fn open(&self) -> impl Iterator<Item = u64> {
        self.connections.values().filter(|one| one.counts.is_open).map(|one| one.counts.id)
    }

    pub(super) fn connections(&self) -> Vec<ConnectionCounts> {
        self.connections.values().map(|connection| connection.counts).collect()
    }

    pub(super) fn is_stream(&self, id: u64) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.is_stream)
    }

    pub(super) fn becomes_stream(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.is_stream = true;
        }
    }
}
