//! Why the API says no, as a sentence: what is wrong, with which field, and what to do about it.

use hyper::body::Bytes;
use serde_json::Value;
use tidegate_config::escaped;

use super::client::Looks;
use crate::cli::exit::Exit;
use crate::cli::http::Given;

/// So many of the things that are wrong are told.
const ERRORS_MAX: usize = 20;

/// The API says no.
pub(super) struct Refused {
    pub(super) exit: Exit,
    pub(super) told: String,
    /// As it came.
    pub(super) body: Bytes,
    /// Is there no such thing?
    pub(super) is_not_found: bool,
    /// Was it changed meanwhile?
    pub(super) is_conflict: bool,
}

/// What an answer that is not good means.
pub(super) fn refused(admin: &str, given: &Given, json: &Value, looks: &Looks) -> Refused {
    let body = given.body.clone();
    let Some(kind) = json["type"].as_str().and_then(|said| said.strip_prefix("urn:tidegate:problem:")) else {
        let status = given.status;
        let told = format!(
            "what answers at {admin} is not the admin API of a node ({status}); `tidegate run` says where that is, and --admin names it"
        );
        return Refused { exit: Exit::Failed, told, body, is_not_found: false, is_conflict: false };
    };
    let text = |name: &str| json[name].as_str().map(escaped).unwrap_or_default();
    let field = json["field"].as_str().filter(|field| !["body", "document"].contains(field)).map(named);
    // Some problems say it all by themselves.
    let title = Some(text("title")).filter(|_| !["not-found", "version-conflict"].contains(&kind));
    let detail = match (kind, json["current_version"].as_u64()) {
        ("version-conflict", Some(0)) => "it is not as expected: there is none".into(),
        ("version-conflict", Some(version)) => {
            format!("somebody changed it, or it is not as expected: it has version {version} now")
        }
        _ => text("detail"),
    };
    let errors = json["errors"].as_array().map_or(&[][..], Vec::as_slice);
    // What is told below with its place need not be told before.
    let is_told = errors.iter().any(|error| error["message"] == json["detail"]);
    let mut told = [title, field, Some(detail).filter(|_| !is_told)]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(": ");
    for error in errors.iter().take(ERRORS_MAX) {
        told += &format!("\n  {}", one_error(error));
    }
    if errors.len() > ERRORS_MAX {
        told += &format!("\n  and {} more", errors.len() - ERRORS_MAX);
    }
    if let Some(advice) = advice(kind, json, given, looks) {
        told += &format!("\n{advice}");
    }
    let (is_not_found, is_conflict) = (kind == "not-found", kind == "version-conflict");
    Refused { exit: exit(kind, errors), told, body, is_not_found, is_conflict }
}

/// A field of the API, and the flag that says the same.
fn named(field: &str) -> String {
    let shown = format!("`{}`", escaped(field));
    let flag = match field.split(['[', '.']).next().unwrap_or_default() {
        "overrides" => {
            let number = field.split(['[', ']']).nth(1).and_then(|number| number.parse::<u32>().ok());
            return match number {
                Some(number) => format!("{shown} (override {})", number.saturating_add(1)),
                None => shown,
            };
        }
        "tier" => "--tier",
        "domain" => "--domain",
        "tenant" => "--tenant",
        "client_id" => "--client-id",
        "user_id" => "--user-id",
        "effective_at" => "--from",
        "expires_at" => "--until",
        "since" => "--since",
        "kind" => "--kind",
        "scope" => "--scope",
        _ => return shown,
    };
    format!("{shown} ({flag})")
}

/// One of several things that are wrong: with a line of an import, or with a place in a rule.
fn one_error(error: &Value) -> String {
    let text = |name: &str| error[name].as_str().map(escaped);
    let message = text("message").or_else(|| text("detail")).unwrap_or_default();
    let place = match (text("file"), &error["line"]) {
        (Some(file), Value::Number(line)) => format!("{file}:{line}:{}: ", error["column"]),
        (Some(file), _) => format!("{file}: "),
        (None, Value::Number(line)) => format!("line {line}: "),
        (None, _) => String::new(),
    };
    let field = text("field").map(|field| format!("`{field}`: ")).unwrap_or_default();
    // What is written at the place itself where a file is shown: where a key belongs, or what was meant.
    let label = text("label").filter(|label| !label.is_empty());
    let label = label.map(|label| format!(": {label}")).unwrap_or_default();
    let help = text("help").map(|help| format!(" ({help})")).unwrap_or_default();
    format!("{place}{field}{message}{label}{help}")
}

fn exit(kind: &str, errors: &[Value]) -> Exit {
    match kind {
        "not-found" | "version-conflict" => Exit::No,
        // Diagnostics of rules have codes.
        "invalid" if errors.iter().any(|error| error["code"].is_string()) => Exit::Config,
        _ => Exit::Failed,
    }
}

/// What to do about it.
fn advice(kind: &str, json: &Value, given: &Given, looks: &Looks) -> Option<String> {
    let look = looks.at_one.as_deref().unwrap_or(&looks.at_all);
    let wait = || {
        let header = given.headers.get("retry-after").and_then(|value| value.to_str().ok());
        header
            .filter(|said| !said.is_empty() && said.bytes().all(|byte| byte.is_ascii_digit()))
            .unwrap_or("1")
            .to_owned()
    };
    Some(match kind {
        "unauthorized" => {
            "the token is what the variable TIDEGATE_TOKEN has, or the file that --token-file names; \
             an admin makes another: tidegate token create NAME --scope write"
                .into()
        }
        "forbidden" => "an admin makes a token that may: tidegate token create NAME --scope write".into(),
        "not-found" => format!("see what there is: {}", looks.at_all),
        "version-conflict" => match json["current_version"].as_u64() {
            Some(0) => "to write it anew, leave out --if-version, or say --if-version 0".into(),
            Some(version) => {
                format!(
                    "look at it ({look}), and if it is still to be so, repeat this with --if-version {version}"
                )
            }
            None => format!("look at it: {look}"),
        },
        "written-elsewhere" if looks.at_all.starts_with("tidegate rule") => {
            "what it does can be set all the same: `tidegate rule state` works for every rule".into()
        }
        "too-many-tries" => format!("wait {} s, and see to the token first", wait()),
        "unavailable" => {
            format!(
                "try again in {} s; if this was a change, look first whether it was made ({look})",
                wait()
            )
        }
        _ => return None,
    })
}
