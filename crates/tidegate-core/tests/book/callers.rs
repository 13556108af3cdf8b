//! What is kept about callers, as rules see it.

use tidegate_core::{
    Book, Charge, Descriptor, DescriptorDraft, DomainDraft, Entry, Grant, Limit, Matching, Micros, Override,
    Plan, Query, Quota, QuotaUnit, Quotas, RuleDraft, Secret, override_address,
};

const NOW: Micros = Micros::from_secs(1_800_000_000);

fn limits(amount: u64) -> Vec<RuleDraft> {
    let limit = Limit::fixed_window(amount, Micros::from_secs(3_600)).expect("a limit");
    vec![RuleDraft { limit: Some(limit), ..RuleDraft::default() }]
}

/// A book of one default domain.
fn book(descriptor: DescriptorDraft) -> Book {
    let domain = DomainDraft {
        name: "d".into(),
        quota_key: "api_key".into(),
        trust_tier: true,
        descriptors: vec![descriptor],
        ..DomainDraft::default()
    };
    Book::new([domain], Secret::new([7; 16])).with_default_domain(None)
}

/// How much each counter may hold that a request asks, whose descriptors these are.
fn amounts(book: &Book, quotas: &Quotas, descriptors: &[&[(&str, &str)]]) -> Vec<u64> {
    let entries = descriptors.iter().copied().flatten();
    let entries: Vec<Entry<'_>> = entries.map(|&(key, value)| Entry { key, value }).collect();
    let mut end = 0;
    let descriptors: Vec<Descriptor> = descriptors
        .iter()
        .map(|entries| {
            let start = end;
            end += entries.len();
            Descriptor { entries: start..end, cost: 1, limit: None, own_cost: false }
        })
        .collect();
    let query = Query { domain: "d", entries: &entries, descriptors: &descriptors, lease: None };
    let mut plan = Plan::new();
    book.plan_for(&query, quotas.at(NOW).as_ref(), &mut plan);
    plan.takes().iter().map(|take| plan.limit(take).amount().into()).collect()
}

#[test]
fn every_tier_of_a_descriptor_is_found_however_many_there_are() {
    for count in [1, 3, 8, 9, 40] {
        // Of several lengths, and alike for longer than what is compared at once.
        let name =
            |tier: u64| format!("{}-{tier}", ["t", "tier", "a-tier-with-a-long-name"][tier as usize % 3]);
        let tiers = (0..count).map(|tier| (name(tier), limits(100 + tier))).collect();
        let key = "api_key".into();
        let book = book(DescriptorDraft { key, limits: limits(7), tiers, ..DescriptorDraft::default() });
        let quotas = Quotas::default();
        for tier in 0..count + 3 {
            let expected = if tier < count { 100 + tier } else { 7 };
            let said = [("api_key", "stranger"), ("tier", &*name(tier))];
            assert_eq!(amounts(&book, &quotas, &[&said]), [expected], "{count}: {}", name(tier));
            let (caller, tier) = (format!("of-{tier}"), Some(name(tier).into()));
            quotas.put(Quota { caller: caller.as_str().into(), tier, ..Quota::default() });
            assert_eq!(amounts(&book, &quotas, &[&[("api_key", &caller)]]), [expected], "{count}: {caller}");
        }
    }
}

/// An edit is one step, also for a request that speaks of its caller twice.
#[test]
fn all_descriptors_of_one_caller_are_judged_by_the_same_while_it_is_edited() {
    let page = DescriptorDraft { key: "page".into(), limits: limits(7), ..DescriptorDraft::default() };
    let key = "api_key".into();
    let book = book(DescriptorDraft { key, descriptors: vec![page], ..DescriptorDraft::default() });
    let quotas = Quotas::default();
    let put = |amount| {
        let of_page = |page| {
            let grant = Grant { amount, unit: QuotaUnit::Hour };
            Override::new(override_address(page).expect("an address"), grant)
        };
        let overrides = if amount == 0 { Box::default() } else { ["page:1", "page:2"].map(of_page).into() };
        quotas.put(Quota { caller: "a".into(), tier: Some("pro".into()), overrides, ..Quota::default() });
    };
    put(1);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            for _ in 0..20_000 {
                let asked = [&[("api_key", "a"), ("page", "1")][..], &[("api_key", "a"), ("page", "2")]];
                let amounts = amounts(&book, &quotas, &asked);
                assert!(amounts.len() == 2 && amounts[0] == amounts[1], "{amounts:?}");
            }
        });
        (0..6).cycle().take_while(|_| !asking.is_finished()).for_each(put);
    });
}

#[test]
fn a_caller_is_named_by_its_key_and_by_none_that_is_like_it() {
    let keys = [
        "",
        "k",
        "key",
        "kex",
        "keys",
        "ke_s",
        "apikey",
        "api_key",
        "api__key",
        "api_ key",
        "api_kex",
        "bpi_key",
        "api-key",
        "quota_key",
        "quota_key_of_somebody",
        "quota_kez_of_somebody",
    ];
    let quotas = Quotas::default();
    quotas.put(Quota { caller: "a".into(), whitelisted: true, ..Quota::default() });
    for quota_key in keys {
        let quota_key = quota_key.to_owned();
        let domain = DomainDraft { name: "d".into(), quota_key: quota_key.clone(), ..DomainDraft::default() };
        let book = Book::new([domain], Secret::new([7; 16])).with_default_domain(None);
        for key in keys {
            let entries = [Entry { key, value: "a" }];
            let descriptors = [Descriptor { entries: 0..1, cost: 1, limit: None, own_cost: false }];
            let query = Query { domain: "d", entries: &entries, descriptors: &descriptors, lease: None };
            let mut plan = Plan::new();
            book.plan_for(&query, quotas.at(NOW).as_ref(), &mut plan);
            assert_eq!(plan.exempt(), key == quota_key, "{key} {quota_key}");
        }
    }
}

/// What is kept beside who a caller is and what it has for itself alone are two ways to say the same.
#[test]
fn an_override_means_the_same_whether_it_holds_always_or_longer_than_anybody_looks() {
    let hour = Micros::from_secs(3_600);
    let limits = [
        Limit::sliding_window(7, hour),
        Limit::sliding_window_strict(7, hour),
        Limit::sliding_window(7, hour).and_then(|limit| limit.charging(Charge::Always)),
        Limit::fixed_window(7, hour),
        Limit::token_bucket(7, hour, Some(3)),
        Limit::sliding_log(7, hour),
    ];
    let said = |limit: &Limit| RuleDraft { limit: Some(limit.clone()), ..RuleDraft::default() };
    for limit in limits.map(|limit| limit.expect("a limit")) {
        let minute = Limit::sliding_window(3, Micros::from_secs(60)).expect("a limit");
        for (matching, rules) in [
            (Matching::Leaf, vec![said(&limit)]),
            (Matching::Path, vec![said(&limit)]),
            (Matching::Path, vec![said(&minute), said(&limit)]),
            (Matching::Leaf, vec![RuleDraft::default()]),
            (Matching::Leaf, Vec::new()),
        ] {
            let page =
                DescriptorDraft { key: "page".into(), limits: rules.clone(), ..DescriptorDraft::default() };
            let key = DescriptorDraft {
                key: "api_key".into(),
                limits: rules,
                tiers: vec![("pro".into(), vec![said(&limit)])],
                descriptors: vec![page],
                ..DescriptorDraft::default()
            };
            let domain = DomainDraft {
                name: "d".into(),
                quota_key: "api_key".into(),
                trust_tier: true,
                matching,
                descriptors: vec![key],
                ..DomainDraft::default()
            };
            let book = Book::new([domain], Secret::new([7; 16])).with_default_domain(None);
            for (address, unit) in ["default", "page:1", "page:1|x:y", "other:1"]
                .into_iter()
                .flat_map(|address| QuotaUnit::ALL.map(|unit| (address, unit)))
            {
                let always =
                    Override::new(override_address(address).expect("an address"), Grant { amount: 5, unit });
                let long = Override { until: Micros::new(Micros::MAX.get() - 1), ..always.clone() };
                for tier in [None, Some("pro")] {
                    let [always, long] = [&always, &long].map(|own| {
                        let quotas = Quotas::default();
                        quotas.put(Quota {
                            caller: "a".into(),
                            tier: tier.map(Into::into),
                            overrides: [own.clone()].into(),
                            ..Quota::default()
                        });
                        planned(&book, &quotas)
                    });
                    assert_eq!(always, long, "{limit:?} {matching:?} {address} {unit:?} {tier:?}");
                }
            }
        }
    }
}

/// What counts for some requests of a caller, by an override or not.
fn planned(book: &Book, quotas: &Quotas) -> Vec<String> {
    let ways: [&[(&str, &str)]; 6] = [
        &[("api_key", "a")],
        &[("api_key", "a"), ("page", "1")],
        &[("api_key", "a"), ("tier", "gold"), ("page", "1")],
        &[("api_key", "a"), ("page", "1"), ("x", "y")],
        &[("api_key", "a"), ("other", "1")],
        &[("other", "1"), ("api_key", "a")],
    ];
    let plans = ways.map(|entries| {
        let entries: Vec<Entry<'_>> = entries.iter().map(|&(key, value)| Entry { key, value }).collect();
        let descriptors = [Descriptor { entries: 0..entries.len(), cost: 1, limit: None, own_cost: false }];
        let query = Query { domain: "d", entries: &entries, descriptors: &descriptors, lease: None };
        let mut plan = Plan::new();
        book.plan_for(&query, quotas.at(NOW).as_ref(), &mut plan);
        let found: Vec<_> = plan.found().iter().map(|found| (found.fate, found.granted)).collect();
        let takes: Vec<_> = plan
            .takes()
            .iter()
            .map(|take| (take.key, take.ask, take.role, plan.limit(take).clone()))
            .collect();
        format!("{found:?} {takes:?}")
    });
    plans.into()
}
