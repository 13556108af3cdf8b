//! `tidegate quota`: what is agreed with single callers.

use std::io;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use serde_json::{Value, json};

use super::client::{Admin, Answer, Call, Ended, Trouble};
use super::documents::{IMPORT_BYTES_MAX, bytes, document};
use super::overrides::{self, Overrides};
use super::{show, times};
use crate::cli::exit::Exit;

/// What a file says whole.
const INSTEAD_OF_FILE: [&str; 9] =
    ["tier", "no_tier", "set", "remove", "whitelisted", "client_id", "user_id", "domain", "replace"];

#[derive(Subcommand, Debug)]
pub(crate) enum Quota {
    /// Show what is agreed for a key
    Get(Get),
    /// Give a key a tier, limits of its own, or an exemption
    Set(Box<Set>),
    /// Forget what is agreed for a key: the rules hold for it again
    Delete(Delete),
    /// Show all keys of which something is agreed
    List(List),
    /// Write many, from CSV or JSON lines
    Import(Import),
    /// Print all, as CSV, JSON lines or YAML
    Export(Export),
}

impl Quota {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        match self {
            Self::Get(get) => get.admin.end(get.admin.show(call(Method::GET, &get.key), told)),
            Self::Set(set) => set.admin.end(set.run()),
            Self::Delete(delete) => delete.admin.end(delete.run()),
            Self::List(list) => list.admin.end(list.run()),
            Self::Import(import) => import.admin.end(import.run()),
            Self::Export(export) => export.admin.end(export.run()),
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Ends with 3 if nothing is agreed for it.

Examples:
  tidegate quota get abc123
  tidegate quota get abc123 --output json | jq .version")]
pub(crate) struct Get {
    /// The API key
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    key: String,
    #[command(flatten)]
    admin: Admin,
}

#[derive(Args, Debug)]
#[command(after_help = format!("\
What is not named stays as it is. It holds on every node within a second.

{}
{}

Examples:
  tidegate quota set abc123 --tier pro
  tidegate quota set abc123 --override 5000/minute
  tidegate quota set abc123 --tier pro \\
      --override \"endpoint:POST /api/v1/orders=500/minute,until=2026-12-01T00:00:00Z\"
  tidegate quota set abc123 --override \"endpoint:/search=50/second,until=2h\"
  tidegate quota set abc123 --remove-override endpoint:/search
  tidegate quota set abc123 --whitelisted true
  tidegate quota set abc123 --file quota.json --if-version 7", overrides::SYNTAX, times::TIMES))]
pub(crate) struct Set {
    /// The API key
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    key: String,
    /// The tier: free, pro, enterprise, custom, or one that the rules or `tidegate tier` name
    #[arg(long, value_name = "NAME", conflicts_with = "no_tier")]
    tier: Option<String>,
    /// No tier: the rules' own limits
    #[arg(long)]
    no_tier: bool,
    #[command(flatten)]
    overrides: Overrides,
    /// Is it never limited?
    #[arg(long, value_name = "true|false")]
    whitelisted: Option<bool>,
    /// The client behind the key, whose rules judge it too
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// The user behind the key, whose rules judge it too
    #[arg(long, value_name = "ID")]
    user_id: Option<String>,
    /// The domain that it is about [default: the node's default domain]
    #[arg(long)]
    domain: Option<String>,
    /// Forget all that is not named here
    #[arg(long)]
    replace: bool,
    /// Write what this file says, and nothing else: JSON or YAML in the API's form; `-` is stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = INSTEAD_OF_FILE)]
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
        if self.says_nothing() {
            return Err(
                io::Error::other("nothing is said: name a --tier, an --override, … (see --help)").into()
            );
        }
        if self.replace {
            return self.tell(&self.put(&self.body(&Value::Null)?, self.if_version)?);
        }
        let call = |method| call(method, &self.key);
        self.tell(&self.admin.change(call, self.if_version, |there| self.body(there))?)
    }

    fn put(&self, body: &Value, if_version: Option<u64>) -> Result<Answer, Trouble> {
        self.admin.ask(call(Method::PUT, &self.key).json(body).if_version(if_version))
    }

    fn tell(&self, answer: &Answer) -> Ended {
        self.admin.tell(answer, told)?;
        Ok(Exit::Yes)
    }

    fn says_nothing(&self) -> bool {
        let texts = [&self.tier, &self.client_id, &self.user_id, &self.domain];
        let is_said =
            self.no_tier || self.replace || self.whitelisted.is_some() || !self.overrides.is_empty();
        !is_said && texts.iter().all(|text| text.is_none())
    }

    fn body(&self, there: &Value) -> io::Result<Value> {
        let all = self.overrides.applied(overrides::of_quota(there)).map_err(io::Error::other)?;
        let mut body = overrides::body(all);
        let mut set = |name: &str, said: Option<Value>| {
            let value = said.unwrap_or_else(|| there[name].clone());
            if !value.is_null() {
                body[name] = value;
            }
        };
        let text = |said: &Option<String>| said.as_ref().map(|said| json!(said));
        set("tier", if self.no_tier { Some(Value::Null) } else { text(&self.tier) });
        set("whitelisted", self.whitelisted.map(Value::Bool));
        set("client_id", text(&self.client_id));
        set("user_id", text(&self.user_id));
        set("domain", text(&self.domain));
        Ok(body)
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Ends with 3 if nothing is agreed for it.

Examples:
  tidegate quota delete abc123
  tidegate quota delete abc123 --if-version 7")]
pub(crate) struct Delete {
    /// The API key
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    key: String,
    /// Only if this is the version that is there
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
    #[command(flatten)]
    admin: Admin,
}

impl Delete {
    fn run(&self) -> Ended {
        let call = call(Method::DELETE, &self.key).if_version(self.if_version);
        let key = show::text(&json!(self.key));
        self.admin.show(call, |_| format!("nothing is agreed for {key} any more: the rules hold\n"))
    }
}

#[derive(Args, Debug)]
#[command(after_help = format!("\
{}

Examples:
  tidegate quota list --tier enterprise
  tidegate quota list --user-id ursula                    all keys of a user
  tidegate quota list --expires-before 7d                 which exceptions end this week?
  tidegate quota list --expires-after 2000-01-01 --expires-before 1s     which have ended?
  tidegate quota list --prefix abc --limit 1000 --output json", times::TIMES))]
pub(crate) struct List {
    /// Keys of this tier
    #[arg(long, value_name = "NAME")]
    tier: Option<String>,
    /// Keys that begin so
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Keys of this user
    #[arg(long, value_name = "ID")]
    user_id: Option<String>,
    /// Keys of this client
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// Keys with an override that ends before this
    #[arg(long, value_name = "TIME", value_parser = times::ahead)]
    expires_before: Option<String>,
    /// Keys with an override that ends then or later [default: now, if --expires-before is still ahead]
    #[arg(long, value_name = "TIME", value_parser = times::ahead)]
    expires_after: Option<String>,
    /// So many at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = super::client::limit)]
    limit: usize,
    #[command(flatten)]
    admin: Admin,
}

impl List {
    fn run(&self) -> Ended {
        // Who asks what ends soon does not mean what has ended long ago; who names a time that is over does.
        let expires_after = match (&self.expires_after, &self.expires_before) {
            (None, Some(before)) => times::now_text_if_ahead(before).map_err(io::Error::other)?,
            (said, _) => said.clone(),
        };
        let page = || {
            Call::new(Method::GET, &["quotas"], "tidegate quota list")
                .query("tier", self.tier.as_deref())
                .query("prefix", self.prefix.as_deref())
                .query("user_id", self.user_id.as_deref())
                .query("client_id", self.client_id.as_deref())
                .query("expires_before", self.expires_before.as_deref())
                .query("expires_after", expires_after.as_deref())
        };
        self.admin.list(self.limit, page, |all| {
            let head = ["key", "tier", "limit", "overrides", "besides"];
            show::table(head, all, "nothing is agreed for any such key: the rules hold", row)
        })
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
What is wrong is told by its line; all other records are written. The same import again does no
harm. The columns and the form of a line: docs/admin-api.md

Examples:
  tidegate quota import quotas.csv --dry-run
  tidegate quota export | ssh other tidegate quota import - --format jsonl")]
pub(crate) struct Import {
    /// The file; `-` is stdin
    file: PathBuf,
    /// Its form [default: by the ending of its name]
    #[arg(long, value_enum)]
    format: Option<Lines>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    admin: Admin,
}

/// Forms of many records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Lines {
    Csv,
    /// JSON lines
    Jsonl,
}

impl Import {
    fn run(&self) -> Ended {
        let ending = self.file.extension().and_then(|ending| ending.to_str());
        let form = match (self.format, ending) {
            (Some(Lines::Csv), _) | (None, Some("csv")) => "text/csv",
            (Some(Lines::Jsonl), _) | (None, Some("jsonl" | "ndjson")) => "application/x-ndjson",
            (None, _) => {
                return Err(io::Error::other(
                    "its name does not say what it is: add --format csv or --format jsonl",
                )
                .into());
            }
        };
        let call =
            Call::new(Method::POST, &["quotas:import"], "tidegate quota list").flag("dry_run", self.dry_run);
        let body = bytes(&self.file, IMPORT_BYTES_MAX)?;
        self.admin.show(call.body(form, body).long(), |done| {
            let is_dry = done["dry_run"] == true;
            let would = if is_dry { "nothing was written; there would be " } else { "" };
            let number = |name: &str| done[name].to_string();
            format!(
                "{} read: {would}{} created, {} updated, {} unchanged\n",
                number("read"),
                number("created"),
                number("updated"),
                number("unchanged")
            )
        })
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tidegate quota export --format csv > quotas.csv
  tidegate quota export --format yaml > quotas.yaml        with tiers")]
pub(crate) struct Export {
    /// In which form
    #[arg(long, value_enum, default_value_t = Form::Jsonl)]
    format: Form,
    /// Keys of this tier
    #[arg(long, value_name = "NAME")]
    tier: Option<String>,
    /// Keys that begin so
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    #[command(flatten)]
    admin: Admin,
}

/// Forms of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Form {
    Csv,
    /// JSON lines
    Jsonl,
    /// All of them, and tiers
    Yaml,
}

impl Export {
    fn run(&self) -> Ended {
        let look = "tidegate quota list";
        let format = match self.format {
            Form::Yaml if self.tier.is_some() || self.prefix.is_some() => {
                return Err(
                    io::Error::other("as YAML all are exported: leave out --tier and --prefix").into()
                );
            }
            Form::Yaml => {
                return self
                    .admin
                    .stream(Call::new(Method::GET, &["export"], look).query("of", Some("quotas")));
            }
            Form::Csv => "csv",
            Form::Jsonl => "jsonl",
        };
        let call = Call::new(Method::GET, &["quotas:export"], look).query("format", Some(format));
        let call = call.query("tier", self.tier.as_deref()).query("prefix", self.prefix.as_deref());
        self.admin.stream(call)
    }
}

fn call(method: Method, key: &str) -> Call {
    Call::new(method, &["quotas", key], "tidegate quota list").look("quota get", key)
}

/// What holds where nothing else is said.
fn limit(default: &Value) -> String {
    let amount = &default["requests_per_unit"];
    match (&default["unit"], &default["unit_multiplier"], &default["window_us"]) {
        _ if default.is_null() => "none of its own".into(),
        (Value::String(unit), Value::Number(many), _) => {
            format!("{amount}/{many} {}s", show::text(&json!(unit)))
        }
        (Value::String(unit), _, _) => format!("{amount}/{}", show::text(&json!(unit))),
        (_, _, Value::Number(us)) => format!("{amount}/{us} µs"),
        _ => format!("{amount} at a time"),
    }
}

fn row(quota: &Value) -> [String; 5] {
    let own = overrides::of_quota(quota);
    let mut besides = Vec::new();
    besides.extend((quota["whitelisted"] == true).then(|| "never limited".to_owned()));
    for (name, word) in [("domain", "domain"), ("client_id", "client"), ("user_id", "user")] {
        besides.extend(show::said(&quota[name]).map(|said| format!("{word} {said}")));
    }
    let count = if own.is_empty() { "none".into() } else { own.len().to_string() };
    [
        show::text(&quota["api_key"]),
        show::text(&quota["tier"]),
        limit(&quota["quotas"]["default"]),
        count,
        if besides.is_empty() { show::NOTHING.into() } else { besides.join(", ") },
    ]
}

fn told(quota: &Value) -> String {
    let version = format!("{}, written {}", show::text(&quota["version"]), show::time(&quota["updated_at"]));
    let record = show::record(&[
        ("key", Some(show::text(&quota["api_key"]))),
        ("tier", Some(show::said(&quota["tier"]).unwrap_or_else(|| "none".into()))),
        ("limit", Some(limit(&quota["quotas"]["default"]))),
        ("whitelisted", (quota["whitelisted"] == true).then(|| "yes: never limited".into())),
        ("domain", show::said(&quota["domain"])),
        ("client", show::said(&quota["client_id"])),
        ("user", show::said(&quota["user_id"])),
        ("version", Some(version)),
    ]);
    format!("{record}\n{}", overrides::table(&overrides::of_quota(quota)))
}
