//! Files as envoyproxy/ratelimit's users have them mean what they mean there. The cases are those of its own tests and documents, in our
//! words.

use tidegate_config::{RuleFiles, Style, load_texts};
use tidegate_core::{Book, Descriptor, Entry, Fate, Key, Matching, OwnLimit, Plan, Query, Role, Secret};

fn book(text: &str) -> Book {
    let loaded = load_texts([("rules.yaml".into(), text.into())], &RuleFiles::default());
    assert_eq!(loaded.report.errors(), 0, "{}", loaded.report.render(&loaded.sources, Style::Plain));
    assert!(loaded.domains.iter().all(|domain| domain.matching == Matching::Leaf));
    Book::new(loaded.domains, Secret::new([3; 16]))
}

/// What one descriptor, written `key=value,key=value`, comes to: the limit that counts, `unlimited` or nothing.
fn found(book: &Book, domain: &str, descriptor: &str) -> String {
    plan(book, domain, &[descriptor], |plan| {
        let found = plan.found().iter().map(|found| match found.fate {
            Fate::Counted(take) => plan.limit(&plan.takes()[take]).to_string().replace("sliding_window ", ""),
            fate => format!("{fate:?}").to_lowercase(),
        });
        found.collect::<Vec<_>>().join(" ")
    })
}

fn key(book: &Book, domain: &str, descriptor: &str) -> Option<Key> {
    plan(book, domain, &[descriptor], |plan| plan.takes().first().map(|take| take.key))
}

fn plan<T>(book: &Book, domain: &str, descriptors: &[&str], look: impl FnOnce(&Plan<'_>) -> T) -> T {
    let (mut entries, mut all) = (Vec::new(), Vec::new());
    for descriptor in descriptors {
        let from = entries.len();
        for entry in descriptor.split(',').filter(|entry| !entry.is_empty()) {
            let (key, value) = entry.split_once('=').expect("key=value");
            entries.push(Entry { key, value });
        }
        all.push(Descriptor { entries: from..entries.len(), cost: 1, limit: None, own_cost: false });
    }
    let mut plan = Plan::new();
    book.plan(&Query { domain, entries: &entries, descriptors: &all, lease: None }, &mut plan);
    look(&plan)
}

const WORKED: &str = r#"
domain: d
descriptors:
  - { key: ip, rate_limit: { unit: second, requests_per_unit: 10 } }
  - { key: ip, value: 50.0.0.5, rate_limit: { unit: second, requests_per_unit: 0 } }
  - { key: ip, value: "50.*", rate_limit: { unit: second, requests_per_unit: 5 } }
  - key: k
    value: v
    rate_limit: { unit: DAY, requests_per_unit: 15 }
    descriptors:
      - { key: s, value: w, rate_limit: { unit: day, requests_per_unit: 25 } }
  - { key: k, value: x }
  - { key: u, rate_limit: { unlimited: true } }
  - key: p
    value: 1
    descriptors:
      - { key: a, rate_limit: { unit: minute, requests_per_unit: 3 } }
  - key: p
    descriptors:
      - { key: b, rate_limit: { unit: minute, requests_per_unit: 4 } }
"#;

#[test]
fn exact_then_wildcard_then_any_value_and_no_way_back() {
    let book = book(WORKED);
    for (descriptor, expected) in [
        ("ip=8.8.8.8", "10/1s"),
        ("ip=50.0.0.5", "0/1s"),
        ("ip=50.0.0.9", "5/1s"),
        ("ip=", "10/1s"),
        ("k=v", "15/1d"),
        ("k=v,s=w", "25/1d"),
        ("k=v,s=zzz", ""),
        ("k=x", ""),
        ("nope=1", ""),
        ("u=any", "unlimited"),
        ("p=1,a=z", "3/1m"),
        ("p=1,b=z", ""),
        ("p=2,b=z", "4/1m"),
        ("s=w,k=v", ""),
        ("", ""),
    ] {
        assert_eq!(found(&book, "d", descriptor), expected, "{descriptor}");
    }
    assert_eq!(found(&book, "other", "ip=8.8.8.8"), "");
    assert_ne!(key(&book, "d", "ip=50.0.0.9"), key(&book, "d", "ip=50.0.0.8"), "each value has its counter");
}

#[test]
fn units_are_those_of_the_reference() {
    for (unit, window) in [
        ("second", "1s"),
        ("MINUTE", "1m"),
        ("Hour", "1h"),
        ("day", "1d"),
        ("week", "7d"),
        ("month", "30d"),
        ("year", "365d"),
    ] {
        let text = format!(
            "domain: d\ndescriptors:\n- key: a\n  rate_limit:\n    unit: {unit}\n    requests_per_unit: 7\n"
        );
        assert_eq!(found(&book(&text), "d", "a=b"), format!("7/{window}"));
    }
}

#[test]
fn a_shared_threshold_is_one_counter_for_all_that_fits() {
    let rules = |share: bool| {
        let text = format!(
            "domain: d\ndescriptors:\n- key: files\n  value: files/*\n  share_threshold: {share}\n  \
             rate_limit: {{ unit: hour, requests_per_unit: 10 }}\n"
        );
        book(&text)
    };
    let same = |book: &Book| key(book, "d", "files=files/a") == key(book, "d", "files=files/b");
    assert!(same(&rules(true)) && !same(&rules(false)));
    assert_eq!(found(&rules(true), "d", "files=other/a"), "");
}

#[test]
fn quota_and_shadow_are_of_their_descriptor_alone() {
    let text = "domain: d\ndescriptors:\n- key: svc\n  value: 1\n  quota_mode: true\n  \
                rate_limit: { unit: minute, requests_per_unit: 1 }\n  \
                descriptors:\n  - { key: a, rate_limit: { unit: minute, requests_per_unit: 1 } }\n\
                - key: svc\n  value: 2\n  shadow_mode: yes\n  rate_limit: { unit: minute, requests_per_unit: 2 }\n";
    let book = book(text);
    let role = |descriptor| plan(&book, "d", &[descriptor], |plan| plan.takes()[0].role);
    assert_eq!((role("svc=1"), role("svc=2"), role("svc=1,a=b")), (Role::Quota, Role::Shadow, Role::Enforce));
}

#[test]
fn who_is_replaced_is_not_counted() {
    let text = "domain: d\ndescriptors:\n\
                - { key: all, rate_limit: { name: a, unit: minute, requests_per_unit: 1 } }\n\
                - { key: vip, rate_limit: { name: b, unit: minute, requests_per_unit: 5, replaces: [{ name: a }] } }\n\
                - { key: free, rate_limit: { unlimited: true, replaces: [{ name: a }, { name: b }] } }\n";
    let book = book(text);
    let fates = |descriptors: &[&str]| {
        plan(&book, "d", descriptors, |plan| plan.found().iter().map(|found| found.fate).collect::<Vec<_>>())
    };
    assert_eq!(fates(&["all=x"]), [Fate::Counted(0)]);
    assert_eq!(fates(&["all=x", "vip=y"]), [Fate::Replaced, Fate::Counted(0)]);
    assert_eq!(fates(&["vip=y", "all=x", "free=z"]), [Fate::Replaced, Fate::Replaced, Fate::Unlimited]);
}

#[test]
fn a_limit_in_the_request_is_used_instead_of_the_tree() {
    let book = book(WORKED);
    let entries = [Entry { key: "k", value: "v" }];
    let own = OwnLimit { amount: 42, window: tidegate_core::Micros::from_secs(3_600) };
    let descriptors = [Descriptor { entries: 0..1, cost: 1, limit: Some(own), own_cost: false }];
    let mut plan = Plan::new();
    for (domain, amounts) in [("d", vec![42]), ("other", vec![])] {
        book.plan(&Query { domain, entries: &entries, descriptors: &descriptors, lease: None }, &mut plan);
        assert_eq!(
            plan.takes().iter().map(|take| plan.limit(take).amount()).collect::<Vec<_>>(),
            amounts,
            "{domain}"
        );
    }
}

/// Anchors, merge keys, quotes or none, comments, JSON, Windows line ends: all is YAML to them, and to us.
#[test]
fn files_are_read_as_their_yaml_is() {
    let text = "# comment\r\ndomain: 'd'\r\nx-limit: &l { unit: minute, requests_per_unit: \"7\" }\r\ndescriptors:\r\n\
                - key: a   # any\r\n  rate_limit: *l\r\n- key: \"b\"\r\n  value: 1.0\r\n  rate_limit: { <<: *l, requests_per_unit: 8 }\r\n\
                - key: c\r\n  value: true\r\n  rate_limit:\r\n    <<: *l\r\n    unit: hour\r\n";
    let yaml = book(text);
    assert_eq!(found(&yaml, "d", "a=x"), "7/1m");
    assert_eq!(found(&yaml, "d", "b=1.0"), "8/1m");
    assert_eq!(found(&yaml, "d", "c=true"), "7/1h");
    let json = r#"{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "minute", "requests_per_unit": 7}}]}"#;
    assert_eq!(found(&book(json), "d", "a=x"), "7/1m");
}
