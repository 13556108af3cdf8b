//! Limitador's library in a thin server of ours (`bench/field/limitador`): its own server is in no registry.

use std::process::Command;

use tidegate_bench_common::process::{Process, sibling};
use tidegate_bench_common::requests::Requests;

use super::{Family, Found, Install, Peer, Rule, Site, push_rls};

/// As in the manifest of the server.
const VERSION: &str = "0.14.0";
const SERVER: &str = "tidegate-bench-limitador";

/// Counters in its memory.
pub(crate) struct Memory;

/// Counters in Redis.
pub(crate) struct Redis;

impl Peer for Memory {
    fn word(&self) -> &'static str {
        "limitador"
    }

    fn title(&self) -> &'static str {
        "Limitador (library)"
    }

    fn algorithm(&self) -> &'static str {
        "fixed window"
    }

    fn family(&self) -> Family {
        Family::Memory
    }

    fn find(&self, _: Install) -> Result<Found, String> {
        Ok(Found { program: sibling(SERVER)?, version: VERSION.into() })
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        // Room for twice as many counters as there are callers: each of the two limits has its own.
        start(self.word(), site, ["memory".into(), (u64::from(site.keys) * 2).to_string()])
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str) {
        push_rls(requests, rule, caller);
    }
}

impl Peer for Redis {
    fn word(&self) -> &'static str {
        "limitador_redis"
    }

    fn title(&self) -> &'static str {
        "Limitador (library), Redis"
    }

    fn algorithm(&self) -> &'static str {
        "fixed window"
    }

    fn family(&self) -> Family {
        Family::Redis
    }

    fn find(&self, _: Install) -> Result<Found, String> {
        Err(format!(
            "the library ({VERSION}, and each before back to 0.11) does not compile with its feature `redis_storage` \
             unless RocksDB is built for `disk_storage` too"
        ))
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        start(self.word(), site, ["redis".into(), site.store.server().url()])
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str) {
        push_rls(requests, rule, caller);
    }
}

fn start(name: &'static str, site: &Site<'_>, storage: [String; 2]) -> Result<Process, String> {
    Process::start(name, site.cores, |folder| {
        let mut command = Command::new(site.program);
        command.current_dir(folder).args(storage);
        for rule in Rule::ALL {
            command.arg(format!("{}={}/{}", rule.word(), rule.amount(), rule.seconds()));
        }
        Ok(command)
    })
}
