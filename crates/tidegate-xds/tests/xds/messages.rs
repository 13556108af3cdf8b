//! The messages of this crate are those of `proto/`: what one writes the other reads, field by field.

use std::path::Path;

use prost::Message;
use protox::prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};
use tidegate_xds::{
    DiscoveryRequest, DiscoveryResponse, RateLimitConfig, STREAM_AGGREGATED_RESOURCES, TYPE_URL,
};

fn described() -> DescriptorPool {
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let files = ["envoy/service/discovery/v3/ads.proto", "ratelimit/config/ratelimit/v3/rls_conf.proto"];
    let set = protox::compile(files, [protos]).unwrap_or_else(|error| panic!("{error:?}"));
    DescriptorPool::from_file_descriptor_set(set).expect("described")
}

/// A message with something in each of its fields, down to some depth.
fn filled(of: &MessageDescriptor, depth: usize) -> DynamicMessage {
    let mut message = DynamicMessage::new(of.clone());
    for field in of.fields() {
        let nested = matches!(field.kind(), Kind::Message(_));
        if nested && depth == 0 {
            continue;
        }
        message.set_field(&field, value(&field, depth));
    }
    message
}

fn value(field: &FieldDescriptor, depth: usize) -> Value {
    if field.is_map() {
        let Kind::Message(entry) = field.kind() else { panic!("a map is a message") };
        let value = single(&entry.map_entry_value_field(), depth);
        return Value::Map([(MapKey::String("name".into()), value)].into());
    }
    match field.is_list() {
        true => Value::List(vec![single(field, depth), single(field, depth)]),
        false => single(field, depth),
    }
}

fn single(field: &FieldDescriptor, depth: usize) -> Value {
    match field.kind() {
        Kind::Bool => Value::Bool(true),
        Kind::Int32 => Value::I32(field.number() as i32 + 100),
        Kind::Uint32 => Value::U32(field.number() + 200),
        Kind::Double => Value::F64(0.5),
        Kind::Enum(of) => {
            Value::EnumNumber(of.values().map(|value| value.number()).max().unwrap_or_default())
        }
        Kind::String => Value::String(format!("{} {}", field.full_name(), field.number())),
        Kind::Bytes => Value::Bytes(field.full_name().to_string().into()),
        Kind::Message(of) => Value::Message(filled(&of, depth - 1)),
        other => panic!("{other:?} is new here"),
    }
}

/// Reads what was written by the description, and writes it again: nothing may be lost or moved.
fn comes_back<M: Message + Default>(pool: &DescriptorPool, name: &str) {
    let of = pool.get_message_by_name(name).unwrap_or_else(|| panic!("{name} is in no file"));
    let filled = filled(&of, 4);
    let ours = M::decode(&*filled.encode_to_vec()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let back = DynamicMessage::decode(of, &*ours.encode_to_vec()).expect("a message");
    assert_eq!(back, filled, "{name}");
}

#[test]
fn messages_are_those_of_the_files() {
    let pool = described();
    comes_back::<DiscoveryRequest>(&pool, "envoy.service.discovery.v3.DiscoveryRequest");
    comes_back::<DiscoveryResponse>(&pool, "envoy.service.discovery.v3.DiscoveryResponse");
    comes_back::<RateLimitConfig>(&pool, "ratelimit.config.ratelimit.v3.RateLimitConfig");
    let name = TYPE_URL.rsplit('/').next().unwrap_or_default();
    assert!(pool.get_message_by_name(name).is_some());
    let (_, call) = STREAM_AGGREGATED_RESOURCES.split_once('/').expect("a path");
    let (service, method) = call.split_once('/').expect("a call");
    let service = pool.get_service_by_name(service).expect("a service");
    let method = service.methods().find(|known| known.name() == method).expect("a method");
    assert!(method.is_client_streaming() && method.is_server_streaming());
    assert_eq!(method.input().name(), "DiscoveryRequest");
    assert_eq!(method.output().name(), "DiscoveryResponse");
}
