//! The generator's sums held against the node's own: what it says became of calls has to be what its metrics say (`docs/metrics.md`). A run
//! where the two differ is no run: one of them has lost calls, or counts some twice.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tidegate_clock::Stopwatch;

use crate::process::Entrance;
use crate::results::Counts;
use crate::tally::Tally;
use crate::witness::{self, Seen};

/// How long an answer may take; a busy machine is slow.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// What is read of a page of metrics. It begins with what is told of the node as a whole, and that is far shorter.
const PAGE_BYTES_MAX: u64 = 1 << 20;
/// A call may be counted a moment after its answer was sent.
const SETTLE_MAX: Duration = Duration::from_secs(2);

/// A node's account, as it stood when this was opened.
pub struct Account {
    metrics: SocketAddr,
    entrance: Entrance,
    before: Tally,
}

impl Account {
    /// Opens one with a node, whose HTTP port is told. From now until it is closed, nobody else may call by the same entrance.
    pub fn open(metrics: SocketAddr, entrance: Entrance) -> Result<Self, String> {
        let before = tally_in(&scrape(metrics)?, entrance)?;
        Ok(Self { metrics, entrance, before })
    }

    /// What the node has counted since.
    pub fn told(&self) -> Result<Tally, String> {
        Ok(tally_in(&scrape(self.metrics)?, self.entrance)?.since(&self.before))
    }

    /// Ends well if the node counted the very calls that we did; tells both sums otherwise.
    pub fn close(self, ours: &Tally) -> Result<Tally, Trouble> {
        let watch = Stopwatch::start();
        loop {
            let told = self.told()?;
            if told == *ours {
                return Ok(told);
            }
            if watch.elapsed() > SETTLE_MAX {
                return Err(Trouble::Sums(format!(
                    "the generator counted {ours}; the node's metrics say {told}"
                )));
            }
            std::thread::park_timeout(Duration::from_millis(20)); // Nobody unparks us; were it so, we would only look earlier.
        }
    }
}

/// Why calls of somebody are of no use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// They went wrong. Others may go well.
    Work(String),
    /// The generator and the node do not agree on them. One of the two cannot be believed, so no run can be.
    Sums(String),
}

impl Trouble {
    /// The same of somebody.
    pub fn of(self, name: &str) -> Self {
        match self {
            Self::Work(reason) => Self::Work(format!("{name}: {reason}")),
            Self::Sums(reason) => Self::Sums(format!("{name}: {reason}")),
        }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Work(reason) | Self::Sums(reason)) = self;
        out.write_str(reason)
    }
}

impl From<String> for Trouble {
    fn from(reason: String) -> Self {
        Self::Work(reason)
    }
}

impl From<Trouble> for String {
    fn from(trouble: Trouble) -> Self {
        trouble.to_string()
    }
}

/// What was done, and what became of all its calls.
pub trait Made {
    /// From the first call to the last.
    fn tally(&self) -> Tally;
}

impl Made for Counts {
    fn tally(&self) -> Tally {
        self.all
    }
}

impl<T> Made for (Counts, T) {
    fn tally(&self) -> Tally {
        self.0.all
    }
}

impl Made for Vec<Seen> {
    fn tally(&self) -> Tally {
        witness::tally(self)
    }
}

/// Does some work that calls a node, and fails if the node counted other calls. With somebody who is none it is only done.
pub fn accounted<T: Made>(
    node: Option<(SocketAddr, Entrance)>,
    work: impl FnOnce() -> Result<T, String>,
) -> Result<T, Trouble> {
    let account = node.map(|(metrics, entrance)| Account::open(metrics, entrance)).transpose()?;
    let done = work()?;
    if let Some(account) = account {
        account.close(&done.tally())?;
    }
    Ok(done)
}

/// The page of metrics as it is now.
pub fn scrape(metrics: SocketAddr) -> Result<String, String> {
    let asked = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&metrics, ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.take(PAGE_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = asked().map_err(|error| format!("the metrics of {metrics} cannot be read: {error}"))?;
    match answer.strip_prefix("HTTP/1.1 200 ") {
        Some(page) => Ok(page.to_string()),
        None => Err(format!("{metrics} has no metrics: {}", answer.lines().next().unwrap_or("no answer"))),
    }
}

/// What a page says of requests. Those that the store did not answer are counted there as admitted or refused too, by the policy that
/// answered. What became of each under the policy `local` it does not tell.
fn tally_in(page: &str, entrance: Entrance) -> Result<Tally, String> {
    let server = match entrance {
        Entrance::Rls => "server=\"rls\"",
        Entrance::Http => "server=\"http\"",
    };
    let of =
        |outcome: &str| sum(page, "ratelimit_requests_total", &[server, &format!("outcome=\"{outcome}\"")]);
    let by = |policy: &str| sum(page, "ratelimit_store_failures_total", &[&format!("policy=\"{policy}\"")]);
    let (admitted, refused) = (of("admitted"), of("refused"));
    match (admitted.checked_sub(by("allow")), refused.checked_sub(by("deny")), by("local")) {
        (Some(allowed), Some(refused), 0) => {
            let (degraded, failed) = (by("allow") + by("deny"), of("invalid") + of("failed"));
            Ok(Tally { allowed, refused, degraded, failed })
        }
        (.., 0) => Err("the metrics tell of more degraded requests than were answered".into()),
        (.., local) => {
            Err(format!("{local} requests were answered by the policy `local`: no account of those"))
        }
    }
}

/// The rows of a metric that have all of these labels, together. A row that is not there has counted nothing.
fn sum(page: &str, metric: &str, labels: &[&str]) -> u64 {
    let rows = page.lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{')?.split_once("} "));
    let rows = rows.filter(|(row, _)| labels.iter().all(|label| row.split(',').any(|part| part == *label)));
    rows.filter_map(|(_, value)| value.split(' ').next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const PAGE: &str = "\
# TYPE ratelimit_requests counter
ratelimit_requests_total{server=\"rls\",outcome=\"admitted\"} 20
ratelimit_requests_total{server=\"rls\",outcome=\"refused\"} 3
ratelimit_requests_total{server=\"rls\",outcome=\"invalid\"} 1
ratelimit_requests_total{server=\"rls\",outcome=\"failed\"} 2
ratelimit_requests_total{server=\"http\",outcome=\"admitted\"} 99
ratelimit_store_failures_total{policy=\"allow\"} 4
ratelimit_store_failures_total{policy=\"error\"} 2
";

    #[test]
    fn the_node_s_sums_are_read_for_one_entrance() {
        let tally = tally_in(PAGE, Entrance::Rls).expect("sums");
        assert_eq!(tally, Tally { allowed: 16, refused: 3, degraded: 4, failed: 3 });
        assert_eq!(tally_in("", Entrance::Http), Ok(Tally::default()));
        let local = PAGE.replace("policy=\"allow\"", "policy=\"local\"");
        assert!(tally_in(&local, Entrance::Rls).is_err_and(|message| message.contains("4 requests")));
    }

    /// Answers so many scrapes with pages, one after the other.
    fn node(pages: Vec<String>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
                let mut stream = stream;
                let _ = stream.read(&mut [0; 1_024]);
                let page = &pages[number.min(pages.len() - 1)];
                let _ = write!(stream, "HTTP/1.1 200 OK\r\n\r\n{page}");
            }
        });
        address
    }

    fn page(admitted: u64) -> String {
        format!("ratelimit_requests_total{{server=\"rls\",outcome=\"admitted\"}} {admitted}\n")
    }

    #[test]
    fn sums_that_differ_are_told_both() {
        let ours = Tally { allowed: 5, ..Tally::default() };
        let account =
            Account::open(node(vec![page(10), page(14), page(15)]), Entrance::Rls).expect("an account");
        assert_eq!(account.close(&ours), Ok(ours), "it may be counted a moment later");
        let account = Account::open(node(vec![page(10), page(14)]), Entrance::Rls).expect("an account");
        let message = account.close(&ours).expect_err("four are not five");
        let work = || Ok(Counts { all: ours, ..Counts::default() });
        let node = (node(vec![page(10), page(14)]), Entrance::Rls);
        assert_eq!(accounted(Some(node), work).expect_err("the same"), message);
        assert!(accounted(None, work).is_ok(), "nobody to ask");
        let Trouble::Sums(message) = message else { panic!("{message}") };
        assert!(message.contains("counted 5 allowed") && message.contains("say 4 allowed"), "{message}");
        let broken = accounted(None, || Err::<Counts, _>("it broke".into()));
        assert_eq!(broken, Err(Trouble::Work("it broke".into())), "others may go well");
    }
}
