//! The messages of `envoy.service.ratelimit.v3`, for tests: read and written by an independent library of protobuf.

use std::collections::HashMap;

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Request {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<Descriptor>,
    #[prost(uint32, tag = "3")]
    pub(crate) hits_addend: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Entry>,
    #[prost(message, optional, tag = "2")]
    pub(crate) limit: Option<Override>,
    #[prost(message, optional, tag = "3")]
    pub(crate) hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    pub(crate) is_negative_hits: bool,
}

/// An entry of a descriptor, and a header of an answer.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Override {
    #[prost(uint32, tag = "1")]
    pub(crate) requests_per_unit: u32,
    #[prost(int32, tag = "2")]
    pub(crate) unit: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) unit_multiplier: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Response {
    #[prost(int32, tag = "1")]
    pub(crate) overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) statuses: Vec<Status>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) response_headers_to_add: Vec<Entry>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) request_headers_to_add: Vec<Entry>,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) raw_body: Vec<u8>,
    #[prost(message, optional, tag = "6")]
    pub(crate) dynamic_metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(int32, tag = "1")]
    pub(crate) code: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) current_limit: Option<Limit>,
    #[prost(uint32, tag = "3")]
    pub(crate) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(crate) duration_until_reset: Option<Duration>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Limit {
    #[prost(uint32, tag = "1")]
    pub(crate) requests_per_unit: u32,
    #[prost(int32, tag = "2")]
    pub(crate) unit: i32,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) unit_multiplier: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Duration {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

/// `google.protobuf.Struct`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Struct {
    #[prost(map = "string, message", tag = "1")]
    pub(crate) fields: HashMap<String, Value>,
}

/// `google.protobuf.Value`, as far as answers have it. On the wire a choice of several looks like these.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Value {
    #[prost(double, optional, tag = "2")]
    pub(crate) number: Option<f64>,
    #[prost(string, optional, tag = "3")]
    pub(crate) text: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub(crate) fields: Option<Struct>,
}
