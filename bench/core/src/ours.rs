//! Our table, as a node uses it: one for many limits of all algorithms, keys hashed under a secret, every verdict filled and read.

use std::hint::black_box;

use tidegate_clock::Clock;
use tidegate_core::{
    Ask, Calendar, Key, KeyParts, Limit, LimitError, Micros, Policy, Role, Secret, Tag, Unit, Weekday,
};
use tidegate_counters::{Batch, Memory, MemorySize, Take};

use crate::keys::{Draws, spell};
use crate::peers::{CHECKED, copy, is_about};
use crate::subject::{AMOUNT, Name, Shape, Subject, USED};

/// Bytes of one slot of the table.
pub(crate) const SLOT_BYTES: usize = 16;
/// Bytes of the arena that an idle and a full key of the default algorithm may need, and what is there for the odd other key.
const ARENA_IDLE_BYTES: usize = 34;
const ARENA_FULL_BYTES: usize = 310;
const ARENA_OTHER_BYTES: usize = 4 << 20;
/// Keys of each limit that is not measured: they are in the table, and there are limits of every algorithm.
const OTHER_KEYS: u32 = 32;
/// Requests in a batch while keys are made.
const FILL_BATCH: u32 = 64;
/// A full key is charged twice in each part of its window, the one at the edge included.
const PARTS: u64 = 20;

const MINUTE: Micros = Micros::from_secs(60);
const SECRET: Secret = Secret::new(*b"a secret of ours");

/// A table without counters, of this size.
pub(crate) fn table(size: MemorySize, now: Micros) -> Memory {
    match Memory::new(size, now) {
        Ok(memory) => memory,
        Err(error) => panic!("{error}"),
    }
}

/// A limit and what all its keys have in common, hashed once.
pub(crate) struct Rule {
    pub(crate) limit: Limit,
    start: KeyParts,
}

impl Rule {
    pub(crate) fn new(id: usize, limit: Limit) -> Self {
        Self { limit: black_box(limit), start: SECRET.start().part(&id.to_le_bytes()) }
    }

    pub(crate) fn key(&self, value: &str) -> Key {
        self.start.part(value.as_bytes()).key()
    }

    pub(crate) fn take(&self, value: &str, cost: u32) -> Take<'_> {
        Take {
            key: self.key(value),
            tag: Tag::default(),
            name: None,
            limit: &self.limit,
            ask: Ask::Charge { cost: cost.into() },
            role: Role::Enforce,
            policy: Policy::default(),
        }
    }
}

/// One of our subjects: a table, its rules, and those among them whose keys are measured.
pub(crate) struct Ours {
    name: Name,
    size: MemorySize,
    memory: Memory,
    measured: Vec<Rule>,
    others: Vec<Rule>,
    clock: Clock,
}

impl Ours {
    pub(crate) fn new(name: Name, keys: u32) -> Self {
        let limits = match name {
            Name::DefaultIdle | Name::DefaultFull => default_limits(),
            _ => simple_limits(),
        };
        let (limits, others) = match (limits, other_limits()) {
            (Ok(limits), Ok(others)) => (limits, others),
            (Err(error), _) | (_, Err(error)) => unreachable!("the limits of the bench are sound: {error}"),
        };
        let others: Vec<Rule> =
            others.into_iter().enumerate().map(|(at, limit)| Rule::new(1_000 + at, limit)).collect();
        let measured = limits.into_iter().enumerate().map(|(at, limit)| Rule::new(at, limit)).collect();
        let clock = Clock::real();
        let size = size_for(name, keys as usize, others.len() * OTHER_KEYS as usize);
        // The full keys' charges are in the past, the longest window back.
        let now = Micros::new(clock.now_us());
        Self { name, size, memory: table(size, now), measured, others, clock }
    }

    fn now(&self) -> Micros {
        Micros::new(self.clock.now_us())
    }

    fn rule(&self, index: u32) -> &Rule {
        &self.measured[index as usize % self.measured.len()]
    }

    /// Asks about these takes together, each a request of its own.
    fn charge<'a>(&'a self, batch: &mut Batch<'a>, takes: impl Iterator<Item = Take<'a>>, now: Micros) {
        batch.clear();
        for take in takes {
            batch.push([take]);
        }
        self.memory.take_now(batch, now);
    }

    fn fill_others(&self) {
        let mut batch = Batch::new();
        for rule in &self.others {
            let takes = (0..OTHER_KEYS).map(|index| rule.take(&format!("other:{index}"), 1));
            self.charge(&mut batch, takes, self.now());
        }
    }

    /// One charge for each key, now.
    fn fill_once(&self, keys: u32, cost: u32) {
        let (mut batch, mut key) = (Batch::new(), String::new());
        for from in (0..keys).step_by(FILL_BATCH as usize) {
            let takes = (from..keys.min(from + FILL_BATCH)).map(|index| {
                spell(index, &mut key);
                self.rule(index).take(&key, cost)
            });
            self.charge(&mut batch, takes, self.now());
        }
    }

    /// Each key as a caller leaves it who comes all the time: two charges in every twentieth of the window, which is half used.
    fn fill_up(&self, keys: u32) {
        let (mut batch, mut key) = (Batch::new(), String::new());
        let end = self.now();
        let charges = |rule: usize| full_charges(&self.measured[rule].limit, end).map(move |now| (now, rule));
        let mut charges: Vec<(Micros, usize)> = (0..self.measured.len()).flat_map(charges).collect();
        charges.sort(); // Windows differ, and time only moves on.
        for (now, rule) in charges {
            let cost = full_charge_cost(&self.measured[rule].limit);
            let mut indices = (rule as u32..keys).step_by(self.measured.len()).peekable();
            while indices.peek().is_some() {
                let takes = indices.by_ref().take(FILL_BATCH as usize).map(|index| {
                    spell(index, &mut key);
                    self.rule(index).take(&key, cost)
                });
                self.charge(&mut batch, takes, now);
            }
        }
    }
}

impl Subject for Ours {
    fn fill(&self, keys: u32) {
        if self.name == Name::DefaultFull {
            self.fill_up(keys); // First, because time only moves on.
        }
        self.fill_others();
        match self.name {
            Name::DefaultFull => {}
            Name::DefaultIdle => self.fill_once(keys, 1),
            _ => self.fill_once(keys, USED),
        }
    }

    fn run(&self, draws: Draws<'_>, shape: Shape) -> u64 {
        let (mut batch, mut key) = (Batch::new(), String::new());
        let mut refused = 0;
        for requests in draws.chunks(shape.takes * shape.batch) {
            batch.clear();
            for request in requests.chunks(shape.takes) {
                batch.push(request.iter().map(|(index, text)| {
                    copy(text, &mut key);
                    self.rule(index).take(&key, 1)
                }));
            }
            self.memory.take_now(&mut batch, self.now());
            for request in 0..batch.len() {
                black_box(batch.admitted(request));
                for answer in batch.answers(request) {
                    refused += u64::from(!black_box(answer).verdict.admitted());
                }
            }
        }
        refused
    }

    fn refuses_at_its_limit(&self) -> bool {
        let mut batch = Batch::new();
        self.measured.iter().all(|rule| {
            let capacity = if self.name == Name::Slot { AMOUNT } else { rule.limit.amount() };
            let admitted = (0..2 * capacity).filter(|_| {
                self.charge(&mut batch, std::iter::once(rule.take(CHECKED, 1)), self.now());
                batch.admitted(0)
            });
            is_about(admitted.count(), capacity)
        })
    }

    fn evicted_live(&self) -> u64 {
        self.memory.stats().evicted_live
    }

    fn bytes_max(&self) -> Option<u64> {
        Some(self.size.bytes() as u64)
    }
}

/// Room for so many measured keys and others, four of five slots used at most.
fn size_for(name: Name, keys: usize, others: usize) -> MemorySize {
    let arena = match name {
        Name::DefaultIdle => keys * ARENA_IDLE_BYTES,
        Name::DefaultFull => keys * ARENA_FULL_BYTES,
        _ => 0,
    };
    MemorySize {
        slots: ((keys + others) * 5 / 4).next_power_of_two() * SLOT_BYTES,
        arena: (arena + ARENA_OTHER_BYTES).next_multiple_of(1 << 20),
    }
}

/// When a full key is charged: at the start and in the middle of each part of the window that ends at `end`. The edge cuts the first.
fn full_charges(limit: &Limit, end: Micros) -> impl Iterator<Item = Micros> + use<> {
    let part_us = limit.window().unwrap_or(MINUTE).get() / PARTS;
    let start_us = end.get() - part_us * PARTS - part_us / 4;
    (0..=2 * PARTS).map(move |step| Micros::new(start_us + step * part_us / 2))
}

/// What each of these charges costs: all together about half of the limit.
fn full_charge_cost(limit: &Limit) -> u32 {
    limit.amount() / (4 * PARTS as u32)
}

/// The limits whose keys are measured as simple: all 100 per minute, in all the ways that fit a slot.
fn simple_limits() -> Result<Vec<Limit>, LimitError> {
    let amount = AMOUNT.into();
    Ok(vec![
        Limit::gcra(amount, MINUTE, None)?,
        Limit::token_bucket(amount, MINUTE, None)?,
        Limit::fixed_window(amount, MINUTE)?,
        Limit::leaky_bucket(amount, MINUTE, None)?,
        Limit::gcra(2 * u64::from(AMOUNT), Micros::from_secs(120), Some(amount))?,
        Limit::token_bucket(50, Micros::from_secs(30), Some(amount))?,
        Limit::fixed_window(amount, Micros::from_secs(120))?,
        Limit::gcra(amount, MINUTE, Some(amount))?,
    ])
}

/// The limits whose keys are measured as default. Long windows: an idle key keeps its one cell, and a full one its many, while they
/// are timed.
fn default_limits() -> Result<Vec<Limit>, LimitError> {
    [(1_000, 3_600), (5_000, 7_200), (2_000, 43_200), (10_000, 86_400)]
        .into_iter()
        .map(|(amount, window_s)| Limit::sliding_window(amount, Micros::from_secs(window_s)))
        .collect()
}

/// Limits of every algorithm, in many sizes: so many that no branch can learn one by heart.
fn other_limits() -> Result<Vec<Limit>, LimitError> {
    let mut limits = Vec::new();
    for (amount, window_s) in [(5, 1), (20, 10), (100, 60), (1_000, 3_600), (10_000, 86_400)] {
        let window = Micros::from_secs(window_s);
        limits.extend([
            Limit::sliding_window(amount, window)?,
            Limit::sliding_window_strict(amount, window)?,
            Limit::sliding_window_counter(amount, window)?,
            Limit::sub_window(amount, window, Some(10), false)?,
            Limit::sliding_log(amount.min(100), window)?,
            Limit::fixed_window(amount, window)?,
            Limit::token_bucket(amount, window, Some(amount.min(50)))?,
            Limit::gcra(amount, window, None)?,
            Limit::leaky_bucket(amount, window, None)?,
            Limit::concurrency(amount.min(100), window)?,
            Limit::calendar(amount, Calendar::new(Unit::Month, "Europe/Berlin", Weekday::Monday)?)?,
        ]);
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_limits_of_every_algorithm() {
        let others = other_limits().expect("sound limits");
        for algorithm in tidegate_core::Algorithm::ALL {
            assert!(others.iter().any(|limit| limit.algorithm() == algorithm), "{algorithm}");
        }
    }

    #[test]
    fn a_full_key_has_a_cell_for_every_part_and_room_left() {
        let end = Micros::from_secs(1_800_000_000);
        for limit in default_limits().expect("sound limits") {
            let (mut state, mut idle) = (limit.state(), limit.state());
            let ask = Ask::Charge { cost: full_charge_cost(&limit).into() };
            for now in full_charges(&limit, end) {
                assert!(now < end && limit.step(&mut state, ask, now).admitted(), "{limit}");
            }
            limit.step(&mut idle, Ask::Charge { cost: 1 }, end);
            let cells = |state: &tidegate_core::State| format!("{state:?}").matches("Cell {").count();
            assert_eq!((cells(&idle), cells(&state)), (1, PARTS as usize + 1), "{limit}");
            let used = limit.used(&mut state, end);
            assert!(used.abs_diff(u64::from(limit.amount()) / 2) * 20 <= used, "{limit}: {used}");
        }
    }

    #[test]
    fn simple_limits_take_what_the_filling_takes() {
        let now = Micros::from_secs(1_800_000_000);
        for limit in simple_limits().expect("sound limits") {
            let verdict = limit.step(&mut limit.state(), Ask::Charge { cost: USED.into() }, now);
            assert!(
                verdict.admitted() && verdict.reset_after >= Micros::from_secs(30),
                "{limit}: {verdict:?}"
            );
        }
    }
}
