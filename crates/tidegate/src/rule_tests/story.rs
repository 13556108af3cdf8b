//! A failure, told: what was expected and what was, when, and what became of every limit that was found.

use tidegate_config::{AskStep, Code, Diagnostic, Expect, RuleTest, nearest, quoted};
use tidegate_core::{Book, Fate, Found, Micros, Role, Rule};
use tidegate_server::Decision;

use super::compare::{Told, Wrong, code_word, is_called, name_of};

/// How many of the limits that were found are told.
const FOUND_SHOWN: usize = 8;

/// Where in a test something happened.
pub(super) struct Scene<'t> {
    pub(super) test: &'t RuleTest,
    /// Which step, from 1.
    pub(super) step: usize,
    pub(super) ask: &'t AskStep,
    /// Which of the times that the step asks, from 1.
    pub(super) time: u64,
    pub(super) since_start: Micros,
}

impl Scene<'_> {
    /// What is told about the differences, of which there is one at least.
    pub(super) fn tell(
        &self,
        expect: &Expect,
        wrong: &[Wrong],
        decision: &Decision<'_>,
        book: &Book,
    ) -> Diagnostic {
        let differences: Vec<String> = wrong
            .iter()
            .map(|Wrong { name, expected, was, .. }| format!("expected {name}{expected}, was {was}"))
            .collect();
        let message = format!("{}: {}", differences.join("; "), summary(decision));
        let trouble = match wrong.first() {
            Some(first) => {
                Diagnostic::new(Code::TestFailed, first.at, message).label(format!("was {}", first.was))
            }
            None => Diagnostic::nowhere(Code::TestFailed, message),
        };
        let times = match self.ask.times {
            1 => String::new(),
            times => format!(", time {} of {times}", self.time),
        };
        let (test, step, after) = (quoted(&self.test.name.value), self.step, self.since_start);
        let mut trouble = trouble
            .fact(format!("test {test}, step {step}{times}, {after} after the start"))
            .fact(format!("asked {}", self.asked()));
        let found = decision.plan.found();
        for found in found.iter().take(FOUND_SHOWN) {
            trouble = trouble.fact(fate(found, decision));
        }
        if found.len() > FOUND_SHOWN {
            trouble = trouble.fact(format!("and {} more limits", found.len() - FOUND_SHOWN));
        }
        Diagnostic { help: unknown_name(expect, book).map(Into::into), ..trouble }
    }

    fn asked(&self) -> String {
        let entries = |descriptor: &Vec<(String, String)>| {
            descriptor.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
        };
        let mut text = self.ask.descriptors.iter().map(entries).collect::<Vec<_>>().join(" and ");
        if self.ask.costs.iter().any(|cost| *cost != 1) {
            let costs: Vec<String> = self.ask.costs.iter().map(ToString::to_string).collect();
            text += &format!("; cost {}", costs.join(" and "));
        }
        if let Some(limit) = self.ask.limit {
            text += &format!("; limit {}/{}", limit.amount, limit.window);
        }
        text
    }
}

/// What was told, and by which limit.
fn summary(decision: &Decision<'_>) -> String {
    match Told::of(decision) {
        Some(told) => format!("{} ({}, {})", numbers(told), id(told.rule), told.limit),
        None if decision.plan.exempt() => "the caller is exempt".into(),
        None if decision.plan.refused() => "the limit of the request cannot be counted".into(),
        None if decision.plan.found().is_empty() => "no rule was found".into(),
        None => "nothing was counted that could refuse".into(),
    }
}

/// What became of a limit that was found.
fn fate(found: &Found<'_>, decision: &Decision<'_>) -> String {
    let word = match found.fate {
        Fate::Counted(take) => match Told::take(decision, take) {
            Some(told) => {
                let role = match told.role {
                    Role::Enforce => "",
                    Role::Shadow => "in shadow, ",
                    Role::Quota => "in quota mode, ",
                };
                let passed = if told.verdict.admitted() { "passed" } else { "refused" };
                return format!("{} ({}): {role}{passed}, {}", id(found.rule), told.limit, numbers(told));
            }
            None => "not asked",
        },
        Fate::Open => "not asked",
        Fate::Unlimited => "unlimited",
        Fate::Replaced => "replaced by another",
        Fate::Disabled => "disabled",
        Fate::Exempt => "the caller is exempt",
        Fate::RefundIgnored => "refunds are not applied in this domain",
        Fate::Impossible => "cannot be counted",
    };
    format!("{}: {word}", id(found.rule))
}

fn numbers(told: Told<'_>) -> String {
    let verdict = told.verdict;
    let room = format!("{} of {} remaining", verdict.remaining, verdict.limit);
    match (verdict.admitted(), verdict.retry_after) {
        (true, _) => room,
        (false, Some(wait)) => format!("{room}, retry after {wait}"),
        (false, None) => format!("{room}, {} whatever the wait", code_word(verdict.outcome)),
    }
}

fn id(rule: Option<&Rule>) -> &str {
    rule.map_or("the limit of the request", |rule| &rule.id)
}

/// A name that no rule has is the first thing to mend.
fn unknown_name(expect: &Expect, book: &Book) -> Option<String> {
    let told = expect.rule.as_ref().and_then(|rule| rule.value.as_ref());
    let lists = [&expect.counted, &expect.shadow_refused].into_iter().flatten().flat_map(|list| &list.value);
    let known =
        |text: &str| is_called(None, text) || book.rules().iter().any(|rule| is_called(Some(rule), text));
    let unknown = told.into_iter().chain(lists).find(|text| !known(text))?;
    let near = nearest(unknown, book.rules().iter().map(|rule| name_of(Some(rule))));
    let advice = near.map_or_else(
        || "`tidegate config show` lists them all".to_string(),
        |near| format!("did you mean `{near}`?"),
    );
    Some(format!("no rule is called {}; {advice}", quoted(unknown)))
}
