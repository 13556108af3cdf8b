//! Records and tables, for people.

use serde_json::Value;
use tidegate_config::escaped;

use crate::cli::output;

/// What stands where there is nothing.
pub(super) const NOTHING: &str = "-";

/// A text of an answer, with nothing in it that a terminal obeys.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => NOTHING.into(),
        Value::String(text) if text.is_empty() => NOTHING.into(),
        Value::String(text) => escaped(text),
        Value::Array(all) if all.is_empty() => "none".into(),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// An instant to the second.
pub(super) fn time(value: &Value) -> String {
    let said = text(value);
    match said.split_once('.') {
        Some((seconds, rest)) if rest.ends_with('Z') => format!("{seconds}Z"),
        _ => said,
    }
}

/// Names and what they have, one below the other. What has nothing to say is left out.
pub(super) fn record(fields: &[(&str, Option<String>)]) -> String {
    let said: Vec<(&str, &String)> =
        fields.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?))).collect();
    let width = said.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    said.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

/// What there is to say, if there is something.
pub(super) fn said(value: &Value) -> Option<String> {
    let is_nothing = match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(all) => all.is_empty(),
        _ => false,
    };
    (!is_nothing).then(|| text(value))
}

/// A table, or a sentence where it would have no rows.
pub(super) fn table<const N: usize>(
    head: [&str; N],
    items: &[Value],
    none: &str,
    row: impl Fn(&Value) -> [String; N],
) -> String {
    match items {
        [] => format!("{none}\n"),
        items => output::table(head, &items.iter().map(row).collect::<Vec<_>>()),
    }
}

/// The values of a list.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[][..], Vec::as_slice)
}
