//! What was used of calendar periods, for counters that may forget.

use std::collections::BTreeMap;

use sqlx::{QueryBuilder, Row as _};

use super::change::check_schema;
use super::{Connection, Db, ROWS_MAX, trail};
use crate::error::Result;
use crate::model::Usage;
use crate::store::values::{At, odd};

/// Notes what was used. Less than what was noted before is no news, so that it can be told again and in any order.
pub(crate) async fn flush(connection: &mut Connection, usage: &[Usage], at: i64) -> Result<()> {
    let (_, schema) = trail::head(&mut *connection).await?;
    check_schema(schema)?;
    // Each once, because PostgreSQL writes no row twice in one statement; in order, because two nodes that write the same rows in
    // different orders would wait for each other.
    let mut rows = BTreeMap::new();
    for one in usage {
        let used = rows.entry((one.key, one.period_start)).or_insert(one.used);
        *used = one.used.max(*used);
    }
    let rows: Vec<_> = rows.into_iter().collect();
    for rows in rows.chunks(ROWS_MAX) {
        let mut query =
            QueryBuilder::<Db>::new("INSERT INTO calendar_usage (key, period_start, used, updated_at) ");
        query.push_values(rows, |mut row, ((key, period_start), used)| {
            row.push_bind(format!("{key:032x}")).push_bind(*period_start).push_bind(*used).push_bind(At(at));
        });
        query.push(
            " ON CONFLICT (key, period_start) DO UPDATE SET used = excluded.used, updated_at = excluded.updated_at \
             WHERE excluded.used > calendar_usage.used",
        );
        query.build().persistent(false).execute(&mut *connection).await?;
    }
    Ok(())
}

/// All periods of these keys.
pub(crate) async fn read(connection: &mut Connection, keys: &[u128]) -> Result<Vec<Usage>> {
    let mut found = Vec::new();
    for some in keys.chunks(ROWS_MAX) {
        let mut query =
            QueryBuilder::<Db>::new("SELECT key, period_start, used FROM calendar_usage WHERE key IN (");
        let mut list = query.separated(", ");
        for key in some {
            list.push_bind(format!("{key:032x}"));
        }
        query.push(") ORDER BY key, period_start");
        let rows = query.build().persistent(some.len() == 1).fetch_all(&mut *connection).await?;
        found.extend(rows.iter().map(record).collect::<Result<Vec<_>>>()?);
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
