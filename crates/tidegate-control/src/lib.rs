//! The control plane's memory: quotas, tiers, rules by API, tokens and the audit trail, in SQLite or PostgreSQL.
//!
//! [`ControlStore`] is the one front. Both databases do the same behind it: every change is one transaction with exactly one row of the
//! audit trail, and the number of that row is the revision of the whole control plane. A decision never waits for any of this: nodes read
//! a [`Snapshot`] at their start, follow by [`ControlStore::changes_since`], and go on with what they have when the database is away.
//!
//! ```no_run
//! # async fn example() -> Result<(), tidegate_control::Error> {
//! use tidegate_control::{ControlStore, Options, Quota, Who};
//!
//! let store = ControlStore::open(&Options::sqlite("data/control.sqlite")).await?;
//! let who = Who::new("alice", "127.0.0.1");
//! let quota = Quota { tier: Some("pro".into()), ..Quota::of("key-1") };
//! let written = store.put_quota(&who, quota, None).await?;
//! assert_eq!(written.now.version, store.revision().await?);
//! # Ok(())
//! # }
//! ```

mod error; // what can go wrong, for callers to tell apart
mod model; // what is kept
mod audit; // the trail: how a row is hashed, and how a chain of them is verified
mod audit_line; // one row as a line of JSON
mod audit_sink; // the trail as lines of a file, or on standard output
mod backup; // all that is kept, as lines of JSON
mod store; // where it is kept
mod last_good; // what a node knew last, for a start without the store
mod follow; // how a node follows what is kept
pub mod plane; // what is asked of the process that this is part of
pub mod api; // how it is asked for, over HTTP

pub use audit::{AuditEntry, Broken, Chain, GENESIS, HASH_BYTES};
pub use audit_line::AuditLine;
pub use audit_sink::{AuditSink, SinkProgress, SinkTo};
pub use backup::{BackedUp, Backup, Restored};
pub use error::{Error, Result};
pub use follow::{Follow, Sink};
pub use last_good::LastGood;
pub use model::{
    Action, AuditFilter, AuditOrder, Change, Changes, Head, Kind, Limits, NewToken, Outcome, Override, Page,
    Quota, QuotaFilter, QuotaKey, Revision, RuleDocument, RuleState, RuleVersion, Scope, SnapshotPage,
    Spending, State, Stored, Tier, Token, Unit, Usage, Verification, Version, Who, Written,
};
pub use store::{ControlStore, Options, SCHEMA_VERSION, Snapshot, Wakeups};
