//! Trees and requests of few words, so that their parts collide as often as can be.

use super::dice::Dice;
use super::judged::LimitName;
use super::request::{Descriptor, OwnLimit, Request};
use super::tree::{Exempt, Matching, Node, Patch, RuleLimit, RuleTree, Tier};
use crate::spec::{Algorithm, Calendar, Unit, Weekday};

const MS: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

/// Keys of rules. Those that mean something elsewhere are rarer.
const KEYS: [&str; 16] = [
    "a",
    "b",
    "a",
    "b",
    "a",
    "b",
    "ab",
    "api_key",
    "a",
    "b",
    "api_key",
    "remote_address",
    "a*",
    "*b",
    "*",
    "tier",
];
/// Values of rules, and of requests. The separators of ids and of hashed parts are among them.
const VALUES: [&str; 20] = [
    "a", "b", "", "a/b", "a*", "*", "*b*", "ä", "*ä", "a*a", "ab*b", "a|b", "a:b#n", "a\\", "a\0", "a*b*",
    "*a*a*", "*a*b*", "10.0.0.1", "*a",
];
const SPOKEN: [&str; 16] = [
    "a", "b", "", "a/b", "ab", "*", "a*", "ä", "aä", "a|b", "a:b#n", "a\\", "a\0", "a\0\0", "10.0.0.1", "aba",
];
/// What a wildcard of a rule may stand for in a request.
const FILLINGS: [&str; 8] = ["", "a", "b", "ab", "/", "*", "ä", "\0"];
const ADDRESSES: [&str; 8] =
    ["10.0.0.1", "10.9.9.9", "192.168.0.7", "2001:db8::5", "::1", "::ffff:10.0.0.1", "10.0.0", "10.0.0.1:80"];
const NETWORKS: [&str; 6] =
    ["10.0.0.0/8", "10.0.0.1/32", "192.168.0.0/30", "2001:db8::/32", "::1/128", "10.0.0.0/31"];
const CALLERS: [&str; 4] = ["a", "b", "ä", "vip"];
const TIERS: [&str; 3] = ["pro", "free", "a"];
const NAMES: [&str; 4] = ["n", "m", "o", "n|m#:\\"];
const WINDOWS: [u64; 4] = [SECOND, 60 * SECOND, 900 * SECOND, 1_500 * MS];
const ENFORCED: [Option<u8>; 6] = [None, None, None, Some(0), Some(100), Some(25)];
/// The entries with which places are held and reservations made.
const LEASES: [&str; 4] = ["lease", "lease", "lease", "b"];
/// What a request says there, and of its tier.
const RESERVED: [(&str, &[&str]); 3] =
    [("tier", &["pro", "free", "a", "other"]), ("lease", &["one", "two", ""]), ("reservation", &["one"])];
/// Depth of a tree, but for the long paths that are drawn now and then.
const DEPTH_MAX: usize = 3;
const LONG_PATH: usize = 9;

impl RuleTree {
    /// A tree that a rule file could hold.
    pub fn random(dice: &mut Dice, domain: &str) -> Self {
        let mut tree = Self::new(domain);
        tree.matching = dice.pick(&[Matching::Leaf, Matching::Path]);
        tree.quota_key = dice.pick(&["api_key", "api_key", "a"]).to_owned();
        tree.allow_refunds = dice.roll(2) == 1;
        tree.trust_tier = dice.roll(3) != 0;
        tree.shadow_mode = dice.once_in(24);
        tree.disabled = dice.once_in(24);
        tree.exempt = dice.once_in(6).then(|| Exempt::random(dice));
        tree.algorithm = windowed(dice);
        tree.descriptors = nodes(dice, 0, true, tree.default_algorithm());
        if dice.once_in(6) {
            let last = Node { limits: limits(dice, 2, tree.default_algorithm()), ..Node::new("a", None) };
            let longer = |below: Node, _| Node { descriptors: vec![below], ..Node::new("a", Some("b")) };
            tree.descriptors.retain(|node| node.key != "a" || node.value.as_deref() != Some("b"));
            tree.descriptors.push((1..LONG_PATH).fold(last, longer));
        }
        tree
    }

    /// A name that no tree of a case has is among those that requests say.
    pub const DOMAINS: [&str; 3] = ["d", "d|a", "nowhere"];
}

impl Exempt {
    fn random(dice: &mut Dice) -> Self {
        let callers = (0..dice.roll(3)).map(|_| dice.pick(&CALLERS).to_owned()).collect();
        let networks = (0..dice.roll(3)).map(|_| dice.pick(&NETWORKS).to_owned()).collect();
        Self { callers, networks }
    }
}

/// The children of a descriptor. Only where all above them is fixed can one of them count always.
fn nodes(dice: &mut Dice, depth: usize, fixed: bool, default: Algorithm) -> Vec<Node> {
    let count = match depth {
        0 => 1 + dice.roll(5),
        DEPTH_MAX.. => 0,
        _ => dice.pick(&[2, 1, 0, 3]),
    };
    let mut nodes: Vec<Node> = Vec::new();
    for _ in 0..count {
        let key = match dice.pick(&KEYS) {
            "tier" if dice.roll(3) != 2 => "a", // One is enough for a domain without tiers.
            key => key,
        };
        let value = match (dice.roll(3), key) {
            (0, _) => None,
            (_, "remote_address") => Some(dice.pick(&ADDRESSES)),
            _ => Some(dice.pick(&VALUES)),
        };
        let mut node = Node::new(key, value);
        let is_same = |other: &Node| other.key == node.key && other.fixed_value() == node.fixed_value();
        if nodes.iter().any(is_same) {
            continue; // Twins are refused by whoever reads the file.
        }
        fill(dice, &mut node, depth, fixed, default);
        nodes.push(node);
    }
    nodes
}

fn fill(dice: &mut Dice, node: &mut Node, depth: usize, fixed: bool, default: Algorithm) {
    let fixed = fixed && node.is_fixed();
    node.share_threshold = node.has_wildcard() && dice.roll(3) == 1;
    node.exempt = dice.once_in(8).then(|| Exempt::random(dice));
    node.shadow_mode = dice.once_in(8);
    node.quota_mode = dice.once_in(6);
    node.disabled = dice.once_in(12);
    let count = dice.pick(&[1, 2, 1, 0]);
    node.limits = limits(dice, count, default);
    // A ceiling needs a limit, and has no tiers.
    node.always = fixed && !node.limits.is_empty() && dice.roll(4) == 1;
    for name in TIERS {
        if dice.once_in(4) && !node.always {
            node.tiers.push((name.to_owned(), tier(dice, &node.limits, default)));
        }
    }
    node.descriptors = nodes(dice, depth + 1, fixed, default);
}

fn tier(dice: &mut Dice, own: &[RuleLimit], default: Algorithm) -> Tier {
    match own {
        [only] if dice.roll(4) != 3 => Tier::Patch(patch(dice, only, default)),
        _ => {
            let count = 1 + dice.roll(2);
            let mut list = limits(dice, count, default);
            // Often one of the descriptor's own with another amount: the same counter. Or as strict as that is not: another.
            if let Some(first) = own.first().filter(|_| dice.roll(2) == 1) {
                let algorithm = first.algorithm.unwrap_or(default);
                let flip = algorithm.can_be_strict() && !first.unlimited && dice.roll(2) == 1;
                let strict = first.strict != flip;
                let kept = RuleLimit { amount: amount(dice, algorithm), strict, ..first.clone() };
                list.retain(|limit| name_of(limit, default) != name_of(&kept, default));
                list.push(kept);
            }
            Tier::List(list)
        }
    }
}

fn patch(dice: &mut Dice, limit: &RuleLimit, default: Algorithm) -> Patch {
    let patch = Patch { enforce: dice.pick(&ENFORCED), ..Patch::default() };
    let amount = Some(amount(dice, Algorithm::SlidingLog));
    match dice.roll(5) {
        _ if limit.unlimited => Patch { unlimited: true, ..patch },
        1 if limit.window_us > 0 => Patch { amount, window_us: Some(dice.pick(&WINDOWS)), ..patch },
        2 if limit.window_us > 0 => {
            let same = limit.algorithm.unwrap_or(default);
            let algorithm = if dice.roll(2) == 1 { windowed(dice) } else { None };
            Patch { amount, algorithm: algorithm.or(Some(same)), ..patch }
        }
        3 => Patch { unlimited: true, ..patch },
        4 if patch.enforce.is_some() => patch,
        _ => Patch { amount, ..patch },
    }
}

/// So many limits at most, of which no two have the same id.
fn limits(dice: &mut Dice, count: usize, default: Algorithm) -> Vec<RuleLimit> {
    let mut limits: Vec<RuleLimit> = Vec::new();
    for _ in 0..count {
        let limit = limit(dice, default);
        if !limits.iter().any(|other| name_of(other, default) == name_of(&limit, default)) {
            limits.push(limit);
        }
    }
    limits
}

fn name_of(limit: &RuleLimit, default: Algorithm) -> LimitName {
    LimitName::of(limit.name.as_deref(), limit.spec(default).as_ref())
}

fn limit(dice: &mut Dice, default: Algorithm) -> RuleLimit {
    let mut limit = RuleLimit::new(0, dice.pick(&WINDOWS));
    limit.name = (dice.roll(2) == 1).then(|| dice.pick(&NAMES).to_owned());
    limit.algorithm = match dice.roll(8) {
        0..=4 => windowed(dice),
        5 | 6 => Some(Algorithm::Concurrency),
        _ => Some(Algorithm::Calendar),
    };
    let algorithm = limit.algorithm.unwrap_or(default);
    limit.amount = amount(dice, algorithm);
    match algorithm {
        Algorithm::Concurrency => {
            limit.window_us = 0;
            limit.ttl_us = (dice.roll(2) == 1).then_some(30 * SECOND);
            limit.lease_id = (dice.roll(4) != 0).then(|| dice.pick(&LEASES).to_owned());
        }
        Algorithm::Calendar => {
            let unit = dice.pick(&[Unit::Day, Unit::Week, Unit::Month]);
            let zone = dice.pick(&["UTC", "Europe/Berlin"]).to_owned();
            limit.window_us = 0;
            limit.calendar = Some(Calendar { unit, zone, week_start: Weekday::Monday });
        }
        Algorithm::SubWindow => {
            limit.sub_windows = dice.pick(&[None, Some(4), Some(10)]);
            limit.strict = dice.roll(2) == 1;
        }
        Algorithm::SlidingWindow => limit.strict = dice.once_in(4),
        _ if algorithm.is_bucket() => limit.burst = (dice.roll(2) == 1).then_some(7),
        _ => {}
    }
    limit.charge_always = algorithm != Algorithm::Concurrency && dice.once_in(8);
    limit.replaces = (0..dice.pick(&[0, 0, 1, 2])).map(|_| dice.pick(&NAMES).to_owned()).collect();
    limit.replaces.retain(|name| Some(name) != limit.name.as_ref());
    limit.enforce = dice.pick(&ENFORCED);
    limit.disabled = dice.once_in(12);
    limit.reservation_id = dice.once_in(8).then(|| "reservation".to_owned());
    if dice.once_in(10) {
        // It stands alone, but for its name and what it replaces.
        let RuleLimit { name, replaces, disabled, .. } = limit;
        return RuleLimit { name, replaces, disabled, unlimited: true, ..RuleLimit::new(0, 0) };
    }
    limit
}

/// An algorithm that has a window; none is the default.
fn windowed(dice: &mut Dice) -> Option<Algorithm> {
    dice.pick(&[
        None,
        None,
        None,
        Some(Algorithm::SlidingWindow),
        Some(Algorithm::FixedWindow),
        Some(Algorithm::SlidingWindowCounter),
        Some(Algorithm::SubWindow),
        Some(Algorithm::SlidingLog),
        Some(Algorithm::TokenBucket),
        Some(Algorithm::Gcra),
        Some(Algorithm::LeakyBucket),
    ])
}

fn amount(dice: &mut Dice, algorithm: Algorithm) -> u64 {
    let most = match algorithm {
        Algorithm::SlidingLog | Algorithm::Concurrency => 10_000,
        _ => u64::from(u32::MAX),
    };
    dice.pick(&[5, 1, 3, 8, 100, 0, most])
}

impl Request {
    /// A request whose descriptors mostly lead somewhere in one of the trees.
    pub fn random(dice: &mut Dice, trees: &[RuleTree]) -> Self {
        let domain =
            if dice.once_in(16) { dice.pick(&RuleTree::DOMAINS).to_owned() } else { dice.pick(trees).domain };
        let nowhere = RuleTree::new(&domain);
        let tree = trees.iter().find(|tree| tree.domain == domain).unwrap_or(&nowhere);
        let mut descriptors: Vec<Descriptor> = Vec::new();
        for _ in 0..1 + dice.roll(4) {
            let descriptor = match descriptors.last() {
                Some(last) if dice.roll(3) == 1 => nearly(dice, last),
                _ => descriptor(dice, tree),
            };
            descriptors.push(descriptor);
        }
        Self { domain, descriptors }
    }

    /// Nearly the same request, at which a counter that is known by too little would be the same.
    pub fn twisted(&self, dice: &mut Dice, trees: &[RuleTree]) -> Self {
        let mut twisted = self.clone();
        for _ in 0..1 + dice.roll(3) {
            let at = dice.roll(twisted.descriptors.len());
            let Descriptor { entries, limit, .. } = &mut twisted.descriptors[at];
            let entry = dice.roll(entries.len().max(1));
            match (dice.roll(4), entries.get_mut(entry)) {
                (0, _) => twisted.domain = dice.pick(trees).domain,
                (1, _) => *limit = Some(OwnLimit { amount: 5, window_us: dice.pick(&[SECOND, 60 * SECOND]) }),
                (2, Some((key, _))) => *key = dice.pick(&KEYS).to_owned(),
                (_, Some((key, value))) => {
                    // The same characters, cut elsewhere.
                    let joined = format!("{key}{value}");
                    let cut = joined.char_indices().nth(1).map_or(joined.len(), |(cut, _)| cut);
                    (*key, *value) = (joined[..cut].to_owned(), joined[cut..].to_owned());
                }
                _ => {}
            }
        }
        twisted
    }
}

/// The same once more, perhaps of another tier, for another place.
fn nearly(dice: &mut Dice, other: &Descriptor) -> Descriptor {
    let mut descriptor = Descriptor { cost: cost(dice), ..other.clone() };
    for (key, values) in RESERVED {
        if dice.roll(2) == 1 {
            descriptor.entries.retain(|entry| entry.0 != key);
            descriptor.entries.push((key.to_owned(), dice.pick(values).to_owned()));
        }
    }
    descriptor
}

fn descriptor(dice: &mut Dice, tree: &RuleTree) -> Descriptor {
    let mut entries = Vec::new();
    let mut children = &tree.descriptors;
    while !children.is_empty() && (entries.is_empty() || dice.roll(4) != 3) {
        let child = &children[dice.roll(children.len())];
        entries.push(entry_for(dice, child));
        children = &child.descriptors;
    }
    if dice.once_in(8) {
        entries.push((dice.pick(&KEYS).to_owned(), dice.pick(&SPOKEN).to_owned()));
    }
    if dice.once_in(6) {
        let whose = dice.pick(&[("api_key", "a"), ("api_key", "vip"), ("a", "b"), ("remote_address", "")]);
        let value = if whose.0 == "remote_address" { dice.pick(&ADDRESSES) } else { whose.1 };
        entries.push((whose.0.to_owned(), value.to_owned()));
    }
    for (key, values) in RESERVED {
        if dice.roll(3) == 1 {
            let at = dice.roll(entries.len() + 1);
            entries.insert(at, (key.to_owned(), dice.pick(values).to_owned()));
        }
    }
    let limit = dice.once_in(10).then(|| OwnLimit {
        amount: dice.pick(&[5, 0, 1, u64::from(u32::MAX), u64::from(u32::MAX) + 1, 10_001]),
        window_us: dice.pick(&[SECOND, 60 * SECOND, 0, MS, MS - 1, 366 * DAY, 366 * DAY + 1, 366 * DAY - 1]),
    });
    Descriptor { entries, cost: cost(dice), limit }
}

/// An entry that fits a child; mostly.
fn entry_for(dice: &mut Dice, child: &Node) -> (String, String) {
    let key = filled(dice, &child.key);
    let spoken = if child.key == "remote_address" { &ADDRESSES[..] } else { &SPOKEN };
    let value = match child.fixed_value() {
        Some(value) if dice.roll(8) != 7 => filled(dice, value),
        _ => dice.pick(spoken).to_owned(),
    };
    (key, value)
}

/// The pattern with something for each wildcard.
fn filled(dice: &mut Dice, pattern: &str) -> String {
    pattern
        .split('*')
        .map(str::to_owned)
        .reduce(|text, next| text + dice.pick(&FILLINGS) + &next)
        .unwrap_or_default()
}

fn cost(dice: &mut Dice) -> i64 {
    dice.pick(&[1, 1, 1, 1, 1, 0, 2, 5, -1, -3, 0, 2, 1, i64::MAX, i64::MIN, i64::from(u32::MAX)])
}
