//! Rules by API, and all that they ever were.

use sqlx::Row as _;

use super::{Connection, Db, Transaction, expect, one_more, outcome, page};
use crate::error::{Error, Result};
use crate::model::{
    Action, Kind, Outcome, Page, Revision, RuleDocument, RuleVersion, Version, Written, document,
};
use crate::store::json;
use crate::store::values::{At, count, number};

pub(crate) async fn read(connection: &mut Connection, id: &str) -> Result<Option<RuleDocument>> {
    let query = "SELECT id, version, document, revision, created_at, updated_at FROM rules WHERE id = $1";
    let row = sqlx::query(query).bind(id).fetch_optional(connection).await?;
    row.as_ref().map(record).transpose()
}

pub(crate) async fn list(
    connection: &mut Connection,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<RuleDocument>> {
    let query = "SELECT id, version, document, revision, created_at, updated_at FROM rules \
                 WHERE id > $1 ORDER BY id LIMIT $2";
    let after = after.unwrap_or_default();
    let rows = sqlx::query(query).bind(after).bind(one_more(limit)).fetch_all(connection).await?;
    Ok(page(rows.iter().map(record).collect::<Result<_>>()?, limit, |rule: &RuleDocument| rule.id.clone()))
}

fn record(row: &<Db as sqlx::Database>::Row) -> Result<RuleDocument> {
    let (At(created_at), At(updated_at)) = (row.try_get("created_at")?, row.try_get("updated_at")?);
    Ok(RuleDocument {
        id: row.try_get("id")?,
        version: count(row.try_get("version")?),
        document: row.try_get("document")?,
        revision: count(row.try_get("revision")?),
        created_at,
        updated_at,
    })
}

/// All versions of one, the newest first; before this version, if one is named.
pub(crate) async fn history(
    connection: &mut Connection,
    id: &str,
    before: Option<Version>,
    limit: usize,
) -> Result<Page<RuleVersion>> {
    let query = "SELECT id, version, document, revision, at, actor FROM rule_versions \
                 WHERE id = $1 AND version < $2 ORDER BY version DESC LIMIT $3";
    let before = number(before.unwrap_or(u64::MAX));
    let rows = sqlx::query(query).bind(id).bind(before).bind(one_more(limit)).fetch_all(connection).await?;
    let versions = rows.iter().map(version_record).collect::<Result<_>>()?;
    Ok(page(versions, limit, |version: &RuleVersion| version.version.to_string()))
}

pub(crate) async fn version(
    connection: &mut Connection,
    id: &str,
    version: Version,
) -> Result<Option<RuleVersion>> {
    let query =
        "SELECT id, version, document, revision, at, actor FROM rule_versions WHERE id = $1 AND version = $2";
    let row = sqlx::query(query).bind(id).bind(number(version)).fetch_optional(connection).await?;
    row.as_ref().map(version_record).transpose()
}

/// Versions of all rules, after this one, in order.
pub(super) async fn versions(
    connection: &mut Connection,
    (id, version): (&str, Version),
    limit: usize,
) -> Result<Vec<RuleVersion>> {
    let query = "SELECT id, version, document, revision, at, actor FROM rule_versions \
                 WHERE (id, version) > ($1, $2) ORDER BY id, version LIMIT $3";
    let query = sqlx::query(query).bind(id).bind(number(version)).bind(limit as i64);
    query.fetch_all(connection).await?.iter().map(version_record).collect()
}

fn version_record(row: &<Db as sqlx::Database>::Row) -> Result<RuleVersion> {
    let At(at) = row.try_get("at")?;
    Ok(RuleVersion {
        id: row.try_get("id")?,
        version: count(row.try_get("version")?),
        document: row.try_get("document")?,
        revision: count(row.try_get("revision")?),
        at,
        actor: row.try_get("actor")?,
    })
}

pub(crate) async fn put(
    to: &mut Transaction<'_>,
    id: &str,
    text: String,
    expected: Option<Version>,
) -> Result<Written<RuleDocument>> {
    let old = read(to.connection, id).await?;
    expect(expected, old.as_ref().map_or(0, |old| old.version))?;
    let action = if old.is_some() { Action::Update } else { Action::Create };
    write(to, id, text, old, action).await
}

/// Makes of an old version the newest.
pub(crate) async fn roll_back(
    to: &mut Transaction<'_>,
    id: &str,
    target: Version,
    expected: Option<Version>,
) -> Result<Written<RuleDocument>> {
    let old = read(to.connection, id).await?;
    expect(expected, old.as_ref().map_or(0, |old| old.version))?;
    let target =
        version(to.connection, id, target).await?.ok_or(Error::NotFound { what: "version of this rule" })?;
    let text = target.document.ok_or_else(|| {
        Error::invalid("version", "the rule was deleted by this version; delete it instead")
    })?;
    write(to, id, text, old, Action::Rollback).await
}

async fn write(
    to: &mut Transaction<'_>,
    id: &str,
    text: String,
    old: Option<RuleDocument>,
    action: Action,
) -> Result<Written<RuleDocument>> {
    if let Some(now) = old.clone().filter(|old| old.document == text) {
        return Ok(Written { now, outcome: Outcome::Unchanged });
    }
    let before = old.as_ref().map(|old| shown(&old.document)).transpose()?;
    let revision = to.record(action, Kind::Rule, id, before, Some(shown(&text)?));
    let version = add_version(to, id, Some(&text), revision).await?;
    let created_at = old.as_ref().map_or(to.at, |old| old.created_at);
    let outcome = outcome(old.is_some());
    let now =
        RuleDocument { id: id.into(), version, document: text, revision, created_at, updated_at: to.at };
    sqlx::query(
        "INSERT INTO rules (id, version, document, revision, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6) \
         ON CONFLICT (id) DO UPDATE SET version = excluded.version, document = excluded.document, \
         revision = excluded.revision, updated_at = excluded.updated_at",
    )
    .bind(id)
    .bind(number(version))
    .bind(&now.document)
    .bind(number(revision))
    .bind(At(created_at))
    .bind(At(to.at))
    .execute(&mut *to.connection)
    .await?;
    Ok(Written { now, outcome })
}

pub(crate) async fn delete(
    from: &mut Transaction<'_>,
    id: &str,
    expected: Option<Version>,
) -> Result<Revision> {
    let old = read(from.connection, id).await?;
    expect(expected, old.as_ref().map_or(0, |old| old.version))?;
    let old = old.ok_or(Error::NotFound { what: "rule" })?;
    let revision = from.record(Action::Delete, Kind::Rule, id, Some(shown(&old.document)?), None);
    add_version(from, id, None, revision).await?;
    sqlx::query("DELETE FROM rules WHERE id = $1").bind(id).execute(&mut *from.connection).await?;
    // Its switch goes with it, and after it: a rule that comes by this name later does what it says itself.
    match super::states::delete(from, id, None).await {
        Ok(_) | Err(Error::NotFound { .. }) => Ok(revision),
        Err(error) => Err(error),
    }
}

/// One more version of this rule; returns which.
async fn add_version(
    to: &mut Transaction<'_>,
    id: &str,
    text: Option<&str>,
    revision: Revision,
) -> Result<Version> {
    let last: Option<i64> = sqlx::query_scalar("SELECT max(version) FROM rule_versions WHERE id = $1")
        .bind(id)
        .fetch_one(&mut *to.connection)
        .await?;
    let version = count(last.unwrap_or(0)) + 1;
    sqlx::query(
        "INSERT INTO rule_versions (id, version, document, revision, at, actor) VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(id)
    .bind(number(version))
    .bind(text)
    .bind(number(revision))
    .bind(At(to.at))
    .bind(to.actor())
    .execute(&mut *to.connection)
    .await?;
    Ok(version)
}

/// As the audit trail shows it.
fn shown(text: &str) -> Result<String> {
    json(&document(text)?)
}
