//! `tidegate token`: who may do what.

use std::io;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Value, json};

use super::client::{Admin, Call, Ended};
use super::{show, times};
use crate::cli::exit::Exit;

#[derive(Subcommand, Debug)]
pub(crate) enum Token {
    /// Make a token, and print it: nobody can show it again
    Create(Create),
    /// Show all tokens, without their secrets
    List(List),
    /// Make a token worth nothing, for good
    Revoke(Revoke),
}

impl Token {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        match self {
            Self::Create(create) => create.admin.end(create.run()),
            Self::List(list) => list.admin.end(list.run()),
            Self::Revoke(revoke) => revoke.admin.end(revoke.run()),
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = format!("\
The token alone goes to stdout, so that it can be put where it belongs; the rest to stderr.
{}

Examples:
  tidegate token create dashboard --scope read > dashboard.token
  tidegate token create billing --scope write --tenant shop --until 90d", times::TIMES))]
pub(crate) struct Create {
    /// For people, and for the audit trail
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// What it may do: look; and change; and make tokens
    #[arg(long, value_enum)]
    scope: Scope,
    /// The only domain that it may do this to
    #[arg(long, value_name = "DOMAIN")]
    tenant: Option<String>,
    /// Until when [default: for good]
    #[arg(long, value_name = "TIME", value_parser = times::ahead)]
    until: Option<String>,
    #[command(flatten)]
    admin: Admin,
}

/// What a token may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Scope {
    Read,
    Write,
    Admin,
}

impl Create {
    fn run(&self) -> Ended {
        let scope = match self.scope {
            Scope::Read => "read",
            Scope::Write => "write",
            Scope::Admin => "admin",
        };
        let body =
            json!({ "name": self.name, "scope": scope, "tenant": self.tenant, "expires_at": self.until });
        let call = Call::new(Method::POST, &["tokens"], "tidegate token list").json(&body);
        self.admin.show(call, |made| {
            let until =
                show::said(&made["expires_at"]).map_or("for good".into(), |until| format!("until {until}"));
            anstream::eprintln!(
                "token {} ({}, {until}); this is the only time that it is shown",
                show::text(&made["id"]),
                show::text(&made["scope"])
            );
            format!("{}\n", show::text(&made["token"]))
        })
    }
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// So many at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = super::client::limit)]
    limit: usize,
    #[command(flatten)]
    admin: Admin,
}

impl List {
    fn run(&self) -> Ended {
        let page = || Call::new(Method::GET, &["tokens"], "tidegate token list");
        self.admin.list(self.limit, page, |all| {
            let head = ["id", "name", "scope", "domain", "begins", "made", "by", "until"];
            show::table(head, all, "there are no tokens", row)
        })
    }
}

fn row(token: &Value) -> [String; 8] {
    let text = |name: &str| show::text(&token[name]);
    let until = match (&token["revoked_at"], &token["expires_at"]) {
        (Value::Null, Value::Null) => "for good".into(),
        (Value::Null, until) => show::time(until),
        (revoked, _) => format!("revoked {}", show::time(revoked)),
    };
    let domain = show::said(&token["tenant"]).unwrap_or_else(|| "all".into());
    [
        text("id"),
        text("name"),
        text("scope"),
        domain,
        format!("tg_{}", text("prefix")),
        show::time(&token["created_at"]),
        text("created_by"),
        until,
    ]
}

#[derive(Args, Debug)]
#[command(after_help = "\
It is worth nothing within a second, on every node. Ends with 3 if there is none.

Example:
  tidegate token revoke 0123456789abcdef")]
pub(crate) struct Revoke {
    /// The id of the token, which `tidegate token list` shows; not the token itself
    #[arg(value_parser = revocable)]
    id: String,
    #[command(flatten)]
    admin: Admin,
}

/// An id. Who writes the token itself there would show it to everybody on the machine: that is said, without repeating it.
fn revocable(said: &str) -> Result<String, String> {
    match said {
        "" => Err("the id of a token is expected".into()),
        said if said.starts_with("tg_") => {
            Err("this is no id but a token, or its beginning; `tidegate token list` shows ids".into())
        }
        said => Ok(said.into()),
    }
}

impl Revoke {
    fn run(&self) -> Ended {
        let call = Call::new(Method::DELETE, &["tokens", &self.id], "tidegate token list");
        let id = show::text(&json!(self.id));
        self.admin.show(call, |_| format!("the token {id} is worth nothing any more\n"))
    }
}
