//! What means something else here than in envoyproxy/ratelimit. Start at [`NOTES`].

use std::collections::{HashMap, HashSet};

use tidegate_config::{Code, Loaded, escaped};
use tidegate_core::{DescriptorDraft, DomainDraft, Micros, RuleDraft};

/// A difference.
struct Note {
    title: &'static str,
    /// What happens there and here, and what to do.
    text: &'static str,
    /// The places that it is about.
    about: fn(&Loaded) -> About,
}

/// What a note is about.
enum About {
    /// Every limit.
    Everything,
    /// These places; if there are none, there is nothing to say.
    Places(Vec<String>),
}

/// More places would only push the next note off the screen.
const PLACES_MAX: usize = 4;

/// Every note, those about everything first.
const NOTES: &[Note] = &[
    Note {
        title: "A refused request uses up nothing",
        text: "There, all limits of a request are counted before any is judged, so that one that refuses uses up the others.\n\
               Here a request is counted by all its limits or by none. Nothing to do.",
        about: |_| About::Everything,
    },
    Note {
        title: "Windows are still fixed",
        text: "Around the edge of a fixed window twice the limit can pass, there as here. Recommended: delete `algorithm: fixed_window`\n\
               from `defaults`. Then any window of that length counts, and every answer states its bound. Counters start afresh once.",
        about: |_| About::Everything,
    },
    Note {
        title: "A peek at the limit is refused",
        text: "A request with a cost of 0 asks whether there is room. There it passes when the limit is just used up, and is refused only\n\
               when it was passed. Here it passes while at least one unit is left.",
        about: |_| About::Everything,
    },
    Note {
        title: "Costs that are reported afterwards need a word",
        text: "If a descriptor brings its own cost when the work is done (tokens of a language model), write `charge: always` into\n\
               that limit. Otherwise a report that does not fit is refused and not counted.",
        about: |_| About::Everything,
    },
    Note {
        title: "Without the store, Envoy decides",
        text: "`on_store_failure: error` answers with an error, as there, so that Envoy's `failure_mode_deny` goes on deciding.\n\
               `local`, `allow` or `deny` would be decided here: docs/store-down.md.",
        about: |_| About::Everything,
    },
    Note {
        title: "Keys that have no effect where they stand",
        text: "There they are ignored without a word, so the rule has not done what it seems to say. They were left out here, which keeps\n\
               that. If they were meant, write them where they belong: docs/rules.md.",
        about: ignored_keys,
    },
    Note {
        title: "Months, years and weeks are not those of a calendar",
        text: "A month is 30 days and a year 365, counted from 1970, and weeks begin on Thursday, there as here. For bills and quotas,\n\
               write `algorithm: calendar` with a `time_zone`: then a month is a month.",
        about: long_windows,
    },
    Note {
        title: "Where several wildcards fit, the first in the file wins",
        text: "There as here; but there, among several files of one domain, it is a matter of luck which file comes first. Here files\n\
               come in the order of their names. Put the narrower pattern first.",
        about: several_wildcards,
    },
    Note {
        title: "A domain in several files",
        text: "Set `rules.merge_domains: true`, as MERGE_DOMAIN_CONFIG there.",
        about: several_files,
    },
    Note {
        title: "Rules that other keys have reached by chance",
        text: "There, key and value are compared as one text with `_` between them: the entry (a, b_c) is found by a rule for (a_b, c).\n\
               Here keys and values are compared on their own. Requests that reached these rules by the other spelling are no longer\n\
               limited by them: look whether your Envoy sends both.",
        about: collisions,
    },
    Note {
        title: "Limits that replace each other",
        text: "There both vanish when a request finds both, and nothing is limited. Here both stay. Remove one `replaces`.",
        about: mutual_replacements,
    },
    Note {
        title: "What does not fit is not counted, in shadow and quota mode too",
        text: "There the counter of such a limit grows on while it is over. Here it stays where it is, as it would if the limit refused:\n\
               a limit that is raised opens at once. Its metrics count every request, there as here.",
        about: |loaded| places(loaded, |rule| rule.said.shadow || rule.said.quota),
    },
    Note {
        title: "Quotas that are all spent refuse",
        text: "Versions before the spring of 2026 never refuse in quota mode. Later ones, and Tidegate, refuse a request if every quota\n\
               that it found is spent.",
        about: |loaded| places(loaded, |rule| rule.said.quota),
    },
    Note {
        title: "Metrics with values of requests are bounded",
        text: "There every new value makes a metric that is never forgotten. Here there is a bound, and what is beyond it\n\
               is counted together.",
        about: |loaded| places(loaded, |rule| rule.said.detailed_metric || rule.value_to_metric),
    },
];

/// The whole explanation.
pub(super) fn explain(theirs: &Loaded, files: usize) -> String {
    let count: usize = theirs.domains.iter().map(|domain| rules(domain).len()).sum();
    let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let mut text = format!(
        "{}, {}, {} from envoyproxy/ratelimit. Comments are not carried over.\n",
        plural(files, "file"),
        plural(theirs.domains.len(), "domain"),
        plural(count, "rule"),
    );
    let about: Vec<(&Note, About)> = NOTES.iter().map(|note| (note, (note.about)(theirs))).collect();
    let general = about.iter().filter(|(_, about)| matches!(about, About::Everything));
    text += "\nWhat to know about every rule:\n";
    for (note, _) in general {
        text += &format!("\n- {}.\n{}", note.title, indented(note.text));
    }
    let mut heading = "\nWhat to know about some:\n";
    for (note, about) in &about {
        if let About::Places(places) = about
            && !places.is_empty()
        {
            text += &format!("{heading}\n- {}: {}.\n{}", note.title, listed(places), indented(note.text));
            heading = "";
        }
    }
    text
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

fn listed(places: &[String]) -> String {
    let shown = places.iter().take(PLACES_MAX).map(|place| escaped(place)).collect::<Vec<_>>().join(", ");
    match places.len().saturating_sub(PLACES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A limit, with what its levels say.
pub(super) struct Ruled<'a> {
    said: &'a RuleDraft,
    value_to_metric: bool,
}

/// Every limit of a domain.
pub(super) fn rules(domain: &DomainDraft) -> Vec<Ruled<'_>> {
    fn walk<'a>(levels: &'a [DescriptorDraft], value_to_metric: bool, all: &mut Vec<Ruled<'a>>) {
        for level in levels {
            let value_to_metric = value_to_metric || level.value_to_metric;
            all.extend(level.limits.iter().map(|said| Ruled { said, value_to_metric }));
            walk(&level.descriptors, value_to_metric, all);
        }
    }
    let mut all = Vec::new();
    walk(&domain.descriptors, false, &mut all);
    all
}

fn place(rule: &RuleDraft) -> String {
    format!("{}:{}", rule.origin.file, rule.origin.line)
}

fn places(loaded: &Loaded, which: fn(&Ruled<'_>) -> bool) -> About {
    let all = loaded.domains.iter().flat_map(rules);
    About::Places(all.filter(which).map(|rule| place(rule.said)).collect())
}

fn ignored_keys(loaded: &Loaded) -> About {
    let ignored = loaded.report.diagnostics().into_iter().filter(|said| said.code == Code::IgnoredKey);
    About::Places(ignored.filter_map(|said| Some(loaded.sources.describe(said.at?))).collect())
}

fn long_windows(loaded: &Loaded) -> About {
    const WEEK: Micros = Micros::from_secs(7 * 86_400);
    places(loaded, |rule| {
        rule.said.limit.as_ref().and_then(|limit| limit.window()).is_some_and(|window| window >= WEEK)
    })
}

/// Calls with the children of every level of every domain.
fn levels<'a>(loaded: &'a Loaded, with: &mut impl FnMut(&'a [DescriptorDraft])) {
    fn walk<'a>(levels: &'a [DescriptorDraft], with: &mut impl FnMut(&'a [DescriptorDraft])) {
        with(levels);
        levels.iter().for_each(|level| walk(&level.descriptors, with));
    }
    loaded.domains.iter().for_each(|domain| walk(&domain.descriptors, with));
}

/// Where a level is written: the file and line of the first limit in it or below.
fn somewhere(level: &DescriptorDraft) -> Option<String> {
    let own = level.limits.first().map(place);
    own.or_else(|| level.descriptors.iter().find_map(somewhere))
}

fn is_wild(level: &DescriptorDraft) -> bool {
    level.key.contains('*') || level.value.as_ref().is_some_and(|value| value.contains('*'))
}

fn several_wildcards(loaded: &Loaded) -> About {
    let mut found = Vec::new();
    levels(loaded, &mut |siblings| {
        let mut of_key: HashMap<&str, Vec<&DescriptorDraft>> = HashMap::new();
        for level in siblings.iter().filter(|level| is_wild(level)) {
            of_key.entry(level.key.as_str()).or_default().push(level);
        }
        let mut several: Vec<&DescriptorDraft> =
            of_key.into_values().filter(|levels| levels.len() > 1).flatten().collect();
        several.sort_by_key(|level| somewhere(level));
        found.extend(several.into_iter().filter_map(somewhere));
    });
    About::Places(found)
}

fn several_files(loaded: &Loaded) -> About {
    let mut found = Vec::new();
    for domain in &loaded.domains {
        let files: HashSet<&str> = rules(domain).iter().map(|rule| &*rule.said.origin.file).collect();
        if files.len() > 1 {
            found.push(format!("`{}` in {} files", domain.name, files.len()));
        }
    }
    About::Places(found)
}

/// What a rule is compared by there, up to its first wildcard, and whether more may follow.
fn composite(level: &DescriptorDraft) -> (String, bool) {
    let text = match &level.value {
        Some(value) => format!("{}_{value}", level.key),
        None => level.key.clone(),
    };
    match text.split_once('*') {
        Some((start, _)) => (start.into(), true),
        None => (text, false),
    }
}

/// Is this level found there by an entry whose key is `key`, and which is another's?
fn is_reached_by(level: &DescriptorDraft, key: &str) -> bool {
    if level.key == key {
        return false;
    }
    let (text, open) = composite(level);
    let entry = format!("{key}_");
    // Any value may follow the key: what the entry's text begins with decides.
    text.starts_with(&entry) || open && entry.starts_with(&text)
}

fn collisions(loaded: &Loaded) -> About {
    let mut found = Vec::new();
    levels(loaded, &mut |siblings| {
        let keys: HashSet<&str> = siblings.iter().map(|level| level.key.as_str()).collect();
        for level in siblings {
            let mut others: Vec<&str> =
                keys.iter().copied().filter(|key| is_reached_by(level, key)).collect();
            others.sort_unstable();
            if let (Some(place), Some(key)) = (somewhere(level), others.first()) {
                found.push(format!("{place} (by `{key}`)"));
            }
        }
    });
    About::Places(found)
}

fn mutual_replacements(loaded: &Loaded) -> About {
    let mut found = Vec::new();
    for domain in &loaded.domains {
        let all = rules(domain);
        let mut replaced: HashSet<(&str, &str)> = HashSet::new();
        for rule in &all {
            let name = rule.said.name.as_deref().unwrap_or_default();
            replaced.extend(rule.said.replaces.iter().map(|other| (name, &**other)));
        }
        let is_mutual = |rule: &&Ruled<'_>| {
            let name = rule.said.name.as_deref().unwrap_or_default();
            rule.said.replaces.iter().any(|other| replaced.contains(&(&**other, name)))
        };
        found.extend(all.iter().filter(is_mutual).map(|rule| place(rule.said)));
    }
    About::Places(found)
}
