//! Instructions of 64 calls of `ShouldRateLimit` that came together, with counters in a real Redis: from the bytes of the requests to the
//! bytes of the answers, with everything that a node does between, which is one call to Redis. Without sockets of callers and HTTP/2.

#![expect(missing_docs, reason = "the macros of gungraun write public items")]

use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use gungraun::{LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use tidegate_core::Quotas;
use tidegate_counters::{Address, Memory, MemorySize, RedisSettings, RedisStore, Store, Topology};
use tidegate_server::{Asker, Core, Node, Standing};
use tidegate_testbed::{Kind, Options, Server};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{LocalSet, spawn_local};

use node::{NOW, node};

mod node; // who is asked

/// What a node allocates by: calls that wait allocate.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RULES: &str = "
domain: api_platform
descriptors:
  - key: api_key
    rate_limit: { limit: 1000/1h, name: per-key }
    descriptors:
      - key: endpoint
        rate_limit: { limit: 1000/1h, algorithm: token_bucket, name: orders }
";
const CALLS: usize = 64;
/// Nothing is to be late while instructions are counted, which takes fifty times as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Calls, ready to be made.
struct Prepared {
    runtime: Runtime,
    local: LocalSet,
    core: Rc<Core>,
    /// The request of each and room for its answer.
    calls: Vec<(Vec<u8>, Vec<u8>)>,
    /// Runs until it is dropped.
    _redis: Server,
}

#[library_benchmark(teardown = drop)]
#[bench::stored_64_sliding_window(prepared(&["api_key"]))]
#[bench::stored_64_token_bucket(prepared(&["api_key", "endpoint"]))]
fn stored(mut prepared: Box<Prepared>) -> Box<Prepared> {
    ask(black_box(&mut prepared));
    prepared
}

library_benchmark_group!(name = stored_calls, benchmarks = stored);
main!(
    // Where Redis is.
    config = LibraryBenchmarkConfig::default().pass_through_envs(["PATH", "TIDEGATE_REDIS_SERVER"]);
    library_benchmark_groups = stored_calls
);

/// Makes all calls, and waits until all are answered.
fn ask(prepared: &mut Prepared) {
    let Prepared { runtime, local, core, calls, .. } = prepared;
    let asked = std::mem::take(calls);
    let answered = local.run_until(async {
        let tasks: Vec<_> = asked
            .into_iter()
            .map(|(message, mut out)| {
                let core = core.clone();
                spawn_local(async move {
                    out.clear();
                    let asker = Asker::at(core.node.now());
                    let answered =
                        core.should_rate_limit(&message, Standing::Outside, &asker, &mut out).await;
                    assert!(answered.is_ok_and(|answered| answered.admitted), "nobody is refused");
                    (message, out)
                })
            })
            .collect();
        for task in tasks {
            calls.push(task.await.expect("no panic"));
        }
    });
    runtime.block_on(answered);
}

/// A node on a new Redis, and calls with these entries, each of another caller.
fn prepared(keys: &[&str]) -> Box<Prepared> {
    let redis = Server::start(Kind::Redis, &Options::new()).expect("redis-server");
    let address = redis.address();
    let mut settings =
        RedisSettings::new(Topology::Standalone(Address::Tcp(address.ip().to_string(), address.port())));
    settings.timeout = PATIENCE;
    settings.connect_timeout = PATIENCE;
    let own = Memory::new(MemorySize::of_bytes(1 << 20), NOW).expect("memory");
    let store = Store::Redis(RedisStore::new(settings, Arc::new(own)));
    let node = Node { store, deadline: PATIENCE, ..node(RULES, Arc::new(Quotas::default())) };
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = LocalSet::new();
    let core = local.block_on(&runtime, async { Rc::new(Core::new(0, Arc::new(node))) });
    let calls = (0..CALLS).map(|caller| (message(keys, &format!("0b8c6f3e-{caller}")), Vec::new())).collect();
    let mut prepared = Box::new(Prepared { runtime, local, core, calls, _redis: redis });
    for _ in 0..3 {
        ask(&mut prepared); // So that everything has grown, is connected, and Redis knows the script and the counters.
    }
    prepared
}

/// A request in protobuf: texts and messages that are shorter than 128 bytes.
fn message(keys: &[&str], caller: &str) -> Vec<u8> {
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).expect("a short one")];
        out.extend_from_slice(bytes);
        out
    }
    let entry = |key: &&str| field(1, &[field(1, key.as_bytes()), field(2, caller.as_bytes())].concat());
    let entries: Vec<u8> = keys.iter().flat_map(entry).collect();
    [field(1, b"api_platform"), field(2, &entries)].concat()
}
