//! The audit trail and what follows it.
