//! What callers are told about a decision over HTTP. Pure functions from a [`crate::Decision`] to bytes: nothing here knows which server
//! sends them.
//!
//! Somebody who answers makes a [`Told`] of the decision, then writes [`headers`], and a [`body`] if it is refused; or the result of a
//! [`check`].

mod text; // numbers and JSON as bytes

mod names; // what limits are called
mod told; // what there is to tell

pub mod body; // bodies of refusals
pub mod check; // results of checks
pub mod headers; // headers, in several dialects

pub use names::PolicyNames;
pub use told::{Code, Span, Told, ToldLimit};
