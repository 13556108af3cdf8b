//! gubernator, which is named because it is of our kind, and cannot be had: nothing is said of its speed.

use tidegate_bench_common::process::Process;
use tidegate_bench_common::requests::Requests;

use super::{Family, Found, Install, Peer, Rule, Site};

pub(crate) struct Gubernator;

impl Peer for Gubernator {
    fn word(&self) -> &'static str {
        "gubernator"
    }

    fn title(&self) -> &'static str {
        "gubernator"
    }

    fn algorithm(&self) -> &'static str {
        "token bucket"
    }

    fn family(&self) -> Family {
        Family::Memory
    }

    fn find(&self, _: Install) -> Result<Found, String> {
        Err("the registry of Go answers `go install github.com/gubernator-io/gubernator/v2/cmd/gubernator@latest` with \
             403, \"This module version is not available\"; nothing is quoted that was not measured"
            .into())
    }

    fn start(&self, _: &Site<'_>) -> Result<Process, String> {
        Err("there is no program".into())
    }

    fn push(&self, _: &mut Requests, _: Rule, _: &str) {}
}
