//! The oracle's trees and requests in the core's words.

use tidegate_core::{
    Algorithm, Book, Descriptor, DescriptorDraft, DomainDraft, Entry, Exempt, Grant, Matching, Micros,
    Override, OwnLimit, Query, Quota, QuotaMore, QuotaUnit, Quotas, RuleDraft, Secret, Share, Tier,
};
use tidegate_oracle::{self as oracle, rules};

use crate::subject;

pub(crate) fn book(trees: &[rules::RuleTree]) -> Book {
    book_under(trees, Secret::new([7; 16]))
}

pub(crate) fn book_under(trees: &[rules::RuleTree], secret: Secret) -> Book {
    Book::new(trees.iter().map(domain), secret)
}

fn domain(tree: &rules::RuleTree) -> DomainDraft {
    DomainDraft {
        name: tree.domain.clone(),
        matching: match tree.matching {
            rules::Matching::Leaf => Matching::Leaf,
            rules::Matching::Path => Matching::Path,
        },
        quota_key: tree.quota_key.clone(),
        allow_refunds: tree.allow_refunds,
        trust_tier: tree.trust_tier,
        disabled: tree.disabled,
        exempt: tree.exempt.as_ref().map(exempt),
        algorithm: tree.algorithm.map(algorithm),
        descriptors: tree.descriptors.iter().map(|node| descriptor(tree, node)).collect(),
    }
}

fn descriptor(tree: &rules::RuleTree, node: &rules::Node) -> DescriptorDraft {
    let drafts = |limits: &[rules::RuleLimit]| limits.iter().map(|limit| rule(tree, node, limit)).collect();
    let of_tier = |tier: &str| drafts(&node.limits_for(Some(tier), tree.default_algorithm()).1);
    DescriptorDraft {
        key: node.key.clone(),
        value: node.value.clone(),
        share_threshold: node.share_threshold,
        value_to_metric: false,
        always: node.always,
        exempt: node.exempt.as_ref().map(exempt),
        limits: drafts(&node.limits),
        tiers: node.tiers.iter().map(|(name, _)| (name.clone(), of_tier(name))).collect(),
        descriptors: node.descriptors.iter().map(|below| descriptor(tree, below)).collect(),
    }
}

fn rule(tree: &rules::RuleTree, node: &rules::Node, limit: &rules::RuleLimit) -> RuleDraft {
    let spec = limit.spec(tree.default_algorithm());
    RuleDraft {
        name: limit.name.as_deref().map(Box::from),
        limit: spec.map(|spec| subject::limit(&spec).unwrap_or_else(|error| panic!("{spec}: {error}"))),
        shadow: tree.shadow_mode || node.shadow_mode,
        quota: node.quota_mode,
        disabled: node.disabled || limit.disabled,
        enforce: limit.enforce.map(|percent| Share::of_basis_points(u16::from(percent) * 100)),
        replaces: limit.replaces.iter().map(|name| Box::from(name.as_str())).collect(),
        lease_id: limit.lease_id.as_deref().map(Box::from),
        reservation_id: limit.reservation_id.as_deref().map(Box::from),
        ..RuleDraft::default()
    }
}

fn exempt(exempt: &rules::Exempt) -> Exempt {
    Exempt {
        callers: exempt.callers.iter().map(|caller| Box::from(caller.as_str())).collect(),
        networks: exempt.networks.iter().map(|network| network.parse().expect("a network")).collect(),
    }
}

fn algorithm(algorithm: oracle::Algorithm) -> Algorithm {
    let name = algorithm.name();
    Algorithm::ALL.into_iter().find(|candidate| candidate.name() == name).expect("the same names")
}

/// What is known about callers.
pub(crate) fn quotas(known: &rules::Known) -> Quotas {
    let boxed = |text: &Option<String>| text.as_deref().map(Box::from);
    let quotas = Quotas::default();
    for caller in &known.callers {
        let more = QuotaMore {
            domain: boxed(&caller.domain),
            user: boxed(&caller.user),
            client: boxed(&caller.client),
        };
        quotas.put(Quota {
            caller: caller.name.as_str().into(),
            tier: caller.tier.as_deref().map(Into::into),
            overrides: caller.exceptions.iter().map(exception).collect(),
            whitelisted: caller.whitelisted,
            more: (more != QuotaMore::default()).then(|| Box::new(more)),
        });
    }
    let tier = |(name, all): &(String, Vec<rules::Exception>)| Tier {
        name: name.as_str().into(),
        overrides: all.iter().map(exception).collect(),
    };
    quotas.set_tiers(known.tiers.iter().map(tier));
    quotas
}

fn exception(said: &rules::Exception) -> Override {
    Override {
        below: said.below.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect(),
        grant: Grant {
            amount: u32::try_from(said.grant.amount).expect("32 bits"),
            unit: QuotaUnit::named(said.grant.unit).expect("the same units"),
        },
        from: Micros::new(said.from_us),
        until: Micros::new(said.until_us),
    }
}

/// Hands a request over as a query, which borrows from it.
pub(crate) fn with_query<R>(request: &rules::Request, ask: impl FnOnce(&Query<'_>) -> R) -> R {
    let mut entries = Vec::new();
    let mut descriptors = Vec::new();
    for descriptor in &request.descriptors {
        let start = entries.len();
        entries.extend(descriptor.entries.iter().map(|(key, value)| Entry { key, value }));
        descriptors.push(Descriptor {
            entries: start..entries.len(),
            cost: descriptor.cost,
            limit: descriptor
                .limit
                .map(|own| OwnLimit { amount: own.amount, window: Micros::new(own.window_us) }),
            own_cost: false,
        });
    }
    ask(&Query { domain: &request.domain, entries: &entries, descriptors: &descriptors, lease: None })
}
