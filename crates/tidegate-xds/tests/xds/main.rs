//! The client as a server sees it, over real sockets.

mod support;

mod messages; // what is said on the wire
mod client; // subscriptions, answers, streams that end
mod tls; // certificates
