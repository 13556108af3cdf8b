//! Envoy's rate limit protocol. So far its messages: read from bytes and written into them, without a copy between.

mod request; // what comes
mod response; // what goes
mod wire; // protobuf

pub use request::{DESCRIPTORS_MAX, ENTRIES_MAX, RateLimitRequest};
pub use response::{Code, CurrentLimit, ResponseWriter, Status};
pub use wire::Undecodable;
