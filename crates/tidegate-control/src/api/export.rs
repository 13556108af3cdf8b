//! Everything as YAML: `/admin/v1/export`. Each rule is a document that could stand in a folder of rule files; tiers and quotas follow.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Desk;
use super::bulk::{Pen, streamed};
use super::call::{Answer, Call};
use super::join::join;
use super::problem::Problem;
use super::quotas::{OverrideBody, QuotaBody};
use super::shapes::Kept;
use super::when::When;
use crate::error::Error;
use crate::model::{Limits, QuotaFilter};

pub(super) async fn export(desk: Arc<Desk>, call: Call) -> Answer {
    let (rules, quotas) = match call.query().get("of") {
        None => (true, true),
        Some("rules") => (true, false),
        Some("quotas") => (false, true),
        Some(_) => return Err(Problem::bad_request("of", "is `rules` or `quotas`, or left out for both")),
    };
    // So that a database that is away is told as such.
    desk.store.revision().await?;
    Ok(streamed("application/yaml", move |to| async move {
        if rules {
            to.send(ABOUT_RULES.to_owned()).await?;
            write_states(&desk, &to).await?;
            write_rules(&desk, &to).await?;
        }
        if quotas {
            to.send(ABOUT_QUOTAS.to_owned()).await?;
            write_tiers(&desk, &to).await?;
            write_quotas(&desk, &to).await?;
        }
        Ok(())
    }))
}

/// What somebody should know who puts it into files.
const ABOUT_RULES: &str = "\
# Rules by API, a document of a rule file for each domain, which decides the same there: save them alone (?of=rules) in the folder of
# rule files, with `rules.merge_domains: true` where other files name one of these domains. Where such a file has one of these descriptors
# too, or says something of the domain itself (`match`), join them by hand: files refuse that.
# Not in these documents: states that were set by the kill switch, which are told as comments.
";
const ABOUT_QUOTAS: &str = "\
# Tiers and quotas of single callers. No rule file can say them: send them to /admin/v1/tiers and /admin/v1/quotas, or restore a backup.
";

/// A file cannot say until when, so states are for people to write into it.
async fn write_states(desk: &Desk, to: &Pen) -> Result<(), Error> {
    let mut after = None;
    loop {
        let page = desk.store.rule_states(after.as_deref(), Limits::PAGE).await?;
        let mut text = String::new();
        for state in page.items {
            let until =
                state.value.expires_at.map(|at| format!(" until {}", When(at).text())).unwrap_or_default();
            let rule = flow(&Value::String(state.value.rule));
            let _ = writeln!(text, "# state of {rule}: {}{until}", state.value.state);
        }
        to.send(text).await?;
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

async fn write_rules(desk: &Desk, to: &Pen) -> Result<(), Error> {
    let (mut after, mut documents) = (None, Vec::new());
    loop {
        let page = desk.store.rules(after.as_deref(), Limits::PAGE).await?;
        for rule in page.items {
            let document = Kept::from_store(&rule.document).rules;
            documents.push((format!("{} version {}", rule.id, rule.version), document));
        }
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    for joined in join(documents) {
        to.send(format!("--- # rules: {}\n{}", joined.of.join(", "), yaml(&joined.document))).await?;
    }
    Ok(())
}

async fn write_tiers(desk: &Desk, to: &Pen) -> Result<(), Error> {
    let (mut after, mut is_first) = (None, true);
    loop {
        let page = desk.store.tiers(after.as_deref(), Limits::PAGE).await?;
        for tier in page.items {
            let overrides: Vec<OverrideBody> =
                tier.value.overrides.into_iter().map(OverrideBody::of).collect();
            let item = json!([{ "name": tier.value.name, "overrides": overrides }]);
            let head = if std::mem::take(&mut is_first) { "---\ntiers:\n" } else { "" };
            to.send(format!("{head}{}", yaml(&item))).await?;
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

async fn write_quotas(desk: &Desk, to: &Pen) -> Result<(), Error> {
    let (mut after, mut is_first) = (None, true);
    loop {
        let page = desk.store.quotas(&QuotaFilter::default(), after.as_deref(), Limits::PAGE).await?;
        let mut text = String::new();
        for key in page.items {
            if std::mem::take(&mut is_first) {
                text.push_str("---\nquotas:\n");
            }
            let mut item = json!(QuotaBody::of(key.value));
            item.as_object_mut().into_iter().for_each(leave_out_nothings);
            text.push_str(&yaml(&json!([item])));
        }
        to.send(text).await?;
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

fn leave_out_nothings(item: &mut Map<String, Value>) {
    item.retain(|_, value| !value.is_null() && *value != false && *value != json!([]));
}

/// As YAML. Texts are written as in JSON, which YAML reads alike.
fn yaml(value: &Value) -> String {
    let mut text = String::new();
    block(&mut text, value, 0);
    text
}

fn block(to: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_by_key(|(name, _)| rank(name));
            for (name, value) in fields {
                let _ = write!(to, "{:indent$}{}:", "", key(name));
                below(to, value, indent + 2);
            }
        }
        Value::Array(list) => {
            for value in list {
                let mut inner = String::new();
                block(&mut inner, value, indent + 2);
                let inner = inner.trim_start();
                let _ = match value {
                    Value::Object(map) if !map.is_empty() => write!(to, "{:indent$}- {inner}", ""),
                    _ => writeln!(to, "{:indent$}- {}", "", flow(value)),
                };
            }
        }
        other => {
            let _ = writeln!(to, "{:indent$}{}", "", flow(other));
        }
    }
}

/// People begin with what something is, and end with what is below it.
fn rank(name: &str) -> usize {
    const FIRST: [&str; 6] = ["domain", "api_key", "name", "key", "value", "tier"];
    match name {
        "descriptors" | "overrides" => FIRST.len() + 1,
        name => FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len()),
    }
}

fn below(to: &mut String, value: &Value, indent: usize) {
    let is_empty = match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    };
    if is_empty {
        let _ = writeln!(to, " {}", flow(value));
    } else {
        to.push('\n');
        block(to, value, indent);
    }
}

/// On one line, with nothing in it that YAML wants to have escaped.
fn flow(value: &Value) -> String {
    let mut text = String::new();
    for letter in value.to_string().chars() {
        match letter {
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(letter));
            }
            other => text.push(other),
        }
    }
    text
}

fn key(name: &str) -> String {
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let is_word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&name);
    if is_plain && !is_word { name.into() } else { flow(&Value::String(name.into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_written_as_people_would() {
        let value = json!({ "domain": "api", "descriptors": [
            { "key": "a", "tiers": { "pro": [{ "limit": "1/1s" }], "Gold 1": {} }, "list": [1, [2, 3], []], "on": "x\u{85}\"y" },
        ] });
        let expected = "\
domain: \"api\"
descriptors:
  - key: \"a\"
    list:
      - 1
      - [2,3]
      - []
    \"on\": \"x\\u0085\\\"y\"
    tiers:
      \"Gold 1\": {}
      pro:
        - limit: \"1/1s\"
";
        assert_eq!(yaml(&value), expected);
    }
}
