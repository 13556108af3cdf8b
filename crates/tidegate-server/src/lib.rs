//! The entrances of Tidegate. So far what they all end in: [`decide`].

mod decide; // from a query to a decision

pub use decide::{Decision, decide};
