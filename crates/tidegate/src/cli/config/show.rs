//! `tidegate config show`

use std::io;

use clap::Args;
use serde_json::{Value, json};
use tidegate_core::{Book, Rule, Secret};

use super::{Form, Rules, load};
use crate::cli::exit::Exit;
use crate::cli::output::{self, Output};
use crate::words;

#[derive(Args, Debug)]
pub(crate) struct Show {
    #[command(flatten)]
    rules: Rules,
    #[command(flatten)]
    form: Form,
}

impl Show {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        let resolved = self.rules.resolve();
        let Some(loaded) = load(&resolved, &resolved.settings.rules) else { return Ok(Exit::Config) };
        let book = Book::new(loaded.domains, Secret::new([0; 16])); // No key is made.
        match self.form.output {
            Output::Json => output::write_json(&json!(book.rules().iter().map(rule).collect::<Vec<_>>()))?,
            Output::Table => {
                let rows: Vec<[String; 5]> = book.rules().iter().map(row).collect();
                output::write(&output::table(["rule", "tier", "limit", "bound", "from"], &rows))?;
            }
        }
        Ok(Exit::Yes)
    }
}

fn row(rule: &Rule) -> [String; 5] {
    let limit = rule.said.limit.as_ref();
    let mut text = limit.map_or_else(|| "unlimited".into(), ToString::to_string);
    for word in words::of(rule) {
        text += &format!(" {word}");
    }
    let bound = limit.map(|limit| limit.bound_max());
    let bound = bound.map_or_else(String::new, |bound| format!("+{}/-{}", bound.over, bound.under));
    let origin = &rule.said.origin;
    [
        rule.id.to_string(),
        rule.tier.as_deref().unwrap_or_default().into(),
        text,
        bound,
        format!("{}:{}", origin.file, origin.line),
    ]
}

fn rule(rule: &Rule) -> Value {
    let said = &rule.said;
    let bound = said.limit.as_ref().map(|limit| limit.bound_max());
    json!({
        "id": rule.id,
        "name": said.name,
        "tier": rule.tier,
        "limit": said.limit.as_ref().map(|limit| json!({
            "text": limit.to_string(),
            "algorithm": limit.algorithm().name(),
            "amount": limit.amount(),
            "capacity": limit.capacity(),
            "window_us": limit.window().map(|window| window.get()),
        })),
        "bound": bound.map(|bound| json!({ "over": bound.over, "under": bound.under })),
        "path": rule.path.iter().map(|entry| json!({ "key": entry.key, "value": entry.value })).collect::<Vec<_>>(),
        "shadow_mode": said.shadow,
        "quota_mode": said.quota,
        "disabled": said.disabled,
        "enforce_percent": said.enforce.map(|share| f64::from(share.basis_points()) / 100.0),
        "replaces": said.replaces,
        "consistency": words::consistency(said.policy.consistency),
        "on_store_failure": said.policy.on_store_failure.name(),
        "metadata": said.metadata.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok()),
        "file": &*said.origin.file,
        "line": said.origin.line,
    })
}
