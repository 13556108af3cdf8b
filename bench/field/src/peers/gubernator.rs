//! gubernator, which is named because it is of our kind, and could not be had so far: nothing is said of its speed. Each run tries.

use std::process::{Command, Stdio};

use tidegate_bench_common::process::Process;
use tidegate_bench_common::requests::Requests;

use super::{Family, Found, Install, Peer, Rule, Site, cache};

const PACKAGE: &str = "github.com/gubernator-io/gubernator/v2/cmd/gubernator@latest";

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

    fn find(&self, install: Install) -> Result<Found, String> {
        if install == Install::No {
            return Err("it is not installed, and nothing is now".into());
        }
        let mut command = Command::new("go");
        command.args(["install", PACKAGE]).env("GOBIN", cache::folder("gubernator", "latest")?);
        let output =
            command.stdin(Stdio::null()).output().map_err(|error| format!("go does not start: {error}"))?;
        if output.status.success() {
            return Err(
                "it can be installed by now, and how it is started and asked has still to be written".into(),
            );
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason was given").trim();
        Err(format!("`go install {PACKAGE}` fails: {why} Nothing is quoted that was not measured."))
    }

    fn start(&self, _: &Site<'_>) -> Result<Process, String> {
        Err("there is no program".into())
    }

    fn push(&self, _: &mut Requests, _: Rule, _: &str, _: u32) {}
}
