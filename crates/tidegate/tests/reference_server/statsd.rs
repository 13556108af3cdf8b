//! Who is told the stats: a listener of statsd's lines, which adds up what it hears.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

/// Counters by name, since the start.
pub(crate) type Totals = BTreeMap<String, u64>;

pub(crate) struct Statsd {
    port: u16,
    totals: Arc<Mutex<Totals>>,
}

impl Statsd {
    /// Listens for as long as the test's process runs: a server that finds nobody any more would only log that.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let totals = Arc::new(Mutex::new(Totals::new()));
        let heard = totals.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let heard = heard.clone();
                std::thread::spawn(move || {
                    for line in BufReader::new(stream).lines().map_while(Result::ok) {
                        add(&heard, &line);
                    }
                });
            }
        });
        Self { port, totals }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn total(&self, name: &str) -> u64 {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied().unwrap_or(0)
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// `name:value|c`: a difference since the line before. Gauges and times are of no interest.
fn add(totals: &Mutex<Totals>, line: &str) {
    let counter = line.strip_suffix("|c").and_then(|line| line.rsplit_once(':'));
    let Some((name, value)) = counter else { return };
    let value: u64 = value.parse().unwrap_or_else(|_| panic!("no count: {line}"));
    *totals.lock().unwrap_or_else(PoisonError::into_inner).entry(name.into()).or_default() += value;
}
