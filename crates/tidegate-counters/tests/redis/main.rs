//! The store in Redis and Valkey when something goes wrong: named after the rows of the table of faults that they prove.
//!
//! Real servers, real time, real connections. Where no request may fail, an operation has far more time than in service, so that a busy
//! machine is not taken for a fault; where replies are lost on purpose, it has little.

mod support; // servers, threads and counters for all of them

mod scripts; // row 5: the store forgets the scripts
mod moving; // rows 6 and 7: slots move, whole and half
mod failover; // row 8: another server becomes the primary
mod readonly; // a primary becomes a replica, and its name another server's
mod lost; // row 20: replies are lost after the charge
mod clocks; // row 21: the store's clock jumps
mod lives; // row 28: how long keys live
mod parts; // counters on several servers, cut at every place
mod dropped; // whoever asked has gone
mod many; // several nodes and threads at once
mod calls; // what a decision costs the store
mod foreign; // values that are not ours
mod ill; // rows 2 and 12: a server is silent, or forgets
mod resets; // counters are reset while they are asked about
mod rights; // what a user of the store has to be allowed
mod saturation; // who is refused because of units that come back
