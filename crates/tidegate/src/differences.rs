//! What changes from the rules of one book to those of another, in words: for `tidegate config diff`, and for dry runs of the admin API.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tidegate_core::{Book, DomainDraft, Exempt, PathEntry, Rule, RuleDraft, rule_id};

use crate::words;

/// All that changes.
pub(crate) struct Differences {
    /// What holds for whole domains, and what descriptors say besides their limits.
    pub(crate) besides: Vec<Difference>,
    /// Rules.
    pub(crate) rules: Vec<Difference>,
}

/// What becomes of one rule, descriptor or domain.
pub(crate) struct Difference {
    pub(crate) kind: Kind,
    /// The id of a rule, the path of a descriptor, the name of a domain: as it will be, or was if it will not.
    pub(crate) id: String,
    /// The id that a rule had, where that was another.
    pub(crate) id_before: Option<String>,
    pub(crate) tier: Option<String>,
    /// What it says; none where it is not there.
    pub(crate) before: Option<String>,
    /// What it will say.
    pub(crate) after: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Added,
    Removed,
    /// Its counters go on.
    Changed,
    /// Its counters start afresh.
    Fresh,
}

impl Differences {
    pub(crate) fn between(old: &Book, new: &Book) -> Self {
        Self { besides: besides(old, new), rules: rules(old, new) }
    }
}

impl Kind {
    fn of(before: Option<&str>, after: Option<&str>, same_counter: bool) -> Self {
        match (before, after) {
            (None, _) => Self::Added,
            (_, None) => Self::Removed,
            _ if same_counter => Self::Changed,
            _ => Self::Fresh,
        }
    }
}

fn besides(old: &Book, new: &Book) -> Vec<Difference> {
    let mut all: BTreeMap<String, [Option<String>; 2]> = BTreeMap::new();
    for (at, book) in [old, new].into_iter().enumerate() {
        for domain in book.domains() {
            all.entry(domain.name().to_owned()).or_default()[at] = Some(said(&domain.said()));
            for described in book.described(domain) {
                let ends = described.ends.then(|| "no limit".to_owned());
                let said: Vec<String> = ends.into_iter().chain(described.exempt.map(exempted)).collect();
                if !said.is_empty() {
                    let id = path_id(domain.name(), described.path);
                    all.entry(id).or_default()[at] = Some(said.join(" "));
                }
            }
        }
    }
    let difference = |(id, [before, after]): (String, [Option<String>; 2])| {
        let kind = Kind::of(before.as_deref(), after.as_deref(), true);
        Difference { kind, id, id_before: None, tier: None, before, after }
    };
    all.into_iter().filter(|(_, [before, after])| before != after).map(difference).collect()
}

/// What a domain says besides its rules.
fn said(domain: &DomainDraft) -> String {
    let matching = format!("{:?}", domain.matching).to_lowercase();
    let mut text = format!("match={matching} quota_key={}", domain.quota_key);
    let flags = [
        (domain.allow_refunds, "allow_refunds"),
        (domain.trust_tier, "trust_tier"),
        (domain.disabled, "disabled"),
    ];
    for (_, word) in flags.into_iter().filter(|(on, _)| *on) {
        text += &format!(" {word}");
    }
    if let Some(algorithm) = domain.algorithm {
        text += &format!(" algorithm={algorithm}");
    }
    if let Some(exempt) = &domain.exempt {
        text += &format!(" {}", exempted(exempt));
    }
    text
}

fn exempted(exempt: &Exempt) -> String {
    let mut all: Vec<String> = exempt.callers.iter().map(ToString::to_string).collect();
    all.sort_unstable();
    all.extend(exempt.networks.iter().map(ToString::to_string));
    format!("exempt={}", all.join(","))
}

/// What the ids of its rules begin with.
fn path_id(domain: &str, path: &[PathEntry]) -> String {
    let id = rule_id(domain, path, &RuleDraft::default());
    id.strip_suffix("#unlimited").unwrap_or(&id).into()
}

fn rules(old: &Book, new: &Book) -> Vec<Difference> {
    let key = |rule: &Rule| (rule.id.to_string(), rule.tier.as_deref().unwrap_or_default().to_string());
    let by_id = |book: &'_ Book| {
        book.rules().iter().enumerate().map(|(at, rule)| (key(rule), at)).collect::<BTreeMap<_, _>>()
    };
    let (olds, news) = (by_id(old), by_id(new));
    let mut changes = Vec::new();
    let mut gone: Vec<&Rule> = Vec::new();
    for (key, at) in &olds {
        let rule = &old.rules()[*at];
        match news.get(key) {
            Some(at) => changes.extend(changed(rule, &new.rules()[*at])),
            None => gone.push(rule),
        }
    }
    // A limit without a name has another id when its window or algorithm changes; to people it is the same one.
    let mut came: HashMap<Place<'_>, VecDeque<&Rule>> = HashMap::new();
    for (_, at) in news.iter().filter(|(key, _)| !olds.contains_key(*key)) {
        let rule = &new.rules()[*at];
        came.entry(place(rule)).or_default().push_back(rule);
    }
    for rule in gone {
        match came.get_mut(&place(rule)).and_then(VecDeque::pop_front) {
            Some(heir) => changes.extend(changed(rule, heir)),
            None => changes.push(difference(Some(rule), None, true)),
        }
    }
    changes.extend(came.into_values().flatten().map(|rule| difference(None, Some(rule), true)));
    changes.sort_by(|one, other| (&one.id, &one.tier, one.kind).cmp(&(&other.id, &other.tier, other.kind)));
    changes
}

/// Domain, keys and values, tier.
type Place<'r> = (&'r str, Vec<(&'r str, Option<&'r str>)>, Option<&'r str>);

/// Where a rule stands, and for whom.
fn place(rule: &Rule) -> Place<'_> {
    let path = rule.path.iter().map(|level| (&*level.key, level.value.as_deref()));
    (&rule.domain, path.collect(), rule.tier.as_deref())
}

fn changed(old: &Rule, new: &Rule) -> Option<Difference> {
    let shared = |rule: &Rule| rule.path.iter().map(PathEntry::is_fixed).collect::<Vec<_>>();
    let same_counter = old.id == new.id
        && shared(old) == shared(new)
        && match (&old.said.limit, &new.said.limit) {
            (Some(old), Some(new)) => old.counts_like(new),
            _ => true,
        };
    let difference = difference(Some(old), Some(new), same_counter);
    (difference.before != difference.after || !same_counter).then_some(difference)
}

fn difference(old: Option<&Rule>, new: Option<&Rule>, same_counter: bool) -> Difference {
    let id = |rule: Option<&Rule>| rule.map(|rule| rule.id.to_string());
    let (before, after) = (old.map(show), new.map(show));
    Difference {
        kind: Kind::of(before.as_deref(), after.as_deref(), same_counter),
        id: id(new.or(old)).unwrap_or_default(),
        id_before: id(old).filter(|was| new.is_some_and(|new| *new.id != **was)),
        tier: new.or(old).and_then(|rule| rule.tier.as_deref()).map(String::from),
        before,
        after,
    }
}

/// All that matters about a rule, but its place in the file.
fn show(rule: &Rule) -> String {
    let limit = rule.said.limit.as_ref().map_or_else(|| "unlimited".into(), ToString::to_string);
    let metadata = rule.said.metadata.as_ref().map(|metadata| format!("metadata={metadata}"));
    std::iter::once(limit).chain(words::of(rule)).chain(metadata).collect::<Vec<_>>().join(" ")
}
