//! The command line. Start at [`Verb`]: a new verb is a file and a line.

mod backup; // the control plane's database, out and in
mod ask; // what a running node is asked
mod check; // may this go on?
mod completions; // for shells
mod config; // rule files: check, show, schema, diff
mod control; // quotas, tiers, rules, tokens: the admin API by hand
mod exit; // what the numbers mean
mod explain; // why?
mod http; // one exchange with a server
mod import; // rules of another limiter
mod inspect; // what do counters hold?
mod ratelimit; // in the place of envoyproxy/ratelimit
mod output; // tables for people, JSON for machines
mod refusals; // what was a caller refused?
mod run; // a node
mod settings; // every setting as a flag
mod test; // rules, tested
#[cfg(test)]
mod examples; // what help and documents show

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use exit::Exit;

/// The release, and what it was built from.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("TIDEGATE_COMMIT"), ")");

/// Tidegate: a rate limiter that states its error bound.
#[derive(Parser, Debug)]
#[command(name = "tidegate", version = VERSION, about, after_help = exit::HELP, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Run a node
    Run(run::Run),
    /// Run a node in the place of envoyproxy/ratelimit: by its environment variables, ports and files
    Ratelimit(ratelimit::Ratelimit),
    /// Ask a running node whether a request may go on
    Check(check::Check),
    /// Ask a running node what would become of a request, and why; nothing is charged
    Explain(explain::Explain),
    /// Ask a running node what the counters of a request hold, or to reset them
    Inspect(inspect::Inspect),
    /// Show what one caller was refused, by the file that a node wrote
    Refusals(refusals::Refusals),
    /// Check, show and compare rule files
    #[command(subcommand)]
    Config(config::Config),
    /// Convert the rules of another limiter, and explain what will be different
    #[command(subcommand)]
    Import(import::Import),
    /// Test rules: requests in, verdicts out, at a time that only the test moves
    Test(test::Test),
    /// What is agreed with single callers: tiers, limits of their own
    #[command(subcommand)]
    Quota(control::Quota),
    /// Sets of limits with a name
    #[command(subcommand)]
    Tier(control::Tier),
    /// Rules in force, rules by API, and the kill switch
    #[command(subcommand)]
    Rule(control::Rule),
    /// What a caller has used
    #[command(subcommand)]
    Usage(control::Usage),
    /// Who may use the admin API
    #[command(subcommand)]
    Token(control::Token),
    /// What was changed by the admin API, by whom
    #[command(subcommand)]
    Audit(control::Audit),
    /// Write all that the control plane keeps to a file
    Backup(backup::Backup),
    /// Fill the control plane's database from a backup
    Restore(backup::Restore),
    /// Print what a shell needs to complete commands
    Completions(completions::Completions),
}

/// Reads the command line, does what it says, and says how it went.
pub(crate) fn run() -> ExitCode {
    let verb = match ratelimit::is_its_name() {
        true => Verb::Ratelimit(ratelimit::Ratelimit::parse()),
        false => Arguments::parse().verb,
    };
    let ended = match verb {
        Verb::Run(run) => run.run(),
        Verb::Ratelimit(ratelimit) => ratelimit.run(),
        Verb::Check(check) => check.run().map(ExitCode::from),
        Verb::Explain(explain) => explain.run().map(ExitCode::from),
        Verb::Inspect(inspect) => inspect.run().map(ExitCode::from),
        Verb::Refusals(refusals) => refusals.run().map(ExitCode::from),
        Verb::Config(config) => config.run().map(ExitCode::from),
        Verb::Import(import) => import.run().map(ExitCode::from),
        Verb::Test(test) => test.run().map(ExitCode::from),
        Verb::Quota(quota) => quota.run().map(ExitCode::from),
        Verb::Tier(tier) => tier.run().map(ExitCode::from),
        Verb::Rule(rule) => rule.run().map(ExitCode::from),
        Verb::Usage(usage) => usage.run().map(ExitCode::from),
        Verb::Token(token) => token.run().map(ExitCode::from),
        Verb::Audit(audit) => audit.run().map(ExitCode::from),
        Verb::Backup(backup) => backup.run().map(ExitCode::from),
        Verb::Restore(restore) => restore.run().map(ExitCode::from),
        Verb::Completions(completions) => completions.run().map(ExitCode::from),
    };
    ended.unwrap_or_else(|trouble| {
        anstream::eprintln!("tidegate: {trouble}");
        Exit::Failed.into()
    })
}
