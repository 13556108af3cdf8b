//! The server's side of HTTP/2 (RFC 9113), as far as gRPC needs it: bytes in, events and bytes out. It knows no socket, no clock and no
//! task, so that every conversation can be replayed; and it allocates nothing for a call whose headers are those of the one before.
//!
//! Start at [`Connection::next`]. Everything that a client can make large has a bound in `bounds.rs`.

mod bounds; // how much of everything there may be
mod frame; // frames, and what they are called
mod huffman; // texts as clients shorten them
mod hpack; // header blocks, read
mod encode; // header blocks, written
mod head; // what a request says before its body
mod stream; // one call
mod connection; // all of them
mod receive; // what comes
mod send; // what goes

pub use bounds::{HEADER_BYTES_MAX, OUTPUT_BYTES_MAX, STREAMS_MAX};
pub use connection::{Broken, Connection, Event};
pub use frame::Code;
pub use head::Head;
pub use stream::{Delivery, Field, StreamId, Then};
