//! What a rule file says about one domain, as plain data.

use crate::spec::{Algorithm, Calendar, Spec};

/// One domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleTree {
    /// Its name.
    pub domain: String,
    /// Which limits on a path count.
    pub matching: Matching,
    /// The key of the entry that names the caller.
    pub quota_key: String,
    /// Are refunds applied?
    pub allow_refunds: bool,
    /// Does an entry say the caller's tier?
    pub trust_tier: bool,
    /// Nobody is refused by any of its rules.
    pub shadow_mode: bool,
    /// As if it were unknown: nothing is counted, nor what requests bring.
    pub disabled: bool,
    /// Who is not limited at all.
    pub exempt: Option<Exempt>,
    /// `defaults.algorithm`.
    pub algorithm: Option<Algorithm>,
    /// The descriptors at the top.
    pub descriptors: Vec<Node>,
}

/// `match`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// The limits at the last entry.
    Leaf,
    /// Those on the way, too.
    Path,
}

/// Who is not limited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exempt {
    /// Callers, by name.
    pub callers: Vec<String>,
    /// Networks, as `address/bits`.
    pub networks: Vec<String>,
}

/// One descriptor of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its key, perhaps with wildcards.
    pub key: String,
    /// Its value, perhaps with wildcards; an empty one is none.
    pub value: Option<String>,
    /// All that fits its wildcard shares one counter.
    pub share_threshold: bool,
    /// Its limits count for every request.
    pub always: bool,
    /// Who is not limited by it, nor by what is below.
    pub exempt: Option<Exempt>,
    /// Counted, never refused.
    pub shadow_mode: bool,
    /// One of a group of which one has to have room.
    pub quota_mode: bool,
    /// As if its limits were not there.
    pub disabled: bool,
    /// Its limits.
    pub limits: Vec<RuleLimit>,
    /// What it says to callers of a tier.
    pub tiers: Vec<(String, Tier)>,
    /// What is below it.
    pub descriptors: Vec<Node>,
}

/// What a descriptor says to callers of one tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tier {
    /// Changes to its only limit.
    Patch(Patch),
    /// Limits that stand in the place of its own.
    List(Vec<RuleLimit>),
}

/// Changes to a limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// Another amount.
    pub amount: Option<u64>,
    /// Another window.
    pub window_us: Option<u64>,
    /// Another algorithm.
    pub algorithm: Option<Algorithm>,
    /// For how many of a hundred callers it is enforced.
    pub enforce: Option<u8>,
    /// No limit at all; then no number is named.
    pub unlimited: bool,
}

/// One limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleLimit {
    /// Its name.
    pub name: Option<String>,
    /// How it is counted, unless as the domain's defaults say.
    pub algorithm: Option<Algorithm>,
    /// How much.
    pub amount: u64,
    /// In which time; 0 for concurrency and calendar.
    pub window_us: u64,
    /// The units that a bucket holds.
    pub burst: Option<u64>,
    /// Into how many parts the window is cut.
    pub sub_windows: Option<u32>,
    /// Never more than the amount.
    pub strict: bool,
    /// `charge: always`.
    pub charge_always: bool,
    /// How long a place is held.
    pub ttl_us: Option<u64>,
    /// The periods of a calendar limit.
    pub calendar: Option<Calendar>,
    /// Known, and not limited.
    pub unlimited: bool,
    /// Names of the limits that it drops from its request.
    pub replaces: Vec<String>,
    /// For how many of a hundred callers it is enforced.
    pub enforce: Option<u8>,
    /// As if it were not there.
    pub disabled: bool,
    /// The key of the entry with the id of a place.
    pub lease_id: Option<String>,
    /// The key of the entry with the id of a reservation.
    pub reservation_id: Option<String>,
}

impl RuleTree {
    /// A domain that says nothing.
    pub fn new(domain: &str) -> Self {
        Self {
            domain: domain.to_owned(),
            matching: Matching::Leaf,
            quota_key: "api_key".to_owned(),
            allow_refunds: false,
            trust_tier: false,
            shadow_mode: false,
            disabled: false,
            exempt: None,
            algorithm: None,
            descriptors: Vec::new(),
        }
    }

    /// How limits are counted that do not say.
    pub fn default_algorithm(&self) -> Algorithm {
        self.algorithm.unwrap_or(Algorithm::SlidingWindow)
    }

    /// Every descriptor, each before what is below it.
    pub fn nodes(&self) -> Vec<&Node> {
        self.descriptors.iter().flat_map(Node::with_all_below).collect()
    }
}

impl Node {
    /// A descriptor that says nothing.
    pub fn new(key: &str, value: Option<&str>) -> Self {
        Self {
            key: key.to_owned(),
            value: value.map(str::to_owned),
            share_threshold: false,
            always: false,
            exempt: None,
            shadow_mode: false,
            quota_mode: false,
            disabled: false,
            limits: Vec::new(),
            tiers: Vec::new(),
            descriptors: Vec::new(),
        }
    }

    /// The value, where it has one.
    pub fn fixed_value(&self) -> Option<&str> {
        self.value.as_deref().filter(|value| !value.is_empty())
    }

    /// Is there a wildcard in its key or value?
    pub fn has_wildcard(&self) -> bool {
        self.key.contains('*') || self.fixed_value().is_some_and(|value| value.contains('*'))
    }

    /// Does one entry fit it, and no other?
    pub fn is_fixed(&self) -> bool {
        self.fixed_value().is_some() && !self.has_wildcard()
    }

    /// The limits for a caller of this tier, and whether the tier gave them.
    pub fn limits_for(&self, tier: Option<&str>, default: Algorithm) -> (Option<&str>, Vec<RuleLimit>) {
        match self.tiers.iter().find(|(name, _)| Some(name.as_str()) == tier) {
            Some((name, Tier::List(limits))) => (Some(name), limits.clone()),
            Some((name, Tier::Patch(patch))) => {
                (Some(name), self.limits.iter().map(|limit| patch.applied_to(limit, default)).collect())
            }
            None => (None, self.limits.clone()),
        }
    }

    /// Everything that is written here as a limit, for whomever.
    pub fn all_limits(&self, default: Algorithm) -> Vec<RuleLimit> {
        let of_tiers = self.tiers.iter().flat_map(|(name, _)| self.limits_for(Some(name), default).1);
        self.limits.iter().cloned().chain(of_tiers).collect()
    }

    fn with_all_below(&self) -> Vec<&Node> {
        let below = self.descriptors.iter().flat_map(Node::with_all_below);
        std::iter::once(self).chain(below).collect()
    }
}

impl Patch {
    /// The limit that it makes of another. What only the algorithm has that it leaves behind stays behind.
    pub fn applied_to(&self, limit: &RuleLimit, default: Algorithm) -> RuleLimit {
        let mut changed = limit.clone();
        if self.algorithm.is_some_and(|other| other != limit.algorithm.unwrap_or(default)) {
            changed = RuleLimit { burst: None, sub_windows: None, strict: false, ..changed };
        }
        if self.unlimited {
            changed.unlimited = true;
        }
        if let Some(amount) = self.amount {
            changed.amount = amount;
        }
        if let Some(window_us) = self.window_us {
            changed.window_us = window_us;
        }
        if let Some(algorithm) = self.algorithm {
            changed.algorithm = Some(algorithm);
        }
        if let Some(enforce) = self.enforce {
            changed.enforce = Some(enforce);
        }
        changed
    }
}

impl RuleLimit {
    /// A limit that says how much, and nothing else.
    pub fn new(amount: u64, window_us: u64) -> Self {
        Self {
            name: None,
            algorithm: None,
            amount,
            window_us,
            burst: None,
            sub_windows: None,
            strict: false,
            charge_always: false,
            ttl_us: None,
            calendar: None,
            unlimited: false,
            replaces: Vec::new(),
            enforce: None,
            disabled: false,
            lease_id: None,
            reservation_id: None,
        }
    }

    /// How much, counted how; none is unlimited.
    pub fn spec(&self, default: Algorithm) -> Option<Spec> {
        let mut spec = Spec::new(self.algorithm.unwrap_or(default), self.amount, self.window_us);
        spec.burst = self.burst;
        spec.sub_windows = self.sub_windows;
        spec.strict = self.strict;
        spec.always = self.charge_always;
        spec.ttl_us = self.ttl_us.unwrap_or(spec.ttl_us);
        spec.calendar = self.calendar.clone();
        (!self.unlimited).then_some(spec)
    }
}
