//! Rules as text, in our own spelling.

use std::fmt::Write as _;

use tidegate_core::{DescriptorDraft, DomainDraft, Micros, RuleDraft};

/// A document. What that server does without being told is said in the first one of a domain, so that the rules mean what they meant.
pub(super) fn domain(domain: &DomainDraft, is_first: bool) -> String {
    let mut text = format!("domain: {}\n", scalar(&domain.name));
    if is_first {
        text += "defaults: { algorithm: fixed_window, on_store_failure: error }\n";
    }
    if domain.descriptors.is_empty() {
        text += "descriptors: []\n";
    } else {
        text += "descriptors:\n";
        domain.descriptors.iter().for_each(|descriptor| write_descriptor(&mut text, descriptor, 1));
    }
    text
}

fn write_descriptor(text: &mut String, descriptor: &DescriptorDraft, depth: usize) {
    let indent = "    ".repeat(depth - 1);
    *text += &format!("{indent}  - key: {}\n", scalar(&descriptor.key));
    let mut line = |what: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{indent}    {what}");
    };
    if let Some(value) = &descriptor.value {
        line(format_args!("value: {}", quoted(value)));
    }
    let limit = descriptor.limits.first();
    let said = |flag: fn(&RuleDraft) -> bool| limit.is_some_and(flag);
    for (name, on) in [
        ("share_threshold", descriptor.share_threshold),
        ("value_to_metric", descriptor.value_to_metric),
        ("detailed_metric", said(|limit| limit.detailed_metric)),
        ("shadow_mode", said(|limit| limit.shadow)),
        ("quota_mode", said(|limit| limit.quota)),
    ] {
        if on {
            line(format_args!("{name}: true"));
        }
    }
    if let Some(metadata) = limit.and_then(|limit| limit.metadata.as_deref()) {
        line(format_args!("metadata: {metadata}")); // JSON is YAML.
    }
    if let Some(limit) = limit {
        line(format_args!("rate_limit: {}", rate_limit(limit)));
    }
    if !descriptor.descriptors.is_empty() {
        line(format_args!("descriptors:"));
        descriptor.descriptors.iter().for_each(|below| write_descriptor(text, below, depth + 1));
    }
}

fn rate_limit(rule: &RuleDraft) -> String {
    let mut parts = vec![match &rule.limit {
        None => "unlimited: true".to_string(),
        Some(limit) => {
            let window = limit.window().unwrap_or(Micros::from_secs(1));
            format!("limit: {}/{}", limit.amount(), duration(window))
        }
    }];
    if let Some(name) = &rule.name {
        parts.push(format!("name: {}", quoted(name)));
    }
    if !rule.replaces.is_empty() {
        let names: Vec<String> =
            rule.replaces.iter().map(|name| format!("{{ name: {} }}", quoted(name))).collect();
        parts.push(format!("replaces: [{}]", names.join(", ")));
    }
    format!("{{ {} }}", parts.join(", "))
}

/// In the largest unit that it is a whole number of. Months and years are so many days, since that is what they are there.
fn duration(window: Micros) -> String {
    let secs = window.get() / 1_000_000;
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let (length, unit) =
        units.into_iter().find(|(length, _)| secs.is_multiple_of(*length)).unwrap_or((1, "s"));
    format!("{}{unit}", secs / length)
}

/// Without quotes where nobody could take it for anything but a text.
fn scalar(text: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    let is_word = text.starts_with(|letter: char| letter.is_ascii_alphabetic()) && text.chars().all(plain);
    let is_other = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word));
    if is_word && !is_other { text.into() } else { quoted(text) }
}

/// A JSON string is one of YAML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
