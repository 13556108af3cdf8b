//! Real stores for tests: Redis and Valkey, alone, as a cluster, behind sentinels; PostgreSQL; and a proxy that breaks connections.
//!
//! Everything is started for one test, on free ports of the loopback and in a temporary folder, and is gone when it is dropped, or when
//! the test's process ends in any other way. Nothing here needs a runtime, so that any test can use it. It is a tool of the tests: no
//! crate of the product may depend on it, other than to be tested.
//!
//! ```no_run
//! use tidegate_testbed::{Kind, Options, Proxy, Server};
//!
//! let server = Server::start(Kind::Redis, &Options::new())?;
//! let proxy = Proxy::start(server.address())?;
//! proxy.cut_after_command(1); // The next command is carried out, and its reply is lost.
//! // … a client is sent to proxy.address() …
//! assert_eq!(server.command(&["GET", "counter"]).text().as_deref(), Some("1"));
//! assert!(server.immortal_keys(&[]).is_empty());
//! # Ok::<(), String>(())
//! ```
//!
//! Start at [`Server`]; [`Cluster`] and [`Sentinels`] are made of it. [`Proxy`] stands before any of them. [`ServerClock`] moves the time
//! of a running server: a server asks the machine for it, so a small library in C (`shim/clock.c`) is put before the C library. It is the
//! only C of the project, because what a C program is linked with cannot be replaced from outside in any other language without `unsafe`.
//!
//! Functions return what went wrong as a text, with the end of the server's log, since all that a test can do with it is to show it. Those
//! that would only fail where the test itself is wrong, such as [`Server::command`], panic.

mod find; // where the programs are
mod go; // programs that Go builds
mod reference; // envoyproxy/ratelimit, which is built first
mod wait; // until something has happened
mod client; // asking a server something
mod server; // one server
mod certificates; // who it says it is
mod postgres; // the store of the control plane
mod say; // a word to it
mod disk; // one that gets full
mod slots; // which slot a key is in
mod cluster; // several servers that share the slots
mod sentinels; // a primary, a replica, and who watches them
mod proxy; // what stands between and breaks things
mod clock; // the time that a server sees

pub use certificates::TlsFiles;
pub use client::{Client, Reply};
pub use clock::{ServerClock, clock_shim};
pub use cluster::Cluster;
pub use disk::Disk;
pub use find::{Kind, find, find_envoy, find_schemathesis};
pub use go::GoProgram;
pub use postgres::{POSTGRES_VARIABLE, Postgres, PostgresOptions, find_postgres};
pub use proxy::{ConnectionCounts, Counts, Proxy, Way};
pub use reference::{REFERENCE_VARIABLE, REFERENCE_VERSION, find_reference_server, reference_server};
pub use sentinels::Sentinels;
pub use server::{Options, Server, free_port};
pub use slots::{SLOTS, slot_of};
pub use wait::until;
