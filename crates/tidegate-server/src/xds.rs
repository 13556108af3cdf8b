//! The xDS server that rules come from, as far as operators want to know of it. Whoever talks to it writes this down.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tidegate_telemetry::XdsGauges;

/// How it is with the server.
#[derive(Debug, Default)]
pub struct XdsStatus {
    /// Where it is.
    pub server: String,
    connected: AtomicBool,
    accepted: AtomicU64,
    rejected: AtomicU64,
    /// What is wrong, if something is.
    trouble: Mutex<Trouble>,
}

#[derive(Clone, Debug, Default)]
struct Trouble {
    /// Why there is no connection.
    away: Option<String>,
    /// What is wrong with the rules that came last.
    rejected: Option<String>,
}

impl XdsStatus {
    /// Of a server that has not been asked yet.
    pub fn new(server: String) -> Self {
        Self { server, ..Self::default() }
    }

    /// There is a connection.
    pub fn connected(&self) {
        self.connected.store(true, Ordering::Relaxed);
        self.change(|trouble| trouble.away = None);
    }

    /// There is none; says whether that is news.
    pub fn disconnected(&self, why: &str) -> bool {
        let was_connected = self.connected.swap(false, Ordering::Relaxed);
        let before = self.change(|trouble| trouble.away.replace(why.into()));
        was_connected || before.as_deref() != Some(why)
    }

    /// Rules were put in force.
    pub fn accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.change(|trouble| trouble.rejected = None);
    }

    /// Rules were not.
    pub fn rejected(&self, why: &str) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        self.change(|trouble| trouble.rejected = Some(why.into()));
    }

    fn change<R>(&self, change: impl FnOnce(&mut Trouble) -> R) -> R {
        change(&mut self.trouble.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How it is, in a few lines for people.
    pub(crate) fn told(&self) -> String {
        let trouble = self.change(|trouble| trouble.clone());
        let connection = match (self.connected.load(Ordering::Relaxed), trouble.away) {
            (true, _) => "connected".into(),
            (false, Some(why)) => format!("not connected ({why})"),
            (false, None) => "not connected yet".into(),
        };
        let rejected = trouble.rejected.map(|why| format!("\n          its last rules were rejected: {why}"));
        format!("from the xDS server {}, {connection}{}", self.server, rejected.unwrap_or_default())
    }

    /// The same in numbers.
    pub(crate) fn gauges(&self) -> XdsGauges {
        XdsGauges {
            connected: self.connected.load(Ordering::Relaxed),
            accepted: self.accepted.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
        }
    }
}
