//! The book: all rules of all domains, compiled so that a lookup costs the same however many there are. Immutable; a new one is made
//! and swapped.
//!
//! Read [`Book::plan`]: it is what happens to a request before anything is counted.

use std::net::IpAddr;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use ipnet::IpNet;

use crate::pattern::Pattern;
use crate::plan::{Found, Known, own_limit};
use crate::recorder::{Event, ExemptBy, How, Recorder, Waypoint};
use crate::rule::{open_parts, rule_id};
use crate::terms::{Agreed, OtherName};
use crate::tier::TierRef;
use crate::{
    Algorithm, Callers, Entry, Grant, GrantedBy, KeyParts, Limit, LimitError, OwnLimit, PathEntry, Plan,
    Query, Rule, RuleDraft, RuleState, Secret, Tag, TierName,
};

/// How many levels a path may have.
pub const DEPTH_MAX: usize = 32;

/// So many tiers of a descriptor are looked through one by one: that is faster than to search, and nearly nobody sells more.
const FEW_TIERS: usize = 8;

/// The key of the entry that says a caller's tier.
const TIER: &str = "tier";
/// The key of the entry that networks are compared with.
const REMOTE_ADDRESS: &str = "remote_address";

/// What is written about a domain.
#[derive(Clone, Debug, Default)]
pub struct DomainDraft {
    /// Its name.
    pub name: String,
    /// Which limits on a path count.
    pub matching: Matching,
    /// The key of the entry that names the caller.
    pub quota_key: String,
    /// Are refunds applied?
    pub allow_refunds: bool,
    /// Does an entry say the caller's tier?
    pub trust_tier: bool,
    /// As if it were unknown: nothing is counted, nor what requests bring.
    pub disabled: bool,
    /// Who is not limited at all.
    pub exempt: Option<Exempt>,
    /// How limits that come with a request are counted.
    pub algorithm: Option<Algorithm>,
    /// The tree.
    pub descriptors: Vec<DescriptorDraft>,
}

/// What is written about one node of the tree.
#[derive(Clone, Debug, Default)]
pub struct DescriptorDraft {
    /// Its key, perhaps with wildcards.
    pub key: String,
    /// Its value, perhaps with wildcards; none leaves it open.
    pub value: Option<String>,
    /// All values that fit the wildcard share one counter.
    pub share_threshold: bool,
    /// The request's value is part of the name of its metrics.
    pub value_to_metric: bool,
    /// Its limits count for every request of the domain.
    pub always: bool,
    /// Who is not limited by it, nor by what is below.
    pub exempt: Option<Exempt>,
    /// Its limits.
    pub limits: Vec<RuleDraft>,
    /// Its limits for callers of a tier.
    pub tiers: Vec<(String, Vec<RuleDraft>)>,
    /// What is below it.
    pub descriptors: Vec<DescriptorDraft>,
}

/// Which limits on a descriptor's path count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Matching {
    /// Those at its last entry.
    #[default]
    Leaf,
    /// All.
    Path,
}

/// Who is not limited.
#[derive(Clone, Debug, Default)]
pub struct Exempt {
    /// Callers, by name.
    pub callers: HashSet<Box<str>>,
    /// Networks.
    pub networks: Vec<IpNet>,
}

impl Exempt {
    /// Why whoever these entries speak of is on the list, if they are.
    fn covers<'e>(&'e self, entries: &[Entry<'e>], quota_key: &str) -> Option<ExemptBy<'e>> {
        entries.iter().find_map(|entry| match entry.key {
            key if key == quota_key && self.callers.contains(entry.value) => {
                Some(ExemptBy::Caller(entry.value))
            }
            REMOTE_ADDRESS if !self.networks.is_empty() => self.network_of(entry.value),
            _ => None,
        })
    }

    fn network_of<'e>(&'e self, address: &'e str) -> Option<ExemptBy<'e>> {
        // An IPv4 address that came in the clothes of IPv6 is still one.
        let parsed = address.parse::<IpAddr>().ok()?.to_canonical();
        let network = self.networks.iter().find(|network| network.contains(&parsed))?;
        Some(ExemptBy::Network { address, network })
    }
}

/// All rules, ready to be asked.
#[derive(Clone, Debug)]
pub struct Book {
    domains: HashMap<Box<str>, Domain>,
    /// The keys of the tree that have no wildcard. There are few, and a number is compared where it stands.
    keys: HashMap<Box<str>, u32>,
    nodes: Vec<Node>,
    /// The way to each node. Apart from them, because no decision needs it.
    paths: Vec<Arc<[PathEntry]>>,
    rules: Vec<Rule>,
    /// The names of tiers.
    tiers: HashSet<Arc<str>>,
    pub(crate) secret: Secret,
    /// Does any rule count places?
    places: bool,
    /// Does any know reservations?
    reservations: bool,
    /// Do its plans say what counters are kept near to?
    tags: bool,
    /// Do they say what envoyproxy/ratelimit calls them?
    pub(crate) reference_names: bool,
    /// Is what a descriptor costs by its own word charged always?
    pub(crate) own_costs_always: bool,
    /// Are all limits in quota mode?
    pub(crate) all_quota: bool,
}

/// A namespace of rules.
#[derive(Clone, Debug)]
pub struct Domain {
    pub(crate) name: Box<str>,
    pub(crate) matching: Matching,
    quota_key: Box<str>,
    pub(crate) allow_refunds: bool,
    disabled: bool,
    exempt: Option<Exempt>,
    pub(crate) algorithm: Algorithm,
    /// Was the algorithm written?
    says_algorithm: bool,
    /// Was it written that an entry says the caller's tier?
    trust_tier: bool,
    /// Keys of the entries that are taken out before anything is looked for, sorted: every rule may name one.
    reserved: Vec<Box<str>>,
    /// Those of them that name reservations.
    reservations: Vec<Box<str>>,
    /// Is `tier` one of them?
    tiered: bool,
    /// Is it what quotas are about that do not name a domain?
    pub(crate) is_default: bool,
    top: usize,
    /// The ways to the nodes whose limits always count.
    always: Vec<Box<[usize]>>,
}

/// What was written about a descriptor besides its limits.
#[derive(Clone, Copy, Debug)]
pub struct Described<'b> {
    /// The way to it from the top of its domain.
    pub path: &'b [PathEntry],
    /// Who is not limited by it, nor by what is below.
    pub exempt: Option<&'b Exempt>,
    /// Has it no limits, and nothing below? Then it ends the search, and whoever gets there is not limited.
    pub ends: bool,
}

/// A node of the tree: what is below it, and its limits. Among very many rules each place in memory is one more wait, so all that most
/// requests ask of a node is in one cache line.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Node {
    /// Sorted by key.
    branches: Vec<Branch>,
    limits: Rules,
    /// Sorted by [`TierRef::order`]. There are few, which are compared faster than hashed. Nodes share the names.
    tiers: Vec<(TierName, Rules)>,
    rare: Option<Box<Rare>>,
}

const _: () = assert!(size_of::<Node>() == 64);

/// What few nodes have.
#[derive(Clone, Debug, Default)]
struct Rare {
    /// Children whose key has a wildcard.
    wild: Vec<Wild>,
    exempt: Option<Exempt>,
}

/// Rules that stand beside each other in the book.
#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    from: u32,
    to: u32,
}

/// The children of a node that have the same key.
#[derive(Clone, Debug)]
struct Branch {
    key: u32,
    open: Option<u32>,
    exact: HashMap<Box<str>, u32>,
    wild: Vec<Wild>,
}

/// A child that is found by trying.
#[derive(Clone, Debug)]
struct Wild {
    /// Its place among its siblings.
    order: usize,
    /// Where the key has a wildcard.
    key: Option<Pattern>,
    value: Value,
    node: usize,
}

/// What an entry's value is compared with.
#[derive(Clone, Debug)]
enum Value {
    Open,
    Exact(Box<str>),
    Wild(Pattern),
}

impl Rules {
    fn is_empty(self) -> bool {
        self.from == self.to
    }
}

impl Wild {
    fn fits(&self, entry: &Entry<'_>) -> bool {
        self.key.as_ref().is_none_or(|key| key.fits(entry.key))
            && match &self.value {
                Value::Open => true,
                Value::Exact(value) => **value == *entry.value,
                Value::Wild(value) => value.fits(entry.value),
            }
    }
}

impl Node {
    /// The child that an entry leads to, whose key has this number if the book knows it: one with this value, else the first with a
    /// wildcard that fits, else the one that leaves the value open.
    #[inline]
    fn child(&self, key: Option<u32>, entry: &Entry<'_>) -> Option<(usize, How)> {
        let branch = key.and_then(|key| self.branch(key).ok()).map(|at| &self.branches[at]);
        // An empty map would hash the value all the same.
        let exact = branch.filter(|branch| !branch.exact.is_empty());
        if let Some(exact) = exact.and_then(|branch| branch.exact.get(entry.value)) {
            return Some((*exact as usize, How::Exact));
        }
        let fits = |wild: &&Wild| wild.fits(entry);
        let of_key = branch.and_then(|branch| branch.wild.iter().find(fits));
        let of_any = self.wild().iter().find(fits);
        let first = of_key.into_iter().chain(of_any).min_by_key(|wild| wild.order);
        let wild = first.map(|wild| (wild.node, How::Wildcard { order: wild.order }));
        wild.or_else(|| Some((branch?.open? as usize, How::Open)))
    }

    /// Where the children with this key are, or would be.
    #[inline]
    fn branch(&self, key: u32) -> Result<usize, usize> {
        self.branches.binary_search_by_key(&key, |branch| branch.key)
    }

    #[inline]
    fn wild(&self) -> &[Wild] {
        self.rare.as_ref().map_or(&[], |rare| &rare.wild)
    }

    /// Its limits for callers of a tier, if it has any for them.
    #[inline]
    fn of_tier(&self, tier: TierRef<'_>) -> Option<Rules> {
        if self.tiers.len() > FEW_TIERS {
            return self.of_many_tiers(tier);
        }
        self.tiers.iter().find(|(name, _)| name.look().is(tier)).map(|(_, limits)| *limits)
    }

    #[cold]
    fn of_many_tiers(&self, tier: TierRef<'_>) -> Option<Rules> {
        let at = self.tiers.binary_search_by(|(name, _)| name.look().order(tier)).ok()?;
        Some(self.tiers[at].1)
    }

    /// Why whoever these entries speak of is exempt from its limits and from those below, if they are.
    #[inline]
    fn exempts<'e>(&'e self, domain: &Domain, entries: &[Entry<'e>]) -> Option<ExemptBy<'e>> {
        self.rare.as_ref()?.exempt.as_ref()?.covers(entries, &domain.quota_key)
    }
}

impl Book {
    /// A book of these domains, whose keys are hashed under `secret`. Of domains, descriptors or rules that stand twice the
    /// first counts; whoever reads them from a text refuses that with its place.
    pub fn new(drafts: impl IntoIterator<Item = DomainDraft>, secret: Secret) -> Self {
        let mut book = Self {
            domains: HashMap::new(),
            keys: HashMap::new(),
            nodes: Vec::new(),
            paths: Vec::new(),
            rules: Vec::new(),
            tiers: HashSet::new(),
            secret,
            places: false,
            reservations: false,
            tags: false,
            reference_names: false,
            own_costs_always: false,
            all_quota: false,
        };
        for draft in drafts {
            if !book.domains.contains_key(draft.name.as_str()) {
                let domain = book.compile(draft);
                book.reservations |= !domain.reservations.is_empty();
                book.domains.insert(domain.name.clone(), domain);
            }
        }
        let mut limits = book.rules.iter().filter_map(|rule| rule.said.limit.as_ref());
        book.places = limits.any(Limit::holds);
        book
    }

    /// The same book, whose plans say what each counter is to be kept near to. Costs a hash for each take, and only stores of several
    /// servers ask.
    #[must_use]
    pub fn with_tags(self) -> Self {
        Self { tags: true, ..self }
    }

    /// The same book, in which quotas that do not name a domain are about this one; without a name, about the only one there is.
    #[must_use]
    pub fn with_default_domain(mut self, name: Option<&str>) -> Self {
        let only = self.domains.len() == 1;
        for domain in self.domains.values_mut() {
            domain.is_default = name.map_or(only, |name| *domain.name == *name);
        }
        self
    }

    /// The name of a caller of a domain, keyed-hashed: what stands for it where no name may stand.
    pub fn caller_key(&self, domain: &str, caller: &str) -> crate::Key {
        self.secret.start().part(b"caller").part(domain.as_bytes()).part(caller.as_bytes()).key()
    }

    /// The same book under another secret: every counter has another key, and starts afresh.
    #[must_use]
    pub fn under(&self, secret: Secret) -> Self {
        let mut book = self.clone();
        book.secret = secret;
        for rule in &mut book.rules {
            rule.start = start(secret, &rule.domain, &rule.id, &rule.said);
        }
        book
    }

    /// The same book, whose plans say what envoyproxy/ratelimit calls the counters of fixed windows ([`Plan::reference_name`]).
    #[must_use]
    pub fn with_reference_names(self) -> Self {
        Self { reference_names: true, ..self }
    }

    /// The same book, for a node that stands in for envoyproxy/ratelimit, whose files cannot say `charge`: a cost that a descriptor brings
    /// itself, such as one that is known at the end of a stream, is charged always. With `all_quota` every limit is in quota mode.
    #[must_use]
    pub fn as_stand_in(self, all_quota: bool) -> Self {
        Self { own_costs_always: true, all_quota, ..self }
    }

    /// The same book, in which these rules, by where they came from or by id, are in another state than they were written in; all others
    /// are as written.
    #[must_use]
    pub fn with_states(&self, states: &std::collections::HashMap<Box<str>, RuleState>) -> Self {
        let mut book = self.clone();
        for rule in &mut book.rules {
            let state = states.get(&*rule.said.origin.file).or_else(|| states.get(&rule.id));
            rule.state = state.copied();
        }
        book
    }

    /// The tag of counters that belong to a value which requests choose.
    pub(crate) fn tag(&self, value: &str) -> Tag {
        if self.tags { self.secret.start().part(value.as_bytes()).key().tag() } else { Tag::default() }
    }

    /// All rules, those of one descriptor beside each other.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// These of them.
    #[inline]
    fn rules_of(&self, Rules { from, to }: Rules) -> &[Rule] {
        &self.rules[from as usize..to as usize]
    }

    /// Does any rule count places?
    pub fn has_places(&self) -> bool {
        self.places
    }

    /// Does any rule know reservations?
    pub fn has_reservations(&self) -> bool {
        self.reservations
    }

    /// A domain.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// The domains, by name.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.domains.values()
    }

    /// What was written about each descriptor of a domain besides its limits.
    pub fn described(&self, domain: &Domain) -> impl Iterator<Item = Described<'_>> {
        // The nodes of a domain stand together, and only the top of one has no way to it.
        let below = self.paths.iter().zip(&self.nodes).skip(domain.top + 1);
        below.take_while(|(path, _)| !path.is_empty()).map(|(path, node)| Described {
            path,
            exempt: node.rare.as_ref().and_then(|rare| rare.exempt.as_ref()),
            ends: node.limits.is_empty()
                && node.tiers.is_empty()
                && node.branches.is_empty()
                && node.wild().is_empty(),
        })
    }

    /// Writes into `plan` what counts for a request: which counters are to be asked what, and what became of every rule that was found.
    pub fn plan<'b>(&'b self, query: &Query<'_>, plan: &mut Plan<'b>) {
        self.plan_recorded(query, None, plan, &mut ());
    }

    /// The same, by what is known about callers too.
    pub fn plan_for<'b>(&'b self, query: &Query<'_>, callers: Option<&Callers<'b>>, plan: &mut Plan<'b>) {
        self.plan_recorded(query, callers, plan, &mut ());
    }

    /// The same, and tells `recorder` how it went about it.
    pub fn plan_recorded<'b>(
        &'b self,
        query: &Query<'_>,
        callers: Option<&Callers<'b>>,
        plan: &mut Plan<'b>,
        recorder: &mut impl Recorder,
    ) {
        self.begin_plan(query, callers, plan);
        self.finish_plan(query, callers, plan, recorder);
    }

    /// The first step of a plan: it begins to fetch what the second needs and is far away in memory. Whoever has several requests to plan
    /// begins all plans before any is finished, and waits for little.
    pub fn begin_plan<'b>(&'b self, query: &Query<'_>, callers: Option<&Callers<'b>>, plan: &mut Plan<'b>) {
        plan.clear();
        plan.domain = self.domains.get(query.domain);
        if let (Some(domain), Some(callers)) = (plan.domain, callers) {
            plan.name_callers(domain, query, callers);
        }
    }

    /// The second step, for the same request: all else.
    pub fn finish_plan<'b>(
        &'b self,
        query: &Query<'_>,
        callers: Option<&Callers<'b>>,
        plan: &mut Plan<'b>,
        recorder: &mut impl Recorder,
    ) {
        let Some(domain) = plan.domain else {
            return recorder.record(Event::DomainUnknown);
        };
        if domain.disabled {
            return recorder.record(Event::DomainDisabled);
        }
        let exempts = |exempt| Exempt::covers(exempt, query.entries, &domain.quota_key);
        if let Some(by) = domain.exempt.as_ref().and_then(exempts) {
            plan.exempt = true;
            return recorder.record(Event::DomainExempts(by));
        }
        if let Some(callers) = callers {
            plan.recognise(domain, callers);
            if plan.any_whitelisted {
                let agreed = |known: &Known<'b>| known.by.agreed(&plan.owns);
                let is_free = |known: &&Known<'b>| agreed(known).is_some_and(|one| one.terms.whitelisted);
                if let Some(known) = plan.callers.iter().find(is_free) {
                    let caller = query.entries[known.at].value;
                    plan.exempt = true;
                    return recorder.record(Event::DomainExempts(ExemptBy::Whitelist(caller)));
                }
            }
        }
        for (at, descriptor) in query.descriptors.iter().enumerate() {
            let found = Found { descriptor: Some(at), ..Found::default() };
            if descriptor.limit.is_some() {
                recorder.record(Event::Brought { descriptor: at });
                plan.found.push(found);
                continue;
            }
            let entries = query.entries_of(descriptor);
            let mut seek = Seek { domain, entries, callers: None, caller: None, quota: None, name: None };
            let mut named = None;
            if let Some(callers) = callers
                && let Some(number) = plan.first_named(&descriptor.entries)
            {
                let known = &plan.callers[number];
                seek.caller = Some(known.at - descriptor.entries.start);
                seek.quota = known.by.agreed(&plan.owns);
                // Most have a tier that the rules know, and nothing else: then there is nothing to ask at each entry.
                let own = seek.quota.is_some_and(Agreed::has_overrides);
                seek.callers = if own || callers.quotas.has_tiers() { Some(callers) } else { None };
                let terms = seek.quota.map(|agreed| agreed.terms);
                named = terms.filter(|terms| terms.has_names()).map(|terms| (number, terms));
            }
            self.find(&seek, found, &mut plan.found, recorder);
            // Under the other names that the caller has, where the request does not use them itself.
            let Some((number, terms)) = named else { continue };
            for by in OtherName::ALL {
                let is_unused = |name: &Entry<'_>| query.entries.iter().all(|entry| entry.key != name.key);
                if let Some(name) = terms.name(by).filter(is_unused) {
                    let found = Found { named: Some((number, by)), ..found };
                    self.find(&Seek { name: Some(name), ..seek }, found, &mut plan.found, recorder);
                }
            }
        }
        if !query.descriptors.is_empty() {
            for way in &domain.always {
                self.find_always(domain, query.entries, way, &mut plan.found, recorder);
            }
        }
        plan.replace();
        plan.count(self, domain, query);
    }

    /// Walks the tree for one descriptor and adds the rules that it finds.
    fn find<'b>(
        &'b self,
        seek: &Seek<'_>,
        mut found: Found<'b>,
        all: &mut Vec<Found<'b>>,
        recorder: &mut impl Recorder,
    ) {
        let Seek { domain, entries, quota, .. } = *seek;
        let waypoint = |node: usize| Waypoint { book: self, node };
        let kept = quota.and_then(|quota| quota.terms.tier.as_ref()).map(TierName::look);
        let tier = kept.or_else(|| domain.tier(entries).map(TierRef::new));
        let (mut at, mut lost) = (domain.top, None);
        let mut node = &self.nodes[at];
        let found_from = all.len();
        let descriptor = found.descriptor.unwrap_or_default();
        let (name, of_quota) = (seek.name, kept.is_some());
        let tier_name = tier.map(|tier| tier.name);
        recorder.record(Event::Starts { descriptor, tier: tier_name, of_quota, name, top: waypoint(at) });
        for (place, entry) in entries.iter().enumerate() {
            if domain.reserves(entry) {
                recorder.record(Event::Reserved(*entry));
                continue;
            }
            let entry = seek.name.filter(|_| seek.caller == Some(place)).unwrap_or(*entry);
            let Some((child, how)) = node.child(self.keys.get(entry.key).copied(), &entry) else {
                recorder.record(Event::Lost { entry, at: waypoint(at) });
                lost = Some(place);
                break;
            };
            (at, node) = (child, &self.nodes[child]);
            let exempt = node.exempts(domain, entries);
            found.exempt |= exempt.is_some();
            if domain.matching == Matching::Leaf {
                pass_by(all, found_from, recorder);
            }
            let of_tier = tier.and_then(|tier| node.of_tier(tier));
            let to = waypoint(at);
            recorder.record(Event::Led { entry, how, to, of_tier: of_tier.is_some(), exempt });
            let rules = self.rules_of(of_tier.unwrap_or(node.limits));
            match seek.granted(place, tier_name) {
                None => all.extend(rules.iter().map(|rule| Found { rule: Some(rule), ..found })),
                Some(by) => {
                    recorder.record(Event::Granted { at: Some(to), grant: by.0, by: by.1 });
                    let rule = granting(rules, by.0);
                    all.push(Found { rule, granted: Some(by), walked: place + 1, ..found });
                }
            }
        }
        let Some(from) = lost else { return };
        if domain.matching == Matching::Leaf {
            pass_by(all, found_from, recorder);
        }
        // Where no rule stands, a caller may still have a limit of its own.
        let last = entries.iter().rposition(|entry| !domain.reserves(entry));
        for (place, entry) in entries.iter().enumerate().skip(from) {
            let counts = domain.matching == Matching::Path || Some(place) == last;
            let ends_here = counts && !domain.reserves(entry);
            if let Some(by) = ends_here.then(|| seek.granted(place, tier_name)).flatten() {
                recorder.record(Event::Granted { at: None, grant: by.0, by: by.1 });
                all.push(Found { rule: None, granted: Some(by), walked: place + 1, ..found });
            }
        }
    }

    /// Adds the rules at the end of a way that nobody has to find. They look at the entries of the whole request.
    fn find_always<'b>(
        &'b self,
        domain: &Domain,
        entries: &[Entry<'_>],
        way: &[usize],
        all: &mut Vec<Found<'b>>,
        recorder: &mut impl Recorder,
    ) {
        let Some(&node) = way.last() else { return };
        let by = way.iter().find_map(|&node| self.nodes[node].exempts(domain, entries));
        recorder.record(Event::Always { at: Waypoint { book: self, node }, exempt: by });
        let exempt = by.is_some();
        let rules = self.rules_of(self.nodes[node].limits); // Whose tier would it be?
        all.extend(rules.iter().map(|rule| Found { rule: Some(rule), exempt, ..Found::default() }));
    }
}

/// The rule whose limit a grant changes: the one for the same time, else the first that limits at all.
#[inline]
fn granting(rules: &[Rule], grant: Grant) -> Option<&Rule> {
    if let [rule] = rules {
        return rule.said.limit.is_some().then_some(rule); // Nearly always.
    }
    granting_of(rules, grant)
}

fn granting_of(rules: &[Rule], grant: Grant) -> Option<&Rule> {
    let limits = || rules.iter().filter(|rule| rule.said.limit.is_some());
    let same = |rule: &&Rule| {
        let limit = rule.said.limit.as_ref();
        limit.is_some_and(|limit| match limit.periods() {
            Some(calendar) => Some(calendar.unit()) == grant.unit.of_calendar(),
            None => !limit.holds() && limit.window() == Some(grant.unit.window()),
        })
    };
    limits().find(same).or_else(|| limits().next())
}

/// What is looked for, for one descriptor.
#[derive(Clone, Copy)]
struct Seek<'s> {
    domain: &'s Domain,
    entries: &'s [Entry<'s>],
    /// What is known about callers, if any of it grants something.
    callers: Option<&'s Callers<'s>>,
    /// Which entry names the caller.
    caller: Option<usize>,
    /// What is kept about it.
    quota: Option<Agreed<'s>>,
    /// Another name of the caller, in the place of that entry.
    name: Option<Entry<'s>>,
}

impl Seek<'_> {
    /// What the caller was granted at the end of the entries up to this one, and by what: an override of its own goes before its tier's.
    /// Under its other names it was granted nothing.
    #[inline]
    fn granted(&self, place: usize, tier: Option<&str>) -> Option<(Grant, GrantedBy)> {
        let (callers, caller) = (self.callers?, self.caller.filter(|_| self.name.is_none())?);
        let at_caller = self.quota.filter(|_| place == caller).and_then(Agreed::granted_itself);
        if let Some(grant) = at_caller {
            return Some((grant, GrantedBy::Override)); // As nearly all overrides are.
        }
        let below = self.entries.get(caller + 1..=place)?;
        let walked = || self.domain.walked(below);
        let own = self.quota.and_then(|quota| quota.granted(walked(), callers.now));
        let of_tier = || tier.and_then(|tier| callers.quotas.of_tier(tier, walked(), callers.now));
        own.map(|grant| (grant, GrantedBy::Override)).or_else(|| Some((of_tier()?, GrantedBy::Tier)))
    }
}

/// Drops what was found on the way: it does not count.
#[inline]
fn pass_by<'b>(all: &mut Vec<Found<'b>>, found_from: usize, recorder: &mut impl Recorder) {
    if all.len() > found_from {
        recorder.record(Event::Passed(&all[found_from..]));
        all.truncate(found_from);
    }
}

/// Looking around, for whoever explains a walk.
impl Book {
    pub(crate) fn path_of(&self, node: usize) -> &[PathEntry] {
        self.paths.get(node).map(|path| &**path).unwrap_or_default()
    }

    pub(crate) fn children_of(&self, node: usize) -> Vec<usize> {
        let Some(node) = self.nodes.get(node) else { return Vec::new() };
        let mut children: Vec<usize> = node.wild().iter().map(|wild| wild.node).collect();
        for branch in &node.branches {
            children.extend(branch.exact.values().chain(&branch.open).map(|node| *node as usize));
            children.extend(branch.wild.iter().map(|wild| wild.node));
        }
        children.sort_unstable(); // Siblings are numbered in the order in which they are written.
        children
    }

    pub(crate) fn limits_of(&self, node: usize) -> impl Iterator<Item = &Rule> {
        let limits = self.nodes.get(node).map(|node| node.limits).unwrap_or_default();
        self.rules_of(limits).iter()
    }

    pub(crate) fn limits_of_tier<'b>(
        &'b self,
        node: usize,
        tier: &str,
    ) -> Option<impl Iterator<Item = &'b Rule> + use<'b>> {
        let limits = self.nodes.get(node)?.of_tier(TierRef::new(tier))?;
        Some(self.rules_of(limits).iter())
    }

    pub(crate) fn tiers_of(&self, node: usize) -> Vec<&str> {
        let tiers = self.nodes.get(node).map(|node| &*node.tiers).unwrap_or_default();
        let mut names: Vec<&str> = tiers.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        names
    }
}

impl Domain {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What was written about it, without its tree.
    pub fn said(&self) -> DomainDraft {
        DomainDraft {
            name: self.name.to_string(),
            matching: self.matching,
            quota_key: self.quota_key.to_string(),
            allow_refunds: self.allow_refunds,
            trust_tier: self.trust_tier,
            disabled: self.disabled,
            exempt: self.exempt.clone(),
            algorithm: self.says_algorithm.then_some(self.algorithm),
            descriptors: Vec::new(),
        }
    }

    /// Which limits on a path count.
    pub fn matching(&self) -> Matching {
        self.matching
    }

    /// The key of the entry that names the caller.
    pub fn quota_key(&self) -> &str {
        &self.quota_key
    }

    /// Is this the key of the entry that names the caller? It is asked of every entry, and to call somebody who compares takes longer than
    /// to compare what is as short as keys are.
    #[inline]
    pub(crate) fn is_quota_key(&self, key: &str) -> bool {
        const SHORT: usize = 8;
        let (one, other) = (key.as_bytes(), self.quota_key.as_bytes());
        let ends = |text: &'_ [u8]| -> Option<[u32; 2]> {
            let (first, last) = (text.first_chunk()?, text.last_chunk()?);
            Some([first, last].map(|four| u32::from_ne_bytes(*four)))
        };
        one.len() == other.len()
            && match (ends(one), ends(other)) {
                (Some(one_ends), Some(other_ends)) if one.len() <= SHORT => one_ends == other_ends,
                _ => one == other,
            }
    }

    /// Does an entry `tier` say the caller's tier? Else it is an entry like others.
    pub fn is_tiered(&self) -> bool {
        self.tiered
    }

    /// The limit that a request brought, as this domain counts it; or why it cannot be counted.
    pub fn own_limit(&self, own: OwnLimit) -> Result<Limit, LimitError> {
        own_limit(self.algorithm, own)
    }

    /// The first of these entries that names a reservation, if any does.
    pub fn reservation_of<'q>(&self, entries: &'q [Entry<'q>]) -> Option<&'q Entry<'q>> {
        if self.reservations.is_empty() {
            return None; // Nearly always.
        }
        entries.iter().find(|entry| self.reservations.iter().any(|key| **key == *entry.key))
    }

    /// Is an entry no part of the way, nor of the key?
    #[inline]
    pub(crate) fn reserves(&self, entry: &Entry<'_>) -> bool {
        self.reserved.binary_search_by(|key| (**key).cmp(entry.key)).is_ok()
    }

    /// The entries that are walked, and whose values make a key: all but the reserved ones.
    pub fn walked<'q>(&self, entries: &'q [Entry<'q>]) -> impl Iterator<Item = &'q Entry<'q>> + Clone {
        entries.iter().filter(move |entry| !self.reserves(entry))
    }

    /// Which entry says who a descriptor speaks of.
    pub(crate) fn caller_at(&self, entries: &[Entry<'_>]) -> Option<usize> {
        entries.iter().position(|entry| *entry.key == *self.quota_key)
    }

    /// Who a descriptor speaks of.
    pub fn caller<'q>(&self, entries: &'q [Entry<'q>]) -> Option<&'q str> {
        entries.iter().find(|entry| *entry.key == *self.quota_key).map(|entry| entry.value)
    }

    fn tier<'q>(&self, entries: &'q [Entry<'q>]) -> Option<&'q str> {
        let said = || entries.iter().find(|entry| entry.key == TIER).map(|entry| entry.value);
        self.tiered.then(said).flatten()
    }
}

/// Compiling.
impl Book {
    fn compile(&mut self, draft: DomainDraft) -> Domain {
        let (mut reserved, mut reservations) = (Vec::new(), Vec::new());
        let tiered = draft.trust_tier && !any(&draft.descriptors, &mut |descriptor| descriptor.key == TIER);
        if tiered {
            reserved.push(TIER.into());
        }
        any(&draft.descriptors, &mut |descriptor| {
            for said in descriptor.limits.iter().chain(descriptor.tiers.iter().flat_map(|(_, limits)| limits))
            {
                reserved.extend(said.lease_id.iter().chain(&said.reservation_id).cloned());
                reservations.extend(said.reservation_id.iter().cloned());
            }
            false
        });
        for keys in [&mut reserved, &mut reservations] {
            keys.sort();
            keys.dedup();
        }

        let mut always = Vec::new();
        let top = self.nodes.len();
        self.nodes.push(Node::default());
        self.paths.push(Arc::default());
        let name = draft.name.as_str().into();
        self.children(&Way { levels: &[], nodes: &[top] }, &name, draft.descriptors, &mut always);
        Domain {
            name: draft.name.into(),
            matching: draft.matching,
            quota_key: draft.quota_key.into(),
            allow_refunds: draft.allow_refunds,
            disabled: draft.disabled,
            exempt: draft.exempt,
            algorithm: draft.algorithm.unwrap_or(Algorithm::SlidingWindow),
            says_algorithm: draft.algorithm.is_some(),
            trust_tier: draft.trust_tier,
            reserved,
            reservations,
            tiered,
            is_default: false,
            top,
            always,
        }
    }

    fn children(
        &mut self,
        above: &Way<'_>,
        domain: &Arc<str>,
        drafts: Vec<DescriptorDraft>,
        always: &mut Vec<Box<[usize]>>,
    ) {
        let (Some(&parent), true) = (above.nodes.last(), above.levels.len() < DEPTH_MAX) else { return };
        for (order, draft) in drafts.into_iter().enumerate() {
            let value = draft.value.filter(|value| !value.is_empty()); // As in the format that ours extends.
            let mut path = above.levels.to_vec();
            path.push(PathEntry::new(
                &draft.key,
                value.as_deref(),
                draft.share_threshold,
                draft.value_to_metric,
            ));
            let node = self.nodes.len();
            let way = [above.nodes, &[node]].concat();
            let levels: Arc<[PathEntry]> = path.as_slice().into();
            self.nodes.push(Node::default());
            self.paths.push(levels.clone());
            self.adopt(parent, order, draft.key, value, node);

            let place = Place { domain, path: &levels, always: draft.always };
            let limits = self.write(&place, None, draft.limits);
            let tiers = draft.tiers.into_iter().map(|(tier, limits)| {
                let rules = self.write(&place, Some(&tier), limits);
                (TierName::new(self.tier_name(&tier)), rules)
            });
            let mut tiers: Vec<(TierName, _)> = tiers.collect();
            tiers.sort_by(|(one, _), (other, _)| one.look().order(other.look())); // Which keeps the first of two before the other.
            tiers.dedup_by(|(one, _), (other, _)| **one == **other);
            if draft.always {
                always.push(way.as_slice().into());
            }
            let rare = draft.exempt.map(|exempt| Box::new(Rare { wild: Vec::new(), exempt: Some(exempt) }));
            self.nodes[node] = Node { branches: Vec::new(), limits, tiers, rare };
            self.children(&Way { levels: &path, nodes: &way }, domain, draft.descriptors, always);
        }
    }

    /// Makes rules of what was said about one descriptor.
    fn write(&mut self, place: &Place<'_>, tier: Option<&str>, said: Vec<RuleDraft>) -> Rules {
        let Place { domain, path, always } = *place;
        let from = self.rules.len();
        for said in said {
            let id = rule_id(domain, path, &said);
            let start = start(self.secret, domain, &id, &said);
            self.rules.push(Rule {
                number: self.rules.len(),
                id: id.into(),
                domain: domain.clone(),
                tier: tier.map(Box::from),
                said,
                path: path.clone(),
                open: open_parts(path),
                always,
                state: None,
                start,
            });
        }
        Rules { from: number(from), to: number(self.rules.len()) }
    }

    /// The name of a tier, one for all nodes that speak of it.
    fn tier_name(&mut self, name: &str) -> Arc<str> {
        self.tiers.get_or_insert_with(name, |name| name.into()).clone()
    }

    /// Puts a node below another.
    fn adopt(&mut self, parent: usize, order: usize, key: String, value: Option<String>, node: usize) {
        let wild = value.as_deref().and_then(Pattern::of);
        if let Some(key) = Pattern::of(&key) {
            let value = match (wild, value) {
                (Some(wild), _) => Value::Wild(wild),
                (None, Some(value)) => Value::Exact(value.into()),
                (None, None) => Value::Open,
            };
            let rare = self.nodes[parent].rare.get_or_insert_default();
            return rare.wild.push(Wild { order, key: Some(key), value, node });
        }
        let next = number(self.keys.len());
        let key = *self.keys.entry(key.into()).or_insert(next);
        let above = &mut self.nodes[parent];
        let at = above.branch(key).unwrap_or_else(|at| {
            let branch = Branch { key, open: None, exact: HashMap::new(), wild: Vec::new() };
            above.branches.insert(at, branch);
            at
        });
        let branch = &mut above.branches[at];
        match (wild, value) {
            (Some(wild), _) => branch.wild.push(Wild { order, key: None, value: Value::Wild(wild), node }),
            (None, Some(value)) => {
                branch.exact.entry(value.into()).or_insert(number(node));
            }
            (None, None) => {
                branch.open.get_or_insert(number(node));
            }
        }
    }
}

/// What all keys of a rule begin with.
fn start(secret: Secret, domain: &str, id: &str, said: &RuleDraft) -> KeyParts {
    let start = secret.start().part(domain.as_bytes()).part(id.as_bytes());
    said.limit.as_ref().map_or(start, |limit| limit.shape(start))
}

/// From the top of a domain to a descriptor that is being compiled.
struct Way<'w> {
    levels: &'w [PathEntry],
    /// The top, and a node for each level.
    nodes: &'w [usize],
}

/// Where limits were written.
struct Place<'p> {
    domain: &'p Arc<str>,
    path: &'p Arc<[PathEntry]>,
    always: bool,
}

/// A place in a book. Of none are there so many: a file of rules is far smaller than 4 GiB.
fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

/// Is there a descriptor for which `is` says so? Asks until one does.
fn any(descriptors: &[DescriptorDraft], is: &mut impl FnMut(&DescriptorDraft) -> bool) -> bool {
    for descriptor in descriptors {
        if is(descriptor) || any(&descriptor.descriptors, is) {
            return true;
        }
    }
    false
}
