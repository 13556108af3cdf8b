//! All that is kept, read in one transaction and written in one.

use std::io::BufRead;
use std::time::Duration;

use super::held::Held;
use super::snapshot::SnapshotOf;
use super::{ControlStore, Database, each, ended, postgres, sqlite, within};
use crate::backup::{Backup, Kept, Lines, Restored};
use crate::error::{Error, Result};
use crate::model::{Head, Revision, Version, Who};

/// Rows that are written at once, and bytes of their lines.
const ROWS_MAX: usize = 1000;
const BYTES_MAX: usize = 4 << 20;

/// Every table that there is.
pub(crate) const TABLES: [&str; 11] = [
    "control_head",
    "control_meta",
    "quota_overrides",
    "quota_keys",
    "quota_tiers",
    "rules",
    "rule_versions",
    "rule_states",
    "tokens",
    "audit",
    "calendar_usage",
];

/// What is read after what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Meta,
    Tiers,
    Rules,
    RuleVersions,
    RuleStates,
    Quotas,
    Tokens,
    Usage,
    Audit,
}

impl Part {
    fn next(self) -> Option<Self> {
        let order = [
            Self::Meta,
            Self::Tiers,
            Self::Rules,
            Self::RuleVersions,
            Self::RuleStates,
            Self::Quotas,
            Self::Tokens,
            Self::Usage,
            Self::Audit,
        ];
        let at = order.iter().position(|part| *part == self)?;
        order.get(at + 1).copied()
    }
}

/// Where a page ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum After {
    Name(String),
    Version(String, Version),
    Usage(u128, i64),
    Row(Revision),
}

/// Pages of all that there is, of one revision.
pub(crate) struct BackupPages {
    held: Option<SnapshotOf>,
    head: Head,
    deadline: Duration,
    part: Part,
    after: Option<After>,
}

macro_rules! on {
    ($held:expr, |$database:ident, $connection:ident| $body:expr) => {
        match $held {
            SnapshotOf::Sqlite(held) => {
                use sqlite as $database;
                let Some($connection) = held.connection() else { return Err(ended()) };
                $body
            }
            SnapshotOf::Postgres(held) => {
                use postgres as $database;
                let Some($connection) = held.connection() else { return Err(ended()) };
                $body
            }
        }
    };
}

impl BackupPages {
    /// Where the audit trail ends in it.
    pub(crate) fn head(&self) -> Head {
        self.head
    }

    /// The next rows; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Kept>>> {
        loop {
            let Some(held) = &mut self.held else { return Ok(None) };
            let (part, after) = (self.part, self.after.as_ref());
            let read = async {
                on!(held, |database, connection| database::sql::backup::page(connection, part, after).await)
            };
            let (rows, next) = match within(self.deadline, read).await {
                Ok(read) => read,
                Err(error) => {
                    self.held = None; // Half of it is worth nothing.
                    return Err(error);
                }
            };
            self.after = next;
            if self.after.is_none() {
                match self.part.next() {
                    Some(part) => self.part = part,
                    None => self.held = None, // The connection is closed, and its transaction with it.
                }
            }
            if !rows.is_empty() {
                return Ok(Some(rows));
            }
        }
    }
}

impl ControlStore {
    /// All that is kept, as it is now.
    pub async fn backup(&self) -> Result<Backup> {
        let deadline = self.inner.deadline;
        let begun = within(deadline, async {
            let mut held = match &self.inner.database {
                Database::Sqlite(database) => SnapshotOf::Sqlite(Held::of(&database.reader).await?),
                Database::Postgres(database) => SnapshotOf::Postgres(Held::of(&database.reader).await?),
            };
            let (head, schema) = on!(&mut held, |database, connection| {
                sqlx::raw_sql(database::BEGIN_SNAPSHOT).execute(&mut *connection).await?;
                database::sql::trail::head(connection).await?
            });
            Ok((held, head, schema))
        });
        let (held, head, schema) = begun.await?;
        // What a newer one keeps beside would be missing.
        super::sqlite::sql::change::check_schema(schema)?;
        let pages = BackupPages { held: Some(held), head, deadline, part: Part::Meta, after: None };
        Ok(Backup::new(pages))
    }

    /// Fills the database from a backup, in one transaction: all of it, or nothing where the backup is not whole or not as it was written.
    /// The database has to be empty, unless all that is there is to be replaced. The audit trail of the backup goes on with a row about
    /// this.
    pub async fn restore(&self, who: &Who, from: impl BufRead, replace: bool) -> Result<Restored> {
        who.check()?;
        self.may_write()?;
        let mut lines = Lines::open(from)?;
        let deadline = self.inner.deadline;
        let at = self.now_us();
        let restored = each!(self, |database| {
            let mut held = within(deadline, Held::of(&database.writer)).await?;
            let Some(connection) = held.connection() else { return Err(ended()) };
            // Dropped before its end, the connection is closed, and nothing has happened.
            let before = within(deadline, sql::backup::begin(connection, replace)).await?;
            while let Some(rows) = lines.next(ROWS_MAX, BYTES_MAX)? {
                within(deadline, sql::backup::insert(connection, rows, at)).await?;
            }
            let (held_in_it, told) = (lines.held(), lines.told(before)?);
            let ended = sql::backup::end(connection, who, at, held_in_it.head, told);
            let head = within(deadline, ended).await?;
            held.give_back();
            Restored { held: held_in_it, head }
        });
        self.inner.follower.tell(restored.head.seq);
        Ok(restored)
    }
}

/// Why nothing can be restored here.
pub(crate) fn not_empty() -> Error {
    Error::invalid("the database", "is not empty: restore into an empty one, or replace all that is there")
}
