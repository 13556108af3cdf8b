//! Calls that come together are answered as if each had come alone: some of them are looked at before others are decided, and nobody may
//! see that.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use proptest::prelude::*;
use prost::Message as _;
use tidegate_core::{Grant, Micros, Override, Query, Quota, QuotaUnit, Quotas};
use tidegate_counters::{Memory, MemorySize, Store};
use tidegate_server::rls::SHOULD_RATE_LIMIT;
use tidegate_server::{INTERNAL_CALL, InternalCalls, Protocol, sign};
use tidegate_telemetry::RefusalLog;

use crate::node::{Descriptor, Entry, Inside, Request, Response, START, http};

const RULES: &str = "
domain: shop
descriptors:
  - key: api_key
    rate_limit: { limit: 3/1h }
    tiers:
      pro: { limit: 5/1h, algorithm: token_bucket }
    descriptors:
      - key: path
        rate_limit: { limit: 2/1m, algorithm: fixed_window }
  - key: deny
    rate_limit: { limit: 3/1h, on_store_failure: deny }
";

/// Breaks for one caller.
fn fault(query: &Query<'_>) {
    assert!(query.entries.iter().all(|entry| entry.value != "boom"), "broken on purpose");
}

/// A node of which every test gets the same: one caller has a tier, one a limit of its own besides, one such a limit for a time, one is not
/// limited.
fn node() -> Inside {
    let quotas = Quotas::default();
    let own = Override::new(Box::new([]), Grant { amount: 4, unit: QuotaUnit::Hour });
    let known = |caller: &str| Quota { caller: caller.into(), tier: Some("pro".into()), ..Quota::default() };
    quotas.put(known("alice"));
    let for_a_time = Override { until: Micros::new(Micros::MAX.get() - 1), ..own.clone() };
    quotas.put(Quota { overrides: [own].into(), ..known("bob") });
    quotas.put(Quota { overrides: [for_a_time].into(), ..known("frank") });
    quotas.put(Quota { whitelisted: true, ..known("carol") });
    let memory = Memory::new(MemorySize::of_bytes(1 << 20), START).expect("a megabyte");
    Inside::knowing(Arc::new(quotas), Store::Memory(Arc::new(memory)), RULES, Some(fault))
}

fn message(domain: &str, descriptors: &[&[(&str, &str)]]) -> Vec<u8> {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    let descriptors = descriptors
        .iter()
        .map(|entries| Descriptor { entries: entries.iter().map(entry).collect(), ..Descriptor::default() });
    let request = Request { domain: domain.into(), descriptors: descriptors.collect(), hits_addend: 0 };
    request.encode_to_vec()
}

/// What may be asked: what is counted, what is not, what breaks, and what is no request.
fn messages() -> Vec<Vec<u8>> {
    let far: Vec<&[(&str, &str)]> = vec![&[("api_key", "nobody")]; 65];
    vec![
        message("shop", &[&[("api_key", "alice")]]),
        message("shop", &[&[("api_key", "bob")]]),
        message("shop", &[&[("api_key", "carol")]]),
        message("shop", &[&[("api_key", "frank")]]),
        message("shop", &[&[("api_key", "frank"), ("path", "/a")], &[("api_key", "bob")]]),
        message("shop", &[&[("api_key", "dave")]]),
        message("shop", &[&[("api_key", "dave")], &[("api_key", "alice"), ("path", "/a")]]),
        message("shop", &[&[("deny", "boom")]]),
        message("shop", &[&[("deny", "erin")]]),
        message("shop", &[&[("other", "erin")]]),
        message("nowhere", &[&[("api_key", "alice")]]),
        message("", &[&[("api_key", "alice")]]),
        message("shop", &[]),
        message("shop", &far),
        b"\xff\xff\xff".to_vec(),
    ]
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).expect("a length").to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The frames of a call. Some libraries say that nothing more comes by a frame of its own.
fn call(stream: u32, message: &[u8], in_two: bool) -> Vec<u8> {
    call_with(stream, message, in_two, &[])
}

/// The same with headers of its own.
fn call_with(stream: u32, message: &[u8], in_two: bool, more: &[(&str, &str)]) -> Vec<u8> {
    let field = |(name, value): &(&str, &str)| {
        [&[0, name.len() as u8], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
    };
    let fields =
        [(":method", "POST"), (":scheme", "http"), (":path", SHOULD_RATE_LIMIT), (":authority", "n")];
    let head: Vec<u8> = fields.iter().chain(more).flat_map(field).collect();
    let length = u32::try_from(message.len()).expect("a length").to_be_bytes();
    let data = [&[0], &length[..], message].concat();
    let mut frames = [frame(1, 4, stream, &head), frame(0, u8::from(!in_two), stream, &data)].concat();
    if in_two {
        frames.extend(frame(0, 1, stream, &[]));
    }
    frames
}

/// Whatever is said of each stream: the kinds and bytes of its frames.
type Said = BTreeMap<u32, Vec<(u8, Vec<u8>)>>;

/// Sends these calls, so many at once each time, and gives what is said to each.
fn ask(node: &Inside, calls: &[Vec<u8>], at_once: usize) -> Said {
    let numbered: Vec<(u32, &Vec<u8>)> = (1..).step_by(2).zip(calls).collect();
    let framed = |(stream, message): &(u32, &Vec<u8>)| call(*stream, message, at_once > 1 && stream % 3 == 0);
    let sent =
        numbered.chunks(at_once).map(|together| (together.iter().flat_map(framed).collect(), together.len()));
    say(node, sent)
}

/// Sends these bytes, each time so many calls, and gives what is said to each.
fn say(node: &Inside, sent: impl Iterator<Item = (Vec<u8>, usize)>) -> Said {
    let mut stream = TcpStream::connect(node.serve_as(Protocol::Rls)).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("sent");
    stream.write_all(&frame(4, 0, 0, &[])).expect("sent");
    let (mut said, mut came, mut ended) = (Said::new(), Vec::new(), 0);
    for (bytes, calls) in sent {
        stream.write_all(&bytes).expect("sent");
        let answered = ended + calls;
        while ended < answered {
            let mut bytes = [0; 65_536];
            let count = stream.read(&mut bytes).expect("an answer");
            assert!(count > 0, "the connection ended");
            came.extend_from_slice(&bytes[..count]);
            while let Some(head) = came.first_chunk::<9>() {
                let [a, b, c, kind, flags, number @ ..] = *head;
                let end = 9 + u32::from_be_bytes([0, a, b, c]) as usize;
                if came.len() < end {
                    break;
                }
                let payload = came[9..end].to_vec();
                came.drain(..end);
                let number = u32::from_be_bytes(number);
                if number > 0 {
                    said.entry(number).or_default().push((kind, payload));
                    ended += usize::from(kind <= 1 && flags & 1 != 0);
                }
            }
        }
    }
    said
}

/// Calls of one connection nearly always have the same headers, which are looked at once; not where they have others.
#[test]
fn each_refusal_is_told_with_the_trace_of_its_own_call() {
    let folder = std::env::temp_dir().join(format!("tidegate-traces-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("refusals.jsonl");
    let refusals = RefusalLog::new(0, 1).with_file(path.clone(), 100, 1 << 20, 1).expect("a file");
    let memory = Memory::new(MemorySize::of_bytes(1 << 20), START).expect("a megabyte");
    let rules = "{ domain: shop, descriptors: [{ key: deny, rate_limit: { limit: 0/1h } }] }";
    let node = Inside::changed(Arc::default(), Store::Memory(Arc::new(memory)), rules, |node| {
        node.refusals = refusals;
    });
    let message = message("shop", &[&[("deny", "a")]]);
    // Two of each trace one after the other, then some without any.
    let traces = (0..8).map(|call| (call < 6).then(|| format!("{:032x}", call / 2 + 1)));
    let traces: Vec<Option<String>> = traces.collect();
    let framed = (1..).step_by(2).zip(&traces).flat_map(|(stream, trace)| {
        let parent = trace.as_ref().map(|trace| format!("00-{trace}-00f067aa0ba902b7-01"));
        let parent = parent.iter().map(|parent| ("traceparent", parent.as_str()));
        // The headers of the last trace are in another order.
        let before = [("te", "trailers")].into_iter().filter(|_| stream > 8);
        let more: Vec<_> = before.chain(parent).collect();
        call_with(stream, &message, false, &more)
    });
    assert_eq!(say(&node, std::iter::once((framed.collect(), traces.len()))).len(), traces.len());
    let is_told = |_: &usize| {
        std::thread::park_timeout(Duration::from_millis(1));
        node.node().refusals.file_counts() == Some((traces.len() as u64, 0))
    };
    assert!((0..10_000).any(|at| is_told(&at)), "all are told");
    let told = std::fs::read_to_string(&path).expect("the file");
    let of_line = |line: &str| Some(line.split_once("\"trace_id\":\"")?.1[..32].to_owned());
    assert_eq!(told.lines().map(of_line).collect::<Vec<_>>(), traces);
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// Who says that it is one of us has to show it with every call, also where all say the same.
#[test]
fn each_call_that_says_it_is_from_inside_is_verified() {
    const SECRET: &[u8] = b"a secret of some length";
    let memory = Memory::new(MemorySize::of_bytes(1 << 20), START).expect("a megabyte");
    let calls = InternalCalls::new(vec![SECRET.to_vec()], Duration::from_secs(60)).expect("a secret");
    let node = Inside::changed(Arc::default(), Store::Memory(Arc::new(memory)), RULES, |node| {
        node.internal_calls = Some(ArcSwap::from_pointee(calls));
    });
    let (message, header) =
        (message("shop", &[&[("deny", "a")]]), sign(SECRET, None, START.get() / 1_000_000));
    // Some from inside, then as many from outside, then some from inside again.
    let is_inside = |call: u32| !(4..8).contains(&call);
    let framed = (0..12).flat_map(|call| {
        let more = [(INTERNAL_CALL, header.as_str())];
        call_with(2 * call + 1, &message, false, if is_inside(call) { &more } else { &[] })
    });
    let said = say(&node, std::iter::once((framed.collect(), 12)));
    let code = |frames: &Vec<(u8, Vec<u8>)>| {
        let data = frames.iter().find(|(kind, _)| *kind == 0).expect("an answer");
        Response::decode(&data.1[5..]).expect("a response").overall_code
    };
    let codes: Vec<i32> = said.values().map(code).collect();
    assert_eq!(codes, [1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1], "three from outside have room");
    let page = http(node.serve(), "GET", "/metrics", "");
    assert!(page.contains("tidegate_internal_calls_total{result=\"verified\"} 8\n"), "{page}");
}

/// Ids are made where somebody asks for them: each call that takes places has one of its own.
#[test]
fn calls_that_take_places_together_are_told_an_id_each() {
    let rules = "
domain: shop
descriptors:
  - key: in_flight
    rate_limit: { limit: 3, algorithm: concurrency, lease_id: lease }
";
    for at_once in [1, 5] {
        let node = Inside::new(rules, None);
        let calls = vec![message("shop", &[&[("in_flight", "a")]]); 5];
        let mut ids = Vec::new();
        for frames in ask(&node, &calls, at_once).into_values() {
            let data = frames.into_iter().find(|(kind, _)| *kind == 0).expect("an answer").1;
            let response = Response::decode(&data[5..]).expect("a response");
            ids.extend(response.dynamic_metadata.map(|told| format!("{told:?}")));
        }
        assert_eq!(ids.len(), 3, "{ids:?}");
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), 3, "{ids:?}");
        assert!(ids.iter().all(|id| id.contains("lease")), "{ids:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn they_are_answered_as_if_each_had_come_alone(
        which in prop::collection::vec(0..messages().len(), 1..60),
        at_once in 2_usize..40,
    ) {
        let all = messages();
        let calls: Vec<Vec<u8>> = which.iter().map(|at| all[*at].clone()).collect();
        prop_assert_eq!(ask(&node(), &calls, at_once), ask(&node(), &calls, 1));
    }
}
