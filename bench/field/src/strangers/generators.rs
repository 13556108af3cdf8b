//! Generators that we did not write: how each is found, started on the generator's core, and what it says at its end.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tidegate_bench_common::client::SHOULD_RATE_LIMIT;
use tidegate_bench_common::machine::said as said_by;
use tidegate_bench_common::pin::{Cores, Place};
use tidegate_bench_common::plan::Load;
use tidegate_bench_common::requests::Requests;
use tidegate_testbed::GoProgram;

use super::child;
use super::node::{DOMAIN, Node, SOMEBODY, WIDE};
use super::results::{By, Said};
use crate::peers::Install;

const GHZ: GoProgram = GoProgram { package: "github.com/bojand/ghz/cmd/ghz", version: "v0.93.0" };
/// Beyond what it was told to run, until it has ended.
const END_MAX: Duration = Duration::from_secs(30);

/// Is a line written for each call?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Log {
    Without,
    With,
}

/// A generator that is there.
pub(crate) struct Generator {
    pub(crate) by: By,
    pub(crate) version: String,
    program: PathBuf,
}

impl Generator {
    /// All that there are, in the order of the page.
    pub(crate) const ALL: [By; 3] = [By::H2load, By::Ghz, By::Wrk];

    /// Finds it, or says why it is missing. Debian's packages are installed by `cargo xtask` before.
    pub(crate) fn find(by: By, install: Install) -> Result<Self, String> {
        let on_path = |name: &str, flag: &str, package: &str| {
            let said = said_by(name, &[flag]);
            let version = said.lines().next().unwrap_or_default().to_string();
            if version.is_empty() {
                return Err(format!("it is not on the PATH; Debian, Ubuntu: apt-get install {package}"));
            }
            Ok(Self { by, version, program: name.into() })
        };
        match by {
            By::H2load => on_path("h2load", "--version", "nghttp2-client"),
            By::Wrk => on_path("wrk", "--version", "wrk").map(|wrk| Self {
                version: wrk.version.split(" [").next().unwrap_or_default().to_string(),
                ..wrk
            }),
            By::Ghz => {
                let program = match install {
                    Install::Yes => GHZ.find_or_build()?,
                    Install::No => GHZ.find().ok_or("it was not built yet")?,
                };
                Ok(Self { by, version: format!("ghz {}", GHZ.version), program })
            }
            By::Ours | By::OursHttp => Err("that is ours".into()),
        }
    }

    /// What is typed to start it; `$NODE` stands for the address.
    pub(crate) fn spoken(&self, load: Load, seconds: u32) -> String {
        let command = self.command("$NODE", load, seconds, Path::new("."), Log::Without);
        let name = self.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let words = command.get_args().map(|word| {
            let word = word.to_string_lossy().into_owned();
            if word.contains([' ', '{', ';']) { format!("'{word}'") } else { word }
        });
        std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
    }

    /// What is typed besides where it is asked what calls took, if it says so only then.
    pub(crate) fn spoken_log(&self) -> Option<String> {
        self.needs_log().then(|| format!("{LOG_FLAG}{LOG}"))
    }

    /// Does it tell what calls took only by a log with a line for each? That costs it too much to be timed with.
    pub(crate) fn needs_log(&self) -> bool {
        self.by == By::H2load
    }

    /// Calls the node for so many seconds, on the generator's core. What calls took is zero where only a log tells.
    pub(crate) fn run(
        &self,
        node: &Node,
        cores: Option<Cores>,
        load: Load,
        seconds: u32,
        log: Log,
    ) -> Result<Said, String> {
        let folder = tempfile::tempdir().map_err(|error| format!("no folder: {error}"))?;
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.path().join(name), bytes).map_err(|error| format!("{name}: {error}"))
        };
        write(BODY, message().get(0))?;
        write(SCRIPT, script().as_bytes())?;
        let address = if self.by == By::Wrk { node.http } else { node.process.address };
        let mut command = self.command(&address.to_string(), load, seconds, folder.path(), log);
        let output = folder.path().join("output");
        let out = std::fs::File::create(&output).map_err(|error| format!("no output: {error}"))?;
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(out).stderr(Stdio::null());
        command.env("GOMAXPROCS", "1"); // It has one core.
        let child = Cores::on(cores, Place::Generator, || command.spawn())
            .map_err(|error| format!("{} does not start: {error}", self.by.title()))?;
        let within = Duration::from_secs(seconds.into()) + END_MAX;
        let status = child::finish(self.by.title(), child, within)?;
        let text = std::fs::read_to_string(&output).unwrap_or_default();
        if !status.success() {
            return Err(format!("{} ended with {status}: {text}", self.by.title()));
        }
        let said = self.said(&text).and_then(|said| match log {
            Log::Without => Some(said),
            Log::With => said.with_log(&std::fs::read_to_string(folder.path().join(LOG)).ok()?),
        });
        said.ok_or_else(|| format!("{} said something else: {text}", self.by.title()))
    }

    fn command(&self, address: &str, load: Load, seconds: u32, folder: &Path, log: Log) -> Command {
        let Load { connections, streams } = load;
        let mut command = Command::new(&self.program);
        match self.by {
            By::H2load => {
                command.args(["-t", "1", "-c", &connections.to_string(), "-m", &streams.to_string()]);
                command.args(["-D", &seconds.to_string(), "-d", BODY]);
                command.args(["-H", "content-type: application/grpc", "-H", "te: trailers"]);
                if log == Log::With {
                    command.arg(format!("{LOG_FLAG}{LOG}"));
                }
                command.arg(format!("http://{address}{SHOULD_RATE_LIMIT}"));
            }
            By::Ghz => {
                command.args(["--insecure", "--call", SHOULD_RATE_LIMIT.trim_start_matches('/')]);
                command.args(["-c", &(connections * streams).to_string()]);
                command.args(["--connections", &connections.to_string(), "-z", &format!("{seconds}s")]);
                command.args(["--duration-stop", "wait", "-O", "json", "-d", &json(), address]);
            }
            By::Wrk | By::Ours | By::OursHttp => {
                command.args(["-t", "1", "-c", &connections.to_string(), "-d", &format!("{seconds}s")]);
                command.arg("-s").arg(folder.join(SCRIPT)).arg(format!("http://{address}/v1/check"));
            }
        }
        command
    }

    fn said(&self, text: &str) -> Option<Said> {
        match self.by {
            By::H2load => said_h2load(text),
            By::Ghz => said_ghz(text),
            By::Wrk | By::Ours | By::OursHttp => said_wrk(text),
        }
    }
}

const BODY: &str = "request";
const SCRIPT: &str = "check.lua";
const LOG: &str = "log";
const LOG_FLAG: &str = "--log-file=";

/// The one call that all of them make, with the prefix of gRPC.
pub(crate) fn message() -> Requests {
    let mut requests = Requests::default();
    requests.push(DOMAIN, &[(WIDE, SOMEBODY)]);
    requests
}

/// The same as JSON.
pub(crate) fn json() -> String {
    format!(
        r#"{{"domain":"{DOMAIN}","descriptors":[{{"entries":[{{"key":"{WIDE}","value":"{SOMEBODY}"}}]}}]}}"#
    )
}

/// What wrk sends, and what it is to say at its end.
fn script() -> String {
    format!(
        r#"wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{}'
done = function(summary, latency, requests)
  local errors = summary.errors
  local lost = errors.connect + errors.read + errors.write + errors.timeout + errors.status
  local p50, p99 = latency:percentile(50), latency:percentile(99)
  io.write(string.format("figures %d %d %d %d %d\n", summary.requests, summary.duration, p50, p99, lost))
end
"#,
        json()
    )
}

/// `figures`, then calls, microseconds, those of half and of 99 of 100 calls, and calls that went wrong.
fn said_wrk(text: &str) -> Option<Said> {
    let line = text.lines().find_map(|line| line.strip_prefix("figures "))?;
    let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
    let [calls, wall_us, p50_us, p99_us, 0] = numbers[..] else { return None };
    Some(Said { calls, wall_ns: wall_us * 1_000, p50_ns: p50_us * 1_000, p99_ns: p99_us * 1_000 })
}

/// Calls and their rate. What they took it does not say.
fn said_h2load(text: &str) -> Option<Said> {
    let rate =
        text.lines().find_map(|line| line.strip_prefix("finished in ")?.split(' ').nth(1)?.parse().ok());
    let requests = text.lines().find_map(|line| line.strip_prefix("requests: "))?;
    let count = |word: &str| {
        let part = requests.split(", ").find_map(|part| part.strip_suffix(word))?;
        part.parse::<u64>().ok()
    };
    let (calls, rate): (u64, f64) = (count(" succeeded")?, rate?);
    if calls == 0 || [" failed", " errored", " timeout"].iter().any(|word| count(word) != Some(0)) {
        return None;
    }
    Some(Said { calls, wall_ns: (calls as f64 * 1e9 / rate) as u64, p50_ns: 0, p99_ns: 0 })
}

impl Said {
    /// With what the log of h2load tells: what each call took, in microseconds, is the third word of its line.
    fn with_log(self, log: &str) -> Option<Self> {
        let mut took_us: Vec<u64> =
            log.lines().filter_map(|line| line.split('\t').nth(2)?.parse().ok()).collect();
        took_us.sort_unstable();
        let quantile = |percent: usize| {
            let at = (took_us.len() * percent).div_ceil(100).saturating_sub(1);
            took_us.get(at).map(|took| took * 1_000)
        };
        Some(Self { p50_ns: quantile(50)?, p99_ns: quantile(99)?, ..self })
    }
}

fn said_ghz(text: &str) -> Option<Said> {
    let report: Value = serde_json::from_str(text).ok()?;
    let calls = report["count"].as_u64()?;
    let latency = |percent: u64| {
        let all = report["latencyDistribution"].as_array()?;
        all.iter().find(|row| row["percentage"] == percent)?["latency"].as_u64()
    };
    let good = report["statusCodeDistribution"]["OK"].as_u64()?;
    let wall_ns = (calls as f64 * 1e9 / report["rps"].as_f64()?) as u64;
    (calls > 0 && good == calls).then_some(Said {
        calls,
        wall_ns,
        p50_ns: latency(50)?,
        p99_ns: latency(99)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const H2LOAD: &str = "finished in 2.01s, 15000.00 req/s, 906.78KB/s\n\
        requests: 30000 total, 30000 started, 30000 done, 30000 succeeded, 0 failed, 0 errored, 0 timeout\n";
    const GHZ: &str = r#"{"count": 4797, "total": 2072371692, "rps": 2398.5, "statusCodeDistribution": {"OK": 4797},
        "latencyDistribution": [{"percentage": 50, "latency": 84384256}, {"percentage": 99, "latency": 216350896}]}"#;

    #[test]
    fn what_each_says_at_its_end_is_read() {
        let said = said_wrk("Running 2s test\nfigures 14571 2075194 7694 52787 0\n").expect("wrk");
        assert_eq!(
            said,
            Said { calls: 14_571, wall_ns: 2_075_194_000, p50_ns: 7_694_000, p99_ns: 52_787_000 }
        );
        let log = "1794907558477986\t200\t10\n1794907558477987\t200\t30\n1794907558477988\t200\t20\n";
        let said = said_h2load(H2LOAD).expect("h2load");
        assert_eq!(said, Said { calls: 30_000, wall_ns: 2_000_000_000, p50_ns: 0, p99_ns: 0 });
        let logged = said.with_log(log).expect("a log");
        assert_eq!(logged, Said { p50_ns: 20_000, p99_ns: 30_000, ..said });
        assert_eq!(said.with_log(""), None, "a log of nothing");
        let said = said_ghz(GHZ).expect("ghz");
        assert_eq!((said.calls, said.p50_ns, said.p99_ns), (4_797, 84_384_256, 216_350_896));
        assert_eq!(said.wall_ns, 2_000_000_000);
    }

    #[test]
    fn a_run_with_calls_that_went_wrong_is_no_run() {
        assert_eq!(said_wrk("figures 14571 2075194 7694 52787 1\n"), None);
        assert_eq!(said_h2load(&H2LOAD.replace("0 errored", "1 errored")), None);
        assert_eq!(said_ghz(&GHZ.replace("\"OK\": 4797", "\"OK\": 4796, \"Unavailable\": 1")), None);
    }

    #[test]
    fn the_page_says_what_was_typed() {
        let ghz = Generator { by: By::Ghz, version: String::new(), program: "/somewhere/ghz".into() };
        let spoken = ghz.spoken(Load { connections: 2, streams: 128 }, 3);
        assert!(spoken.starts_with("ghz --insecure --call envoy.") && spoken.ends_with(" $NODE"), "{spoken}");
        assert!(spoken.contains("-c 256 --connections 2 -z 3s"), "{spoken}");
        assert_eq!(ghz.spoken_log(), None, "it tells what calls took by itself");
    }

    #[test]
    fn h2load_is_timed_without_a_log_and_asked_for_latencies_with_one() {
        let h2load = Generator { by: By::H2load, version: String::new(), program: "h2load".into() };
        let load = Load { connections: 2, streams: 128 };
        assert!(!h2load.spoken(load, 3).contains("log"), "{}", h2load.spoken(load, 3));
        assert_eq!(h2load.spoken_log().as_deref(), Some("--log-file=log"));
        for (log, has) in [(Log::Without, false), (Log::With, true)] {
            let command = h2load.command("$NODE", load, 3, Path::new("."), log);
            assert_eq!(command.get_args().any(|word| word == "--log-file=log"), has, "{log:?}");
        }
    }
}
