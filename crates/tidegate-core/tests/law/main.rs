//! The proof of the law: every promise as a property on traces that mix everything that can happen to one counter.

mod subject; // the code under test, run on scripts
mod traces; // random scripts

mod agrees; // with the oracle, on every number
mod bounds; // the stated bound holds, against an exact window
mod bytes; // portable forms
mod calendars; // days of 23 and 25 hours, dates that do not exist
mod edges; // numbers at the very edge of what is allowed
mod limits; // constructors: what they refuse, and that nothing else overflows
mod packing; // states as a table keeps them
mod promises; // one property per promise
mod scripts; // counterexamples of the past, and examples for readers
mod shaping; // the leaky bucket that delays
mod worked; // numbers worked out by hand
