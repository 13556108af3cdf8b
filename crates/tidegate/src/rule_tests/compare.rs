//! What came out, beside what was expected.

use tidegate_config::{Expect, Span, Spanned};
use tidegate_core::{Fate, Limit, Micros, Outcome, Role, Rule, Verdict};
use tidegate_server::Decision;

/// The name of a limit that the request brought.
const REQUEST: &str = "request";

/// Something that is not as expected.
pub(crate) struct Wrong {
    pub(crate) at: Span,
    /// What it is, with a blank behind it; empty for the answer itself.
    pub(crate) name: &'static str,
    pub(crate) expected: String,
    pub(crate) was: String,
}

/// A limit that was asked, and what it said.
#[derive(Clone, Copy)]
pub(crate) struct Told<'d> {
    pub(crate) rule: Option<&'d Rule>,
    pub(crate) limit: &'d Limit,
    pub(crate) role: Role,
    pub(crate) verdict: &'d Verdict,
}

impl<'d> Told<'d> {
    /// What the take with this number said.
    pub(crate) fn take(decision: &'d Decision<'_>, take: usize) -> Option<Self> {
        let (planned, answer) = (decision.plan.takes().get(take)?, decision.answers.get(take)?);
        let limit = decision.plan.limit(planned);
        Some(Self { rule: planned.rule, limit, role: planned.role, verdict: &answer.verdict })
    }

    /// What speaks for the whole request.
    pub(crate) fn of(decision: &'d Decision<'_>) -> Option<Self> {
        Self::take(decision, decision.told()?)
    }
}

/// All that is not as expected, in the order of the table.
pub(crate) fn compare(expect: &Expect, decision: &Decision<'_>) -> Vec<Wrong> {
    let told = Told::of(decision);
    let verdict = told.map(|told| told.verdict);
    let mut all = Vec::new();
    let answer = |allowed: &bool| if *allowed { "allowed" } else { "refused" }.to_string();
    differ(&mut all, &expect.allowed, decision.admitted, "", answer);

    let outcome = verdict.map(|verdict| verdict.outcome).filter(|_| !decision.admitted);
    differ(&mut all, &some(&expect.code), outcome, "code ", |code| code.map_or("none", code_word).into());

    if let Some(expected) = &expect.rule {
        let was = told.map(|told| name_of(told.rule));
        let same = match (&expected.value, told) {
            (Some(name), Some(told)) => is_called(told.rule, name),
            (expected, told) => expected.is_none() && told.is_none(),
        };
        if !same {
            let show = |name: Option<&str>| name.unwrap_or("none").to_string();
            let (at, expected) = (expected.span, show(expected.value.as_deref()));
            all.push(Wrong { at, name: "rule ", expected, was: show(was) });
        }
    }

    let number = |number: &Option<u64>| number.map_or("none".into(), |number| number.to_string());
    let of = |number: fn(&Verdict) -> u32| verdict.map(|verdict| u64::from(number(verdict)));
    differ(&mut all, &some(&expect.remaining), of(|verdict| verdict.remaining), "remaining ", number);
    differ(&mut all, &some(&expect.limit), of(|verdict| verdict.limit), "limit ", number);

    let wait = |wait: &Option<Micros>| wait.map_or("none".into(), |wait| wait.to_string());
    let retry_after = verdict.and_then(|verdict| verdict.retry_after);
    differ(&mut all, &expect.retry_after, retry_after, "retry_after ", wait);
    differ(&mut all, &some(&expect.reset), verdict.map(|verdict| verdict.reset), "reset ", wait);

    differ_in_names(&mut all, &expect.counted, "counted ", || counted(decision));
    differ_in_names(&mut all, &expect.shadow_refused, "shadow_refused ", || shadow_refused(decision));
    all
}

fn some<T: Copy>(expected: &Option<Spanned<T>>) -> Option<Spanned<Option<T>>> {
    expected.map(|expected| expected.map(Some))
}

fn differ<T: PartialEq>(
    all: &mut Vec<Wrong>,
    expected: &Option<Spanned<T>>,
    was: T,
    name: &'static str,
    show: impl Fn(&T) -> String,
) {
    let Some(expected) = expected.as_ref().filter(|expected| expected.value != was) else { return };
    all.push(Wrong { at: expected.span, name, expected: show(&expected.value), was: show(&was) });
}

/// Every name has to mean one of the limits, and every limit has to have been named.
fn differ_in_names<'d>(
    all: &mut Vec<Wrong>,
    expected: &Option<Spanned<Vec<String>>>,
    name: &'static str,
    was: impl FnOnce() -> Vec<Option<&'d Rule>>,
) {
    let Some(expected) = expected else { return };
    let (names, was) = (&expected.value, was());
    let all_there = names.iter().all(|name| was.iter().any(|rule| is_called(*rule, name)));
    if all_there && was.iter().all(|rule| names.iter().any(|name| is_called(*rule, name))) {
        return;
    }
    let show = |names: Vec<&str>| format!("[{}]", names.join(", "));
    all.push(Wrong {
        at: expected.span,
        name,
        expected: show(names.iter().map(String::as_str).collect()),
        was: show(was.into_iter().map(name_of).collect()),
    });
}

/// The limits that were asked; none stands for one that the request brought.
fn counted<'d>(decision: &'d Decision<'_>) -> Vec<Option<&'d Rule>> {
    let counted = decision.plan.found().iter().filter(|found| matches!(found.fate, Fate::Counted(_)));
    counted.map(|found| found.rule).collect()
}

fn shadow_refused<'d>(decision: &'d Decision<'_>) -> Vec<Option<&'d Rule>> {
    let takes = (0..decision.answers.len()).filter_map(|take| Told::take(decision, take));
    takes.filter(|take| take.role == Role::Shadow && !take.verdict.admitted()).map(|take| take.rule).collect()
}

/// Is this a name of the limit: its id, or what stands behind the `#` of its id?
pub(crate) fn is_called(rule: Option<&Rule>, text: &str) -> bool {
    let Some(rule) = rule else { return text == REQUEST };
    rule.id.strip_suffix(text).is_some_and(|before| before.is_empty() || before.ends_with('#'))
}

/// The name of a limit; without one, its algorithm and window.
pub(crate) fn name_of(rule: Option<&Rule>) -> &str {
    rule.map_or(REQUEST, |rule| rule.id.rsplit('#').next().unwrap_or_default())
}

pub(crate) fn code_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Admitted => "none",
        Outcome::RateLimited => "RATE_LIMITED",
        Outcome::CostExceedsLimit => "COST_EXCEEDS_LIMIT",
        Outcome::NotHeld => "NOT_HELD",
    }
}
