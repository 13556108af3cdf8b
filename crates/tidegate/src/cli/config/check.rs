//! `tidegate config check`

use std::io;
use std::sync::mpsc::channel;

use clap::Args;
use serde_json::json;
use tidegate_config::{Following, load};

use super::{Form, Rules, diagnostics, tell, verdict};
use crate::cli::exit::Exit;
use crate::cli::output::{self, Output};

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tidegate config check                      the rules of ./tidegate.yaml, or of ./rules
  tidegate config check rules/ --strict      warnings count too
  tidegate config check rules/ --watch       again after every change, until it is interrupted")]
pub(crate) struct Check {
    #[command(flatten)]
    rules: Rules,
    /// Warnings count too: end with 3
    #[arg(long)]
    strict: bool,
    /// Check again whenever a file changes, and on SIGHUP
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    form: Form,
}

impl Check {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        let (sender, changes) = channel();
        let paths = self.rules.resolve().settings.rules.paths;
        let on_change = move || {
            let _ = sender.send(()); // Whoever does not listen any more is at the end.
        };
        let _following = if self.watch { Some(Following::start(paths, on_change)?) } else { None };
        loop {
            let exit = self.check()?;
            if !self.watch || changes.recv().is_err() {
                return Ok(exit);
            }
        }
    }

    fn check(&self) -> io::Result<Exit> {
        let resolved = self.rules.resolve();
        let loaded = load(&resolved.settings.rules);
        let (errors, warnings) = (
            resolved.report.errors() + loaded.report.errors(),
            resolved.report.warnings() + loaded.report.warnings(),
        );
        let rules: usize = loaded.domains.iter().map(|domain| count(&domain.descriptors)).sum();
        match self.form.output {
            Output::Json => output::write_json(&json!({
                "valid": errors == 0,
                "errors": errors,
                "warnings": warnings,
                "domains": loaded.domains.len(),
                "rules": rules,
                "diagnostics": diagnostics([(&resolved.report, &resolved.sources), (&loaded.report, &loaded.sources)]),
            }))?,
            Output::Table => {
                tell(&resolved.report, &resolved.sources);
                tell(&loaded.report, &loaded.sources);
                let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
                if errors == 0 {
                    let domains = plural(loaded.domains.len(), "domain");
                    output::write(&format!("valid: {domains}, {}\n", plural(rules, "rule")))?;
                }
            }
        }
        Ok(verdict(errors, warnings, self.strict))
    }
}

fn count(descriptors: &[tidegate_core::DescriptorDraft]) -> usize {
    let of = |descriptor: &tidegate_core::DescriptorDraft| {
        let tiers: usize = descriptor.tiers.iter().map(|(_, limits)| limits.len()).sum();
        descriptor.limits.len() + tiers + count(&descriptor.descriptors)
    };
    descriptors.iter().map(of).sum()
}
