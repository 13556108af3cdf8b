//! Everything that decisions need, as it was at one revision.

use std::time::Duration;

use super::held::Held;
use super::{postgres, sqlite, within};
use crate::error::{Error, Result};
use crate::model::{Head, Limits, QuotaFilter, Revision, SnapshotPage};

/// All tiers, rules, rule states and quotas at one revision, a page at a time. Whatever is changed meanwhile is not in it. It holds a
/// connection of the store until it has been read to its end, or is dropped.
pub struct Snapshot {
    held: Option<SnapshotOf>,
    head: Head,
    deadline: Duration,
    part: Part,
    after: Option<String>,
}

pub(super) enum SnapshotOf {
    Sqlite(Held<sqlite::Db>),
    Postgres(Held<postgres::Db>),
}

#[derive(Clone, Copy)]
enum Part {
    Tiers,
    Rules,
    RuleStates,
    Quotas,
}

impl Part {
    fn next(self) -> Option<Self> {
        match self {
            Self::Tiers => Some(Self::Rules),
            Self::Rules => Some(Self::RuleStates),
            Self::RuleStates => Some(Self::Quotas),
            Self::Quotas => None,
        }
    }
}

/// Begins one on this connection, or reads its next page.
macro_rules! on {
    ($held:expr, |$connection:ident| $body:expr) => {{
        let Some($connection) = $held.connection() else {
            return Err(Error::unavailable("the snapshot has ended"));
        };
        $body
    }};
}

impl Snapshot {
    pub(super) async fn begin(mut held: SnapshotOf, deadline: Duration) -> Result<Self> {
        let (head, _) = match &mut held {
            SnapshotOf::Sqlite(held) => on!(held, |connection| {
                sqlx::raw_sql(sqlite::BEGIN_SNAPSHOT).execute(&mut *connection).await?;
                sqlite::sql::trail::head(connection).await?
            }),
            SnapshotOf::Postgres(held) => on!(held, |connection| {
                sqlx::raw_sql(postgres::BEGIN_SNAPSHOT).execute(&mut *connection).await?;
                postgres::sql::trail::head(connection).await?
            }),
        };
        Ok(Self { held: Some(held), head, deadline, part: Part::Tiers, after: None })
    }

    /// Of when it is.
    pub fn revision(&self) -> Revision {
        self.head.seq
    }

    /// Where the audit trail ended then.
    pub fn head(&self) -> Head {
        self.head
    }

    /// The next page, tiers first and quotas last; none at the end.
    pub async fn next(&mut self) -> Result<Option<SnapshotPage>> {
        loop {
            let Some(held) = &mut self.held else { return Ok(None) };
            let (part, after) = (self.part, self.after.as_deref());
            let read = async {
                match held {
                    SnapshotOf::Sqlite(held) => {
                        on!(held, |connection| sqlite_page(connection, part, after).await)
                    }
                    SnapshotOf::Postgres(held) => {
                        on!(held, |connection| postgres_page(connection, part, after).await)
                    }
                }
            };
            let (page, next) = match within(self.deadline, read).await {
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
                    None => self.end().await,
                }
            }
            if !is_empty(&page) {
                return Ok(Some(page));
            }
        }
    }

    /// Gives the connection back. If that fails, it is closed; what was read is as good.
    async fn end(&mut self) {
        let Some(held) = self.held.take() else { return };
        let ended = async {
            match held {
                SnapshotOf::Sqlite(mut held) => {
                    on!(held, |connection| sqlite::sql::change::roll_back(connection).await?);
                    held.give_back();
                }
                SnapshotOf::Postgres(mut held) => {
                    on!(held, |connection| postgres::sql::change::roll_back(connection).await?);
                    held.give_back();
                }
            }
            Ok(())
        };
        let _ = within(self.deadline, ended).await;
    }
}

fn is_empty(page: &SnapshotPage) -> bool {
    match page {
        SnapshotPage::Tiers(items) => items.is_empty(),
        SnapshotPage::Rules(items) => items.is_empty(),
        SnapshotPage::RuleStates(items) => items.is_empty(),
        SnapshotPage::Quotas(items) => items.is_empty(),
    }
}

/// One body for both.
macro_rules! page_of {
    ($name:ident, $database:ident) => {
        async fn $name(
            connection: &mut $database::Connection,
            part: Part,
            after: Option<&str>,
        ) -> Result<(SnapshotPage, Option<String>)> {
            use $database::sql::{quotas, rules, states, tiers};
            Ok(match part {
                Part::Tiers => {
                    let page = tiers::list(connection, after, Limits::PAGE).await?;
                    (SnapshotPage::Tiers(page.items), page.next)
                }
                Part::Rules => {
                    let page = rules::list(connection, after, Limits::PAGE).await?;
                    (SnapshotPage::Rules(page.items), page.next)
                }
                Part::RuleStates => {
                    let page = states::list(connection, after, Limits::PAGE).await?;
                    (SnapshotPage::RuleStates(page.items), page.next)
                }
                Part::Quotas => {
                    let page = quotas::list(connection, &QuotaFilter::default(), after, Limits::PAGE).await?;
                    (SnapshotPage::Quotas(page.items), page.next)
                }
            })
        }
    };
}

page_of!(sqlite_page, sqlite);
page_of!(postgres_page, postgres);
