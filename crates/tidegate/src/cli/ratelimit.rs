//! `tidegate ratelimit`, or whatever is called `ratelimit`: a node in the place of envoyproxy/ratelimit.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use tidegate_config::{DropInRead, read_drop_in};

use super::run;
use super::settings::SettingFlags;

/// Run a node in the place of envoyproxy/ratelimit.
#[derive(Parser, Debug)]
#[command(name = "ratelimit", version = super::VERSION, max_term_width = 110, after_help = "\
It takes the environment variables of envoyproxy/ratelimit, listens where it does, reads the files that it reads and answers as it does.
What is set as a flag, by a variable TIDEGATE_… or in tidegate.yaml comes before them; every setting: docs/settings.md
What becomes of each variable: docs/migrating-from-envoyproxy-ratelimit.md

Examples:
  REDIS_SOCKET_TYPE=tcp REDIS_URL=127.0.0.1:6379 RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit ratelimit
  ratelimit --defaults-algorithm sliding_window           the same limits, without twice as much at the edge of a window
  ratelimit --store-reference-names false                 counters under names that no two descriptors share
  ratelimit --defaults-on-store-failure local             count alone while Redis is away")]
pub(crate) struct Ratelimit {
    #[command(flatten)]
    settings: SettingFlags,
}

/// Is this process started under the reference server's name?
pub(crate) fn is_its_name() -> bool {
    let name = std::env::args_os().next();
    name.is_some_and(|name| Path::new(&name).file_name().is_some_and(|name| name == "ratelimit"))
}

impl Ratelimit {
    pub(crate) fn run(&self) -> io::Result<ExitCode> {
        let text = |text: OsString| text.to_string_lossy().into_owned();
        let variables: Vec<(String, String)> =
            std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
        let DropInRead { drop_in, instead, troubles, ignored } = read_drop_in(&variables);
        let mut resolved = self.settings.resolve_instead(instead);
        troubles.into_iter().for_each(|trouble| resolved.report.push(trouble));
        resolved.settings.rules.as_reference = true;
        resolved.settings.rules.reference_root.clone_from(&drop_in.rules_root);
        run::start(resolved, Some(drop_in), || {
            if !ignored.is_empty() {
                let names: Vec<&str> = ignored.iter().map(|variable| variable.name).collect();
                tracing::warn!(
                    variables = names.join(", "),
                    "these variables have no effect here; docs/migrating-from-envoyproxy-ratelimit.md says what holds instead"
                );
            }
            for variable in &ignored {
                tracing::info!(variable = variable.name, "ignored: {}", variable.note);
            }
        })
    }
}
