//! `tidegate config diff`

use std::io;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use tidegate_core::{Book, Secret};

use super::{Form, load};
use crate::cli::exit::Exit;
use crate::cli::output::{self, Output};
use crate::cli::settings::SettingFlags;
use crate::differences::{Difference, Differences, Kind};

#[derive(Args, Debug)]
#[command(after_help = "\
Ends with 3 if anything changes.

Examples:
  tidegate config diff /etc/tidegate/rules rules/
  git worktree add ../main main && tidegate config diff ../main/rules rules/")]
pub(crate) struct Diff {
    /// The rules as they are
    old: PathBuf,
    /// The rules as they would be
    new: PathBuf,
    #[command(flatten)]
    settings: SettingFlags,
    #[command(flatten)]
    form: Form,
}

impl Diff {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        let mut resolved = self.settings.resolve();
        let mut of = |path: &PathBuf| {
            resolved.settings.rules.paths = vec![path.clone()];
            load(&resolved, &resolved.settings.rules)
        };
        let (Some(old), Some(new)) = (of(&self.old), of(&self.new)) else { return Ok(Exit::Config) };
        let book = |domains| Book::new(domains, Secret::new([0; 16])); // No key is made.
        let Differences { mut besides, rules } = Differences::between(&book(old.domains), &book(new.domains));
        besides.extend(rules);
        let changes = besides;
        match self.form.output {
            Output::Json => output::write_json(&changes.iter().map(json).collect())?,
            Output::Table if changes.is_empty() => output::write("the same\n")?,
            Output::Table => {
                let rows: Vec<[String; 5]> = changes.iter().map(row).collect();
                output::write(&output::table(["change", "rule", "tier", "old", "new"], &rows))?;
                if changes.iter().any(|change| change.kind == Kind::Fresh) {
                    output::write(
                        "\nfresh: the counter is another one, so everybody starts with a full budget\n",
                    )?;
                }
            }
        }
        Ok(if changes.is_empty() { Exit::Yes } else { Exit::No })
    }
}

fn row(change: &Difference) -> [String; 5] {
    let Difference { kind, id, tier, before, after, .. } = change;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    [word(*kind).into(), id.clone(), text(tier), text(before), text(after)]
}

fn json(change: &Difference) -> Value {
    json!({
        "change": word(change.kind),
        "rule": change.id,
        "tier": change.tier,
        "old": change.before,
        "new": change.after,
    })
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Added => "added",
        Kind::Removed => "removed",
        Kind::Changed => "changed",
        Kind::Fresh => "fresh",
    }
}
