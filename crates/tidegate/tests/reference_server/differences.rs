//! Where ours differs from the reference server, on purpose: the one list. Start at [`DIFFERENCES`].
//!
//! A row does not excuse an answer. It turns what the reference server did into what ours has to do, so that nothing else may differ
//! at the same time.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::answers::{Answer, OVER_LIMIT, Reset, Status};

/// A row of the list.
pub(crate) struct Difference {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
    rewrite: fn(&Step, &mut Outcome),
}

/// All rows, in the order in which they are applied.
pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        name: "a quota that is spent is told",
        reason: "the pinned version answers OK without a reset for it, and never refuses; since then it tells OVER_LIMIT, and refuses \
                 a request all of whose quotas are spent",
        rewrite: quotas_are_told,
    },
    Difference {
        name: "a peek at the limit is refused",
        reason: "nothing is left, and the next request would be refused; there it is told only once the count is past the limit, \
                 where ours never gets",
        rewrite: peek_at_the_limit,
    },
    Difference {
        name: "a refused request charges nothing",
        reason: "all or nothing: there every descriptor is counted before any is judged, so that what is refused uses up the others",
        rewrite: all_or_nothing,
    },
    Difference {
        name: "what is left is told",
        reason: "a cost that does not fit takes nothing, so that what was left still is, and a smaller one would pass; there it is burnt",
        rewrite: what_is_left_is_told,
    },
    Difference {
        name: "what does not fit is not charged",
        reason: "a shadow or quota limit that refuses would have refused: there its counter grows past the limit, and a raised limit \
                 stays closed",
        rewrite: misfits_are_not_charged,
    },
    Difference {
        name: "a descriptor's own hits are charged to a debt of one limit",
        reason: "they report what was used already, so they count whatever the verdict is; without a bound one report could lock a \
                 caller out for ever",
        rewrite: debts_are_bounded,
    },
    Difference {
        name: "a peek leaves no counter",
        reason: "there it writes a 0, with a time to live",
        rewrite: peeks_leave_nothing,
    },
    Difference {
        name: "metadata of quotas",
        reason: "the pinned version has two fields that later ones have not",
        rewrite: quota_metadata,
    },
];

/// One request, and what is known about it.
#[derive(Debug)]
pub(crate) struct Step {
    /// The limit that counts for each descriptor.
    pub(crate) takes: Vec<Option<Take>>,
    /// The counters before, by name without prefix.
    pub(crate) before: Counters,
    pub(crate) is_shadow: bool,
}

/// One limit of a request.
#[derive(Clone, Debug)]
pub(crate) struct Take {
    pub(crate) counter: String,
    pub(crate) hits: u64,
    /// The hits are the descriptor's own, and not the request's.
    pub(crate) is_own: bool,
    pub(crate) amount: u64,
    pub(crate) end: u64,
    pub(crate) is_shadow: bool,
    pub(crate) is_quota: bool,
}

pub(crate) type Counters = BTreeMap<String, u64>;

/// What came of it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Outcome {
    pub(crate) answer: Answer,
    pub(crate) counters: Counters,
    /// Stats by which ours has to be ahead.
    pub(crate) ahead: BTreeMap<&'static str, i64>,
}

impl Outcome {
    pub(crate) fn new(answer: Answer, counters: Counters) -> Self {
        Self { answer, counters, ahead: BTreeMap::new() }
    }
}

impl Step {
    /// What ours has to do where the reference server did this, and which rows that is due to.
    pub(crate) fn expected(
        &self,
        theirs: &Outcome,
        differences: &'static [Difference],
    ) -> (Outcome, Vec<&'static str>) {
        let mut expected = theirs.clone();
        let mut applied = Vec::new();
        for difference in differences {
            let before = expected.clone();
            (difference.rewrite)(self, &mut expected);
            if expected != before {
                applied.push(difference.name);
            }
        }
        if let Answer::Decided { statuses, headers, .. } = &mut expected.answer {
            self.write_headers(statuses, headers);
        }
        (expected, applied)
    }

    /// For people: what counted, and what was used of it before.
    pub(crate) fn told(&self) -> String {
        let takes = self.takes.iter().flatten();
        takes.map(|take| format!("  used {} of {take:?}\n", self.used(take))).collect()
    }

    fn used(&self, take: &Take) -> u64 {
        self.before.get(&take.counter).copied().unwrap_or(0)
    }

    fn fits(&self, take: &Take) -> bool {
        self.used(take) + take.hits.max(1) <= take.amount
    }

    fn takes<'a>(&'a self, statuses: &'a mut [Status]) -> impl Iterator<Item = (&'a Take, &'a mut Status)> {
        self.takes.iter().zip(statuses).filter_map(|(take, status)| take.as_ref().map(|take| (take, status)))
    }

    /// A limit that enforces is over, or all quotas are.
    fn is_refused(&self) -> bool {
        let takes = || self.takes.iter().flatten().filter(|take| !take.is_shadow);
        let mut quotas = takes().filter(|take| take.is_quota).peekable();
        takes().any(|take| !take.is_quota && !self.fits(take))
            || quotas.peek().is_some() && quotas.all(|take| !self.fits(take))
    }

    /// There, what is counted past its limit refuses, unless it is a quota.
    fn is_refused_there(&self) -> bool {
        let mut takes = self.takes.iter().flatten().filter(|take| !take.is_shadow && !take.is_quota);
        takes.any(|take| self.used(take) + take.hits > take.amount)
    }

    fn leave_as_it_was(&self, take: &Take, counters: &mut Counters) {
        match self.before.get(&take.counter) {
            Some(count) => counters.insert(take.counter.clone(), *count),
            None => counters.remove(&take.counter),
        };
    }

    /// Headers are made from the statuses: of the one with the least remaining, else of the last that is over and no quota.
    pub(crate) fn write_headers(&self, statuses: &[Status], headers: &mut [(String, String)]) {
        let [(_, limit), (_, remaining), (_, reset)] = headers else { return };
        let limited = statuses.iter().zip(&self.takes).filter(|(status, _)| status.limit.is_some());
        let least = limited.clone().min_by_key(|(status, _)| status.remaining);
        let mut over = limited.filter(|(status, take)| {
            status.code == OVER_LIMIT && take.as_ref().is_some_and(|take| !take.is_quota)
        });
        let Some((status, take)) = over.next_back().or(least) else { return };
        *limit = status.limit.as_ref().map_or(0, |limit| limit.amount).to_string();
        *remaining = status.remaining.to_string();
        *reset = take.as_ref().map_or(String::new(), |take| format!("at {}", take.end));
    }
}

/// Where a whole node is in shadow mode, a refusal only shows in a stat.
const SHADOWED: &str = "ratelimit.service.global_shadow_mode";

fn refuse(step: &Step, outcome: &mut Outcome) {
    let Answer::Decided { http, overall, .. } = &mut outcome.answer else { return };
    if !step.is_shadow {
        *overall = OVER_LIMIT;
        *http = http.map(|_| 429);
    } else if !step.is_refused_there() {
        outcome.ahead.insert(SHADOWED, 1);
    }
}

fn quotas_are_told(step: &Step, outcome: &mut Outcome) {
    let Answer::Decided { statuses, .. } = &mut outcome.answer else { return };
    for (take, status) in step.takes(statuses).filter(|(take, _)| take.is_quota) {
        if step.used(take) + take.hits > take.amount {
            *status = Status { code: OVER_LIMIT, reset: Reset::At(take.end), ..status.clone() };
        }
    }
    if step.is_refused() && step.takes.iter().flatten().any(|take| take.is_quota && !step.fits(take)) {
        refuse(step, outcome);
    }
}

fn peek_at_the_limit(step: &Step, outcome: &mut Outcome) {
    let Answer::Decided { statuses, .. } = &mut outcome.answer else { return };
    for (take, status) in step.takes(statuses) {
        if take.hits == 0 && !step.fits(take) && !take.is_shadow {
            status.code = OVER_LIMIT;
        }
    }
    if step.is_refused() {
        refuse(step, outcome);
    }
}

fn all_or_nothing(step: &Step, outcome: &mut Outcome) {
    let Answer::Decided { statuses, .. } = &mut outcome.answer else { return };
    if !step.is_refused() {
        return;
    }
    for (take, status) in step.takes(statuses).filter(|(take, _)| !take.is_charged_always()) {
        step.leave_as_it_was(take, &mut outcome.counters);
        if step.fits(take) {
            status.remaining = (take.amount - step.used(take)) as u32;
        }
    }
}

fn what_is_left_is_told(step: &Step, outcome: &mut Outcome) {
    let Answer::Decided { statuses, .. } = &mut outcome.answer else { return };
    for (take, status) in step.takes(statuses) {
        if !step.fits(take) && !take.is_charged_always() {
            status.remaining = take.amount.saturating_sub(step.used(take)) as u32;
        }
    }
}

fn misfits_are_not_charged(step: &Step, outcome: &mut Outcome) {
    if step.is_refused() {
        return;
    }
    let misfits = step.takes.iter().flatten().filter(|take| !step.fits(take) && !take.is_charged_always());
    misfits.for_each(|take| step.leave_as_it_was(take, &mut outcome.counters));
}

fn debts_are_bounded(step: &Step, outcome: &mut Outcome) {
    for take in step.takes.iter().flatten().filter(|take| take.is_charged_always()) {
        let bound = (2 * take.amount).max(step.used(take));
        if let Some(count) = outcome.counters.get_mut(&take.counter) {
            *count = (*count).min(bound);
        }
        if outcome.counters.get(&take.counter) == Some(&0) {
            step.leave_as_it_was(take, &mut outcome.counters);
        }
    }
}

fn peeks_leave_nothing(step: &Step, outcome: &mut Outcome) {
    for take in step.takes.iter().flatten().filter(|take| take.hits == 0) {
        step.leave_as_it_was(take, &mut outcome.counters);
    }
}

fn quota_metadata(_: &Step, outcome: &mut Outcome) {
    let Answer::Decided { metadata: Value::Object(fields), .. } = &mut outcome.answer else { return };
    fields.remove("quotaModeViolations");
    fields.remove("quotaModeEnabled");
}

impl Take {
    fn is_charged_always(&self) -> bool {
        self.is_own && self.hits > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::{Limit, OK};
    use crate::rules::MINUTE;

    const END: u64 = 1_800_000_060;

    fn take(counter: &str, amount: u64, hits: u64) -> Take {
        let counter = counter.to_string();
        Take { counter, hits, is_own: false, amount, end: END, is_shadow: false, is_quota: false }
    }

    /// What the reference server does with these takes, by its own arithmetic: counts them, then looks.
    fn theirs(step: &Step) -> Outcome {
        let mut counters = step.before.clone();
        let statuses = step.takes.iter().flatten().map(|take| {
            let count = counters.entry(take.counter.clone()).or_default();
            *count += take.hits;
            let (over, quota) = (*count > take.amount, take.is_quota);
            Status {
                code: if over && !take.is_shadow && !quota { OVER_LIMIT } else { OK },
                limit: Some(Limit { amount: take.amount as u32, unit: MINUTE, name: String::new() }),
                remaining: take.amount.saturating_sub(*count) as u32,
                reset: if over && quota { Reset::Untold } else { Reset::At(END) },
            }
        });
        let statuses: Vec<Status> = statuses.collect();
        let overall = statuses.iter().map(|status| status.code).max().unwrap_or(OK);
        let (http, headers, metadata) = (None, Vec::new(), Value::Null);
        Outcome::new(Answer::Decided { http, overall, statuses, headers, metadata }, counters)
    }

    /// A name; takes with what was used before; what ours has to answer: overall, codes, remaining; and what is used after.
    type Case<'a> = (&'a str, &'a [(Take, u64)], i32, &'a [i32], &'a [u32], &'a [u64]);

    #[test]
    fn each_row_turns_what_they_do_into_what_ours_does() {
        let shadow = |take: Take| Take { is_shadow: true, ..take };
        let quota = |take: Take| Take { is_quota: true, ..take };
        let own = |take: Take| Take { is_own: true, ..take };
        let cases: [Case<'_>; 11] = [
            ("fits", &[(take("a", 10, 1), 4)], OK, &[OK], &[5], &[5]),
            ("does not fit", &[(take("a", 10, 5), 8)], OVER_LIMIT, &[OVER_LIMIT], &[2], &[8]),
            (
                "one of two",
                &[(take("a", 20, 1), 10), (take("b", 10, 1), 10)],
                OVER_LIMIT,
                &[OK, OVER_LIMIT],
                &[10, 0],
                &[10, 10],
            ),
            ("a peek at the limit", &[(take("a", 10, 0), 10)], OVER_LIMIT, &[OVER_LIMIT], &[0], &[10]),
            ("a peek below it", &[(take("a", 10, 0), 9)], OK, &[OK], &[1], &[9]),
            (
                "a peek beside a charge",
                &[(take("a", 10, 0), 10), (take("b", 10, 1), 0)],
                OVER_LIMIT,
                &[OVER_LIMIT, OK],
                &[0, 10],
                &[10, 0],
            ),
            (
                "shadow",
                &[(shadow(take("a", 1, 1)), 1), (take("b", 9, 1), 0)],
                OK,
                &[OK, OK],
                &[0, 8],
                &[1, 1],
            ),
            (
                "one quota of two",
                &[(quota(take("a", 1, 1)), 1), (quota(take("b", 2, 1)), 0)],
                OK,
                &[OVER_LIMIT, OK],
                &[0, 1],
                &[1, 1],
            ),
            (
                "all quotas",
                &[(quota(take("a", 1, 1)), 1), (quota(take("b", 2, 1)), 2)],
                OVER_LIMIT,
                &[OVER_LIMIT; 2],
                &[0, 0],
                &[1, 2],
            ),
            ("own hits", &[(own(take("a", 10, 5)), 8)], OVER_LIMIT, &[OVER_LIMIT], &[0], &[13]),
            (
                "own hits beyond the debt",
                &[(own(take("a", 10, 50)), 8), (take("b", 5, 1), 0)],
                OVER_LIMIT,
                &[OVER_LIMIT, OK],
                &[0, 5],
                &[20, 0],
            ),
        ];
        for (name, takes, overall, codes, remaining, after) in cases {
            let before = takes.iter().filter(|(_, used)| *used > 0);
            let before = before.map(|(take, used)| (take.counter.clone(), *used)).collect();
            let step = Step {
                takes: takes.iter().map(|(take, _)| Some(take.clone())).collect(),
                before,
                is_shadow: false,
            };
            let (ours, _) = step.expected(&theirs(&step), DIFFERENCES);
            let Answer::Decided { overall: answered, statuses, .. } = &ours.answer else {
                panic!("{ours:?}")
            };
            assert_eq!(*answered, overall, "{name}");
            assert_eq!(statuses.iter().map(|status| status.code).collect::<Vec<_>>(), codes, "{name}");
            assert_eq!(
                statuses.iter().map(|status| status.remaining).collect::<Vec<_>>(),
                remaining,
                "{name}"
            );
            assert!(statuses.iter().all(|status| status.reset == Reset::At(END)), "{name}");
            let used = takes.iter().map(|(take, _)| ours.counters.get(&take.counter).copied().unwrap_or(0));
            assert_eq!(used.collect::<Vec<_>>(), after, "{name}");
            assert!(ours.counters.values().all(|used| *used > 0), "{name}: nothing is written for nothing");
        }
    }

    #[test]
    fn every_row_has_a_reason_that_is_a_sentence() {
        for row in DIFFERENCES {
            assert!(row.reason.len() > 20 && !row.reason.ends_with('.'), "{}: {}", row.name, row.reason);
        }
    }
}
