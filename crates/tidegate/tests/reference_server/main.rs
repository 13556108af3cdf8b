//! The real reference server (envoyproxy/ratelimit, built by Go) beside ours, which takes its place: one Redis, one random stream of
//! requests through both doors, and whatever differs in an answer, a counter, its time to live or a stat, and is not in the one list
//! of intended differences (`differences.rs`), fails.
//!
//! Before every request both have the same counters, so that a difference is found where it arises, and does not hide the next. Time
//! is the machine's: a step in which a window ends is played but not compared.
//!
//! The pinned version is older than some of what ours has: wildcards that do not end a value, `metadata`, hits that are given back and
//! stats over UDP cannot be compared with it.

#[allow(
    dead_code,
    unused_imports,
    reason = "these clients are also for the tests of a node, which need more of them"
)]
#[path = "../node/support/mod.rs"]
mod support;

mod dice; // random choices
mod rules; // random rules, and what finds them
mod requests; // random requests
mod statsd; // who is told the stats
mod servers; // both servers
mod answers; // what was answered
mod differences; // the list
mod play; // one stream, two servers
mod harness; // is it quiet where it should be, and loud where it should be?
mod corners; // what is not left to chance
mod ours; // ours in its place
mod error_texts; // what is said of bad rules
