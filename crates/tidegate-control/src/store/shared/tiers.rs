//! Tiers.

use sqlx::Row as _;

use super::{Connection, Db, Transaction, expect, one_more, outcome, page};
use crate::error::{Error, Result};
use crate::model::{Action, Kind, Outcome, Page, Revision, Stored, Tier, Version, Written};
use crate::store::values::{At, count, number, odd};
use crate::store::{from_json, json};

pub(crate) async fn read(connection: &mut Connection, name: &str) -> Result<Option<Stored<Tier>>> {
    let query = "SELECT name, overrides, version, created_at, updated_at FROM quota_tiers WHERE name = $1";
    let row = sqlx::query(query).bind(name).fetch_optional(connection).await?;
    row.as_ref().map(record).transpose()
}

pub(crate) async fn list(
    connection: &mut Connection,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<Stored<Tier>>> {
    let query = "SELECT name, overrides, version, created_at, updated_at FROM quota_tiers \
                 WHERE name > $1 ORDER BY name LIMIT $2";
    let after = after.unwrap_or_default();
    let rows = sqlx::query(query).bind(after).bind(one_more(limit)).fetch_all(connection).await?;
    Ok(page(rows.iter().map(record).collect::<Result<_>>()?, limit, |tier: &Stored<Tier>| {
        tier.value.name.clone()
    }))
}

fn record(row: &<Db as sqlx::Database>::Row) -> Result<Stored<Tier>> {
    let overrides = from_json(row.try_get("overrides")?).map_err(|why| odd(&why))?;
    let value = Tier { name: row.try_get("name")?, overrides };
    let (At(created_at), At(updated_at)) = (row.try_get("created_at")?, row.try_get("updated_at")?);
    Ok(Stored { value, version: count(row.try_get("version")?), created_at, updated_at })
}

pub(crate) async fn put(
    to: &mut Transaction<'_>,
    tier: Tier,
    expected: Option<Version>,
) -> Result<Written<Stored<Tier>>> {
    let old = read(to.connection, &tier.name).await?;
    expect(expected, old.as_ref().map_or(0, |old| old.version))?;
    if let Some(now) = old.clone().filter(|old| old.value == tier) {
        return Ok(Written { now, outcome: Outcome::Unchanged });
    }
    let outcome = outcome(old.is_some());
    let action = if old.is_some() { Action::Update } else { Action::Create };
    let before = old.as_ref().map(|old| json(&old.value)).transpose()?;
    let version = to.record(action, Kind::Tier, &tier.name, before, Some(json(&tier)?));
    let created_at = old.map_or(to.at, |old| old.created_at);
    let now = Stored { value: tier, version, created_at, updated_at: to.at };
    sqlx::query(
        "INSERT INTO quota_tiers (name, overrides, version, created_at, updated_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (name) DO UPDATE SET overrides = excluded.overrides, version = excluded.version, \
         updated_at = excluded.updated_at",
    )
    .bind(&now.value.name)
    .bind(json(&now.value.overrides)?)
    .bind(number(version))
    .bind(At(created_at))
    .bind(At(to.at))
    .execute(&mut *to.connection)
    .await?;
    Ok(Written { now, outcome })
}

pub(crate) async fn delete(
    from: &mut Transaction<'_>,
    name: &str,
    expected: Option<Version>,
) -> Result<Revision> {
    let old = read(from.connection, name).await?;
    expect(expected, old.as_ref().map_or(0, |old| old.version))?;
    let old = old.ok_or(Error::NotFound { what: "tier" })?;
    sqlx::query("DELETE FROM quota_tiers WHERE name = $1").bind(name).execute(&mut *from.connection).await?;
    Ok(from.record(Action::Delete, Kind::Tier, name, Some(json(&old.value)?), None))
}
