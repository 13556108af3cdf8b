//! The entrances of Tidegate: RLS and HTTP. All end in [`decide`].
//!
//! A connection is accepted and given to a thread (`net`), its requests come to `serve`, are translated by `rls` or `http`, decided through
//! [`Core::decide`] and told of by `rls` or `reply`.

mod control; // how far it is with what the control plane keeps
mod decide; // from a query to a decision
mod http; // the plain entrance
mod internal_call; // calls that come from inside
mod explain; // why?
mod ledger; // what calendars were charged, until it is written down
mod net; // sockets and threads
mod node; // what all entrances share
mod policy; // what is answered when nobody can count
mod receipts; // charges that can be given back
pub mod reply; // what callers are told
pub mod rls; // Envoy's rate limit protocol
mod stand_in; // in the place of envoyproxy/ratelimit
mod serve; // which entrance answers
mod tls; // certificates
mod waiting; // futures of one thread
mod xds; // the server that rules come from

pub use control::ControlStatus;
pub use decide::{Asks, By, Decision, Room, TAKES_MAX, decide, decide_as};
pub use explain::{
    ExplainedBound, ExplainedCounter, ExplainedDescriptor, ExplainedDomain, ExplainedEntry, ExplainedLimit,
    ExplainedState, ExplainedStep, Explanation, Led, LimitFate, explain, explain_as,
};
pub use internal_call::{
    InternalCalls, MAX_AGE_DEFAULT, Refused, SECRET_BYTES_MIN, SECRETS_MAX, SecretsError, Verified, sign,
};
pub use ledger::{Fresh, Ledger, Reset, Seen, Spent};
pub use net::{
    Converse, Cores, Entrance, Lifetime, Line, Listener, Nobody, Phase, PlaceLimits, Places, Protocol, Serve,
    listen,
};
pub use node::{Asker, Core, Decided, INTERNAL_CALL, InForce, Node, ReplyStyle, Standing};
pub use policy::StoreFailures;
pub use receipts::{CHARGES_MAX, Charges, Receipts};
pub use serve::Entrances;
pub use stand_in::{StandIn, reference_gauges};
pub use tls::{Tls, TlsError, TlsFiles};
pub use waiting::at_once;
pub use xds::XdsStatus;
