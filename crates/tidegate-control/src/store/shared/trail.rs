//! The audit trail, and what has changed by it.

use sqlx::{QueryBuilder, Row as _};

use super::{Connection, Db, Transaction, one_more, page};
use crate::audit::{AuditEntry, GENESIS};
use crate::error::Result;
use crate::model::{Action, AuditFilter, AuditOrder, Change, Changes, Head, Kind, Page, Revision};
use crate::store::values::{At, bytes, count, number};

/// Where it ends, and the version of the schema.
pub(crate) async fn head(connection: &mut Connection) -> Result<(Head, i64)> {
    let query = sqlx::query("SELECT schema_version, seq, hash FROM control_head WHERE one = 1");
    let row = query.fetch_one(connection).await?;
    let head = Head { seq: count(row.try_get("seq")?), hash: bytes(row.try_get("hash")?)? };
    Ok((head, row.try_get("schema_version")?))
}

pub(crate) async fn list(
    connection: &mut Connection,
    filter: &AuditFilter,
    order: AuditOrder,
    after: Option<Revision>,
    limit: usize,
) -> Result<Page<AuditEntry>> {
    let mut query = QueryBuilder::<Db>::new(
        "SELECT seq, at, actor, origin, action, kind, subject, before, after, prev_hash, hash FROM audit WHERE ",
    );
    match order {
        AuditOrder::OldestFirst => query.push("seq > ").push_bind(number(after.unwrap_or(0))),
        AuditOrder::NewestFirst => query.push("seq < ").push_bind(number(after.unwrap_or(u64::MAX))),
    };
    if let Some(seq) = filter.since_seq {
        query.push(" AND seq >= ").push_bind(number(seq));
    }
    if let Some(seq) = filter.until_seq {
        query.push(" AND seq <= ").push_bind(number(seq));
    }
    if let Some(at) = filter.since {
        query.push(" AND at >= ").push_bind(At(at));
    }
    if let Some(at) = filter.until {
        query.push(" AND at < ").push_bind(At(at));
    }
    if let Some(actor) = &filter.actor {
        query.push(" AND actor = ").push_bind(actor);
    }
    if let Some(kind) = filter.kind {
        query.push(" AND kind = ").push_bind(kind.as_str());
    }
    if let Some(subject) = &filter.subject {
        // The first is what the index has of it.
        query.push(" AND substr(subject, 1, 128) = substr(").push_bind(subject).push(", 1, 128)");
        query.push(" AND subject = ").push_bind(subject);
    }
    query.push(match order {
        AuditOrder::OldestFirst => " ORDER BY seq LIMIT ",
        AuditOrder::NewestFirst => " ORDER BY seq DESC LIMIT ",
    });
    let rows = query.push_bind(one_more(limit)).build().fetch_all(connection).await?;
    let entries = rows.iter().map(entry).collect::<Result<_>>()?;
    Ok(page(entries, limit, |entry: &AuditEntry| entry.seq.to_string()))
}

fn entry(row: &<Db as sqlx::Database>::Row) -> Result<AuditEntry> {
    let At(at) = row.try_get("at")?;
    Ok(AuditEntry {
        seq: count(row.try_get("seq")?),
        at,
        actor: row.try_get("actor")?,
        origin: row.try_get("origin")?,
        action: row.try_get("action")?,
        kind: row.try_get("kind")?,
        subject: row.try_get("subject")?,
        before: row.try_get("before")?,
        after: row.try_get("after")?,
        prev_hash: bytes(row.try_get("prev_hash")?)?,
        hash: bytes(row.try_get("hash")?)?,
    })
}

pub(crate) async fn changes(connection: &mut Connection, since: Revision, limit: usize) -> Result<Changes> {
    // The head first: what is added in between is found the next time.
    let (head, _) = head(&mut *connection).await?;
    // With the row before, by whose hash one knows whether it is still the same trail.
    let query =
        "SELECT seq, kind, subject, hash FROM audit WHERE seq >= $1 AND seq <= $2 ORDER BY seq LIMIT $3";
    let rows = sqlx::query(query)
        .bind(number(since))
        .bind(number(head.seq))
        .bind(one_more(limit))
        .fetch_all(connection)
        .await?;
    let change = |row: &<Db as sqlx::Database>::Row| {
        let kind: &str = row.try_get("kind")?;
        let kind = kind.parse().unwrap_or(Kind::Unknown);
        let (seq, hash) = (count(row.try_get("seq")?), bytes(row.try_get("hash")?).ok());
        Ok(Change { seq, kind, subject: row.try_get("subject")?, hash })
    };
    let mut changes: Vec<Change> = rows.iter().map(change).collect::<Result<_>>()?;
    let before = changes.first().filter(|first| first.seq == since && since > 0).map(|first| first.hash);
    if before.is_some() {
        changes.remove(0);
    }
    changes.truncate(limit);
    let since = if since == 0 { Some(GENESIS.hash) } else { before.flatten() };
    Ok(Changes { changes, since, head: head.seq })
}

/// Says what was done to something that is not kept here.
pub(crate) async fn record(
    to: &mut Transaction<'_>,
    action: Action,
    kind: Kind,
    subject: &str,
    (before, after): (Option<String>, Option<String>),
) -> Result<Revision> {
    Ok(to.record(action, kind, subject, before, after))
}
