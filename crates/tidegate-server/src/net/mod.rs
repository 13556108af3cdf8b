//! Sockets: who is let in, which thread serves it, and for how long. Knows nothing of what is asked there.

mod accept; // new connections
mod connection; // one connection, from its first byte to its last
mod cores; // the threads that decide
mod counted; // how much a connection has said
mod places; // how many connections there may be

pub use accept::{Entrance, Listener, listen};
pub(crate) use connection::Peer;
pub use connection::{Lifetime, Protocol, Serve};
pub use cores::{Cores, Phase};
pub use places::{PlaceLimits, Places};
