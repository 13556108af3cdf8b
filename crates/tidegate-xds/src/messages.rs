//! The messages of `proto/`, as far as the client speaks them. A test compares the two.

use prost::Message;
pub use prost_types::Any;
use prost_types::Struct;

/// `envoy.service.discovery.v3.DiscoveryRequest`: a subscription, and later what became of each response.
#[derive(Clone, PartialEq, Message)]
pub struct DiscoveryRequest {
    /// The last version that was accepted.
    #[prost(string, tag = "1")]
    pub version_info: String,
    /// Who asks.
    #[prost(message, optional, tag = "2")]
    pub node: Option<Node>,
    /// Which resources; none are all.
    #[prost(string, repeated, tag = "3")]
    pub resource_names: Vec<String>,
    /// Of which type.
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// Which response this answers.
    #[prost(string, tag = "5")]
    pub response_nonce: String,
    /// Why that one was rejected.
    #[prost(message, optional, tag = "6")]
    pub error_detail: Option<Status>,
}

/// `envoy.service.discovery.v3.DiscoveryResponse`: all resources of a type, as they are now.
#[derive(Clone, PartialEq, Message)]
pub struct DiscoveryResponse {
    /// Which version they are.
    #[prost(string, tag = "1")]
    pub version_info: String,
    /// The resources.
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<Any>,
    /// Their type.
    #[prost(string, tag = "4")]
    pub type_url: String,
    /// What an answer calls this response.
    #[prost(string, tag = "5")]
    pub nonce: String,
}

/// `envoy.config.core.v3.Node`
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    /// Its id, by which a server finds what is meant for it.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The cluster that it belongs to.
    #[prost(string, tag = "2")]
    pub cluster: String,
    /// Anything else.
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<Struct>,
}

/// `google.rpc.Status`
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// A code of gRPC.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// What is wrong, in words.
    #[prost(string, tag = "2")]
    pub message: String,
    /// What else is known.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// `ratelimit.config.ratelimit.v3.RateLimitConfig`: a domain.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitConfig {
    /// The name of the resource.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The domain.
    #[prost(string, tag = "2")]
    pub domain: String,
    /// Its tree.
    #[prost(message, repeated, tag = "3")]
    pub descriptors: Vec<RateLimitDescriptor>,
}

/// `ratelimit.config.ratelimit.v3.RateLimitDescriptor`
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitDescriptor {
    /// The key of an entry.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value; empty is any.
    #[prost(string, tag = "2")]
    pub value: String,
    /// Its limit.
    #[prost(message, optional, tag = "3")]
    pub rate_limit: Option<RateLimitPolicy>,
    /// What may follow.
    #[prost(message, repeated, tag = "4")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// Counts and never refuses.
    #[prost(bool, tag = "5")]
    pub shadow_mode: bool,
    /// The name of its metrics has all values.
    #[prost(bool, tag = "6")]
    pub detailed_metric: bool,
    /// Of all such limits one has to have room.
    #[prost(bool, tag = "7")]
    pub quota_mode: bool,
    /// Handed on to the proxy.
    #[prost(message, optional, tag = "8")]
    pub metadata: Option<Struct>,
}

/// `ratelimit.config.ratelimit.v3.RateLimitPolicy`
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitPolicy {
    /// A number of the enum `RateLimitUnit`. A number, because servers may know units that this client does not.
    #[prost(int32, tag = "1")]
    pub unit: i32,
    /// How much in each unit.
    #[prost(uint32, tag = "2")]
    pub requests_per_unit: u32,
    /// There is no limit.
    #[prost(bool, tag = "3")]
    pub unlimited: bool,
    /// What people call it.
    #[prost(string, tag = "4")]
    pub name: String,
    /// Which limits it drops.
    #[prost(message, repeated, tag = "5")]
    pub replaces: Vec<RateLimitReplace>,
}

/// `ratelimit.config.ratelimit.v3.RateLimitReplace`
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitReplace {
    /// The name of the limit.
    #[prost(string, tag = "1")]
    pub name: String,
}
