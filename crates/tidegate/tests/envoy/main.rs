//! The real Envoy in front: what its users rely on, each behaviour as a test. A test starts Envoy, an upstream, a node or two and, where it
//! needs one, Redis; all on free ports of the loopback, and all gone with it.
//!
//! The configuration of Envoy is made of the pieces that `docs/envoy.md` shows, so what is documented is what runs. `cargo xtask envoy`
//! makes a table of it: with `TIDEGATE_ENVOY_FIGURES=<file>` tests add lines of JSON with what they measured.
//!
//! Where there is no Envoy and none can be installed, the tests say so and are skipped; where `CI=true`, they fail.

#[allow(
    dead_code,
    unused_imports,
    reason = "these clients are also for the tests of a node, which need more of them"
)]
#[path = "../node/support/mod.rs"]
mod support;

mod documents; // the pieces of YAML that the documents show
mod config; // Envoy's configuration, made of them
mod envoy; // its process
mod upstream; // what it protects
mod rig; // all of it together
mod load; // clients that never stop
mod figures; // what was measured

mod answers; // admissions and refusals, as callers see them
mod failures; // nodes and stores that do not answer
mod places; // requests in flight
mod costs; // what is known only at the end
mod changes; // rules, stores and nodes that change under load
mod latency; // what the filter costs
