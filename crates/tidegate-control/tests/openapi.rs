//! The OpenAPI document in the repository is the one that the API serves. `TIDEGATE_BLESS=1 cargo test -p tidegate-control` writes it
//! again.

use std::path::Path;

use serde_json::Value;
use tidegate_control::api::{openapi, routes};

#[test]
fn the_document_is_as_the_types_are() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let text = format!("{:#}\n", openapi());
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&file, &text).expect("it can be written");
    }
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        there == text,
        "docs/openapi.json differs; if that is right: TIDEGATE_BLESS=1 cargo test -p tidegate-control"
    );
}

#[test]
fn every_reference_leads_somewhere_and_every_call_has_a_name_of_its_own() {
    let document = openapi();
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.trim_start_matches('#');
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    let mut ids: Vec<String> = document["paths"]
        .as_object()
        .into_iter()
        .flat_map(|paths| paths.values())
        .flat_map(|path| path.as_object().into_iter().flat_map(|path| path.values()))
        .filter_map(|operation| operation["operationId"].as_str().map(str::to_owned))
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), routes().len());
}

fn collect(value: &Value, to: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            to.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
            map.values().for_each(|value| collect(value, to));
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, to)),
        _ => {}
    }
}
