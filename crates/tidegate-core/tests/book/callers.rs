//! What is kept about callers, as rules see it.

use tidegate_core::{
    Book, Descriptor, DescriptorDraft, DomainDraft, Entry, Grant, Limit, Micros, Override, Plan, Query,
    Quota, QuotaUnit, Quotas, RuleDraft, Secret, override_address,
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
