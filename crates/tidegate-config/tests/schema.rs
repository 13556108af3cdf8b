//! The schema for editors says what the reader says.

mod support;

use std::error::Error;
use std::path::Path;

use serde_json::{Value, json};
use tidegate_config::{Caps, load_tests_text, reference, rule_tests_schema, schema};

type Outcome = Result<(), Box<dyn Error>>;

fn validator() -> Result<jsonschema::Validator, Box<dyn Error>> {
    let schema = schema(&support::FILE, "https://example.com/rules.json", "Rules");
    jsonschema::meta::validate(&schema).map_err(|error| error.to_string())?;
    Ok(jsonschema::draft202012::new(&schema)?)
}

/// A file with this descriptor in it; JSON is YAML too.
fn file(descriptor: &Value) -> Value {
    json!({ "domain": "shop", "descriptors": [descriptor] })
}

fn limit(name: &str, value: Value) -> Value {
    let mut limit = json!({ "unit": "minute", "requests_per_unit": 1 });
    limit[name] = value;
    json!({ "key": "a", "rate_limit": limit })
}

#[test]
fn schema_and_reader_agree() -> Outcome {
    let validator = validator()?;
    let good = [
        json!({ "key": "a" }),
        json!({ "key": 5, "value": true, "x-mine": [1] }),
        json!({ "key": "a", "shadow_mode": true }),
        json!({ "key": "a", "shadow_mode": "Yes" }),
        json!({ "key": "a", "limit": "100/min" }),
        json!({ "key": "a", "limit": "10r/s" }),
        json!({ "key": "a", "limit": "5 / 1h30m" }),
        json!({ "key": "a", "limit": 20 }),
        json!({ "key": "a", "limit": { "unit": "S", "amount": "1_000" } }),
        json!({ "key": "a", "descriptors": [{ "key": "b", "descriptors": [] }] }),
        limit("unit", json!("MINUTE")),
        limit("requests_per_unit", json!("0x10")),
        limit("requests_per_unit", json!(4_294_967_295_u64)),
        limit("burst_for", json!("1h 30 minutes")),
        limit("share", json!("0.5%")),
        limit("share", json!(25)),
        limit("extra", json!({ "a": [1, { "b": "c" }] })),
    ];
    let bad = [
        json!({ "value": "a" }),
        json!({ "key": ["a"] }),
        json!({ "key": "a", "unit": "minute" }),
        json!({ "key": "a", "shadow_mode": "ture" }),
        json!({ "key": "a", "limit": "100 per min" }),
        json!({ "key": "a", "limit": "5/15" }),
        json!({ "key": "a", "limit": { "unit": "s" } }),
        json!({ "key": "a", "descriptors": { "key": "b" } }),
        limit("unit", json!("minuet")),
        limit("requests_per_unit", json!(-1)),
        limit("requests_per_unit", json!("010")),
        limit("requests_per_unit", json!(4_294_967_296_u64)),
        limit("requests_per_unit", json!(1.5)),
        limit("burst_for", json!(60)),
        limit("burst_for", json!("60")),
        limit("share", json!("1/4")),
        limit("share", json!(101)),
        limit("typo", json!(1)),
    ];
    for (cases, expected) in [(&good[..], true), (&bad[..], false)] {
        for case in cases {
            let file = file(case);
            assert_eq!(validator.is_valid(&file), expected, "by the schema: {case}");
            let (_, report) = support::check("a.yaml", file.to_string().into(), &Caps::default());
            assert_eq!(report.errors() == 0, expected, "by the reader: {case}: {report:?}");
        }
    }
    for (name, value, expected) in [
        ("trusted", json!("10.0.0.0/8"), true),
        ("trusted", json!(["10.0.0.0/8", "::1"]), true),
        ("trusted", json!("everybody"), false),
        ("tiers", json!({ "free": { "limit": "5/day" } }), true),
        ("tiers", json!({ "free": {} }), false),
        ("labels", json!({ "a": 1, "b": "x" }), true),
        ("labels", json!({ "a": [1] }), false),
    ] {
        let file = json!({ "domain": "shop", name: value });
        assert_eq!(validator.is_valid(&file), expected, "by the schema: {file}");
        let (_, report) = support::check("a.yaml", file.to_string().into(), &Caps::default());
        assert_eq!(report.errors() == 0, expected, "by the reader: {file}: {report:?}");
    }
    Ok(())
}

#[test]
fn schema_and_reader_agree_about_rule_tests() -> Outcome {
    let schema = rule_tests_schema();
    jsonschema::meta::validate(&schema).map_err(|error| error.to_string())?;
    let validator = jsonschema::draft202012::new(&schema)?;
    for (name, value, expected) in [
        ("ask", json!([{ "a": 1 }, { "a": true, "b": "c" }]), true),
        ("ask", json!({ "a": ["b"] }), false),
        ("ask", json!("a"), false),
        ("times", json!(1_000_000), true),
        ("times", json!(1_000_001), false),
        ("times", json!(0), false),
        ("every", json!("0s"), true),
        ("every", json!(5), false),
        ("cost", json!(-5), true),
        ("cost", json!("-1_000"), true),
        ("cost", json!([0]), true),
        ("cost", json!(1.5), false),
        ("cost", json!(-4_294_967_296_i64), false),
        ("limit", json!("10/1m"), true),
        ("expect", json!("refused"), true),
        ("expect", json!("denied"), false),
        ("expect", json!({ "allowed": true, "rule": "none", "counted": [], "shadow_refused": "a" }), true),
        ("expect", json!({ "retry_after": "none", "code": "cost_exceeds_limit", "reset": "1h30m" }), true),
        ("expect", json!({ "retry_after": "soon" }), false),
        ("expect", json!({ "remaining": -1 }), false),
        ("start", json!("2026-01-01T00:00:00Z"), true),
        ("start", json!("2026-01-01T01:30:00.5+01:30"), true),
        ("start", json!("2026-01-01"), false),
        ("start", json!("2026-01-01T00:00:00"), false),
        ("rules", json!(["a.yaml", "b"]), true),
        ("rules", json!({}), false),
    ] {
        let mut step = json!({ "ask": { "a": "b" }, "expect": "allowed" });
        let mut file = json!({ "rules": "a.yaml" });
        let place = if matches!(name, "start" | "rules") { &mut file } else { &mut step };
        place[name] = value;
        file["tests"] = json!([{ "name": "a test", "steps": [step, { "wait": "1s" }] }]);
        assert_eq!(validator.is_valid(&file), expected, "by the schema: {file}");
        let loaded = load_tests_text(Path::new("a.yaml"), file.to_string().into(), &Caps::default());
        assert_eq!(loaded.report.errors() == 0, expected, "by the reader: {file}: {:?}", loaded.report);
    }
    Ok(())
}

#[test]
fn the_schema_tells_an_editor_what_things_are_for() {
    let schema = schema(&support::FILE, "https://example.com/rules.json", "Rules");
    assert_eq!(schema["properties"]["domain"]["description"], "The namespace of the rules.");
    let limit = &schema["$defs"]["rate_limit"]["properties"];
    assert_eq!(limit["burst_for"]["examples"], json!(["1h30m"]));
    assert_eq!(limit["unit"]["anyOf"][1], json!({ "const": "minute", "description": "A minute." }));
    assert_eq!(schema["$defs"]["descriptor"]["properties"]["shadow_mode"]["default"], json!(false));
    assert_eq!(
        limit["share"]["description"],
        "How much of it. Understood, but takes all until shares are there."
    );
}

#[test]
fn the_tables_become_tables() {
    let text = reference(&support::RATE_LIMIT);
    for line in [
        "| `requests_per_unit`, `amount` (required) | a whole number: `100` |  | The amount. † |",
        "| `burst_for` | a duration such as `15m`: `1h30m` |  | How long. |",
        "- `leased`: Taken in advance. Understood, but works as `exact` until leases are there.",
    ] {
        assert!(text.lines().any(|found| found == line), "no line {line} in\n{text}");
    }
}
