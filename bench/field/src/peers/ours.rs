//! The node: the program that users run, built for release, with one thread that decides.

use std::path::{Path, PathBuf};

use tidegate_bench_common::machine;
use tidegate_bench_common::process::{Process, node_command};
use tidegate_bench_common::requests::Requests;

use super::{DOMAIN, Family, Found, Install, Peer, Rule, Site};

/// Counters in its memory, called over gRPC.
pub(crate) struct Memory;

impl Peer for Memory {
    fn word(&self) -> &'static str {
        "tidegate"
    }

    fn title(&self) -> &'static str {
        "Tidegate"
    }

    fn algorithm(&self) -> &'static str {
        "sliding window (the default)"
    }

    fn family(&self) -> Family {
        Family::Memory
    }

    fn find(&self, _: Install) -> Result<Found, String> {
        Ok(found())
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        Process::start(self.word(), site.cores, |folder| node_command(folder, &rules(folder)?))
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str) {
        requests.push(DOMAIN, &[(rule.word(), caller)]);
    }
}

/// It is built before; where it is, whoever starts it knows.
fn found() -> Found {
    Found { program: PathBuf::new(), version: machine::commit() }
}

/// Writes the rules, and tells where.
fn rules(folder: &Path) -> Result<PathBuf, String> {
    let rules = folder.join("rules");
    let mut text = format!("domain: {DOMAIN}\ndescriptors:\n");
    for rule in Rule::ALL {
        let limit = format!("{}/{}s", rule.amount(), rule.seconds());
        text += &format!("  - {{ key: {}, rate_limit: {{ limit: {limit} }} }}\n", rule.word());
    }
    let written =
        std::fs::create_dir_all(&rules).and_then(|()| std::fs::write(rules.join("field.yaml"), text));
    written.map_err(|error| format!("rules cannot be written to {}: {error}", rules.display()))?;
    Ok(rules)
}
