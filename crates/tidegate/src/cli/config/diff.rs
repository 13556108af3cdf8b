//! `tidegate config diff`

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use tidegate_core::{
    Book, DescriptorDraft, DomainDraft, Exempt, PathEntry, Rule, RuleDraft, Secret, rule_id,
};

use super::{Form, load};
use crate::cli::exit::Exit;
use crate::cli::output::{self, Output};
use crate::cli::settings::SettingFlags;
use crate::cli::words;

#[derive(Args, Debug)]
#[command(after_help = "\
Ends with 3 if anything changes.

Examples:
  tidegate config diff /etc/tidegate/rules rules/
  git worktree add ../main main && tidegate config diff ../main/rules rules/")]
pub(crate) struct Diff {
    /// The rules as they are
    old: PathBuf,
    /// The rules as they would be
    new: PathBuf,
    #[command(flatten)]
    settings: SettingFlags,
    #[command(flatten)]
    form: Form,
}

/// What becomes of one rule, descriptor or domain.
struct Change {
    kind: Kind,
    id: String,
    tier: String,
    old: String,
    new: String,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Added,
    Removed,
    /// Its counters go on.
    Changed,
    /// Its counters start afresh.
    Fresh,
}

impl Diff {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        let mut resolved = self.settings.resolve();
        let mut of = |path: &PathBuf| {
            resolved.settings.rules.paths = vec![path.clone()];
            load(&resolved, &resolved.settings.rules)
        };
        let (Some(old), Some(new)) = (of(&self.old), of(&self.new)) else { return Ok(Exit::Config) };
        let mut changes = domains(&old.domains, &new.domains);
        let book = |domains| Book::new(domains, Secret::new([0; 16])); // No key is made.
        changes.extend(rules(&book(old.domains), &book(new.domains)));
        match self.form.output {
            Output::Json => output::write_json(&changes.iter().map(Change::json).collect())?,
            Output::Table if changes.is_empty() => output::write("the same\n")?,
            Output::Table => {
                let rows: Vec<[String; 5]> = changes.iter().map(Change::row).collect();
                output::write(&output::table(["change", "rule", "tier", "old", "new"], &rows))?;
                if changes.iter().any(|change| change.kind == Kind::Fresh) {
                    output::write(
                        "\nfresh: the counter is another one, so everybody starts with a full budget\n",
                    )?;
                }
            }
        }
        Ok(if changes.is_empty() { Exit::Yes } else { Exit::No })
    }
}

impl Change {
    fn row(&self) -> [String; 5] {
        [self.kind.word().into(), self.id.clone(), self.tier.clone(), self.old.clone(), self.new.clone()]
    }

    fn json(&self) -> Value {
        let text = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
        json!({
            "change": self.kind.word(),
            "rule": self.id,
            "tier": text(&self.tier),
            "old": text(&self.old),
            "new": text(&self.new),
        })
    }
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Changed => "changed",
            Self::Fresh => "fresh",
        }
    }
}

fn domains(old: &[DomainDraft], new: &[DomainDraft]) -> Vec<Change> {
    let mut all: BTreeMap<String, [String; 2]> = BTreeMap::new();
    for (at, domains) in [old, new].into_iter().enumerate() {
        for domain in domains {
            all.entry(domain.name.clone()).or_default()[at] = said(domain);
            descriptors(&domain.name, &mut Vec::new(), &domain.descriptors, &mut |id, said| {
                all.entry(id).or_default()[at] = said;
            });
        }
    }
    let change = |(id, [old, new]): (String, [String; 2])| Change {
        kind: kind_of(&old, &new, true),
        id,
        tier: String::new(),
        old,
        new,
    };
    all.into_iter().filter(|(_, [old, new])| old != new).map(change).collect()
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

/// What descriptors say besides their rules, and those that have none and end the search: by its path, what each says.
fn descriptors(
    domain: &str,
    above: &mut Vec<PathEntry>,
    drafts: &[DescriptorDraft],
    tell: &mut impl FnMut(String, String),
) {
    for draft in drafts {
        above.push(PathEntry::new(&draft.key, draft.value.as_deref(), false, false));
        let ends = draft.limits.is_empty() && draft.tiers.is_empty() && draft.descriptors.is_empty();
        let said =
            ends.then(|| "no limit".to_string()).into_iter().chain(draft.exempt.as_ref().map(exempted));
        let said = said.collect::<Vec<_>>().join(" ");
        if !said.is_empty() {
            let id = rule_id(domain, above, &RuleDraft::default());
            tell(id.strip_suffix("#unlimited").unwrap_or(&id).into(), said);
        }
        descriptors(domain, above, &draft.descriptors, tell);
        above.pop();
    }
}

fn rules(old: &Book, new: &Book) -> Vec<Change> {
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
            None => changes.push(change(Kind::Removed, rule, show(rule), String::new())),
        }
    }
    let added = came.into_values().flatten();
    changes.extend(added.map(|rule| change(Kind::Added, rule, String::new(), show(rule))));
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

fn changed(old: &Rule, new: &Rule) -> Option<Change> {
    let shared = |rule: &Rule| rule.path.iter().map(PathEntry::is_fixed).collect::<Vec<_>>();
    let same_counter = old.id == new.id
        && shared(old) == shared(new)
        && match (&old.said.limit, &new.said.limit) {
            (Some(old), Some(new)) => old.counts_like(new),
            _ => true,
        };
    let (was, is) = (show(old), show(new));
    let differs = was != is || !same_counter;
    differs.then(|| change(kind_of(&was, &is, same_counter), new, was, is))
}

fn kind_of(old: &str, new: &str, same_counter: bool) -> Kind {
    match (old.is_empty(), new.is_empty()) {
        (true, _) => Kind::Added,
        (_, true) => Kind::Removed,
        _ if same_counter => Kind::Changed,
        _ => Kind::Fresh,
    }
}

fn change(kind: Kind, rule: &Rule, old: String, new: String) -> Change {
    let tier = rule.tier.as_deref().unwrap_or_default().into();
    Change { kind, id: rule.id.to_string(), tier, old, new }
}

/// All that matters about a rule, but its place in the file.
fn show(rule: &Rule) -> String {
    let limit = rule.said.limit.as_ref().map_or_else(|| "unlimited".into(), ToString::to_string);
    let metadata = rule.said.metadata.as_ref().map(|metadata| format!("metadata={metadata}"));
    std::iter::once(limit).chain(words::of(rule)).chain(metadata).collect::<Vec<_>>().join(" ")
}
