//! What was used of calendar periods, for counters that may forget.

use std::collections::BTreeMap;

use sqlx::{QueryBuilder, Row as _};

use super::change::check_schema;
use super::{Connection, Db, ROWS_MAX, trail};
use crate::error::Result;
use crate::model::{Spending, Usage};
use crate::store::values::{At, odd};

/// Notes what was used. Less than what was noted before is no news, unless so much was given back: so it can be told again, in any order
/// and by many nodes, and a counter that was lost in between does not take away what it held.
pub(crate) async fn flush(connection: &mut Connection, spending: &[Spending]) -> Result<()> {
    let (_, schema) = trail::head(&mut *connection).await?;
    check_schema(schema)?;
    // Each once, because PostgreSQL writes no row twice in one statement; in order, because two nodes that write the same rows in
    // different orders would wait for each other.
    let mut rows: BTreeMap<_, Spending> = BTreeMap::new();
    for one in spending {
        let key = (one.usage.key, one.usage.period_start);
        rows.entry(key).and_modify(|known| *known = known.and(one)).or_insert(*one);
    }
    let rows: Vec<_> = rows.into_values().collect();
    for rows in rows.chunks(ROWS_MAX) {
        let mut query = QueryBuilder::<Db>::new(
            "INSERT INTO calendar_usage (key, period_start, used, given_back, updated_at) ",
        );
        query.push_values(rows, |mut row, one| {
            let Usage { key, period_start, used } = one.usage;
            row.push_bind(format!("{key:032x}")).push_bind(period_start).push_bind(used);
            row.push_bind(one.given_back).push_bind(At(one.at));
        });
        query.push(
            " ON CONFLICT (key, period_start) DO UPDATE \
             SET used = excluded.used, given_back = excluded.given_back, updated_at = excluded.updated_at \
             WHERE calendar_usage.used <> excluded.used \
             AND calendar_usage.used <= excluded.used + excluded.given_back \
             AND calendar_usage.not_before <= excluded.updated_at",
        );
        query.build().persistent(false).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Nothing of these periods counts as used, and what nodes saw of them before this counts for nothing.
pub(crate) async fn reset(connection: &mut Connection, periods: &[(u128, i64)], at: i64) -> Result<()> {
    let (_, schema) = trail::head(&mut *connection).await?;
    check_schema(schema)?;
    let query = "INSERT INTO calendar_usage (key, period_start, used, updated_at, not_before) VALUES ($1, $2, 0, $3, $3) \
                 ON CONFLICT (key, period_start) DO UPDATE \
                 SET used = 0, updated_at = excluded.updated_at, not_before = excluded.not_before";
    for (key, period_start) in periods {
        let query = sqlx::query(query).bind(format!("{key:032x}")).bind(*period_start).bind(At(at));
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// All periods of these keys, as they were told last.
pub(crate) async fn read(connection: &mut Connection, keys: &[u128]) -> Result<Vec<Spending>> {
    let mut found = Vec::new();
    for some in keys.chunks(ROWS_MAX) {
        let mut query = QueryBuilder::<Db>::new(
            "SELECT key, period_start, used, given_back, updated_at FROM calendar_usage WHERE key IN (",
        );
        let mut list = query.separated(", ");
        for key in some {
            list.push_bind(format!("{key:032x}"));
        }
        query.push(") ORDER BY key, period_start");
        let rows = query.build().persistent(some.len() == 1).fetch_all(&mut *connection).await?;
        for row in &rows {
            let (given_back, At(at)) = (row.try_get("given_back")?, row.try_get("updated_at")?);
            found.push(Spending { usage: record(row)?, given_back, at });
        }
    }
    Ok(found)
}

/// Some of all, after this one.
pub(crate) async fn list(
    connection: &mut Connection,
    after: Option<(u128, i64)>,
    limit: usize,
) -> Result<Vec<Usage>> {
    let (key, period_start) = after.map_or((String::new(), 0), |(key, start)| (format!("{key:032x}"), start));
    let query = "SELECT key, period_start, used FROM calendar_usage WHERE (key, period_start) > ($1, $2) \
                 ORDER BY key, period_start LIMIT $3";
    let rows =
        sqlx::query(query).bind(key).bind(period_start).bind(limit as i64).fetch_all(connection).await?;
    rows.iter().map(record).collect()
}

/// Forgets periods that began before this; returns how many.
pub(crate) async fn forget(connection: &mut Connection, before: i64) -> Result<u64> {
    let (_, schema) = trail::head(&mut *connection).await?;
    check_schema(schema)?;
    let query = sqlx::query("DELETE FROM calendar_usage WHERE period_start < $1");
    Ok(query.bind(before).execute(connection).await?.rows_affected())
}

fn record(row: &<Db as sqlx::Database>::Row) -> Result<Usage> {
    let key: &str = row.try_get("key")?;
    let key = u128::from_str_radix(key, 16).map_err(|_| odd("the key of a counter"))?;
    Ok(Usage { key, period_start: row.try_get("period_start")?, used: row.try_get("used")? })
}
