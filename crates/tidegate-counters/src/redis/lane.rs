//! One thread's way to the store: what its requests ask within one turn of the event loop goes out together, several requests in one call
//! where they are for the same slot. Nobody waits for a fuller call.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use redis::Value;
use smallvec::SmallVec;
use tidegate_core::{Key, Micros, Numbers};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::encode::{Laws, Placed};
use super::replay::{self, Told};
use super::wires::{Call, CallFailed, Wires};
use super::{RedisStore, StoreClock, encode, script};
use crate::{Take, Unavailable};

/// What a value begins with: until when it is kept.
pub(super) const KEPT_BYTES: usize = 4;

/// How many counters a call may ask, unless one request needs more. Beyond that the store gains nothing, and others wait for it.
const CALL_KEYS: usize = 64;
/// How many requests it may hold: many may be about one counter, and a script stops the whole server while it runs.
const CALL_REQUESTS: usize = 64;

/// Of how many servers is kept in mind that nobody waits for them.
const SERVERS_KEPT: usize = 64;
/// How much later than an operation's end its answer may be known, where nobody says when it is wanted.
const LATE_MAX: Duration = Duration::from_millis(3);

/// One thread's way to the store.
pub(super) struct Lane {
    pub(super) store: Arc<RedisStore>,
    pub(super) wires: Rc<Wires>,
    /// For charges that have to be on the replicas: whoever waits for those stops its connection.
    replicated_wires: OnceCell<Rc<Wires>>,
    /// What was asked in this turn, by where it goes.
    parcels: RefCell<HashMap<Way, Parcel>>,
    /// Ways on which a call waits for replicas. What is asked there meanwhile goes out together, once it has its answer.
    busy: RefCell<HashSet<Way>>,
    /// When this turn began, if its end is waited for. The time is asked for once in it.
    turn: Cell<Option<Instant>>,
    /// A table that no parcel uses, large enough for most.
    numbers: RefCell<Numbered>,
    /// How many requests wait for an answer of each server, by its number. One that is silent does not use up what others may.
    in_flight: RefCell<Vec<(u64, usize)>>,
    /// The way to the store of limits per second, if they have one of their own.
    per_second: Option<Rc<Self>>,
    /// By how much the store's clock is ahead of the node's, as far as known.
    ahead_us: Cell<i64>,
    ids: RandomState,
    next_id: Cell<u64>,
}

/// Where a call goes: to a slot, and whether it has to be on the replicas too.
type Way = (u16, bool);

/// The numbers of the counters in a call, of which the reference server has one for each window.
type Numbered = HashMap<(Key, Option<Micros>), u16>;

/// A call in the making.
#[derive(Default)]
struct Parcel {
    names: Vec<Vec<u8>>,
    numbers: Numbered,
    argument: Vec<u8>,
    /// The time that it tells, if it tells one.
    told: u64,
    /// Until when it has to be answered: whoever asked first in it has waited longest.
    until: Option<Instant>,
    /// The node's time when it was asked.
    asked: Micros,
    /// The number of the server that it goes to, as far as was known then.
    server: u64,
    laws: Laws,
    /// How many takes each request has, and who waits for its answer.
    waiting: Vec<(usize, oneshot::Sender<Result<PartReply, Unavailable>>)>,
}

/// What the store said to the takes of a request that are in one slot.
#[derive(Debug)]
pub(super) struct PartReply {
    /// The time by which was judged.
    pub(super) now: Micros,
    /// Was it admitted?
    pub(super) admitted: bool,
    values: SmallVec<[Value; 2]>,
}

/// An answer that is on its way.
pub(super) struct Pending {
    reply: oneshot::Receiver<Result<PartReply, Unavailable>>,
    /// When its call ends, if by nothing else then by its own deadline.
    ends: Instant,
}

impl Pending {
    /// The answer, if it comes until then.
    pub(super) async fn within(&mut self, until: Instant) -> Result<PartReply, Unavailable> {
        // A timer only where the call has more time than whoever asks: by default it has less, and there is one for all that go together.
        // It is large, and in a place of its own.
        let reply = match self.ends <= until {
            true => Some((&mut self.reply).await),
            false => Box::pin(timeout_at(until, &mut self.reply)).await.ok(),
        };
        match reply {
            Some(Ok(reply)) => reply,
            Some(Err(_)) => Err(gone()),
            None => {
                let why = "the store did not answer before the deadline of the request; whether it was charged is not known";
                Err(Unavailable { why: why.into() })
            }
        }
    }

    /// Waits until there is one, or never will be.
    pub(super) async fn over(self) {
        let _ = self.reply.await;
    }
}

pub(super) fn gone() -> Unavailable {
    Unavailable { why: "the thread that asked the store has ended".into() }
}

impl PartReply {
    /// What the store said of each take of a request that was asked at `now`.
    pub(super) fn told(
        &self,
        lane: &Lane,
        takes: &[Take<'_>],
        now: Micros,
    ) -> Result<SmallVec<[Told<'_>; 2]>, Unavailable> {
        let mut all = SmallVec::with_capacity(takes.len());
        for (value, take) in self.values.iter().zip(takes) {
            let Value::BulkString(bytes) = value else { return Err(garbled()) };
            let reference = lane.store.reference_start(take, now);
            all.push(match take.limit.numbers() {
                _ if let Some(start) = reference => {
                    replay::reference(bytes, start, take.limit, now).ok_or_else(garbled)?
                }
                Numbers::Log { .. } | Numbers::Places { .. } => {
                    Told::List(replay::list(bytes).ok_or_else(garbled)?)
                }
                _ => Told::State(bytes.get(KEPT_BYTES..).unwrap_or_default()),
            });
        }
        if all.len() == takes.len() { Ok(all) } else { Err(garbled()) }
    }
}

pub(super) fn garbled() -> Unavailable {
    Unavailable { why: "the store answered something else than the script does".into() }
}

impl From<CallFailed> for Unavailable {
    fn from(failed: CallFailed) -> Self {
        match failed {
            CallFailed::NotDone(why) => Self { why },
            CallFailed::Unknown(why) => Self { why: format!("{why}; whether it was charged is not known") },
        }
    }
}

impl Lane {
    pub(super) fn new(store: Arc<RedisStore>) -> Rc<Self> {
        let wires = Wires::new(store.servers.clone());
        let per_second = store.per_second.clone().map(Self::new);
        Rc::new(Self {
            per_second,
            store,
            wires,
            replicated_wires: OnceCell::new(),
            busy: RefCell::default(),
            parcels: RefCell::default(),
            turn: Cell::new(None),
            numbers: RefCell::default(),
            in_flight: RefCell::default(),
            ahead_us: Cell::new(0),
            ids: RandomState::new(),
            next_id: Cell::new(0),
        })
    }

    /// An id that nobody else has.
    pub(super) fn fresh_id(&self) -> u64 {
        let next = self.next_id.get();
        self.next_id.set(next.wrapping_add(1));
        self.ids.hash_one(next).max(1) // Zero is nobody's.
    }

    /// Now, or a little before: when the turn began in which requests are collected.
    fn now(&self) -> Instant {
        self.turn.get().unwrap_or_else(Instant::now)
    }

    /// Until when an operation that starts now may take.
    pub(super) fn deadline(&self) -> Instant {
        self.now() + self.store.servers.settings().timeout
    }

    /// Until when a request that has this patience wants its answer. What the store takes longest for is known a little before.
    pub(super) fn deadline_of(&self, patience: Option<Duration>) -> Instant {
        self.now() + patience.unwrap_or(self.store.servers.settings().timeout + LATE_MAX)
    }

    /// The time that a script is told, and one more; zero where the store's own counts.
    pub(super) fn told_time(&self, now: Micros) -> u64 {
        match self.store.servers.settings().clock {
            StoreClock::Store => 0,
            StoreClock::Caller => now.get() + 1,
        }
    }

    /// Are denials remembered? Not where callers set the clock, nor where nobody wants it.
    pub(super) fn remembers(&self) -> bool {
        let settings = self.store.servers.settings();
        settings.clock == StoreClock::Store && settings.remembers_denials
    }

    /// The way to the store that has a take's counter.
    pub(super) fn of<'l>(self: &'l Rc<Self>, take: &Take<'_>) -> &'l Rc<Self> {
        let of_second = |_: &&Rc<Self>| take.limit.window() == Some(Micros::from_secs(1));
        self.per_second.as_ref().filter(of_second).unwrap_or(self)
    }

    /// Asks for some takes of a request, all in one slot; they are judged in one piece, at the end of this turn.
    pub(super) fn ask(
        self: &Rc<Self>,
        way: Way,
        takes: &[Take<'_>],
        now: Micros,
    ) -> Result<Pending, Unavailable> {
        self.store.named()?;
        let server = self.wires.primary_id(way.0);
        let in_flight_max = self.store.servers.settings().in_flight_max;
        if self.waiting_for(server) >= in_flight_max {
            let why = format!(
                "{in_flight_max} requests wait for this server of the store already, as many as store.in_flight allows"
            );
            return Err(Unavailable { why });
        }
        let mut parcels = self.parcels.borrow_mut();
        let parcel = parcels.entry(way).or_default();
        let told = self.told_time(now);
        let is_full = parcel.waiting.len() >= CALL_REQUESTS
            || (!parcel.names.is_empty() && parcel.names.len() + takes.len() > CALL_KEYS);
        if is_full || parcel.told != told {
            self.send(way, std::mem::take(parcel));
        }
        if parcel.argument.is_empty() {
            parcel.numbers = std::mem::take(&mut self.numbers.borrow_mut());
            parcel.told = told;
            parcel.until = Some(self.deadline());
            parcel.asked = now;
            parcel.server = server;
            encode::start(told, &mut parcel.argument);
        }
        let around = Micros::new(now.get().saturating_add_signed(self.ahead_us.get()));
        parcel.add(&self.store, takes, now, around);
        let (sender, reply) = oneshot::channel();
        parcel.waiting.push((takes.len(), sender));
        let (server, ends) = (parcel.server, parcel.until.unwrap_or_else(|| self.deadline()));
        self.count(server, 1);
        if self.turn.get().is_none() {
            self.turn.set(Some(Instant::now()));
            let lane = self.clone();
            tokio::task::spawn_local(async move { lane.send_all() });
        }
        Ok(Pending { reply, ends })
    }

    /// How many requests wait for a server.
    fn waiting_for(&self, server: u64) -> usize {
        self.in_flight.borrow().iter().find(|(known, _)| *known == server).map_or(0, |(_, waiting)| *waiting)
    }

    fn count(&self, server: u64, more: isize) {
        self.store.count_in_flight(more as i64);
        let mut all = self.in_flight.borrow_mut();
        let at = all.iter().position(|(known, _)| *known == server).unwrap_or_else(|| {
            all.push((server, 0));
            all.len() - 1
        });
        all[at].1 = all[at].1.saturating_add_signed(more);
        if all[at].1 == 0 && more < 0 && all.len() > SERVERS_KEPT {
            all.swap_remove(at); // Servers come and go.
        }
    }

    /// The turn has ended: what was asked goes out.
    fn send_all(self: &Rc<Self>) {
        self.turn.set(None);
        let mut parcels = std::mem::take(&mut *self.parcels.borrow_mut());
        let busy = self.busy.borrow();
        let waits = |way: &Way| busy.contains(way);
        *self.parcels.borrow_mut() = parcels.extract_if(|way, _| waits(way)).collect();
        drop(busy);
        for (way, parcel) in parcels {
            self.send(way, parcel);
        }
    }

    fn send(self: &Rc<Self>, way: Way, mut parcel: Parcel) {
        if parcel.waiting.is_empty() {
            return;
        }
        let (slot, replicated) = way;
        encode::finish(parcel.waiting.len() as u16, &mut parcel.argument);
        parcel.numbers.clear();
        *self.numbers.borrow_mut() = std::mem::take(&mut parcel.numbers);
        let script = script::take(parcel.laws);
        let call = Call { script, op: "take", keys: parcel.names, argument: parcel.argument };
        let (lane, until) = (self.clone(), parcel.until.unwrap_or_else(|| self.deadline()));
        if replicated {
            self.busy.borrow_mut().insert(way);
        }
        tokio::task::spawn_local(async move {
            let answer = match replicated {
                false => lane.wires.call(slot, &call, until).await,
                true => lane.replicated_wires().call_replicated(slot, &call, until).await,
            };
            lane.count(parcel.server, -(parcel.waiting.len() as isize));
            // Also if it answers nothing else: a calendar is told around it the next time.
            if let Some(store_now) = answer.as_ref().ok().and_then(time) {
                lane.heard(store_now, parcel.asked);
            }
            let mut answer = answer.map_err(Unavailable::from);
            // Here and not where answers are read: who asked may have gone.
            lane.store.places_expired(answer.as_mut().map_or(0, lapsed));
            lane.deliver(answer, parcel.waiting);
            if replicated {
                lane.busy.borrow_mut().remove(&way);
                let next = lane.parcels.borrow_mut().remove(&way);
                lane.send(way, next.unwrap_or_default());
            }
        });
    }

    fn replicated_wires(&self) -> &Rc<Wires> {
        self.replicated_wires.get_or_init(|| Wires::new(self.store.servers.clone()))
    }

    /// Gives everybody who waits for a call their part of its answer. Who has gone, misses it.
    fn deliver(
        &self,
        answer: Result<Value, Unavailable>,
        waiting: Vec<(usize, oneshot::Sender<Result<PartReply, Unavailable>>)>,
    ) {
        let parts = answer
            .and_then(|answer| parts(answer, &waiting.iter().map(|(takes, _)| *takes).collect::<Vec<_>>()));
        match parts {
            Ok(parts) => {
                for ((_, sender), part) in waiting.into_iter().zip(parts) {
                    let _ = sender.send(part);
                }
            }
            Err(why) => {
                for (_, sender) in waiting {
                    let _ = sender.send(Err(why.clone()));
                }
            }
        }
    }

    /// Keeps in mind how far the store's clock is from the node's.
    pub(super) fn heard(&self, store_now: Micros, now: Micros) {
        self.ahead_us.set(store_now.get() as i64 - now.get() as i64);
    }
}

impl Parcel {
    /// Adds a request.
    fn add(&mut self, store: &RedisStore, takes: &[Take<'_>], now: Micros, around: Micros) {
        let Self { names, numbers, argument, laws, .. } = self;
        let place = |take: &Take<'_>| {
            let reference = store.reference_start(take, now);
            let number = *numbers.entry((take.key, reference)).or_insert_with(|| {
                names.push(store.name(take, now));
                names.len() as u16
            });
            Placed { number, reference }
        };
        laws.0 |= encode::request(takes, place, around, argument).0;
    }
}

/// The time by which a call was judged.
fn time(answer: &Value) -> Option<Micros> {
    let Value::Array(values) = answer else { return None };
    let Some(Value::Int(now)) = values.first() else { return None };
    u64::try_from(*now).ok().map(Micros::new)
}

/// Takes the number of places that have expired from an answer, where it ends in one.
fn lapsed(answer: &mut Value) -> u64 {
    let Value::Array(values) = answer else { return 0 };
    let told = values.pop_if(|last| matches!(last, Value::Int(_)));
    let Some(Value::Int(units)) = told.filter(|_| values.len() > 1) else { return 0 };
    u64::try_from(units).unwrap_or(0)
}

/// Cuts the answer to a call into those to its requests, which have so many takes.
fn parts(answer: Value, takes: &[usize]) -> Result<Vec<Result<PartReply, Unavailable>>, Unavailable> {
    let Value::Array(values) = answer else { return Err(garbled()) };
    let mut values = values.into_iter();
    let (Some(Value::Int(now)), Some(Value::BulkString(letters))) = (values.next(), values.next()) else {
        return Err(garbled());
    };
    let now = Micros::new(u64::try_from(now).map_err(|_| garbled())?);
    if letters.len() != takes.len() || values.len() != takes.iter().sum::<usize>() {
        return Err(garbled());
    }
    let part = |(letter, takes): (u8, &usize)| {
        let values: SmallVec<[Value; 2]> = values.by_ref().take(*takes).collect();
        match letter {
            b'a' | b'r' => Ok(PartReply { now, admitted: letter == b'a', values }),
            b'f' => Err(Unavailable {
                why: "a counter in the store was written by another version, or by somebody else; it was left as it is".into(),
            }),
            b'c' => Err(Unavailable {
                why: format!("the store's clock ({} s) is in another period than this node's", now.get() / 1_000_000),
            }),
            _ => Err(garbled()),
        }
    };
    Ok(letters.into_iter().zip(takes).map(part).collect())
}
