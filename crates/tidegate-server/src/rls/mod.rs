//! Envoy's rate limit protocol. Calls come on a connection (`session`), each as bytes in a frame of gRPC (`grpc`); one is read by borrowing
//! from them (`request`), decided (`answer`; those that came together with a look ahead, `together`) and written straight into the bytes of
//! its answer (`response`).

mod answer; // one call, from bytes to bytes
pub(crate) mod beside; // health and reflection
mod grpc; // frames, statuses, deadlines
mod session; // the calls on one connection
mod request; // what comes
pub(crate) mod response; // what goes
mod settle; // reservations that a call names
mod together; // calls that came together
mod wire; // protobuf

pub use answer::{Answered, CallError, LeaseId};
pub use beside::{Beside, SERVICE};
pub use grpc::{MESSAGE_BYTES_MAX, SHOULD_RATE_LIMIT};
pub use request::{DESCRIPTORS_MAX, ENTRIES_MAX, RateLimitRequest};
pub use response::{Code, CurrentLimit, FieldWriter, ListWriter, ResponseWriter, Status};
pub use session::Session;
pub use wire::Undecodable;
