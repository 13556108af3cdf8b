//! A placeholder.
use std::collections::HashMap;
use std::future::{Future, ready};
use std::sync::Mutex;

use tidegate_core::{Ask, Charge, Key, Limit, Micros, State, admits};

use crate::{Answer, Batch, Counters, Inspection, Mode, Take, Unavailable};

/// How much memory the counters may use.
#[derive(Clone, Copy, Debug)]
pub struct MemorySize {
    /// Bytes of the table of slots.
    pub slots: usize,
    /// Bytes of the arena.
    pub arena: usize,
}

/// Counters in memory.
pub struct Memory {
    states: Mutex<HashMap<Key, State>>,
}

/// What happened to the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Counters that are stored.
    pub keys: u64,
    /// Counters that were forgotten while they still counted.
    pub evicted_live: u64,
}

impl Memory {
    /// Counters without any count.
    pub fn new(_size: MemorySize) -> Self {
        Self { states: Mutex::default() }
    }

    /// The same as [`Counters::take`], without a future around it.
    pub fn take_now(&self, batch: &mut Batch<'_>, now: Micros) {
        batch.judge(|takes, answers| self.request(takes, now, answers));
    }

    /// What happened so far.
    pub fn stats(&self) -> Stats {
        Stats { keys: self.states.lock().unwrap().len() as u64, evicted_live: 0 }
    }

    fn request(&self, takes: &[Take<'_>], now: Micros, answers: &mut Vec<Answer>) -> bool {
        let mut states = self.states.lock().unwrap();
        let mut tried = HashMap::new();
        let from = answers.len();
        for take in takes {
            let state = tried
                .entry(take.key)
                .or_insert_with(|| states.get(&take.key).cloned().unwrap_or_else(|| take.limit.state()));
            answers.push(Answer { verdict: take.limit.step(state, take.ask, now), mode: Mode::Local });
        }
        let admitted = admits(
            takes.iter().zip(&answers[from..]).map(|(take, answer)| (take.role, answer.verdict.admitted())),
        );
        if admitted {
            states.extend(tried);
            return true;
        }
        for (take, answer) in takes.iter().zip(&mut answers[from..]) {
            let state = states.entry(take.key).or_insert_with(|| take.limit.state());
            let applies = matches!(take.ask, Ask::Refund { .. } | Ask::Settle { .. } | Ask::Release { .. });
            if applies || take.limit.charge() == Charge::Always {
                answer.verdict = take.limit.step(state, take.ask, now);
            } else if answer.verdict.admitted() {
                answer.verdict = take.limit.show(state, take.ask, now);
            }
        }
        false
    }
}

impl Counters for Memory {
    fn take(&self, batch: &mut Batch<'_>, now: Micros) -> impl Future<Output = ()> + Send {
        self.take_now(batch, now);
        ready(())
    }

    fn inspect(
        &self,
        key: Key,
        limit: &Limit,
        now: Micros,
    ) -> impl Future<Output = Result<Inspection, Unavailable>> + Send {
        let mut state = self.states.lock().unwrap().get(&key).cloned();
        let stored = state.is_some();
        let state = state.get_or_insert_with(|| limit.state());
        let verdict = limit.show(state, Ask::Peek, now);
        ready(Ok(Inspection { stored, used: limit.used(state, now), verdict }))
    }

    fn reset(&self, key: Key) -> impl Future<Output = Result<bool, Unavailable>> + Send {
        ready(Ok(self.states.lock().unwrap().remove(&key).is_some()))
    }
}
