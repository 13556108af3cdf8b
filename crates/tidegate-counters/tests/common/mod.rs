//! What the tests of the counters in memory share: keys, limits, questions of one line, threads that start together.

use std::pin::pin;
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::thread;

use tidegate_core::{
    Ask, Calendar, Key, Limit, LimitError, Micros, Policy, Role, Secret, Tag, Unit, Verdict, Weekday,
};
use tidegate_counters::{Batch, Counters, Inspection, Memory, MemorySize, Take};

/// Where tests start: in 2027, at the start of a minute and in the middle of a day.
pub(crate) const START: Micros = Micros::from_secs(1_800_000_000);
pub(crate) const SECOND: Micros = Micros::from_secs(1);
pub(crate) const MINUTE: Micros = Micros::from_secs(60);
pub(crate) const HOUR: Micros = Micros::from_secs(3_600);
pub(crate) const DAY: Micros = Micros::from_secs(86_400);

/// Table and arena of so many bytes.
pub(crate) fn memory(slots: usize, arena: usize) -> Memory {
    Memory::new(MemorySize { slots, arena }, START).expect("memory")
}

/// The key with this number, as good as random.
pub(crate) fn key(number: u64) -> Key {
    const SECRET: Secret = Secret::new([7; 16]);
    SECRET.start().part(&number.to_le_bytes()).key()
}

/// One limit of each kind, of the same amount.
pub(crate) fn every_limit(amount: u64, window: Micros) -> Result<Vec<Limit>, LimitError> {
    Ok(vec![
        Limit::fixed_window(amount, window)?,
        Limit::sliding_window_counter(amount, window)?,
        Limit::sub_window(amount, window, Some(6), false)?,
        Limit::sliding_log(amount, window)?,
        Limit::sliding_window(amount, window)?,
        Limit::sliding_window_strict(amount, window)?,
        Limit::token_bucket(amount, window, None)?,
        Limit::gcra(amount, window, None)?,
        Limit::leaky_bucket(amount, window, None)?,
        Limit::concurrency(amount, window)?,
        Limit::calendar(amount, Calendar::new(Unit::Day, "UTC", Weekday::Monday)?)?,
    ])
}

/// A request of one take.
pub(crate) fn ask(memory: &Memory, key: Key, limit: &Limit, ask: Ask, now: Micros) -> Verdict {
    let mut batch = Batch::new();
    batch.push([Take {
        key,
        tag: Tag::default(),
        name: None,
        limit,
        ask,
        role: Role::Enforce,
        policy: Policy::default(),
    }]);
    memory.take_now(&mut batch, now);
    batch.answers(0)[0].verdict
}

pub(crate) fn charge(memory: &Memory, key: Key, limit: &Limit, cost: u64, now: Micros) -> Verdict {
    ask(memory, key, limit, Ask::Charge { cost }, now)
}

pub(crate) fn peek(memory: &Memory, key: Key, limit: &Limit, now: Micros) -> Verdict {
    ask(memory, key, limit, Ask::Peek, now)
}

pub(crate) fn inspect(memory: &Memory, key: Key, limit: &Limit, now: Micros) -> Inspection {
    at_once(memory.inspect(key, Tag::default(), limit, now)).expect("memory is always there")
}

pub(crate) fn reset(memory: &Memory, key: Key) -> bool {
    at_once(memory.reset(key, Tag::default())).expect("memory is always there")
}

fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("memory answers at once"),
    }
}

/// Sweeps the whole table at least once, wherever the hand is.
pub(crate) fn sweep_round(memory: &Memory, now: Micros) {
    // A call sweeps a 64th of the sets, but at least one.
    let calls = (memory.stats().slots / 4).min(64) + 1;
    (0..calls).for_each(|_| memory.sweep(now));
}

/// Runs the same thing on several threads that start together, each told its number; says what each came to.
pub(crate) fn race<T: Send>(threads: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        let runners: Vec<_> = (0..threads)
            .map(|number| {
                let (start, run) = (&start, &run);
                scope.spawn(move || {
                    start.wait();
                    run(number)
                })
            })
            .collect();
        runners.into_iter().map(|runner| runner.join().expect("a thread that ends well")).collect()
    })
}

/// Numbers that look random and are the same every time.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `sides`.
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}
