//! What a request says.

use std::fmt;

use crate::duration;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The domain whose rules it is judged by.
    pub domain: String,
    /// What it is about.
    pub descriptors: Vec<Descriptor>,
}

/// One descriptor of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// Keys and values, in order.
    pub entries: Vec<(String, String)>,
    /// The units that it takes: 0 is a peek, negative a refund.
    pub cost: i64,
    /// The limit that it brings.
    pub limit: Option<OwnLimit>,
}

/// A limit that comes with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnLimit {
    /// How much.
    pub amount: u64,
    /// In which time.
    pub window_us: u64,
}

impl Descriptor {
    /// The value of its first entry with this key.
    pub(crate) fn value_of(&self, key: &str) -> Option<&str> {
        self.entries.iter().find(|entry| entry.0 == key).map(|entry| entry.1.as_str())
    }

    /// The values of all its entries with this key.
    pub(crate) fn values_of(&self, key: &str) -> Vec<&str> {
        self.entries.iter().filter(|entry| entry.0 == key).map(|entry| entry.1.as_str()).collect()
    }
}

impl fmt::Display for Request {
    /// A line for the domain, then one for each descriptor.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a request to {:?}", self.domain)?;
        for Descriptor { entries, cost, limit } in &self.descriptors {
            let entries: Vec<String> =
                entries.iter().map(|(key, value)| format!("{key}={}", value.escape_debug())).collect();
            write!(out, "\n  [{}] cost={cost}", entries.join(", "))?;
            if let Some(OwnLimit { amount, window_us }) = limit {
                write!(out, " limit={amount}/{}", duration::print(*window_us))?;
            }
        }
        Ok(())
    }
}
