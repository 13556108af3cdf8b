//! The keys that are refused most, lately, in bounded room.
//!
//! Each core keeps a sketch (Space-Saving, Metwally and others 2005): [`COUNTERS`] keys with a count each. A key that is not among them
//! takes the place of the least, and inherits its count as a possible error: a count is never too low, and too high by no more than
//! its error. A key that is in no sketch was refused at most as often as the least that is.
//!
//! "Lately" is two halves of five minutes: the one that runs and the one before. What is older is forgotten.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use tidegate_core::{Key, Micros, Tag};

use crate::{Labels, RuleMark, RuleMetrics};

/// How many keys a core remembers in each half.
pub const COUNTERS: usize = 256;

const HALF: Micros = Micros::from_secs(300);

/// The keys that are refused most, on all cores.
#[derive(Debug)]
pub struct TopKeys {
    cores: Box<[Core]>,
}

/// What is known of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Top {
    /// Those refused most, by the count that is certain.
    pub keys: Vec<TopKey>,
    /// Refusals since this instant are counted.
    pub since: Micros,
    /// No key that is not listed was refused more often than this.
    pub others_at_most: u64,
}

/// One of them. It was refused at most `count` times, and at least `count - error` times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopKey {
    /// The rule; none if it is not in the book any more.
    pub rule: Option<Labels>,
    /// The counter.
    pub key: Key,
    /// What it is kept near to, where that is needed to find it.
    pub tag: Option<Tag>,
    /// How often it was refused: never too low.
    pub count: u64,
    /// By how much that may be too high.
    pub error: u64,
}

impl TopKeys {
    /// Room for so many cores.
    pub fn new(cores: usize) -> Self {
        Self { cores: (0..cores).map(|_| Core::default()).collect() }
    }

    /// A key was refused by a rule. Meant for the thread of `core`: nobody else holds its lock, but for a moment who asks for the top.
    ///
    /// # Panics
    /// If there are not so many cores.
    pub fn refused(&self, core: usize, now: Micros, rule: RuleMark, key: Key, tag: Option<Tag>) {
        let mut halves = self.cores[core].lock();
        halves.turn(half_of(now));
        halves.current.add(key, tag, rule);
    }

    /// The `count` keys that are refused most, with the rules as `rules` knows them.
    pub fn top(&self, count: usize, now: Micros, rules: &RuleMetrics) -> Top {
        let half = half_of(now);
        let (mut floors, mut found) = (0, HashMap::<Key, Sum>::new());
        for core in &self.cores {
            let mut halves = core.lock();
            halves.turn(half);
            for sketch in [&halves.before, &halves.current] {
                let floor = sketch.floor();
                floors += floor;
                for entry in &sketch.entries {
                    let sum = found.entry(entry.key).or_insert(Sum {
                        rule: entry.rule,
                        tag: entry.tag,
                        sure: 0,
                        above: 0,
                    });
                    sum.rule = entry.rule;
                    sum.sure += entry.count - entry.error;
                    sum.above += entry.count - floor;
                }
            }
        }
        // A sketch without the key may have missed it as often as its least.
        let most = |sum: &Sum| floors + sum.above;
        let mut found: Vec<(Key, Sum)> = found.into_iter().collect();
        found.sort_by_key(|(key, sum)| (std::cmp::Reverse((sum.sure, sum.above)), *key));
        let unlisted = found.iter().skip(count).map(|(_, sum)| most(sum)).max();
        let listed = found.iter().take(count).map(|(key, sum)| TopKey {
            rule: rules.labels(sum.rule).cloned(),
            key: *key,
            tag: sum.tag,
            count: most(sum),
            error: most(sum) - sum.sure,
        });
        Top {
            keys: listed.collect(),
            since: Micros::new(half.saturating_sub(1).saturating_mul(HALF.get())),
            others_at_most: unlisted.unwrap_or(floors),
        }
    }
}

/// What all sketches say about one key.
struct Sum {
    rule: RuleMark,
    tag: Option<Tag>,
    /// Refusals that there were.
    sure: u64,
    /// Those that there may have been, above the floors of all sketches.
    above: u64,
}

fn half_of(now: Micros) -> u64 {
    now.get() / HALF.get()
}

#[derive(Default, Debug)]
#[repr(align(128))]
struct Core(Mutex<Halves>);

impl Core {
    fn lock(&self) -> MutexGuard<'_, Halves> {
        // Who panicked while it was held left counts that are off by one at most.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The half that runs, and the one before.
#[derive(Default, Debug)]
struct Halves {
    half: u64,
    current: Sketch,
    before: Sketch,
}

impl Halves {
    /// Goes on to a later half. Who comes late, by a clock read before another core's, counts in the one that runs.
    fn turn(&mut self, half: u64) {
        if half <= self.half {
            return;
        }
        std::mem::swap(&mut self.current, &mut self.before);
        self.current.clear();
        if half > self.half + 1 {
            self.before.clear();
        }
        self.half = half;
    }
}

#[derive(Debug)]
struct Sketch {
    entries: Vec<Entry>,
    /// Where each key is among the entries.
    places: HashTable<u16>,
    /// No entry has a smaller count.
    least: u64,
    /// Where to look next for an entry with the least count.
    hand: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    tag: Option<Tag>,
    rule: RuleMark,
    count: u64,
    error: u64,
}

impl Default for Sketch {
    fn default() -> Self {
        // Twice the room: a table that loses a key for every new one cleans up in place then, and never grows.
        let places = HashTable::with_capacity(2 * COUNTERS);
        Self { entries: Vec::with_capacity(COUNTERS), places, least: 0, hand: 0 }
    }
}

impl Sketch {
    fn add(&mut self, key: Key, tag: Option<Tag>, rule: RuleMark) {
        let Self { entries, places, .. } = self;
        if let Some(&at) = places.find(hash(key), |at| entries[usize::from(*at)].key == key) {
            let entry = &mut entries[usize::from(at)];
            entry.count += 1;
            entry.rule = rule;
            return;
        }
        let entry = Entry { key, tag, rule, count: 1, error: 0 };
        let at = match self.entries.len() {
            COUNTERS => self.replace_least(entry),
            len => {
                self.entries.push(entry);
                len
            }
        };
        let Self { entries, places, .. } = self;
        places.insert_unique(hash(key), at as u16, |at| hash(entries[usize::from(*at)].key));
    }

    /// Puts an entry in the place of one with the least count, which it inherits.
    fn replace_least(&mut self, entry: Entry) -> usize {
        let at = self.find_least();
        let old = self.entries[at];
        if let Ok(place) = self.places.find_entry(hash(old.key), |place| usize::from(*place) == at) {
            place.remove();
        }
        self.entries[at] = Entry { count: old.count + entry.count, error: old.count, ..entry };
        at
    }

    /// Goes round from where it last was: of many keys that come once, nearly every look finds one at once.
    fn find_least(&mut self) -> usize {
        loop {
            let (behind, ahead) = (0..self.hand, self.hand..self.entries.len());
            if let Some(at) = ahead.chain(behind).find(|at| self.entries[*at].count == self.least) {
                self.hand = (at + 1) % self.entries.len();
                return at;
            }
            self.least = self.entries.iter().map(|entry| entry.count).min().unwrap_or(0);
        }
    }

    /// How often a key that is not here may have been refused.
    fn floor(&self) -> u64 {
        let least = self.entries.iter().map(|entry| entry.count).min();
        least.filter(|_| self.entries.len() == COUNTERS).unwrap_or(0)
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.places.clear();
        (self.least, self.hand) = (0, 0);
    }
}

/// A key is a hash already.
fn hash(key: Key) -> u64 {
    key.bits() as u64
}
