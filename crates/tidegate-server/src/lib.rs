//! The entrances of Tidegate. So far what they all end in, [`decide`], and the messages of one of them, [`rls`].

mod decide; // from a query to a decision
mod explain; // why?
pub mod rls; // Envoy's rate limit protocol

pub use decide::{Decision, Room, TAKES_MAX, decide};
pub use explain::{
    ExplainedBound, ExplainedCounter, ExplainedDescriptor, ExplainedDomain, ExplainedEntry, ExplainedLimit,
    ExplainedState, ExplainedStep, Explanation, Led, LimitFate, explain,
};
