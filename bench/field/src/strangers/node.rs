//! Whom they call: the program that users run, with one thread that decides and counters in its memory, or in a Redis.

use std::net::{Ipv4Addr, SocketAddr};

use tidegate_bench_common::generator::Used;
use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::process::{Process, controlled_node_command};
use tidegate_bench_common::store::Store;
use tidegate_testbed::free_port;

pub(crate) const DOMAIN: &str = "strangers";
/// A limit that nobody reaches, also who calls for minutes under one name: generators of others send one request again and again.
pub(crate) const WIDE: &str = "wide";
/// One that is soon reached.
pub(crate) const TIGHT: &str = "tight";
/// Who calls.
pub(crate) const SOMEBODY: &str = "somebody";

const RULES: &str = "\
domain: strangers
descriptors:
  - { key: wide, rate_limit: { limit: 4000000000/1h } }
  - { key: tight, rate_limit: { limit: 20/1d } }
";

/// How a node on a Redis is started: one that waits long for it, as on a busy machine it may have to; without an answer a call fails.
pub(crate) const PATIENT: &str = "--store-timeout 5s --store-connect-timeout 5s --node-deadline 6s \
                                  --defaults-on-store-failure error";
/// One that waits as nodes do, lets calls go on that the Redis has not answered by then, and says so.
pub(crate) const ALLOWING: &str = "--defaults-on-store-failure allow --rls-metadata true";
/// One by which such calls fail.
pub(crate) const FAILING: &str = "--defaults-on-store-failure error --rls-metadata true";

/// A node. It ends when this is dropped.
pub(crate) struct Node {
    pub(crate) process: Process,
    pub(crate) http: SocketAddr,
    /// Where its control plane listens, if it has one.
    pub(crate) admin: Option<SocketAddr>,
}

impl Node {
    pub(crate) fn start(cores: Option<Cores>, has_admin: bool) -> Result<Self, String> {
        Self::start_with(cores, has_admin, &[])
    }

    /// One on a Redis that knows nothing yet, with these settings.
    pub(crate) fn start_on(cores: Option<Cores>, store: &Store, settings: &str) -> Result<Self, String> {
        store.flush()?;
        let url = store.server().url();
        let words: Vec<&str> = ["--store-url", &url].into_iter().chain(settings.split(' ')).collect();
        Self::start_with(cores, false, &words)
    }

    fn start_with(cores: Option<Cores>, has_admin: bool, words: &[&str]) -> Result<Self, String> {
        let address = || free_port().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let http = address()?;
        let admin = has_admin.then(address).transpose()?;
        let process = Process::start("tidegate", cores, |folder| {
            let rules = folder.join("rules.yaml");
            std::fs::write(&rules, RULES).map_err(|error| format!("{}: {error}", rules.display()))?;
            let mut command = controlled_node_command(folder, &rules)?;
            command.args(["--http-listen", &http.to_string()]).args(words);
            match admin {
                Some(admin) => command.args(["--control-listen", &admin.to_string()]),
                None => command.args(["--control-enabled", "false"]),
            };
            Ok(command)
        })?;
        Ok(Self { process, http, admin })
    }

    /// What it has used of its processor so far.
    pub(crate) fn used(&self) -> Result<Used, String> {
        Ok(Used { server_cpu_ns: self.process.cpu_ns()?, ..Used::default() })
    }
}
