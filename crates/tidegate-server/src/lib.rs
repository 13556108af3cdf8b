//! The entrances of Tidegate. So far what they all end in, [`decide`], and the messages of one of them, [`rls`].

mod decide; // from a query to a decision
mod internal_call; // calls that come from inside
pub mod reply; // what callers are told about it over HTTP
pub mod rls; // Envoy's rate limit protocol

pub use decide::{Decision, Room, TAKES_MAX, decide};
pub use internal_call::{
    InternalCalls, MAX_AGE_DEFAULT, Refused, SECRET_BYTES_MIN, SECRETS_MAX, SecretsError, Verified, sign,
};
