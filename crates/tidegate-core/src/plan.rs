//! What counts for one request: the rules that were found, and the counters to be asked.

use std::ops::Range;
use std::sync::Arc;

use crate::book::{Book, Domain, Matching};
use crate::own::Own;
use crate::quota::{Entered, NOBODY};
use crate::terms::{Agreed, OtherName};
use crate::{
    Algorithm, Ask, Callers, Charge, Descriptor, Entry, Grant, Kept, Key, LOG_AMOUNT_MAX, Limit, LimitError,
    OwnLimit, PathEntry, Query, Role, Rule, RuleDraft, Tag,
};

/// A rule, or a limit of the request's own, that a descriptor found, and what became of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'b> {
    /// The descriptor; none where a rule always counts.
    pub descriptor: Option<usize>,
    /// The rule; none where the request brought its limit.
    pub rule: Option<&'b Rule>,
    /// What became of it.
    pub fate: Fate,
    /// What the caller was granted in the place of its limit, and by what.
    pub granted: Option<(Grant, GrantedBy)>,
    /// How many entries of the descriptor lead to that.
    pub(crate) walked: usize,
    /// The name in the place of the caller's own by which it was found: which quota, and which name.
    pub(crate) named: Option<(usize, OtherName)>,
    /// Is whoever asked exempt from it?
    pub(crate) exempt: bool,
}

/// By what a caller was granted a limit of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GrantedBy {
    /// An override of the caller's.
    Override,
    /// The control plane's word on the caller's tier.
    Tier,
}

impl GrantedBy {
    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Override => "override",
            Self::Tier => "tier",
        }
    }
}

/// What became of a rule that was found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Fate {
    /// Not known yet.
    #[default]
    Open,
    /// Counted, by the take with this number.
    Counted(usize),
    /// It says that there is no limit.
    Unlimited,
    /// Another rule that was found replaces it.
    Replaced,
    /// It is switched off.
    Disabled,
    /// Whoever asked is exempt.
    Exempt,
    /// A refund in a domain that does not apply them.
    RefundIgnored,
    /// The request brought a limit that cannot be counted. It is refused.
    Impossible,
}

/// One counter to be asked.
#[derive(Clone, Copy, Debug)]
pub struct Planned<'b> {
    /// Which counter.
    pub key: Key,
    /// What it is kept near to: the first value on its path that no rule fixes, so that whatever counts for one caller is in one place;
    /// the rule itself where all are fixed. Only if the book was told to say ([`Book::with_tags`]).
    pub tag: Tag,
    /// What is asked.
    pub ask: Ask,
    /// What a refusal means for the request.
    pub role: Role,
    /// The rule; none where the request brought its limit.
    pub rule: Option<&'b Rule>,
    /// Are its places taken under the id of the query, because no entry names one?
    pub fresh: bool,
    limit: LimitOf<'b>,
    /// Where its name begins among those of the plan, and where it ends.
    name: (usize, usize),
    /// Wider than a descriptor's, so that no sum of them is cut before the last is in it.
    cost: i128,
    lease: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum LimitOf<'b> {
    Rule(&'b Limit),
    Request(usize),
}

/// An entry that names a caller, and what is kept about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'b> {
    /// Which entry of the request.
    pub(crate) at: usize,
    /// What its records are found by, if there are any.
    hash: u64,
    pub(crate) by: KnownBy<'b>,
}

/// What is kept about a caller, as far as it was looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KnownBy<'b> {
    /// Nothing, in this domain.
    Nothing,
    /// What others have too.
    Shared(Agreed<'b>),
    /// What it has for itself, under this number, and nobody has looked there yet.
    OwnAt(u32),
    /// The same, found: which of those that the plan keeps.
    Own(usize),
}

impl KnownBy<'_> {
    /// What that is, by what the plan keeps.
    #[inline]
    pub(crate) fn agreed<'p>(&self, owns: &'p [Arc<Own>]) -> Option<Agreed<'p>>
    where
        Self: 'p,
    {
        match *self {
            Self::Nothing | Self::OwnAt(_) => None,
            Self::Shared(agreed) => Some(agreed),
            Self::Own(at) => owns.get(at).map(|own| Agreed::by(&own.terms)),
        }
    }
}

/// How much is known about the callers that a request names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum LookedUp {
    /// Nothing yet.
    #[default]
    Not,
    /// All but what single ones have for themselves.
    AllButOwn,
    /// All.
    All,
}

/// What counts for one request. Meant to be kept and used again: it allocates only while it grows.
#[derive(Debug, Default)]
pub struct Plan<'b> {
    pub(crate) domain: Option<&'b Domain>,
    pub(crate) exempt: bool,
    pub(crate) found: Vec<Found<'b>>,
    takes: Vec<Planned<'b>>,
    /// The entries that name callers, in their order.
    pub(crate) callers: Vec<Known<'b>>,
    looked_up: LookedUp,
    /// Is any of them not limited at all?
    pub(crate) any_whitelisted: bool,
    /// What those of them have for themselves who have any.
    pub(crate) owns: Vec<Arc<Own>>,
    /// Limits that the request brought, or that its caller was granted.
    own: Vec<Limit>,
    /// What the reference server calls the counters, one after the other.
    names: String,
}

impl<'b> Plan<'b> {
    /// A plan of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same room, for a request by another book.
    pub fn recycle<'other>(mut self) -> Plan<'other> {
        self.clear();
        // Nothing is in them: collecting keeps the allocation, and only the lifetime changes.
        let found = std::mem::take(&mut self.found).into_iter().map(|_| Found::default()).collect();
        let takes = std::mem::take(&mut self.takes).into_iter().map_while(|_| None).collect();
        let callers = std::mem::take(&mut self.callers).into_iter().map_while(|_| None).collect();
        let Self { owns, own, names, .. } = self;
        Plan {
            domain: None,
            exempt: false,
            found,
            takes,
            callers,
            looked_up: LookedUp::Not,
            any_whitelisted: false,
            owns,
            own,
            names,
        }
    }

    /// Forgets the request, keeps the room.
    pub fn clear(&mut self) {
        self.domain = None;
        self.exempt = false;
        self.found.clear();
        self.takes.clear();
        self.callers.clear();
        self.looked_up = LookedUp::Not;
        self.any_whitelisted = false;
        self.names.clear();
        // What has to be dropped is asked about first: there is hardly ever any.
        if !self.owns.is_empty() {
            self.owns.clear();
        }
        if !self.own.is_empty() {
            self.own.clear();
        }
    }

    /// Finds the callers that a request names, and has the memory brought near in which they are kept.
    #[inline]
    pub(crate) fn name_callers(&mut self, domain: &Domain, query: &Query<'_>, callers: &Callers<'b>) {
        for (at, entry) in query.entries.iter().enumerate() {
            if domain.is_quota_key(entry.key) {
                // Nearly always all descriptors speak of one.
                let again = self.callers.last().filter(|last| query.entries[last.at].value == entry.value);
                let hash = again.map(|last| last.hash).unwrap_or_else(|| {
                    let hash = callers.hash(entry.value);
                    callers.bring_near(hash);
                    hash
                });
                self.callers.push(Known { at, hash, by: KnownBy::Nothing });
            }
        }
    }

    /// Looks up what is kept about them, but for what is theirs alone: that is further away, and asked for. Says whether there is such. A
    /// plan that is finished without it has it done then.
    #[inline]
    pub fn look_up(&mut self, callers: &Callers<'b>) -> bool {
        let Some(domain) = self.domain else { return false };
        self.looked_up = LookedUp::All;
        let (mut hash, mut by) = (NOBODY, KnownBy::Nothing);
        for known in &mut self.callers {
            // Descriptors that speak of one caller, one after the other, are judged by the same, also while it is being changed.
            if known.hash != hash {
                hash = known.hash;
                by = match callers.entered(hash) {
                    Some(Entered::Shared(agreed)) if agreed.terms.is_of(domain) => {
                        self.any_whitelisted |= agreed.terms.whitelisted;
                        KnownBy::Shared(agreed)
                    }
                    Some(Entered::Own(number)) => {
                        self.looked_up = LookedUp::AllButOwn;
                        KnownBy::OwnAt(number)
                    }
                    _ => KnownBy::Nothing,
                };
            }
            known.by = by;
        }
        self.looked_up == LookedUp::AllButOwn
    }

    /// Asks for what is theirs alone.
    #[inline]
    pub fn bring_own_near(&self, callers: &Callers<'b>) {
        for known in self.callers.iter().filter(|_| self.looked_up == LookedUp::AllButOwn) {
            if let KnownBy::OwnAt(number) = known.by {
                callers.bring_own_near(number);
            }
        }
    }

    /// Finds what is kept about them, whatever was looked up so far.
    #[inline(always)]
    pub(crate) fn recognise(&mut self, domain: &Domain, callers: &Callers<'b>) {
        if self.looked_up != LookedUp::All {
            self.recognise_rest(domain, callers);
        }
    }

    #[inline(never)]
    fn recognise_rest(&mut self, domain: &Domain, callers: &Callers<'b>) {
        if self.looked_up == LookedUp::Not {
            self.look_up(callers);
        }
        let (mut hash, mut by) = (NOBODY, KnownBy::Nothing);
        for known in &mut self.callers {
            let KnownBy::OwnAt(number) = known.by else { continue };
            if known.hash != hash {
                hash = known.hash;
                let kept = callers.own(hash, number).filter(|terms| terms.is_of(domain));
                self.any_whitelisted |= kept.as_ref().is_some_and(|terms| terms.whitelisted);
                by = match kept {
                    None => KnownBy::Nothing,
                    Some(Kept::Shared(terms, grant)) => KnownBy::Shared(Agreed { terms, grant }),
                    Some(Kept::Own(own)) => {
                        self.owns.push(own);
                        KnownBy::Own(self.owns.len() - 1)
                    }
                };
            }
            known.by = by;
        }
        self.looked_up = LookedUp::All;
    }

    /// What is kept about one of them, for whoever cannot hold on to the plan.
    #[cold]
    fn kept(&self, number: usize) -> Option<Kept<'b>> {
        match self.callers.get(number)?.by {
            KnownBy::Nothing | KnownBy::OwnAt(_) => None,
            KnownBy::Shared(Agreed { terms, grant }) => Some(Kept::Shared(terms, grant)),
            KnownBy::Own(at) => self.owns.get(at).cloned().map(Kept::Own),
        }
    }

    /// The number of the first of these entries of the request that names a caller.
    #[inline]
    pub(crate) fn first_named(&self, entries: &Range<usize>) -> Option<usize> {
        // Nearly always it is the first of all.
        let is_before = |known: &Known<'_>| known.at < entries.start;
        let first = if self.callers.first().is_some_and(is_before) {
            self.callers.partition_point(is_before)
        } else {
            0
        };
        Some(first).filter(|first| self.callers.get(*first).is_some_and(|known| known.at < entries.end))
    }

    /// The domain, if the book has it.
    pub fn domain(&self) -> Option<&'b Domain> {
        self.domain
    }

    /// Is the whole request exempt?
    pub fn exempt(&self) -> bool {
        self.exempt
    }

    /// What was found, in the order of descriptors and paths; then the rules that always count.
    pub fn found(&self) -> &[Found<'b>] {
        &self.found
    }

    /// The counters to be asked, each once.
    pub fn takes(&self) -> &[Planned<'b>] {
        &self.takes
    }

    /// The limit of one of them.
    pub fn limit<'p>(&'p self, take: &Planned<'b>) -> &'p Limit {
        match take.limit {
            LimitOf::Rule(limit) => limit,
            LimitOf::Request(at) => &self.own[at],
        }
    }

    /// What envoyproxy/ratelimit calls a counter, but for the start of the window at its end: `domain_key_value_…_`. Only of fixed windows,
    /// and only if the book was told to say ([`Book::with_reference_names`]).
    pub fn reference_name(&self, take: &Planned<'b>) -> Option<&str> {
        let (start, end) = take.name;
        self.names.get(start..end).filter(|name| !name.is_empty())
    }

    /// Is it refused whatever the counters say?
    pub fn refused(&self) -> bool {
        self.found.iter().any(|found| found.fate == Fate::Impossible)
    }

    /// Drops the limits that others replace. Two that replace each other both stay: nobody is to lose both by asking for both.
    pub(crate) fn replace(&mut self) {
        if self.found.iter().all(|found| found.rule.is_none_or(|rule| rule.said.replaces.is_empty())) {
            return;
        }
        for at in 0..self.found.len() {
            let Some(rule) = self.found[at].rule.filter(|rule| rule.said.limit.is_some()) else { continue };
            if self.replacing(rule).is_some() && !self.found[at].idle() {
                self.found[at].fate = Fate::Replaced;
            }
        }
    }

    /// The rule that replaces one that was found, if its fate is that.
    pub fn replaced_by(&self, found: &Found<'b>) -> Option<&'b Rule> {
        let rule = found.rule.filter(|_| found.fate == Fate::Replaced)?;
        self.replacing(rule)
    }

    /// A rule that has a say and replaces another, without being replaced by it.
    fn replacing(&self, rule: &Rule) -> Option<&'b Rule> {
        let replaces = |one: &Rule, other: &Rule| {
            other.said.name.as_ref().is_some_and(|name| one.said.replaces.contains(name))
        };
        let mut others = self.found.iter().filter(|other| !other.idle()).filter_map(|other| other.rule);
        others.find(|other| replaces(other, rule) && !replaces(rule, other))
    }

    /// Settles what becomes of each rule that was found, and makes the takes, each counter once.
    #[inline(always)] // It and the next have one caller, which is every decision's; the calls alone are three per cent of a lookup.
    pub(crate) fn count(&mut self, book: &'b Book, domain: &Domain, query: &Query<'_>) {
        let counts = |cost: &i64| *cost >= 0 || domain.allow_refunds;
        let largest = query.descriptors.iter().map(|descriptor| descriptor.cost).filter(counts).max();
        for at in 0..self.found.len() {
            let found = self.found[at];
            let descriptor = found.descriptor.and_then(|at| query.descriptors.get(at));
            // To give back a place under its id is no refund: whoever names the id holds the place.
            let applied = |descriptor: &Descriptor| {
                counts(&descriptor.cost)
                    || found.rule.is_some_and(|rule| rule.is_held_by(query.entries_of(descriptor)))
            };
            let cost =
                descriptor.map_or(largest, |descriptor| applied(descriptor).then_some(descriptor.cost));
            let entries = descriptor.map_or(query.entries, |descriptor| query.entries_of(descriptor));
            let named = found.named.and_then(|(number, by)| Some((self.kept(number)?, by)));
            let name = named.as_ref().and_then(|(terms, by)| terms.name(*by));
            let request = Request {
                domain,
                entries: if found.granted.is_some() && found.rule.is_none() {
                    &entries[..found.walked]
                } else {
                    entries
                },
                name: name.and_then(|name| Some((domain.caller_at(entries)?, name))),
                granted: found.granted.map(|(grant, _)| grant),
                adds: domain.matching == Matching::Leaf && found.rule.is_none_or(|rule| !rule.always),
                cost: cost.unwrap_or_default().into(),
                always: book.own_costs_always && descriptor.is_some_and(|descriptor| descriptor.own_cost),
            };
            self.found[at].fate = match (found.rule, descriptor.and_then(|descriptor| descriptor.limit)) {
                _ if found.fate != Fate::Open => found.fate,
                _ if found.exempt => Fate::Exempt,
                (Some(rule), _) if rule.is_disabled() => Fate::Disabled,
                (Some(Rule { said: RuleDraft { limit: None, .. }, .. }), _) => Fate::Unlimited,
                (None, None) if found.granted.is_none() => Fate::Unlimited,
                _ if cost.is_none() => Fate::RefundIgnored,
                (Some(rule @ Rule { said: RuleDraft { limit: Some(limit), .. }, .. }), _) => {
                    self.ask_rule(book, rule, limit, &request)
                }
                (None, own) => {
                    let granted = request.granted.map(|Grant { amount, unit }| OwnLimit {
                        amount: amount.into(),
                        window: unit.window(),
                    });
                    match granted.or(own) {
                        Some(own) => self.ask_own(book, own, &request),
                        None => Fate::Unlimited,
                    }
                }
            };
        }
        for at in 0..self.takes.len() {
            let take = &self.takes[at];
            let concurrent = self.limit(take).algorithm() == Algorithm::Concurrency;
            // Only now, when what is about one counter is one take. Nobody gives back under an id that nobody was told.
            let fresh = query.lease.filter(|_| concurrent && take.lease.is_none() && take.cost > 0);
            let fresh = take.rule.zip(fresh).map(|(rule, name)| rule.place(name));
            let lease = take.lease.filter(|_| concurrent).or(fresh);
            self.takes[at].ask = ask(take.cost, lease);
            self.takes[at].fresh = fresh.is_some();
        }
    }

    #[inline(always)]
    fn ask_rule(&mut self, book: &'b Book, rule: &'b Rule, limit: &'b Limit, request: &Request<'_>) -> Fate {
        let (mut parts, mut tag, mut granted) = (rule.start, None, None);
        if let Some(grant) = request.granted {
            granted = limit.granting_amount(grant);
            if granted.is_none()
                && let Ok(other) = limit.granting(grant)
            {
                if !other.counts_like(limit) {
                    let start = book.secret.start().part(rule.domain.as_bytes()).part(rule.id.as_bytes());
                    parts = other.shape(start);
                }
                granted = Some(other);
            }
        }
        let mut open = rule.open;
        let mut walked = request.walked();
        while open != 0 {
            let Some(entry) = walked.next() else { break };
            if open & 1 != 0 {
                parts = parts.part(entry.key.as_bytes());
            }
            if open & 2 != 0 {
                parts = parts.part(entry.value.as_bytes());
                tag = tag.or(Some(entry.value));
            }
            open >>= 2;
        }
        let key = parts.key();
        let role = rule.role(key, || request.domain.caller(request.entries));
        let role = if book.all_quota && role == Role::Enforce { Role::Quota } else { role };
        let lease = rule.lease_of(request.entries).map(|name| rule.place(name));
        let name = match book.reference_names {
            true => self.write_name(request, key, granted.as_ref().unwrap_or(limit), Some(&rule.path)),
            false => (0, 0),
        };
        let take = Planned {
            key,
            tag: tag.map_or(key.tag(), |value| book.tag(value)),
            ask: Ask::Peek,
            role,
            rule: Some(rule),
            fresh: false,
            limit: match granted {
                None => self.charged(limit, request),
                Some(granted) => self.keep(granted, request),
            },
            name,
            cost: request.cost,
            lease,
        };
        Fate::Counted(self.merge(take, request.adds))
    }

    /// A rule's limit; a copy of it where the request is to be charged always.
    #[inline(always)]
    fn charged(&mut self, limit: &'b Limit, request: &Request<'_>) -> LimitOf<'b> {
        if !request.always || limit.charge() == Charge::Always {
            return LimitOf::Rule(limit);
        }
        match limit.clone().charging(Charge::Always) {
            Ok(always) => {
                self.own.push(always);
                LimitOf::Request(self.own.len() - 1)
            }
            Err(_) => LimitOf::Rule(limit), // Places are held, or they are not.
        }
    }

    /// Keeps a limit that no rule has, charged as the request is to be.
    fn keep(&mut self, limit: Limit, request: &Request<'_>) -> LimitOf<'b> {
        self.own.push(match request.always {
            true => limit.clone().charging(Charge::Always).unwrap_or(limit),
            false => limit,
        });
        LimitOf::Request(self.own.len() - 1)
    }

    fn ask_own(&mut self, book: &Book, own: OwnLimit, request: &Request<'_>) -> Fate {
        let Ok(limit) = request.domain.own_limit(own) else { return Fate::Impossible };
        // No rule has such an id, so no rule shares the counter, nor what a request brings one that was granted.
        let whose: &[u8] = if request.granted.is_some() { b"quota" } else { b"" };
        let start = book.secret.start().part(request.domain.name.as_bytes()).part(whose);
        let mut parts = limit.shape(start);
        for entry in request.domain.walked(request.entries) {
            parts = parts.part(entry.key.as_bytes()).part(entry.value.as_bytes());
        }
        let name = match book.reference_names {
            true => self.write_name(request, parts.key(), &limit, None),
            false => (0, 0),
        };
        let first = request.domain.walked(request.entries).next();
        let take = Planned {
            key: parts.key(),
            tag: first.map_or(parts.key().tag(), |entry| book.tag(entry.value)),
            ask: Ask::Peek,
            role: if book.all_quota { Role::Quota } else { Role::Enforce },
            rule: None,
            fresh: false,
            limit: self.keep(limit, request),
            name,
            cost: request.cost,
            lease: None,
        };
        Fate::Counted(self.merge(take, request.adds))
    }

    /// Writes what the reference server calls a counter: all that the request says on the rule's path, but for what shares a counter, where
    /// it is the rule's pattern. Gives where it stands. The window's length is no part of it: of several limits on one descriptor, which
    /// the reference does not have, the first has the name.
    fn write_name(
        &mut self,
        request: &Request<'_>,
        key: Key,
        limit: &Limit,
        path: Option<&[PathEntry]>,
    ) -> (usize, usize) {
        let start = self.names.len();
        if limit.algorithm() != Algorithm::FixedWindow {
            return (start, start);
        }
        self.names.push_str(&request.domain.name);
        self.names.push('_');
        let depth = path.map_or(usize::MAX, <[PathEntry]>::len);
        for (at, entry) in request.walked().take(depth).enumerate() {
            let level = path.and_then(|path| path.get(at));
            let shared = level.filter(|level| level.is_fixed()).and_then(|level| level.value.as_deref());
            for part in [entry.key, shared.unwrap_or(entry.value)] {
                self.names.push_str(part);
                self.names.push('_');
            }
        }
        let is_taken = |take: &Planned<'_>| {
            take.key != key && self.names[take.name.0..take.name.1] == self.names[start..]
        };
        if self.takes.iter().any(is_taken) {
            self.names.truncate(start);
        }
        (start, self.names.len())
    }

    /// Adds a take, or makes it part of one on the same counter. Gives its number.
    fn merge(&mut self, take: Planned<'b>, adds: bool) -> usize {
        let same = |other: &Planned<'_>| other.key == take.key && other.lease == take.lease;
        let Some(at) = self.takes.iter().position(same) else {
            self.takes.push(take);
            return self.takes.len() - 1;
        };
        let other = self.takes[at];
        let cost = if adds { other.cost + take.cost } else { other.cost.max(take.cost) };
        // Tiers may give different numbers for one counter.
        let smaller = self.limit(&take).amount() < self.limit(&other).amount();
        let role = stricter(take.role, other.role);
        self.takes[at] = Planned { cost, role, ..if smaller { take } else { other } };
        at
    }
}

/// What one finding asks.
struct Request<'q> {
    domain: &'q Domain,
    /// Of its descriptor; of all, for a rule that always counts.
    entries: &'q [Entry<'q>],
    /// Another name of the caller, and which entry's place it has.
    name: Option<(usize, Entry<'q>)>,
    /// What the caller was granted in the place of the limit.
    granted: Option<Grant>,
    /// Do costs on one counter add, or does the largest count?
    adds: bool,
    cost: i128,
    /// Is it charged also where it does not fit?
    always: bool,
}

impl<'q> Request<'q> {
    /// The entries that lead to what it asks.
    #[inline(always)]
    fn walked(&self) -> impl Iterator<Item = Entry<'q>> {
        let walked = self.entries.iter().enumerate().filter(|(_, entry)| !self.domain.reserves(entry));
        walked.map(|(at, entry)| match self.name {
            Some((place, name)) if place == at => name,
            _ => *entry,
        })
    }
}

impl Found<'_> {
    /// Has it no say in its request?
    fn idle(&self) -> bool {
        self.exempt || self.rule.is_some_and(Rule::is_disabled)
    }
}

fn stricter(one: Role, other: Role) -> Role {
    match (one, other) {
        (Role::Enforce, _) | (_, Role::Enforce) => Role::Enforce,
        (Role::Quota, _) | (_, Role::Quota) => Role::Quota,
        (Role::Shadow, Role::Shadow) => Role::Shadow,
    }
}

fn ask(cost: i128, lease: Option<u64>) -> Ask {
    let units = u64::try_from(cost.unsigned_abs()).unwrap_or(u64::MAX);
    match (cost, lease) {
        (0, _) => Ask::Peek,
        (1.., Some(id)) => Ask::Acquire { id, cost: units },
        (1.., None) => Ask::Charge { cost: units },
        (_, Some(id)) => Ask::Release { id },
        (_, None) => Ask::Refund { units, receipt: None },
    }
}

/// The limit that a request brought, by the algorithm of its domain; by the default where that one needs more than two numbers or
/// cannot hold them.
pub(crate) fn own_limit(
    algorithm: Algorithm,
    OwnLimit { amount, window }: OwnLimit,
) -> Result<Limit, LimitError> {
    match algorithm {
        Algorithm::SlidingWindowCounter => Limit::sliding_window_counter(amount, window),
        Algorithm::SubWindow => Limit::sub_window(amount, window, None, false),
        Algorithm::FixedWindow => Limit::fixed_window(amount, window),
        Algorithm::TokenBucket => Limit::token_bucket(amount, window, None),
        Algorithm::Gcra => Limit::gcra(amount, window, None),
        Algorithm::LeakyBucket => Limit::leaky_bucket(amount, window, None),
        Algorithm::SlidingLog if amount <= LOG_AMOUNT_MAX => Limit::sliding_log(amount, window),
        Algorithm::SlidingWindow | Algorithm::SlidingLog | Algorithm::Concurrency | Algorithm::Calendar => {
            Limit::sliding_window(amount, window)
        }
    }
}
