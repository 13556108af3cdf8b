//! PostgreSQL: a database that a fleet shares.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor as _, Pool};

use super::held::Held;
use super::{Follower, Options, SCHEMA_VERSION, nudge, within};
use crate::error::{Error, Result};
use crate::model::Revision;

// Compiled once for each database: see there.
#[path = "shared/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "the same words in two dialects")]
pub(crate) mod sql;

pub(crate) type Db = sqlx::Postgres;
pub(crate) type Connection = sqlx::PgConnection;

const MIGRATIONS: [&str; SCHEMA_VERSION as usize] = [
    include_str!("../../migrations/postgres/0001_control.sql"),
    include_str!("../../migrations/postgres/0002_calendar_usage.sql"),
    include_str!("../../migrations/postgres/0003_calendar_given_back.sql"),
    include_str!("../../migrations/postgres/0004_quota_search.sql"),
];
/// The lock is a number that only we use: the letters of our name. Waiting for it is bounded by the deadline of the whole.
const BEGIN_MIGRATION: &[&str] =
    &["BEGIN", "SET LOCAL statement_timeout = 0", "SELECT pg_advisory_xact_lock(8388354972349919333)"];
const FIND_HEAD: &str = "SELECT count(*) FROM pg_class WHERE oid = to_regclass('control_head')";
const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
/// Whoever changes something waits here for whoever does so already.
const LOCK_HEAD: &str = "SELECT schema_version, seq, hash FROM control_head WHERE one = 1 FOR UPDATE";
const NOTIFY: Option<&str> = Some("SELECT pg_notify('tidegate_changes', $1)");
/// What a transaction says that may take long: a backup may come slowly.
const TAKE_TIME: &[&str] = &["SET LOCAL idle_in_transaction_session_timeout = '5min'"];
/// What does not go with its table.
const DROP_BESIDE: &[&str] = &["DROP FUNCTION IF EXISTS audit_is_only_added_to"];
const CHANNEL: &str = "tidegate_changes";
/// The caller may take its time between two pages.
pub(crate) const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
     SET LOCAL idle_in_transaction_session_timeout = '5min'";

const CONNECTIONS: u32 = 4;

/// Until it is tried again to listen.
const LISTEN_PAUSE: Duration = Duration::from_millis(250);

pub(crate) struct Database {
    pub(crate) writer: Pool<Db>,
    pub(crate) reader: Pool<Db>,
    /// For listening alone.
    pub(crate) ears: Pool<Db>,
}

impl Database {
    /// Connects and migrates; returns how many migrations that took.
    pub(crate) async fn open(url: &str, options: &Options) -> Result<(Self, u32)> {
        let connect =
            PgConnectOptions::from_str(url).map_err(|error| Error::invalid("url", error.to_string()))?;
        let connect = connect.application_name("tidegate");
        // A statement that we no longer wait for, and a transaction whose node was cut off, must not hold up all others. What is
        // acknowledged is on disk, whatever the database's own default is.
        let deadline_ms = options.deadline.as_millis();
        let session = format!(
            "SET statement_timeout = {deadline_ms}; SET idle_in_transaction_session_timeout = {}; \
             SET synchronous_commit = on; SET default_transaction_read_only = {}",
            2 * deadline_ms,
            if options.only_reads { "on" } else { "off" }
        );
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .min_connections(0)
            .acquire_timeout(options.deadline)
            .after_connect(move |connection, _| {
                let session = session.clone();
                Box::pin(async move { connection.execute(AssertSqlSafe(session)).await.map(drop) })
            })
            .connect_lazy_with(connect.clone());
        let migrations = within(options.migration_deadline, async {
            let mut held = Held::of(&pool).await?;
            let Some(connection) = held.connection() else { return Ok(0) };
            let migrations = match options.only_reads {
                true => 0,
                false => sql::migrate::run(connection, options.step_hook).await?,
            };
            held.give_back();
            Ok(migrations)
        })
        .await?;
        let ears = PgPoolOptions::new()
            .max_connections(1)
            .min_connections(0)
            .acquire_timeout(options.deadline)
            .connect_lazy_with(connect);
        Ok((Self { writer: pool.clone(), reader: pool, ears }, migrations))
    }

    /// Listens for as long as it lives, looks now and then whether something was missed, and connects again when it has to.
    pub(crate) async fn follow(reader: Pool<Db>, ears: Pool<Db>, follower: Follower) {
        let listens = async {
            loop {
                let _ = listen(&reader, &ears, &follower).await; // Whatever it was, listening again is all that there is to do.
                tokio::time::sleep(LISTEN_PAUSE).await;
            }
        };
        tokio::join!(listens, nudge::heed(&follower, || revision(&reader, &follower)));
    }
}

/// Listens until it cannot.
async fn listen(reader: &Pool<Db>, ears: &Pool<Db>, follower: &Follower) -> Result<()> {
    let listening = within(follower.deadline, async {
        let mut listener = PgListener::connect_with(ears).await?;
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        Ok(listener)
    });
    let listening = listening.await;
    // What came while nobody listened, and what comes while nobody can.
    look(reader, follower).await?;
    let mut listener = listening?;
    loop {
        match tokio::time::timeout(follower.poll, listener.try_recv()).await {
            // Anybody who may connect may notify, and may say anything.
            Ok(Ok(Some(_))) => follower.nudges.nudge(),
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => return Err(error.into()),
            // Nothing was heard. If there was something to hear, this connection is deaf.
            Err(_) if look(reader, follower).await? => return Ok(()),
            Err(_) => {}
        }
    }
}

/// Reads the revision; says whether it is news.
async fn look(reader: &Pool<Db>, follower: &Follower) -> Result<bool> {
    Ok(follower.tell(revision(reader, follower).await?))
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
