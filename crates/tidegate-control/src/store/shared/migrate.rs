//! Brings a database to the schema that this program knows, forward only.
//!
//! Each migration is one transaction, so that one that is interrupted at any statement was never begun; and nobody else migrates during it,
//! so that of several nodes that start together one does the work and the others find it done.

use super::{BEGIN_MIGRATION, Connection, FIND_HEAD, LOCK_HEAD, MIGRATIONS};
use crate::error::Result;
use crate::store::{SCHEMA_VERSION, StepHook};

/// Returns how many migrations were run by this call.
pub(crate) async fn run(connection: &mut Connection, hook: Option<StepHook>) -> Result<u32> {
    let mut step = 0;
    let mut next = || {
        hook.inspect(|hook| hook(step));
        step += 1;
    };
    // Each round brings the schema one further, or is the last.
    for ran in 0..=SCHEMA_VERSION {
        for statement in BEGIN_MIGRATION {
            sqlx::raw_sql(*statement).execute(&mut *connection).await?;
        }
        let version = version(connection).await?;
        let Some(migration) = usize::try_from(version).ok().and_then(|version| MIGRATIONS.get(version))
        else {
            super::change::roll_back(connection).await?;
            return Ok(ran);
        };
        if version > 0 {
            // As whoever writes does, before any table: programs of the version before may be writing.
            sqlx::raw_sql(LOCK_HEAD).execute(&mut *connection).await?;
        }
        for statement in statements(migration) {
            next();
            sqlx::raw_sql(statement).execute(&mut *connection).await?;
        }
        next();
        let query = sqlx::query("UPDATE control_head SET schema_version = $1 WHERE one = 1");
        query.bind(version + 1).execute(&mut *connection).await?;
        next();
        sqlx::raw_sql("COMMIT").execute(&mut *connection).await?;
    }
    Ok(SCHEMA_VERSION)
}

/// Makes all tables where none are left, in a transaction of somebody else.
pub(super) async fn make_all(connection: &mut Connection) -> Result<()> {
    for statement in MIGRATIONS.iter().flat_map(|migration| statements(migration)) {
        sqlx::raw_sql(statement).execute(&mut *connection).await?;
    }
    let query = sqlx::query("UPDATE control_head SET schema_version = $1 WHERE one = 1");
    query.bind(i64::from(SCHEMA_VERSION)).execute(connection).await?;
    Ok(())
}

fn statements(migration: &'static str) -> impl Iterator<Item = &'static str> {
    migration.split("\n\n").filter(|text| !is_comment(text))
}

/// 0: nothing is there yet.
async fn version(connection: &mut Connection) -> Result<i64> {
    let found: i64 = sqlx::query_scalar(FIND_HEAD).fetch_one(&mut *connection).await?;
    if found == 0 {
        return Ok(0);
    }
    let query = sqlx::query_scalar("SELECT schema_version FROM control_head WHERE one = 1");
    Ok(query.fetch_one(connection).await?)
}

/// Has it nothing to run?
fn is_comment(text: &str) -> bool {
    text.lines().all(|line| line.trim().is_empty() || line.starts_with("--"))
}
