//! envoyproxy/ratelimit with Redis, built by Go from its registry. Its windows are fixed.

use std::path::Path;

use tidegate_bench_common::process::Process;
use tidegate_bench_common::reference;
use tidegate_bench_common::requests::Requests;
use tidegate_testbed::{find_reference_server, reference_server};

use super::{Family, Found, Install, Peer, Rule, Site, push_rls};

pub(crate) struct Reference;

impl Peer for Reference {
    fn word(&self) -> &'static str {
        "reference"
    }

    fn title(&self) -> &'static str {
        "envoyproxy/ratelimit, Redis"
    }

    fn algorithm(&self) -> &'static str {
        "fixed window"
    }

    fn family(&self) -> Family {
        Family::Redis
    }

    fn find(&self, install: Install) -> Result<Found, String> {
        let program = match install {
            Install::Yes => reference_server()?,
            Install::No => {
                find_reference_server()?.ok_or("envoyproxy/ratelimit is not installed, and nothing is now")?
            }
        };
        let version = reference::version(&program);
        Ok(Found { program, version })
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        reference::start(self.word(), site.program, site.cores, site.store.server().address(), write_rules)
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str, cost: u32) {
        push_rls(requests, rule, caller, cost);
    }
}

fn write_rules(folder: &Path) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("rules cannot be written to {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(wrong)?;
    for rule in Rule::ALL {
        let (word, amount) = (rule.word(), rule.amount());
        let unit = if rule.seconds() == 1 { "second" } else { "hour" };
        let limit = format!("rate_limit: {{ unit: {unit}, requests_per_unit: {amount} }}");
        let text = format!("domain: {word}\ndescriptors:\n  - key: user\n    {limit}\n");
        std::fs::write(folder.join(format!("{word}.yaml")), text).map_err(wrong)?;
    }
    Ok(())
}
