//! Why the API says no, as a sentence: what is wrong, with which field, and what to do about it.

use hyper::body::Bytes;
use serde_json::Value;
use tidegate_config::escaped;

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
}

/// What an answer that is not good means. `look` is the command that shows what there is.
pub(super) fn refused(admin: &str, given: &Given, json: &Value, look: &str) -> Refused {
    let body = given.body.clone();
    let Some(kind) = json["type"].as_str().and_then(|said| said.strip_prefix("urn:tidegate:problem:")) else {
        let status = given.status;
        let told = format!(
            "what answers at {admin} is not the admin API of a node ({status}); `tidegate run` says where that is, and --admin names it"
        );
        return Refused { exit: Exit::Failed, told, body };
    };
    let text = |name: &str| json[name].as_str().map(escaped).unwrap_or_default();
    let mut told = text("title");
    if let Some(field) = json["field"].as_str().filter(|field| !["body", "document"].contains(field)) {
        told += &format!(": {}", named(field));
    }
    if !json["detail"].is_null() {
        told += &format!(": {}", text("detail"));
    }
    let errors = json["errors"].as_array().map_or(&[][..], Vec::as_slice);
    for error in errors.iter().take(ERRORS_MAX) {
        told += &format!("\n  {}", one_error(error));
    }
    if errors.len() > ERRORS_MAX {
        told += &format!("\n  and {} more", errors.len() - ERRORS_MAX);
    }
    if let Some(advice) = advice(kind, json, given, look) {
        told += &format!("\n{advice}");
    }
    Refused { exit: exit(kind, errors), told, body }
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
    let help = text("help").map(|help| format!(" ({help})")).unwrap_or_default();
    format!("{place}{field}{message}{help}")
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
fn advice(kind: &str, json: &Value, given: &Given, look: &str) -> Option<String> {
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
        "not-found" => format!("see which there are: {look}"),
        "version-conflict" => match json["current_version"].as_u64() {
            Some(0) => "leave out --if-version to write it anew, or say --if-version 0".into(),
            Some(version) => {
                format!(
                    "look at it ({look}), and if it is still to be so, repeat this with --if-version {version}"
                )
            }
            None => format!("look at it: {look}"),
        },
        "written-elsewhere" => {
            "change it where it is written; `tidegate rule state` works for every rule".into()
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
