//! The proof of the book: random rules and requests, judged by the core and by a judge that did not look.

#[path = "../law/subject.rs"]
#[expect(dead_code, reason = "only limits are made here, no steps")]
mod subject; // limits from the oracle's words

mod cases; // random trees with requests
mod drafts; // the oracle's trees as the core's
mod compare; // a book beside the judge

mod agrees; // on every rule found and every counter asked
mod corners; // do the random cases reach everything?
mod recorded; // what is told of a walk
mod kept; // where counters are kept
mod callers; // what is kept about callers, as rules see it
mod ids; // different rules have different ids
mod states; // rules that somebody put in another state
mod shares; // `enforce: N%`
mod worked; // examples by hand, and disagreements of the past
