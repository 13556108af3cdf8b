//! Rules: a limit, where it stands, and what is to be done with its verdict.

use std::sync::Arc;

use crate::{Algorithm, DEPTH_MAX, Entry, Key, KeyParts, Limit, Role};

/// A share in hundredths of a percent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Share(u16);

impl Share {
    /// Everything.
    pub const ALL: Self = Self(10_000);

    /// So many hundredths of a percent, at most all.
    pub const fn of_basis_points(points: u16) -> Self {
        Self(if points > Self::ALL.0 { Self::ALL.0 } else { points })
    }

    /// In hundredths of a percent.
    pub const fn basis_points(self) -> u16 {
        self.0
    }
}

/// How exactly a limit is kept across a fleet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Consistency {
    /// Every decision is one atomic step in the store.
    #[default]
    Exact,
    /// From units that a node takes in advance; never over the limit.
    Leased,
    /// Written back later, within a bound.
    Capped,
    /// Every node counts for itself.
    Local,
}

/// What is answered when the store cannot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OnStoreFailure {
    /// Go on.
    #[default]
    Allow,
    /// Stop.
    Deny,
    /// By this node's own count of its share of the limit.
    Local,
    /// An error, so that the proxy decides.
    Error,
}

impl OnStoreFailure {
    /// The word used in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Local => "local",
            Self::Error => "error",
        }
    }

    /// Of several in one request the one with the highest number holds.
    pub const fn strictness(self) -> u8 {
        match self {
            Self::Allow => 0,
            Self::Local => 1,
            Self::Deny => 2,
            Self::Error => 3,
        }
    }
}

/// What a rule says about stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// How exactly it is kept.
    pub consistency: Consistency,
    /// What is answered without the store.
    pub on_store_failure: OnStoreFailure,
    /// The part of the limit that one node may spend alone; by default one over the number of nodes.
    pub local_share: Option<Share>,
    /// How many replicas have to have a charge before it counts.
    pub replicate: u8,
}

impl Policy {
    /// Without the store there is no answer.
    pub const STRICT: Self = Self {
        consistency: Consistency::Exact,
        on_store_failure: OnStoreFailure::Error,
        local_share: None,
        replicate: 0,
    };
}

/// One entry of a rule's path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathEntry {
    /// The entry's key, perhaps with wildcards.
    pub key: Box<str>,
    /// The entry's value, perhaps with wildcards; none leaves it open.
    pub value: Option<Box<str>>,
    /// The request's value is part of the name of its metrics.
    pub value_to_metric: bool,
    /// Has each key a counter of its own?
    pub(crate) key_open: bool,
    /// Has each value?
    pub(crate) value_open: bool,
}

impl PathEntry {
    /// An entry; with `share_threshold` all that fits its wildcards shares one counter. Where there are none, it says nothing.
    pub fn new(key: &str, value: Option<&str>, share_threshold: bool, value_to_metric: bool) -> Self {
        let (wild_key, wild_value) = (key.contains('*'), value.is_some_and(|value| value.contains('*')));
        let shared = share_threshold && (wild_key || wild_value);
        Self {
            key: key.into(),
            value: value.map(Box::from),
            value_to_metric,
            key_open: wild_key && !shared,
            value_open: (wild_value || value.is_none()) && !shared,
        }
    }

    /// Does it lead to one counter, whatever the request says?
    pub fn is_fixed(&self) -> bool {
        !self.key_open && !self.value_open
    }
}

/// Where a rule was written.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The file, or whatever it came from.
    pub file: Arc<str>,
    /// The line, from 1; 0 where there are none.
    pub line: u32,
}

/// What is written about one limit. The book gives it its place, and makes a [`Rule`] of it. In memory in this order: what decisions read
/// stands together, before what they do not.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct RuleDraft {
    /// How much; none is unlimited.
    pub limit: Option<Limit>,
    /// What it says about stores.
    pub policy: Policy,
    /// Counted, never refused.
    pub shadow: bool,
    /// One of a group of which one has to pass.
    pub quota: bool,
    /// As if it were not there.
    pub disabled: bool,
    /// The name of its metrics has all values of the request.
    pub detailed_metric: bool,
    /// The part of the callers for whom it is enforced.
    pub enforce: Option<Share>,
    /// Its name, for headers and `replaces`.
    pub name: Option<Box<str>>,
    /// The names of the limits that it drops from its request.
    pub replaces: Box<[Box<str>]>,
    /// The key of the entry with the id of places held.
    pub lease_id: Option<Box<str>>,
    /// The key of the entry with the id of a reservation.
    pub reservation_id: Option<Box<str>>,
    /// JSON that is handed on to the proxy.
    pub metadata: Option<Arc<str>>,
    /// Where it was written.
    pub origin: Origin,
}

/// A limit in its place. In memory in this order, from the beginning of a cache line: among very many rules a decision waits for each that
/// it needs, and needs four.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Rule {
    /// What all its keys begin with.
    pub(crate) start: KeyParts,
    /// What of a request is part of its keys: two bits for each level of the path, one for the entry's key and one for its value.
    pub(crate) open: u64,
    /// Its place among the rules of the book.
    pub number: usize,
    /// The state that somebody put it in, whatever was written.
    pub state: Option<RuleState>,
    /// It counts for every request of its domain.
    pub always: bool,
    /// What was written.
    pub said: RuleDraft,
    /// Domain, path, and name or else algorithm and window.
    pub id: Box<str>,
    /// The domain.
    pub domain: Arc<str>,
    /// The tier that it is for; none is everybody else.
    pub tier: Option<Box<str>>,
    /// The way from the top of its domain.
    pub path: Arc<[PathEntry]>,
}

const _: () = assert!(std::mem::offset_of!(Rule, said) == 64);
const _: () = assert!(std::mem::offset_of!(Rule, said) + std::mem::offset_of!(RuleDraft, metadata) <= 4 * 64);

/// [`Rule::open`] of a rule with this path.
pub(crate) fn open_parts(path: &[PathEntry]) -> u64 {
    const _: () = assert!(2 * DEPTH_MAX <= u64::BITS as usize);
    let bits = |level: &PathEntry| u64::from(level.key_open) | u64::from(level.value_open) << 1;
    path.iter().rev().fold(0, |open, level| open << 2 | bits(level))
}

/// What a rule does about its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleState {
    /// It refuses, for this part of the callers; for the others it is in shadow.
    Enforce(Share),
    /// It counts, and never refuses.
    Shadow,
    /// It is as if it were not there.
    Disabled,
}

impl Rule {
    /// The state that it is in: what was written, unless somebody said otherwise.
    pub fn state(&self) -> RuleState {
        self.state.unwrap_or_else(|| self.written_state())
    }

    /// The state that it was written in.
    pub fn written_state(&self) -> RuleState {
        match (self.said.disabled, self.said.shadow) {
            (true, _) => RuleState::Disabled,
            (_, true) => RuleState::Shadow,
            _ => RuleState::Enforce(self.said.enforce.unwrap_or(Share::ALL)),
        }
    }

    /// Is it as if it were not there?
    #[inline]
    pub(crate) fn is_disabled(&self) -> bool {
        self.state.map_or(self.said.disabled, |state| state == RuleState::Disabled)
    }

    /// What its verdict means for a request. Only if it is for some callers, `caller` is asked who that is; where nobody is named, it is
    /// the counter.
    #[inline]
    pub(crate) fn role<'c>(&self, key: Key, caller: impl FnOnce() -> Option<&'c str>) -> Role {
        let (shadow, enforce) = match self.state {
            None => (self.said.shadow, self.said.enforce),
            Some(RuleState::Enforce(Share::ALL)) => (false, None),
            Some(RuleState::Enforce(share)) => (false, Some(share)),
            Some(RuleState::Shadow | RuleState::Disabled) => (true, None),
        };
        let lot = || match caller() {
            Some(caller) => self.lot(caller.as_bytes()),
            None => self.lot(&key.bits().to_le_bytes()),
        };
        let enforced = || enforce.is_none_or(|share| lot() < share.basis_points());
        match (shadow, self.said.quota) {
            (true, _) => Role::Shadow,
            _ if !enforced() => Role::Shadow,
            (_, true) => Role::Quota,
            _ => Role::Enforce,
        }
    }

    /// The name under which places are held, if one of the entries says it.
    pub(crate) fn lease_of<'q>(&self, entries: &'q [Entry<'q>]) -> Option<&'q str> {
        let key = self.said.lease_id.as_deref()?;
        entries.iter().find(|entry| entry.key == key).map(|entry| entry.value)
    }

    /// Do the entries name places of it?
    pub(crate) fn is_held_by(&self, entries: &[Entry<'_>]) -> bool {
        let counts_places = |limit: &Limit| limit.algorithm() == Algorithm::Concurrency;
        self.said.limit.as_ref().is_some_and(counts_places) && self.lease_of(entries).is_some()
    }

    /// The id of places that a caller holds under a name of its own; never [`crate::Ask::ANONYMOUS`].
    pub(crate) fn place(&self, name: &str) -> u64 {
        (self.start.part(b"lease").part(name.as_bytes()).key().bits() as u64).max(1)
    }

    /// A number below 10 000 that a caller always draws for this rule, on every node. Its own for each rule, so that not the same
    /// callers are first everywhere.
    fn lot(&self, caller: &[u8]) -> u16 {
        let bits = self.start.part(b"enforce").part(caller).key().bits() as u64;
        ((u128::from(bits) * u128::from(Share::ALL.basis_points())) >> 64) as u16
    }
}

/// The id of a rule. Parts are escaped, so that different rules have different ids.
pub fn rule_id(domain: &str, path: &[PathEntry], said: &RuleDraft) -> String {
    let mut id = String::new();
    escape(&mut id, domain, "|#");
    for level in path {
        id.push('|');
        escape(&mut id, &level.key, "|#:");
        if let Some(value) = &level.value {
            id.push(':');
            escape(&mut id, value, "|#");
        }
    }
    id.push('#');
    match (&said.name, &said.limit) {
        (Some(name), _) => id.push_str(name),
        (None, Some(limit)) => id.push_str(&limit.label()),
        (None, None) => id.push_str("unlimited"),
    }
    id
}

fn escape(id: &mut String, text: &str, special: &str) {
    for one in text.chars() {
        if one == '\\' || special.contains(one) {
            id.push('\\');
        }
        id.push(one);
    }
}
