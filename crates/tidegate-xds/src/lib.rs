//! Rules by xDS: a client of an aggregated discovery service that asks for all rate limit configurations and follows them.
//!
//! It knows the protocol, and not what rules mean: each set of resources becomes texts in the format of rule files, is shown to a
//! [`Subscriber`], and is accepted or rejected by what that one says. Start at [`follow`].

mod backoff; // how long to wait before the next attempt
mod client; // one stream after the other
mod connect; // sockets, certificates, HTTP/2
mod messages; // what is said on the wire
mod resources; // what a response delivers, as texts of rules
mod settings; // whom to ask, and how
mod stream; // one stream, from the subscription to its end

pub use client::{Event, Subscriber, Update, follow};
pub use messages::{
    Any, DiscoveryRequest, DiscoveryResponse, Node, RateLimitConfig, RateLimitDescriptor, RateLimitPolicy,
    RateLimitReplace, Status,
};
pub use resources::{RuleText, TYPE_URL};
pub use settings::{ClientSettings, ClientTls, Place};

/// The call, as it is named on the wire.
pub const STREAM_AGGREGATED_RESOURCES: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
