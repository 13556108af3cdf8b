//! What the tests have in common: a server, and somebody who wants its rules.

pub(crate) mod server; // an xDS server
pub(crate) mod subscriber; // who judges, and remembers
