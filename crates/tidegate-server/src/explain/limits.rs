//! What became of each limit that was found, and what its counter says.

use std::collections::HashMap;

use tidegate_core::{
    Algorithm, Ask, Bound, Fate, Found, Limit, Outcome, Planned, Query, Role, Rule, RuleState, Verdict,
};
use tidegate_counters::{Inspection, Mode, Rehearsed};

use super::walk::Walks;
use super::words::{self, called, count, ms_up, name, shown};
use super::{ExplainedBound, ExplainedCounter, ExplainedLimit, ExplainedState, LimitFate};
use crate::decide::Decision;

/// One limit, however many descriptors found it.
struct Group<'d> {
    /// The first finding.
    found: &'d Found<'d>,
    /// All descriptors that found it.
    found_by: Vec<usize>,
    always: bool,
}

/// Every limit that was found, in the order of the plan.
pub(super) fn explained(
    decision: &Decision<'_>,
    rehearsed: &[Rehearsed],
    query: &Query<'_>,
    walks: &Walks,
) -> Vec<ExplainedLimit> {
    groups(decision).iter().map(|group| group.explained(decision, rehearsed, query, walks)).collect()
}

/// The limit of a take: counters are asked in the order in which their limits were found.
pub(super) fn of_take(limits: &[ExplainedLimit], take: usize) -> Option<usize> {
    let mut counted = limits.iter().enumerate().filter(|(_, limit)| limit.counter.is_some());
    counted.nth(take).map(|(at, _)| at)
}

fn groups<'d>(decision: &'d Decision<'_>) -> Vec<Group<'d>> {
    let mut groups: Vec<Group<'d>> = Vec::new();
    let mut places = HashMap::new();
    for (at, found) in decision.plan.found().iter().enumerate() {
        // What is counted is one limit if it is one counter; else if it is one rule. A limit that a request brought has none.
        let of = match (found.fate, found.rule) {
            (Fate::Counted(_), _) => None,
            (_, Some(rule)) => Some(Ok(rule.number)),
            (_, None) => Some(Err(at)),
        };
        let place = *places.entry((found.fate, of)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Group { found, found_by: Vec::new(), always: false });
        }
        let group = &mut groups[place];
        group.found_by.extend(found.descriptor.filter(|at| !group.found_by.contains(at)));
        group.always |= found.descriptor.is_none();
    }
    groups
}

impl Group<'_> {
    fn explained(
        &self,
        decision: &Decision<'_>,
        rehearsed: &[Rehearsed],
        query: &Query<'_>,
        walks: &Walks,
    ) -> ExplainedLimit {
        let (plan, found) = (decision.plan, self.found);
        let asked = match found.fate {
            Fate::Counted(take) => Some((take, &plan.takes()[take])),
            _ => None,
        };
        // Where tiers give different numbers for one counter, the smallest was asked.
        let rule = asked.map_or(found.rule, |(_, planned)| planned.rule);
        let limit = match asked {
            Some((_, planned)) => Some(plan.limit(planned)),
            None => rule.and_then(|rule| rule.said.limit.as_ref()),
        };
        let asked = asked.zip(limit).and_then(|((take, planned), limit)| {
            let verdict = decision.answers.get(take)?;
            Some(Asked {
                planned,
                limit,
                verdict: &verdict.verdict,
                mode: verdict.mode,
                seen: rehearsed.get(take)?,
            })
        });
        let own = found.descriptor.and_then(|at| query.descriptors.get(at)?.limit);
        let (fate, says) = match (found.fate, &asked) {
            (Fate::Counted(_), Some(asked)) => (LimitFate::Counted, asked.says(decision.admitted)),
            (Fate::Counted(_) | Fate::Open, _) => {
                (LimitFate::NotAsked, "its counter was not asked".to_owned())
            }
            (Fate::Unlimited, _) => (LimitFate::Unlimited, "it says that there is no limit".to_owned()),
            (Fate::Replaced, _) => (LimitFate::Replaced, replaced(plan.replaced_by(found))),
            (Fate::Disabled, _) => {
                let by_hand = rule.is_some_and(|rule| rule.state.is_some());
                let how = if by_hand { "by hand" } else { "(`disabled: true`)" };
                (LimitFate::Disabled, format!("it is switched off {how}"))
            }
            (Fate::Exempt, _) => {
                let why = walks.exempt(found.descriptor, found.rule).unwrap_or("whoever asks is exempt");
                (LimitFate::Exempt, why.to_owned())
            }
            (Fate::RefundIgnored, _) => (
                LimitFate::RefundIgnored,
                "the request gives back, and its domain does not say `allow_refunds: true`".to_owned(),
            ),
            (Fate::Impossible, _) => {
                let why = plan.domain().zip(own).and_then(|(domain, own)| domain.own_limit(own).err());
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                (LimitFate::Impossible, format!("it cannot be counted{why}"))
            }
        };
        let own = own.filter(|_| rule.is_none()).map(|own| format!("{}/{}", own.amount, own.window));
        ExplainedLimit {
            rule: rule.map(|rule| shown(&rule.id)),
            name: name(rule, limit),
            tier: rule.and_then(|rule| rule.tier.as_deref()).map(shown),
            written: rule.and_then(words::written),
            limit: limit.map(ToString::to_string).or(own),
            found_by: self.found_by.clone(),
            always: self.always,
            fate,
            says,
            counter: asked.map(|asked| asked.counter()),
        }
    }
}

fn replaced(by: Option<&Rule>) -> String {
    let Some(by) = by else { return "another limit replaces it".to_owned() };
    let written = words::written(by).map_or_else(String::new, |written| format!(" ({written})"));
    format!("{}{written} replaces it", called(&name(Some(by), by.said.limit.as_ref())))
}

/// A counter that was asked.
struct Asked<'d> {
    planned: &'d Planned<'d>,
    limit: &'d Limit,
    verdict: &'d Verdict,
    mode: Mode,
    seen: &'d Rehearsed,
}

impl Asked<'_> {
    /// What its answer means, and why it is so.
    fn says(&self, request_admitted: bool) -> String {
        let word = match (self.verdict.admitted(), self.planned.role, request_admitted) {
            (true, _, true) => "passes",
            (true, _, false) => "would pass",
            (false, Role::Enforce, _) => "refuses",
            (false, Role::Shadow, _) => "would refuse",
            (false, Role::Quota, true) => "has no room, but another limit in quota mode has",
            (false, Role::Quota, false) => "has no room",
        };
        format!("{word}: {}", self.facts(request_admitted))
    }

    fn facts(&self, request_admitted: bool) -> String {
        let Verdict { outcome, applied, .. } = *self.verdict;
        let used = self.used();
        match (outcome, self.planned.ask) {
            (Outcome::Admitted, Ask::Peek) => format!("{used}, and a peek takes nothing"),
            (Outcome::Admitted, Ask::Refund { .. } | Ask::Release { .. } | Ask::Settle { .. }) => {
                match applied {
                    0 => format!("{used}, and there is nothing to give back"),
                    _ => format!("{used}, and the request gives back {}", applied.unsigned_abs()),
                }
            }
            (Outcome::Admitted, Ask::Acquire { .. }) if request_admitted && applied == 0 => {
                format!("{used}, and the request holds some of them and keeps them")
            }
            (Outcome::Admitted, _) => format!("{used}, and the request takes {}", self.cost()),
            (Outcome::RateLimited, _) if self.limit.capacity() == 0 => "it allows nothing".to_owned(),
            (Outcome::RateLimited, Ask::Peek) => format!("{used}, and a peek needs room for 1"),
            (Outcome::RateLimited, _) => format!("{used}, and the request takes {}", self.cost()),
            (Outcome::CostExceedsLimit, _) => {
                let capacity = self.limit.capacity();
                format!("the cost {} is above what it can ever hold, {capacity}", self.cost())
            }
            (Outcome::NotHeld, _) => "the places are not held any more".to_owned(),
        }
    }

    /// How full it is, before the request.
    fn used(&self) -> String {
        let (used, capacity) = (self.seen.before.used, self.limit.capacity());
        match self.limit.algorithm() {
            Algorithm::Concurrency => format!("{used} of {capacity} places are taken"),
            _ => format!("{used} of {capacity} are used"),
        }
    }

    fn cost(&self) -> u64 {
        match self.planned.ask {
            Ask::Charge { cost } | Ask::Acquire { cost, .. } => cost,
            Ask::Refund { units, .. } => units,
            Ask::Settle { actual, .. } => actual,
            Ask::Peek | Ask::Renew { .. } | Ask::Release { .. } => 0,
        }
    }

    fn asked(&self) -> String {
        match self.planned.ask {
            Ask::Charge { cost } => format!("to charge {cost}"),
            Ask::Acquire { cost, .. } => format!("for {} under an id", count_of(cost, "place")),
            Ask::Peek => "for a peek".to_owned(),
            Ask::Refund { units, .. } => format!("to take back {units}"),
            Ask::Release { .. } => "to take back the places of an id".to_owned(),
            Ask::Renew { .. } => "to keep the places of an id".to_owned(),
            Ask::Settle { actual, .. } => format!("to settle at {actual}"),
        }
    }

    fn counter(&self) -> ExplainedCounter {
        let verdict = self.verdict;
        let (role, role_says) = role(self.planned);
        ExplainedCounter {
            key: self.planned.key.to_string(),
            role: role.to_owned(),
            role_says,
            asked: self.asked(),
            cost: self.cost(),
            admitted: verdict.admitted(),
            code: words::code(verdict.outcome).map(str::to_owned),
            amount: self.limit.amount(),
            capacity: self.limit.capacity(),
            before: state(&self.seen.before),
            after: state(&self.seen.after),
            charged: verdict.applied,
            forgiven: verdict.forgiven,
            retry_after_ms: verdict.retry_after.map(ms_up),
            reset_ms: ms_up(verdict.reset),
            bound: bound(verdict.bound, self.limit, self.mode),
            mode: self.mode.name().to_owned(),
        }
    }
}

fn count_of(many: u64, word: &str) -> String {
    count(usize::try_from(many).unwrap_or(usize::MAX), word)
}

fn role(planned: &Planned<'_>) -> (&'static str, Option<String>) {
    let rule = planned.rule;
    match planned.role {
        Role::Enforce => ("enforce", None),
        Role::Quota => ("quota", Some("in quota mode: of all such limits one has to pass".to_owned())),
        Role::Shadow => {
            let by_hand = rule.is_some_and(|rule| rule.state.is_some());
            let says = match rule.map(Rule::state) {
                None | Some(RuleState::Shadow | RuleState::Disabled) if by_hand => {
                    "put in shadow by hand: it counts, and never decides".to_owned()
                }
                None | Some(RuleState::Shadow | RuleState::Disabled) => {
                    "in shadow: it counts, and never decides".to_owned()
                }
                Some(RuleState::Enforce(share)) => {
                    let percent = f64::from(share.basis_points()) / 100.0;
                    format!(
                        "in shadow for this caller: it is enforced for {percent}% of callers, and not for this one"
                    )
                }
            };
            ("shadow", Some(says))
        }
    }
}

fn state(seen: &Inspection) -> ExplainedState {
    ExplainedState { stored: seen.stored, used: seen.used, remaining: seen.verdict.remaining }
}

fn bound(Bound { over, under }: Bound, limit: &Limit, mode: Mode) -> ExplainedBound {
    let where_so = if mode == Mode::Local { ", on this node" } else { "" };
    let says = match (over, under) {
        (0, 0) => format!("this answer is exact{where_so}"),
        _ => format!("this answer may be off by at most +{over}/-{under} of {}{where_so}", limit.amount()),
    };
    ExplainedBound { over, under, says }
}
