//! What the benches of a running node have in common: calls of `ShouldRateLimit` from one thread, servers in processes of their own, what
//! those used of the processor, and the figures that a page is made from.

pub mod plan; // who calls, and for how long

pub mod messages; // the messages of the protocol
pub mod speech; // what is asked, and where the answer is
pub mod mix; // who asks for what
pub mod requests; // calls, encoded before anything is measured

pub mod bare; // a server with a fixed answer
pub mod pin; // who runs where
pub mod process; // a server in a process of its own

pub mod reference; // envoyproxy/ratelimit, as such a server
pub mod store; // a real Redis for those who count in one
pub mod relay; // what a node asks it
pub mod plain; // the same without a node

pub mod client; // one connection, of gRPC
pub mod single; // one with a call at a time
mod http; // … where its answer ends in HTTP/1.1,
mod resp; // … and in RESP
pub mod generator; // many of them, closed loop and open
pub mod tally; // what became of calls
pub mod accounting; // … held against what the node says
pub mod witness; // a loop that remembers every call
pub mod windows; // how many were admitted in the worst window

pub mod figures; // what a page is made from
pub mod machine; // what it was measured on
pub mod results; // the raw numbers
