//! Playing a script on one store: names become keys, operations become asks. Start at [`Player::play`].

use std::collections::HashMap;

use tidegate_core::{Ask, Key, Limit, Micros, Policy, Receipt, Secret, Tag, Verdict};
use tidegate_counters::{Batch, Counters, Inspection, Take, Unavailable};
use tidegate_oracle::{Op, Spec};

use crate::script::{self, Line, Request};
use crate::words::{limit_of, shape_of};

/// A store and what a script has told it so far.
#[derive(Debug)]
pub struct Player<'s, S> {
    store: &'s S,
    /// Keeps the counters of this play apart from others in the same store.
    prefix: String,
    counters: HashMap<String, Counter>,
}

/// What a name stands for.
#[derive(Debug)]
struct Counter {
    limit: Limit,
    key: Key,
    /// The verdicts on all operations so far: what receipts are made from.
    verdicts: Vec<Verdict>,
}

/// What a store said to one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// A limit is told to no store until something is asked.
    Nothing,
    /// About each request of a batch.
    Decided(Vec<Decided>),
    /// About a counter.
    Inspected(Result<Inspection, Unavailable>),
    /// Whether there was a counter to forget.
    Reset(Result<bool, Unavailable>),
}

/// What a store said about one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decided {
    /// May it go on?
    pub admitted: bool,
    /// The verdict on each take.
    pub verdicts: Vec<Verdict>,
}

impl<'s, S: Counters> Player<'s, S> {
    /// Nothing played yet. Plays on one store need different prefixes.
    pub fn new(store: &'s S, prefix: &str) -> Self {
        Self { store, prefix: prefix.to_owned(), counters: HashMap::new() }
    }

    /// Plays the next line of a script.
    pub async fn play(&mut self, line: &Line) -> Said {
        match line {
            Line::Limit { name, spec } => {
                self.set_limit(name, spec);
                Said::Nothing
            }
            Line::At { us, requests } => Said::Decided(self.take(requests, Micros::new(*us)).await),
            Line::Inspect { name, us } => {
                let Counter { key, limit, .. } = self.counter(name);
                Said::Inspected(self.store.inspect(*key, self.tag(), limit, Micros::new(*us)).await)
            }
            Line::Reset { name } => Said::Reset(self.store.reset(self.counter(name).key, self.tag()).await),
        }
    }

    fn set_limit(&mut self, name: &str, spec: &Spec) {
        let limit = limit_of(spec).unwrap_or_else(|error| panic!("a script has no such limit: {error}"));
        let key = self.key_under(name, &limit);
        let verdicts = self.counters.remove(name).map(|before| before.verdicts).unwrap_or_default();
        self.counters.insert(name.to_owned(), Counter { limit, key, verdicts });
    }

    fn key_under(&self, name: &str, limit: &Limit) -> Key {
        key_of(&[&self.prefix, name, &shape_of(limit)])
    }

    /// All counters of a script are kept near to each other, so that every request on them is one step.
    fn tag(&self) -> Tag {
        key_of(&[&self.prefix]).tag()
    }

    /// What the store would say to each of these requests, were it the next.
    pub(crate) async fn rehearse(&self, requests: &[Request], now: Micros) -> Vec<Decided> {
        let mut batch = self.batch(requests);
        self.store.rehearse(&mut batch, now).await;
        decided(&batch)
    }

    /// What the store tells about every counter that the requests name.
    pub(crate) async fn inspect_all(
        &self,
        requests: &[Request],
        now: Micros,
    ) -> Vec<Result<Inspection, Unavailable>> {
        let mut seen = Vec::new();
        for take in requests.iter().flat_map(|request| &request.takes) {
            let Counter { key, limit, .. } = self.counter(&take.name);
            seen.push(self.store.inspect(*key, self.tag(), limit, now).await);
        }
        seen
    }

    fn batch(&self, requests: &[Request]) -> Batch<'_> {
        let mut batch = Batch::new();
        for request in requests {
            batch.push(request.takes.iter().map(|take| {
                let counter = self.counter(&take.name);
                let (ask, role) = (ask_of(&take.op, &counter.verdicts), take.role);
                Take {
                    key: counter.key,
                    tag: self.tag(),
                    name: None,
                    limit: &counter.limit,
                    ask,
                    role,
                    policy: Policy::STRICT,
                }
            }));
        }
        batch
    }

    async fn take(&mut self, requests: &[Request], now: Micros) -> Vec<Decided> {
        let mut batch = self.batch(requests);
        self.store.take(&mut batch, now).await;
        let decided = decided(&batch);
        for (request, decided) in requests.iter().zip(&decided) {
            for (take, verdict) in request.takes.iter().zip(&decided.verdicts) {
                self.counter_mut(&take.name).verdicts.push(*verdict);
            }
        }
        decided
    }

    fn counter(&self, name: &str) -> &Counter {
        self.counters.get(name).unwrap_or_else(|| panic!("a script gives `{name}` a limit before it uses it"))
    }

    fn counter_mut(&mut self, name: &str) -> &mut Counter {
        self.counters
            .get_mut(name)
            .unwrap_or_else(|| panic!("a script gives `{name}` a limit before it uses it"))
    }

    /// The key that a name stands for now.
    pub(crate) fn key(&self, name: &str) -> Key {
        self.counter(name).key
    }

    /// The limit that a take is judged by now.
    pub fn limit(&self, take: &script::Take) -> &Limit {
        &self.counter(&take.name).limit
    }
}

/// What a store left in a batch.
fn decided(batch: &Batch<'_>) -> Vec<Decided> {
    let decided = |at: usize| Decided {
        admitted: batch.admitted(at),
        verdicts: batch.answers(at).iter().map(|answer| answer.verdict).collect(),
    };
    (0..batch.len()).map(decided).collect()
}

/// An operation as a question, given the verdicts on those before it.
pub(crate) fn ask_of(op: &Op, verdicts: &[Verdict]) -> Ask {
    let receipt = |of: usize| verdicts.get(of).and_then(Verdict::receipt);
    match *op {
        Op::Charge { cost } => Ask::Charge { cost },
        Op::Peek => Ask::Peek,
        Op::Refund { units, of } => Ask::Refund { units, receipt: of.and_then(receipt) },
        Op::Settle { of, actual } => {
            let nothing = Receipt { at: Micros::ZERO, units: 0 };
            Ask::Settle { receipt: receipt(of).unwrap_or(nothing), actual }
        }
        Op::Acquire { id, cost } => Ask::Acquire { id, cost },
        Op::Renew { id } => Ask::Renew { id },
        Op::Release { id } => Ask::Release { id },
    }
}

fn key_of(parts: &[&str]) -> Key {
    const SECRET: Secret = Secret::new(*b"tidegate's suite");
    parts.iter().fold(SECRET.start(), |key, part| key.part(part.as_bytes())).key()
}
