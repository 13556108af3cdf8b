//! The result of one check, as JSON.

use super::text::{Put, put_or_null, put_quoted};
use super::told::Told;
use tidegate_counters::Mode;

/// Writes the result of a check: `allowed, remaining, limit, retryAfterMs, reset, rule, mode, bound`, where the store did not answer the
/// `policy` that did, and on a refusal its `code`. Where no limit speaks, there are no numbers: they are `null`.
pub fn write(told: &Told<'_>, out: &mut Vec<u8>) {
    out.put(if told.admitted() { r#"{"allowed":true,"# } else { r#"{"allowed":false,"# });
    out.put(r#""remaining":"#);
    put_or_null(out, told.speaks().map(|limit| limit.remaining.into()));
    out.put(r#","limit":"#);
    put_or_null(out, told.speaks().map(|limit| limit.amount.into()));
    out.put(r#","retryAfterMs":"#);
    // Up, as everything that says when to come back.
    let wait_ms = told.retry_after().map(|wait| wait.get().div_ceil(1_000).max(1));
    put_or_null(out, if told.admitted() { Some(0) } else { wait_ms });
    out.put(r#","reset":"#);
    put_or_null(out, told.speaks().map(|limit| limit.reset.secs_up()));
    out.put(r#","rule":"#);
    match told.rule() {
        Some(rule) => put_quoted(out, |quoted| quoted.text(&rule.id)),
        None => out.put("null"),
    }
    put_mode(told, out);
    if let Some(code) = told.code() {
        out.put(r#","code":""#);
        out.put(code.name());
        out.put("\"");
    }
    out.put("}");
}

/// How the answer was made, and how far it may be off. By policy alone it may be off by anything.
fn put_mode(told: &Told<'_>, out: &mut Vec<u8>) {
    let Some(mode) = told.mode() else { return out.put(r#","mode":null,"bound":null"#) };
    out.put(r#","mode":""#);
    out.put(mode.name());
    match told.bound() {
        Some(bound) => {
            out.put(r#"","bound":{"over":"#);
            out.put_number(bound.over.into());
            out.put(r#","under":"#);
            out.put_number(bound.under.into());
            out.put("}");
        }
        None => out.put(r#"","bound":"unbounded""#),
    }
    if let Mode::Degraded(policy) = mode {
        out.put(r#","policy":""#);
        out.put(policy.name());
        out.put("\"");
    }
}
