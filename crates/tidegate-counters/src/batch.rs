//! Takes in, verdicts out: the requests that a store is asked about in one call, and what it says.

use std::time::Duration;

use tidegate_core::{Ask, Key, Limit, OnStoreFailure, Policy, Role, Tag, Verdict};

use crate::Unavailable;

/// One question to one counter, as part of a request.
#[derive(Clone, Copy, Debug)]
pub struct Take<'a> {
    /// Which counter.
    pub key: Key,
    /// What it is kept near to, in a store of several servers.
    pub tag: Tag,
    /// What envoyproxy/ratelimit calls it, but for the start of the window, if the store keeps it under that name: a fixed window that
    /// nodes of both kinds share.
    pub name: Option<&'a str>,
    /// The limit that it is judged by.
    pub limit: &'a Limit,
    /// What is asked.
    pub ask: Ask,
    /// What a refusal means for the request.
    pub role: Role,
    /// What holds if a store elsewhere cannot answer.
    pub policy: Policy,
}

/// How an answer was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// By one atomic step in a store that the whole fleet shares.
    Exact,
    /// By such a step a moment ago, which the node remembers.
    Remembered,
    /// From units that the node took from the store in advance.
    Leased,
    /// From a count that is written back later, within a stated bound.
    Capped,
    /// From this node's own counters; the bound holds per node.
    Local,
    /// By this policy: the store could not answer.
    Degraded(OnStoreFailure),
    /// Not at all: another take of the same request was refused from memory, and nobody was asked about this one.
    Unasked,
}

impl Mode {
    /// Its name, as it is told.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact | Self::Remembered => "exact",
            Self::Leased => "leased",
            Self::Capped => "capped",
            Self::Local => "local",
            Self::Degraded(_) => "degraded",
            Self::Unasked => "unasked",
        }
    }
}

/// What a store says about one take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The verdict, with its numbers and bound.
    pub verdict: Verdict,
    /// How it was made.
    pub mode: Mode,
}

impl Answer {
    /// Says nothing: a place for an answer.
    pub(crate) const BLANK: Self = Self { verdict: Verdict::BLANK, mode: Mode::Unasked };
}

/// Requests that are judged in one call, each for itself, and the answers. Meant to be kept and used again: it allocates
/// only while it grows.
#[derive(Default, Debug)]
pub struct Batch<'a> {
    takes: Vec<Take<'a>>,
    /// Where each request ends among the takes.
    ends: Vec<usize>,
    /// A place for the answer to each take and the decision on each request, or more: they stay where they are for the next batch, which
    /// writes over them.
    answers: Vec<Answer>,
    admitted: Vec<bool>,
    /// How many requests were judged.
    judged: usize,
    /// Requests that were not, and why.
    failures: Vec<(usize, Unavailable)>,
    /// Requests of which some takes went by policy, and why.
    troubles: Vec<(usize, Unavailable)>,
    /// Are charges to be on the replicas too, before they count?
    replicated: bool,
    /// How long the answers may take.
    patience: Option<Duration>,
}

impl<'a> Batch<'a> {
    /// A batch without requests.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same room, for takes by other limits.
    pub fn recycle<'other>(mut self) -> Batch<'other> {
        self.clear();
        // Nothing is in it: collecting keeps the allocation, and only the lifetime changes.
        let takes = self.takes.into_iter().map_while(|_| None).collect();
        Batch {
            takes,
            ends: self.ends,
            answers: self.answers,
            admitted: self.admitted,
            judged: 0,
            failures: self.failures,
            troubles: self.troubles,
            replicated: false,
            patience: None,
        }
    }

    /// Forgets requests and answers, keeps the room.
    pub fn clear(&mut self) {
        self.takes.clear();
        self.ends.clear();
        self.judged = 0;
        self.failures.clear();
        self.troubles.clear();
        self.replicated = false;
        self.patience = None;
    }

    /// The answers are wanted within this time from now on: what a store elsewhere has not said by then goes by policy.
    pub fn answer_within(&mut self, patience: Duration) {
        self.patience = Some(patience);
    }

    /// Within what time the answers are wanted; none leaves it to the store.
    pub fn patience(&self) -> Option<Duration> {
        self.patience
    }

    /// What is charged counts only once the replicas of its server have it too; else the request fails. For stores that have replicas.
    pub fn replicate(&mut self) {
        self.replicated = true;
    }

    /// Has it to be on the replicas?
    pub fn is_replicated(&self) -> bool {
        self.replicated
    }

    /// Adds a request. Whoever takes requests from outside bounds how many takes they have: the sets of all are locked at the same time.
    pub fn push(&mut self, takes: impl IntoIterator<Item = Take<'a>>) {
        // Were the last iterator to have panicked, its takes would be here still.
        self.takes.truncate(self.ends.last().copied().unwrap_or(0));
        self.takes.extend(takes);
        self.ends.push(self.takes.len());
    }

    /// How many requests there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Is there no request?
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The takes of a request.
    pub fn takes(&self, request: usize) -> &[Take<'a>] {
        &self.takes[self.range(request)]
    }

    /// The answers to the takes of a request, in their order; none before a store was asked.
    pub fn answers(&self, request: usize) -> &[Answer] {
        if request < self.judged { &self.answers[self.range(request)] } else { &[] }
    }

    /// Was the request admitted? Not before a store was asked.
    pub fn admitted(&self, request: usize) -> bool {
        request < self.judged && self.admitted[request]
    }

    /// Why a request has no answer: the store could not give one, and a policy says that this is an error. Its answers say nothing then.
    pub fn failure(&self, request: usize) -> Option<&Unavailable> {
        self.failures.iter().find(|(failed, _)| *failed == request).map(|(_, why)| why)
    }

    /// Why takes of a request went by their policy, if any did.
    pub fn trouble(&self, request: usize) -> Option<&Unavailable> {
        self.troubles.iter().find(|(troubled, _)| *troubled == request).map(|(_, why)| why)
    }

    /// For stores: takes of the request went by their policy.
    pub fn trouble_with(&mut self, request: usize, why: Unavailable) {
        self.troubles.push((request, why));
    }

    /// For stores: the request was not answered.
    pub fn fail(&mut self, request: usize, why: Unavailable) {
        self.failures.push((request, why));
    }

    /// For stores: shows each request, in order, to `judge`, together with all takes from its first on. It writes the answer to each take
    /// over what stands in its place, and says whether the request is admitted.
    pub fn judge(&mut self, mut judge: impl FnMut(&[Take<'a>], &[Take<'a>], &mut [Answer]) -> bool) {
        self.judged = 0;
        self.failures.clear();
        self.troubles.clear();
        if self.answers.len() < self.takes.len() {
            self.answers.resize(self.takes.len(), Answer::BLANK);
        }
        if self.admitted.len() < self.ends.len() {
            self.admitted.resize(self.ends.len(), false);
        }
        let mut start = 0;
        for (&end, admitted) in self.ends.iter().zip(&mut self.admitted) {
            *admitted = judge(&self.takes[start..end], &self.takes[start..], &mut self.answers[start..end]);
            start = end;
        }
        self.judged = self.ends.len();
    }

    fn range(&self, request: usize) -> std::ops::Range<usize> {
        let start = request.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[request]
    }
}
