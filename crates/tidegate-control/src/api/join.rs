//! Documents of rules about one domain as one document, as they are in force: descriptors with the same key and value are one, and have the
//! limits of all. In rule files the same descriptor twice is an error, so rules that were written one by one could not stand there.
//!
//! Rules by API were judged together when they were written: nothing here can contradict something else.

use serde_json::{Map, Value};

/// A domain's document, and whose it is made of.
pub(super) struct Joined {
    /// The ids of rules, with versions, for people.
    pub(super) of: Vec<String>,
    pub(super) document: Value,
}

/// Joins documents, each with what it is called, in their order.
pub(super) fn join(documents: Vec<(String, Value)>) -> Vec<Joined> {
    let mut all: Vec<Joined> = Vec::new();
    for (name, document) in documents {
        let same = all.iter_mut().find(|known| known.document["domain"] == document["domain"]);
        match (same, document) {
            (Some(known), Value::Object(added)) if known.document.is_object() => {
                known.of.push(name);
                if let Some(there) = known.document.as_object_mut() {
                    join_maps(there, added);
                }
            }
            (_, document) => all.push(Joined { of: vec![name], document }),
        }
    }
    all
}

fn join_maps(there: &mut Map<String, Value>, mut added: Map<String, Value>) {
    if let Some(Value::Array(below)) = added.remove("descriptors") {
        let siblings = there.entry("descriptors").or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(siblings) = siblings {
            below.into_iter().for_each(|descriptor| graft(siblings, descriptor));
        }
    }
    let limits: Vec<Value> = taken_limits(there).into_iter().chain(taken_limits(&mut added)).collect();
    match limits.len() {
        0 => None,
        1 => limits.into_iter().next().and_then(|limit| there.insert("rate_limit".into(), limit)),
        _ => there.insert("rate_limits".into(), Value::Array(limits)),
    };
    if let Some(Value::Object(tiers)) = added.remove("tiers") {
        let known = there.entry("tiers").or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(known) = known {
            for (tier, limits) in tiers {
                let mut all: Vec<Value> = known.remove(&tier).map(listed).unwrap_or_default();
                all.extend(listed(limits));
                let one = if all.len() == 1 { all.pop() } else { None };
                known.insert(tier, one.unwrap_or(Value::Array(all)));
            }
        }
    }
    for (name, value) in added {
        there.entry(name).or_insert(value);
    }
}

fn graft(siblings: &mut Vec<Value>, added: Value) {
    let is_same =
        |one: &&mut Value| one["key"] == added["key"] && fixed(&one["value"]) == fixed(&added["value"]);
    let same = siblings.iter_mut().find(is_same).and_then(Value::as_object_mut);
    match (same, added) {
        (Some(there), Value::Object(added)) => join_maps(there, added),
        (_, added) => siblings.push(added),
    }
}

/// A value that is there and not empty.
fn fixed(value: &Value) -> Option<&Value> {
    Some(value).filter(|value| !value.is_null() && value.as_str() != Some(""))
}

fn taken_limits(map: &mut Map<String, Value>) -> Vec<Value> {
    ["rate_limit", "rate_limits"].into_iter().filter_map(|name| map.remove(name)).flat_map(listed).collect()
}

fn listed(value: Value) -> Vec<Value> {
    match value {
        Value::Array(all) => all,
        one => vec![one],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_descriptor_has_the_limits_of_all() {
        let one = json!({ "domain": "a", "match": "path", "descriptors": [
            { "key": "k", "rate_limit": { "limit": "1/1s" }, "tiers": { "pro": { "limit": "2/1s" } },
              "descriptors": [{ "key": "e", "value": "/x", "rate_limit": { "limit": "3/1s" } }] }] });
        let two = json!({ "domain": "a", "descriptors": [
            { "key": "k", "value": "", "rate_limits": [{ "limit": "4/1m" }],
              "tiers": { "pro": [{ "limit": "5/1m" }], "max": { "limit": "6/1m" } },
              "descriptors": [{ "key": "e", "value": "/y", "rate_limit": { "limit": "7/1s" } }] },
            { "key": "k", "value": "fixed", "rate_limit": { "limit": "8/1s" } }] });
        let other = json!({ "domain": "b", "descriptors": [] });
        let joined = join(vec![("one".into(), one), ("b".into(), other.clone()), ("two".into(), two)]);
        let told: Vec<_> = joined.iter().map(|one| one.of.join(" ")).collect();
        assert_eq!(told, ["one two", "b"]);
        let expected = json!({ "domain": "a", "match": "path", "descriptors": [
            { "key": "k", "value": "", "rate_limits": [{ "limit": "1/1s" }, { "limit": "4/1m" }],
              "tiers": { "pro": [{ "limit": "2/1s" }, { "limit": "5/1m" }], "max": { "limit": "6/1m" } },
              "descriptors": [{ "key": "e", "value": "/x", "rate_limit": { "limit": "3/1s" } },
                              { "key": "e", "value": "/y", "rate_limit": { "limit": "7/1s" } }] },
            { "key": "k", "value": "fixed", "rate_limit": { "limit": "8/1s" } }] });
        assert_eq!(joined[0].document, expected);
        assert_eq!(joined[1].document, other, "what is alone is as it was");
    }
}
