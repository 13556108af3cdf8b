//! What there is to tell about a decision, whatever it is written as.

use smallvec::SmallVec;
use tidegate_core::{
    Algorithm, Bound, Fate, Limit, Micros, OnStoreFailure, Outcome, Query, Role, Rule, Unit,
};
use tidegate_counters::Mode;

use super::PolicyNames;
use super::text::Put;
use crate::Decision;

/// How many limits are listed by name. There are seldom more, and headers have to stay small.
pub(super) const LISTED_MAX: usize = 10;

/// When to come back to a store that cannot answer.
const STORE_WAIT: Micros = Micros::from_secs(1);

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// A limit is used up.
    RateLimited,
    /// It costs more than a limit can ever hold.
    CostExceedsLimit,
    /// It asked for more counters than a request may.
    TooManyLimits,
    /// It brought a limit that cannot be counted.
    ImpossibleLimit,
    /// A renewal of places that are not held any more.
    NotHeld,
    /// The store cannot answer, and the rules say to stop then.
    StoreUnavailable,
}

impl Code {
    /// As bodies spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RateLimited => "RATE_LIMITED",
            Self::CostExceedsLimit => "COST_EXCEEDS_LIMIT",
            Self::TooManyLimits => "TOO_MANY_LIMITS",
            Self::ImpossibleLimit => "IMPOSSIBLE_LIMIT",
            Self::NotHeld => "NOT_HELD",
            Self::StoreUnavailable => "STORE_UNAVAILABLE",
        }
    }

    /// The status of an answer over HTTP.
    pub const fn status(self) -> u16 {
        if matches!(self, Self::StoreUnavailable) { 503 } else { 429 }
    }
}

/// In what a limit is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// A window.
    Window(Micros),
    /// A period of a calendar.
    Calendar(Unit),
    /// None: places held at once.
    Places,
}

impl Span {
    fn of(limit: &Limit) -> Self {
        match (limit.periods(), limit.window()) {
            (Some(calendar), _) => Self::Calendar(calendar.unit()),
            (None, Some(window)) if limit.algorithm() != Algorithm::Concurrency => Self::Window(window),
            _ => Self::Places,
        }
    }

    /// The window in seconds, rounded up. Periods of a calendar differ in length, and have none.
    pub(super) fn window_s(self) -> Option<u64> {
        if let Self::Window(window) = self { Some(window.secs_up()) } else { None }
    }
}

/// One limit, as callers are told of it.
#[derive(Clone, Copy, Debug)]
pub struct ToldLimit<'a> {
    /// Only from [`PolicyNames`], whose texts need no escape.
    name: &'a str,
    /// How much.
    pub amount: u32,
    /// In what.
    pub span: Span,
    /// How much at once, where that is not the amount.
    pub burst: Option<u32>,
    /// How much is left, but never more than the amount.
    pub remaining: u32,
    /// When there is more.
    pub reset: Micros,
    /// When the same request would pass, if it did not and a wait helps.
    pub retry_after: Option<Micros>,
    /// Did the request pass it?
    pub admitted: bool,
    /// Did it refuse the request? One of a quota does not where another passes.
    pub violated: bool,
}

/// What callers are told about a decision.
#[derive(Debug)]
pub struct Told<'a> {
    code: Option<Code>,
    limits: SmallVec<[ToldLimit<'a>; 4]>,
    speaker: Option<Speaker<'a>>,
    retry_after: Option<Micros>,
    /// Why it is so, where the store did not answer: the policy that acted, and how far that may be off, if anybody knows.
    degraded: Option<(OnStoreFailure, Option<Bound>)>,
}

/// The limit that speaks for the request.
#[derive(Clone, Copy, Debug)]
struct Speaker<'a> {
    /// Its place among the limits that are told.
    at: usize,
    /// Its take.
    take: usize,
    decision: &'a Decision<'a>,
    query: &'a Query<'a>,
}

impl<'a> Told<'a> {
    /// Of a decision on `query`, by the book that `names` are of.
    pub fn of(decision: &'a Decision<'a>, names: &'a PolicyNames, query: &'a Query<'a>) -> Self {
        let told = decision.told();
        let (mut limits, mut speaker) = (SmallVec::<[ToldLimit<'a>; 4]>::new(), None);
        let quota_passes = decision.quota_passes();
        for (take, planned) in decision.plan.takes().iter().enumerate().take(decision.answers.len()) {
            let role = decision.role(take);
            if role == Role::Shadow || !decision.has_numbers(take) {
                continue;
            }
            if told == Some(take) {
                speaker = Some(Speaker { at: limits.len(), take, decision, query });
            }
            let (limit, verdict) = (decision.plan.limit(planned), decision.shown(take));
            let admitted = verdict.admitted();
            limits.push(ToldLimit {
                name: names.name(planned.rule),
                amount: verdict.limit,
                span: Span::of(limit),
                burst: Some(limit.capacity()).filter(|burst| *burst != limit.amount()),
                remaining: verdict.remaining.min(verdict.limit),
                reset: verdict.reset,
                retry_after: verdict.retry_after,
                admitted,
                violated: !admitted && !decision.admitted && (role != Role::Quota || !quota_passes),
            });
        }
        let code = (!decision.admitted).then(|| code(decision, told));
        if matches!(code, Some(Code::TooManyLimits | Code::ImpossibleLimit)) {
            speaker = None; // None of these limits is why.
        }
        let retry_after = match (code, &speaker) {
            (Some(_), Some(speaker)) => limits[speaker.at].retry_after,
            _ => None,
        };
        Self {
            code,
            limits,
            speaker,
            retry_after,
            degraded: decision.degraded().map(|policy| (policy, decision.bound())),
        }
    }

    /// Where there is no decision, and this policy holds.
    pub fn by_policy(policy: OnStoreFailure) -> Self {
        let stops = matches!(policy, OnStoreFailure::Deny | OnStoreFailure::Error);
        Self {
            code: stops.then_some(Code::StoreUnavailable),
            retry_after: stops.then_some(STORE_WAIT),
            degraded: Some((policy, None)),
            ..Self::nothing()
        }
    }

    /// Where nothing counts.
    pub fn nothing() -> Self {
        Self { code: None, limits: SmallVec::new(), speaker: None, retry_after: None, degraded: None }
    }

    /// The same, but whoever is refused comes back later by `span`: so that not all come back at once.
    #[must_use]
    pub fn delayed(self, span: Micros) -> Self {
        Self { retry_after: self.retry_after.map(|wait| wait.plus(span)), ..self }
    }

    /// May the request go on?
    pub fn admitted(&self) -> bool {
        self.code.is_none()
    }

    /// Why it may not.
    pub fn code(&self) -> Option<Code> {
        self.code
    }

    /// The status of an answer over HTTP.
    pub fn status(&self) -> u16 {
        self.code.map_or(200, Code::status)
    }

    /// The limits that counted, but for those in shadow.
    pub fn limits(&self) -> &[ToldLimit<'a>] {
        &self.limits
    }

    /// The limit that speaks for the request: of those that refuse it the one with the longest wait, else the one with the least left.
    /// None where no limit counted, or none is the reason.
    pub fn speaks(&self) -> Option<&ToldLimit<'a>> {
        self.speaker.map(|speaker| &self.limits[speaker.at])
    }

    /// How long whoever is refused should wait; none where no wait helps.
    pub fn retry_after(&self) -> Option<Micros> {
        self.retry_after
    }

    /// The same in seconds, up. Headers and bodies show this one, which is never 0: that would be "at once".
    pub fn retry_after_s(&self) -> Option<u64> {
        self.retry_after.map(|wait| wait.secs_up().max(1))
    }

    /// The rule of the limit that speaks; none if the request brought it.
    pub fn rule(&self) -> Option<&'a Rule> {
        self.speaker.and_then(|speaker| speaker.decision.plan.takes()[speaker.take].rule)
    }

    /// How the answer was made: that about the limit that speaks, unless it took a policy to come to it.
    pub fn mode(&self) -> Option<Mode> {
        let degraded = self.degraded.map(|(policy, _)| Mode::Degraded(policy));
        degraded.or_else(|| self.speaker.map(|speaker| speaker.decision.answers[speaker.take].mode))
    }

    /// How far it may be off; none where nothing was counted for it, or nobody knows.
    pub fn bound(&self) -> Option<Bound> {
        match self.degraded {
            Some((_, bound)) => bound,
            None => self.speaker.map(|speaker| speaker.decision.answers[speaker.take].verdict.bound),
        }
    }

    /// What the limit that speaks counts: the keys and values of its counter.
    pub fn scope(&self) -> SmallVec<[(&'a str, &'a str); 4]> {
        let Some(Speaker { take, decision, query, .. }) = self.speaker else { return SmallVec::new() };
        let plan = decision.plan;
        let mut counted = plan.found().iter().filter(|found| found.fate == Fate::Counted(take));
        let descriptor = counted.find_map(|found| query.descriptors.get(found.descriptor?));
        let entries = descriptor.map_or(&[][..], |descriptor| query.entries_of(descriptor));
        let entries = plan.domain().into_iter().flat_map(|domain| domain.walked(entries));
        let path = plan.takes()[take].rule.map(|rule| &rule.path);
        match (path, descriptor) {
            (None, _) => entries.map(|entry| (entry.key, entry.value)).collect(),
            // It counts without anybody asking: every value is fixed.
            (Some(path), None) => {
                path.iter().map(|level| (&*level.key, level.value.as_deref().unwrap_or_default())).collect()
            }
            (Some(path), Some(_)) => {
                let shown = path.iter().zip(entries).map(|(level, entry)| match &level.value {
                    Some(value) if level.is_fixed() => (&*level.key, &**value),
                    _ => (entry.key, entry.value),
                });
                shown.collect()
            }
        }
    }

    /// The limits that are listed by name, by their place; the one that speaks is always among them.
    pub(super) fn listed(&self) -> impl Iterator<Item = usize> {
        let last = self.speaker.map(|speaker| speaker.at).filter(|at| *at >= LISTED_MAX);
        let first = if last.is_some() { LISTED_MAX - 1 } else { LISTED_MAX };
        (0..self.limits.len().min(first)).chain(last)
    }

    /// The place of the limit that speaks.
    pub(super) fn speaks_at(&self) -> Option<usize> {
        self.speaker.map(|speaker| speaker.at)
    }

    /// Writes the name of a limit. Where others before it have the same, with a number, so that all names of an answer differ.
    pub(super) fn put_name(&self, out: &mut impl Put, at: usize) {
        out.put(self.limits[at].name);
        if let Some(number) = self.number(at) {
            out.put("-");
            out.put_number(number);
        }
    }

    fn number(&self, at: usize) -> Option<u64> {
        let name = self.limits[at].name;
        let before = self.limits[..at].iter().filter(|other| other.name == name).count();
        if before == 0 {
            return None;
        }
        // Somebody may have given such a name to another rule.
        let numbers = self.limits.iter().filter_map(|other| other.name.strip_prefix(name)?.strip_prefix('-'));
        let taken: SmallVec<[&str; 4]> = numbers.collect();
        let free = (2..).filter(|number: &u64| taken.is_empty() || !taken.contains(&&*number.to_string()));
        free.take(before).last()
    }
}

fn code(decision: &Decision<'_>, told: Option<usize>) -> Code {
    let is_denied = |take: usize| decision.answers[take].mode == Mode::Degraded(OnStoreFailure::Deny);
    let outcome = told.map(|take| decision.answers[take].verdict.outcome);
    match outcome {
        _ if decision.too_much => Code::TooManyLimits,
        _ if decision.plan.refused() => Code::ImpossibleLimit,
        _ if told.is_some_and(is_denied) => Code::StoreUnavailable,
        Some(Outcome::CostExceedsLimit) => Code::CostExceedsLimit,
        Some(Outcome::NotHeld) => Code::NotHeld,
        Some(Outcome::RateLimited | Outcome::Admitted) | None => Code::RateLimited,
    }
}
