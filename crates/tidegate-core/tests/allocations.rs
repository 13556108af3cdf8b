//! No step allocates: a decision costs no trip to the allocator, whatever the algorithm and whatever is asked.

use tidegate_core::{
    Ask, Book, Calendar, Descriptor, DescriptorDraft, DomainDraft, Entry, Level, Limit, LimitError, Matching,
    Micros, OwnLimit, Plan, Query, Receipt, RuleDraft, Secret, Shaper, Unit, Weekday,
};

/// Limits of one shape, so that amounts go up and down.
fn tiers() -> Result<Vec<[Limit; 2]>, LimitError> {
    let minute = Micros::from_secs(60);
    let new_york = || Calendar::new(Unit::Day, "America/New_York", Weekday::Monday);
    Ok(vec![
        [Limit::fixed_window(100, minute)?, Limit::fixed_window(30, minute)?],
        [Limit::sliding_window_counter(100, minute)?, Limit::sliding_window_counter(30, minute)?],
        [Limit::sub_window(100, minute, None, false)?, Limit::sub_window(30, minute, None, false)?],
        [Limit::sliding_log(100, minute)?, Limit::sliding_log(30, minute)?],
        [Limit::token_bucket(100, minute, Some(20))?, Limit::token_bucket(4_000_000_000, minute, None)?],
        [Limit::gcra(100, minute, None)?, Limit::gcra(30, minute, None)?],
        [Limit::leaky_bucket(100, minute, None)?, Limit::leaky_bucket(30, minute, None)?],
        [Limit::sliding_window(100, minute)?, Limit::sliding_window(40_000, minute)?],
        [Limit::sliding_window_strict(100, minute)?, Limit::sliding_window_strict(300, minute)?],
        [Limit::concurrency(100, minute)?, Limit::concurrency(30, minute)?],
        [Limit::calendar(100, new_york()?)?, Limit::calendar(30, new_york()?)?],
    ])
}

#[test]
fn no_step_allocates() -> Result<(), LimitError> {
    for tiers in tiers()? {
        let mut state = tiers[0].state();
        let counted = allocation_counter::measure(|| {
            for tenth in 0..5_000_u64 {
                let limit = &tiers[usize::from(tenth % 70 > 60)];
                // Now and then a clock that is an hour behind.
                let behind_ms = if tenth % 500 == 499 { 3_600_000 } else { 0 };
                let now = Micros::from_millis(1_800_000_000_000 + 100 * tenth - behind_ms);
                let verdict = limit.step(&mut state, Ask::Charge { cost: 1 + tenth % 3 }, now);
                let receipt = verdict.receipt().unwrap_or(Receipt { at: now, units: 1 });
                let id = 1 + tenth % 50;
                for ask in [
                    Ask::Acquire { id, cost: 1 },
                    Ask::Refund { units: tenth % 2, receipt: verdict.receipt() },
                    Ask::Settle { receipt, actual: tenth % 5 },
                    Ask::Renew { id },
                    Ask::Release { id: id / 2 },
                ] {
                    limit.step(&mut state, ask, now);
                }
                limit.show(&mut state, Ask::Peek, now);
                limit.used(&mut state, now);
                limit.keep_for(&mut state, now);
            }
        });
        assert_eq!(counted.count_total, 0, "{} allocates", tiers[0]);
    }
    Ok(())
}

#[test]
fn no_shaper_allocates() -> Result<(), LimitError> {
    let shaper = Shaper::new(10, Micros::from_secs(1), Micros::from_secs(1))?;
    let mut level = Level::default();
    let counted = allocation_counter::measure(|| {
        for tenth in 0..1_000_u64 {
            let now = Micros::from_millis(1_800_000_000_000 + 50 * tenth);
            if let tidegate_core::Shaped::Go { reservation, .. } = shaper.reserve(&mut level, 1, now) {
                let _ = shaper.cancel(&mut level, reservation, now);
            }
        }
    });
    assert_eq!(counted.count_total, 0);
    Ok(())
}

/// From the second request on: the first makes room.
#[test]
fn no_plan_allocates() -> Result<(), LimitError> {
    let minute = Micros::from_secs(60);
    let rule = |name: &str, replaces: &[&str]| -> Result<RuleDraft, LimitError> {
        let replaces = replaces.iter().map(|name| Box::from(*name)).collect();
        Ok(RuleDraft {
            name: Some(name.into()),
            limit: Some(Limit::sliding_window(9, minute)?),
            replaces,
            ..RuleDraft::default()
        })
    };
    let node = |key: &str, value: Option<&str>, limits, descriptors| DescriptorDraft {
        key: key.into(),
        value: value.map(String::from),
        limits,
        descriptors,
        ..DescriptorDraft::default()
    };
    let below = vec![node("route", Some("/a/*"), vec![rule("route", &["other"])?], vec![])];
    let domain = DomainDraft {
        name: "d".into(),
        matching: Matching::Path,
        descriptors: vec![
            node("user", None, vec![rule("user", &[])?, rule("more", &[])?], below),
            node("ip", None, vec![rule("other", &[])?], vec![]),
        ],
        ..DomainDraft::default()
    };
    let book = Book::new([domain], Secret::new([1; 16]));
    let entries = [
        Entry { key: "user", value: "alice" },
        Entry { key: "route", value: "/a/b" },
        Entry { key: "ip", value: "10.0.0.1" },
    ];
    let own = Some(OwnLimit { amount: 5, window: minute });
    let descriptors = [(0..2, None), (2..3, None), (1..3, own), (0..1, None)]
        .map(|(entries, limit)| Descriptor { entries, cost: 1, limit, own_cost: false });
    let query = Query { domain: "d", entries: &entries, descriptors: &descriptors, lease: None };
    let mut plan = Plan::new();
    book.plan(&query, &mut plan);
    assert_eq!((plan.found().len(), plan.takes().len()), (7, 4));
    let counted = allocation_counter::measure(|| book.plan(&query, &mut plan));
    assert_eq!(counted.count_total, 0);
    Ok(())
}
