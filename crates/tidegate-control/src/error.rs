//! What can go wrong, for callers to tell apart.

use crate::model::Version;

/// Why something was not done. Nothing was changed, but for [`Error::Unavailable`], after which nobody knows: a change may have been made
/// just before the connection broke. Whoever asks again with the version it expects finds out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else was first: this is the version there is now, 0 if there is none. Read it, and decide again.
    #[error("somebody else changed it: the version is {current} now")]
    Conflict {
        /// The version there is.
        current: Version,
    },
    /// There is no such thing.
    #[error("there is no such {what}")]
    NotFound {
        /// What was looked for: `quota`, `tier`, `rule`.
        what: &'static str,
    },
    /// The database did not do it, or not in time. Try again later.
    #[error("the control plane's database is not available: {why}")]
    Unavailable {
        /// For the operator.
        why: String,
    },
    /// A newer Tidegate has changed the database. What is there can be read, but not written by this one.
    #[error(
        "the database has schema {version}, made by a newer Tidegate: this one only reads it; upgrade this node to write"
    )]
    TooNew {
        /// The schema's version.
        version: u32,
    },
    /// It cannot be kept as it is. Asking again will not help.
    #[error("{field}: {why}")]
    Invalid {
        /// Which field, as callers name it: `overrides[2].descriptor`.
        field: String,
        /// What is wrong with it.
        why: String,
    },
}

impl Error {
    pub(crate) fn invalid(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), why: why.into() }
    }

    pub(crate) fn unavailable(why: impl Into<String>) -> Self {
        Self::Unavailable { why: why.into() }
    }
}

/// Of all that the store does.
pub type Result<T> = std::result::Result<T, Error>;
