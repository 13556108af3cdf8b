//! What is known about callers beside the rules, as plain data.

use super::dice::Dice;
use super::request::{Descriptor, Request};
use super::tree::RuleTree;
use crate::spec::{Algorithm, Calendar, Spec, Unit};

/// Everything that is known, and when it is asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known {
    /// Callers.
    pub callers: Vec<Caller>,
    /// Tiers, by name.
    pub tiers: Vec<(String, Vec<Exception>)>,
    /// The domain of what does not name one.
    pub default_domain: String,
    /// The time.
    pub now_us: u64,
}

/// One caller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Caller {
    /// Its name.
    pub name: String,
    /// The domain; none is the default.
    pub domain: Option<String>,
    /// Its tier.
    pub tier: Option<String>,
    /// Its user.
    pub user: Option<String>,
    /// Its client.
    pub client: Option<String>,
    /// Is it not limited at all?
    pub whitelisted: bool,
    /// Its own limits.
    pub exceptions: Vec<Exception>,
}

/// A limit for one caller, or for all of a tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    /// Where, below the entry that names the caller.
    pub below: Vec<(String, String)>,
    /// How much.
    pub grant: Grant,
    /// From when.
    pub from_us: u64,
    /// Until when.
    pub until_us: u64,
}

/// So much in such a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// How much.
    pub amount: u64,
    /// The name of the unit.
    pub unit: &'static str,
}

impl Known {
    /// Something about callers that these requests name, at addresses that they lead to.
    pub fn random(dice: &mut Dice, trees: &[RuleTree], requests: &[Request]) -> Self {
        let mut known = Self { default_domain: trees[0].domain.clone(), now_us: 1_000, ..Self::default() };
        for request in requests {
            let tree = trees.iter().find(|tree| tree.domain == request.domain).unwrap_or(&trees[0]);
            for descriptor in &request.descriptors {
                let Some(name) = descriptor.value_of(&tree.quota_key).map(str::to_owned) else { continue };
                let exceptions: Vec<Exception> =
                    (0..dice.roll(4)).map(|_| Exception::random(dice, tree, descriptor)).collect();
                let tier = (!dice.once_in(3)).then(|| dice.pick(&["pro", "free", "gold"]).to_owned());
                if dice.once_in(6) {
                    known.tiers.push((tier.clone().unwrap_or_default(), exceptions.clone()));
                }
                if dice.once_in(3) || known.callers.iter().any(|caller| caller.name == name) {
                    continue;
                }
                let other = |dice: &mut Dice| dice.once_in(3).then(|| dice.pick(&["x", "y", "a"]).to_owned());
                known.callers.push(Caller {
                    name,
                    domain: dice.once_in(3).then(|| dice.pick(&RuleTree::DOMAINS).to_owned()),
                    tier,
                    user: other(dice),
                    client: other(dice),
                    whitelisted: dice.once_in(12),
                    exceptions,
                });
            }
        }
        known
    }

    /// What is known about a caller in a domain.
    pub(super) fn caller(&self, tree: &RuleTree, name: &str) -> Option<&Caller> {
        let caller = self.callers.iter().find(|caller| caller.name == name)?;
        (caller.domain.as_ref().unwrap_or(&self.default_domain) == &tree.domain).then_some(caller)
    }

    /// What holds at an address: the caller's own first.
    pub(super) fn granted(
        &self,
        caller: Option<&Caller>,
        tier: Option<&str>,
        below: &[(String, String)],
    ) -> Option<Grant> {
        let own = caller.map(|caller| &caller.exceptions);
        let of_tier = self.tiers.iter().find(|(name, _)| Some(name.as_str()) == tier).map(|(_, all)| all);
        let all = own.into_iter().flatten().chain(of_tier.into_iter().flatten());
        let in_time = |one: &&Exception| (one.from_us..one.until_us).contains(&self.now_us);
        all.filter(in_time).find(|one| one.below == below).map(|one| one.grant)
    }
}

impl Exception {
    fn random(dice: &mut Dice, tree: &RuleTree, descriptor: &Descriptor) -> Self {
        let at = descriptor.entries.iter().position(|(key, _)| *key == tree.quota_key).unwrap_or(0);
        let mut below = descriptor.entries[at + 1..].to_vec();
        below.truncate(dice.roll(below.len() + 1));
        if dice.once_in(8) {
            below.reverse();
        }
        let unit = dice.pick(&["minute", "second", "hour", "day", "week", "month", "year"]);
        let amount = dice.pick(&[7, 500, 0, 20_000, u64::from(u32::MAX)]);
        let (from_us, until_us) =
            dice.pick(&[(0, u64::MAX), (0, u64::MAX), (1_000, 1_001), (0, 1_000), (1_001, 5_000)]);
        Self { below, grant: Grant { amount, unit }, from_us, until_us }
    }
}

impl Caller {
    /// The entries that it is also known by.
    pub(super) fn other_names(&self) -> Vec<(&'static str, &str)> {
        let user = self.user.iter().map(|name| ("user_id", name.as_str()));
        user.chain(self.client.iter().map(|name| ("client_id", name.as_str()))).collect()
    }
}

impl Grant {
    /// The length of its unit.
    pub fn window_us(&self) -> u64 {
        let seconds = match self.unit {
            "second" => 1,
            "minute" => 60,
            "hour" => 3_600,
            "day" => 86_400,
            "week" => 604_800,
            "month" => 2_592_000,
            "year" => 31_536_000,
            other => panic!("there is no unit {other}"),
        };
        seconds * 1_000_000
    }

    fn calendar_unit(&self) -> Option<Unit> {
        match self.unit {
            "day" => Some(Unit::Day),
            "week" => Some(Unit::Week),
            "month" => Some(Unit::Month),
            _ => None,
        }
    }

    /// Is a limit about the same time?
    pub(super) fn is_for(&self, spec: &Spec) -> bool {
        match (spec.algorithm, &spec.calendar) {
            (Algorithm::Concurrency, _) => false,
            (_, Some(calendar)) => Some(calendar.unit) == self.calendar_unit(),
            (_, None) => spec.window_us == self.window_us(),
        }
    }

    /// A limit with these numbers in the place of its own.
    pub(super) fn applied_to(&self, spec: &Spec) -> Spec {
        let by_default = || Spec {
            always: spec.always,
            ..Spec::new(Algorithm::SlidingWindow, self.amount, self.window_us())
        };
        let mut other = Spec { amount: self.amount, window_us: self.window_us(), ..spec.clone() };
        match spec.algorithm {
            Algorithm::Calendar => {
                other.window_us = spec.window_us;
                let unit = self.calendar_unit();
                match (&spec.calendar, unit) {
                    (Some(calendar), Some(unit)) => {
                        other.calendar = Some(Calendar { unit, ..calendar.clone() })
                    }
                    _ => return by_default(),
                }
            }
            Algorithm::Concurrency => {
                other.amount = self.amount.min(10_000);
                other.window_us = spec.window_us;
            }
            Algorithm::SlidingLog if self.amount > 10_000 => return by_default(),
            Algorithm::SubWindow => {
                // As many parts as there were, where they fit.
                let parts = spec.sub_windows.or_else(|| {
                    (1..=60).rev().find(|parts| spec.window_us.is_multiple_of(u64::from(*parts)))
                });
                other.sub_windows = parts.filter(|parts| other.window_us.is_multiple_of(u64::from(*parts)));
            }
            Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket => {
                other.burst = match spec.burst.filter(|burst| *burst != spec.amount) {
                    None => None,
                    Some(burst) if spec.amount == 0 => Some(burst),
                    Some(burst) => {
                        // As long as it lasted at the old rate.
                        let exact = u128::from(burst) * u128::from(self.amount) * u128::from(spec.window_us)
                            / (u128::from(spec.amount) * u128::from(other.window_us));
                        Some(u64::try_from(exact).unwrap_or(u64::MAX).clamp(1, u64::from(u32::MAX)))
                    }
                };
            }
            _ => {}
        }
        if crate::numbers::Numbers::try_of(&other).is_some() { other } else { by_default() }
    }
}
