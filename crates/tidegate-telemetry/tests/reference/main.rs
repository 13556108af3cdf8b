//! The metrics of the reference server: its names, bounded memory, the page, Prometheus, statsd over real sockets, and the document.

#[path = "../support/mod.rs"]
mod support; // books

mod rig; // rules, requests and numbers

mod names; // what descriptors are called
mod bounds; // what a flood of names costs
mod told; // the page, and Prometheus
mod sent; // statsd
mod documents; // the page for users
