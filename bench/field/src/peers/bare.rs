//! tonic with a fixed answer: it decides nothing, and is what everybody on the same libraries could reach at most.

use std::path::PathBuf;

use tidegate_bench_common::machine;
use tidegate_bench_common::process::{Process, child_command};
use tidegate_bench_common::requests::Requests;

use super::{Family, Found, Install, Peer, Rule, Site, push_rls};

pub(crate) struct Bare;

impl Peer for Bare {
    fn word(&self) -> &'static str {
        "bare"
    }

    fn title(&self) -> &'static str {
        "bare tonic, fixed answer"
    }

    fn algorithm(&self) -> &'static str {
        "none: it admits everybody"
    }

    fn family(&self) -> Family {
        Family::Memory
    }

    fn find(&self, _: Install) -> Result<Found, String> {
        Ok(Found { program: PathBuf::new(), version: machine::version("tonic") })
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        Process::start(self.word(), site.cores, |_| child_command(&["bare"]))
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str, cost: u32) {
        push_rls(requests, rule, caller, cost);
    }

    fn refuses(&self) -> bool {
        false
    }
}
