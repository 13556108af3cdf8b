//! `tidegate audit`: what was done, by whom.

use std::io;

use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::Value;

use super::client::{Admin, Call, Ended};
use super::verify::Verify;
use super::{show, times};
use crate::cli::exit::Exit;

#[derive(Subcommand, Debug)]
pub(crate) enum Audit {
    /// Show what was changed: by whom, when, from where; the newest first
    List(List),
    /// Look over the audit trail: is every row as it was written, and none missing?
    Verify(Verify),
}

impl Audit {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        match self {
            Self::List(list) => list.admin.end(list.run()),
            Self::Verify(verify) => verify.run(),
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = format!("\
{}
What was before and after each change is in --output json.

Examples:
  tidegate audit list --since 2h                        what was changed in the last two hours
  tidegate audit list --kind quota --subject abc123     what became of one key
  tidegate audit list --actor billing --until 2026-12-01 --limit 1000 --output json", times::TIMES_AGO))]
pub(crate) struct List {
    /// Not before this
    #[arg(long, value_name = "TIME", value_parser = times::ago)]
    since: Option<String>,
    /// Before this
    #[arg(long, value_name = "TIME", value_parser = times::ago)]
    until: Option<String>,
    /// By the token of this name
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Of this kind of thing
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Of this key, tier, rule or token
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// The oldest first
    #[arg(long)]
    oldest: bool,
    /// So many at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = super::client::limit)]
    limit: usize,
    #[command(flatten)]
    admin: Admin,
}

/// What can be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Kind {
    Quota,
    Tier,
    Rule,
    RuleState,
    Token,
    Usage,
    Database,
}

impl List {
    fn run(&self) -> Ended {
        let kind = self.kind.and_then(|kind| kind.to_possible_value());
        let page = || {
            Call::new(Method::GET, &["audit"], "tidegate audit list")
                .query("since", self.since.as_deref())
                .query("until", self.until.as_deref())
                .query("actor", self.actor.as_deref())
                .query("kind", kind.as_ref().map(|kind| kind.get_name()))
                .query("subject", self.subject.as_deref())
                .query("order", self.oldest.then_some("oldest"))
        };
        self.admin.list(self.limit, page, |rows| {
            let head = ["row", "time", "who", "did", "what", "which", "from"];
            show::table(head, rows, "nothing was changed", row)
        })
    }
}

fn row(entry: &Value) -> [String; 7] {
    let text = |name: &str| show::text(&entry[name]);
    [
        text("seq"),
        show::time(&entry["at"]),
        text("actor"),
        text("action"),
        text("kind"),
        text("subject"),
        text("origin"),
    ]
}
