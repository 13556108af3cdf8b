//! `tidegate tier`: sets of limits with a name.

use std::io;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};

use super::client::{Admin, Answer, Call, Ended, Trouble};
use super::documents::document;
use super::overrides::{self, Overrides};
use super::show;
use crate::cli::exit::Exit;

#[derive(Subcommand, Debug)]
pub(crate) enum Tier {
    /// Show all tiers, those that only rules name too
    List(List),
    /// Show the limits of a tier
    Get(Get),
    /// Give a tier limits, which every key of it has
    Set(Set),
    /// Take a tier away; its keys keep its name
    Delete(Delete),
}

impl Tier {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        match self {
            Self::List(list) => list.admin.end(list.run()),
            Self::Get(get) => get.admin.end(get.admin.show(call(Method::GET, &get.name), told)),
            Self::Set(set) => set.admin.end(set.run()),
            Self::Delete(delete) => delete.admin.end(delete.run()),
        }
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
        let page = || Call::new(Method::GET, &["tiers"], "tidegate tier list");
        self.admin.list(self.limit, page, |all| {
            show::table(
                ["tier", "named by", "limits by api", "rules for it"],
                all,
                "there are no tiers",
                |tier| {
                    let own = show::items(&tier["overrides"]).len();
                    [
                        show::text(&tier["name"]),
                        show::text(&tier["sources"]),
                        if own == 0 { "none".into() } else { own.to_string() },
                        show::said(&tier["written_in"]).unwrap_or_else(|| show::NOTHING.into()),
                    ]
                },
            )
        })
    }
}

#[derive(Args, Debug)]
#[command(after_help = "Ends with 3 if there is none.")]
pub(crate) struct Get {
    /// Its name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    #[command(flatten)]
    admin: Admin,
}

#[derive(Args, Debug)]
#[command(after_help = format!("\
What is not named stays as it is. It holds for all keys of the tier, on every node within a
second; a key's own overrides go first.

{}
Limits of a tier have no times.

Examples:
  tidegate tier set gold --override 2000/minute
  tidegate tier set gold --override \"endpoint:POST /api/v1/orders=100/minute\" \\
      --remove-override endpoint:/search", overrides::SYNTAX))]
pub(crate) struct Set {
    /// Its name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    #[command(flatten)]
    overrides: Overrides,
    /// Forget all that is not named here
    #[arg(long)]
    replace: bool,
    /// Write what this file says, and nothing else: JSON or YAML in the API's form; `-` is stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["set", "remove", "replace"])]
    file: Option<PathBuf>,
    /// Only if this is the version that is there; 0: only if there is none
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
    #[command(flatten)]
    admin: Admin,
}

impl Set {
    fn run(&self) -> Ended {
        if let Some(file) = &self.file {
            return self.tell(&self.put(&document(file)?, self.if_version)?);
        }
        if self.replace {
            return self.tell(&self.put(&self.body(&Value::Null)?, self.if_version)?);
        }
        if self.overrides.is_empty() {
            return Err(io::Error::other("nothing is said: name an --override (see --help)").into());
        }
        // What only rules say of the tier is no part of it.
        let call = |method| call(method, &self.name);
        self.tell(&self.admin.change(call, self.if_version, |there| self.body(there))?)
    }

    fn body(&self, there: &Value) -> io::Result<Value> {
        let all = show::items(&there["overrides"]).to_vec();
        Ok(overrides::body(self.overrides.applied(all).map_err(io::Error::other)?))
    }

    fn put(&self, body: &Value, if_version: Option<u64>) -> Result<Answer, Trouble> {
        self.admin.ask(call(Method::PUT, &self.name).json(body).if_version(if_version))
    }

    fn tell(&self, answer: &Answer) -> Ended {
        self.admin.tell(answer, told)?;
        Ok(Exit::Yes)
    }
}

#[derive(Args, Debug)]
#[command(after_help = "Ends with 3 if there is none.")]
pub(crate) struct Delete {
    /// Its name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// Only if this is the version that is there
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
    #[command(flatten)]
    admin: Admin,
}

impl Delete {
    fn run(&self) -> Ended {
        let name = show::text(&json!(self.name));
        let call = call(Method::DELETE, &self.name).if_version(self.if_version);
        self.admin.show(call, |_| format!("the API says nothing of the tier {name} any more\n"))
    }
}

fn call(method: Method, name: &str) -> Call {
    Call::new(method, &["tiers", name], "tidegate tier list").look("tier get", name)
}

fn told(tier: &Value) -> String {
    let version = show::said(&tier["version"])
        .map(|said| format!("{said}, written {}", show::time(&tier["updated_at"])));
    let record = show::record(&[
        ("tier", Some(show::text(&tier["name"]))),
        ("named by", Some(show::text(&tier["sources"]))),
        ("rules for it", show::said(&tier["written_in"])),
        ("version", version),
    ]);
    format!("{record}\n{}", overrides::table(show::items(&tier["overrides"])))
}
