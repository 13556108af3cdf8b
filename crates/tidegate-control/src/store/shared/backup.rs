//! Pages of all that there is, and how they are written into another database.

use sqlx::query_builder::Separated;
use sqlx::{AssertSqlSafe, QueryBuilder, Row as _};

use super::{
    BEGIN_WRITE, Connection, DROP_BESIDE, Db, LOCK_HEAD, ROWS_MAX, TAKE_TIME, Transaction, change, migrate,
    quotas, rules, states, tiers, tokens, trail, usage,
};
use crate::audit::AuditEntry;
use crate::backup::Kept;
use crate::error::Result;
use crate::model::{
    Action, AuditFilter, AuditOrder, Head, Kind, Limits, Page, QuotaFilter, QuotaKey, RuleDocument,
    RuleState, RuleVersion, Spending, Stored, Tier, Token, Usage, Who,
};
use crate::store::backup::{After, Part, TABLES, not_empty};
use crate::store::json;
use crate::store::values::{At, bytes, count, fingerprint, number};

/// Rows that may be as large as a rule's document, read at once.
const LARGE_ROWS: usize = 64;

/// A page of one kind, and where it ended if there are more.
pub(crate) async fn page(
    connection: &mut Connection,
    part: Part,
    after: Option<&After>,
) -> Result<(Vec<Kept>, Option<After>)> {
    let name = match after {
        Some(After::Name(name)) => Some(name.as_str()),
        _ => None,
    };
    Ok(match part {
        Part::Meta => {
            let rows =
                sqlx::query("SELECT name, value FROM control_meta ORDER BY name").fetch_all(connection);
            let row = |row: &<Db as sqlx::Database>::Row| {
                Ok(Kept::Meta(row.try_get("name")?, row.try_get("value")?))
            };
            (rows.await?.iter().map(row).collect::<Result<_>>()?, None)
        }
        Part::Tiers => named(tiers::list(connection, name, Limits::PAGE).await?, Kept::Tier),
        Part::Rules => named(rules::list(connection, name, LARGE_ROWS).await?, Kept::Rule),
        Part::RuleVersions => {
            let after = match after {
                Some(After::Version(id, version)) => (id.as_str(), *version),
                _ => ("", 0),
            };
            let versions = rules::versions(connection, after, LARGE_ROWS).await?;
            let next = versions.last().filter(|_| versions.len() == LARGE_ROWS);
            let next = next.map(|last| After::Version(last.id.clone(), last.version));
            (versions.into_iter().map(Kept::RuleVersion).collect(), next)
        }
        Part::RuleStates => named(states::list(connection, name, Limits::PAGE).await?, Kept::RuleState),
        Part::Quotas => {
            let all = QuotaFilter::default();
            named(quotas::list(connection, &all, name, Limits::PAGE).await?, Kept::Quota)
        }
        Part::Tokens => named(tokens::list(connection, name, Limits::PAGE).await?, Kept::Token),
        Part::Usage => {
            let after = match after {
                Some(After::Usage(key, start)) => Some((*key, *start)),
                _ => None,
            };
            let used = usage::list(connection, after, Limits::PAGE).await?;
            let next = used.last().filter(|_| used.len() == Limits::PAGE);
            let next = next.map(|last| After::Usage(last.key, last.period_start));
            (used.into_iter().map(Kept::Usage).collect(), next)
        }
        Part::Audit => {
            let after = match after {
                Some(After::Row(seq)) => Some(*seq),
                _ => None,
            };
            let all = AuditFilter::default();
            let page = trail::list(connection, &all, AuditOrder::OldestFirst, after, LARGE_ROWS).await?;
            let next = page.items.last().filter(|_| page.next.is_some()).map(|last| After::Row(last.seq));
            (page.items.into_iter().map(Kept::Audit).collect(), next)
        }
    })
}

fn named<T>(page: Page<T>, kept: fn(T) -> Kept) -> (Vec<Kept>, Option<After>) {
    (page.items.into_iter().map(kept).collect(), page.next.map(After::Name))
}

/// Begins a transaction that nobody else writes during, on a database that is empty then. Says where its audit trail ended before.
pub(crate) async fn begin(connection: &mut Connection, replace: bool) -> Result<Head> {
    sqlx::raw_sql(BEGIN_WRITE).execute(&mut *connection).await?;
    for statement in TAKE_TIME {
        sqlx::raw_sql(*statement).execute(&mut *connection).await?;
    }
    let row = sqlx::query(LOCK_HEAD).fetch_one(&mut *connection).await?;
    change::check_schema(row.try_get("schema_version")?)?;
    let head = Head { seq: count(row.try_get("seq")?), hash: bytes(row.try_get("hash")?)? };
    if replace {
        // The audit trail lets nobody take rows out of it: the tables go, and come back empty.
        for table in TABLES {
            let drop = format!("DROP TABLE IF EXISTS {table}");
            sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut *connection).await?;
        }
        for statement in DROP_BESIDE {
            sqlx::raw_sql(*statement).execute(&mut *connection).await?;
        }
        migrate::make_all(connection).await?;
        return Ok(head);
    }
    let mut is_empty = head.seq == 0;
    for table in TABLES.iter().filter(|table| **table != "control_head") {
        let any = format!("SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT 1) found");
        let rows: i64 = sqlx::query_scalar(AssertSqlSafe(any)).fetch_one(&mut *connection).await?;
        is_empty &= rows == 0;
    }
    if is_empty { Ok(head) } else { Err(not_empty()) }
}

/// Writes rows as they were.
pub(crate) async fn insert(connection: &mut Connection, rows: Vec<Kept>, at: i64) -> Result<()> {
    let mut sorted = Sorted::default();
    for row in rows {
        match row {
            Kept::Meta(name, value) => sorted.meta.push((name, value)),
            Kept::Tier(tier) => sorted.tiers.push(tier),
            Kept::Rule(rule) => sorted.rules.push(rule),
            Kept::RuleVersion(version) => sorted.versions.push(version),
            Kept::RuleState(state) => sorted.states.push(state),
            Kept::Quota(quota) => sorted.quotas.push(quota),
            Kept::Token(token) => sorted.tokens.push(token),
            Kept::Usage(usage) => sorted.usage.push(usage),
            Kept::Audit(entry) => sorted.audit.push(entry),
        }
    }
    sorted.insert(connection, at).await
}

#[derive(Default)]
struct Sorted {
    meta: Vec<(String, Vec<u8>)>,
    tiers: Vec<Stored<Tier>>,
    rules: Vec<RuleDocument>,
    versions: Vec<RuleVersion>,
    states: Vec<Stored<RuleState>>,
    quotas: Vec<QuotaKey>,
    tokens: Vec<Token>,
    usage: Vec<Usage>,
    audit: Vec<AuditEntry>,
}

impl Sorted {
    async fn insert(&self, connection: &mut Connection, at: i64) -> Result<()> {
        self.insert_rules(connection).await?;
        let into = "INSERT INTO control_meta (name, value) ";
        write(connection, into, &self.meta, |mut row, (name, value)| {
            row.push_bind(name).push_bind(value);
        })
        .await?;
        let overrides = |tier: &Stored<Tier>| json(&tier.value.overrides);
        let overrides = self.tiers.iter().map(overrides).collect::<Result<Vec<_>>>()?;
        let tiers: Vec<_> = self.tiers.iter().zip(overrides).collect();
        let into = "INSERT INTO quota_tiers (name, overrides, version, created_at, updated_at) ";
        write(connection, into, &tiers, |mut row, (tier, overrides)| {
            row.push_bind(&tier.value.name).push_bind(overrides).push_bind(number(tier.version));
            row.push_bind(At(tier.created_at)).push_bind(At(tier.updated_at));
        })
        .await?;
        let keys: Vec<&QuotaKey> = self.quotas.iter().collect();
        quotas::insert(connection, &keys).await?;
        let into = "INSERT INTO tokens \
             (id, prefix, hash, scope, tenant, name, created_at, created_by, expires_at, revoked_at) ";
        write(connection, into, &self.tokens, |mut row, token| {
            row.push_bind(&token.id).push_bind(&token.prefix).push_bind(&token.hash[..]);
            row.push_bind(token.scope.as_str()).push_bind(&token.tenant).push_bind(&token.name);
            row.push_bind(At(token.created_at)).push_bind(&token.created_by);
            row.push_bind(token.expires_at.map(At)).push_bind(token.revoked_at.map(At));
        })
        .await?;
        let seen = |usage: &Usage| Spending { usage: *usage, given_back: 0, at };
        usage::flush(connection, &self.usage.iter().map(seen).collect::<Vec<_>>()).await?;
        for entries in self.audit.chunks(ROWS_MAX) {
            change::insert(connection, entries).await?;
        }
        Ok(())
    }

    async fn insert_rules(&self, connection: &mut Connection) -> Result<()> {
        let into = "INSERT INTO rules (id, version, document, revision, created_at, updated_at) ";
        write(connection, into, &self.rules, |mut row, rule| {
            row.push_bind(&rule.id).push_bind(number(rule.version)).push_bind(&rule.document);
            row.push_bind(number(rule.revision))
                .push_bind(At(rule.created_at))
                .push_bind(At(rule.updated_at));
        })
        .await?;
        let into = "INSERT INTO rule_versions (id, version, document, revision, at, actor) ";
        write(connection, into, &self.versions, |mut row, version| {
            row.push_bind(&version.id).push_bind(number(version.version)).push_bind(&version.document);
            row.push_bind(number(version.revision)).push_bind(At(version.at)).push_bind(&version.actor);
        })
        .await?;
        let into =
            "INSERT INTO rule_states (rule_hash, rule, state, expires_at, version, created_at, updated_at) ";
        write(connection, into, &self.states, |mut row, state| {
            row.push_bind(fingerprint(&state.value.rule)).push_bind(&state.value.rule);
            row.push_bind(state.value.state.to_string()).push_bind(state.value.expires_at.map(At));
            row.push_bind(number(state.version))
                .push_bind(At(state.created_at))
                .push_bind(At(state.updated_at));
        })
        .await
    }
}

/// Of no rows there is no statement.
async fn write<'r, T>(
    connection: &mut Connection,
    into: &'static str,
    rows: &'r [T],
    mut row: impl FnMut(Separated<'_, Db, &'static str>, &'r T),
) -> Result<()> {
    for rows in rows.chunks(ROWS_MAX) {
        let mut query = QueryBuilder::<Db>::new(into);
        query.push_values(rows, &mut row);
        query.build().persistent(false).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Ends the transaction with a row of the audit trail, behind those of the backup, that says what this was. Returns where it ends now.
pub(crate) async fn end(
    connection: &mut Connection,
    who: &Who,
    at: i64,
    held: Head,
    (before, after): (Option<String>, String),
) -> Result<Head> {
    let mut last = Transaction::behind(connection, who, at, held);
    last.record(Action::Restore, Kind::Database, "all", before, Some(after));
    let head = last.head();
    last.commit().await?;
    Ok(head)
}
