//! `tidegate rule`: rules by API, and the kill switch of every rule.

use std::io;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use http::Method;
use serde_json::{Value, json};
use tidegate_config::escaped;

use super::client::{Admin, Call, Ended};
use super::documents::document;
use super::{show, times};
use crate::cli::exit::Exit;
use crate::cli::output;

#[derive(Subcommand, Debug)]
pub(crate) enum Rule {
    /// Show the rules in force, what they do and where they are written
    List(List),
    /// Show a rule
    Get(Get),
    /// Write a rule by API, or say what would change
    Set(Set),
    /// Take a rule by API away, or say what would change
    Delete(Delete),
    /// Show what a rule by API ever was
    History(History),
    /// Make of what a rule by API was its newest version
    Rollback(Rollback),
    /// The kill switch: say what a rule does, wherever it is written, or show it
    State(State),
    /// Print the rules by API as rule files are written (YAML)
    Export(Export),
}

impl Rule {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        match self {
            Self::List(list) => list.admin.end(list.run()),
            Self::Get(get) => get.admin.end(get.admin.show(call(Method::GET, &[&get.id]), told)),
            Self::Set(set) => set.admin.end(set.run()),
            Self::Delete(delete) => delete.admin.end(delete.run()),
            Self::History(history) => history.admin.end(history.run()),
            Self::Rollback(rollback) => rollback.admin.end(rollback.run()),
            Self::State(state) => state.admin.end(state.run()),
            Self::Export(export) => export.admin.end(export.run()),
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tidegate rule list --domain shop
  tidegate rule list --by-api")]
pub(crate) struct List {
    /// Only those that were written by API, as they were sent
    #[arg(long)]
    by_api: bool,
    /// Of this domain
    #[arg(long)]
    domain: Option<String>,
    /// So many at most
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = super::client::limit)]
    limit: usize,
    #[command(flatten)]
    admin: Admin,
}

impl List {
    fn run(&self) -> Ended {
        let page = || {
            Call::new(Method::GET, &["rules"], "tidegate rule list")
                .query("source", self.by_api.then_some("api"))
                .query("domain", self.domain.as_deref())
        };
        self.admin.list(self.limit, page, |all| match self.by_api {
            true => {
                show::table(["rule", "version", "written", "becomes"], all, "there is no rule by API", by_api)
            }
            false => show::table(
                ["rule", "tier", "limit", "state", "written in"],
                all,
                "there is no rule",
                in_force,
            ),
        })
    }
}

fn in_force(rule: &Value) -> [String; 5] {
    let state = match &rule["written_state"] {
        written if *written == rule["state"] => show::text(written),
        written => format!("{} (written: {})", show::text(&rule["state"]), show::text(written)),
    };
    let limit = show::said(&rule["limit"]).unwrap_or_else(|| "unlimited".into());
    [show::text(&rule["id"]), show::text(&rule["tier"]), limit, state, show::text(&rule["origin"])]
}

fn by_api(rule: &Value) -> [String; 4] {
    [
        show::text(&rule["id"]),
        show::text(&rule["version"]),
        show::time(&rule["updated_at"]),
        show::text(&rule["compiled"]),
    ]
}

#[derive(Args, Debug)]
#[command(after_help = "\
Ends with 3 if there is none.

Examples:
  tidegate rule get search
  tidegate rule get 'api_platform|api_key#per-key'")]
pub(crate) struct Get {
    /// The id of a rule by API, or of any rule in force
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    id: String,
    #[command(flatten)]
    admin: Admin,
}

#[derive(Args, Debug)]
#[command(after_help = "\
FILE is a document like a rule file for one domain (YAML or JSON), or one of the short forms of
docs/admin-api.md. It is judged together with all other rules before it is written.
Ends with 78 if they would not be valid.

Examples:
  tidegate rule set search search.yaml --dry-run      what would change; nothing is written
  tidegate rule set search search.yaml
  tidegate rule set search - --if-version 3 < search.json")]
pub(crate) struct Set {
    /// Its id
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    id: String,
    /// The file; `-` is stdin
    file: PathBuf,
    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Only if this is the version that is there; 0: only if there is none
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
    #[command(flatten)]
    admin: Admin,
}

impl Set {
    fn run(&self) -> Ended {
        let call = call(Method::PUT, &[&self.id]).json(&document(&self.file)?);
        self.admin.show(call.flag("dry_run", self.dry_run).if_version(self.if_version), told)
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Its history stays, and so does the way back. Ends with 3 if there is none.

Examples:
  tidegate rule delete search --dry-run
  tidegate rule delete search")]
pub(crate) struct Delete {
    /// Its id
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    id: String,
    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Only if this is the version that is there
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
    #[command(flatten)]
    admin: Admin,
}

impl Delete {
    fn run(&self) -> Ended {
        let call =
            call(Method::DELETE, &[&self.id]).flag("dry_run", self.dry_run).if_version(self.if_version);
        let id = escaped(&self.id);
        self.admin.show(call, |answer| match answer["dry_run"] == true {
            true => told(answer),
            false => format!("the rule {id} is gone; `tidegate rule history {id}` shows what it was\n"),
        })
    }
}

#[derive(Args, Debug)]
pub(crate) struct History {
    /// Its id
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    id: String,
    /// So many at most, the newest first
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = super::client::limit)]
    limit: usize,
    #[command(flatten)]
    admin: Admin,
}

impl History {
    fn run(&self) -> Ended {
        let page = || call(Method::GET, &[&self.id, "history"]);
        self.admin.list(self.limit, page, |all| {
            show::table(["version", "time", "who", "what", "audit row"], all, "it never was", |one| {
                let what = match &one["rule"] {
                    _ if one["deleted"] == true => "taken away".to_owned(),
                    rule => escaped(&rule.to_string()),
                };
                [
                    show::text(&one["version"]),
                    show::time(&one["at"]),
                    show::text(&one["actor"]),
                    what,
                    show::text(&one["revision"]),
                ]
            })
        })
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tidegate rule history search
  tidegate rule rollback search 1 --dry-run
  tidegate rule rollback search 1")]
pub(crate) struct Rollback {
    /// Its id
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    id: String,
    /// The version to go back to
    version: u64,
    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Only if this is the version that is there
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
    #[command(flatten)]
    admin: Admin,
}

impl Rollback {
    fn run(&self) -> Ended {
        let call = call(Method::POST, &[&self.id, "rollback"]).json(&json!({ "version": self.version }));
        self.admin.show(call.flag("dry_run", self.dry_run).if_version(self.if_version), told)
    }
}

#[derive(Args, Debug)]
#[command(after_help = format!("\
STATE is
  enforce       it decides for everybody
  25%           it decides for a part of the callers, and only speaks for the others
  shadow        it only speaks: counted, logged, never decides
  disabled      as if it were not there
  as-written    what it says itself: the switch is taken away
It holds on every node within a second. Without STATE, what it does is shown.
{}

Examples:
  tidegate rule state 'api_platform|api_key#per-key' shadow --for 30m
  tidegate rule state search 25%
  tidegate rule state search as-written", times::TIMES))]
pub(crate) struct State {
    /// The id of any rule in force, or of a rule by API: all that came of it
    #[arg(value_name = "RULE", value_parser = NonEmptyStringValueParser::new())]
    id: String,
    /// What it is to do
    #[arg(value_parser = switch)]
    state: Option<Switch>,
    /// For so long: 90s, 30m, 12h, 7d; then it does again what it says itself
    #[arg(long = "for", value_name = "SPAN", value_parser = times::span_ahead, requires = "state", conflicts_with = "until")]
    span: Option<String>,
    /// Until then, likewise
    #[arg(long, value_name = "TIME", value_parser = times::ahead, requires = "state")]
    until: Option<String>,
    /// Only if this is the version of the switch that is there; 0: only if there is none
    #[arg(long, value_name = "N", requires = "state")]
    if_version: Option<u64>,
    #[command(flatten)]
    admin: Admin,
}

/// What the kill switch is put to.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Switch {
    To(String),
    AsWritten,
}

fn switch(said: &str) -> Result<Switch, String> {
    match said {
        "enforce" | "shadow" | "disabled" => Ok(Switch::To(said.into())),
        "as-written" => Ok(Switch::AsWritten),
        said => {
            let share = said.strip_prefix("enforce").unwrap_or(said).trim();
            let number = share.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
            match number.filter(|number| (0.0..=100.0).contains(number)) {
                Some(_) => Ok(Switch::To(format!("enforce {share}"))),
                None => Err(format!("`{said}` is none of enforce, 25%, shadow, disabled, as-written")),
            }
        }
    }
}

impl State {
    fn run(&self) -> Ended {
        let path = [self.id.as_str(), "state"];
        let id = escaped(&self.id);
        match &self.state {
            None => self.admin.show(call(Method::GET, &path), state_told),
            Some(Switch::AsWritten) if self.span.is_some() || self.until.is_some() => {
                Err(io::Error::other("what it says itself holds for good: leave out --for and --until")
                    .into())
            }
            Some(Switch::AsWritten) => {
                let call = call(Method::DELETE, &path).if_version(self.if_version);
                self.admin.show(call, |_| format!("{id} does what it says itself\n"))
            }
            Some(Switch::To(state)) => {
                let until = self.span.as_ref().or(self.until.as_ref());
                let body = json!({ "state": state, "expires_at": until });
                let call = call(Method::PUT, &path).json(&body).if_version(self.if_version);
                self.admin.show(call, switched)
            }
        }
    }
}

/// What was set. What rules do now may be a moment behind.
fn switched(answer: &Value) -> String {
    let until = show::said(&answer["expires_at"])
        .map_or("until it is taken away".into(), |_| format!("until {}", show::time(&answer["expires_at"])));
    let (rule, state) = (show::text(&answer["rule"]), show::text(&answer["state"]));
    let rules = show::items(&answer["rules"]);
    let ids: Vec<String> = rules.iter().map(|one| show::text(&one["id"])).filter(|id| *id != rule).collect();
    let about = if ids.is_empty() { String::new() } else { format!(" ({})", ids.join(", ")) };
    format!("{rule}{about}: {state}, {until}\n")
}

fn state_told(answer: &Value) -> String {
    let set = match answer["is_set"] == true {
        false => "no; it does what it says itself".into(),
        true => {
            let until = show::said(&answer["expires_at"]).map_or("until it is taken away".into(), |_| {
                format!("until {}", show::time(&answer["expires_at"]))
            });
            format!("{}, {until} (version {})", show::text(&answer["state"]), answer["version"])
        }
    };
    let record = show::record(&[("rule", Some(show::text(&answer["rule"]))), ("switch", Some(set))]);
    let head = ["rule", "tier", "does", "says itself", "written in"];
    let rules = show::table(head, show::items(&answer["rules"]), "no rule in force has this id", |one| {
        [
            show::text(&one["id"]),
            show::text(&one["tier"]),
            show::text(&one["state"]),
            show::text(&one["written_state"]),
            show::text(&one["origin"]),
        ]
    });
    format!("{record}\n{rules}")
}

#[derive(Args, Debug)]
#[command(after_help = "\
Each rule is a document that could stand in a folder of rule files.

Examples:
  tidegate rule export > rules.yaml
  tidegate rule export --all > everything.yaml        with tiers and quotas")]
pub(crate) struct Export {
    /// Tiers and quotas too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    admin: Admin,
}

impl Export {
    fn run(&self) -> Ended {
        let call = Call::new(Method::GET, &["export"], "tidegate rule list");
        self.admin.stream(call.query("of", (!self.all).then_some("rules")))
    }
}

fn call(method: Method, parts: &[&str]) -> Call {
    let (at_all, verb) = match parts {
        [id, "rollback"] => (format!("tidegate rule history {}", output::word(id)), "rule get"),
        [_, "state"] => ("tidegate rule list".into(), "rule state"),
        _ => ("tidegate rule list".into(), "rule get"),
    };
    let id = parts.first().copied().unwrap_or_default();
    Call::new(method, &[&["rules"], parts].concat(), at_all).look(verb, id)
}

/// A rule, or what would change of all.
fn told(answer: &Value) -> String {
    if answer["dry_run"] == true {
        return would_change(answer);
    }
    if answer.get("origin").is_some() {
        let [id, tier, limit, state, origin] = in_force(answer);
        let fields =
            [("rule", id), ("tier", tier), ("limit", limit), ("state", state), ("written in", origin)];
        return show::record(
            &fields.map(|(name, value)| (name, Some(value).filter(|value| value != show::NOTHING))),
        );
    }
    let mut sent = answer.clone();
    let mut id = Value::Null;
    if let Value::Object(sent) = &mut sent {
        for name in ["compiled", "version", "created_at", "updated_at"] {
            sent.remove(name);
        }
        id = ["id", "ruleId", "policy_id"].iter().find_map(|name| sent.remove(*name)).unwrap_or_default();
    }
    let version =
        format!("{}, written {}", show::text(&answer["version"]), show::time(&answer["updated_at"]));
    let record = show::record(&[
        ("rule", Some(show::text(&id))),
        ("version", Some(version)),
        ("becomes", Some(show::text(&answer["compiled"]))),
    ]);
    format!("{record}\n{sent:#}\n")
}

fn would_change(answer: &Value) -> String {
    let head = ["rule", "tier", "before", "after", "counters"];
    let changes = show::table(head, show::items(&answer["changes"]), "no rule would change", |one| {
        let counters = if one["counters_start_afresh"] == true { "start afresh" } else { "go on" };
        let side = |name: &str| show::said(&one[name]).unwrap_or_else(|| "none".into());
        [show::text(&one["id"]), show::text(&one["tier"]), side("before"), side("after"), counters.into()]
    });
    let warning = |one: &Value| format!("warning: {}\n", show::text(&one["message"]));
    let warnings: String = show::items(&answer["warnings"]).iter().map(warning).collect();
    format!("{changes}{warnings}nothing was written\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_put_by_one_word() {
        for (said, expected) in [
            ("enforce", "enforce"),
            ("shadow", "shadow"),
            ("disabled", "disabled"),
            ("25%", "enforce 25%"),
            ("12.5%", "enforce 12.5%"),
            ("enforce 25%", "enforce 25%"),
        ] {
            assert_eq!(switch(said), Ok(Switch::To(expected.into())), "{said}");
        }
        assert_eq!(switch("as-written"), Ok(Switch::AsWritten));
        for odd in ["", "25", "off", "101%", "-1%", "NaN%", "%", "Shadow"] {
            assert!(switch(odd).is_err(), "{odd}");
        }
    }
}
