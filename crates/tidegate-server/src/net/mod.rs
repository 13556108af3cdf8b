//! Sockets: who is let in, which thread serves it, and for how long. Knows nothing of what is asked there.

mod listen; // sockets that are bound
mod accept; // new connections
mod connection; // one connection, from its first byte to its last
mod conversation; // one of HTTP/2
mod cores; // the threads that decide
mod stream; // TCP, or a socket of the file system
mod counted; // how much a connection has said
mod places; // how many connections there may be

pub use accept::Entrance;
pub use connection::{Lifetime, Protocol, Serve};
pub use conversation::{Converse, Line, Nobody};
pub use cores::{Cores, Phase};
pub use listen::{Listener, listen};
pub use places::{PlaceLimits, Places};
