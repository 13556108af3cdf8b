//! `tidegate run`

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tidegate_config::{AuditSinkSettings, DropIn, Resolved, Settings, Style};
use tidegate_telemetry::log::{self, LogFormat};

use super::config::tell;
use super::exit::Exit;
use super::output;
use super::settings::SettingFlags;
use crate::node::{Running, StartError};

/// How long the last lines of the log may take.
const LAST_LINES: Duration = Duration::from_secs(1);

#[derive(Args, Debug)]
#[command(after_help = "\
Without any setting it serves on this machine alone, with the rules in the folder `rules`, or with demo rules where there is none.
SIGHUP loads the rules again; SIGTERM lets everybody finish, saves the counters and ends. Every setting: docs/settings.md

Examples:
  tidegate run                                           on this machine, to try it
  tidegate run --rls-listen 0.0.0.0:8081                 Envoy on other machines may call it
  tidegate run --rules-path shop.yaml --log-format json  one rule file; logs for machines
  tidegate run --store-url redis://127.0.0.1:6379        counters in Redis, which a fleet of nodes shares")]
pub(crate) struct Run {
    #[command(flatten)]
    settings: SettingFlags,
}

impl Run {
    pub(crate) fn run(&self) -> io::Result<ExitCode> {
        start(self.settings.resolve(), None, || ())
    }
}

/// Runs a node, perhaps in the place of envoyproxy/ratelimit. `told` says what is to be logged first.
pub(super) fn start(
    resolved: Resolved,
    drop_in: Option<DropIn>,
    told: impl FnOnce(),
) -> io::Result<ExitCode> {
    tell(&resolved.report, &resolved.sources);
    if resolved.report.errors() > 0 {
        return Ok(Exit::Config.into());
    }
    let settings = resolved.settings;
    let format = match settings.log_format {
        "json" => LogFormat::Json,
        "json-at" => LogFormat::JsonAt,
        _ => LogFormat::Text,
    };
    let level = settings.log_level.parse().map_err(io::Error::other)?;
    log::start(format, level).map_err(io::Error::other)?;
    told();
    let ended = serve(settings, drop_in);
    log::flush(LAST_LINES); // The end is what somebody will look for.
    ended
}

fn serve(settings: Settings, drop_in: Option<DropIn>) -> io::Result<ExitCode> {
    let has_sink = settings.control.enabled && settings.control.audit_sink == Some(AuditSinkSettings::Stdout);
    let running = match Running::start(settings, drop_in) {
        Ok(running) => running,
        Err(StartError::Rules(loaded)) => {
            anstream::eprintln!("{}", loaded.report.render(&loaded.sources, Style::Coloured));
            return Ok(Exit::Config.into());
        }
        Err(error) => return Err(io::Error::other(error.to_string())),
    };
    match has_sink {
        true => anstream::eprint!("{}", greeting(&running)), // Standard output is for lines of the audit trail alone.
        false => output::write(&greeting(&running))?,
    }
    Ok(running.wait())
}

/// What somebody at a terminal wants to know.
fn greeting(running: &Running) -> String {
    let http = &running.serving.http;
    let debug =
        running.serving.debug.as_ref().map(|debug| format!("Debug http://{debug}  (/rlconfig, /stats)\n  "));
    let (rls, on_http) = match &running.serving.rls {
        Some(rls) => (format!("RLS   {rls}  (gRPC: point Envoy here)\n  "), "checks, /metrics, /readyz"),
        None => (String::new(), "/metrics, /readyz"),
    };
    let mut text = format!(
        "Tidegate {} is running. {}\n\n  {}{rls}HTTP  http://{http}  ({on_http})\n",
        env!("CARGO_PKG_VERSION"),
        running.serving.counts_in(),
        debug.unwrap_or_default(),
    );
    if let Some(control) = running.serving.control_address {
        let scheme = if running.serving.settings.control.tls.is_some() { "https" } else { "http" };
        text += &format!("  Admin {scheme}://{control}  (quotas, tiers, rules; /openapi.json)\n");
    }
    if running.serving.demo && running.serving.rls.is_some() {
        text += &format!(
            "\nThere is no folder `rules` here, so these are demo rules: 5 requests in any 10 seconds for each API key.\n\
             Try it, six times within ten seconds:\n\n  \
             curl -i 'http://{http}/v1/check?enforce' -d '{{\"clientId\": \"alice\", \"endpoint\": \"GET /orders\"}}'\n"
        );
    }
    text
}
