//! The rules of the rules: what a request finds, and what becomes of it.

use std::net::IpAddr;

use super::callers::{Caller, Grant, Known};
use super::judged::{Counter, Fate, Found, Judged, LimitName, Role, RuleName, Shape};
use super::merge::merge;
use super::request::{Descriptor, OwnLimit, Request};
use super::tree::{Exempt, Matching, Node, RuleLimit, RuleTree};
use super::walk;
use crate::numbers::Numbers;
use crate::spec::{Algorithm, Spec};

/// The largest amount of a sliding log.
const LOG_MAX: u64 = 10_000;

/// A limit that was found, with all that decides its fate.
pub(super) struct Finding {
    descriptor: Option<usize>,
    rule: Option<(RuleName, Option<String>)>,
    name: Option<String>,
    replaces: Vec<String>,
    disabled: bool,
    exempt: bool,
    impossible: bool,
    /// None is a refund that is not applied.
    pub(super) cost: Option<i64>,
    /// None is unlimited.
    pub(super) spec: Option<Spec>,
    pub(super) counter: Option<Counter>,
    pub(super) lease: Option<String>,
    pub(super) role: Role,
    /// Are the costs of several not added, but the largest taken?
    pub(super) by_largest: bool,
}

/// Which rules a request finds, what becomes of them, and which counters are asked.
pub fn judge(trees: &[RuleTree], request: &Request) -> Judged {
    judge_for(trees, &Known::default(), request)
}

/// The same, where something is known about callers.
pub fn judge_for(trees: &[RuleTree], known: &Known, request: &Request) -> Judged {
    let Some(tree) = trees.iter().find(|tree| tree.domain == request.domain) else {
        return Judged::default();
    };
    if tree.disabled {
        return Judged { known: true, ..Judged::default() };
    }
    if request.descriptors.iter().any(|descriptor| is_exempt(tree, tree.exempt.as_ref(), descriptor)) {
        return Judged { known: true, exempt: true, ..Judged::default() };
    }
    let of_request =
        || request.descriptors.iter().flat_map(|descriptor| descriptor.values_of(&tree.quota_key));
    if of_request().any(|name| known.caller(tree, name).is_some_and(|caller| caller.whitelisted)) {
        return Judged { known: true, exempt: true, ..Judged::default() };
    }
    let mut findings = Vec::new();
    for (number, descriptor) in request.descriptors.iter().enumerate() {
        if let Some(own) = descriptor.limit {
            findings.push(own_finding(tree, number, descriptor, own));
            continue;
        }
        let caller = descriptor.value_of(&tree.quota_key).and_then(|name| known.caller(tree, name));
        findings.extend(findings_of(tree, number, descriptor, known, caller, None));
        for (key, name) in caller.map(Caller::other_names).unwrap_or_default() {
            if request.descriptors.iter().all(|descriptor| descriptor.value_of(key).is_none()) {
                findings.extend(findings_of(tree, number, descriptor, known, caller, Some((key, name))));
            }
        }
    }
    findings.extend(findings_always(tree, request));
    settle(findings)
}

fn settle(findings: Vec<Finding>) -> Judged {
    let mut judged = Judged { known: true, ..Judged::default() };
    for finding in &findings {
        let fate = match finding {
            _ if finding.exempt => Fate::Exempt,
            _ if finding.disabled => Fate::Disabled,
            Finding { spec: None, .. } => Fate::Unlimited, // Replaced or not: there is nothing to count.
            _ if is_replaced(finding, &findings) => Fate::Replaced,
            Finding { cost: None, .. } => Fate::RefundIgnored,
            _ if finding.impossible => Fate::Impossible,
            _ => Fate::Counted(merge(&mut judged.asks, &findings, finding)),
        };
        judged.refused |= fate == Fate::Impossible;
        judged.found.push(Found { descriptor: finding.descriptor, rule: finding.rule.clone(), fate });
    }
    judged
}

impl Finding {
    /// Does it count for this request, as far as it alone says?
    pub(super) fn applies(&self) -> bool {
        !self.disabled && !self.exempt
    }

    pub(super) fn is_counted(&self, all: &[Finding]) -> bool {
        let has_room_to_count = self.spec.is_some() && self.cost.is_some() && !self.impossible;
        self.applies() && has_room_to_count && !is_replaced(self, all)
    }

    fn names(&self, other: &Finding) -> bool {
        other.name.as_ref().is_some_and(|name| self.replaces.contains(name))
    }
}

/// Does another one that applies name it, and is not named back?
fn is_replaced(finding: &Finding, all: &[Finding]) -> bool {
    all.iter().any(|other| other.applies() && other.names(finding) && !finding.names(other))
}

/// What a descriptor finds in the tree, under the caller's own name or another.
fn findings_of(
    tree: &RuleTree,
    number: usize,
    descriptor: &Descriptor,
    known: &Known,
    caller: Option<&Caller>,
    other_name: Option<(&str, &str)>,
) -> Vec<Finding> {
    let mut entries = without_reserved(tree, descriptor);
    let caller_at = entries.iter().position(|(key, _)| *key == tree.quota_key);
    if let (Some((key, name)), Some(at)) = (other_name, caller_at) {
        entries[at] = (key.to_owned(), name.to_owned());
    }
    let way = walk::walk(&tree.descriptors, &entries);
    let tier = caller.and_then(|caller| caller.tier.as_deref()).or_else(|| tier_of(tree, descriptor));
    let mut findings = Vec::new();
    for depth in 1..=entries.len() {
        let counts = match tree.matching {
            Matching::Leaf => depth == entries.len(),
            Matching::Path => true,
        };
        if !counts {
            continue;
        }
        let on_the_way = &way[..depth.min(way.len())];
        let exempt = on_the_way.iter().any(|node| is_exempt(tree, node.exempt.as_ref(), descriptor));
        // Counted from the caller's entry, whatever is reserved.
        let below = caller_at.filter(|at| *at < depth).map(|at| &entries[at + 1..depth]);
        let grant =
            below.filter(|_| other_name.is_none()).and_then(|below| known.granted(caller, tier, below));
        let found = match (depth <= way.len(), grant) {
            (true, None) => limits_at(tree, on_the_way, &entries, tier),
            (true, Some(grant)) => granted_at(tree, on_the_way, &entries, tier, grant),
            (false, Some(grant)) => vec![granted_alone(tree, &entries[..depth], grant)],
            (false, None) => Vec::new(),
        };
        findings.extend(found.into_iter().map(|(limit, finding)| {
            let lease = limit.lease_id.as_ref().and_then(|key| descriptor.value_of(key)).map(str::to_owned);
            let places = finding.spec.as_ref().is_some_and(|spec| spec.algorithm == Algorithm::Concurrency);
            let cost = match cost_of(tree, descriptor) {
                // Under its id a place is given back in every domain.
                None if places && lease.is_some() => Some(descriptor.cost),
                cost => cost,
            };
            Finding { descriptor: Some(number), exempt, cost, lease, ..finding }
        }));
    }
    findings
}

/// One limit in the place of those at the end of a way: the one that is for the same time, or the first, with other numbers.
fn granted_at(
    tree: &RuleTree,
    way: &[&Node],
    entries: &[(String, String)],
    tier: Option<&str>,
    grant: Grant,
) -> Vec<(RuleLimit, Finding)> {
    let mut limits = limits_at(tree, way, entries, tier);
    limits.retain(|(_, finding)| finding.spec.is_some());
    let same =
        limits.iter().position(|(_, finding)| finding.spec.as_ref().is_some_and(|spec| grant.is_for(spec)));
    if limits.is_empty() {
        return vec![granted_alone(tree, &entries[..way.len()], grant)];
    }
    let (limit, mut finding) = limits.swap_remove(same.unwrap_or(0));
    let spec = finding.spec.as_ref().map(|spec| grant.applied_to(spec));
    if let (Some(spec), Some(Counter::Rule { shape, .. })) = (&spec, &mut finding.counter) {
        *shape = Shape::of(spec);
    }
    vec![(limit, Finding { spec, ..finding })]
}

/// A limit where there is no rule: as if the request had brought it, and yet not the same.
fn granted_alone(tree: &RuleTree, entries: &[(String, String)], grant: Grant) -> (RuleLimit, Finding) {
    let descriptor = Descriptor { entries: entries.to_vec(), cost: 0, limit: None };
    let own = OwnLimit { amount: grant.amount, window_us: grant.window_us() };
    let mut finding = own_finding(tree, 0, &descriptor, own);
    if let Some(Counter::Own { domain, shape, entries }) = finding.counter {
        finding.counter = Some(Counter::Granted { domain, shape, entries });
    }
    (RuleLimit::new(0, 0), finding)
}

/// What every request finds.
fn findings_always(tree: &RuleTree, request: &Request) -> Vec<Finding> {
    let mut findings = Vec::new();
    for way in ways(&tree.descriptors) {
        if !way.last().is_some_and(|node| node.always) {
            continue;
        }
        let of_request = |descriptor: &Descriptor| {
            way.iter().any(|node| is_exempt(tree, node.exempt.as_ref(), descriptor))
        };
        let exempt = request.descriptors.iter().any(of_request);
        let cost = request.descriptors.iter().filter_map(|descriptor| cost_of(tree, descriptor)).max();
        findings.extend(limits_at(tree, &way, &[], None).into_iter().map(|(limit, finding)| {
            let lease_key = limit.lease_id.as_ref();
            let lease = |descriptor: &Descriptor| descriptor.value_of(lease_key?).map(str::to_owned);
            Finding { exempt, cost, lease: request.descriptors.iter().find_map(lease), ..finding }
        }));
    }
    findings
}

/// The limits at the end of a way.
fn limits_at(
    tree: &RuleTree,
    way: &[&Node],
    entries: &[(String, String)],
    tier: Option<&str>,
) -> Vec<(RuleLimit, Finding)> {
    let Some(node) = way.last() else { return Vec::new() };
    let (tier, limits) = node.limits_for(tier, tree.default_algorithm());
    let path: Vec<_> =
        way.iter().map(|node| (node.key.clone(), node.fixed_value().map(str::to_owned))).collect();
    let finding = |limit: RuleLimit| {
        let spec = limit.spec(tree.default_algorithm());
        let name = RuleName {
            domain: tree.domain.clone(),
            path: path.clone(),
            limit: LimitName::of(limit.name.as_deref(), spec.as_ref()),
        };
        let counter = spec.as_ref().map(|spec| Counter::Rule {
            name: name.clone(),
            shape: Shape::of(spec),
            open: walk::open(way, entries),
        });
        let finding = Finding {
            descriptor: None,
            rule: Some((name, tier.map(str::to_owned))),
            name: limit.name.clone(),
            replaces: limit.replaces.clone(),
            disabled: node.disabled || limit.disabled,
            exempt: false,
            impossible: false,
            cost: None,
            spec,
            counter,
            lease: None,
            role: role(tree, node, limit.enforce),
            by_largest: node.always || tree.matching == Matching::Path,
        };
        (limit, finding)
    };
    limits.into_iter().map(finding).collect()
}

/// What a descriptor with a limit of its own finds.
fn own_finding(tree: &RuleTree, number: usize, descriptor: &Descriptor, own: OwnLimit) -> Finding {
    let algorithm = match tree.default_algorithm() {
        Algorithm::SlidingLog if own.amount > LOG_MAX => Algorithm::SlidingWindow,
        Algorithm::Concurrency | Algorithm::Calendar => Algorithm::SlidingWindow,
        other => other,
    };
    let spec = Spec::new(algorithm, own.amount, own.window_us);
    let possible = is_possible(&spec);
    let counter = possible.then(|| Counter::Own {
        domain: tree.domain.clone(),
        shape: Shape::of(&spec),
        entries: without_reserved(tree, descriptor),
    });
    Finding {
        descriptor: Some(number),
        rule: None,
        name: None,
        replaces: Vec::new(),
        disabled: false,
        exempt: false,
        impossible: !possible,
        cost: cost_of(tree, descriptor),
        spec: Some(spec),
        counter,
        lease: None,
        role: Role::Enforce,
        by_largest: tree.matching == Matching::Path,
    }
}

/// Can the numbers be counted with? (`docs/rules.md`: windows; `docs/algorithms.md`: amounts.)
fn is_possible(spec: &Spec) -> bool {
    const MS: u64 = 1_000;
    const DAY: u64 = 86_400_000_000;
    spec.amount <= u64::from(u32::MAX)
        && (MS..=366 * DAY).contains(&spec.window_us)
        && Numbers::try_of(spec).is_some()
}

fn role(tree: &RuleTree, node: &Node, enforce: Option<u8>) -> Role {
    match (tree.shadow_mode || node.shadow_mode, enforce.unwrap_or(100), node.quota_mode) {
        (true, _, _) | (_, 0, _) => Role::Shadow,
        (_, 100.., true) => Role::Quota,
        (_, 100.., false) => Role::Enforce,
        (_, _, true) => Role::QuotaOrShadow,
        (_, _, false) => Role::EnforceOrShadow,
    }
}

/// What a descriptor takes; none is a refund that is not applied.
fn cost_of(tree: &RuleTree, descriptor: &Descriptor) -> Option<i64> {
    (descriptor.cost >= 0 || tree.allow_refunds).then_some(descriptor.cost)
}

/// The tier that a descriptor says it is of.
fn tier_of<'r>(tree: &RuleTree, descriptor: &'r Descriptor) -> Option<&'r str> {
    if says_tier(tree) { descriptor.value_of("tier") } else { None }
}

/// Is the entry `tier` about the caller? Not where a rule is about the entry.
fn says_tier(tree: &RuleTree) -> bool {
    tree.trust_tier && !tree.nodes().iter().any(|node| node.key == "tier")
}

/// The entries that take part in the walk and in the counter.
fn without_reserved(tree: &RuleTree, descriptor: &Descriptor) -> Vec<(String, String)> {
    let nodes = tree.nodes();
    let limits: Vec<RuleLimit> =
        nodes.iter().flat_map(|node| node.all_limits(tree.default_algorithm())).collect();
    let is_reserved = |key: &str| {
        let is_tier = key == "tier" && says_tier(tree);
        let named = |limit: &RuleLimit| {
            limit.lease_id.as_deref() == Some(key) || limit.reservation_id.as_deref() == Some(key)
        };
        is_tier || limits.iter().any(named)
    };
    descriptor.entries.iter().filter(|entry| !is_reserved(&entry.0)).cloned().collect()
}

fn is_exempt(tree: &RuleTree, exempt: Option<&Exempt>, descriptor: &Descriptor) -> bool {
    let Some(exempt) = exempt else { return false };
    let is_named = |caller: &&str| exempt.callers.iter().any(|name| name == caller);
    let is_in = |address: &&str| exempt.networks.iter().any(|network| contains(network, address));
    descriptor.values_of(&tree.quota_key).iter().any(is_named)
        || descriptor.values_of("remote_address").iter().any(is_in)
}

/// Is the address in the network?
fn contains(network: &str, address: &str) -> bool {
    let bits_of = |address: IpAddr| -> Vec<bool> {
        let bytes = match address.to_canonical() {
            IpAddr::V4(four) => four.octets().to_vec(),
            IpAddr::V6(six) => six.octets().to_vec(),
        };
        bytes.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1)).collect()
    };
    let (start, length) = network.split_once('/').expect("a network is an address and a number of bits");
    let start = bits_of(start.parse().expect("a network starts with an address"));
    let length: usize = length.parse().expect("a number of bits");
    let Ok(address) = address.parse::<IpAddr>() else { return false };
    let address = bits_of(address);
    address.len() == start.len() && address[..length] == start[..length]
}

/// Every way from the top down.
fn ways(top: &[Node]) -> Vec<Vec<&Node>> {
    let mut all = Vec::new();
    for node in top {
        all.push(vec![node]);
        for mut below in ways(&node.descriptors) {
            below.insert(0, node);
            all.push(below);
        }
    }
    all
}
