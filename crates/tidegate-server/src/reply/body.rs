//! Bodies of refusals, in the shapes that clients know.

use std::io::Write;

use super::text::{Put, Quoted, put_or_null, put_quoted};
use super::told::{Code, LISTED_MAX, Span, Told};

/// The most of a scope that is shown, in bytes: its values come from the request.
const SCOPE_MAX: usize = 256;
/// The most of an endpoint that is shown, in bytes.
const ENDPOINT_MAX: usize = 160;
/// The key of the entry that says what was called.
const ENDPOINT: &str = "endpoint";

/// The shape of a refusal's body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum BodyStyle {
    /// `{"error":{"code","message","retry_after","limit","window","scope"}}`
    #[default]
    Error,
    /// `{"error":"rate_limit_exceeded","message"}`
    Flat,
    /// `{"error":"RATE_LIMIT_EXCEEDED","message"}`
    FlatUpper,
    /// `{"error":"rate_limited","retry_after_seconds"}`
    Short,
    /// Problem details of RFC 9457, with the types of the draft on headers.
    Problem,
}

impl BodyStyle {
    /// All of them, in the order in which they are documented.
    pub const ALL: [Self; 5] = [Self::Error, Self::Flat, Self::FlatUpper, Self::Short, Self::Problem];

    /// The name used in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Flat => "flat",
            Self::FlatUpper => "flat-upper",
            Self::Short => "short",
            Self::Problem => "problem",
        }
    }

    /// The style of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|style| style.name() == name)
    }
}

/// Writes the body of a refusal, and says its content type. Of what is admitted there is nothing to write.
pub fn write(style: BodyStyle, told: &Told<'_>, out: &mut Vec<u8>) -> &'static str {
    const JSON: &str = "application/json";
    let Some(code) = told.code() else { return JSON };
    match style {
        BodyStyle::Error => error(told, code, out),
        BodyStyle::Flat => flat(told, code, out),
        BodyStyle::FlatUpper => flat_upper(told, code, out),
        BodyStyle::Short => short(told, code, out),
        BodyStyle::Problem => {
            problem(told, code, out);
            return "application/problem+json";
        }
    }
    JSON
}

fn error(told: &Told<'_>, code: Code, out: &mut Vec<u8>) {
    out.put(r#"{"error":{"code":""#);
    out.put(code.name());
    out.put(r#"","message":"#);
    put_message(told, code, out);
    out.put(r#","retry_after":"#);
    put_or_null(out, told.retry_after_s());
    out.put(r#","limit":"#);
    put_or_null(out, told.speaks().map(|limit| limit.amount.into()));
    out.put(r#","window":"#);
    match told.speaks().map(|limit| limit.span) {
        // A vector takes whatever is written.
        Some(Span::Window(window)) => _ = write!(out, "\"{window}\""),
        Some(Span::Calendar(unit)) => _ = write!(out, "\"{}\"", unit.name()),
        Some(Span::Places) | None => out.put("null"),
    }
    out.put(r#","scope":"#);
    put_scope(told, out);
    out.put("}}");
}

fn flat(told: &Told<'_>, code: Code, out: &mut Vec<u8>) {
    out.put(r#"{"error":""#);
    match code {
        Code::RateLimited => out.put("rate_limit_exceeded"),
        _ => out.extend(code.name().bytes().map(|byte| byte.to_ascii_lowercase())),
    }
    out.put(r#"","message":"#);
    match code {
        Code::RateLimited => put_quoted(out, |quoted| {
            quoted.text("Too many requests.");
            put_wait(quoted, " Retry after ", told);
        }),
        _ => put_message(told, code, out),
    }
    out.put("}");
}

fn flat_upper(told: &Told<'_>, code: Code, out: &mut Vec<u8>) {
    out.put(r#"{"error":""#);
    out.put(if code == Code::RateLimited { "RATE_LIMIT_EXCEEDED" } else { code.name() });
    out.put(r#"","message":"#);
    match code {
        Code::RateLimited => put_quoted(out, |quoted| {
            quoted.text("Rate limit exceeded.");
            put_wait(quoted, " Try again in ", told);
        }),
        _ => put_message(told, code, out),
    }
    out.put("}");
}

fn short(told: &Told<'_>, code: Code, out: &mut Vec<u8>) {
    out.put(r#"{"error":""#);
    out.extend(code.name().bytes().map(|byte| byte.to_ascii_lowercase()));
    out.put(r#"","retry_after_seconds":"#);
    put_or_null(out, told.retry_after_s());
    out.put("}");
}

fn problem(told: &Told<'_>, code: Code, out: &mut Vec<u8>) {
    let (kind, title) = match code {
        Code::RateLimited | Code::CostExceedsLimit => (
            "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "Request cannot be satisfied as assigned quota has been exceeded",
        ),
        Code::StoreUnavailable => (
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            "Request cannot be satisfied due to temporary server capacity constraints",
        ),
        // A title of the status is what a problem without a type has.
        Code::TooManyLimits | Code::ImpossibleLimit | Code::NotHeld => ("about:blank", "Too Many Requests"),
    };
    // A vector takes whatever is written.
    _ = write!(out, r#"{{"type":"{kind}","title":"{title}","status":{},"detail":"#, code.status());
    put_message(told, code, out);
    out.put(r#","code":""#);
    out.put(code.name());
    out.put(r#"","retry_after":"#);
    put_or_null(out, told.retry_after_s());
    out.put(r#","violated-policies":["#);
    let violated = told.limits().iter().enumerate().filter(|(_, limit)| limit.violated);
    for (nth, (at, _)) in violated.take(LISTED_MAX).enumerate() {
        out.put(if nth > 0 { ",\"" } else { "\"" });
        told.put_name(out, at); // Names need no escape.
        out.put("\"");
    }
    out.put("]}");
}

/// What a person reads.
fn put_message(told: &Told<'_>, code: Code, out: &mut Vec<u8>) {
    put_quoted(out, |quoted| {
        quoted.text(match code {
            Code::RateLimited => "Rate limit exceeded",
            Code::CostExceedsLimit => "The cost is more than the limit can ever hold",
            Code::TooManyLimits => "The request asks for more limits than one request may",
            Code::ImpossibleLimit => "The request brought a limit that cannot be counted",
            Code::NotHeld => "The place is not held any more: acquire it anew",
            Code::StoreUnavailable => "The rate limiter cannot answer now",
        });
        let scope = told.scope();
        if let Some((_, endpoint)) = scope.iter().find(|(key, _)| *key == ENDPOINT) {
            quoted.text(" for ");
            quoted.capped(endpoint, &mut Some(ENDPOINT_MAX));
        }
        quoted.text(".");
        put_wait(quoted, " Retry after ", told);
    });
}

/// How long to wait, if that helps.
fn put_wait(quoted: &mut Quoted<'_>, start: &str, told: &Told<'_>) {
    if let Some(wait_s) = told.retry_after_s() {
        quoted.text(start);
        quoted.number(wait_s);
        quoted.text(if wait_s == 1 { " second." } else { " seconds." });
    }
}

fn put_scope(told: &Told<'_>, out: &mut Vec<u8>) {
    if told.speaks().is_none() {
        return out.put("null");
    }
    put_quoted(out, |quoted| {
        let mut left = Some(SCOPE_MAX);
        for (nth, (key, value)) in told.scope().into_iter().enumerate() {
            for part in [if nth > 0 { ":" } else { "" }, key, ":", value] {
                quoted.capped(part, &mut left);
            }
        }
    });
}
