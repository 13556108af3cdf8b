//! throttlecrab-server, from the registry of Rust: its own protocol of gRPC, JSON over HTTP/1.1, and a command of RESP.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tidegate_bench_common::process::{Process, free_address};
use tidegate_bench_common::requests::Requests;
use tidegate_bench_common::speech::Speech;

use super::{Family, Found, Install, Peer, Rule, Site, cache};

const NAME: &str = "throttlecrab-server";
const VERSION: &str = "0.4.40";
/// Until it listens.
const START_MAX: Duration = Duration::from_secs(10);

/// Called over gRPC.
pub(crate) struct Grpc;

/// Called over HTTP.
pub(crate) struct Http;

/// Called over RESP, as if it were a Redis.
pub(crate) struct Resp;

/// What is asked over gRPC: every request brings its limit.
#[derive(Clone, PartialEq, prost::Message)]
struct ThrottleRequest {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(int32, tag = "2")]
    max_burst: i32,
    #[prost(int32, tag = "3")]
    count_per_period: i32,
    #[prost(int32, tag = "4")]
    period: i32,
    #[prost(int32, tag = "5")]
    quantity: i32,
}

impl Peer for Grpc {
    fn word(&self) -> &'static str {
        "throttlecrab_grpc"
    }

    fn title(&self) -> &'static str {
        "throttlecrab-server, gRPC"
    }

    fn algorithm(&self) -> &'static str {
        "GCRA"
    }

    fn family(&self) -> Family {
        Family::Memory
    }

    fn speech(&self) -> Speech {
        Speech::Throttle
    }

    fn find(&self, install: Install) -> Result<Found, String> {
        find(install)
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        start(self.word(), "grpc", site)
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str, cost: u32) {
        requests.push_message(&ThrottleRequest {
            key: caller.into(),
            max_burst: rule.amount() as i32,
            count_per_period: rule.amount() as i32,
            period: rule.seconds() as i32,
            quantity: cost as i32,
        });
    }
}

impl Peer for Http {
    fn word(&self) -> &'static str {
        "throttlecrab_http"
    }

    fn title(&self) -> &'static str {
        "throttlecrab-server, HTTP"
    }

    fn algorithm(&self) -> &'static str {
        "GCRA"
    }

    fn family(&self) -> Family {
        Family::Http
    }

    fn speech(&self) -> Speech {
        Speech::HttpBody
    }

    fn find(&self, install: Install) -> Result<Found, String> {
        find(install)
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        start(self.word(), "http", site)
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str, cost: u32) {
        let (amount, seconds) = (rule.amount(), rule.seconds());
        let limit = format!(r#""max_burst":{amount},"count_per_period":{amount},"period":{seconds}"#);
        requests.push_post("/throttle", &format!(r#"{{"key":"{caller}",{limit},"quantity":{cost}}}"#));
    }
}

impl Peer for Resp {
    fn word(&self) -> &'static str {
        "throttlecrab_resp"
    }

    fn title(&self) -> &'static str {
        "throttlecrab-server, RESP"
    }

    fn algorithm(&self) -> &'static str {
        "GCRA"
    }

    fn family(&self) -> Family {
        Family::Http
    }

    fn speech(&self) -> Speech {
        Speech::Resp
    }

    fn find(&self, install: Install) -> Result<Found, String> {
        find(install)
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        start(self.word(), "redis", site)
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str, cost: u32) {
        let [amount, seconds, cost] = [rule.amount(), rule.seconds(), cost].map(|number| number.to_string());
        requests.push_command(&["THROTTLE", caller, &amount, &amount, &seconds, &cost]);
    }
}

fn find(install: Install) -> Result<Found, String> {
    let folder = cache::folder(NAME, VERSION)?;
    let program = folder.join("bin").join(NAME);
    if !program.is_file() {
        match install {
            Install::Yes => build(&folder)?,
            Install::No => return Err(format!("{NAME} {VERSION} is not installed, and nothing is now")),
        }
    }
    Ok(Found { program, version: VERSION.into() })
}

fn build(folder: &Path) -> Result<(), String> {
    let mut command = cache::cargo();
    command.args(["install", "--quiet", "--locked", NAME, "--version", VERSION, "--root"]).arg(folder);
    cache::run(&format!("{NAME} {VERSION}"), &mut command)
}

/// Its runtime has as many threads as there are cores; it is told that there is one.
fn start(name: &'static str, transport: &str, site: &Site<'_>) -> Result<Process, String> {
    let address = free_address()?;
    Process::start_at(name, site.cores, address, START_MAX, |folder| {
        let mut command = Command::new(site.program);
        command.current_dir(folder).env("TOKIO_WORKER_THREADS", "1").args(["--log-level", "error"]);
        command.arg(format!("--{transport}")).arg(format!("--{transport}-host")).arg("127.0.0.1");
        command.arg(format!("--{transport}-port")).arg(address.port().to_string());
        // Room for all, so that it need not make any while it is timed.
        command.arg("--store-capacity").arg((site.keys * 2).to_string());
        Ok(command)
    })
}
