//! A fresh database for each test, on both stores. The only way to one is [`both`] or [`both_alone`].

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _};
use tempfile::TempDir;
use tidegate_control::{ControlStore, Options, Override, Quota, Unit, Who};
use tidegate_testbed::{Disk, Postgres, PostgresOptions};

/// Long enough for a machine that stands still now and then: tests of deadlines set their own.
const DEADLINE: Duration = Duration::from_secs(20);

/// Runs a test on both stores, each with a database of its own.
pub(crate) fn both(test: impl AsyncFn(Bed)) {
    on_both(test, || Bed::postgres(&shared_postgres()));
}

/// Runs a test with a database of each kind, in both orders.
pub(crate) fn from_one_to_the_other(test: impl AsyncFn(Bed, Bed)) {
    let stores: [fn() -> Bed; 2] = [Bed::sqlite, || Bed::postgres(&shared_postgres())];
    for (from, to) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let (from, to) = (stores[from](), stores[to]());
        println!("from {} to {}", from.name(), to.name());
        run(test(from, to));
    }
}

/// The same, with a PostgreSQL of its own that the test may break.
pub(crate) fn both_alone(options: PostgresOptions, test: impl AsyncFn(Bed)) {
    on_both(test, || {
        let server = Postgres::start(&options).unwrap_or_else(|reason| panic!("{reason}"));
        Bed::postgres(&Arc::new(server))
    });
}

/// The same, each on a small disk of its own, which is told to the test too. Where none can be mounted, this is said and nothing else done.
pub(crate) fn both_on(test: impl AsyncFn(&Disk, Bed)) {
    let mount = |megabytes| match Disk::mount(megabytes) {
        Ok(disk) => Some(disk),
        Err(reason) => {
            println!("not looked at, since this needs a disk that can be filled: {reason}");
            None
        }
    };
    let (Some(small), Some(large)) = (mount(8), mount(120)) else { return };
    let folder = tempfile::Builder::new().prefix("control").tempdir_in(small.folder()).expect("a folder");
    run(test(&small, Bed { database: Database::Sqlite { folder } }));
    let options = PostgresOptions::new().below(large.folder()).setting("min_wal_size=2MB");
    let server = Postgres::start(&options).unwrap_or_else(|reason| panic!("{reason}"));
    let bed = Bed::postgres(&Arc::new(server));
    run(test(&large, bed));
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

fn on_both(test: impl AsyncFn(Bed), postgres: impl Fn() -> Bed) {
    let stores: [&dyn Fn() -> Bed; 2] = [&Bed::sqlite, &postgres];
    for store in stores {
        let bed = store();
        println!("on {}", bed.name());
        run(test(bed));
    }
}

/// One server for all tests of this process that do not break it. It is gone with the process, or with the last test that uses it.
fn shared_postgres() -> Arc<Postgres> {
    static SERVER: Mutex<Option<Arc<Postgres>>> = Mutex::new(None);
    let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    let start = || Postgres::start(&PostgresOptions::new()).unwrap_or_else(|reason| panic!("{reason}"));
    Arc::clone(server.get_or_insert_with(|| Arc::new(start())))
}

/// A database of one test.
pub(crate) struct Bed {
    database: Database,
}

enum Database {
    Sqlite { folder: TempDir },
    Postgres { server: Arc<Postgres>, url: String },
}

impl Bed {
    fn sqlite() -> Self {
        let folder = tempfile::Builder::new().prefix("control").tempdir().expect("a folder");
        Self { database: Database::Sqlite { folder } }
    }

    fn postgres(server: &Arc<Postgres>) -> Self {
        let name = database_name();
        run(create_database(&server.url("postgres"), &name));
        Self { database: Database::Postgres { server: Arc::clone(server), url: server.url(&name) } }
    }

    /// Another of the same kind, for tests that need many.
    pub(crate) async fn another(&self) -> Self {
        let Database::Postgres { server, .. } = &self.database else { return Self::sqlite() };
        let name = database_name();
        create_database(&server.url("postgres"), &name).await;
        Self { database: Database::Postgres { server: Arc::clone(server), url: server.url(&name) } }
    }

    pub(crate) fn name(&self) -> &'static str {
        match &self.database {
            Database::Sqlite { .. } => "SQLite",
            Database::Postgres { .. } => "PostgreSQL",
        }
    }

    /// Where it is, in one word, for another process.
    pub(crate) fn place(&self) -> String {
        match &self.database {
            Database::Sqlite { .. } => self.file().display().to_string(),
            Database::Postgres { url, .. } => url.clone(),
        }
    }

    pub(crate) fn options(&self) -> Options {
        options(&self.place())
    }

    pub(crate) async fn open(&self) -> ControlStore {
        ControlStore::open(&self.options()).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Says something to the database that no store would say. Returns how many rows it was about.
    pub(crate) async fn raw(&self, sql: &str) -> Result<u64, String> {
        let of = |error: sqlx::Error| error.to_string();
        match &self.database {
            Database::Sqlite { .. } => {
                let mut connection = self.sqlite_connection().await.map_err(of)?;
                let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.map_err(of)?;
                connection.close().await.map_err(of)?;
                Ok(done.rows_affected())
            }
            Database::Postgres { url, .. } => {
                let mut connection = sqlx::PgConnection::connect(url).await.map_err(of)?;
                let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.map_err(of)?;
                connection.close().await.map_err(of)?;
                Ok(done.rows_affected())
            }
        }
    }

    /// The first column of each row, as text.
    pub(crate) async fn texts(&self, sql: &str) -> Vec<String> {
        match &self.database {
            Database::Sqlite { .. } => {
                let mut connection = self.sqlite_connection().await.expect("a connection");
                let rows = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut connection).await;
                rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
            }
            Database::Postgres { url, .. } => {
                let mut connection = sqlx::PgConnection::connect(url).await.expect("a connection");
                let rows = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&mut connection).await;
                rows.unwrap_or_else(|error| panic!("{sql}: {error}"))
            }
        }
    }

    /// What is said to one, and what to the other, where their words differ.
    pub(crate) fn dialect<'a>(&self, sqlite: &'a str, postgres: &'a str) -> &'a str {
        match &self.database {
            Database::Sqlite { .. } => sqlite,
            Database::Postgres { .. } => postgres,
        }
    }

    /// Its PostgreSQL, if it is one.
    pub(crate) fn server(&self) -> Option<&Postgres> {
        match &self.database {
            Database::Sqlite { .. } => None,
            Database::Postgres { server, .. } => Some(server),
        }
    }

    /// Looks over all that SQLite keeps. (PostgreSQL does so itself when it starts after a crash.)
    pub(crate) async fn check_integrity(&self) {
        if let Database::Sqlite { .. } = &self.database {
            assert_eq!(self.texts("PRAGMA integrity_check").await, ["ok"]);
            assert_eq!(
                self.texts("SELECT 'broken' FROM pragma_foreign_key_check").await,
                Vec::<String>::new()
            );
        }
    }

    fn file(&self) -> PathBuf {
        match &self.database {
            Database::Sqlite { folder } => folder.path().join("control.sqlite"),
            Database::Postgres { .. } => PathBuf::new(),
        }
    }

    pub(crate) async fn sqlite_connection(&self) -> Result<sqlx::SqliteConnection, sqlx::Error> {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(self.file());
        sqlx::SqliteConnection::connect_with(&options).await
    }
}

fn database_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

async fn create_database(url: &str, name: &str) {
    let mut connection = sqlx::PgConnection::connect(url).await.expect("a connection");
    // Of a language whose order is not that of bytes, where PostgreSQL knows one.
    let template = format!("CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en'");
    let plain = format!("CREATE DATABASE {name}");
    if sqlx::raw_sql(AssertSqlSafe(template)).execute(&mut connection).await.is_err() {
        sqlx::raw_sql(AssertSqlSafe(plain)).execute(&mut connection).await.expect("a database");
    }
    connection.close().await.expect("it was open");
}

/// How to open what is there.
pub(crate) fn options(place: &str) -> Options {
    let options =
        if place.starts_with("postgres:") { Options::postgres(place) } else { Options::sqlite(place) };
    options.deadline(DEADLINE)
}

pub(crate) fn alice() -> Who {
    Who::new("alice", "127.0.0.1")
}

pub(crate) fn limit(descriptor: &str, requests_per_unit: u32) -> Override {
    Override {
        descriptor: descriptor.into(),
        requests_per_unit,
        unit: Unit::Minute,
        effective_at: None,
        expires_at: None,
    }
}

pub(crate) fn quota(api_key: &str, tier: &str, overrides: Vec<Override>) -> Quota {
    Quota { tier: Some(tier.into()), overrides, ..Quota::of(api_key) }
}

/// Each ends by itself, so one after the other is polled as well as all at once would be.
pub(crate) async fn join_all<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(move |context| {
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(value) = future.as_mut().poll(context)
            {
                *done = Some(value);
            }
        }
        if done.iter().all(Option::is_some) {
            return std::task::Poll::Ready(done.iter_mut().filter_map(Option::take).collect());
        }
        std::task::Poll::Pending
    })
    .await
}
