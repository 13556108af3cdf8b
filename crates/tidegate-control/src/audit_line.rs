//! One row of the audit trail as one line of JSON, and back: what the API tells, what the sink writes, what a backup holds.
//!
//! What stands in `before` and `after` is the very text that was hashed, so that whoever has only the lines can verify the chain.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::api::when::When;
use crate::audit::{AuditEntry, HASH_BYTES};
use crate::model::Head;
use crate::store::hex;

/// One row of the audit trail.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = AuditEntry)]
pub struct AuditLine {
    /// 1, 2, …: the revision that it made.
    seq: u64,
    at: When,
    /// The name of the token, or of whoever else did it.
    actor: String,
    /// The address, and the id of the token.
    origin: String,
    action: String,
    kind: String,
    subject: String,
    /// What was there.
    #[schema(value_type = Option<Object>)]
    before: Option<Box<RawValue>>,
    /// What is there now.
    #[schema(value_type = Option<Object>)]
    after: Option<Box<RawValue>>,
    /// The hash of the row before, in hexadecimal digits.
    prev_hash: String,
    /// The hash of all of this.
    hash: String,
}

impl AuditLine {
    /// Of this row.
    pub fn of(entry: AuditEntry) -> Self {
        Self {
            seq: entry.seq,
            at: When(entry.at),
            actor: entry.actor,
            origin: entry.origin,
            action: entry.action,
            kind: entry.kind,
            subject: entry.subject,
            before: entry.before.and_then(raw),
            after: entry.after.and_then(raw),
            prev_hash: hex(&entry.prev_hash),
            hash: hex(&entry.hash),
        }
    }

    /// Reads one.
    pub fn read(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| format!("is no row of an audit trail: {error}"))
    }

    /// Reads a page of the API: its rows, and what to ask for the next with.
    pub fn read_page(body: &[u8]) -> Result<(Vec<Self>, Option<String>), String> {
        #[derive(Deserialize)]
        struct Page {
            items: Vec<AuditLine>,
            next: Option<String>,
        }
        let page: Page =
            serde_json::from_slice(body).map_err(|error| format!("is no page of an audit trail: {error}"))?;
        Ok((page.items, page.next))
    }

    /// As a line, with its end.
    pub fn text(&self) -> Result<String, String> {
        let mut line = serde_json::to_string(self).map_err(|error| error.to_string())?;
        line.push('\n');
        Ok(line)
    }

    /// The row that it is about. Whether that is as it was written, its hash says.
    pub fn entry(self) -> Result<AuditEntry, String> {
        let text = |raw: &Option<Box<RawValue>>| raw.as_ref().map(|raw| raw.get().to_owned());
        let mut entry = AuditEntry {
            seq: self.seq,
            at: self.at.0,
            before: text(&self.before),
            after: text(&self.after),
            actor: self.actor,
            origin: self.origin,
            action: self.action,
            kind: self.kind,
            subject: self.subject,
            prev_hash: unhex(&self.prev_hash).ok_or("its prev_hash is no hash")?,
            hash: unhex(&self.hash).ok_or("its hash is no hash")?,
        };
        // What was no JSON is told as a text, and so is what was one: the hash knows which.
        let unquoted = |raw: &Option<Box<RawValue>>| {
            raw.as_ref().and_then(|raw| serde_json::from_str::<String>(raw.get()).ok())
        };
        let (before, after) = (unquoted(&self.before), unquoted(&self.after));
        if entry.hash == entry.computed_hash() || (before.is_none() && after.is_none()) {
            return Ok(entry);
        }
        let befores = [entry.before.clone(), before.or_else(|| entry.before.clone())];
        let afters = [entry.after.clone(), after.or_else(|| entry.after.clone())];
        for (before, after) in
            befores.iter().flat_map(|before| afters.iter().map(move |after| (before, after)))
        {
            let other = AuditEntry { before: before.clone(), after: after.clone(), ..entry.clone() };
            if other.hash == other.computed_hash() {
                entry = other;
                break;
            }
        }
        Ok(entry)
    }

    /// Where the trail ends after it.
    pub fn head(&self) -> Option<Head> {
        Some(Head { seq: self.seq, hash: unhex(&self.hash)? })
    }
}

/// The very text, if it is JSON on one line; else as a text in JSON. `null` would be read as nothing.
fn raw(text: String) -> Option<Box<RawValue>> {
    let is_plain = text != "null" && text.trim() == text && !text.contains(['\n', '\r']);
    let plain = if is_plain { RawValue::from_string(text.clone()).ok() } else { None };
    plain.or_else(|| serde_json::value::to_raw_value(&text).ok())
}

pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

const _: () = assert!(HASH_BYTES == 32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::GENESIS;

    fn row(before: Option<&str>, after: Option<&str>) -> AuditEntry {
        let mut entry = AuditEntry {
            seq: 7,
            at: 1_700_000_000_123_456,
            actor: "alice \u{2028} \"\n".into(),
            origin: "127.0.0.1".into(),
            action: "create".into(),
            kind: "quota".into(),
            subject: "key-1".into(),
            before: before.map(String::from),
            after: after.map(String::from),
            prev_hash: GENESIS.hash,
            hash: [0; HASH_BYTES],
        };
        entry.hash = entry.computed_hash();
        entry
    }

    #[test]
    fn a_row_comes_back_from_its_line_to_the_letter() {
        let texts = [
            None,
            Some(r#"{"z":1,"a":{"y":[],"b":1.50}}"#), // In an order, and with numbers, that no tree of values keeps.
            Some("{\"a\":\n 1}"),
            Some(" {}"),
            Some("no JSON"),
            Some("\"a text\""),
            Some("null"),
            Some(""),
        ];
        for (before, after) in
            texts.iter().flat_map(|before| texts.iter().map(move |after| (*before, *after)))
        {
            let entry = row(before, after);
            let text = AuditLine::of(entry.clone()).text().unwrap();
            assert_eq!(text.matches('\n').count(), 1, "{text}");
            let read = AuditLine::read(text.trim_end().as_bytes()).unwrap();
            assert_eq!(read.head(), Some(entry.head()));
            assert_eq!(read.entry().unwrap(), entry, "{text}");
        }
    }
}
