//! From a query to a decision: what the book says counts, what the counters say to that, and what it comes to.

use std::time::Duration;

use tidegate_core::{
    Algorithm, Ask, Book, Bound, Callers, Fate, Found, Key, Limit, Micros, OnStoreFailure, Plan, Planned,
    Policy, Query, Role, Tag, Verdict, told,
};
use tidegate_counters::{Answer, Asking, Batch, Hand, Memory, Mode, Take, Unavailable};

use crate::receipts::Charges;

/// How many counters one request may ask. The sets of all are locked at the same time.
pub const TAKES_MAX: usize = 256;

/// What is kept between decisions, so that the next one allocates nothing. One for each decision that a thread is about.
#[derive(Debug, Default)]
pub struct Room {
    plan: Plan<'static>,
    batch: Batch<'static>,
}

impl Room {
    /// Its plan, for one request; whoever takes it brings it back.
    pub(crate) fn plan<'b>(&mut self) -> Plan<'b> {
        std::mem::take(&mut self.plan)
    }

    /// The same of its batch.
    pub(crate) fn batch<'b>(&mut self) -> Batch<'b> {
        std::mem::take(&mut self.batch)
    }

    /// Both are brought back.
    pub(crate) fn keep(&mut self, plan: Plan<'static>, batch: Batch<'static>) {
        (self.plan, self.batch) = (plan, batch);
    }
}

/// What became of one request.
#[derive(Debug)]
pub struct Decision<'d> {
    /// May it go on?
    pub admitted: bool,
    /// What counted for it.
    pub plan: &'d Plan<'d>,
    /// What the counters said, an answer for each take of the plan; none if there were too many.
    pub answers: &'d [Answer],
    /// It asked for more counters than a request may; it is refused, and nothing was asked.
    pub too_much: bool,
    /// What it asked of them.
    pub asks: Asks<'d>,
}

/// What a request asks of the counters that its plan finds.
#[derive(Clone, Copy, Debug)]
pub enum Asks<'a> {
    /// What the plan says: charges, peeks, refunds.
    Planned,
    /// To keep the places that it holds; of nothing else.
    Renew,
    /// To give back the places that it holds; of nothing else.
    Release,
    /// To give back what was charged.
    Refund {
        /// How much of it; none is all.
        units: Option<u64>,
        /// What was charged.
        charges: &'a Charges,
    },
    /// To make what was charged into what it turned out to cost.
    Settle {
        /// What it cost.
        actual: u64,
        /// What was charged.
        charges: &'a Charges,
    },
}

impl Asks<'_> {
    /// What is asked of one counter, and what its answer means for the request.
    fn of(&self, take: &Planned<'_>, limit: &Limit) -> (Ask, Role) {
        let held = match take.ask {
            Ask::Acquire { id, .. } if limit.algorithm() == Algorithm::Concurrency => Some(id),
            _ => None,
        };
        let charged =
            |charges: &Charges| charges.iter().find(|(key, _)| *key == take.key).map(|(_, receipt)| *receipt);
        let ask = match *self {
            Self::Planned => return (take.ask, take.role),
            Self::Renew => held.map(|id| Ask::Renew { id }),
            Self::Release => held.map(|id| Ask::Release { id }),
            Self::Refund { units, charges } => charged(charges)
                .map(|receipt| Ask::Refund { units: units.unwrap_or(receipt.units), receipt: Some(receipt) }),
            Self::Settle { actual, charges } => {
                charged(charges).map(|receipt| Ask::Settle { receipt, actual })
            }
        };
        // What is not meant is looked at, and has no say.
        ask.map_or((Ask::Peek, Role::Shadow), |ask| (ask, take.role))
    }
}

/// What a request is decided by: the rules, and what is known about callers beside them.
#[derive(Debug)]
pub struct By<'r> {
    /// The rules.
    pub book: &'r Book,
    /// The callers.
    pub callers: Option<Callers<'r>>,
}

impl<'r> By<'r> {
    /// By rules alone.
    pub fn rules(book: &'r Book) -> Self {
        Self { book, callers: None }
    }

    /// What counts for a request.
    pub(crate) fn plan(&self, query: &Query<'_>, plan: &mut Plan<'r>) {
        self.begin_plan(query, plan);
        self.finish_plan(query, plan);
    }

    /// The same in two steps ([`Book::begin_plan`]).
    #[inline]
    pub(crate) fn begin_plan(&self, query: &Query<'_>, plan: &mut Plan<'r>) {
        self.book.begin_plan(query, self.callers.as_ref(), plan);
    }

    pub(crate) fn finish_plan(&self, query: &Query<'_>, plan: &mut Plan<'r>) {
        self.book.finish_plan(query, self.callers.as_ref(), plan, &mut ());
    }
}

/// Decides one request by `book`, on counters in memory, and shows what became of it to `view`.
pub fn decide<R>(
    book: &Book,
    counters: &Memory,
    query: &Query<'_>,
    now: Micros,
    room: &mut Room,
    view: impl FnOnce(&Decision<'_>) -> R,
) -> R {
    decide_as(&By::rules(book), counters, query, &Asks::Planned, now, room, view)
}

/// The same, for a request that may ask for something else.
pub fn decide_as<R>(
    by: &By<'_>,
    counters: &Memory,
    query: &Query<'_>,
    asks: &Asks<'_>,
    now: Micros,
    room: &mut Room,
    view: impl FnOnce(&Decision<'_>) -> R,
) -> R {
    let mut plan = room.plan();
    by.plan(query, &mut plan);
    decide_planned(plan, counters, asks, now, room, view)
}

/// The same, by a plan that is made.
pub(crate) fn decide_planned<R>(
    plan: Plan<'_>,
    counters: &Memory,
    asks: &Asks<'_>,
    now: Micros,
    room: &mut Room,
    view: impl FnOnce(&Decision<'_>) -> R,
) -> R {
    let mut batch = room.batch();
    let refusing = refusing(&plan);
    if lay_out(&plan, asks, refusing.as_ref(), OnStoreFailure::default(), &mut batch) {
        counters.take_now(&mut batch, now);
    }
    let result = view(&Decision::of(&plan, &batch, asks));
    let batch = batch.recycle();
    room.keep(plan.recycle(), batch);
    result
}

/// On what terms counters elsewhere are asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The time that they are told.
    pub(crate) now: Micros,
    /// How long the answer may take.
    pub(crate) patience: Duration,
    /// What holds without them for limits that no rule says it of, because the request brought them.
    pub(crate) otherwise: OnStoreFailure,
}

/// Asks counters about a plan. If they are elsewhere, their answer has to be waited for and judged; then, or if there is none to wait for,
/// it is known what came of it ([`Answered::of`]).
pub(crate) fn ask<'p>(
    hand: &Hand,
    plan: &'p Plan<'_>,
    asks: &Asks<'_>,
    refusing: Option<&'p Limit>,
    terms: &Terms,
    batch: &mut Batch<'p>,
) -> Option<Asking> {
    if !lay_out(plan, asks, refusing, terms.otherwise, batch) {
        return None;
    }
    if batch.takes(0).is_empty() {
        batch.judge(|_, _, _| true); // Where nothing is counted nobody has to be asked.
        return None;
    }
    batch.answer_within(terms.patience);
    hand.ask(batch, terms.now)
}

/// What counters elsewhere came to say.
pub(crate) enum Answered<'d> {
    /// This.
    Decided {
        /// The decision.
        decision: &'d Decision<'d>,
        /// Why some of its answers are by policy, if any are.
        trouble: Option<&'d Unavailable>,
    },
    /// Nothing, and a policy says that this is an error. Whether anything was charged is not known.
    Not {
        /// What was asked.
        plan: &'d Plan<'d>,
        /// Why there is no answer.
        why: &'d Unavailable,
    },
}

impl Answered<'_> {
    /// Shows to `view` what came of a plan.
    pub(crate) fn of<R>(
        plan: &Plan<'_>,
        batch: &Batch<'_>,
        asks: &Asks<'_>,
        view: impl FnOnce(Answered<'_>) -> R,
    ) -> R {
        let is_asked = !batch.is_empty();
        match batch.failure(0).filter(|_| is_asked) {
            Some(why) => view(Answered::Not { plan, why }),
            None => {
                let trouble = batch.trouble(0).filter(|_| is_asked);
                view(Answered::Decided { decision: &Decision::of(plan, batch, asks), trouble })
            }
        }
    }
}

/// A limit that nothing fits, for a request that is refused whatever the counters say: it still gives back, and is charged where that is
/// always, so it is asked with one more take that refuses it.
pub(crate) fn refusing(plan: &Plan<'_>) -> Option<Limit> {
    if plan.refused() { Limit::fixed_window(0, Micros::from_secs(1)).ok() } else { None }
}

/// Makes a plan the one request of a batch; says whether it did, for it may ask too much.
pub(crate) fn lay_out<'p>(
    plan: &'p Plan<'_>,
    asks: &Asks<'_>,
    refusing: Option<&'p Limit>,
    otherwise: OnStoreFailure,
    batch: &mut Batch<'p>,
) -> bool {
    if plan.takes().len() > TAKES_MAX {
        return false;
    }
    let refuses = refusing.map(|limit| Take {
        key: Key::of_bits(0),
        tag: plan.takes().first().map_or(Tag::default(), |take| take.tag),
        name: None,
        limit,
        ask: Ask::Charge { cost: 1 },
        role: Role::Enforce,
        policy: Policy { on_store_failure: OnStoreFailure::Deny, ..Policy::STRICT },
    });
    let takes = plan.takes().iter().map(|take| {
        let limit = plan.limit(take);
        let (ask, role) = asks.of(take, limit);
        let brought = Policy { on_store_failure: otherwise, ..Policy::STRICT };
        let policy = take.rule.map_or(brought, |rule| rule.said.policy);
        Take { key: take.key, tag: take.tag, name: plan.reference_name(take), limit, ask, role, policy }
    });
    batch.push(takes.chain(refuses));
    if plan.takes().iter().any(|take| take.rule.is_some_and(|rule| rule.said.policy.replicate > 0)) {
        batch.replicate();
    }
    true
}

/// The longest wait for a place that anybody is told. It may be given back at any moment; only its expiry is known.
const PLACE_WAIT_MAX: Micros = Micros::from_secs(1);

impl<'d> Decision<'d> {
    /// What a plan came to, once the counters were asked; if they were not, it asked too much.
    pub(crate) fn of(plan: &'d Plan<'d>, batch: &'d Batch<'d>, asks: &Asks<'d>) -> Self {
        let too_much = batch.is_empty();
        let answers = if too_much { &[] } else { &batch.answers(0)[..plan.takes().len()] };
        Self { admitted: !too_much && batch.admitted(0), plan, answers, too_much, asks: *asks }
    }

    /// The take that speaks for the whole request. Of a quota, where one has to pass, those that refuse do not speak beside one that
    /// passes, and where none does, only the one that will first: nobody is told to wait for what would not have stopped them.
    pub fn told(&self) -> Option<usize> {
        let takes = 0..self.answers.len();
        let quota_passes = self.quota_passes();
        let of_quota = takes.clone().filter(|take| self.role(*take) == Role::Quota && !quota_passes);
        let first = of_quota.min_by_key(|take| self.shown(*take).retry_after.unwrap_or(Micros::MAX));
        let speaks = |take: &usize| {
            let refuses = !self.admitted && (self.role(*take) != Role::Quota || Some(*take) == first);
            refuses || self.answers[*take].verdict.admitted()
        };
        self.told_of(takes.filter(speaks))
    }

    /// The verdict on a take as callers are shown it: nobody is told to wait longer than a second for a place.
    pub fn shown(&self, take: usize) -> Verdict {
        let mut verdict = self.answers[take].verdict;
        if self.plan.limit(&self.plan.takes()[take]).algorithm() == Algorithm::Concurrency {
            verdict.reset = verdict.reset.min(PLACE_WAIT_MAX);
            verdict.retry_after = verdict.retry_after.map(|wait| wait.min(PLACE_WAIT_MAX));
        }
        verdict
    }

    /// Does any of a quota pass?
    pub(crate) fn quota_passes(&self) -> bool {
        let passes = |take: usize| {
            self.role(take) == Role::Quota && self.is_asked(take) && self.answers[take].verdict.admitted()
        };
        (0..self.answers.len()).any(passes)
    }

    /// What an answer means for the request. What was only looked at, because it was not meant, means nothing.
    pub fn role(&self, take: usize) -> Role {
        let planned = &self.plan.takes()[take];
        self.asks.of(planned, self.plan.limit(planned)).1
    }

    /// What a counter was asked.
    pub(crate) fn ask(&self, take: usize) -> Ask {
        let planned = &self.plan.takes()[take];
        self.asks.of(planned, self.plan.limit(planned)).0
    }

    /// Was a counter meant, or only looked at beside others that were?
    pub fn is_meant(&self, take: usize) -> bool {
        matches!(self.asks, Asks::Planned) || self.role(take) != Role::Shadow
    }

    /// Was a counter asked? Not beside another that was known to refuse the request.
    pub fn is_asked(&self, take: usize) -> bool {
        self.answers.get(take).is_some_and(|answer| answer.mode != Mode::Unasked)
    }

    /// The policy by which the request was decided, where the store did not answer: on a refusal the one that refused it, on an admission
    /// the one that lets most through.
    pub fn degraded(&self) -> Option<OnStoreFailure> {
        let policy = |take: usize| match self.answers.get(take)?.mode {
            Mode::Degraded(policy) => Some(policy),
            _ => None,
        };
        if !self.admitted {
            return self.told().and_then(policy);
        }
        let decides = |take: &usize| self.role(*take) != Role::Shadow;
        let mut acted = (0..self.answers.len()).filter(decides).filter_map(policy).peekable();
        acted.peek()?;
        Some(if acted.any(|policy| policy == OnStoreFailure::Allow) {
            OnStoreFailure::Allow
        } else {
            OnStoreFailure::Local
        })
    }

    /// How far the decision may be off: what the limit that speaks says, or the widest of what was answered by policy. None where nothing
    /// was counted, or nobody knows.
    pub fn bound(&self) -> Option<Bound> {
        let Some(policy) = self.degraded() else {
            return self.told().map(|take| self.answers[take].verdict.bound);
        };
        let acted = self.answers.iter().filter(|answer| answer.mode == Mode::Degraded(policy));
        let bound = acted.map(|answer| answer.verdict.bound).max_by_key(|bound| bound.over);
        bound.filter(|bound| policy != OnStoreFailure::Allow && bound.over < u32::MAX)
    }

    /// Was a counter asked, so that there are numbers to tell? Not where it was let through unseen.
    pub fn has_numbers(&self, take: usize) -> bool {
        self.is_asked(take)
            && self
                .answers
                .get(take)
                .is_some_and(|answer| answer.mode != Mode::Degraded(OnStoreFailure::Allow))
    }

    /// The take that speaks for a descriptor, if anything was counted for it.
    pub fn told_for(&self, descriptor: usize) -> Option<usize> {
        // A rule that always counts belongs to no descriptor; it is told with the first, so that somebody tells of it.
        let of_it = |found: &&Found<'_>| found.descriptor.unwrap_or(0) == descriptor;
        let found = self.plan.found().iter().filter(of_it);
        let takes =
            found.filter_map(|found| if let Fate::Counted(take) = found.fate { Some(take) } else { None });
        self.told_of(takes)
    }

    fn told_of(&self, takes: impl Iterator<Item = usize> + Clone) -> Option<usize> {
        let answered = takes.filter(|take| self.has_numbers(*take));
        let roles = answered.clone().map(|take| (self.role(take), self.shown(take)));
        let at = told(roles)?;
        answered.clone().nth(at)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::{
        Charge, Descriptor, DescriptorDraft, DomainDraft, Entry, LimitError, OwnLimit, RuleDraft, Secret,
    };
    use tidegate_counters::MemorySize;

    use super::*;

    #[test]
    fn who_is_admitted_is_not_told_to_wait() -> Result<(), LimitError> {
        let node = |key: &str, amount| -> Result<DescriptorDraft, LimitError> {
            let limit = Some(Limit::fixed_window(amount, Micros::from_secs(60))?);
            let rule = RuleDraft { limit, quota: true, ..RuleDraft::default() };
            Ok(DescriptorDraft { key: key.into(), limits: vec![rule], ..DescriptorDraft::default() })
        };
        let descriptors = vec![node("small", 1)?, node("large", 5)?];
        let domain = DomainDraft { name: "d".into(), descriptors, ..DomainDraft::default() };
        let book = Book::new([domain], Secret::new([1; 16]));
        let now = Micros::from_secs(1_800_000_000);
        let counters = Memory::new(MemorySize::of_bytes(1 << 20), now).expect("memory");
        let entries = [Entry { key: "small", value: "a" }, Entry { key: "large", value: "a" }];
        let descriptors =
            [0..1, 1..2].map(|entries| Descriptor { entries, cost: 1, limit: None, own_cost: false });
        let query = Query { domain: "d", entries: &entries, descriptors: &descriptors, lease: None };
        let mut room = Room::default();
        decide(&book, &counters, &query, now, &mut room, |_| ());
        decide(&book, &counters, &query, now, &mut room, |second| {
            assert!(second.admitted);
            let told = (second.told(), second.told_for(0));
            assert_eq!(told, (Some(1), Some(0)), "each descriptor is told its own");
        });
        Ok(())
    }

    /// Who is refused elsewhere was told to wait for a quota that let it pass; and of several quotas, for the slowest.
    #[test]
    fn who_is_refused_is_told_to_wait_for_what_is_needed() -> Result<(), LimitError> {
        let node = |key: &str, secs, quota| -> Result<DescriptorDraft, LimitError> {
            let limit = Some(Limit::sliding_log(1, Micros::from_secs(secs))?);
            let rule = RuleDraft { limit, quota, ..RuleDraft::default() };
            Ok(DescriptorDraft { key: key.into(), limits: vec![rule], ..DescriptorDraft::default() })
        };
        let descriptors =
            vec![node("year", 9_000_000, true)?, node("hour", 3_600, true)?, node("key", 60, false)?];
        let domain = DomainDraft { name: "d".into(), descriptors, ..DomainDraft::default() };
        let book = Book::new([domain], Secret::new([1; 16]));
        let now = Micros::from_secs(1_800_000_000);
        let told = |before: &[&str], asks: &[&str]| {
            let counters = Memory::new(MemorySize::of_bytes(1 << 20), now).expect("memory");
            let decide = |keys: &[&str]| {
                let entries: Vec<Entry<'_>> = keys.iter().map(|key| Entry { key, value: "a" }).collect();
                let descriptors: Vec<Descriptor> = (0..keys.len())
                    .map(|at| Descriptor { entries: at..at + 1, cost: 1, limit: None, own_cost: false })
                    .collect();
                let query = Query { domain: "d", entries: &entries, descriptors: &descriptors, lease: None };
                decide(&book, &counters, &query, now, &mut Room::default(), |decision| {
                    let told = decision.told().map(|take| decision.answers[take].verdict.retry_after);
                    (decision.admitted, told.flatten())
                })
            };
            before.iter().for_each(|key| assert!(decide(&[key]).0));
            decide(asks)
        };
        let secs = |secs| (false, Some(Micros::from_secs(secs)));
        assert_eq!(told(&["year", "key"], &["year", "hour", "key"]), secs(60), "the hour lets it pass");
        assert_eq!(told(&["year", "hour"], &["year", "hour", "key"]), secs(3_600), "the hour is enough");
        assert_eq!(told(&["year", "hour", "key"], &["year", "hour", "key"]), secs(3_600));
        assert_eq!(told(&["year", "key"], &["year", "key"]), secs(9_000_000), "nothing else is left");
        assert_eq!(told(&["year"], &["year", "hour", "key"]), (true, None));
        Ok(())
    }

    #[test]
    fn a_limit_that_cannot_be_counted_refuses_but_penalties_stand() -> Result<(), LimitError> {
        let limit = Limit::fixed_window(5, Micros::from_secs(60))?;
        let node = |key: &str, limit| DescriptorDraft {
            key: key.into(),
            limits: vec![RuleDraft { limit: Some(limit), ..RuleDraft::default() }],
            ..DescriptorDraft::default()
        };
        let descriptors =
            vec![node("penalty", limit.clone().charging(Charge::Always)?), node("plain", limit)];
        let domain = DomainDraft { name: "d".into(), descriptors, ..DomainDraft::default() };
        let book = Book::new([domain], Secret::new([1; 16]));
        let now = Micros::from_secs(1_800_000_000);
        let counters = Memory::new(MemorySize::of_bytes(1 << 20), now).expect("memory");
        let entries = [Entry { key: "penalty", value: "a" }, Entry { key: "plain", value: "a" }];
        let own = Some(OwnLimit { amount: 1, window: Micros::ZERO });
        let descriptors = [(0..1, None), (1..2, None), (0..2, own)].map(|(entries, limit)| Descriptor {
            entries,
            cost: 1,
            limit,
            own_cost: false,
        });
        let asked = |count| {
            let query =
                Query { domain: "d", entries: &entries, descriptors: &descriptors[..count], lease: None };
            decide(&book, &counters, &query, now, &mut Room::default(), |decision| {
                let remaining = decision.answers.iter().map(|answer| answer.verdict.remaining);
                (decision.admitted, remaining.collect::<Vec<u32>>())
            })
        };
        assert!(!asked(3).0);
        assert_eq!(asked(2), (true, vec![3, 4]), "only the penalty was charged before");
        Ok(())
    }
}
