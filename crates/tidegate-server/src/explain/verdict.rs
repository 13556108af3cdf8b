//! The answer in one sentence: what decides, and why.

use tidegate_config::quoted;

use super::words::{called, list, places, span};
use super::{ExplainedCounter, ExplainedDescriptor, ExplainedLimit, Explanation, LimitFate};
use crate::decide::{Decision, TAKES_MAX};

/// How many limits a sentence names.
const NAMED: usize = 3;

/// A limit that was asked, and what its counter says.
type Counted<'e> = (&'e ExplainedLimit, &'e ExplainedCounter);

/// Why a request is admitted or refused.
pub(super) fn why(explained: &Explanation, decision: &Decision<'_>, reasons: &[String]) -> String {
    let decides = explained.decided_by.and_then(|at| explained.limits.get(at));
    let decides = decides.and_then(|limit| Some((limit, limit.counter.as_ref()?)));
    match (explained.admitted, decides) {
        (true, Some(decides)) => admitted(explained, decides) + &shadows(explained),
        (true, None) => nothing_counts(explained, reasons) + &shadows(explained),
        (false, Some(decides)) => refused(explained, decides),
        (false, None) => refused_by_no_limit(explained, decision),
    }
}

fn counted(explained: &Explanation) -> impl Iterator<Item = Counted<'_>> {
    explained.limits.iter().filter_map(|limit| Some((limit, limit.counter.as_ref()?)))
}

fn of_role<'e>(explained: &'e Explanation, role: &str) -> impl Iterator<Item = Counted<'e>> {
    counted(explained).filter(move |(_, counter)| counter.role == role)
}

fn admitted(explained: &Explanation, (limit, counter): Counted<'_>) -> String {
    let name = called(&limit.name);
    let left = format!("{} of {} left after it", counter.after.remaining, counter.capacity);
    let quota = of_role(explained, "quota").count();
    let with_room = of_role(explained, "quota").filter(|(_, counter)| counter.admitted).count();
    match of_role(explained, "enforce").count() + quota {
        _ if counter.charged < 0 => format!("what gives back is never refused; {name} has {left}"),
        1 => format!("it fits {name}, which has {left}"),
        _ if with_room < quota => {
            format!(
                "of {quota} limits in quota mode {with_room} can take it, and one is enough; {name} has {left}"
            )
        }
        2 => format!("it fits both limits; the tightest is {name}, which has {left}"),
        limits => format!("it fits all {limits} limits; the tightest is {name}, which has {left}"),
    }
}

/// What would have been refused, were all limits enforced.
fn shadows(explained: &Explanation) -> String {
    let would: Vec<String> = of_role(explained, "shadow")
        .filter(|(_, counter)| !counter.admitted)
        .map(|(limit, _)| called(&limit.name))
        .collect();
    match would.is_empty() {
        true => String::new(),
        false => format!("; in shadow, {} would have refused it", some(&would)),
    }
}

fn refused(explained: &Explanation, (limit, counter): Counted<'_>) -> String {
    let name = called(&limit.name);
    let ExplainedCounter { before, capacity, cost, .. } = counter;
    if counter.code.as_deref() == Some("COST_EXCEEDS_LIMIT") {
        return format!("no wait cures it: the cost {cost} is above what {name} can ever hold, {capacity}");
    }
    let Some(wait) = explained.passes_in_ms else {
        return format!("no wait cures it: {name} allows nothing");
    };
    let is_places = places(limit);
    let room = if is_places { "no place is free" } else { "no room" };
    let used = if is_places { "are taken" } else { "are used" };
    let takes =
        if *cost == 0 { "a peek needs room for 1".to_owned() } else { format!("the request takes {cost}") };
    let refusing = counted(explained).filter(|(_, counter)| counter.role != "shadow" && !counter.admitted);
    let at_most = if refusing.into_iter().any(|(limit, _)| places(limit)) { "at most " } else { "" };
    let facts =
        format!("{} of {capacity} {used}, and {takes}; it passes in {at_most}{}", before.used, span(wait));
    let quota = of_role(explained, "quota").count();
    let others: Vec<String> = of_role(explained, "enforce")
        .filter(|(other, counter)| !counter.admitted && !std::ptr::eq(*other, limit))
        .map(|(other, _)| called(&other.name))
        .collect();
    let too = match &*others {
        [] => String::new(),
        [one] => format!("; {one} refuses it too"),
        _ => format!("; {} refuse it too", some(&others)),
    };
    match counter.role.as_str() {
        "quota" if quota > 1 => {
            format!(
                "none of {quota} limits in quota mode has room; the first that will is {name}: {facts}{too}"
            )
        }
        _ if is_places => format!("{room} in {name}: {facts}{too}"),
        _ => format!("{name} has {room}: {facts}{too}"),
    }
}

fn refused_by_no_limit(explained: &Explanation, decision: &Decision<'_>) -> String {
    if decision.too_much {
        let asked = decision.plan.takes().len();
        return format!("no wait cures it: it asks {asked} counters, and a request may ask {TAKES_MAX}");
    }
    let impossible = explained.limits.iter().find(|limit| limit.fate == LimitFate::Impossible);
    let says = impossible.map_or("it cannot be counted", |limit| limit.says.as_str());
    let by = impossible.and_then(|limit| limit.found_by.first()).map_or(0, |at| at + 1);
    format!("no wait cures it: descriptor {by} brings a limit, and {says}")
}

/// Why nothing that counts for a request could refuse it.
fn nothing_counts(explained: &Explanation, reasons: &[String]) -> String {
    if let Some(why) = &explained.domain.passed_over {
        return format!("no limit counts for it: {why}");
    }
    if of_role(explained, "shadow").next().is_some() {
        return "no limit that counts for it is enforced".to_owned();
    }
    let names: Vec<String> = explained.limits.iter().map(|limit| called(&limit.name)).collect();
    let says: Vec<&str> = explained.limits.iter().map(|limit| limit.says.as_str()).collect();
    match (&*names, &*says) {
        ([], _) | (_, []) => format!("no limit counts for it: {}", nothing_found(explained, reasons)),
        ([name], [says]) => format!("{name}, the only limit that was found, does not count: {says}"),
        (_, [first, ..]) if says.iter().all(|says| says == first) => {
            format!("{} were found and do not count: {first}", some(&names))
        }
        _ => {
            let each = names.iter().zip(&says).map(|(name, says)| format!("{name} ({says})"));
            format!("{} limits were found and do not count: {}", says.len(), some(&each.collect::<Vec<_>>()))
        }
    }
}

/// Why no rule was found.
fn nothing_found(explained: &Explanation, reasons: &[String]) -> String {
    match (reasons, &*explained.descriptors) {
        (_, []) => "the request has no descriptors".to_owned(),
        ([_, ..], _) => joined(reasons),
        ([], [one]) => format!("the rules have none at {}, where its descriptor ends", end(one)),
        ([], _) => "the rules have none where its descriptors end".to_owned(),
    }
}

/// The first few reasons as one sentence; what asks comes last.
fn joined(reasons: &[String]) -> String {
    let mut first: Vec<&str> = reasons.iter().take(NAMED).map(String::as_str).collect();
    first.sort_by_key(|reason| reason.ends_with('?'));
    first.into_iter().fold(String::new(), |text, reason| match text.chars().last() {
        None => reason.to_owned(),
        Some('?') => format!("{text} {reason}"),
        Some(_) => format!("{text}; {reason}"),
    })
}

fn end(descriptor: &ExplainedDescriptor) -> String {
    let last = descriptor.steps.iter().rev().find_map(|step| step.to.as_deref());
    last.map_or_else(|| "the top".to_owned(), quoted)
}

/// The first few.
fn some(names: &[String]) -> String {
    match names.len() {
        0..=NAMED => list(names),
        all => format!("{} and {} more", names[..NAMED].join(", "), all - NAMED),
    }
}
