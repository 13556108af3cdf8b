//! Where it is kept: SQLite or PostgreSQL, behind one front.

mod values; // how values cross the border
mod held; // a connection that somebody works with
mod sqlite; // a file, for one node; with it `shared/`, what is said to both in the same words
mod postgres; // a database that a fleet shares
mod snapshot; // everything at one revision
mod nudge; // somebody says that something has changed
mod backup; // all of it, out and in

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ring::rand::SecureRandom as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_clock::Clock;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::audit::{AuditEntry, Broken, Chain, GENESIS};
use crate::error::{Error, Result};
use crate::model::{
    self, Action, AuditFilter, AuditOrder, Changes, Head, Kind, Limits, NewToken, Page, Quota, QuotaFilter,
    QuotaKey, Revision, RuleDocument, RuleState, RuleVersion, Spending, Stored, Tier, Token, Usage,
    Verification, Version, Who, Written,
};
use held::Held;
use nudge::Nudges;
use snapshot::SnapshotOf;

pub(crate) use backup::BackupPages;
pub use snapshot::Snapshot;
pub(crate) use values::hex;

/// The schema that this program knows and writes. Each file in `migrations/` makes it one more, and only adds: programs of the version
/// before go on with it.
pub const SCHEMA_VERSION: u32 = 4;

/// Is told before each step of a migration which one it is.
type StepHook = fn(usize);

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    location: Location,
    clock: Clock,
    deadline: Duration,
    migration_deadline: Duration,
    poll: Duration,
    only_reads: bool,
    step_hook: Option<StepHook>,
}

#[derive(Clone)]
enum Location {
    Sqlite(PathBuf),
    Postgres(String),
}

impl fmt::Debug for Location {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(file) => to.debug_tuple("Sqlite").field(file).finish(),
            Self::Postgres(_) => to.write_str("Postgres(…)"), // There may be a password in it.
        }
    }
}

impl Options {
    /// In this file, which is made if it is not there.
    pub fn sqlite(file: impl Into<PathBuf>) -> Self {
        Self::at(Location::Sqlite(file.into()))
    }

    /// In this database: `postgres://user:password@host/database`.
    pub fn postgres(url: impl Into<String>) -> Self {
        Self::at(Location::Postgres(url.into()))
    }

    fn at(location: Location) -> Self {
        Self {
            location,
            clock: Clock::real(),
            deadline: Duration::from_secs(3),
            migration_deadline: Duration::from_secs(60),
            poll: Duration::from_secs(2),
            only_reads: false,
            step_hook: None,
        }
    }

    /// What it is told the time by.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// How long anything may take until it is [`Error::Unavailable`]; 3 s unless told.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How often it looks for changes that nobody told it of; 2 s unless told.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// Nothing is written, not even a newer schema: the database has to be there.
    pub fn only_reads(mut self) -> Self {
        self.only_reads = true;
        self
    }

    /// For tests that break a migration off at a given step.
    #[doc(hidden)]
    pub fn on_migration_step(mut self, hook: fn(usize)) -> Self {
        self.step_hook = Some(hook);
        self
    }
}

/// The control plane's memory. Clones share one.
#[derive(Clone)]
pub struct ControlStore {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    clock: Clock,
    deadline: Duration,
    migrations: u32,
    only_reads: bool,
    follower: Follower,
    following: JoinHandle<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.following.abort();
    }
}

enum Database {
    Sqlite(sqlite::Database),
    Postgres(postgres::Database),
}

/// Hears of revisions and tells them on.
#[derive(Clone)]
struct Follower {
    revision: Arc<watch::Sender<Revision>>,
    /// The last revision that was written here, for whoever tells others of it.
    written: Arc<watch::Sender<Revision>>,
    nudges: Arc<Nudges>,
    deadline: Duration,
    poll: Duration,
}

impl Follower {
    /// A revision was written here.
    fn wrote(&self, revision: Revision) {
        self.tell(revision);
        let is_news = |last: &mut Revision| std::mem::replace(last, revision) != revision;
        self.written.send_if_modified(is_news);
    }

    /// Says whether it is news. A lower one is, too: a database that was restored begins again where its backup ended. Once too often,
    /// where two are told in the wrong order, does no harm.
    fn tell(&self, revision: Revision) -> bool {
        self.revision.send_if_modified(|known| std::mem::replace(known, revision) != revision)
    }
}

/// Tells when something has changed, whoever changed it. It may tell too often, and late if the database is away, but never not at all.
#[derive(Clone, Debug)]
pub struct Wakeups(watch::Receiver<Revision>);

impl Wakeups {
    /// Waits until there is a revision that was not told before, and returns it. None: the store is gone.
    pub async fn changed(&mut self) -> Option<Revision> {
        self.0.changed().await.ok()?;
        Some(*self.0.borrow_and_update())
    }
}

/// Runs one body for the database there is. In the body, `sql` is what is said to that one.
macro_rules! each {
    ($store:expr, |$database:ident| $body:expr) => {
        match &$store.inner.database {
            Database::Sqlite($database) => {
                #[allow(unused_imports, reason = "not every body says something")]
                use sqlite::sql;
                $body
            }
            Database::Postgres($database) => {
                #[allow(unused_imports, reason = "not every body says something")]
                use postgres::sql;
                $body
            }
        }
    };
}

use each;

/// Says something on a connection of one of the pools, within the deadline.
macro_rules! plainly {
    ($store:expr, $pool:ident, |$connection:ident| $body:expr) => {
        within($store.inner.deadline, async {
            each!($store, |database| {
                let mut held = Held::of(&database.$pool).await?;
                let Some($connection) = held.connection() else { return Err(ended()) };
                let value = $body.await?;
                held.give_back();
                Ok(value)
            })
        })
        .await
    };
}

/// Reads something.
macro_rules! read {
    ($store:expr, |$connection:ident| $body:expr) => {
        plainly!($store, reader, |$connection| $body)
    };
}

/// Changes something in one transaction, within the deadline: all of it or nothing.
macro_rules! write {
    ($store:expr, $who:expr, |$transaction:ident| $body:expr) => {{
        $who.check()?;
        $store.may_write()?;
        within($store.inner.deadline, async {
            each!($store, |database| {
                let mut held = Held::of(&database.writer).await?;
                let Some(connection) = held.connection() else { return Err(ended()) };
                let done = async {
                    let mut begun = sql::Transaction::begin(&mut *connection, $who, $store.now_us()).await?;
                    let $transaction = &mut begun;
                    let value = $body.await?;
                    Ok((value, begun.commit().await?))
                };
                match done.await {
                    Ok((value, revision)) => {
                        held.give_back();
                        revision.inspect(|revision| $store.inner.follower.wrote(*revision));
                        Ok(value)
                    }
                    Err(Error::Unavailable { why }) => Err(Error::Unavailable { why }),
                    Err(error) => {
                        // The connection is as good as before, if it says so.
                        if sql::change::roll_back(connection).await.is_ok() {
                            held.give_back();
                        }
                        Err(error)
                    }
                }
            })
        })
        .await
    }};
}

impl ControlStore {
    /// Opens it and brings its schema up to date, which one of several nodes that start together does. A database that cannot be reached
    /// is [`Error::Unavailable`]; one of a newer Tidegate is opened, and read.
    pub async fn open(options: &Options) -> Result<Self> {
        let follower = Follower {
            revision: Arc::new(watch::Sender::new(0)),
            written: Arc::new(watch::Sender::new(0)),
            nudges: Arc::default(),
            deadline: options.deadline,
            poll: options.poll,
        };
        let (database, migrations, following) = match &options.location {
            Location::Sqlite(file) => {
                let (database, migrations) = sqlite::Database::open(file, options).await?;
                let following = sqlite::Database::follow(database.reader.clone(), follower.clone());
                (Database::Sqlite(database), migrations, tokio::spawn(following))
            }
            Location::Postgres(url) => {
                let (database, migrations) = postgres::Database::open(url, options).await?;
                let (reader, ears) = (database.reader.clone(), database.ears.clone());
                let following = postgres::Database::follow(reader, ears, follower.clone());
                (Database::Postgres(database), migrations, tokio::spawn(following))
            }
        };
        let (clock, deadline) = (options.clock.clone(), options.deadline);
        let only_reads = options.only_reads;
        let inner = Inner { database, clock, deadline, migrations, only_reads, follower, following };
        let store = Self { inner: Arc::new(inner) };
        store.inner.follower.tell(store.revision().await?);
        Ok(store)
    }

    /// How many migrations were run when this was opened.
    pub fn migrations_run(&self) -> u32 {
        self.inner.migrations
    }

    /// The version of the database's schema. More than one above [`SCHEMA_VERSION`], nothing is written.
    pub async fn schema_version(&self) -> Result<u32> {
        let (_, version) = read!(self, |connection| sql::trail::head(connection))?;
        Ok(u32::try_from(version).unwrap_or(u32::MAX))
    }

    /// Tells of changes from now on.
    pub fn wakeups(&self) -> Wakeups {
        Wakeups(self.inner.follower.revision.subscribe())
    }

    /// Tells of what this hand on the store writes from now on, and of nothing that others do.
    pub fn own_writes(&self) -> Wakeups {
        Wakeups(self.inner.follower.written.subscribe())
    }

    /// Somebody says that something has changed. It is looked whether that is so, soon and not too often; [`Self::wakeups`] tell it.
    pub fn nudge(&self) {
        self.inner.follower.nudges.nudge();
    }

    /// Ends all connections. Whatever is asked afterwards is unavailable.
    pub async fn close(&self) {
        self.inner.following.abort();
        each!(self, |database| {
            database.writer.close().await;
            database.reader.close().await;
        });
    }

    /// The record of one key.
    pub async fn quota(&self, api_key: &str) -> Result<QuotaKey> {
        let found = read!(self, |connection| sql::quotas::read(connection, &[api_key]))?.pop();
        found.ok_or(Error::NotFound { what: "quota" })
    }

    /// Those of these keys that have a record, in the order of the keys.
    pub async fn quotas_of(&self, api_keys: &[&str]) -> Result<Vec<QuotaKey>> {
        read!(self, |connection| sql::quotas::read(connection, api_keys))
    }

    /// Some of all records, in the order of their keys: those after this one.
    pub async fn quotas(
        &self,
        filter: &QuotaFilter,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<QuotaKey>> {
        read!(self, |connection| sql::quotas::list(connection, filter, after, limit))
    }

    /// Is there a record that names no domain?
    pub async fn has_quota_without_domain(&self) -> Result<bool> {
        read!(self, |connection| sql::quotas::has_one_without_domain(connection))
    }

    /// Writes the record of one key.
    pub async fn put_quota(
        &self,
        who: &Who,
        quota: Quota,
        expected: Option<Version>,
    ) -> Result<Written<QuotaKey>> {
        let puts = vec![(quota.checked()?, expected)];
        let written = write!(self, who, |transaction| sql::quotas::put(transaction, puts))?.pop();
        written.ok_or(Error::NotFound { what: "quota" })
    }

    /// Writes some records at once, at most [`Limits::PAGE`]: all of them or none, each with a row of the audit trail.
    pub async fn put_quotas(
        &self,
        who: &Who,
        puts: Vec<(Quota, Option<Version>)>,
    ) -> Result<Vec<Written<QuotaKey>>> {
        if puts.len() > Limits::PAGE {
            return Err(Error::invalid("quotas", format!("more than {} at once", Limits::PAGE)));
        }
        let checked = puts.into_iter().map(|(quota, expected)| Ok((quota.checked()?, expected)));
        let puts: Vec<_> = checked.collect::<Result<_>>()?;
        write!(self, who, |transaction| sql::quotas::put(transaction, puts))
    }

    /// Forgets one key; returns the revision of this.
    pub async fn delete_quota(
        &self,
        who: &Who,
        api_key: &str,
        expected: Option<Version>,
    ) -> Result<Revision> {
        write!(self, who, |transaction| sql::quotas::delete(transaction, api_key, expected))
    }

    /// One tier.
    pub async fn tier(&self, name: &str) -> Result<Stored<Tier>> {
        let found = read!(self, |connection| sql::tiers::read(connection, name))?;
        found.ok_or(Error::NotFound { what: "tier" })
    }

    /// Some of all tiers, in the order of their names.
    pub async fn tiers(&self, after: Option<&str>, limit: usize) -> Result<Page<Stored<Tier>>> {
        read!(self, |connection| sql::tiers::list(connection, after, limit))
    }

    /// Writes a tier.
    pub async fn put_tier(
        &self,
        who: &Who,
        tier: Tier,
        expected: Option<Version>,
    ) -> Result<Written<Stored<Tier>>> {
        let tier = tier.checked()?;
        write!(self, who, |transaction| sql::tiers::put(transaction, tier, expected))
    }

    /// Takes a tier away; returns the revision of this. Keys that have it keep its name.
    pub async fn delete_tier(&self, who: &Who, name: &str, expected: Option<Version>) -> Result<Revision> {
        write!(self, who, |transaction| sql::tiers::delete(transaction, name, expected))
    }

    /// One rule.
    pub async fn rule(&self, id: &str) -> Result<RuleDocument> {
        let found = read!(self, |connection| sql::rules::read(connection, id))?;
        found.ok_or(Error::NotFound { what: "rule" })
    }

    /// Some of all rules, in the order of their ids.
    pub async fn rules(&self, after: Option<&str>, limit: usize) -> Result<Page<RuleDocument>> {
        read!(self, |connection| sql::rules::list(connection, after, limit))
    }

    /// Writes a rule. What its document means was judged before.
    pub async fn put_rule(
        &self,
        who: &Who,
        id: &str,
        document: String,
        expected: Option<Version>,
    ) -> Result<Written<RuleDocument>> {
        model::rule_id(id)?;
        model::document(&document)?;
        write!(self, who, |transaction| sql::rules::put(transaction, id, document, expected))
    }

    /// Takes a rule away; returns the revision of this. What it was stays in its history.
    pub async fn delete_rule(&self, who: &Who, id: &str, expected: Option<Version>) -> Result<Revision> {
        write!(self, who, |transaction| sql::rules::delete(transaction, id, expected))
    }

    /// What a rule ever was, the newest first, before this version if one is named. A rule that was deleted has one too.
    pub async fn rule_history(
        &self,
        id: &str,
        before: Option<Version>,
        limit: usize,
    ) -> Result<Page<RuleVersion>> {
        read!(self, |connection| sql::rules::history(connection, id, before, limit))
    }

    /// What a rule was in one version.
    pub async fn rule_version(&self, id: &str, version: Version) -> Result<RuleVersion> {
        let found = read!(self, |connection| sql::rules::version(connection, id, version))?;
        found.ok_or(Error::NotFound { what: "version of this rule" })
    }

    /// Makes of what a rule was its newest version.
    pub async fn roll_back_rule(
        &self,
        who: &Who,
        id: &str,
        to: Version,
        expected: Option<Version>,
    ) -> Result<Written<RuleDocument>> {
        write!(self, who, |transaction| sql::rules::roll_back(transaction, id, to, expected))
    }

    /// The kill switch of one rule.
    pub async fn rule_state(&self, rule: &str) -> Result<Stored<RuleState>> {
        let found = read!(self, |connection| sql::states::read(connection, rule))?;
        found.ok_or(Error::NotFound { what: "rule state" })
    }

    /// Some of all kill switches, in an order of their own.
    pub async fn rule_states(&self, after: Option<&str>, limit: usize) -> Result<Page<Stored<RuleState>>> {
        read!(self, |connection| sql::states::list(connection, after, limit))
    }

    /// Sets the kill switch of one rule.
    pub async fn put_rule_state(
        &self,
        who: &Who,
        state: RuleState,
        expected: Option<Version>,
    ) -> Result<Written<Stored<RuleState>>> {
        state.check()?;
        write!(self, who, |transaction| sql::states::put(transaction, state, expected))
    }

    /// Takes the kill switch of one rule away, so that it does what it says itself; returns the revision of this.
    pub async fn delete_rule_state(
        &self,
        who: &Who,
        rule: &str,
        expected: Option<Version>,
    ) -> Result<Revision> {
        write!(self, who, |transaction| sql::states::delete(transaction, rule, expected))
    }

    /// The key that secrets of tokens are hashed with. It is made when it is first asked for, and stays.
    pub async fn token_key(&self) -> Result<[u8; 32]> {
        if let Some(key) = read!(self, |connection| sql::tokens::key(connection))? {
            return Ok(key);
        }
        let nobody = &Who::new("tidegate", "");
        write!(self, nobody, |transaction| sql::tokens::make_key(transaction))
    }

    /// Makes a token.
    pub async fn create_token(&self, who: &Who, token: NewToken) -> Result<Token> {
        token.check()?;
        write!(self, who, |transaction| sql::tokens::create(transaction, token))
    }

    /// The token whose secret begins so, whether it is still worth something or not.
    pub async fn token_by_prefix(&self, prefix: &str) -> Result<Option<Token>> {
        read!(self, |connection| sql::tokens::by_prefix(connection, prefix))
    }

    /// Some of all tokens, in the order of their ids.
    pub async fn tokens(&self, after: Option<&str>, limit: usize) -> Result<Page<Token>> {
        read!(self, |connection| sql::tokens::list(connection, after, limit))
    }

    /// Makes a token worth nothing, for good.
    pub async fn revoke_token(&self, who: &Who, id: &str) -> Result<Token> {
        write!(self, who, |transaction| sql::tokens::revoke(transaction, id))
    }

    /// The revision of the last change.
    pub async fn revision(&self) -> Result<Revision> {
        Ok(self.head().await?.seq)
    }

    /// Where the audit trail ends.
    pub async fn head(&self) -> Result<Head> {
        let (head, _) = read!(self, |connection| sql::trail::head(connection))?;
        Ok(head)
    }

    /// Some rows of the audit trail, after this one in the order that is asked for.
    pub async fn audit(
        &self,
        filter: &AuditFilter,
        order: AuditOrder,
        after: Option<Revision>,
        limit: usize,
    ) -> Result<Page<AuditEntry>> {
        read!(self, |connection| sql::trail::list(connection, filter, order, after, limit))
    }

    /// Says in the audit trail what was done to something that is not kept here; returns the revision of this.
    pub async fn record(
        &self,
        who: &Who,
        action: Action,
        kind: Kind,
        subject: &str,
        before: Option<String>,
        after: Option<String>,
    ) -> Result<Revision> {
        model::rule_name(subject)?;
        write!(self, who, |transaction| sql::trail::record(
            transaction,
            action,
            kind,
            subject,
            (before, after)
        ))
    }

    /// Looks over a part of the audit trail, to its end if none is named. The row before the first is taken for what it is.
    pub async fn verify(&self, from: Revision, to: Option<Revision>) -> Result<Verification> {
        let head = self.head().await?;
        let last = to.unwrap_or(head.seq).min(head.seq);
        let from = from.max(1);
        let one = |seq| AuditFilter { since_seq: Some(seq), until_seq: Some(seq), ..AuditFilter::default() };
        let mut chain = Chain::after(GENESIS);
        if from > 1 {
            let before = self.audit(&one(from - 1), AuditOrder::OldestFirst, None, 1).await?;
            match before.items.first() {
                Some(entry) => chain = Chain::after(entry.head()),
                None => return Ok(missing(from - 1)),
            }
        }
        let filter = AuditFilter { until_seq: Some(last), ..AuditFilter::default() };
        while chain.last().seq < last {
            let after = Some(chain.last().seq);
            let page = self.audit(&filter, AuditOrder::OldestFirst, after, Limits::PAGE).await?;
            if page.items.is_empty() {
                return Ok(missing(chain.last().seq + 1));
            }
            for entry in &page.items {
                if let Err(broken) = chain.verify(entry) {
                    return Ok(Verification::Broken(broken));
                }
            }
        }
        if last == head.seq && chain.last() != head {
            let why = "is not the one that the head was written with".into();
            return Ok(Verification::Broken(Broken { seq: last, why }));
        }
        // The head tells how many there are; nobody adds rows behind it.
        if to.is_none_or(|to| to > head.seq) {
            let behind = AuditFilter { since_seq: Some(head.seq + 1), ..AuditFilter::default() };
            let page = self.audit(&behind, AuditOrder::OldestFirst, None, 1).await?;
            if let Some(entry) = page.items.first().filter(|_| page.items.len() == 1) {
                let now = self.head().await?;
                if now.seq < entry.seq {
                    let why = "stands behind the head".into();
                    return Ok(Verification::Broken(Broken { seq: entry.seq, why }));
                }
            }
        }
        Ok(Verification::Intact { rows: (last + 1).saturating_sub(from), last: chain.last() })
    }

    /// What has changed since a revision, the first of it.
    pub async fn changes_since(&self, revision: Revision, limit: usize) -> Result<Changes> {
        read!(self, |connection| sql::trail::changes(connection, revision, limit))
    }

    /// All that decisions need, at one revision.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        let deadline = self.inner.deadline;
        within(deadline, async {
            let held = match &self.inner.database {
                Database::Sqlite(database) => SnapshotOf::Sqlite(Held::of(&database.reader).await?),
                Database::Postgres(database) => SnapshotOf::Postgres(Held::of(&database.reader).await?),
            };
            Snapshot::begin(held, deadline).await
        })
        .await
    }

    /// Notes what was used of calendar periods: the most that was told of each, but for what was given back.
    pub async fn flush_usage(&self, spending: &[Spending]) -> Result<()> {
        plainly!(self, writer, |connection| sql::usage::flush(connection, spending))
    }

    /// Nothing of these periods, each a key and a start, counts as used any more; what was seen of them before `at` counts for nothing.
    pub async fn reset_usage(&self, periods: &[(u128, i64)], at: i64) -> Result<()> {
        plainly!(self, writer, |connection| sql::usage::reset(connection, periods, at))
    }

    /// What was used by these counters, as it was told last.
    pub async fn usage_of(&self, keys: &[u128]) -> Result<Vec<Spending>> {
        read!(self, |connection| sql::usage::read(connection, keys))
    }

    /// What was used by all counters, some at a time: those after this one.
    pub async fn usage_all(&self, after: Option<(u128, i64)>, limit: usize) -> Result<Vec<Usage>> {
        read!(self, |connection| sql::usage::list(connection, after, limit))
    }

    /// Forgets calendar periods that began before this; returns how many.
    pub async fn forget_usage_before(&self, period_start: i64) -> Result<u64> {
        plainly!(self, writer, |connection| sql::usage::forget(connection, period_start))
    }

    fn may_write(&self) -> Result<()> {
        match self.inner.only_reads {
            true => Err(Error::unavailable("it was opened only to be read")),
            false => Ok(()),
        }
    }

    fn now_us(&self) -> i64 {
        i64::try_from(self.inner.clock.wall_now_us()).unwrap_or(Limits::TIME_US).min(Limits::TIME_US)
    }
}

fn missing(seq: Revision) -> Verification {
    Verification::Broken(Broken { seq, why: "is missing".into() })
}

/// No longer than this, whatever hangs.
async fn within<T>(deadline: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(deadline, work).await {
        Ok(done) => done,
        Err(_) => Err(Error::unavailable(format!("no answer within {} ms", deadline.as_millis()))),
    }
}

fn ended() -> Error {
    Error::unavailable("the connection was given back")
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Self::unavailable(error.to_string())
    }
}

pub(crate) fn json(of: &impl Serialize) -> Result<String> {
    serde_json::to_string(of).map_err(|error| Error::invalid("document", error.to_string()))
}

fn from_json<T: DeserializeOwned>(text: &str) -> std::result::Result<T, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = ring::rand::SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::unavailable("the machine has no random numbers"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_never_shows() {
        let options = Options::postgres("postgres://user:hunter2@host/name?password=hunter2");
        assert!(!format!("{options:?}").contains("hunter2"));
    }

    /// Servers move what they wait for between threads. That this compiles is all there is to see.
    #[test]
    fn what_is_waited_for_can_be_moved_between_threads() {
        fn moves<T: Send>(_: impl FnOnce(&'static ControlStore, &'static Who) -> T) {}
        moves(|store, _| store.quota("key"));
        moves(|store, who| store.put_quotas(who, Vec::new()));
        moves(|store, who| store.roll_back_rule(who, "rule", 1, None));
        moves(|store, _| async { store.snapshot().await?.next().await });
        moves(|store, _| store.verify(1, None));
        moves(|store, _| async { store.wakeups().changed().await });
    }
}
