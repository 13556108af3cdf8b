//! What a flood of names costs, and what it leaves to those who were there before.

use tidegate_core::{Book, DescriptorDraft, DomainDraft, Entry, LimitError, Secret};
use tidegate_telemetry::reference::{Judged, ReferenceNames};

use crate::rig::{HIT, Rig, limited, way};

const NAMES_MAX: usize = 1_000;
const FLOOD: u64 = 1_000_000;

fn by_value(key: &str) -> Result<DescriptorDraft, LimitError> {
    limited(DescriptorDraft { value_to_metric: true, ..way(key, "") })
}

#[test]
fn a_million_values_make_no_name_too_many_and_no_hit_is_lost() -> Result<(), LimitError> {
    let rig = Rig::new("d", vec![by_value("k")?, limited(way("late", ""))?], NAMES_MAX);
    let rule = rig.book.rules().first();
    let flood = |from: u64, to: u64| {
        for at in from..to {
            let long = if at % 97 == 0 { 700 } else { 0 };
            let value = format!("value-{at}-{}", "x".repeat(long));
            let entries = [Entry { key: "k", value: &value }];
            rig.names.judged(at as usize, "d", rule, &entries, &HIT);
            rig.names.judged(at as usize, "d", None, &entries, &HIT);
            rig.stats.domain_not_found(&value, 2);
        }
    };
    let first = allocation_counter::measure(|| flood(0, 10_000));
    let rest = allocation_counter::measure(|| flood(10_000, FLOOD));
    println!("{} bytes kept of the first, {} of the rest", first.bytes_current, rest.bytes_current);
    assert!(first.bytes_current < 2_000_000, "{}", first.bytes_current);
    assert!(rest.bytes_current <= 4_096, "{}", rest.bytes_current);

    let page = rig.page();
    let sum = |suffix: &str| -> u64 {
        let values = page.lines().filter_map(|line| line.split_once(suffix)?.1.strip_prefix(": "));
        values.filter_map(|value| value.parse::<u64>().ok()).sum()
    };
    assert_eq!((sum(".total_hits"), sum(".domain_not_found")), (2 * FLOOD, 2 * FLOOD));
    let names = page.lines().filter(|line| line.contains(".total_hits")).count();
    assert_eq!(names, NAMES_MAX + 2); // Those, the others of the domain, and the rule that nobody asked.
    assert!(page.lines().all(|line| line.len() < 600), "a name is too long");
    assert!(rig.value("ratelimit.service.rate_limit.d.others.total_hits") > Some(FLOOD));
    assert!(rig.value("ratelimit.service.rate_limit.others.domain_not_found") > Some(FLOOD));
    assert!(rig.value("ratelimit.service.names_shared") > Some(2 * FLOOD));

    // A rule still has its name.
    rig.ask("d", &[("late", "1")], false, &HIT);
    assert_eq!(rig.value("ratelimit.service.rate_limit.d.late.total_hits"), Some(1));
    Ok(())
}

#[test]
fn a_name_that_is_known_costs_no_allocation() -> Result<(), LimitError> {
    let rig = Rig::new("d", vec![limited(way("k", "v"))?, by_value("k")?], 4);
    let over = Judged { before: 10, ..HIT };
    let long = "x".repeat(5_000);
    let [known, other] = ["1.2.3.4", "5.6.7.8"].map(|value| [Entry { key: "k", value }]);
    let [fixed, by_value] = [0, 1].map(|at| rig.book.rules().get(at));
    let count = || {
        rig.names.judged(1, "d", fixed, &known, &over); // No name is written at all.
        rig.names.judged(1, "d", by_value, &known, &over);
        rig.names.judged(1, "d", None, &other, &over);
        rig.names.given_back(1, "d", by_value, &known, 3);
        rig.stats.domain_not_found("nobody", 1);
    };
    count();
    assert_eq!(allocation_counter::measure(count).count_total, 0);
    // A name that is too long is cut, and the room to write it is given back.
    let too_long = [Entry { key: "k", value: &long }];
    let measured = allocation_counter::measure(|| rig.names.judged(1, "d", None, &too_long, &over));
    assert!(measured.bytes_current < 2_000, "{measured:?}");
    Ok(())
}

#[test]
fn long_names_stay_different() {
    let rig = Rig::new("d", Vec::new(), 100);
    let long = "é".repeat(1_000);
    for end in ["1", "2"] {
        rig.ask("d", &[("k", &format!("{long}{end}"))], true, &HIT);
    }
    let page = rig.page();
    let names: Vec<&str> = page.lines().filter(|line| line.ends_with(".total_hits: 1")).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.iter().all(|name| name.len() < 500));
}

#[test]
fn numbers_go_on_when_rules_are_loaded_again_and_old_names_make_room() -> Result<(), LimitError> {
    let book = |keys: &[&str]| -> Result<Book, LimitError> {
        let descriptors: Result<_, _> = keys.iter().map(|key| limited(way(key, ""))).collect();
        let domain = DomainDraft { name: "d".into(), descriptors: descriptors?, ..DomainDraft::default() };
        Ok(Book::new([domain], Secret::new([1; 16])))
    };
    let rig = Rig::new("d", vec![limited(way("a", ""))?, limited(way("b", ""))?], 2);
    rig.ask("d", &[("a", "1")], false, &HIT);
    let Rig { stats, names: before, .. } = rig;

    let next = book(&["b", "a"])?;
    let names = ReferenceNames::of(&stats, &next);
    names.judged(0, "d", next.rules().get(1), &[], &HIT);
    drop(before);
    let total = |name: &str| {
        let page = stats.page(&Default::default());
        let line = format!("ratelimit.service.rate_limit.{name}.total_hits: ");
        page.lines().find_map(|found| found.strip_prefix(&line)?.parse::<u64>().ok())
    };
    assert_eq!((total("d.a"), total("d.b")), (Some(2), Some(0)));

    // A rule too many shares; once the others are gone, there is room.
    let next = book(&["a", "b", "c"])?;
    let full = ReferenceNames::of(&stats, &next);
    full.judged(0, "d", next.rules().get(2), &[], &HIT);
    assert_eq!((total("d.c"), total("d.others")), (None, Some(1)));
    drop((names, full));
    let next = book(&["c"])?;
    let names = ReferenceNames::of(&stats, &next);
    names.judged(0, "d", next.rules().first(), &[], &HIT);
    assert_eq!((total("d.a"), total("d.c")), (None, Some(1)));
    Ok(())
}
