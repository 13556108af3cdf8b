//! The node: the program that users run, built for release, with one thread that decides and otherwise its default settings, but for the
//! memory that ten million callers need, or where memory is what is measured.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tidegate_bench_common::machine;
use tidegate_bench_common::process::{Entrance, Process, node_command};
use tidegate_bench_common::requests::Requests;
use tidegate_bench_common::speech::Speech;

use super::{Family, Found, Install, Peer, Room, Rule, Site, push_rls};

const ALGORITHM: &str = "sliding window (the default)";
/// A rule says nothing of its algorithm.
const DEFAULT: &str = "";

/// Counters in its memory, called over gRPC.
pub(crate) struct Memory;

/// The same by `token_bucket`; it is in no comparison but that of memory.
pub(crate) struct Buckets;

/// Counters in its memory, called over HTTP.
pub(crate) struct Http;

/// Counters in Redis, each decision made there.
pub(crate) struct Redis;

/// Counters in Redis, units taken from there in advance.
pub(crate) struct Leased;

impl Peer for Memory {
    fn word(&self) -> &'static str {
        "tidegate"
    }

    fn title(&self) -> &'static str {
        "Tidegate"
    }

    fn algorithm(&self) -> &'static str {
        ALGORITHM
    }

    fn family(&self) -> Family {
        Family::Memory
    }

    fn find(&self, _: Install) -> Result<Found, String> {
        Ok(found())
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        start(Entrance::Rls, self.word(), DEFAULT, site)
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str, cost: u32) {
        push_rls(requests, rule, caller, cost);
    }
}

impl Peer for Buckets {
    fn word(&self) -> &'static str {
        "tidegate_buckets"
    }

    fn title(&self) -> &'static str {
        "Tidegate, `token_bucket`"
    }

    fn algorithm(&self) -> &'static str {
        "token bucket"
    }

    fn family(&self) -> Family {
        Family::Memory
    }

    fn find(&self, _: Install) -> Result<Found, String> {
        Ok(found())
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        start(Entrance::Rls, self.word(), ", algorithm: token_bucket", site)
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str, cost: u32) {
        push_rls(requests, rule, caller, cost);
    }

    /// A bucket that is full again is forgotten, which is soon where one unit is missing. This lasts for half an hour.
    fn timed_cost(&self) -> u32 {
        Rule::Wide.amount() / 2
    }
}

impl Peer for Http {
    fn word(&self) -> &'static str {
        "tidegate_http"
    }

    fn title(&self) -> &'static str {
        "Tidegate, HTTP check"
    }

    fn algorithm(&self) -> &'static str {
        ALGORITHM
    }

    fn family(&self) -> Family {
        Family::Http
    }

    fn speech(&self) -> Speech {
        Speech::HttpStatus
    }

    fn find(&self, _: Install) -> Result<Found, String> {
        Ok(found())
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        start(Entrance::Http, self.word(), DEFAULT, site)
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str, cost: u32) {
        let entry = format!(r#"{{"key":"user","value":"{caller}"}}"#);
        let descriptors = format!(r#"[{{"entries":[{entry}]}}]"#);
        let cost = if cost == 1 { String::new() } else { format!(r#","hitsAddend":{cost}"#) };
        let body = format!(r#"{{"domain":"{}","descriptors":{descriptors}{cost}}}"#, rule.word());
        requests.push_post("/v1/check?enforce", &body);
    }
}

impl Peer for Redis {
    fn word(&self) -> &'static str {
        "tidegate_redis"
    }

    fn title(&self) -> &'static str {
        "Tidegate, Redis, exact"
    }

    fn algorithm(&self) -> &'static str {
        ALGORITHM
    }

    fn family(&self) -> Family {
        Family::Redis
    }

    fn find(&self, _: Install) -> Result<Found, String> {
        Ok(found())
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        start_on(self.word(), site, &site.store.server().url())
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str, cost: u32) {
        push_rls(requests, rule, caller, cost);
    }
}

impl Peer for Leased {
    fn word(&self) -> &'static str {
        "tidegate_leased"
    }

    fn title(&self) -> &'static str {
        "Tidegate, Redis, leases"
    }

    fn algorithm(&self) -> &'static str {
        ALGORITHM
    }

    fn family(&self) -> Family {
        Family::Redis
    }

    fn find(&self, _: Install) -> Result<Found, String> {
        Err("leases are not built yet: `consistency: leased` is understood, and works as `exact`".into())
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        start_on(self.word(), site, &site.store.server().url())
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str, cost: u32) {
        push_rls(requests, rule, caller, cost);
    }
}

/// A node whose rules say `algorithm` of it.
fn start(
    entrance: Entrance,
    name: &'static str,
    algorithm: &str,
    site: &Site<'_>,
) -> Result<Process, String> {
    Process::start_node(entrance, name, site.cores, |folder| {
        let mut command = node_command(folder, &rules(folder, algorithm)?)?;
        match site.room {
            Room::Usual => command.args(room_for(site.keys)),
            Room::For(keys) => command.arg("--counters-memory").arg(fitting(keys)),
        };
        Ok(command)
    })
}

/// The least of which three slots in five, or fewer, are for so many keys (docs/counters.md): a slot has 16 bytes, and a quarter is slots.
fn fitting(keys: u32) -> String {
    const SLOT_BYTES: u64 = 16;
    const MIB_MIN: u64 = 1;
    let slots = (u64::from(keys) * 5).div_ceil(3).next_power_of_two();
    format!("{}MiB", (slots * SLOT_BYTES * 4 / (1 << 20)).max(MIB_MIN))
}

/// What is said of the memory of its counters where more callers come than the default has room for.
pub(crate) fn room_for(callers: u32) -> &'static [&'static str] {
    if callers > 1_000_000 { &["--counters-memory", "1GiB"] } else { &[] }
}

/// A node on the Redis at a URL. It may wait long for it: on a busy machine pauses of many milliseconds are usual, and a run with a single
/// call that fails is no run.
pub(crate) fn start_on(name: &'static str, site: &Site<'_>, url: &str) -> Result<Process, String> {
    Process::start_node(Entrance::Rls, name, site.cores, |folder| {
        let mut command = node_command(folder, &rules(folder, DEFAULT)?)?;
        command.args(["--store-url", url, "--store-timeout", "5s", "--store-connect-timeout", "5s"]);
        command.args(["--node-deadline", "6s", "--defaults-on-store-failure", "error"]);
        Ok(command)
    })
}

/// It is built before; where it is, whoever starts it knows. What is committed while others have their turn is not in it.
fn found() -> Found {
    static COMMIT: OnceLock<String> = OnceLock::new();
    Found { program: PathBuf::new(), version: COMMIT.get_or_init(machine::commit).clone() }
}

/// Writes the rules, and tells where.
fn rules(folder: &Path, algorithm: &str) -> Result<PathBuf, String> {
    let rules = folder.join("rules");
    let wrong = |error: std::io::Error| format!("rules cannot be written to {}: {error}", rules.display());
    std::fs::create_dir_all(&rules).map_err(wrong)?;
    for rule in Rule::ALL {
        let (word, limit) = (rule.word(), format!("{}/{}s", rule.amount(), rule.seconds()));
        let limit = format!("rate_limit: {{ limit: {limit}{algorithm} }}");
        let text = format!("domain: {word}\ndescriptors:\n  - {{ key: user, {limit} }}\n");
        std::fs::write(rules.join(format!("{word}.yaml")), text).map_err(wrong)?;
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_fits_has_two_slots_in_five_free() {
        for (keys, memory) in
            [(1_000, "1MiB"), (100_000, "16MiB"), (1_000_000, "128MiB"), (10_000_000, "1024MiB")]
        {
            assert_eq!(fitting(keys), memory, "{keys}");
        }
    }
}
