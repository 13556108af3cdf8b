//! One peer after the other, each with a machine and a store for itself.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tidegate_bench_common::accounting::{Trouble, scrape};
use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::requests::shuffled;
use tidegate_bench_common::store::Store;
use tidegate_clock::Stopwatch;

use super::plan::{ASKED_MAX, Plan, all as peers, is_told_how_many};
use super::results::{Missing, Own, Results, Row, Size, StoreSize};
use super::{left, told};
use crate::machine::Machine;
use crate::peers::{Family, Peer, Room, Site};
use crate::plan::{self, Extent, Press};
use crate::subject::{Subject, fill, requests_of};

/// How many callers' requests are encoded at a time: those of ten million would be gigabytes, and memory is what is measured.
const AT_ONCE: usize = 250_000;

/// How many times as many keys a node is given room for at most, if it forgets some.
const ROOM_TIMES_MAX: u32 = 4;

/// For how many keys there was room in a node that forgot none, by its algorithm and how many callers asked.
type Rooms = BTreeMap<(&'static str, u32), u32>;

/// Asks everybody for each size.
pub(crate) fn all(extent: Extent) -> Result<Results, String> {
    let (watch, machine) = (Stopwatch::start(), Machine::here());
    let (plan, cores) = (Plan::of(extent), Cores::find());
    let machine = machine.with(&Store::start(cores)?)?.with_go();
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    let (order, mut rooms) = (shuffled(plan.callers()), Rooms::new());
    for peer in peers() {
        let mut row = Row {
            peer: peer.word().into(),
            title: peer.title().into(),
            algorithm: peer.algorithm().into(),
            anew: is_told_how_many(peer),
            ..Row::default()
        };
        let bench = Bench { peer, extent, plan: &plan, cores, order: &order };
        match bench.grow(&mut row, &mut rooms) {
            Ok(()) => rows.push(row),
            Err(Trouble::Sums(reason)) => return Err(reason),
            Err(Trouble::Work(reason)) if row.sizes.is_empty() => {
                eprintln!("{} is left out: {reason}", peer.title());
                missing.push(Missing { title: peer.title().into(), reason });
            }
            Err(Trouble::Work(reason)) => {
                eprintln!("{} is asked for no more: {reason}", peer.title());
                row.stopped = Some(reason);
                rows.push(row);
            }
        }
    }
    // Without ours there is nothing to compare with.
    for ours in Family::ALL.map(Family::ours) {
        if !rows.iter().any(|row| row.peer == ours && row.stopped.is_none()) {
            return Err(format!("{ours} is not on the page: what it said is above"));
        }
    }
    let (took_s, asked_max_s) = (watch.elapsed().as_secs(), ASKED_MAX.as_secs());
    Ok(Results { extent, machine, took_s, asked_max_s, sizes: plan.sizes.to_vec(), rows, missing })
}

struct Bench<'a> {
    peer: &'static dyn Peer,
    extent: Extent,
    plan: &'a Plan,
    cores: Option<Cores>,
    /// All callers, in the order in which they ask.
    order: &'a [u32],
}

/// A peer that serves, and what there was before it was asked.
struct Asked {
    subject: Subject,
    rss_start_bytes: u64,
    store_start_bytes: u64,
    /// How many callers have asked.
    callers: usize,
}

impl Bench<'_> {
    /// Asks for more and more callers. A row has the sizes that were reached, whatever came then.
    fn grow(&self, row: &mut Row, rooms: &mut Rooms) -> Result<(), Trouble> {
        let store = Store::start(self.cores)?; // With nothing of others in it.
        let mut serving = None;
        for &callers in self.plan.sizes {
            let room = rooms.entry((self.peer.algorithm(), callers)).or_insert(callers);
            loop {
                if row.anew {
                    drop(serving.take()); // It ends before the next one begins.
                }
                let asked = match serving.take() {
                    Some(asked) => asked,
                    None => self.start(callers, *room, &store, row)?,
                };
                let (asked, size) = self.asked_by(callers, asked, &store)?;
                let forgotten = size.own.map_or(0, |own| own.forgotten());
                eprintln!(
                    "{}: {:.0} MB resident with {callers} callers, after {:.1} s; {forgotten} forgotten",
                    self.peer.title(),
                    size.rss_bytes as f64 / 1e6,
                    size.asked_ms as f64 / 1e3,
                );
                row.sizes.push(size);
                serving = Some(asked);
                if forgotten == 0 {
                    break;
                }
                *room *= 2;
                if *room > callers * ROOM_TIMES_MAX {
                    return Err(Trouble::Work(format!(
                        "it forgets {forgotten} of {callers} callers, whatever its room"
                    )));
                }
            }
        }
        Ok(())
    }

    /// For so many callers; a node of ours with room for so many keys.
    fn start(&self, callers: u32, room: u32, store: &Store, row: &mut Row) -> Result<Asked, Trouble> {
        left::is_enough()?;
        eprintln!("{}: started, and asked for too much", self.peer.title());
        let none = PathBuf::new();
        let site = Site { program: &none, cores: self.cores, store, keys: callers, room: Room::For(room) };
        let once = plan::Plan { starts: 1, ..plan::Plan::of(self.extent) };
        let (subject, found) = Subject::start(self.peer, &once, self.plan.install, &site)?;
        (row.version, row.command) = (found.version, found.command);
        let store_start_bytes = store.used_memory()?; // Its scripts are there, and nearly all of its connections.
        Ok(Asked { subject, rss_start_bytes: found.rss_start_bytes, store_start_bytes, callers: 0 })
    }

    /// The next of so many callers, each once.
    fn asked_by(&self, callers: u32, mut asked: Asked, store: &Store) -> Result<(Asked, Size), Trouble> {
        let (watch, peer) = (Stopwatch::start(), self.peer);
        for numbers in self.order[asked.callers..callers as usize].chunks(AT_ONCE) {
            let resident_bytes = asked.subject.process.rss_bytes()?;
            let fill = || {
                left::is_enough()?;
                if watch.elapsed() > ASKED_MAX {
                    return Err(Trouble::Work(format!("they have taken longer than {ASKED_MAX:?}")));
                }
                fill(&asked.subject, store, &requests_of(peer, numbers), Press::Full.load(peer.speech()))
            };
            fill().map_err(|trouble| at(asked.callers, callers, resident_bytes, trouble))?;
            asked.callers += numbers.len();
            if asked.callers.is_multiple_of(AT_ONCE * 8) {
                eprintln!("{}: {} of {callers} callers", peer.title(), asked.callers);
            }
        }
        let size = Size {
            callers,
            asked_ms: watch.elapsed().as_millis() as u64,
            rss_start_bytes: asked.rss_start_bytes,
            rss_bytes: asked.subject.process.rss_bytes()?,
            store: self.stored(callers, &asked, store)?,
            own: self.own(callers, &asked)?,
        };
        Ok((asked, size))
    }

    fn stored(&self, callers: u32, asked: &Asked, store: &Store) -> Result<Option<StoreSize>, Trouble> {
        if self.peer.family() != Family::Redis {
            return Ok(None);
        }
        let (used_bytes, keys) = (store.used_memory()?, store.keys()?);
        if keys < u64::from(callers) {
            return Err(Trouble::Work(format!(
                "{callers} callers have asked, and its store has {keys} keys"
            )));
        }
        Ok(Some(StoreSize { used_start_bytes: asked.store_start_bytes, used_bytes, keys }))
    }

    fn own(&self, callers: u32, asked: &Asked) -> Result<Option<Own>, Trouble> {
        let counts_in_memory = self.peer.family() != Family::Redis;
        let Some((metrics, _)) = asked.subject.process.metrics.filter(|_| counts_in_memory) else {
            return Ok(None);
        };
        let own = told::own(&scrape(metrics)?)?;
        own.accounts_for(callers)
            .map_err(|reason| Trouble::Sums(format!("{}: {reason}", self.peer.title())))?;
        Ok(Some(own))
    }
}

/// The same, with how far it came.
fn at(asked: usize, callers: u32, resident_bytes: u64, trouble: Trouble) -> Trouble {
    let resident = resident_bytes as f64 / 1e6;
    match trouble {
        Trouble::Work(reason) => Trouble::Work(format!(
            "after {asked} of {callers} callers, with {resident:.0} MB resident: {reason}"
        )),
        sums => sums,
    }
}
