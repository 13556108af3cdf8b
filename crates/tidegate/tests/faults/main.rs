//! A node whose store is in trouble: rows of the table of faults, each played on real servers, under a load of clients that give up after
//! 20 ms, and judged by an auditor that has every answer.
//!
//! A row is a test. It breaks something while the load goes on, and tells the auditor what must hold (`report.rs` says what exactly is
//! asserted). Rows run one after the other, whatever the number of threads, because each measures times.
//!
//! - `TIDEGATE_FAULTS_LONG=1` gives faults their full length, and plays every row on Redis and on Valkey.
//! - `TIDEGATE_UNPROTECTED=1` switches off what protects each row, and then passes only if the auditor finds what that breaks.
//! - `TIDEGATE_FAULTS_FIGURES=<file>` has each row add a line of JSON; `cargo xtask faults` makes a table of them.

#[allow(dead_code, reason = "these clients are also for the tests of a node, which need more of them")]
#[path = "../node/support/mod.rs"]
mod support;

mod audit; // what was answered, and whether that is right
mod load; // clients that never stop
mod watch; // what the node says about itself meanwhile
mod rig; // servers, nodes, keys and a load
mod report; // what must hold, and what came out
mod switch; // what is switched off, and how long things take

mod failover; // rows 1 to 4: primaries that die, hang and come back
mod trouble; // rows 9 to 12: servers that answer, but not what is asked
mod outage; // rows 14 and 15: nobody answers
mod network; // rows 16 to 19: what is between breaks
mod death; // row 37: the node itself
