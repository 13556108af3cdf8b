//! The audit trail: how a row is hashed, and how a chain of them is verified.
//!
//! Each row holds the hash of the one before it, so nobody can change, insert or take out a row without changing all that follow and the
//! head. Whoever can rewrite the whole database can still do that; a copy of any later hash, kept elsewhere, shows it.

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use serde::{Deserialize, Serialize};

use crate::model::{Head, Revision};

/// Bytes of a hash.
pub const HASH_BYTES: usize = SHA256_OUTPUT_LEN;

/// What stands before the first row.
pub const GENESIS: Head = Head { seq: 0, hash: [0; HASH_BYTES] };

/// The first bytes of what is hashed. A later way of writing rows down has another.
const ENCODING: &[u8] = b"tidegate audit 1\n";

/// One row.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditEntry {
    /// 1, 2, …: the revision that it made.
    pub seq: Revision,
    /// When, in microseconds since 1970, by the clock of the node that wrote it.
    pub at: i64,
    /// Who.
    pub actor: String,
    /// From where.
    pub origin: String,
    /// What was done. ([`crate::Action`], or what a newer Tidegate does.)
    pub action: String,
    /// To what. ([`crate::Kind`], likewise.)
    pub kind: String,
    /// To which one.
    pub subject: String,
    /// JSON of what was there.
    pub before: Option<String>,
    /// JSON of what is there now.
    pub after: Option<String>,
    /// The hash of the row before.
    pub prev_hash: [u8; HASH_BYTES],
    /// The hash of all of this.
    pub hash: [u8; HASH_BYTES],
}

impl AuditEntry {
    /// The hash that it has if nobody changed it: SHA-256 of all other columns, each with its length before it.
    pub fn computed_hash(&self) -> [u8; HASH_BYTES] {
        let mut to = Context::new(&SHA256);
        let mut part = |bytes: &[u8]| {
            to.update(&(bytes.len() as u64).to_be_bytes());
            to.update(bytes);
        };
        part(ENCODING);
        part(&self.seq.to_be_bytes());
        part(&self.at.to_be_bytes());
        for text in [&self.actor, &self.origin, &self.action, &self.kind, &self.subject] {
            part(text.as_bytes());
        }
        for text in [&self.before, &self.after] {
            // Nothing and an empty text are two things.
            part(&[u8::from(text.is_some())]);
            part(text.as_deref().unwrap_or_default().as_bytes());
        }
        part(&self.prev_hash);
        let mut hash = [0; HASH_BYTES];
        hash.copy_from_slice(to.finish().as_ref());
        hash
    }

    /// Where the trail ends after it.
    pub fn head(&self) -> Head {
        Head { seq: self.seq, hash: self.hash }
    }
}

/// Where a chain is broken, and how.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("row {seq} of the audit trail {why}")]
pub struct Broken {
    /// The first row that does not fit.
    pub seq: Revision,
    /// What is wrong with it.
    pub why: String,
}

/// Verifies rows one after the other.
#[derive(Clone, Debug)]
pub struct Chain {
    last: Head,
}

impl Chain {
    /// Of the rows that follow this one, of which nothing is verified.
    pub fn after(last: Head) -> Self {
        Self { last }
    }

    /// The last row that was verified.
    pub fn last(&self) -> Head {
        self.last
    }

    /// Is this the next row, and is it as it was written?
    pub fn verify(&mut self, entry: &AuditEntry) -> Result<(), Broken> {
        let expected = self.last.seq + 1;
        let broken = |seq, why: String| Err(Broken { seq, why });
        if entry.seq != expected {
            return broken(expected, format!("is missing: the next one is {}", entry.seq));
        }
        if entry.prev_hash != self.last.hash {
            return broken(entry.seq, "does not follow the one before it, or that one was changed".into());
        }
        if entry.hash != entry.computed_hash() {
            return broken(entry.seq, "was changed".into());
        }
        self.last = entry.head();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> AuditEntry {
        let mut entry = AuditEntry {
            seq: 1,
            at: 1_700_000_000_000_000,
            actor: "alice".into(),
            origin: "127.0.0.1".into(),
            action: "create".into(),
            kind: "quota".into(),
            subject: "key-1".into(),
            before: None,
            after: Some("{}".into()),
            prev_hash: GENESIS.hash,
            hash: [0; HASH_BYTES],
        };
        entry.hash = entry.computed_hash();
        entry
    }

    /// By another program, from the description above.
    const EXPECTED: &str = "ca5cb17fb5d091bb85b44f229249afe9aede0f6c2f4197f1f2dcc975201debc8";

    #[test]
    fn the_encoding_never_changes() {
        let hex: String = entry().hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, EXPECTED, "a database that was written before can no longer be verified");
    }

    #[test]
    fn every_column_is_in_the_hash_and_none_runs_into_the_next() {
        let changes: [fn(&mut AuditEntry); 12] = [
            |entry| entry.seq = 2,
            |entry| entry.at += 1,
            |entry| entry.actor.push('x'),
            |entry| entry.origin.push('x'),
            |entry| entry.action.push('x'),
            |entry| entry.kind.push('x'),
            |entry| entry.subject.push('x'),
            |entry| entry.before = Some(String::new()),
            |entry| entry.after = None,
            |entry| entry.after = Some(String::new()),
            |entry| entry.prev_hash[31] = 1,
            |entry| (entry.actor, entry.origin) = ("alice1".into(), "27.0.0.1".into()),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut changed = entry();
            change(&mut changed);
            assert_ne!(changed.computed_hash(), entry().hash, "change {number}");
        }
    }
}
