//! What the proxy is told beside an answer: what was asked, and the metadata of the limits that passed.

use serde_json::{Map, Value};
use tidegate_core::{Fate, OwnLimit, Query};

use crate::decide::Decision;
use crate::rls::response::{CurrentLimit, FieldWriter, ListWriter};

/// Writes it. `hits` is what the whole request said of its cost.
pub(crate) fn write(decision: &Decision<'_>, query: &Query<'_>, hits: u32, fields: &mut FieldWriter<'_>) {
    fields.text("domain", query.domain);
    fields.list("descriptors", |list| {
        for descriptor in query.descriptors {
            list.fields(|fields| {
                fields.list("entries", |list| {
                    for entry in query.entries_of(descriptor) {
                        list.text(&format!("{}={}", entry.key, entry.value));
                    }
                });
                if let Some(limit) = &descriptor.limit {
                    fields.text("limit", &own_limit(limit));
                }
                if descriptor.own_cost {
                    fields.number("hitsAddend", descriptor.cost.unsigned_abs() as f64);
                }
            });
        }
    });
    if hits > 0 {
        fields.number("hitsAddend", hits.into());
    }
    let merged = merged(decision);
    if !merged.is_empty() {
        fields.fields("metadata", |fields| write_map(&merged, fields));
    }
}

/// A limit that a request brings, as Go prints it: what is zero is left out.
fn own_limit(own: &OwnLimit) -> String {
    let amount = u32::try_from(own.amount).unwrap_or(u32::MAX);
    let unit = CurrentLimit::new(amount, own.window, "").map_or("UNKNOWN", |limit| match limit.unit_name() {
        "WEEK" => "7", // Of units that a request may bring, the week has a number and no name.
        name => name,
    });
    match amount {
        0 => format!("unit:{unit}"),
        amount => format!("requests_per_unit:{amount} unit:{unit}"),
    }
}

/// The metadata of all limits that passed: of two values for one name the first holds, and maps are merged.
fn merged(decision: &Decision<'_>) -> Map<String, Value> {
    let mut merged = Map::new();
    for found in decision.plan.found() {
        let passed = match found.fate {
            Fate::Counted(at) => decision.answers.get(at).is_some_and(|answer| answer.verdict.admitted()),
            Fate::Unlimited => true,
            _ => false,
        };
        let metadata = found.rule.filter(|_| passed).and_then(|rule| rule.said.metadata.as_deref());
        if let Some(Ok(Value::Object(more))) = metadata.map(serde_json::from_str) {
            merge(&mut merged, more);
        }
    }
    merged
}

fn merge(into: &mut Map<String, Value>, more: Map<String, Value>) {
    for (name, value) in more {
        match (into.get_mut(&name), value) {
            (None, value) => drop(into.insert(name, value)),
            (Some(Value::Object(known)), Value::Object(more)) => merge(known, more),
            (Some(_), _) => {}
        }
    }
}

fn write_map(map: &Map<String, Value>, fields: &mut FieldWriter<'_>) {
    for (name, value) in map {
        match value {
            Value::Null => fields.null(name),
            Value::Bool(flag) => fields.flag(name, *flag),
            Value::Number(number) => fields.number(name, number.as_f64().unwrap_or_default()),
            Value::String(text) => fields.text(name, text),
            Value::Array(items) => fields.list(name, |list| write_items(items, list)),
            Value::Object(map) => fields.fields(name, |fields| write_map(map, fields)),
        }
    }
}

fn write_items(items: &[Value], list: &mut ListWriter<'_>) {
    for item in items {
        match item {
            Value::Null => list.null(),
            Value::Bool(flag) => list.flag(*flag),
            Value::Number(number) => list.number(number.as_f64().unwrap_or_default()),
            Value::String(text) => list.text(text),
            Value::Array(items) => list.list(|list| write_items(items, list)),
            Value::Object(map) => list.fields(|fields| write_map(map, fields)),
        }
    }
}
