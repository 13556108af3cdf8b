//! `tidegate usage`: what a caller has used.

use std::io;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::client::{Admin, Call, Ended};
use super::show;
use crate::cli::exit::Exit;
use crate::cli::output;

#[derive(Subcommand, Debug)]
pub(crate) enum Usage {
    /// Show what a caller has used of every limit that applies, charging nothing
    Get(Get),
    /// Make the counters of a caller as if never touched
    Reset(Reset),
}

impl Usage {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        match self {
            Self::Get(get) => get.admin.end(get.run()),
            Self::Reset(reset) => reset.admin.end(reset.run()),
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Read from the live counters. A limit comes `from` the caller's own `override`, its `tier`, or
the `rule`; it counts `for` the caller alone, for all keys of its user or client (`user_id`,
`client_id`), or for `all`. Where a rule has a counter for each value of something, it is named
as not listed: `tidegate inspect` on a node looks at one.

Example:
  tidegate usage get abc123")]
pub(crate) struct Get {
    /// The API key
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    key: String,
    /// Only the counters at this descriptor; `default` is the caller's own rule
    #[arg(long)]
    descriptor: Option<String>,
    /// In this domain [default: that of its quota, or the node's default domain]
    #[arg(long)]
    domain: Option<String>,
    #[command(flatten)]
    admin: Admin,
}

impl Get {
    fn run(&self) -> Ended {
        let call = call(Method::GET, &self.key)
            .query("domain", self.domain.as_deref())
            .query("descriptor", self.descriptor.as_deref());
        self.admin.show(call, |answer| {
            let head = ["descriptor", "used", "limit", "left", "since", "until", "from", "for", "rule"];
            let listed =
                show::table(head, show::items(&answer["rules"]), "no rule counts this caller", |one| {
                    [
                        show::text(&one["descriptor"]),
                        show::text(&one["used"]),
                        show::text(&one["text"]),
                        show::text(&one["remaining"]),
                        show::time(&one["window"]["start"]),
                        show::time(&one["window"]["end"]),
                        show::text(&one["source"]),
                        show::text(&one["counts_for"]),
                        show::text(&one["rule"]),
                    ]
                });
            let not_listed = match show::items(&answer["not_listed"]) {
                [] => String::new(),
                rules => {
                    let row = |one: &Value| [show::text(&one["rule"]), show::text(&one["why"])];
                    format!("\n{}", show::table(["not listed", "why"], rules, "", row))
                }
            };
            format!("{listed}{not_listed}{}", left_out(answer, "are not shown: name them by --descriptor"))
        })
    }
}

/// Says that there is more than an answer has.
fn left_out(answer: &Value, what: &str) -> String {
    match answer["left_out"].as_u64() {
        Some(more @ 1..) => format!("\n{more} more {what}\n"),
        _ => String::new(),
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Asks first; the audit trail tells what the counters held. What counts for all stays as it is.
Ends with 3 if no rule counts this caller, or it was not meant.

Examples:
  tidegate usage reset abc123
  tidegate usage reset abc123 --descriptor \"endpoint:POST /api/v1/orders\" --yes")]
pub(crate) struct Reset {
    /// The API key
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    key: String,
    /// Only the counters at this descriptor; `default` is the caller's own rule
    #[arg(long)]
    descriptor: Option<String>,
    /// In this domain [default: that of its quota, or the node's default domain]
    #[arg(long)]
    domain: Option<String>,
    /// Do not ask before
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    admin: Admin,
}

impl Reset {
    fn run(&self) -> Ended {
        if !self.yes {
            let which = self
                .descriptor
                .as_deref()
                .map_or("all counters".into(), |at| format!("the counters at {at}"));
            let question = format!("make {which} of {} as if never touched?", self.key);
            if !output::is_meant(&show::text(&json!(question)))? {
                output::write("nothing was reset\n")?;
                return Ok(Exit::No);
            }
        }
        let call = call(Method::DELETE, &self.key)
            .query("domain", self.domain.as_deref())
            .query("descriptor", self.descriptor.as_deref());
        self.admin.show(call, |answer| {
            let done = show::table(
                ["descriptor", "held", "limit", "rule"],
                show::items(&answer["reset"]),
                "nothing was reset",
                |one: &Value| {
                    [
                        show::text(&one["descriptor"]),
                        show::text(&one["used"]),
                        show::text(&one["text"]),
                        show::text(&one["rule"]),
                    ]
                },
            );
            format!("{done}{}", left_out(answer, "were not reset: name them by --descriptor"))
        })
    }
}

fn call(method: Method, key: &str) -> Call {
    Call::new(method, &["usage", key], "tidegate rule list")
}
