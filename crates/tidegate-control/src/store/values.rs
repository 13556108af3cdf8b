//! How values cross the border between Rust and the two databases.

use std::str::FromStr;

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::sqlite::{SqliteArgumentsBuffer, SqliteTypeInfo, SqliteValueRef};
use sqlx::{Decode, Encode, Postgres, Sqlite, Type};

use crate::error::{Error, Result};

/// An instant in microseconds since 1970: TIMESTAMPTZ in PostgreSQL, exactly, and a plain number in SQLite.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At(pub(crate) i64);

/// PostgreSQL counts from 2000.
const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;

/// As the catalogue of every PostgreSQL numbers it.
const TIMESTAMPTZ: Oid = Oid(1184);

impl Type<Postgres> for At {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ)
    }
}

impl Encode<'_, Postgres> for At {
    fn encode_by_ref(&self, to: &mut PgArgumentBuffer) -> std::result::Result<IsNull, BoxDynError> {
        let us = self.0.checked_sub(POSTGRES_EPOCH_US).ok_or("a time that PostgreSQL cannot hold")?;
        to.extend(&us.to_be_bytes());
        Ok(IsNull::No)
    }
}

impl Decode<'_, Postgres> for At {
    fn decode(value: PgValueRef<'_>) -> std::result::Result<Self, BoxDynError> {
        if value.format() == PgValueFormat::Text {
            return Err("times are only read as numbers".into());
        }
        let us = i64::from_be_bytes(value.as_bytes()?.try_into()?);
        Ok(Self(us.checked_add(POSTGRES_EPOCH_US).ok_or("a time that is too far away")?))
    }
}

impl Type<Sqlite> for At {
    fn type_info() -> SqliteTypeInfo {
        <i64 as Type<Sqlite>>::type_info()
    }

    fn compatible(of: &SqliteTypeInfo) -> bool {
        <i64 as Type<Sqlite>>::compatible(of)
    }
}

impl Encode<'_, Sqlite> for At {
    fn encode_by_ref(&self, to: &mut SqliteArgumentsBuffer) -> std::result::Result<IsNull, BoxDynError> {
        <i64 as Encode<'_, Sqlite>>::encode_by_ref(&self.0, to)
    }
}

impl<'r> Decode<'r, Sqlite> for At {
    fn decode(value: SqliteValueRef<'r>) -> std::result::Result<Self, BoxDynError> {
        <i64 as Decode<'r, Sqlite>>::decode(value).map(Self)
    }
}

/// For a column. What is larger than a column holds cannot have come from one, and is equal to nothing there.
pub(crate) fn number(of: u64) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}

/// From a column that holds no negative numbers.
pub(crate) fn count(of: i64) -> u64 {
    u64::try_from(of).unwrap_or(0)
}

/// From a column that was written by us.
pub(crate) fn parsed<T: FromStr<Err = String>>(text: &str) -> Result<T> {
    text.parse().map_err(|why: String| odd(&why))
}

pub(crate) fn bytes<const N: usize>(of: Vec<u8>) -> Result<[u8; N]> {
    of.try_into().map_err(|of: Vec<u8>| odd(&format!("{} bytes where {N} belong", of.len())))
}

/// Somebody else has written into the database, or it is damaged.
pub(crate) fn odd(why: &str) -> Error {
    Error::unavailable(format!("it holds what no Tidegate writes: {why}"))
}

/// For what is indexed and may be longer than an index of PostgreSQL holds.
pub(crate) fn fingerprint(text: &str) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    hex(hash.as_ref())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
