//! Why? What would become of a request now, and why: which rules were considered and why each counts or does not, what each counter
//! holds, what it would answer, and when the request passes.
//!
//! It is the decision itself ([`crate::decide`]) with a recorder, on a rehearsal of the counters: nothing is charged or left behind.
//! Start at [`explain`].

mod words; // names, spans and lists for people
mod walk; // how the rules were found
mod limits; // what became of each
mod verdict; // the answer in one sentence
mod render; // all of it for a terminal

use serde::{Deserialize, Serialize};
use tidegate_core::{Book, Matching, Micros, OnStoreFailure, Plan, Query, Role};
use tidegate_counters::{Answer, Batch, Hand, Memory, Rehearsed, Unavailable};

use crate::decide::{Asks, By, Decision, lay_out, refusing};
use walk::Walks;
use words::ms_up;

/// What would become of a request, and why. Every text in it can be shown: nothing in there is obeyed by a terminal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// May it go on?
    pub admitted: bool,
    /// Why, in one sentence.
    pub why: String,
    /// Why not, as callers are told: `RATE_LIMITED`, `COST_EXCEEDS_LIMIT`. None where no limit refuses it.
    pub code: Option<String>,
    /// How long until the same request passes, if nothing else is charged. None if it is admitted, or if no wait cures it.
    pub passes_in_ms: Option<u64>,
    /// Which of the limits speaks for the request: the one that refuses it, else the tightest.
    pub decided_by: Option<usize>,
    /// The domain.
    pub domain: ExplainedDomain,
    /// Its descriptors, and how each looked for rules.
    pub descriptors: Vec<ExplainedDescriptor>,
    /// Every limit that was found, and what became of it.
    pub limits: Vec<ExplainedLimit>,
}

/// The domain of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedDomain {
    /// As the request names it.
    pub name: String,
    /// Are there rules for it?
    pub known: bool,
    /// `leaf` or `path`: which limits on a descriptor's way count.
    pub matching: Option<String>,
    /// Why nothing was looked for, if nothing was.
    pub passed_over: Option<String>,
}

/// A descriptor, and its way to the rules.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedDescriptor {
    /// Its entries.
    pub entries: Vec<ExplainedEntry>,
    /// The units that it takes: 0 is a peek, negative gives back.
    pub cost: i64,
    /// The limit that it brings instead of rules.
    pub limit: Option<String>,
    /// The tier that its entries say.
    pub tier: Option<String>,
    /// Where each entry led, until one led nowhere.
    pub steps: Vec<ExplainedStep>,
    /// What else is worth knowing about its way.
    pub notes: Vec<String>,
}

/// An entry of a descriptor.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedEntry {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// Where an entry led.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedStep {
    /// The entry.
    pub entry: ExplainedEntry,
    /// How it was led.
    pub led: Led,
    /// The node of the tree that it led to, as `key` or `key=value`.
    pub to: Option<String>,
    /// The limits there, by name.
    pub limits: Vec<String>,
    /// What fitted where it led nowhere, the nearest first; some of it.
    pub candidates: Vec<String>,
    /// How many more there are.
    pub candidates_more: usize,
    /// What was probably meant.
    pub meant: Option<String>,
    /// All this in words.
    pub says: String,
}

/// How an entry was led.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Led {
    /// To a node with this very value.
    Exact,
    /// To the first node whose wildcards fit.
    Wildcard,
    /// To a node that leaves the value open.
    Open,
    /// Nowhere: nothing fits.
    Nowhere,
    /// It is no part of the way: it says the tier, or an id.
    Reserved,
}

/// A limit that was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedLimit {
    /// The id of its rule; none where the request brought the limit.
    pub rule: Option<String>,
    /// What people call it.
    pub name: String,
    /// The tier that it is for.
    pub tier: Option<String>,
    /// Where it is written.
    pub written: Option<String>,
    /// How much, as `sliding_window 100/1m`; none is unlimited.
    pub limit: Option<String>,
    /// The descriptors that found it, from 0.
    pub found_by: Vec<usize>,
    /// It counts for every request of its domain.
    pub always: bool,
    /// What became of it.
    pub fate: LimitFate,
    /// The same in words.
    pub says: String,
    /// What its counter says, where it counts.
    pub counter: Option<ExplainedCounter>,
}

/// What became of a limit that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LimitFate {
    /// Its counter was asked.
    Counted,
    /// It says that there is no limit.
    Unlimited,
    /// Another limit replaces it.
    Replaced,
    /// It is switched off.
    Disabled,
    /// Whoever asks is exempt.
    Exempt,
    /// A refund in a domain that does not apply them.
    RefundIgnored,
    /// The request brought it, and it cannot be counted.
    Impossible,
    /// Its counter was not asked: there were too many.
    NotAsked,
}

/// A counter, what it was asked and what it says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedCounter {
    /// Its key, in hexadecimal digits.
    pub key: String,
    /// What its answer means for the request: `enforce`, `shadow`, `quota`.
    pub role: String,
    /// Why it is not enforced.
    pub role_says: Option<String>,
    /// What it was asked, in words.
    pub asked: String,
    /// The units that it was asked to take or to give back.
    pub cost: u64,
    /// Does the request pass, as far as this limit is concerned?
    pub admitted: bool,
    /// Why not: `RATE_LIMITED`, `COST_EXCEEDS_LIMIT`.
    pub code: Option<String>,
    /// The limit's amount.
    pub amount: u32,
    /// The most that can be used: the amount, or a bucket's burst.
    pub capacity: u32,
    /// What it holds now.
    pub before: ExplainedState,
    /// What it would hold afterwards.
    pub after: ExplainedState,
    /// Units that the request would charge, or give back if negative.
    pub charged: i64,
    /// Units that it should charge, but would make the debt larger than one limit.
    pub forgiven: u64,
    /// On a refusal: how long until this limit lets the same request pass. None if no wait cures it.
    pub retry_after_ms: Option<u64>,
    /// What callers are shown as reset.
    pub reset_ms: u64,
    /// How far this answer may be off an exact window.
    pub bound: ExplainedBound,
    /// How the answer was made.
    pub mode: String,
}

/// What a counter holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedState {
    /// Is there anything to remember?
    pub stored: bool,
    /// Units in use, as the algorithm estimates them.
    pub used: u64,
    /// The largest cost that would be admitted.
    pub remaining: u32,
}

/// How far an answer may be off an exact window of the same length.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainedBound {
    /// The most by which more may have been admitted.
    pub over: u32,
    /// The most by which less may have been admitted.
    pub under: u32,
    /// The same in words.
    pub says: String,
}

/// What the counters of a request say in a rehearsal.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    admitted: bool,
    answers: Vec<Answer>,
    rehearsed: Vec<Rehearsed>,
}

impl Seen {
    /// Asks the counters. Nothing is charged, and nothing left behind.
    pub(crate) async fn on(
        hand: &Hand,
        by: By<'_>,
        query: &Query<'_>,
        now: Micros,
    ) -> Result<Self, Unavailable> {
        let (mut plan, mut batch) = (Plan::new(), Batch::new());
        by.plan(query, &mut plan);
        drop(by); // It is for a moment.
        let refusing = refusing(&plan);
        if !lay_out(&plan, &Asks::Planned, refusing.as_ref(), OnStoreFailure::default(), &mut batch) {
            return Ok(Self::default());
        }
        if batch.takes(0).is_empty() {
            return Ok(Self { admitted: true, ..Self::default() });
        }
        let rehearsed = hand.rehearse_seen(&mut batch, now).await?;
        if let Some(why) = batch.failure(0) {
            return Err(why.clone());
        }
        Ok(Self { admitted: batch.admitted(0), answers: batch.answers(0).to_vec(), rehearsed })
    }
}

/// Says what would become of a request now, and why. Charges nothing, and leaves nothing behind.
pub fn explain(book: &Book, counters: &Memory, query: &Query<'_>, now: Micros) -> Explanation {
    explain_as(&By::rules(book), counters, query, now)
}

/// The same, by what is known about callers too.
pub fn explain_as(by: &By<'_>, counters: &Memory, query: &Query<'_>, now: Micros) -> Explanation {
    explain_with(by, query, |batch| counters.rehearse_now(batch, now))
}

/// The same, after the counters were asked: by the same book, about the same request.
pub(crate) fn explain_seen(by: &By<'_>, query: &Query<'_>, seen: Seen) -> Explanation {
    explain_with(by, query, |batch| {
        batch.judge(|_, _, answers| {
            answers.iter_mut().zip(&seen.answers).for_each(|(answer, seen)| *answer = *seen);
            seen.admitted
        });
        seen.rehearsed
    })
}

fn explain_with(
    by: &By<'_>,
    query: &Query<'_>,
    rehearse: impl FnOnce(&mut Batch<'_>) -> Vec<Rehearsed>,
) -> Explanation {
    let (mut walks, mut plan, mut batch) = (Walks::new(query), Plan::new(), Batch::new());
    by.book.plan_recorded(query, by.callers.as_ref(), &mut plan, &mut walks);
    let refusing = refusing(&plan);
    let rehearsed =
        match lay_out(&plan, &Asks::Planned, refusing.as_ref(), OnStoreFailure::default(), &mut batch) {
            true => rehearse(&mut batch),
            false => Vec::new(),
        };
    let decision = Decision::of(&plan, &batch, &Asks::Planned);
    let limits = limits::explained(&decision, &rehearsed, query, &walks);
    let domain = domain(by.book, &plan, query, &walks);
    let Walks { descriptors, reasons, .. } = walks;
    let told = decision.told().filter(|_| !plan.refused()).filter(|take| {
        // Of a refused request one speaks that refuses; if none does, it was refused for something else.
        decision.admitted || !decision.answers[*take].verdict.admitted()
    });
    let verdict = told.map(|take| decision.answers[take].verdict).filter(|_| !decision.admitted);
    let mut explanation = Explanation {
        admitted: decision.admitted,
        why: String::new(),
        code: verdict.and_then(|verdict| words::code(verdict.outcome)).map(str::to_owned),
        passes_in_ms: verdict.and_then(|_| passes_in(&decision)).map(ms_up),
        decided_by: told.and_then(|take| limits::of_take(&limits, take)),
        domain,
        descriptors,
        limits,
    };
    explanation.why = verdict::why(&explanation, &decision, &reasons);
    explanation
}

/// How long until every enforced limit that refuses a request lets it pass and, where none of a quota does, the first of them. Callers are
/// told less where places are held: those may be given back.
fn passes_in(decision: &Decision<'_>) -> Option<Micros> {
    let refusals = |role: Role| {
        let answers = decision.answers.iter().enumerate();
        let of_role = answers.filter(move |(take, _)| decision.role(*take) == role);
        of_role.map(|(_, answer)| answer.verdict).filter(|verdict| !verdict.admitted())
    };
    let mut wait = Micros::ZERO;
    for verdict in refusals(Role::Enforce) {
        wait = wait.max(verdict.retry_after?);
    }
    if refusals(Role::Quota).next().is_some() && !decision.quota_passes() {
        wait = wait.max(refusals(Role::Quota).filter_map(|verdict| verdict.retry_after).min()?);
    }
    Some(wait)
}

fn domain(book: &Book, plan: &Plan<'_>, query: &Query<'_>, walks: &Walks) -> ExplainedDomain {
    let matching = plan.domain().map(|domain| match domain.matching() {
        Matching::Leaf => "leaf".to_owned(),
        Matching::Path => "path".to_owned(),
    });
    let passed_over = match plan.domain() {
        None => Some(walk::unknown_domain(book, query.domain)),
        Some(_) => walks.passed_over.clone(),
    };
    ExplainedDomain {
        name: words::shown(query.domain),
        known: plan.domain().is_some(),
        matching,
        passed_over,
    }
}
