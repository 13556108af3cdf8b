//! Tokens, and the key of their hashes.

use sqlx::Row as _;

use super::{Connection, Db, Transaction, one_more, page};
use crate::error::{Error, Result};
use crate::model::{Action, Kind, NewToken, Page, Token};
use crate::store::values::{At, bytes, parsed};
use crate::store::{json, random};

const TOKEN_KEY: &str = "token_key";

/// The key that secrets are hashed with, if it was made.
pub(crate) async fn key(connection: &mut Connection) -> Result<Option<[u8; 32]>> {
    let query = sqlx::query_scalar("SELECT value FROM control_meta WHERE name = $1");
    let value: Option<Vec<u8>> = query.bind(TOKEN_KEY).fetch_optional(connection).await?;
    value.map(bytes).transpose()
}

/// The same; it is made now if nobody did before. It is a secret, so the audit trail has nothing to say of it.
pub(crate) async fn make_key(to: &mut Transaction<'_>) -> Result<[u8; 32]> {
    if let Some(key) = key(to.connection).await? {
        return Ok(key);
    }
    let key: [u8; 32] = random()?;
    let query = sqlx::query("INSERT INTO control_meta (name, value) VALUES ($1, $2)");
    query.bind(TOKEN_KEY).bind(&key[..]).execute(&mut *to.connection).await?;
    Ok(key)
}

pub(crate) async fn by_prefix(connection: &mut Connection, prefix: &str) -> Result<Option<Token>> {
    let query = "SELECT id, prefix, hash, scope, tenant, name, created_at, created_by, expires_at, revoked_at \
                 FROM tokens WHERE prefix = $1";
    let row = sqlx::query(query).bind(prefix).fetch_optional(connection).await?;
    row.as_ref().map(record).transpose()
}

pub(crate) async fn list(
    connection: &mut Connection,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<Token>> {
    let query = "SELECT id, prefix, hash, scope, tenant, name, created_at, created_by, expires_at, revoked_at \
                 FROM tokens WHERE id > $1 ORDER BY id LIMIT $2";
    let after = after.unwrap_or_default();
    let rows = sqlx::query(query).bind(after).bind(one_more(limit)).fetch_all(connection).await?;
    Ok(page(rows.iter().map(record).collect::<Result<_>>()?, limit, |token: &Token| token.id.clone()))
}

async fn by_id(connection: &mut Connection, id: &str) -> Result<Option<Token>> {
    let query = "SELECT id, prefix, hash, scope, tenant, name, created_at, created_by, expires_at, revoked_at \
                 FROM tokens WHERE id = $1";
    let row = sqlx::query(query).bind(id).fetch_optional(connection).await?;
    row.as_ref().map(record).transpose()
}

fn record(row: &<Db as sqlx::Database>::Row) -> Result<Token> {
    let At(created_at) = row.try_get("created_at")?;
    let expires_at: Option<At> = row.try_get("expires_at")?;
    let revoked_at: Option<At> = row.try_get("revoked_at")?;
    Ok(Token {
        id: row.try_get("id")?,
        prefix: row.try_get("prefix")?,
        hash: bytes(row.try_get("hash")?)?,
        scope: parsed(row.try_get("scope")?)?,
        tenant: row.try_get("tenant")?,
        name: row.try_get("name")?,
        created_at,
        created_by: row.try_get("created_by")?,
        expires_at: expires_at.map(|At(us)| us),
        revoked_at: revoked_at.map(|At(us)| us),
    })
}

pub(crate) async fn create(to: &mut Transaction<'_>, new: NewToken) -> Result<Token> {
    if by_prefix(to.connection, &new.prefix).await?.is_some() {
        return Err(Error::invalid("prefix", "another token has it; make a new secret"));
    }
    let token = Token {
        id: crate::store::values::hex(&random::<8>()?),
        prefix: new.prefix,
        hash: new.hash,
        scope: new.scope,
        tenant: new.tenant,
        name: new.name,
        created_at: to.at,
        created_by: to.actor().into(),
        expires_at: new.expires_at,
        revoked_at: None,
    };
    to.record(Action::Create, Kind::Token, &token.id, None, Some(json(&token)?));
    sqlx::query(
        "INSERT INTO tokens (id, prefix, hash, scope, tenant, name, created_at, created_by, expires_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(&token.id)
    .bind(&token.prefix)
    .bind(&token.hash[..])
    .bind(token.scope.as_str())
    .bind(&token.tenant)
    .bind(&token.name)
    .bind(At(token.created_at))
    .bind(&token.created_by)
    .bind(token.expires_at.map(At))
    .execute(&mut *to.connection)
    .await?;
    Ok(token)
}

/// Makes one worth nothing, for good. One that was revoked before stays as it is.
pub(crate) async fn revoke(to: &mut Transaction<'_>, id: &str) -> Result<Token> {
    let old = by_id(to.connection, id).await?.ok_or(Error::NotFound { what: "token" })?;
    if old.revoked_at.is_some() {
        return Ok(old);
    }
    let token = Token { revoked_at: Some(to.at), ..old.clone() };
    to.record(Action::Revoke, Kind::Token, id, Some(json(&old)?), Some(json(&token)?));
    let query = sqlx::query("UPDATE tokens SET revoked_at = $1 WHERE id = $2");
    query.bind(At(to.at)).bind(id).execute(&mut *to.connection).await?;
    Ok(token)
}
