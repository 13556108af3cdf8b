//! What a request came to, worked out by the law itself from what the store says its counters were before. The script has decided and
//! charged already; the node takes the same steps on copies, so that scripts need not know what a verdict tells, and every answer is
//! checked.

use smallvec::SmallVec;
use tidegate_core::{Ask, Key, Limit, ListTold, Micros, Outcome, State, Verdict, admits};

use super::encode::stays;
use crate::{Answer, Inspection, Mode, Rehearsed, Take, Unavailable};

/// What the store says of one take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Told<'r> {
    /// The counter before the request, in its portable form; nothing if there was none.
    State(&'r [u8]),
    /// What a list came to, which is too long to send.
    List(ListTold),
    /// A fixed window as the reference server keeps it: its portable form, and the node's time, by which it is.
    Reference([u8; 16], Micros),
}

/// What a value that the reference server wrote, or we in its place, says of a window.
pub(super) fn reference(value: &[u8], start: Micros, limit: &Limit, now: Micros) -> Option<Told<'static>> {
    let used: u64 = if value.is_empty() { 0 } else { std::str::from_utf8(value).ok()?.parse().ok()? };
    let window_us = limit.window()?.get();
    let mut bytes = [0; 16];
    bytes[0] = 0x11; // Version 1, windows.
    bytes[1..8].copy_from_slice(&(start.get() / window_us).to_le_bytes()[..7]);
    bytes[8..12].copy_from_slice(&u32::try_from(used).unwrap_or(u32::MAX).to_le_bytes());
    Some(Told::Reference(bytes, now))
}

impl Told<'_> {
    /// The state that it tells, and the time to look at it.
    fn state(&self, now: Micros) -> (&[u8], Micros) {
        match self {
            Self::State(bytes) => (bytes, now),
            Self::Reference(bytes, now) => (bytes, *now),
            Self::List(_) => (&[], now),
        }
    }
}

/// Reads what the script tells of a list.
pub(super) fn list(bytes: &[u8]) -> Option<ListTold> {
    let (outcome, mut rest) = bytes.split_first()?;
    let mut take = |count: usize| {
        let (head, tail) = rest.split_at_checked(count)?;
        rest = tail;
        Some(head.iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    let outcome = match outcome {
        0 => Outcome::Admitted,
        1 => Outcome::RateLimited,
        2 => Outcome::CostExceedsLimit,
        3 => Outcome::NotHeld,
        _ => return None,
    };
    let (used, applied) = (take(5)?, take(5)? as i64 - i64::from(u32::MAX));
    let [at, ready, latest] = [take(7)?, take(7)?, take(7)?].map(Micros::new);
    Some(ListTold { outcome, used, applied, at, ready, latest })
}

/// Works out the answers to a request, and whether it is admitted.
pub(super) fn judge(
    takes: &[Take<'_>],
    told: &[Told<'_>],
    now: Micros,
    answers: &mut [Answer],
) -> Result<bool, Unavailable> {
    let mut states = States::default();
    for ((take, told), answer) in takes.iter().zip(told).zip(&mut *answers) {
        let verdict = match told {
            Told::State(bytes) => take.limit.step(states.of(take, bytes)?, take.ask, now),
            Told::Reference(bytes, now) => {
                unknown_before(take.limit.step(states.of(take, bytes)?, take.ask, *now), take.limit)
            }
            Told::List(list) => list_verdict(take, *list, now)?,
        };
        *answer = Answer { verdict, mode: Mode::Exact };
    }
    let passed = |(take, answer): (&Take<'_>, &Answer)| (take.role, answer.verdict.admitted());
    let admitted = admits(takes.iter().zip(&*answers).map(passed));
    if !admitted && takes.len() > 1 {
        show(takes, told, now, answers)?;
    }
    Ok(admitted)
}

/// The answers to the takes of a request that is refused: what stays is carried out, the others are shown as they are without it.
/// `answers` holds what they would be if it had been admitted.
pub(super) fn show(
    takes: &[Take<'_>],
    told: &[Told<'_>],
    now: Micros,
    answers: &mut [Answer],
) -> Result<(), Unavailable> {
    let mut states = States::default();
    for ((take, told), answer) in takes.iter().zip(told).zip(answers) {
        match told {
            Told::State(bytes) if stays(&take.ask, take.limit) => {
                answer.verdict = take.limit.step(states.of(take, bytes)?, take.ask, now);
            }
            Told::State(bytes) => {
                let shown = take.limit.show(states.of(take, bytes)?, take.ask, now);
                if answer.verdict.admitted() {
                    answer.verdict = shown;
                }
            }
            Told::Reference(bytes, now) if stays(&take.ask, take.limit) => {
                let verdict = take.limit.step(states.of(take, bytes)?, take.ask, *now);
                answer.verdict = unknown_before(verdict, take.limit);
            }
            Told::Reference(bytes, now) => {
                let shown = take.limit.show(states.of(take, bytes)?, take.ask, *now);
                if answer.verdict.admitted() {
                    answer.verdict = unknown_before(shown, take.limit);
                }
            }
            // It was charged, and is given back.
            Told::List(list) if list.applied > 0 && !stays(&take.ask, take.limit) => {
                let used = list.used.saturating_sub(list.applied.unsigned_abs());
                answer.verdict = list_verdict(take, ListTold { used, applied: 0, ready: now, ..*list }, now)?;
            }
            Told::List(_) => {} // The script has shown it.
        }
    }
    Ok(())
}

/// What each take of a request found, and what the request would leave; `answers` are its answers, and say whether it is admitted.
pub(super) fn rehearse(
    takes: &[Take<'_>],
    told: &[Told<'_>],
    now: Micros,
    answers: &mut [Answer],
    seen: &mut Vec<Rehearsed>,
) -> Result<bool, Unavailable> {
    let admitted = judge(takes, told, now, answers)?;
    let found: Vec<(&[u8], Micros)> = told.iter().map(|told| told.state(now)).collect();
    let mut states = States::default();
    let mut changed = vec![false; takes.len()];
    for (at, (take, (bytes, now))) in takes.iter().zip(&found).enumerate() {
        let state = states.of(take, bytes)?;
        if admitted || stays(&take.ask, take.limit) || takes.len() == 1 {
            let verdict = take.limit.step(state, take.ask, *now);
            let holds = matches!(take.ask, Ask::Acquire { .. } | Ask::Renew { .. });
            changed[at] = verdict.applied != 0 || (holds && verdict.admitted());
        }
    }
    for (take, (bytes, now)) in takes.iter().zip(&found) {
        let (bytes, now) = (*bytes, *now);
        let before = inspect(take.limit, bytes, now)?;
        let changes = takes.iter().zip(&changed).any(|(other, changed)| other.key == take.key && *changed);
        let after = look(take.limit, states.of(take, bytes)?, !bytes.is_empty() || changes, now);
        seen.push(Rehearsed { before, after });
    }
    Ok(admitted)
}

/// What a counter holds.
pub(super) fn inspect(limit: &Limit, bytes: &[u8], now: Micros) -> Result<Inspection, Unavailable> {
    Ok(look(limit, &mut read(limit, bytes)?, !bytes.is_empty(), now))
}

fn look(limit: &Limit, state: &mut State, stored: bool, now: Micros) -> Inspection {
    let verdict = limit.show(state, Ask::Peek, now);
    Inspection { stored, used: limit.used(state, now), verdict }
}

/// A verdict on a window of which nobody knows what was charged in the one before: it may be off by all of that.
fn unknown_before(verdict: Verdict, limit: &Limit) -> Verdict {
    Verdict { bound: limit.bound_max(), ..verdict }
}

fn list_verdict(take: &Take<'_>, list: ListTold, now: Micros) -> Result<Verdict, Unavailable> {
    let verdict = take.limit.verdict_of(&take.ask, list, now);
    verdict.ok_or_else(|| Unavailable { why: "the store told of a list where there is none".into() })
}

fn read(limit: &Limit, bytes: &[u8]) -> Result<State, Unavailable> {
    if bytes.is_empty() {
        return Ok(limit.state());
    }
    limit.from_portable(bytes).map_err(|error| Unavailable { why: error.to_string() })
}

/// Counters that are worked on, each once.
#[derive(Default)]
struct States(SmallVec<[(Key, State); 1]>);

impl States {
    /// The state of a take's counter: as it was, or as the takes before it left it.
    fn of(&mut self, take: &Take<'_>, bytes: &[u8]) -> Result<&mut State, Unavailable> {
        let at = match self.0.iter().position(|(key, _)| *key == take.key) {
            Some(at) => at,
            None => {
                self.0.push((take.key, read(take.limit, bytes)?));
                self.0.len() - 1
            }
        };
        Ok(&mut self.0[at].1)
    }
}
