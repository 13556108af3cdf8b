//! `tidegate config`: rule files and settings, looked at without a node.

mod check; // are they valid?
mod diff; // what would change?
mod schema; // for editors
mod settings; // what is set, and where
mod show; // what do they come to?

use std::io;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tidegate_config::{Loaded, Report, Resolved, RuleFiles, Sources, Style};

use super::exit::Exit;
use super::output::Output;
use super::settings::SettingFlags;

#[derive(Subcommand, Debug)]
pub(crate) enum Config {
    /// Are the rules and settings valid? Tells everything that is wrong, at once
    Check(check::Check),
    /// Show every rule, as it is understood
    Show(show::Show),
    /// Print the JSON Schema of a kind of file
    Schema(schema::Schema),
    /// Show every setting, and where it comes from
    Settings(settings::Settings),
    /// What changes from one set of rules to another, and which counters start afresh
    Diff(diff::Diff),
}

impl Config {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        match self {
            Self::Check(check) => check.run(),
            Self::Show(show) => show.run(),
            Self::Schema(schema) => schema.run(),
            Self::Settings(settings) => settings.run(),
            Self::Diff(diff) => diff.run(),
        }
    }
}

/// Which rules are meant.
#[derive(Args, Debug)]
pub(crate) struct Rules {
    /// Rule files, and folders of them [default: the setting rules.path]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    settings: SettingFlags,
}

impl Rules {
    fn resolve(&self) -> Resolved {
        let mut resolved = self.settings.resolve();
        if !self.paths.is_empty() {
            resolved.settings.rules.paths.clone_from(&self.paths);
        }
        resolved
    }
}

/// How `loaded` ends the process: with errors, never well.
fn verdict(errors: usize, warnings: usize, strict: bool) -> Exit {
    match (errors, warnings) {
        (1.., _) => Exit::Config,
        (0, 1..) if strict => Exit::No,
        _ => Exit::Yes,
    }
}

/// Says what is wrong, on stderr: it is talk. Colours are taken out where that is no terminal.
pub(super) fn tell(report: &Report, sources: &Sources) {
    if !report.is_empty() {
        anstream::eprintln!("{}", report.render(sources, Style::Coloured));
    }
}

/// Loads rules; if they, or the settings, have errors, says so and gives none.
fn load(resolved: &Resolved, rules: &RuleFiles) -> Option<Loaded> {
    tell(&resolved.report, &resolved.sources);
    let loaded = tidegate_config::load(rules);
    tell(&loaded.report, &loaded.sources);
    (resolved.report.errors() == 0 && loaded.is_valid()).then_some(loaded)
}

/// Diagnostics for machines.
fn diagnostics(parts: [(&Report, &Sources); 2]) -> Value {
    let all: Vec<Value> = parts.into_iter().flat_map(|(report, sources)| report.json(sources)).collect();
    json!(all)
}

/// What form the answer has.
#[derive(Args, Debug)]
struct Form {
    /// The form of the answer
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}
