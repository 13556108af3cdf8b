//! One request, from its takes to its answers. Mostly its counters are in one slot, and it is one step there. Where they are in several,
//! each slot is asked for its part at the same time; if one refuses, what the others charged is given back, by its receipt.

use std::rc::Rc;

use tidegate_core::{Ask, Key, Limit, Micros, Policy, Role, Tag, admits};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::denials::Moment;
use super::encode::stays;
use super::lane::{Lane, PartReply, Pending, gone};
use super::replay;
use crate::{Answer, Batch, Take, Unavailable};

/// What a request came to.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) admitted: bool,
    pub(super) answers: Vec<Answer>,
    /// Why some answers are by policy, if any are.
    pub(super) trouble: Option<Unavailable>,
}

/// A request that the store was asked about.
pub(super) enum Asked {
    /// Not at all: it asks nothing, or it was refused a moment ago.
    Known(Judged),
    /// In one slot, where it is judged in one piece.
    Whole(Pending),
    /// The same, once that slot has answered; or it could not be asked, or did not answer.
    Heard(Result<PartReply, Unavailable>),
    /// In several. What is left to do goes on if nobody waits for it any more.
    Parts(oneshot::Receiver<Result<Judged, Unavailable>>),
    /// The same, once all of them have answered.
    Put(Result<Judged, Unavailable>),
}

/// What a request came to, whose answers are written: is it admitted, and why are some of them by policy, if any are?
pub(super) type Written = Result<(bool, Option<Unavailable>), Unavailable>;

/// Writes what requests came to into their batch. `judge` is shown each, with the places for its answers.
pub(super) fn write(
    batch: &mut Batch<'_>,
    mut judge: impl FnMut(usize, &[Take<'_>], &mut [Answer]) -> Written,
) {
    let (mut request, mut failed, mut troubled) = (0, Vec::new(), Vec::new());
    batch.judge(|takes, _, answers| {
        let written = judge(request, takes, answers);
        request += 1;
        match written {
            Ok((admitted, trouble)) => {
                troubled.extend(trouble.map(|why| (request - 1, why)));
                admitted
            }
            Err(why) => {
                answers.fill(Answer::BLANK);
                failed.push((request - 1, why));
                false
            }
        }
    });
    failed.into_iter().for_each(|(request, why)| batch.fail(request, why));
    troubled.into_iter().for_each(|(request, why)| batch.trouble_with(request, why));
}

/// Asks the store about a request, whose answer is wanted `until` then.
pub(super) fn ask(
    lane: &Rc<Lane>,
    takes: &[Take<'_>],
    replicated: bool,
    now: Micros,
    until: Instant,
) -> Asked {
    let Some(first) = takes.first() else {
        return Asked::Known(Judged { admitted: true, answers: Vec::new(), trouble: None });
    };
    if lane.remembers()
        && let Some(answers) = lane.store.denials.refuse(takes, now)
    {
        return Asked::Known(Judged { admitted: false, answers, trouble: None });
    }
    lane.store.alone.release(takes, now);
    let home = lane.of(first);
    let slot = home.store.slot(first, now);
    if takes.iter().all(|take| Rc::ptr_eq(lane.of(take), home) && home.store.slot(take, now) == slot) {
        return match home.ask((slot, replicated), takes, now) {
            Ok(pending) => Asked::Whole(pending),
            Err(why) => Asked::Heard(Err(why)),
        };
    }
    let (sender, judged) = oneshot::channel();
    let parts = Part::of(lane, takes, now);
    let mut asked = Vec::with_capacity(parts.len());
    for part in &parts {
        asked.push(part.lane.ask((part.slot, replicated), &part.takes(), now));
    }
    let lane = lane.clone();
    tokio::task::spawn_local(async move {
        let judged = fly(&lane, parts, asked, now, until).await;
        let _ = sender.send(judged);
    });
    Asked::Parts(judged)
}

impl Asked {
    /// Waits for what the store says, until then at most. Small, for it is what each call keeps that waits; what it means is worked out
    /// afterwards.
    pub(super) async fn wait(&mut self, until: Instant) {
        match self {
            Self::Whole(pending) => *self = Self::Heard(pending.within(until).await),
            Self::Parts(judged) => {
                *self = match judged.await {
                    Ok(judged) => Self::Put(judged),
                    Err(_) => Self::Heard(Err(gone())),
                }
            }
            Self::Known(_) | Self::Heard(_) | Self::Put(_) => {}
        }
    }

    /// Works out what the store has said to a request that was asked at `now`, after the moment `since`, and writes it down. What it has
    /// not said goes by policy.
    pub(super) fn judge(
        self,
        lane: &Rc<Lane>,
        takes: &[Take<'_>],
        now: Micros,
        since: Moment,
        answers: &mut [Answer],
    ) -> Written {
        match self {
            Self::Known(judged) => {
                answers.copy_from_slice(&judged.answers);
                Ok((judged.admitted, judged.trouble))
            }
            Self::Heard(reply) => {
                let home = takes.first().map_or(lane, |take| lane.of(take));
                match reply.and_then(|reply| read(home, takes, &reply, now, answers)) {
                    Ok(admitted) => {
                        lane.store.denials.learn(takes, answers, now, since);
                        Ok((admitted, None))
                    }
                    Err(why) => alone(lane, takes, why, now, answers),
                }
            }
            Self::Put(judged) => {
                let judged = judged?;
                lane.store.denials.learn(takes, &judged.answers, now, since);
                answers.copy_from_slice(&judged.answers);
                Ok((judged.admitted, judged.trouble))
            }
            // Nobody has waited for it.
            Self::Whole(_) | Self::Parts(_) => alone(lane, takes, gone(), now, answers),
        }
    }
}

/// What a reply means for each of some takes, and whether all of them are admitted.
fn read(
    lane: &Lane,
    takes: &[Take<'_>],
    reply: &PartReply,
    now: Micros,
    answers: &mut [Answer],
) -> Result<bool, Unavailable> {
    lane.heard(reply.now, now);
    let told = reply.told(lane, takes, now)?;
    let admitted = replay::judge(takes, &told, reply.now, answers)?;
    lane.store.agrees(admitted, reply.admitted)?;
    Ok(reply.admitted)
}

/// A request of which the store has said nothing.
fn alone(lane: &Lane, takes: &[Take<'_>], why: Unavailable, now: Micros, answers: &mut [Answer]) -> Written {
    answers.fill(Answer::BLANK); // A reply that nobody understands may have left some.
    let admitted = lane.store.alone.decide(takes, &vec![true; takes.len()], &why, now, answers)?;
    Ok((admitted, Some(why)))
}

/// The takes of a request that are in one slot, with limits of their own: they may outlive whoever asked.
struct Part {
    /// The way to their store.
    lane: Rc<Lane>,
    slot: u16,
    takes: Vec<OwnTake>,
}

struct OwnTake {
    /// Its place in the request.
    at: usize,
    key: Key,
    tag: Tag,
    name: Option<Box<str>>,
    limit: Limit,
    ask: Ask,
    role: Role,
    policy: Policy,
}

impl OwnTake {
    fn take(&self, ask: Ask) -> Take<'_> {
        let (name, role, policy) = (self.name.as_deref(), self.role, self.policy);
        Take { key: self.key, tag: self.tag, name, limit: &self.limit, ask, role, policy }
    }
}

impl Part {
    fn of(lane: &Rc<Lane>, takes: &[Take<'_>], now: Micros) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::new();
        for (at, take) in takes.iter().enumerate() {
            let home = lane.of(take);
            let slot = home.store.slot(take, now);
            let own = OwnTake {
                at,
                key: take.key,
                tag: take.tag,
                name: take.name.map(Box::from),
                limit: take.limit.clone(),
                ask: returnable(lane, take),
                role: take.role,
                policy: take.policy,
            };
            match parts.iter_mut().find(|part| part.slot == slot && Rc::ptr_eq(&part.lane, home)) {
                Some(part) => part.takes.push(own),
                None => parts.push(Self { lane: home.clone(), slot, takes: vec![own] }),
            }
        }
        parts
    }

    /// As its slot is asked: of a quota any may pass, elsewhere, so here none decides; those that pass are charged.
    fn takes(&self) -> Vec<Take<'_>> {
        let mut takes = Vec::with_capacity(self.takes.len());
        for own in &self.takes {
            let role = if own.role == Role::Quota { Role::Shadow } else { own.role };
            takes.push(Take { role, ..own.take(own.ask) });
        }
        takes
    }
}

/// What a take asks, if it may have to be given back: places without an id get one that nobody else has.
fn returnable(lane: &Lane, take: &Take<'_>) -> Ask {
    match take.ask {
        Ask::Charge { cost } | Ask::Acquire { id: Ask::ANONYMOUS, cost } if take.limit.holds() => {
            Ask::Acquire { id: lane.fresh_id(), cost }
        }
        ask => ask,
    }
}

/// Waits for all parts, until then at most, decides, and gives back what was charged for nothing.
async fn fly(
    lane: &Rc<Lane>,
    parts: Vec<Part>,
    asked: Vec<Result<Pending, Unavailable>>,
    now: Micros,
    until: Instant,
) -> Result<Judged, Unavailable> {
    let count = parts.iter().map(|part| part.takes.len()).sum();
    let mut judged = Judged { admitted: true, answers: vec![Answer::BLANK; count], trouble: None };
    let (mut replies, mut missing) = (Vec::with_capacity(parts.len()), vec![false; count]);
    for (part, pending) in parts.iter().zip(asked) {
        let reply = match pending {
            Ok(mut pending) => pending.within(until).await,
            Err(why) => Err(why),
        };
        let mut answers = vec![Answer::BLANK; part.takes.len()];
        let understood =
            reply.and_then(|reply| read(&part.lane, &part.takes(), &reply, now, &mut answers).map(|_| reply));
        match understood {
            Ok(reply) => {
                for (own, answer) in part.takes.iter().zip(answers) {
                    judged.answers[own.at] = answer;
                }
                replies.push(Some(reply));
            }
            Err(why) => {
                part.takes.iter().for_each(|own| missing[own.at] = true);
                judged.trouble.get_or_insert(why);
                replies.push(None);
            }
        }
    }
    let mut takes: Vec<(usize, Take<'_>)> =
        parts.iter().flat_map(|part| &part.takes).map(|own| (own.at, own.take(own.ask))).collect();
    takes.sort_unstable_by_key(|(at, _)| *at);
    let takes: Vec<Take<'_>> = takes.into_iter().map(|(_, take)| take).collect();
    let passed = |(take, answer): (&Take<'_>, &Answer)| (take.role, answer.verdict.admitted());
    let decided = match &judged.trouble {
        None => Ok(admits(takes.iter().zip(&judged.answers).map(passed))),
        Some(why) => lane.store.alone.decide(&takes, &missing, why, now, &mut judged.answers),
    };
    if matches!(decided, Ok(true)) {
        return Ok(judged);
    }
    for (part, reply) in parts.iter().zip(replies) {
        let Some(reply) = reply.filter(|reply| reply.admitted) else { continue };
        let takes = part.takes();
        let charged: Vec<Answer> = part.takes.iter().map(|own| judged.answers[own.at]).collect();
        give_back(lane, part, &charged, now);
        let mut shown = charged;
        replay::show(&takes, &reply.told(&part.lane, &takes, now)?, reply.now, &mut shown)?;
        for (own, answer) in part.takes.iter().zip(shown) {
            judged.answers[own.at] = answer;
        }
    }
    judged.admitted = decided?;
    Ok(judged)
}

/// Gives back what a part charged for a request that another part refused.
fn give_back(lane: &Rc<Lane>, part: &Part, charged: &[Answer], now: Micros) {
    let back = part.takes.iter().zip(charged).filter_map(|(own, answer)| {
        let receipt = answer.verdict.receipt().filter(|_| !stays(&own.ask, &own.limit))?;
        let ask = match own.ask {
            Ask::Acquire { id, .. } if own.limit.holds() => Ask::Release { id },
            _ => Ask::Refund { units: receipt.units, receipt: Some(receipt) },
        };
        Some(Take { role: Role::Shadow, ..own.take(ask) })
    });
    let back: Vec<Take<'_>> = back.collect();
    if back.is_empty() {
        return;
    }
    // Nobody waits for it. Is it lost on the way, the units stay charged until they leave the window: too few are admitted, never too many.
    let pending = match part.lane.ask((part.slot, false), &back, now) {
        Ok(pending) => pending,
        Err(why) => return tracing::debug!(%why, "units could not be given back"),
    };
    // Whoever was refused because of them may be admitted from then on.
    let (lane, keys) = (lane.clone(), back.iter().map(|take| take.key).collect::<Vec<_>>());
    tokio::task::spawn_local(async move {
        pending.over().await;
        keys.into_iter().for_each(|key| lane.store.denials.forget(key));
    });
}
