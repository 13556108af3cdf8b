//! Connections to the servers of a store: who answers for a slot, redirects, and what is never sent twice. Start at [`Wires::call`].

mod servers; // what all threads know about the servers
mod circuit; // when a server is not even tried
mod link; // one thread's way to one server
mod map; // reading which server answers for which slot
mod reply; // what errors mean
mod connection; // one connection; the only file that knows how the crate connects
mod ears; // one that only listens

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::{Cmd, ServerError, Value};
use tokio::time::Instant;

use super::settings::{Address, Topology};
use super::stats::Trouble;
use super::survey::{self, Survey};
use circuit::Try;
use link::{Link, NoConnection, Outcome};
use reply::{Meaning, advice, meaning, words};
use servers::{Server, jittered};

pub(super) use ears::Ears;
pub(super) use servers::Servers;

/// How often a call may be sent elsewhere, because a server said so or could not be reached.
const HOPS_MAX: u32 = 3;
/// How often a call is tried on a slot whose keys are on their way, and how long it waits before that, on average.
const TRIES_AGAIN_MAX: u32 = 3;
const TRY_AGAIN_AFTER: Duration = Duration::from_micros(1_500);
/// How often is looked whether the map has to be read earlier.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long a way that leads to no primary is kept after its last use.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// A script, and the name by which servers know it.
pub(super) struct Script {
    text: &'static str,
    sha1: OnceLock<String>,
}

impl Script {
    /// A script; its name is worked out when it is needed.
    pub(super) const fn new(text: &'static str) -> Self {
        Self { text, sha1: OnceLock::new() }
    }

    fn sha1(&self) -> &str {
        self.sha1.get_or_init(|| {
            let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, self.text.as_bytes());
            digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
        })
    }
}

/// A script that is to be run on keys of one slot.
pub(super) struct Call {
    pub(super) script: &'static Script,
    /// What it does, in a fixed word, for the statistics.
    pub(super) op: &'static str,
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) argument: Vec<u8>,
}

impl Call {
    fn command(&self, with_body: bool) -> Cmd {
        let bytes: usize = self.keys.iter().map(Vec::len).sum();
        let (name, script) = match with_body {
            false => ("EVALSHA", self.script.sha1()),
            true => ("EVAL", self.script.text),
        };
        let mut command =
            Cmd::with_capacity(self.keys.len() + 4, bytes + self.argument.len() + script.len() + 16);
        command.arg(name).arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(key.as_slice());
        }
        command.arg(self.argument.as_slice());
        command
    }
}

/// A call that has no reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CallFailed {
    /// It was certainly not carried out: never sent, or refused. In words: what, where and what to do.
    NotDone(String),
    /// It was sent and no reply came, or a script broke off: it may have been carried out. It was not sent again.
    Unknown(String),
}

/// What servers said of how they are set up.
pub(super) struct Surveyed {
    /// All that there are.
    pub(super) primaries: Vec<Address>,
    /// Those that answered, and what is wrong with them.
    pub(super) answered: Vec<(Address, Vec<String>)>,
}

/// One thread's connections to a store: at most one to each server. Stays on its thread, which has to run a `LocalSet`.
pub(super) struct Wires {
    servers: Arc<Servers>,
    links: RefCell<HashMap<u64, Rc<Link>>>,
    /// Up to which reading of the map the links were cleared of those that lead nowhere.
    cleared: Cell<u64>,
    me: Weak<Self>,
}

/// What is to be sent.
enum Message<'a> {
    /// A script. Never sent again once it may have arrived.
    Call(&'a Call),
    /// A script whose writes have to be on the replicas too.
    Replicated(&'a Call),
    /// A command that does no harm if it is carried out twice.
    Command(&'a Cmd),
}

/// Where it goes next.
enum Place {
    /// To the primary of the slot.
    Primary,
    /// To this server, as an exception.
    Asked(Rc<Link>),
}

impl Wires {
    /// Connections for the thread that calls. Nothing is opened yet.
    pub(super) fn new(servers: Arc<Servers>) -> Rc<Self> {
        servers.threads.fetch_add(1, Relaxed);
        Rc::new_cyclic(|me| Self {
            servers,
            links: RefCell::default(),
            cleared: Cell::new(0),
            me: me.clone(),
        })
    }

    /// Runs a script on the primary that answers for a slot, and gives its reply.
    pub(super) async fn call(&self, slot: u16, call: &Call, until: Instant) -> Result<Value, CallFailed> {
        self.carry(slot, &Message::Call(call), call.op, until).await
    }

    /// The same, and then waits until all replicas of the primary have it too. If they do not in time, it fails although it was carried
    /// out. Meanwhile the connection takes nothing else, so that this wants wires of its own.
    pub(super) async fn call_replicated(
        &self,
        slot: u16,
        call: &Call,
        until: Instant,
    ) -> Result<Value, CallFailed> {
        self.carry(slot, &Message::Replicated(call), call.op, until).await
    }

    /// Sends a command that does no harm if it is carried out twice to the primary that answers for a slot.
    pub(super) async fn command(
        &self,
        slot: u16,
        command: &Cmd,
        op: &'static str,
        until: Instant,
    ) -> Result<Value, CallFailed> {
        self.carry(slot, &Message::Command(command), op, until).await
    }

    /// The number of the primary of a slot; 0 if none is known.
    pub(super) fn primary_id(&self, slot: u16) -> u64 {
        self.servers.map().primary(slot).map_or(0, |primary| primary.id)
    }

    /// Asks every primary how it is set up.
    pub(super) async fn survey(&self, until: Instant) -> Surveyed {
        let primaries = self.servers.map().primaries().to_vec();
        let mut answered = Vec::new();
        for server in primaries.iter().filter(|server| !server.circuit.is_open()) {
            let link = self.link(server);
            let Ok(connection) = link.connection(until).await else { continue };
            let info = link.exchange(&connection, &redis::cmd("INFO"), false, "info", until).await;
            let save = redis::cmd("CONFIG").arg("GET").arg("save").take();
            let save = link.exchange(&connection, &save, false, "info", until).await;
            let Outcome::Done(info) = info else { continue };
            let save = if let Outcome::Done(save) = save { survey::setting(&save) } else { None };
            let info = survey::text(&info).unwrap_or_default();
            let found = Survey::of(&server.address.to_string(), &info, save.as_deref());
            if let Some(keys) = found.evicted_keys {
                server.has_evicted(keys);
            }
            answered.push((server.address.clone(), found.warnings));
        }
        Surveyed { primaries: primaries.iter().map(|server| server.address.clone()).collect(), answered }
    }

    async fn carry(
        &self,
        slot: u16,
        message: &Message<'_>,
        op: &'static str,
        until: Instant,
    ) -> Result<Value, CallFailed> {
        let now = Instant::now();
        if now >= until {
            self.servers.troubles.count(Trouble::Timeout);
            return Err(CallFailed::NotDone("no time was left to ask the store".into()));
        }
        self.look_after(now);
        let mut way = Way {
            place: Place::Primary,
            hops: 0,
            tries_again: 0,
            noscripts: 0,
            with_body: false,
            lost: false,
        };
        loop {
            match self.step(slot, message, op, until, &mut way).await {
                Step::Done(value) => return Ok(value),
                Step::Again => {}
                // If an attempt before this one was lost, nobody knows any more.
                Step::Failed(CallFailed::NotDone(why)) if way.lost => return Err(CallFailed::Unknown(why)),
                Step::Failed(failed) => return Err(failed),
            }
        }
    }

    /// One attempt.
    async fn step(
        &self,
        slot: u16,
        message: &Message<'_>,
        op: &'static str,
        until: Instant,
        way: &mut Way,
    ) -> Step {
        let (link, asking) = match &way.place {
            Place::Asked(link) => (link.clone(), true),
            Place::Primary => match self.primary(slot, until).await {
                Ok(link) => (link, false),
                Err(why) => return Step::Failed(CallFailed::NotDone(why)),
            },
        };
        let attempt = match Try::new(&link.server, Instant::now()) {
            Ok(attempt) => attempt,
            Err(why) => {
                self.refresh(); // Another server may have taken over.
                return Step::Failed(CallFailed::NotDone(why));
            }
        };
        let connection = match link.connection(until).await {
            Ok(connection) => connection,
            Err(failed) => {
                attempt.went_badly(&failed.why);
                return self.unreached(slot, &link, failed, until, way).await;
            }
        };
        let built;
        let (command, bodies) = match message {
            Message::Command(command) => (*command, 0),
            Message::Call(call) | Message::Replicated(call) => {
                if way.with_body {
                    connection.body_goes_out(call.script);
                }
                built = call.command(way.with_body);
                (&built, connection.bodies(call.script))
            }
        };
        let outcome = link.exchange(&connection, command, asking, op, until).await;
        match bad(&link, &outcome) {
            None => attempt.went_well(),
            Some(why) => attempt.went_badly(&why),
        }
        match outcome {
            Outcome::Done(value) if matches!(message, Message::Replicated(_)) => {
                match link.replicated(&connection, until).await {
                    Ok(()) => Step::Done(value),
                    Err(why) => Step::Failed(CallFailed::Unknown(why)),
                }
            }
            Outcome::Done(value) => Step::Done(value),
            Outcome::TimedOut => {
                self.servers.troubles.count(Trouble::Timeout);
                if connection.is_closed() {
                    self.refresh();
                }
                Step::Failed(CallFailed::Unknown(format!("{} did not answer in time", link.server.address)))
            }
            Outcome::NotSent(_) if way.hop() => Step::Again,
            Outcome::NotSent(why) => Step::Failed(CallFailed::NotDone(format!(
                "{} broke the connection off: {why}",
                link.server.address
            ))),
            Outcome::Lost(why) => {
                self.servers.troubles.count(Trouble::Lost);
                self.refresh();
                match message {
                    Message::Command(_) if way.hop() => {
                        way.lost = true;
                        way.place = Place::Primary;
                        Step::Again
                    }
                    _ => Step::Failed(CallFailed::Unknown(format!(
                        "{} did not answer: {why}",
                        link.server.address
                    ))),
                }
            }
            Outcome::Refused(error) if error.code() == "NOSCRIPT" => {
                // Whoever finds the script missing sends its body. Calls that were on their way then find it if they go behind.
                let sent_since = match message {
                    Message::Call(call) | Message::Replicated(call) => {
                        connection.bodies(call.script) > bodies
                    }
                    Message::Command(_) => false,
                };
                self.no_script(&link, &error, sent_since, way)
            }
            Outcome::Refused(error) => {
                if error.code() == "READONLY" && !self.servers.has_map() {
                    // Its name may belong to another server by now; whoever connects next asks again. Others who wait for a reply on
                    // this connection are told the same there: were it cut, nobody would know what became of theirs.
                    link.leave(&connection);
                }
                self.refused(slot, &link, &error, until, way).await
            }
        }
    }

    fn no_script(&self, link: &Link, error: &ServerError, sent_since: bool, way: &mut Way) -> Step {
        self.servers.troubles.count(Trouble::NoScript);
        way.noscripts += 1;
        if way.with_body || way.noscripts > 2 {
            return not_done(link, error, Trouble::NoScript);
        }
        way.with_body = way.noscripts == 2 || !sent_since;
        Step::Again
    }

    /// Does what a refusal says.
    async fn refused(
        &self,
        slot: u16,
        link: &Rc<Link>,
        error: &ServerError,
        until: Instant,
        way: &mut Way,
    ) -> Step {
        let is_cluster = matches!(self.servers.settings.topology, Topology::Cluster(_));
        match meaning(error, &link.server.address) {
            Meaning::Moved(_) | Meaning::Ask(_) if !is_cluster => {
                self.servers.troubles.count(Trouble::Moved);
                let why = format!(
                    "{} is one of a cluster: write redis+cluster:// in the store's URL",
                    link.server.address
                );
                Step::Failed(CallFailed::NotDone(why))
            }
            Meaning::Moved(address) => {
                self.servers.troubles.count(Trouble::Moved);
                let Some(server) = self.redirect(&address, way) else {
                    return not_done(link, error, Trouble::Moved);
                };
                self.servers.moved(slot, &server);
                self.refresh();
                way.place = Place::Primary;
                Step::Again
            }
            Meaning::Ask(address) => {
                self.servers.troubles.count(Trouble::Ask);
                let Some(server) = self.redirect(&address, way) else {
                    return not_done(link, error, Trouble::Ask);
                };
                way.place = Place::Asked(self.link(&server));
                Step::Again
            }
            Meaning::TryAgain => {
                self.servers.troubles.count(Trouble::TryAgain);
                let later = Instant::now() + jittered(TRY_AGAIN_AFTER);
                way.tries_again += 1;
                if way.tries_again > TRIES_AGAIN_MAX || later >= until {
                    return not_done(link, error, Trouble::TryAgain);
                }
                tokio::time::sleep_until(later).await;
                Step::Again
            }
            Meaning::Elsewhere(trouble) => {
                self.servers.troubles.count(trouble);
                if self.moves_after_refresh(slot, link, until).await && way.hop() {
                    way.place = Place::Primary;
                    return Step::Again;
                }
                not_done(link, error, trouble)
            }
            Meaning::NotDone(trouble) => {
                self.servers.troubles.count(trouble);
                not_done(link, error, trouble)
            }
            Meaning::NoScript => not_done(link, error, Trouble::NoScript),
            Meaning::Unknown => {
                self.servers.troubles.count(Trouble::Script);
                Step::Failed(CallFailed::Unknown(format!(
                    "{}: a script broke off: {}",
                    link.server.address,
                    words(error)
                )))
            }
        }
    }

    fn redirect(&self, address: &Address, way: &mut Way) -> Option<Arc<Server>> {
        if !way.hop() {
            return None;
        }
        self.servers.redirected();
        // Another server may not have the script: that is asked first, as everywhere.
        (way.with_body, way.noscripts) = (false, 0);
        self.servers.server(address)
    }

    /// There was no connection, so nothing was sent.
    async fn unreached(
        &self,
        slot: u16,
        link: &Rc<Link>,
        failed: NoConnection,
        until: Instant,
        way: &mut Way,
    ) -> Step {
        match failed.was_tried {
            true => {
                if self.moves_after_refresh(slot, link, until).await && way.hop() {
                    way.place = Place::Primary;
                    return Step::Again;
                }
            }
            // Somebody else has started the refresh, or will when it is tried again; whoever is told so waits for nothing.
            false => self.refresh(),
        }
        Step::Failed(CallFailed::NotDone(failed.why))
    }

    /// Reads the map again. Does it name another primary, in time?
    async fn moves_after_refresh(&self, slot: u16, link: &Link, until: Instant) -> bool {
        let moved = || self.servers.map().primary(slot).is_some_and(|primary| primary.id != link.server.id);
        moved() || (self.refreshed(until).await && moved())
    }

    /// The way to the primary of a slot. If none is known, waits until one is.
    async fn primary(&self, slot: u16, until: Instant) -> Result<Rc<Link>, String> {
        let known = || self.servers.map().primary(slot).map(|primary| self.link(primary));
        if let Some(link) = known() {
            return Ok(link);
        }
        if self.refreshed(until).await
            && let Some(link) = known()
        {
            return Ok(link);
        }
        Err(match self.servers.map().primaries() {
            [] => format!("no primary is known: {}", self.servers.map_problem()),
            _ => {
                format!("no primary is known for slot {slot}; see CLUSTER INFO for what the cluster has lost")
            }
        })
    }

    /// The way to a server.
    fn link(&self, server: &Arc<Server>) -> Rc<Link> {
        let mut links = self.links.borrow_mut();
        links.entry(server.id).or_insert_with(|| Link::new(server.clone(), self.servers.clone())).clone()
    }

    /// All that are connected.
    fn connected(&self) -> Vec<Rc<Link>> {
        self.links.borrow().values().filter(|link| link.open_one().is_some()).cloned().collect()
    }

    /// Starts reading the map, unless somebody does so.
    fn refresh(&self) {
        let Some(refreshing) = self.servers.start_refresh() else { return };
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            // It may have to begin earlier than it seems, if a server is found to be ill meanwhile.
            while Instant::now() < refreshing.from() {
                tokio::time::sleep_until(refreshing.from().min(Instant::now() + LOOK_AGAIN)).await;
            }
            if let Some(wires) = me.upgrade() {
                refreshing.begins();
                refreshing.ended(map::read(&wires).await);
            }
        });
    }

    /// Starts reading the map and waits for it, if it can be done in time.
    async fn refreshed(&self, until: Instant) -> bool {
        let mut rounds = self.servers.rounds();
        let in_time = self.servers.is_refresh_before(until);
        self.refresh();
        in_time && tokio::time::timeout_at(until, rounds.changed()).await.is_ok()
    }

    /// What has to be done from time to time.
    fn look_after(&self, now: Instant) {
        if self.servers.is_map_old(now) {
            self.refresh();
        }
        let round = self.servers.round();
        if self.cleared.replace(round) != round {
            let map = self.servers.map();
            let is_used = |link: &Link| now.saturating_duration_since(link.used_at.get()) < IDLE_MAX;
            self.links.borrow_mut().retain(|id, link| map.names(*id) || is_used(link));
        }
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        self.servers.threads.fetch_sub(1, Relaxed);
    }
}

/// How a message got to where it is.
struct Way {
    place: Place,
    hops: u32,
    tries_again: u32,
    noscripts: u32,
    with_body: bool,
    lost: bool,
}

impl Way {
    /// Takes one more hop, if there is one left.
    fn hop(&mut self) -> bool {
        self.hops += 1;
        self.hops <= HOPS_MAX
    }
}

/// What came of one attempt.
enum Step {
    Done(Value),
    Again,
    Failed(CallFailed),
}

/// Why a server is not well, if what came of a command says so. A refusal that says what to do is an answer.
fn bad(link: &Link, outcome: &Outcome) -> Option<String> {
    let address = &link.server.address;
    match outcome {
        Outcome::Done(_) => None,
        Outcome::TimedOut => Some(format!("{address} did not answer in time")),
        Outcome::Lost(why) | Outcome::NotSent(why) => Some(format!("{address} did not answer: {why}")),
        Outcome::Refused(error) => match meaning(error, address) {
            Meaning::Elsewhere(_) | Meaning::NotDone(Trouble::Busy) => {
                Some(format!("{address}: {}", words(error)))
            }
            _ => None,
        },
    }
}

fn not_done(link: &Link, error: &ServerError, trouble: Trouble) -> Step {
    Step::Failed(CallFailed::NotDone(format!("{}: {}{}", link.server.address, words(error), advice(trouble))))
}

#[cfg(test)]
mod tests;
