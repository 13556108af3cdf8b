//! Where counters are kept: what they are near to, and what the reference server calls them.

use tidegate_core::{
    Book, Descriptor, DescriptorDraft, DomainDraft, Entry, Key, Limit, Matching, Micros, Plan, Query,
    RuleDraft, Secret, Tag,
};

const SECRET: Secret = Secret::new([7; 16]);

fn node(key: &str, value: Option<&str>, limits: Vec<Limit>) -> DescriptorDraft {
    let limits = limits.into_iter().map(|limit| RuleDraft { limit: Some(limit), ..RuleDraft::default() });
    DescriptorDraft {
        key: key.into(),
        value: value.map(String::from),
        limits: limits.collect(),
        ..DescriptorDraft::default()
    }
}

fn fixed(secs: u64) -> Limit {
    Limit::fixed_window(10, Micros::from_secs(secs)).expect("a limit")
}

fn book(matching: Matching, descriptors: Vec<DescriptorDraft>) -> Book {
    let domain = DomainDraft { name: "d".into(), matching, descriptors, ..DomainDraft::default() };
    Book::new([domain], SECRET)
}

/// What a request counts: keys, tags and names.
fn counted(book: &Book, entries: &[(&str, &str)]) -> Vec<(Key, Tag, Option<String>)> {
    let entries: Vec<Entry<'_>> = entries.iter().map(|(key, value)| Entry { key, value }).collect();
    let descriptors = [Descriptor { entries: 0..entries.len(), cost: 1, limit: None, own_cost: false }];
    let mut plan = Plan::new();
    book.plan(&Query { domain: "d", entries: &entries, descriptors: &descriptors, lease: None }, &mut plan);
    let told = |take| plan.reference_name(take).map(String::from);
    plan.takes().iter().map(|take| (take.key, take.tag, told(take))).collect()
}

#[test]
fn whatever_counts_for_one_caller_is_kept_in_one_place() {
    let route = || {
        let mut route = node("route", Some("/a"), vec![fixed(60)]);
        let mut caller = node("caller", None, vec![fixed(60), fixed(3_600)]);
        caller.descriptors.push(node("verb", None, vec![fixed(1)]));
        route.descriptors.push(caller);
        route
    };
    let book = book(Matching::Path, vec![route()]).with_tags();
    let tags = |caller, verb| -> Vec<Tag> {
        let counted = counted(&book, &[("route", "/a"), ("caller", caller), ("verb", verb)]);
        counted.into_iter().map(|(_, tag, _)| tag).collect()
    };
    let [whole, of_alice @ ..] = &tags("alice", "get")[..] else { panic!("four limits count") };
    assert_eq!(of_alice.len(), 3);
    assert!(of_alice.iter().all(|tag| *tag == of_alice[0]), "{of_alice:?}");
    assert_ne!(*whole, of_alice[0], "a rule whose values are all fixed is kept by itself");
    assert_eq!(*whole, tags("bob", "get")[0], "whoever asks");
    assert_eq!(of_alice[0], tags("alice", "put")[1], "by the first value that is open, not by the last");
    assert_ne!(of_alice[0], tags("bob", "get")[1]);
}

#[test]
fn the_reference_server_finds_its_counters() {
    let mut path = node("path", Some("files/*"), vec![fixed(1)]);
    path.share_threshold = true;
    let mut tenant = node("tenant", None, vec![fixed(60)]);
    tenant.descriptors.push(path);
    let sliding = Limit::sliding_window(10, Micros::from_secs(60)).expect("a limit");
    let several = node("several", Some("x"), vec![fixed(60), fixed(3_600), sliding]);
    let book = book(Matching::Leaf, vec![tenant, several]);
    assert_eq!(counted(&book, &[("tenant", "a")])[0].2, None, "nobody asked for names");
    let book = book.with_reference_names();
    let names = |entries: &[(&str, &str)]| -> Vec<Option<String>> {
        counted(&book, entries).into_iter().map(|(_, _, name)| name).collect()
    };
    assert_eq!(names(&[("tenant", "a_b")]), [Some("d_tenant_a_b_".into())]);
    let shared = names(&[("tenant", "a"), ("path", "files/1")]);
    assert_eq!(shared, [Some("d_tenant_a_path_files/*_".into())], "the pattern stands for what shares it");
    let first = Some("d_several_x_".into());
    assert_eq!(
        names(&[("several", "x")]),
        [first, None, None],
        "one limit of each descriptor, and fixed windows only"
    );
}
