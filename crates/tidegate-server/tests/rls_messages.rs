//! Our messages are those of the protocol: an independent reader and writer of protobuf agrees, field by field.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use prost::Message;
use tidegate_core::Micros;
use tidegate_server::rls::{
    Code, CurrentLimit, DESCRIPTORS_MAX, ENTRIES_MAX, RateLimitRequest, ResponseWriter, Status,
};

mod messages;
use messages as proto;

const UNIT_SECONDS: [u64; 8] = [0, 1, 60, 3_600, 86_400, 30 * 86_400, 365 * 86_400, 7 * 86_400];

prop_compose! {
    fn descriptor()(
        entries in prop::collection::vec(("[a-cé*|]{0,3}", any::<String>()), 0..4),
        limit in prop::option::of((any::<u32>(), -1..9_i32, prop::option::of(0..1_000_u32))),
        hits_addend in prop::option::of(prop_oneof![0..5_u64, any::<u64>()]),
        is_negative_hits in any::<bool>(),
    ) -> proto::Descriptor {
        proto::Descriptor {
            entries: entries.into_iter().map(|(key, value)| proto::Entry { key, value }).collect(),
            limit: limit.map(|(requests_per_unit, unit, unit_multiplier)| proto::Override { requests_per_unit, unit, unit_multiplier }),
            hits_addend,
            is_negative_hits,
        }
    }
}

prop_compose! {
    fn request()(
        domain in any::<String>(),
        descriptors in prop::collection::vec(descriptor(), 0..6),
        hits_addend in prop_oneof![0..3_u32, any::<u32>()],
    ) -> proto::Request {
        proto::Request { domain, descriptors, hits_addend }
    }
}

/// What the protocol says a descriptor costs.
fn cost(descriptor: &proto::Descriptor, of_request: u32) -> i64 {
    let hits = descriptor.hits_addend.unwrap_or(if of_request == 0 { 1 } else { of_request.into() });
    let hits = i64::try_from(hits).unwrap_or(i64::MAX);
    if descriptor.is_negative_hits { -hits } else { hits }
}

/// The same cases every time, so that a red test is a change; `TIDEGATE_PROOF=20` draws twenty times as many anew.
fn config() -> ProptestConfig {
    let proof = std::env::var("TIDEGATE_PROOF").ok().and_then(|times| times.parse::<u32>().ok());
    let seed = if proof.is_some() { RngSeed::Random } else { RngSeed::Fixed(1) };
    ProptestConfig {
        cases: 512 * proof.unwrap_or(1),
        rng_seed: seed,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_request_is_read_as_it_was_written(written in request(), more in prop::collection::vec(any::<u8>(), 0..9)) {
        let mut bytes = written.encode_to_vec();
        // A field of a later version, which nobody here knows.
        bytes.extend([15 << 3 | 2, more.len() as u8]);
        bytes.extend(more);
        let read = RateLimitRequest::parse(&bytes).expect("a request");
        prop_assert_eq!(read.domain, &written.domain);
        prop_assert!(!read.too_much);
        prop_assert_eq!(read.descriptors.len(), written.descriptors.len());
        for (read_one, one) in read.descriptors.iter().zip(&written.descriptors) {
            let entries = read.entries[read_one.entries.clone()].iter().map(|entry| (entry.key, entry.value));
            prop_assert!(entries.eq(one.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str()))));
            prop_assert_eq!(read_one.cost, cost(one, written.hits_addend));
            let known = one.limit.filter(|limit| (1..=7).contains(&limit.unit));
            let window = |limit: &proto::Override| {
                Micros::from_secs(UNIT_SECONDS[limit.unit as usize] * u64::from(limit.unit_multiplier.unwrap_or(1)))
            };
            prop_assert_eq!(
                read_one.limit.map(|limit| (limit.amount, limit.window)),
                known.map(|limit| (limit.requests_per_unit.into(), window(&limit)))
            );
        }
    }

    /// What one of the two takes, the other takes.
    #[test]
    fn hostile_bytes_are_refused_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..60),
        written in request(),
        at in any::<prop::sample::Index>(),
    ) {
        let _ = RateLimitRequest::parse(&bytes);
        let mut cut = written.encode_to_vec();
        cut.truncate(at.index(cut.len() + 1));
        prop_assert_eq!(RateLimitRequest::parse(&cut).is_ok(), proto::Request::decode(cut.as_slice()).is_ok());
    }

    #[test]
    fn a_response_is_read_as_it_was_written(
        over in any::<bool>(),
        statuses in prop::collection::vec(
            (
                any::<bool>(),
                any::<u32>(),
                prop::option::of((any::<u32>(), 1..5_000_000_u64, "[a-z]{0,200}")),
                prop::option::of(0..10_000_000_000_u64),
            ),
            0..5,
        ),
        headers in prop::collection::vec(("[a-z-]{1,9}", ".{0,300}"), 0..4),
        body in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let code = |over: bool| if over { Code::OverLimit } else { Code::Ok };
        let mut bytes = Vec::new();
        let mut writer = ResponseWriter::start(&mut bytes, code(over));
        for (over, remaining, limit, reset) in &statuses {
            let limit = limit.as_ref().and_then(|(amount, seconds, name)| CurrentLimit::new(*amount, Micros::from_secs(*seconds), name));
            writer.status(&Status { code: code(*over), limit, remaining: *remaining, reset: reset.map(Micros::new) });
        }
        for (name, value) in &headers {
            writer.response_header(name, value);
        }
        writer.body(&body);
        let read = proto::Response::decode(bytes.as_slice()).expect("a response");
        prop_assert_eq!(read.overall_code, 1 + i32::from(over));
        prop_assert_eq!(read.statuses.len(), statuses.len());
        for (read, (over, remaining, limit, reset)) in read.statuses.iter().zip(&statuses) {
            prop_assert_eq!((read.code, read.limit_remaining), (1 + i32::from(*over), *remaining));
            let told = read.current_limit.as_ref().map(|limit| {
                let seconds = UNIT_SECONDS[limit.unit as usize] * u64::from(limit.unit_multiplier.unwrap_or(1));
                (limit.requests_per_unit, seconds, limit.name.clone())
            });
            prop_assert_eq!(&told, limit, "the same limit in other words");
            let told = read.duration_until_reset.map(|reset| (reset.seconds as u64, reset.nanos));
            prop_assert_eq!(told, reset.map(|us| (us.div_ceil(1_000_000), 0)));
        }
        let told = read.response_headers_to_add.iter().map(|header| (header.key.clone(), header.value.clone()));
        prop_assert!(told.eq(headers));
        prop_assert_eq!(read.raw_body, body);
    }
}

/// Too much is told, not refused as undecodable: Envoy lets pass what ends in an error.
#[test]
fn too_much_is_told_and_not_kept() {
    let entry = || proto::Entry { key: "k".into(), value: "v".into() };
    let descriptors = |count: usize, entries: usize| {
        let descriptor = proto::Descriptor {
            entries: (0..entries).map(|_| entry()).collect(),
            ..proto::Descriptor::default()
        };
        proto::Request { domain: "d".into(), descriptors: vec![descriptor; count], hits_addend: 0 }
            .encode_to_vec()
    };
    for (count, entries, too_much) in [
        (DESCRIPTORS_MAX, 1, false),
        (DESCRIPTORS_MAX + 1, 1, true),
        (1, ENTRIES_MAX, false),
        (1, ENTRIES_MAX + 1, true),
        (20_000, 5, true),
    ] {
        let bytes = descriptors(count, entries);
        let request = RateLimitRequest::parse(&bytes).expect("a request");
        assert_eq!((request.too_much, request.descriptors_came), (too_much, count), "{count} × {entries}");
        assert!(request.descriptors.len() <= DESCRIPTORS_MAX && request.entries.len() <= ENTRIES_MAX);
    }
}

#[test]
fn a_window_is_told_in_its_largest_unit() {
    for (window_ms, told) in [
        (1_000, Some((1, 1))),
        (90_000, Some((1, 90))),
        (900_000, Some((2, 15))),
        (7_200_000, Some((3, 2))),
        (86_400_000, Some((4, 1))),
        (604_800_000, Some((7, 1))),
        (14 * 86_400_000, Some((7, 2))),
        (30 * 86_400_000, Some((5, 1))),
        (365 * 86_400_000, Some((6, 1))),
        (366 * 86_400_000, Some((4, 366))),
        (1_500, None),
        (1, None),
    ] {
        let limit = CurrentLimit::new(5, Micros::from_millis(window_ms), "n");
        assert_eq!(limit.map(|limit| (limit.unit, limit.multiplier)), told, "{window_ms} ms");
    }
}
