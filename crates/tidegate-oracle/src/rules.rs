//! The slow twin of the book: which rules a request finds, what becomes of each, and which counters are asked.
//!
//! It is `docs/rules.md` written out: lists of children are gone through one by one, wildcards match by their definition, and a
//! counter is known by everything that makes it another one, as text. Start at [`judge`]. [`Dice`] draws trees and requests,
//! [`RuleTree::to_yaml`] writes a tree as the rule file that means it.

mod tree; // what a rule file says
mod request; // what a request says
mod callers; // what is known about callers
mod judged; // what the judge says

mod judge; // the rules of the rules
mod walk; // from entries to a place in the tree
mod merge; // several findings, one counter

mod dice; // choices from a list of bytes
mod random; // trees and requests whose parts collide
mod yaml; // a tree as a rule file

pub use callers::{Caller, Exception, Grant, Known};
pub use dice::Dice;
pub use judge::{judge, judge_for};
pub use judged::{Asked, Counter, Fate, Found, Judged, LimitName, Open, Role, RuleName, Shape};
pub use request::{Descriptor, OwnLimit, Request};
pub use tree::{Exempt, Matching, Node, Patch, RuleLimit, RuleTree, Tier};
pub use walk::fits;
