//! The metrics that users of envoyproxy/ratelimit chart: its names, its arithmetic, its page, statsd and Prometheus.
//!
//! [`ReferenceStats`] holds the numbers, for as long as the node runs. [`ReferenceNames`] knows what the rules of one book are called, and
//! is made with every book; [`ReferenceNames::judged`] is on the path of decisions. Everything else reads: [`ReferenceStats::page`],
//! [`ReferenceStats::prometheus`], [`statsd::start`].
//!
//! There every name that a request can make up lives for ever. Here there are so many names and no more: see [`ReferenceStatsSettings`].

mod table; // every metric

mod tags; // what is put behind every name
mod spelling; // what a descriptor is called
mod registry; // so many names and no more
mod arithmetic; // what one verdict adds to which count
mod calls; // how long calls take

mod stats; // all numbers
mod names; // what the rules of a book are called
mod sums; // what was counted so far

mod page; // names and values, as lines
mod prometheus; // the page that is scraped
pub mod statsd; // deltas, sent

pub use arithmetic::Judged;
pub use calls::ReferenceMethod;
pub use names::ReferenceNames;
pub use prometheus::PROMETHEUS_CONTENT_TYPE;
pub use stats::{ReferenceStats, ReferenceStatsSettings};
pub use sums::{LocalCacheGauges, PoolGauges, ReferenceGauges};
pub use table::{REFERENCE_TABLE, ReferenceKind, ReferenceMetric};
