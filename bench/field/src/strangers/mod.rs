//! `cargo xtask bench strangers`: is our own generator to be believed, and do we speak HTTP/2 as others understand it?
//!
//! The same node is called by our generator and by those that we did not write ([`generators`]): ghz and h2load over gRPC, wrk over HTTP,
//! in turns, each on the generator's core. What each says of itself is held against what the node counted ([`measure`]). Mixes of callers,
//! descriptors and costs are accounted for to the last call ([`accounts`]). h2spec looks at every port ([`spec`]).

mod accounts; // every call accounted for
mod child; // a program of somebody else
mod generators; // those that we did not write
mod measure; // they take turns
mod node; // whom they call
mod report; // Markdown from raw numbers
mod results; // the raw numbers
mod spec; // what h2spec says

use crate::arguments::Run;

/// Measures, prints the page, and writes it where it is published if it is to.
pub(crate) fn run(run: Run) -> Result<(), String> {
    let results = measure::all(run.extent)?;
    crate::pages::publish(run.write, "strangers", results.json(), report::markdown(&results))
}
