//! What a node answers by itself where the store does not answer: by the policy of each take. A part of each limit is its own to spend
//! then, counted in its own memory.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::{
    Ask, Bound, Key, Limit, Micros, OnStoreFailure, Outcome, Policy, Role, Share, Verdict, admits,
};
use tokio::time::Instant;

use super::denials::unasked;
use crate::{Answer, Batch, Memory, Mode, Take, Unavailable};

/// What a node may spend of a limit while it does not know how many nodes there are.
const SHARE_UNKNOWN: Share = Share::of_basis_points(1_000);
/// When to come back after a refusal that only the store could lift.
const COME_BACK: Micros = Micros::from_secs(1);
/// For how long nodes that were seen count on, at least.
const LATELY: Duration = Duration::from_secs(60);
/// What is said where nobody knows how far an answer is off.
const UNBOUNDED: Bound = Bound { over: u32::MAX, under: 0 };

/// What a node has to answer by itself.
pub(super) struct Alone {
    /// What it spent alone.
    counters: Arc<Memory>,
    /// How many nodes share the store, the most that were seen lately; 0 until it is known.
    nodes: AtomicU32,
    seen: Mutex<Seen>,
    /// Was a place ever taken here? Then whoever gives one back may mean one of these.
    holds: AtomicBool,
}

/// The most nodes that were seen in a while, and in the one before: some may only have lost the store, and still serve.
struct Seen {
    from: Instant,
    most: u32,
    before: u32,
}

impl Seen {
    fn most_lately(&mut self, nodes: u32, now: Instant) -> u32 {
        let age = now.saturating_duration_since(self.from);
        if age >= LATELY {
            let before = if age < LATELY * 2 { self.most } else { 0 };
            *self = Self { from: now, most: 0, before };
        }
        self.most = self.most.max(nodes);
        self.most.max(self.before)
    }
}

impl Alone {
    pub(super) fn new(counters: Arc<Memory>) -> Self {
        let seen = Mutex::new(Seen { from: Instant::now(), most: 0, before: 0 });
        Self { counters, nodes: AtomicU32::new(0), seen, holds: AtomicBool::new(false) }
    }

    /// So many nodes share the store now.
    pub(super) fn saw_nodes(&self, nodes: u32) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.nodes.store(seen.most_lately(nodes, Instant::now()), Relaxed);
    }

    /// How many nodes share the store, if that is known.
    pub(super) fn nodes(&self) -> Option<u32> {
        Some(self.nodes.load(Relaxed)).filter(|nodes| *nodes > 0)
    }

    /// How much of a limit this node may spend alone.
    fn share(&self, policy: &Policy, limit: &Limit) -> u32 {
        let amount = limit.amount();
        let of_amount = |share: Share| (u64::from(amount) * u64::from(share.basis_points()) / 10_000) as u32;
        let share = match (policy.local_share, self.nodes()) {
            (Some(share), _) => of_amount(share),
            (None, Some(nodes)) => amount / nodes,
            (None, None) => of_amount(SHARE_UNKNOWN),
        };
        share.max(amount.min(1))
    }

    /// Decides a request of which the store did not answer the takes that are `missing`; the others have their answers. Says whether it is
    /// admitted; if a policy wants an error, the reason.
    ///
    /// A refusal by the store comes first, then the policies: `error`, `deny`, `local`, `allow`.
    pub(super) fn decide(
        &self,
        takes: &[Take<'_>],
        missing: &[bool],
        why: &Unavailable,
        now: Micros,
        answers: &mut [Answer],
    ) -> Result<bool, Unavailable> {
        let policy = |at: usize| takes[at].policy.on_store_failure;
        let all_missing = || (0..takes.len()).filter(|at| missing[*at]);
        for at in all_missing() {
            answers[at] = unasked(&takes[at]);
        }
        if !admits(takes.iter().zip(&*answers).map(passed)) {
            return Ok(false);
        }
        // Of a quota one has to pass: where one does, those that are missing do not matter, else the most lenient of them does.
        let is_quota = |at: &usize| takes[*at].role == Role::Quota;
        let quota_passes =
            (0..takes.len()).any(|at| is_quota(&at) && !missing[at] && answers[at].verdict.admitted());
        let quota_policy =
            all_missing().filter(is_quota).map(policy).min_by_key(|policy| policy.strictness());
        let decides = |at: &usize| match takes[*at].role {
            Role::Enforce => true,
            Role::Shadow => false,
            Role::Quota => !quota_passes && Some(policy(*at)) == quota_policy,
        };
        let acting = |wanted: OnStoreFailure| all_missing().filter(decides).any(|at| policy(at) == wanted);
        if acting(OnStoreFailure::Error) {
            return Err(why.clone());
        }
        let is_denied = acting(OnStoreFailure::Deny);
        for at in all_missing() {
            match policy(at) {
                OnStoreFailure::Allow => answers[at] = allowed(&takes[at], OnStoreFailure::Allow),
                OnStoreFailure::Deny => answers[at] = denied(&takes[at]),
                OnStoreFailure::Local | OnStoreFailure::Error => {}
            }
        }
        if !is_denied {
            let local: Vec<usize> = all_missing().filter(|at| policy(*at) == OnStoreFailure::Local).collect();
            let role = |at: &usize| if decides(at) { takes[*at].role } else { Role::Shadow };
            self.count(takes, &local, role, now, answers);
        }
        // Of a quota, one whose policy is an error passes as little as one that is denied.
        let is_error = |at: usize| missing[at] && policy(at) == OnStoreFailure::Error;
        let passes = |at: usize| answers[at].verdict.admitted() && !is_error(at);
        Ok(admits((0..takes.len()).map(|at| (takes[at].role, passes(at)))))
    }

    /// Counts some takes here, all or none.
    fn count(
        &self,
        takes: &[Take<'_>],
        local: &[usize],
        role: impl Fn(&usize) -> Role,
        now: Micros,
        answers: &mut [Answer],
    ) {
        let parts: Vec<Limit> = local
            .iter()
            .map(|at| takes[*at].limit.part(self.share(&takes[*at].policy, takes[*at].limit)))
            .collect();
        let is_counted = |take: &Take<'_>| {
            matches!(take.ask, Ask::Charge { .. } | Ask::Peek | Ask::Acquire { .. } | Ask::Release { .. })
        };
        let mut batch = Batch::new();
        batch.push(local.iter().zip(&parts).map(|(at, part)| {
            let take = &takes[*at];
            match is_counted(take) {
                true => Take { limit: part, role: role(at), ..*take },
                // It is about what was charged in the store.
                false => Take { limit: part, role: Role::Shadow, ask: Ask::Peek, ..*take },
            }
        }));
        self.counters.take_now(&mut batch, now);
        for ((at, part), answer) in local.iter().zip(&parts).zip(batch.answers(0)) {
            let take = &takes[*at];
            if take.limit.holds() && answer.verdict.applied > 0 {
                self.holds.store(true, Relaxed);
            }
            answers[*at] = match is_counted(take) {
                true => Answer {
                    verdict: self.told(take, part, answer.verdict),
                    mode: Mode::Degraded(OnStoreFailure::Local),
                },
                false => allowed(take, OnStoreFailure::Local),
            };
        }
    }

    /// A verdict on a part of a limit, as one on the limit.
    fn told(&self, take: &Take<'_>, part: &Limit, verdict: Verdict) -> Verdict {
        let nodes = self.nodes();
        let over =
            nodes.map(|nodes| (part.capacity().saturating_add(verdict.bound.over)).saturating_mul(nodes));
        let bound = Bound { over: over.unwrap_or(u32::MAX), under: take.limit.capacity() };
        let mut told = Verdict { limit: take.limit.amount(), bound, ..verdict };
        let fits_some_day = matches!(take.ask, Ask::Charge { cost } | Ask::Acquire { cost, .. } if cost <= take.limit.capacity().into());
        if told.outcome == Outcome::CostExceedsLimit && fits_some_day {
            told.outcome = Outcome::RateLimited; // It fits the limit, only not what one node may spend of it.
            (told.retry_after, told.reset) = (Some(COME_BACK), COME_BACK);
        }
        told
    }

    /// Places that are given back in the store may have been taken here.
    pub(super) fn release(&self, takes: &[Take<'_>], now: Micros) {
        let releases = |take: &&Take<'_>| matches!(take.ask, Ask::Release { .. });
        if self.holds.load(Relaxed) && takes.iter().any(|take| releases(&take)) {
            let mut batch = Batch::new();
            batch.push(takes.iter().filter(releases).copied());
            self.counters.take_now(&mut batch, now);
        }
    }

    /// A counter was reset: what was spent here is forgotten as well.
    pub(super) fn reset(&self, key: Key) {
        self.counters.reset_now(key);
    }
}

fn passed((take, answer): (&Take<'_>, &Answer)) -> (Role, bool) {
    (take.role, answer.verdict.admitted())
}

/// Let through, and nobody knows how far that is off.
fn allowed(take: &Take<'_>, policy: OnStoreFailure) -> Answer {
    let limit = take.limit.amount();
    let (outcome, remaining, bound) = (Outcome::Admitted, u32::MAX, UNBOUNDED);
    Answer {
        verdict: Verdict { outcome, limit, remaining, bound, ..Verdict::BLANK },
        mode: Mode::Degraded(policy),
    }
}

/// Refused, whatever is left.
fn denied(take: &Take<'_>) -> Answer {
    let verdict = Verdict {
        outcome: Outcome::RateLimited,
        limit: take.limit.amount(),
        retry_after: Some(COME_BACK),
        reset: COME_BACK,
        bound: Bound { over: 0, under: take.limit.capacity() },
        ..Verdict::BLANK
    };
    Answer { verdict, mode: Mode::Degraded(OnStoreFailure::Deny) }
}

#[cfg(test)]
#[path = "alone/tests.rs"]
mod tests;
