//! All counters as a file.

/// Placeholder.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("x")]
pub struct SnapshotError;

/// Placeholder.
pub struct Loaded;
