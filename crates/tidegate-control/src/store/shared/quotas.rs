//! Records of API keys.

use std::collections::{HashMap, HashSet};

use sqlx::{QueryBuilder, Row as _};

use super::{Connection, Db, ROWS_MAX, Transaction, expect, one_more, outcome, page};
use crate::error::{Error, Result};
use crate::model::{
    Action, Kind, Outcome, Override, Page, Quota, QuotaFilter, QuotaKey, Revision, Stored, Version, Written,
};
use crate::store::json;
use crate::store::values::{At, count, number, odd, parsed};

/// Keys and their overrides in one statement, so that nobody changes them in between.
const SELECT: &str = "SELECT k.api_key, k.domain, k.tier, k.client_id, k.user_id, k.whitelisted, k.version, k.created_at, k.updated_at, \
     o.descriptor, o.requests_per_unit, o.unit, o.effective_at, o.expires_at FROM (SELECT * FROM quota_keys WHERE ";
const JOIN: &str =
    ") k LEFT JOIN quota_overrides o ON o.api_key = k.api_key ORDER BY k.api_key, o.descriptor";

const INSERT_OVERRIDES: &str = "INSERT INTO quota_overrides \
     (api_key, tier, descriptor, requests_per_unit, unit, effective_at, expires_at, created_at, updated_at) ";

/// Those of these keys that are there, in the order of the keys.
pub(crate) async fn read(connection: &mut Connection, api_keys: &[&str]) -> Result<Vec<QuotaKey>> {
    let mut found = Vec::with_capacity(api_keys.len());
    for some in api_keys.chunks(ROWS_MAX) {
        let mut query = QueryBuilder::<Db>::new(SELECT);
        query.push("api_key IN (");
        let mut list = query.separated(", ");
        for api_key in some {
            list.push_bind(*api_key);
        }
        query.push(")").push(JOIN);
        let rows = query.build().persistent(some.len() == 1).fetch_all(&mut *connection).await?;
        found.extend(records(&rows)?);
    }
    Ok(found)
}

/// Some of all.
pub(crate) async fn list(
    connection: &mut Connection,
    filter: &QuotaFilter,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<QuotaKey>> {
    let mut query = QueryBuilder::<Db>::new(SELECT);
    query.push("api_key > ").push_bind(after.unwrap_or_default());
    if let Some(tier) = &filter.tier {
        query.push(" AND tier = ").push_bind(tier);
    }
    if let Some(user_id) = &filter.user_id {
        query.push(" AND user_id = ").push_bind(user_id);
    }
    if let Some(client_id) = &filter.client_id {
        query.push(" AND client_id = ").push_bind(client_id);
    }
    if filter.expires_before.is_some() || filter.expires_after.is_some() {
        // Those that end in time are few, and an index has them; of keys there may be a million.
        query.push(" AND api_key IN (SELECT api_key FROM quota_overrides WHERE expires_at IS NOT NULL");
        if let Some(at) = filter.expires_before {
            query.push(" AND expires_at < ").push_bind(At(at));
        }
        if let Some(at) = filter.expires_after {
            query.push(" AND expires_at >= ").push_bind(At(at));
        }
        query.push(")");
    }
    if let Some(prefix) = filter.prefix.as_ref().filter(|prefix| !prefix.is_empty()) {
        // The first two are what an index is searched by; no character comes after the one that is added.
        query.push(" AND api_key >= ").push_bind(prefix);
        query.push(" AND api_key <= ").push_bind(format!("{prefix}\u{10FFFF}"));
        query.push(" AND substr(api_key, 1, length(").push_bind(prefix).push(")) = ").push_bind(prefix);
    }
    query.push(" ORDER BY api_key LIMIT ").push_bind(one_more(limit)).push(JOIN);
    let rows = query.build().fetch_all(connection).await?;
    Ok(page(records(&rows)?, limit, |key| key.value.api_key.clone()))
}

/// Is there one that names no domain?
pub(crate) async fn has_one_without_domain(connection: &mut Connection) -> Result<bool> {
    let query = "SELECT 1 FROM quota_keys WHERE domain IS NULL LIMIT 1";
    Ok(sqlx::query(query).fetch_optional(connection).await?.is_some())
}

fn records(rows: &[<Db as sqlx::Database>::Row]) -> Result<Vec<QuotaKey>> {
    let mut keys: Vec<QuotaKey> = Vec::new();
    for row in rows {
        let api_key: &str = row.try_get("api_key")?;
        if keys.last().is_none_or(|last| last.value.api_key != api_key) {
            let value = Quota {
                api_key: api_key.into(),
                domain: row.try_get("domain")?,
                tier: row.try_get("tier")?,
                client_id: row.try_get("client_id")?,
                user_id: row.try_get("user_id")?,
                whitelisted: row.try_get("whitelisted")?,
                overrides: Vec::new(),
            };
            let (At(created_at), At(updated_at)) = (row.try_get("created_at")?, row.try_get("updated_at")?);
            keys.push(Stored { value, version: count(row.try_get("version")?), created_at, updated_at });
        }
        let Some(descriptor) = row.try_get("descriptor")? else { continue };
        let requests: i64 = row.try_get("requests_per_unit")?;
        let effective_at: Option<At> = row.try_get("effective_at")?;
        let expires_at: Option<At> = row.try_get("expires_at")?;
        let one = Override {
            descriptor,
            requests_per_unit: u32::try_from(requests).map_err(|_| odd("requests_per_unit"))?,
            unit: parsed(row.try_get("unit")?)?,
            effective_at: effective_at.map(|At(us)| us),
            expires_at: expires_at.map(|At(us)| us),
        };
        if let Some(last) = keys.last_mut() {
            last.value.overrides.push(one);
        }
    }
    Ok(keys)
}

/// Writes some, each by a row of the audit trail of its own unless it was like this before.
pub(crate) async fn put(
    to: &mut Transaction<'_>,
    puts: Vec<(Quota, Option<Version>)>,
) -> Result<Vec<Written<QuotaKey>>> {
    let api_keys: Vec<&str> = puts.iter().map(|(quota, _)| quota.api_key.as_str()).collect();
    if api_keys.iter().collect::<HashSet<_>>().len() < api_keys.len() {
        return Err(Error::invalid("api_key", "is there twice"));
    }
    let there = read(to.connection, &api_keys).await?;
    let mut there: HashMap<String, QuotaKey> =
        there.into_iter().map(|key| (key.value.api_key.clone(), key)).collect();
    let mut written = Vec::with_capacity(puts.len());
    let mut gone: Vec<(String, String)> = Vec::new();
    for (quota, expected) in puts {
        let old = there.remove(&quota.api_key);
        expect(expected, old.as_ref().map_or(0, |old| old.version))?;
        if let Some(same) = old.as_ref().filter(|old| old.value == quota) {
            written.push(Written { now: same.clone(), outcome: Outcome::Unchanged });
            continue;
        }
        let outcome = outcome(old.is_some());
        let action = if old.is_some() { Action::Update } else { Action::Create };
        let before = old.as_ref().map(|old| json(&old.value)).transpose()?;
        let version = to.record(action, Kind::Quota, &quota.api_key, before, Some(json(&quota)?));
        for before in old.iter().flat_map(|old| &old.value.overrides) {
            if !quota.overrides.iter().any(|now| now.descriptor == before.descriptor) {
                gone.push((quota.api_key.clone(), before.descriptor.clone()));
            }
        }
        let created_at = old.map_or(to.at, |old| old.created_at);
        let now = Stored { value: quota, version, created_at, updated_at: to.at };
        written.push(Written { now, outcome });
    }
    let changed: Vec<&QuotaKey> =
        written.iter().filter(|one| one.outcome != Outcome::Unchanged).map(|one| &one.now).collect();
    write(to.connection, &changed).await?;
    write_overrides(to.connection, &changed, to.at, &gone).await?;
    Ok(written)
}

/// Writes records as they were, where none are.
pub(super) async fn insert(connection: &mut Connection, keys: &[&QuotaKey]) -> Result<()> {
    write(connection, keys).await?;
    let rows: Vec<(&QuotaKey, &Override)> =
        keys.iter().flat_map(|key| key.value.overrides.iter().map(move |one| (*key, one))).collect();
    for rows in rows.chunks(ROWS_MAX) {
        let mut query = QueryBuilder::<Db>::new(INSERT_OVERRIDES);
        query.push_values(rows, |mut row, (key, one)| {
            row.push_bind(&key.value.api_key).push_bind(&key.value.tier).push_bind(&one.descriptor);
            row.push_bind(i64::from(one.requests_per_unit)).push_bind(one.unit.as_str());
            row.push_bind(one.effective_at.map(At)).push_bind(one.expires_at.map(At));
            row.push_bind(At(key.updated_at)).push_bind(At(key.updated_at));
        });
        query.build().persistent(false).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn write(connection: &mut Connection, keys: &[&QuotaKey]) -> Result<()> {
    for keys in keys.chunks(ROWS_MAX) {
        let mut query = QueryBuilder::<Db>::new(
            "INSERT INTO quota_keys \
             (api_key, domain, tier, client_id, user_id, whitelisted, version, created_at, updated_at) ",
        );
        query.push_values(keys, |mut row, key| {
            let quota = &key.value;
            row.push_bind(&quota.api_key).push_bind(&quota.domain).push_bind(&quota.tier);
            row.push_bind(&quota.client_id).push_bind(&quota.user_id).push_bind(quota.whitelisted);
            row.push_bind(number(key.version)).push_bind(At(key.created_at)).push_bind(At(key.updated_at));
        });
        query.push(
            " ON CONFLICT (api_key) DO UPDATE SET domain = excluded.domain, tier = excluded.tier, \
             client_id = excluded.client_id, user_id = excluded.user_id, whitelisted = excluded.whitelisted, \
             version = excluded.version, updated_at = excluded.updated_at",
        );
        query.build().persistent(keys.len() == 1).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn write_overrides(
    connection: &mut Connection,
    keys: &[&QuotaKey],
    at: i64,
    gone: &[(String, String)],
) -> Result<()> {
    for gone in gone.chunks(ROWS_MAX) {
        let mut query =
            QueryBuilder::<Db>::new("DELETE FROM quota_overrides WHERE (api_key, descriptor) IN (");
        query.push_values(gone, |mut row, (api_key, descriptor)| {
            row.push_bind(api_key).push_bind(descriptor);
        });
        query.push(")").build().persistent(false).execute(&mut *connection).await?;
    }
    let rows: Vec<(&Quota, &Override)> =
        keys.iter().flat_map(|key| key.value.overrides.iter().map(|one| (&key.value, one))).collect();
    for rows in rows.chunks(ROWS_MAX) {
        let mut query = QueryBuilder::<Db>::new(INSERT_OVERRIDES);
        query.push_values(rows, |mut row, (quota, one)| {
            row.push_bind(&quota.api_key).push_bind(&quota.tier).push_bind(&one.descriptor);
            row.push_bind(i64::from(one.requests_per_unit)).push_bind(one.unit.as_str());
            row.push_bind(one.effective_at.map(At)).push_bind(one.expires_at.map(At));
            row.push_bind(At(at)).push_bind(At(at));
        });
        // What did not change keeps its id and its times.
        query.push(
            " ON CONFLICT (api_key, descriptor) DO UPDATE SET tier = excluded.tier, \
             requests_per_unit = excluded.requests_per_unit, unit = excluded.unit, \
             effective_at = excluded.effective_at, expires_at = excluded.expires_at, updated_at = excluded.updated_at \
             WHERE (quota_overrides.tier, quota_overrides.requests_per_unit, quota_overrides.unit, \
             quota_overrides.effective_at, quota_overrides.expires_at) IS DISTINCT FROM \
             (excluded.tier, excluded.requests_per_unit, excluded.unit, excluded.effective_at, excluded.expires_at)",
        );
        query.build().persistent(rows.len() == 1).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Takes one away.
pub(crate) async fn delete(
    from: &mut Transaction<'_>,
    api_key: &str,
    expected: Option<Version>,
) -> Result<Revision> {
    let old = read(from.connection, &[api_key]).await?.pop();
    expect(expected, old.as_ref().map_or(0, |old| old.version))?;
    let old = old.ok_or(Error::NotFound { what: "quota" })?;
    sqlx::query("DELETE FROM quota_keys WHERE api_key = $1")
        .bind(api_key)
        .execute(&mut *from.connection)
        .await?;
    Ok(from.record(Action::Delete, Kind::Quota, api_key, Some(json(&old.value)?), None))
}
