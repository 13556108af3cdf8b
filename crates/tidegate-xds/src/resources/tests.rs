use super::*;
use crate::messages::RateLimitReplace;

fn config(name: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitConfig {
    RateLimitConfig { name: name.into(), domain: "shop".into(), descriptors }
}

fn response(configs: &[RateLimitConfig]) -> DiscoveryResponse {
    let any = |config: &RateLimitConfig| Any { type_url: TYPE_URL.into(), value: config.encode_to_vec() };
    DiscoveryResponse {
        type_url: TYPE_URL.into(),
        resources: configs.iter().map(any).collect(),
        ..DiscoveryResponse::default()
    }
}

fn descriptor(rate_limit: RateLimitPolicy) -> RateLimitDescriptor {
    RateLimitDescriptor { key: "k".into(), rate_limit: Some(rate_limit), ..RateLimitDescriptor::default() }
}

fn parsed(text: &RuleText) -> Json {
    serde_json::from_str(&text.text).unwrap_or_else(|error| panic!("{error} in {}", text.text))
}

#[test]
fn a_resource_says_what_a_rule_file_would() {
    let value = |kind| Value { kind: Some(kind) };
    let list = prost_types::ListValue {
        values: vec![value(Kind::BoolValue(true)), Value { kind: None }, value(Kind::NumberValue(f64::NAN))],
    };
    let metadata = Struct {
        fields: [
            ("whole".into(), value(Kind::NumberValue(3.0))),
            ("part".into(), value(Kind::NumberValue(0.5))),
            ("text".into(), value(Kind::StringValue("a: \"b\"\n".into()))),
            ("list".into(), value(Kind::ListValue(list))),
        ]
        .into(),
    };
    let leaf = RateLimitDescriptor {
        key: "team/policy/rule/0".into(),
        value: "*".into(),
        rate_limit: Some(RateLimitPolicy {
            unit: 7,
            requests_per_unit: 4_294_967_295,
            unlimited: false,
            name: "weekly".into(),
            replaces: vec![RateLimitReplace { name: "daily".into() }],
        }),
        shadow_mode: true,
        quota_mode: true,
        detailed_metric: true,
        metadata: Some(metadata),
        ..RateLimitDescriptor::default()
    };
    let top = RateLimitDescriptor { key: "route".into(), descriptors: vec![leaf], ..Default::default() };
    let texts = rule_texts(&response(&[config("a", vec![top])])).expect("texts");
    let expected = serde_json::json!({
        "domain": "shop",
        "descriptors": [{
            "key": "route",
            "descriptors": [{
                "key": "team/policy/rule/0",
                "value": "*",
                "rate_limit": {
                    "unit": "week",
                    "requests_per_unit": 4_294_967_295_u32,
                    "name": "weekly",
                    "replaces": [{ "name": "daily" }],
                },
                "shadow_mode": true,
                "quota_mode": true,
                "detailed_metric": true,
                "metadata": { "whole": 3, "part": 0.5, "text": "a: \"b\"\n", "list": [true, null, null] },
            }],
        }],
    });
    assert_eq!(parsed(&texts[0]), expected);
    // Whole numbers stay whole in the text too: YAML tells `3` from `3.0`.
    assert!(texts[0].text.contains("\"whole\": 3,") || texts[0].text.contains("\"whole\": 3\n"));
}

#[test]
fn every_unit_has_its_word() {
    let words = ["second", "minute", "hour", "day", "month", "year", "week"];
    for (unit, word) in (1..).zip(words) {
        let limit = RateLimitPolicy { unit, requests_per_unit: 1, ..RateLimitPolicy::default() };
        let texts = rule_texts(&response(&[config("a", vec![descriptor(limit)])])).expect("texts");
        assert_eq!(parsed(&texts[0])["descriptors"][0]["rate_limit"]["unit"], word);
    }
}

#[test]
fn a_limit_of_nothing_is_told_and_one_without_a_limit_has_no_amount() {
    let zero = RateLimitPolicy { unit: 1, ..RateLimitPolicy::default() };
    let unlimited = RateLimitPolicy { unlimited: true, requests_per_unit: 5, ..RateLimitPolicy::default() };
    let both = config("a", vec![descriptor(zero), descriptor(unlimited)]);
    let texts = rule_texts(&response(&[both])).expect("texts");
    let told = &parsed(&texts[0])["descriptors"];
    assert_eq!(told[0]["rate_limit"], serde_json::json!({ "requests_per_unit": 0, "unit": "second" }));
    assert_eq!(told[1]["rate_limit"], serde_json::json!({ "unlimited": true }));
}

#[test]
fn a_unit_that_is_none_is_refused_in_the_words_that_people_look_for() {
    for (unit, word) in [(0, "UNKNOWN"), (8, "8"), (-1, "-1")] {
        let limit = RateLimitPolicy { unit, requests_per_unit: 1, ..RateLimitPolicy::default() };
        let inner = RateLimitDescriptor { descriptors: vec![descriptor(limit)], ..Default::default() };
        let told = rule_texts(&response(&[config("first-listener", vec![inner])]));
        assert_eq!(told, Err(format!("first-listener: invalid rate limit unit '{word}'")));
    }
}

#[test]
fn texts_are_the_same_in_whatever_order_resources_come() {
    let configs = ["b", "a", "", "c"].map(|name| config(name, Vec::new()));
    let mut turned = configs.to_vec();
    turned.rotate_left(1);
    turned.swap(0, 2);
    let texts = rule_texts(&response(&configs)).expect("texts");
    assert_eq!(texts.iter().map(|text| &*text.name).collect::<Vec<_>>(), ["a", "b", "c", "resource 3"]);
    let again = rule_texts(&response(&turned)).expect("texts");
    assert_eq!(texts[..3], again[..3]);
    assert_eq!(rule_texts(&response(&[])), Ok(Vec::new()), "nothing is something");
}

#[test]
fn what_is_no_configuration_is_told_by_its_number() {
    let good = config("a", Vec::new());
    let mut garbage = response(&[good.clone(), good.clone()]);
    garbage.resources[1].value = vec![0xff; 8];
    let told = rule_texts(&garbage).unwrap_err();
    assert!(told.starts_with("resource 2 cannot be read: "), "{told}");
    let mut other = response(std::slice::from_ref(&good));
    other.resources[0].type_url = "type.googleapis.com/a.B".into();
    let told = rule_texts(&other).unwrap_err();
    assert!(told.starts_with("resource 1 is of type `type.googleapis.com/a.B`"), "{told}");
    let other = DiscoveryResponse { type_url: "type.googleapis.com/a.B".into(), ..response(&[good]) };
    let told = rule_texts(&other).unwrap_err();
    assert!(told.starts_with("resources of type `type.googleapis.com/a.B` came"), "{told}");
}

#[test]
fn a_tree_without_an_end_is_refused() {
    let mut deep = RateLimitDescriptor { key: "k".into(), ..Default::default() };
    for _ in 0..500 {
        deep = RateLimitDescriptor { key: "k".into(), descriptors: vec![deep], ..Default::default() };
    }
    let told = rule_texts(&response(&[config("deep", vec![deep])])).unwrap_err();
    assert!(told.contains("recursion limit"), "{told}");
}
