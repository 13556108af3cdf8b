//! One transaction, with its rows of the audit trail.

use sqlx::{QueryBuilder, Row as _};

use super::{BEGIN_WRITE, Connection, Db, LOCK_HEAD, NOTIFY, ROWS_MAX};
use crate::audit::{AuditEntry, HASH_BYTES};
use crate::error::{Error, Result};
use crate::model::{Action, Head, Kind, Revision, Who};
use crate::store::SCHEMA_VERSION;
use crate::store::values::{At, bytes, count, number};

/// A transaction that changes something. Nobody else changes anything until it ends, so that the audit trail has no gaps.
pub(crate) struct Transaction<'a> {
    pub(crate) connection: &'a mut Connection,
    who: &'a Who,
    /// When it is.
    pub(crate) at: i64,
    head: Head,
    entries: Vec<AuditEntry>,
}

impl<'a> Transaction<'a> {
    pub(crate) async fn begin(connection: &'a mut Connection, who: &'a Who, at: i64) -> Result<Self> {
        sqlx::raw_sql(BEGIN_WRITE).execute(&mut *connection).await?;
        let row = sqlx::query(LOCK_HEAD).fetch_one(&mut *connection).await?;
        check_schema(row.try_get("schema_version")?)?;
        let head = Head { seq: count(row.try_get("seq")?), hash: bytes(row.try_get("hash")?)? };
        Ok(Self { connection, who, at, head, entries: Vec::new() })
    }

    /// In a transaction that was begun otherwise, behind this row of the audit trail.
    pub(crate) fn behind(connection: &'a mut Connection, who: &'a Who, at: i64, head: Head) -> Self {
        Self { connection, who, at, head, entries: Vec::new() }
    }

    /// Where the audit trail ends with it.
    pub(crate) fn head(&self) -> Head {
        self.head
    }

    /// Who does it.
    pub(crate) fn actor(&self) -> &'a str {
        &self.who.actor
    }

    /// Says in the audit trail what was done, and returns the revision that this is.
    pub(crate) fn record(
        &mut self,
        action: Action,
        kind: Kind,
        subject: &str,
        before: Option<String>,
        after: Option<String>,
    ) -> Revision {
        let mut entry = AuditEntry {
            seq: self.head.seq + 1,
            at: self.at,
            actor: self.who.actor.clone(),
            origin: self.who.origin.clone(),
            action: action.as_str().into(),
            kind: kind.as_str().into(),
            subject: subject.into(),
            before,
            after,
            prev_hash: self.head.hash,
            hash: [0; HASH_BYTES],
        };
        entry.hash = entry.computed_hash();
        self.head = entry.head();
        self.entries.push(entry);
        self.head.seq
    }

    /// Ends it; returns the revision if there is a new one.
    pub(crate) async fn commit(self) -> Result<Option<Revision>> {
        let revision = self.entries.last().map(|entry| entry.seq);
        if revision.is_some() {
            for entries in self.entries.chunks(ROWS_MAX) {
                insert(self.connection, entries).await?;
            }
            sqlx::query("UPDATE control_head SET seq = $1, hash = $2 WHERE one = 1")
                .bind(number(self.head.seq))
                .bind(&self.head.hash[..])
                .execute(&mut *self.connection)
                .await?;
            if let Some(notify) = NOTIFY {
                sqlx::query(notify).bind(self.head.seq.to_string()).execute(&mut *self.connection).await?;
            }
        }
        sqlx::raw_sql("COMMIT").execute(&mut *self.connection).await?;
        Ok(revision)
    }
}

/// Undoes what was not ended.
pub(crate) async fn roll_back(connection: &mut Connection) -> Result<()> {
    sqlx::raw_sql("ROLLBACK").execute(connection).await?;
    Ok(())
}

/// May this program write to a database of this schema? Also if it is one newer: while a fleet is upgraded, programs of two versions use
/// it, and a migration leaves all that the version before it says in force (see `tests/stores/previous.rs`). Not if it is two newer.
pub(crate) fn check_schema(version: i64) -> Result<()> {
    match u32::try_from(version) {
        Ok(version) if version <= SCHEMA_VERSION + 1 => Ok(()),
        newer => Err(Error::TooNew { version: newer.unwrap_or(u32::MAX) }),
    }
}

pub(super) async fn insert(connection: &mut Connection, entries: &[AuditEntry]) -> Result<()> {
    let mut query = QueryBuilder::<Db>::new(
        "INSERT INTO audit (seq, at, actor, origin, action, kind, subject, before, after, prev_hash, hash) ",
    );
    query.push_values(entries, |mut row, entry| {
        row.push_bind(number(entry.seq)).push_bind(At(entry.at)).push_bind(&entry.actor);
        row.push_bind(&entry.origin).push_bind(&entry.action).push_bind(&entry.kind);
        row.push_bind(&entry.subject).push_bind(&entry.before).push_bind(&entry.after);
        row.push_bind(&entry.prev_hash[..]).push_bind(&entry.hash[..]);
    });
    query.build().persistent(entries.len() == 1).execute(connection).await?;
    Ok(())
}
