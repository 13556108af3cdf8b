//! Texts that are to be grafted onto the others, as far as they go together with them: what is wrong with one keeps no other away.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use crate::load::{FileTexts, LeftOut, Loaded, RuleFiles, load_again};

/// How often is loaded to find out which do not go together. It finds some thirty among ten thousand; what would take longer is left out
/// with them, and said.
const LOADS_MAX: usize = 100;

/// Texts by name.
pub(crate) type Texts = Vec<(String, Arc<str>)>;

/// What can be put in force.
#[derive(Debug)]
pub(crate) struct Fit {
    pub(crate) loaded: Loaded,
    /// What was grafted.
    pub(crate) grafted: Texts,
}

/// As many of `files.added` as go together with what the files `said`; `all` is what comes of all of them. Those that are `held` now go
/// first, also in their old form where the new one does not fit; with `all_held` they have to go together as a whole. What is wrong
/// comes back where nothing can be put in force.
pub(crate) fn fit(
    files: &RuleFiles,
    said: &FileTexts,
    all: Loaded,
    held: &Texts,
    all_held: bool,
) -> Result<Fit, Box<Loaded>> {
    let wanted = &files.added;
    if all.is_valid() {
        return Ok(Fit { loaded: all, grafted: wanted.clone() });
    }
    let load = |added: Texts| load_again(&RuleFiles { added, ..files.clone() }, said);
    let names: HashSet<&str> = wanted.iter().map(|(name, _)| &**name).collect();
    let mut grafted: Texts = held.iter().filter(|(name, _)| names.contains(&**name)).cloned().collect();
    let mut loaded = load(grafted.clone());
    if !loaded.is_valid() && !all_held {
        grafted.clear();
        loaded = load(Texts::new());
    }
    if !loaded.is_valid() {
        return Err(Box::new(all));
    }
    let has: HashSet<&(String, Arc<str>)> = grafted.iter().collect();
    let missing: Texts = wanted.iter().filter(|text| !has.contains(text)).cloned().collect();
    let mut groups: VecDeque<Texts> = parts(missing, &all).into();
    let mut left_out = Vec::new();
    let mut loads = 0;
    while let Some(group) = groups.pop_front() {
        if group.is_empty() {
            continue;
        }
        if loads == LOADS_MAX {
            left_out.extend(group.into_iter().map(|(name, _)| LeftOut {
                name,
                errors: Vec::new(),
                is_new: true,
            }));
            continue;
        }
        loads += 1;
        let with = with(&grafted, &group, wanted);
        let tried = load(with.clone());
        if tried.is_valid() {
            (grafted, loaded) = (with, tried);
        } else if let [(name, _)] = &*group {
            let errors =
                tried.report.json(&tried.sources).into_iter().filter(|told| told["severity"] == "error");
            left_out.push(LeftOut { name: name.clone(), errors: errors.collect(), is_new: true });
        } else {
            for part in parts(group, &tried).into_iter().rev() {
                groups.push_front(part);
            }
        }
    }
    loaded.left_out = left_out;
    Ok(Fit { loaded, grafted })
}

/// Those in a report's errors apart from the others, which go first; or halves, where that says nothing.
fn parts(group: Texts, report: &Loaded) -> [Texts; 2] {
    let told = report.report.json(&report.sources);
    let errors = told.iter().filter(|told| told["severity"] == "error");
    let suspects: HashSet<&str> =
        errors.filter_map(|error| error.get("file").and_then(Value::as_str)).collect();
    let (mut others, mut suspected): (Texts, Texts) =
        group.into_iter().partition(|(name, _)| !suspects.contains(&**name));
    if others.is_empty() {
        std::mem::swap(&mut others, &mut suspected);
    }
    if suspected.is_empty() {
        suspected = others.split_off(others.len() / 2);
    }
    [others, suspected]
}

/// Those that are grafted and these, in the order of all.
fn with(grafted: &Texts, group: &Texts, wanted: &Texts) -> Texts {
    let mut texts: HashMap<&str, &Arc<str>> = grafted.iter().map(|(name, text)| (&**name, text)).collect();
    texts.extend(group.iter().map(|(name, text)| (&**name, text)));
    let text = |(name, _): &(String, Arc<str>)| Some((name.clone(), Arc::clone(texts.get(&**name)?)));
    wanted.iter().filter_map(text).collect()
}

/// Says of what is left out whether it is old: left out before, with the same text.
pub(crate) fn mark_new(loaded: &mut Loaded, before: &Texts, now: &Texts, known: &[LeftOut]) {
    let text =
        |of: &Texts, name: &str| of.iter().find(|(other, _)| other == name).map(|(_, text)| text.clone());
    for one in &mut loaded.left_out {
        let was_left_out = known.iter().any(|other| other.name == one.name);
        one.is_new = !was_left_out || text(before, &one.name) != text(now, &one.name);
    }
}
