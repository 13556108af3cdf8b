//! Rules, requests and numbers for the tests.

use std::sync::Arc;

use tidegate_core::{
    Book, Descriptor, DescriptorDraft, DomainDraft, Entry, Limit, LimitError, Micros, OwnLimit, Plan, Query,
    RuleDraft, Secret,
};
use tidegate_telemetry::reference::{
    Judged, ReferenceGauges, ReferenceNames, ReferenceStats, ReferenceStatsSettings,
};

/// A descriptor without a limit.
pub(crate) fn way(key: &str, value: &str) -> DescriptorDraft {
    DescriptorDraft { key: key.into(), value: Some(value.into()), ..DescriptorDraft::default() }
}

/// The same with one.
pub(crate) fn limited(mut draft: DescriptorDraft) -> Result<DescriptorDraft, LimitError> {
    let limit = Some(Limit::fixed_window(10, Micros::from_secs(60))?);
    draft.limits.push(RuleDraft { limit, ..RuleDraft::default() });
    Ok(draft)
}

/// The same with something below it.
pub(crate) fn above(mut draft: DescriptorDraft, below: DescriptorDraft) -> DescriptorDraft {
    draft.descriptors.push(below);
    draft
}

pub(crate) fn settings(names_max: usize) -> ReferenceStatsSettings {
    ReferenceStatsSettings { cores: 2, names_max, ..ReferenceStatsSettings::default() }
}

/// A book, and the numbers of its rules.
pub(crate) struct Rig {
    pub(crate) book: Book,
    pub(crate) stats: Arc<ReferenceStats>,
    pub(crate) names: ReferenceNames,
}

impl Rig {
    pub(crate) fn new(domain: &str, descriptors: Vec<DescriptorDraft>, names_max: usize) -> Self {
        Self::with(domain, descriptors, settings(names_max))
    }

    pub(crate) fn with(
        domain: &str,
        descriptors: Vec<DescriptorDraft>,
        settings: ReferenceStatsSettings,
    ) -> Self {
        let domain = DomainDraft { name: domain.into(), descriptors, ..DomainDraft::default() };
        let book = Book::new([domain], Secret::new([1; 16]));
        let stats = ReferenceStats::new(settings);
        let names = ReferenceNames::of(&stats, &book);
        Self { book, stats, names }
    }

    /// Asks, as a node does: whatever counts for these entries is told as judged. How much counted.
    pub(crate) fn ask(&self, domain: &str, asked: &[(&str, &str)], own: bool, judged: &Judged) -> usize {
        let entries: Vec<Entry<'_>> = asked.iter().map(|(key, value)| Entry { key, value }).collect();
        let limit = own.then_some(OwnLimit { amount: 10, window: Micros::from_secs(60) });
        let descriptors = [Descriptor { entries: 0..entries.len(), cost: 1, limit, own_cost: false }];
        let query = Query { domain, entries: &entries, descriptors: &descriptors, lease: None };
        let mut plan = Plan::new();
        self.book.plan(&query, &mut plan);
        let Some(found) = plan.domain() else { return 0 };
        for take in plan.takes() {
            self.names.judged(0, domain, take.rule, found.walked(&entries), judged);
        }
        plan.takes().len()
    }

    pub(crate) fn page(&self) -> String {
        self.stats.page(&ReferenceGauges::default())
    }

    /// What the page says of a number.
    pub(crate) fn value(&self, name: &str) -> Option<u64> {
        let page = self.page();
        let mut values = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let value = values.next()?.parse().ok();
        assert!(values.next().is_none(), "{name} twice");
        value
    }
}

/// One hit within a limit of ten.
pub(crate) const HIT: Judged = Judged { before: 0, hits: 1, limit: 10, shadow: false, cached: false };
