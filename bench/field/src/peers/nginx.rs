//! nginx with `limit_req`, from the packages of the system, in front of an answer that is always the same.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tidegate_bench_common::process::{Process, free_address};
use tidegate_bench_common::requests::Requests;
use tidegate_bench_common::speech::Speech;

use super::{Family, Found, Install, Peer, Rule, Site};

/// Until it listens.
const START_MAX: Duration = Duration::from_secs(10);
/// What its documents say of a caller's state, and as much again: a zone without room refuses.
const CALLER_BYTES: u64 = 256;
const ZONE_BYTES_MIN: u64 = 1 << 20;

pub(crate) struct Nginx;

impl Peer for Nginx {
    fn word(&self) -> &'static str {
        "nginx"
    }

    fn title(&self) -> &'static str {
        "nginx `limit_req`"
    }

    fn algorithm(&self) -> &'static str {
        "leaky bucket"
    }

    fn family(&self) -> Family {
        Family::Http
    }

    fn speech(&self) -> Speech {
        Speech::HttpStatus
    }

    /// `cargo xtask bench` has it installed before.
    fn find(&self, _: Install) -> Result<Found, String> {
        let output = Command::new("nginx").arg("-v").output();
        let output = output
            .map_err(|error| format!("nginx is not installed ({error}): apt-get install nginx-light"))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let version = version_in(&said).ok_or_else(|| format!("`nginx -v` says {said}"))?;
        Ok(Found { program: PathBuf::from("nginx"), version: version.into() })
    }

    fn start(&self, site: &Site<'_>) -> Result<Process, String> {
        let address = free_address()?;
        Process::start_at(self.word(), site.cores, address, START_MAX, |folder| {
            let path = folder.join("nginx.conf");
            std::fs::write(&path, configuration(address.port(), site.keys))
                .and_then(|()| std::fs::write(folder.join("answer"), "ok\n"))
                .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
            let mut command = Command::new(site.program);
            command.current_dir(folder).arg("-p").arg(folder).args(["-c", "nginx.conf", "-e", "stderr"]);
            Ok(command)
        })
    }

    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str, _: u32) {
        requests.push_get(&format!("/{}?user={caller}", rule.word()));
    }

    fn knows_cost(&self) -> bool {
        false
    }
}

fn version_in(said: &str) -> Option<&str> {
    said.split_once("nginx/")?.1.split_whitespace().next()
}

/// One process, so that it ends when it is told to. A burst is admitted at once, as a bucket that is full does.
fn configuration(port: u16, keys: u32) -> String {
    let zone = (u64::from(keys) * CALLER_BYTES).max(ZONE_BYTES_MIN);
    let mut zones = String::new();
    let mut locations = String::new();
    for rule in Rule::ALL {
        let (word, burst) = (rule.word(), rule.amount());
        // Whole numbers of requests per second or minute are all that it can say.
        let rate = match rule.amount() / rule.seconds() {
            0 => format!("{}r/m", rule.amount() * 60 / rule.seconds()),
            rate => format!("{rate}r/s"),
        };
        zones += &format!("  limit_req_zone $arg_user zone={word}:{zone} rate={rate};\n");
        locations += &format!(
            "    location = /{word} {{ limit_req zone={word} burst={burst} nodelay; try_files /answer =500; }}\n"
        );
    }
    format!(
        "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr crit;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 100000000;\n  limit_req_status 429;\n  \
         limit_req_log_level info;\n{zones}  server {{\n    listen 127.0.0.1:{port};\n    root .;\n{locations}  }}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_it_says() {
        assert_eq!(version_in("nginx version: nginx/1.22.1 (Debian)\n"), Some("1.22.1"));
        assert_eq!(version_in("nginx"), None);
    }

    #[test]
    fn both_limits_are_in_the_configuration() {
        let text = configuration(8_080, 1_000_000);
        for part in [
            "zone=tight:256000000 rate=1000r/s;",
            "zone=wide:256000000 rate=277r/s;",
            "limit_req zone=tight burst=1000 nodelay;",
            "limit_req zone=wide burst=1000000 nodelay;",
            "listen 127.0.0.1:8080;",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
