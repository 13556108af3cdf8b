//! SQLite: a file, for one node.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use sqlx::Pool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use super::held::Held;
use super::{Follower, Options, SCHEMA_VERSION, nudge, within};
use crate::error::{Error, Result};
use crate::model::Revision;

// Compiled once for each database: see there.
#[path = "shared/mod.rs"]
pub(crate) mod sql;

pub(crate) type Db = sqlx::Sqlite;
pub(crate) type Connection = sqlx::SqliteConnection;

const MIGRATIONS: [&str; SCHEMA_VERSION as usize] = [
    include_str!("../../migrations/sqlite/0001_control.sql"),
    include_str!("../../migrations/sqlite/0002_calendar_usage.sql"),
    include_str!("../../migrations/sqlite/0003_calendar_given_back.sql"),
    include_str!("../../migrations/sqlite/0004_quota_search.sql"),
];
const BEGIN_MIGRATION: &[&str] = &["BEGIN IMMEDIATE"];
const FIND_HEAD: &str = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'control_head'";
/// Takes the one lock for writing at once: one that is taken later may have to be refused.
const BEGIN_WRITE: &str = "BEGIN IMMEDIATE";
const LOCK_HEAD: &str = "SELECT schema_version, seq, hash FROM control_head WHERE one = 1";
const NOTIFY: Option<&str> = None;
/// What a transaction says that may take long.
const TAKE_TIME: &[&str] = &[];
/// What does not go with its table.
const DROP_BESIDE: &[&str] = &[];
/// In WAL mode it stays what it was at the first look.
pub(crate) const BEGIN_SNAPSHOT: &str = "BEGIN DEFERRED";

const READERS: u32 = 4;

pub(crate) struct Database {
    pub(crate) writer: Pool<Db>,
    pub(crate) reader: Pool<Db>,
}

impl Database {
    /// Opens it, making it first if there is none, and migrates it; returns how many migrations that took.
    pub(crate) async fn open(file: &Path, options: &Options) -> Result<(Self, u32)> {
        let here = |error: std::io::Error| Error::unavailable(format!("{}: {error}", file.display()));
        match options.only_reads {
            true => std::fs::metadata(file).map(drop).map_err(here)?,
            false => create(file).map_err(here)?,
        }
        let connect = SqliteConnectOptions::new()
            .filename(file)
            .foreign_keys(true)
            .busy_timeout(busy_timeout(options.deadline))
            .synchronous(SqliteSynchronous::Full);
        let pool = || SqlitePoolOptions::new().acquire_timeout(options.deadline).min_connections(0);
        // Others may be switching the same file to WAL at this moment, which SQLite does not wait for.
        let wal = connect.clone().journal_mode(SqliteJournalMode::Wal);
        let writer = pool().max_connections(1).connect_lazy_with(wal);
        let connect = connect.clone();
        let reader =
            || pool().max_connections(READERS).connect_lazy_with(connect.clone().pragma("query_only", "ON"));
        if options.only_reads {
            return Ok((Self { writer: reader(), reader: reader() }, 0));
        }
        let migrations = within(options.migration_deadline, async {
            let mut held = loop {
                match Held::of(&writer).await {
                    Err(Error::Unavailable { why }) if why.contains("locked") => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    other => break other?,
                }
            };
            let Some(connection) = held.connection() else { return Ok(0) };
            let migrations = sql::migrate::run(connection, options.step_hook).await?;
            held.give_back();
            Ok(migrations)
        })
        .await?;
        Ok((Self { writer, reader: reader() }, migrations))
    }

    /// Other processes may write to the same file: nobody tells of it, so it is looked at now and then.
    pub(crate) async fn follow(reader: Pool<Db>, follower: Follower) {
        let looks = async {
            loop {
                tokio::time::sleep(follower.poll).await;
                // When it cannot be read, the next look may find more.
                let _ = revision(&reader, &follower).await.map(|revision| follower.tell(revision));
            }
        };
        tokio::join!(looks, nudge::heed(&follower, || revision(&reader, &follower)));
    }
}

async fn revision(reader: &Pool<Db>, follower: &Follower) -> Result<Revision> {
    within(follower.deadline, async {
        let mut held = Held::of(reader).await?;
        let Some(connection) = held.connection() else { return Ok(0) };
        let (head, _) = sql::trail::head(connection).await?;
        held.give_back();
        Ok(head.seq)
    })
    .await
}

/// Waiting for others ends before the deadline of a whole operation does, so that it can be said why.
fn busy_timeout(deadline: Duration) -> Duration {
    deadline.mul_f64(0.8)
}

/// For its owner alone: it holds what tokens are verified by, and every API key. (SQLite gives the files beside it the same rights.)
fn create(file: &Path) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn setting(pool: &Pool<Db>, name: &str) -> String {
        let query = format!("SELECT CAST({name} AS TEXT) FROM pragma_{name}");
        sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(pool).await.expect("a setting")
    }

    /// What is acknowledged is on the disk, and whoever reads does not wait for whoever writes.
    #[tokio::test]
    async fn every_connection_writes_ahead_and_waits_for_the_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("db");
        let (database, _) = Database::open(&file, &Options::sqlite(&file)).await.expect("a database");
        const FULL: &str = "2";
        for pool in [&database.writer, &database.reader] {
            assert_eq!(setting(pool, "journal_mode").await, "wal");
            assert_eq!(setting(pool, "synchronous").await, FULL);
        }
    }
}
