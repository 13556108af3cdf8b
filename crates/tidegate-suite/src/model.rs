//! The model: counters that are slow and plainly right. Start at `Model::request`.
//!
//! Each counter is an oracle; the rules of a request are written here from their wording. No step of the core is used, nor its rule
//! for admitting a request: what the stores share, the model must not.

use std::collections::HashMap;
use std::future::{Future, ready};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::{Ask, Charge, Key, Limit, Micros, Policy, Role, Tag};
use tidegate_counters::{Answer, Batch, Counters, Inspection, Mode, Take, Unavailable};
use tidegate_oracle::{self as oracle, Oracle, Outcome};

use crate::words::{asked, spec_of, verdict_of};

/// A store of oracles.
#[derive(Debug, Default)]
pub struct Model {
    counters: Mutex<Counts>,
}

type Counts = HashMap<Key, Oracle>;

impl Model {
    /// Counters without any count.
    pub fn new() -> Self {
        Self::default()
    }

    /// Judges one request and carries it out; says whether it is admitted.
    fn request(counters: &mut Counts, takes: &[Take<'_>], now: Micros, answers: &mut [Answer]) -> bool {
        // On copies, so that a take sees the charges of those before it on its key, and a refusal leaves the originals.
        let mut copies = counters.clone();
        let judged: Vec<oracle::Answer> =
            takes.iter().map(|take| counter(&mut copies, take).ask(&asked(take.ask), now.get())).collect();
        let admitted = is_admitted(takes, &judged);
        let said = if admitted {
            *counters = copies;
            judged
        } else {
            let judged = takes.iter().zip(judged);
            judged.map(|(take, judged)| refused(counter(counters, take), take, judged, now)).collect()
        };
        for ((take, said), answer) in takes.iter().zip(&said).zip(answers) {
            *answer = Answer { verdict: verdict_of(take.limit, said), mode: Mode::Local };
        }
        admitted
    }

    fn counters(&self) -> MutexGuard<'_, Counts> {
        // Counters are only ever replaced whole, so that what a panic left behind is usable.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for Model {
    fn clone(&self) -> Self {
        Self { counters: Mutex::new(self.counters().clone()) }
    }
}

impl Counters for Model {
    fn take(&self, batch: &mut Batch<'_>, now: Micros) -> impl Future<Output = ()> {
        let mut counters = self.counters();
        batch.judge(|takes, _, answers| Self::request(&mut counters, takes, now, answers));
        ready(())
    }

    fn rehearse(&self, batch: &mut Batch<'_>, now: Micros) -> impl Future<Output = ()> {
        let counters = self.counters().clone();
        batch.judge(|takes, _, answers| Self::request(&mut counters.clone(), takes, now, answers));
        ready(())
    }

    fn inspect(
        &self,
        key: Key,
        tag: Tag,
        limit: &Limit,
        now: Micros,
    ) -> impl Future<Output = Result<Inspection, Unavailable>> {
        let mut copies = self.counters().clone();
        let stored = copies.contains_key(&key);
        let look =
            Take { key, tag, name: None, limit, ask: Ask::Peek, role: Role::Shadow, policy: Policy::STRICT };
        let counter = counter(&mut copies, &look);
        let used = counter.used(now.get());
        let verdict = verdict_of(limit, &counter.show(&oracle::Ask::Peek, now.get()));
        ready(Ok(Inspection { stored, used, verdict }))
    }

    fn reset(&self, key: Key, _: Tag) -> impl Future<Output = Result<bool, Unavailable>> {
        ready(Ok(self.counters().remove(&key).is_some()))
    }
}

/// The counter of a take, untouched if there was none, with the take's limit in force.
fn counter<'a>(counters: &'a mut Counts, take: &Take<'_>) -> &'a mut Oracle {
    let spec = spec_of(take.limit);
    let counter = counters.entry(take.key).or_insert_with(|| Oracle::new(&spec));
    counter.change(&spec);
    counter
}

/// Every enforcing take has to pass and, if there are takes of a quota, one of those. Shadow takes never decide.
fn is_admitted(takes: &[Take<'_>], judged: &[oracle::Answer]) -> bool {
    let of_role = |role: Role| {
        takes.iter().zip(judged).filter(move |(take, _)| take.role == role).map(|(_, answer)| passes(answer))
    };
    let is_enforced = of_role(Role::Enforce).all(|passes| passes);
    let is_within_quota = of_role(Role::Quota).count() == 0 || of_role(Role::Quota).any(|passes| passes);
    is_enforced && is_within_quota
}

fn passes(answer: &oracle::Answer) -> bool {
    answer.outcome == Outcome::Admitted
}

/// What a take of a refused request does to its counter, and what it says.
fn refused(counter: &mut Oracle, take: &Take<'_>, judged: oracle::Answer, now: Micros) -> oracle::Answer {
    let ask = asked(take.ask);
    let gives_back = matches!(take.ask, Ask::Refund { .. } | Ask::Settle { .. } | Ask::Release { .. });
    if gives_back || take.limit.charge() == Charge::Always {
        return counter.ask(&ask, now.get());
    }
    // Shown in any case: a counter that a broken clock wrote is repaired by whoever asks. Were it not by those that do not fit, a key
    // that is only refused would stay frozen, and its retry_after would not hold.
    let shown = counter.show(&ask, now.get());
    if passes(&judged) { shown } else { judged }
}
