//! How the rules were found: a recorder that writes down where each entry led, and why no further.

use tidegate_config::{nearest, quoted};
use tidegate_core::{
    Book, Domain, Entry, Event, ExemptBy, GrantedBy, How, PathEntry, Query, Recorder, Rule, Waypoint,
};

use super::words::{self, list, node, quoted_entry, shown};
use super::{ExplainedDescriptor, ExplainedStep, Led};

/// How many of the things that would have fitted are told.
const CANDIDATES_SHOWN: usize = 8;
/// How many are compared to find the one that was meant. Each takes microseconds, and a node may have a hundred thousand.
const CANDIDATES_COMPARED: usize = 2_000;

/// The ways of all descriptors, as far as they are known.
#[derive(Default)]
pub(super) struct Walks {
    pub(super) descriptors: Vec<ExplainedDescriptor>,
    /// Why nothing was looked for in the domain.
    pub(super) passed_over: Option<String>,
    /// Why rules were not found, in the order of the descriptors.
    pub(super) reasons: Vec<String>,
    /// Why whoever asks is exempt on the way of each descriptor.
    exempt: Vec<Option<String>>,
    /// The numbers of the rules that always count, but not for whoever asks, and why.
    exempt_always: Vec<(usize, String)>,
    /// The descriptor whose way is being walked.
    at: usize,
    /// Under which other name of the caller, if it is that.
    named: Option<String>,
}

impl Walks {
    pub(super) fn new(query: &Query<'_>) -> Self {
        let explained = |descriptor| ExplainedDescriptor {
            entries: query.entries_of(descriptor).iter().map(words::entry).collect(),
            cost: descriptor.cost,
            limit: descriptor.limit.map(|own| format!("{}/{}", own.amount, own.window)),
            ..ExplainedDescriptor::default()
        };
        let descriptors: Vec<ExplainedDescriptor> = query.descriptors.iter().map(explained).collect();
        Self { exempt: vec![None; descriptors.len()], descriptors, ..Self::default() }
    }

    /// Why whoever asks is exempt from a rule that a descriptor found, or that always counts.
    pub(super) fn exempt(&self, descriptor: Option<usize>, rule: Option<&Rule>) -> Option<&str> {
        match descriptor {
            Some(at) => self.exempt.get(at)?.as_deref(),
            None => {
                let number = rule?.number;
                self.exempt_always.iter().find(|(rule, _)| *rule == number).map(|(_, why)| why.as_str())
            }
        }
    }

    fn note(&mut self, note: String) {
        if let Some(descriptor) = self.descriptors.get_mut(self.at) {
            descriptor.notes.push(note);
        }
    }

    fn step(&mut self, step: ExplainedStep) {
        if let Some(descriptor) = self.descriptors.get_mut(self.at) {
            descriptor.steps.push(step);
        }
    }

    /// The keys of the entries that the way has not come to yet.
    fn keys_ahead(&self) -> impl Iterator<Item = &str> {
        let descriptor = self.descriptors.get(self.at);
        let ahead = |descriptor: &'_ ExplainedDescriptor| descriptor.steps.len() + 1;
        descriptor
            .into_iter()
            .flat_map(move |descriptor| descriptor.entries.iter().skip(ahead(descriptor)))
            .map(|entry| entry.key.as_str())
    }
}

impl Recorder for Walks {
    fn record(&mut self, event: Event<'_>) {
        match event {
            Event::DomainUnknown => {}
            Event::DomainDisabled => self.passed_over = Some("the whole domain is disabled".to_owned()),
            Event::DomainExempts(by) => {
                self.passed_over = Some(format!("{} from all limits of the domain", exempt(by)));
            }
            Event::Brought { descriptor } => {
                self.at = descriptor;
                self.note("it brings its own limit, so no rules were looked for".to_owned());
            }
            Event::Starts { descriptor, tier, of_quota, name, .. } => {
                (self.at, self.named) = (descriptor, name.map(|name| quoted_entry(&name)));
                if let (Some(tier), Some(explained)) = (tier, self.descriptors.get_mut(descriptor)) {
                    explained.tier = Some(shown(tier));
                }
                if let Some(tier) = tier.filter(|_| of_quota && name.is_none()) {
                    self.note(format!("the caller's quota says that its tier is {}", quoted(tier)));
                }
            }
            // Once more, under another name of the caller: what it finds is told, and the steps are those of before.
            Event::Led { to, of_tier, .. } if self.named.is_some() => {
                let (limits, _) = self.limits_at(to, of_tier);
                if let Some(named) = self.named.clone().filter(|_| !limits.is_empty()) {
                    let names: Vec<String> = limits.iter().map(|name| quoted(name)).collect();
                    self.note(format!("the caller is also {named}; limits there: {}", list(&names)));
                }
            }
            Event::Reserved(_) | Event::Lost { .. } if self.named.is_some() => {}
            Event::Granted { at, grant, by } => {
                let said = match by {
                    GrantedBy::Override => "an override of the caller's own".to_owned(),
                    GrantedBy::Tier => "what the control plane says of the caller's tier".to_owned(),
                };
                let stead =
                    if at.is_some() { "in the place of the limits there" } else { "where no rule stands" };
                self.note(format!("{said} holds {stead}: {} per {}", grant.amount, grant.unit.name()));
            }
            Event::Reserved(entry) => {
                let says = match entry.key {
                    "tier" => "says the tier, and is no part of the way",
                    _ => "is an id that a rule names, and is no part of the way",
                };
                self.step(step(&entry, Led::Reserved, says.to_owned()));
            }
            Event::Led { entry, how, to, of_tier, exempt: by } => {
                let (led, how) = led(&entry, how, to);
                let (limits, there) = self.limits_at(to, of_tier);
                let to_node = Some(node(to.path()));
                self.step(ExplainedStep { to: to_node, limits, ..step(&entry, led, how + &there) });
                if let Some(by) = by {
                    let why = exempt(by);
                    self.note(format!("{why} from what is at {} and below", quoted(&node(to.path()))));
                    let first = self.exempt.get_mut(self.at).filter(|first| first.is_none());
                    first.into_iter().for_each(|first| *first = Some(why.clone()));
                }
            }
            Event::Lost { entry, at } => {
                let (why, step) = self.lost(&entry, at);
                self.reasons.push(why);
                self.step(step);
            }
            Event::Passed(passed) => {
                let names: Vec<String> =
                    passed.iter().filter_map(|found| Some(quoted(&name_of(found.rule?)))).collect();
                let not = if names.len() == 1 { "does not" } else { "do not" };
                let why = format!("{}, on the way, {not} count under `match: leaf`", list(&names));
                self.reasons.push(why.clone());
                self.note(why);
            }
            Event::Always { at, exempt: by } => {
                let why = by.map(exempt);
                let numbers = at.limits().map(|rule| rule.number);
                self.exempt_always.extend(numbers.filter_map(|number| Some((number, why.clone()?))));
            }
        }
    }
}

impl Walks {
    /// The names of the limits at a node, and what is to be said of them.
    fn limits_at(&self, at: Waypoint<'_>, of_tier: bool) -> (Vec<String>, String) {
        let tier = self.descriptors.get(self.at).and_then(|descriptor| descriptor.tier.as_deref());
        let of_its_tier = tier.filter(|_| of_tier).and_then(|tier| at.limits_for(tier));
        let names: Vec<String> = match of_its_tier {
            Some(rules) => rules.map(name_of).collect(),
            None => at.limits().map(name_of).collect(),
        };
        let quoted_names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
        let mut says = match (quoted_names.len(), tier.filter(|_| of_tier)) {
            (0, _) => "; no limits".to_owned(),
            (_, None) => format!("; limits: {}", list(&quoted_names)),
            (_, Some(tier)) => format!("; limits for tier {}: {}", quoted(tier), list(&quoted_names)),
        };
        let tiers: Vec<String> = at.tiers().into_iter().map(quoted).collect();
        if let Some(tier) = tier.filter(|_| !of_tier && !tiers.is_empty()) {
            says += &format!(
                " (for everybody: there are some for tier {}, none for {})",
                list(&tiers),
                quoted(tier)
            );
        }
        (names, says)
    }

    /// What is to be said where no child fits an entry: in short, and in full.
    fn lost(&self, entry: &Entry<'_>, at: Waypoint<'_>) -> (String, ExplainedStep) {
        let levels: Vec<&PathEntry> = at.children().filter_map(|child| child.path().last()).collect();
        let values: Vec<&str> = levels
            .iter()
            .filter(|level| *level.key == *entry.key)
            .filter_map(|level| level.value.as_deref())
            .collect();
        let mut keys: Vec<&str> = Vec::new();
        for level in levels.iter().take(CANDIDATES_COMPARED) {
            if !keys.contains(&&*level.key) {
                keys.push(&level.key);
            }
        }
        let place = match at.path() {
            [] => "at the top of the domain".to_owned(),
            path => format!("below {}", quoted(&node(path))),
        };
        let (candidates, meant, why) = if levels.is_empty() {
            (Vec::new(), None, format!("there are no rules {place}"))
        } else if values.is_empty() {
            let meant = near(entry.key, &keys);
            (keys, meant, format!("no rule {place} is keyed {}", quoted(entry.key)))
        } else {
            let meant = near(entry.value, &values);
            (values, meant, format!("no {} {place} is {}", quoted(entry.key), quoted(entry.value)))
        };
        let (first, more) = some(&candidates, meant);
        let is_there = |key: &&str| levels.iter().any(|level| *level.key == **key);
        let advice = match (meant, self.keys_ahead().find(is_there)) {
            (Some(_), _) => String::new(),
            (None, _) if entry.key == "tier" => {
                "; an entry `tier` says the tier only under `trust_tier: true`, if no rule is keyed `tier`"
                    .to_owned()
            }
            (None, Some(ahead)) => {
                format!("; {} comes later in the request, and entries are matched in order", quoted(ahead))
            }
            (None, None) => String::new(),
        };
        let says = format!("leads nowhere: {why}{}{advice}", instead(&first, more, meant));
        let short = match meant {
            Some(meant) => format!("{why}; did you mean {}?", quoted(meant)),
            None => format!("{why}{advice}"),
        };
        let step = ExplainedStep {
            candidates: first.iter().map(|one| shown(one)).collect(),
            candidates_more: more,
            meant: meant.map(shown),
            ..step(entry, Led::Nowhere, says)
        };
        (short, step)
    }
}

fn step(entry: &Entry<'_>, led: Led, says: String) -> ExplainedStep {
    ExplainedStep {
        entry: words::entry(entry),
        led,
        to: None,
        limits: Vec::new(),
        candidates: Vec::new(),
        candidates_more: 0,
        meant: None,
        says: format!("{} {says}", quoted_entry(entry)),
    }
}

fn led(entry: &Entry<'_>, how: How, to: Waypoint<'_>) -> (Led, String) {
    match how {
        How::Exact => (Led::Exact, "matches by its value".to_owned()),
        How::Open => (Led::Open, format!("matches {} with any value", quoted(entry.key))),
        How::Wildcard { order } => {
            let number = format!("number {} there and the first that fits", order + 1);
            (Led::Wildcard, format!("matches the pattern {}, {number}", quoted(&node(to.path()))))
        }
    }
}

fn exempt(by: ExemptBy<'_>) -> String {
    match by {
        ExemptBy::Caller(caller) => format!("caller {} is exempt", quoted(caller)),
        ExemptBy::Whitelist(caller) => format!("caller {}, being whitelisted, is exempt", quoted(caller)),
        ExemptBy::Network { address, network } => {
            format!("address {}, being in `{network}`, is exempt", quoted(address))
        }
    }
}

fn name_of(rule: &Rule) -> String {
    words::name(Some(rule), rule.said.limit.as_ref())
}

/// What is to be said of a domain that the book does not have.
pub(super) fn unknown_domain(book: &Book, name: &str) -> String {
    let mut names: Vec<&str> = book.domains().map(Domain::name).collect();
    names.sort_unstable();
    let meant = near(name, &names);
    let (first, more) = some(&names, meant);
    let instead = match names.is_empty() {
        true => ", nor for any other".to_owned(),
        false => instead(&first, more, meant),
    };
    format!("there are no rules for domain {}{instead}", quoted(name))
}

/// What there is instead, and which of it was probably meant; that one is the first.
fn instead(first: &[&str], more: usize, meant: Option<&str>) -> String {
    let quoted_all: Vec<String> = first.iter().map(|one| quoted(one)).collect();
    let others = &quoted_all[usize::from(meant.is_some())..];
    let others = match (others, more) {
        ([], _) => String::new(),
        (others, 0) => list(others),
        (others, more) => format!("{} and {more} more", others.join(", ")),
    };
    match (meant, &*others) {
        (None, "") => String::new(),
        (None, others) => format!("; what there is: {others}"),
        (Some(meant), "") => format!("; did you mean {}?", quoted(meant)),
        (Some(meant), others) => format!("; did you mean {}? (besides: {others})", quoted(meant)),
    }
}

/// What was probably meant by a text that fits nothing: spelled the same but for case, spaces and slashes around it; else nearly the same.
fn near<'c>(text: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let bare = |text: &str| text.trim_matches([' ', '/']).to_lowercase();
    let (bare_text, compared) = (bare(text), candidates.iter().take(CANDIDATES_COMPARED));
    let same = compared.clone().find(|candidate| bare(candidate) == bare_text);
    same.copied().or_else(|| nearest(text, compared.copied()))
}

/// Some of the candidates, the one that was meant first, and how many there are besides.
fn some<'c>(candidates: &[&'c str], meant: Option<&'c str>) -> (Vec<&'c str>, usize) {
    let others = candidates.iter().copied().filter(|candidate| Some(*candidate) != meant);
    let first: Vec<&str> = meant.into_iter().chain(others).take(CANDIDATES_SHOWN).collect();
    let more = candidates.len() - first.len();
    (first, more)
}
