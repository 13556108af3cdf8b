//! What is said to both databases in the same words. This folder is compiled once for each: `Db` and `Connection` are that one's.

pub(crate) mod migrate;
pub(crate) mod change; // one transaction, with its rows of the audit trail
pub(crate) mod quotas;
pub(crate) mod tiers;
pub(crate) mod rules;
pub(crate) mod states;
pub(crate) mod tokens;
pub(crate) mod trail;
pub(crate) mod usage;
pub(crate) mod backup; // all of it, out and in

pub(crate) use change::Transaction;

use super::{
    BEGIN_MIGRATION, BEGIN_WRITE, Connection, DROP_BESIDE, Db, FIND_HEAD, LOCK_HEAD, MIGRATIONS, NOTIFY,
    TAKE_TIME,
};
use crate::error::{Error, Result};
use crate::model::{Outcome, Version};

/// Rows in one statement: each has at most a dozen values, and SQLite takes 32 766 in all.
const ROWS_MAX: usize = 1000;

/// Is this what the caller expects to replace?
fn expect(expected: Option<Version>, current: Version) -> Result<()> {
    match expected {
        Some(expected) if expected != current => Err(Error::Conflict { current }),
        _ => Ok(()),
    }
}

fn outcome(was_there: bool) -> Outcome {
    if was_there { Outcome::Updated } else { Outcome::Created }
}

/// One more than is asked for tells whether there is another page.
fn one_more(limit: usize) -> i64 {
    limit.min(crate::model::Limits::PAGE) as i64 + 1
}

/// Takes that one off again; says from where to go on.
fn page<T>(mut items: Vec<T>, limit: usize, name: impl Fn(&T) -> String) -> crate::model::Page<T> {
    let limit = limit.min(crate::model::Limits::PAGE);
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(name);
    crate::model::Page { items, next }
}
