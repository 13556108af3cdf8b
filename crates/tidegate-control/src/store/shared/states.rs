//! Kill switches.

use sqlx::Row as _;

use super::{Connection, Db, Transaction, expect, one_more, outcome, page};
use crate::error::{Error, Result};
use crate::model::{Action, Kind, Outcome, Page, Revision, RuleState, Stored, Version, Written};
use crate::store::json;
use crate::store::values::{At, count, fingerprint, number, parsed};

pub(crate) async fn read(connection: &mut Connection, rule: &str) -> Result<Option<Stored<RuleState>>> {
    let query = "SELECT rule_hash, rule, state, expires_at, version, created_at, updated_at FROM rule_states \
                 WHERE rule_hash = $1";
    let row = sqlx::query(query).bind(fingerprint(rule)).fetch_optional(connection).await?;
    row.as_ref().map(record).transpose()
}

/// In no order that means anything: that of their hashes.
pub(crate) async fn list(
    connection: &mut Connection,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<Stored<RuleState>>> {
    let query = "SELECT rule_hash, rule, state, expires_at, version, created_at, updated_at FROM rule_states \
                 WHERE rule_hash > $1 ORDER BY rule_hash LIMIT $2";
    let after = after.unwrap_or_default();
    let rows = sqlx::query(query).bind(after).bind(one_more(limit)).fetch_all(connection).await?;
    let states = rows.iter().map(record).collect::<Result<_>>()?;
    Ok(page(states, limit, |state: &Stored<RuleState>| fingerprint(&state.value.rule)))
}

fn record(row: &<Db as sqlx::Database>::Row) -> Result<Stored<RuleState>> {
    let expires_at: Option<At> = row.try_get("expires_at")?;
    let value = RuleState {
        rule: row.try_get("rule")?,
        state: parsed(row.try_get("state")?)?,
        expires_at: expires_at.map(|At(us)| us),
    };
    let (At(created_at), At(updated_at)) = (row.try_get("created_at")?, row.try_get("updated_at")?);
    Ok(Stored { value, version: count(row.try_get("version")?), created_at, updated_at })
}

pub(crate) async fn put(
    to: &mut Transaction<'_>,
    state: RuleState,
    expected: Option<Version>,
) -> Result<Written<Stored<RuleState>>> {
    let old = read(to.connection, &state.rule).await?;
    expect(expected, old.as_ref().map_or(0, |old| old.version))?;
    if let Some(now) = old.clone().filter(|old| old.value == state) {
        return Ok(Written { now, outcome: Outcome::Unchanged });
    }
    let outcome = outcome(old.is_some());
    let action = if old.is_some() { Action::Update } else { Action::Create };
    let before = old.as_ref().map(|old| json(&old.value)).transpose()?;
    let version = to.record(action, Kind::RuleState, &state.rule, before, Some(json(&state)?));
    let created_at = old.map_or(to.at, |old| old.created_at);
    let now = Stored { value: state, version, created_at, updated_at: to.at };
    sqlx::query(
        "INSERT INTO rule_states (rule_hash, rule, state, expires_at, version, created_at, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) \
         ON CONFLICT (rule_hash) DO UPDATE SET state = excluded.state, expires_at = excluded.expires_at, \
         version = excluded.version, updated_at = excluded.updated_at",
    )
    .bind(fingerprint(&now.value.rule))
    .bind(&now.value.rule)
    .bind(now.value.state.to_string())
    .bind(now.value.expires_at.map(At))
    .bind(number(version))
    .bind(At(created_at))
    .bind(At(to.at))
    .execute(&mut *to.connection)
    .await?;
    Ok(Written { now, outcome })
}

pub(crate) async fn delete(
    from: &mut Transaction<'_>,
    rule: &str,
    expected: Option<Version>,
) -> Result<Revision> {
    let old = read(from.connection, rule).await?;
    expect(expected, old.as_ref().map_or(0, |old| old.version))?;
    let old = old.ok_or(Error::NotFound { what: "rule state" })?;
    sqlx::query("DELETE FROM rule_states WHERE rule_hash = $1")
        .bind(fingerprint(rule))
        .execute(&mut *from.connection)
        .await?;
    Ok(from.record(Action::Delete, Kind::RuleState, rule, Some(json(&old.value)?), None))
}
