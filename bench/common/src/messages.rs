//! The messages of `ShouldRateLimit` as prost has them, as far as the bench sends and answers them (`proto/` has all of it).

use prost::Message;

/// What is asked.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitRequest {
    /// Whose rules.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// What it is about.
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// The cost; 0 is 1.
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// What one thing is known by.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitDescriptor {
    /// In order.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
}

/// One of its entries.
#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// What is answered.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimitResponse {
    /// For the whole request.
    #[prost(int32, tag = "1")]
    pub overall_code: i32,
    /// For each descriptor.
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
}

/// What is said of a descriptor.
#[derive(Clone, PartialEq, Message)]
pub struct DescriptorStatus {
    /// Is it over its limit?
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// Which limit.
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<RateLimit>,
    /// What is left.
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    /// Until all is left.
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
}

/// The limit that it has.
#[derive(Clone, PartialEq, Message)]
pub struct RateLimit {
    /// How many.
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    /// In which time.
    #[prost(int32, tag = "2")]
    pub unit: i32,
}

/// A time.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Duration {
    /// In seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
}

/// `OK`, as the whole request and as a descriptor are told it.
pub const OK: i32 = 1;
/// `OVER_LIMIT`.
pub const OVER_LIMIT: i32 = 2;
/// `HOUR`.
pub const HOUR: i32 = 3;
