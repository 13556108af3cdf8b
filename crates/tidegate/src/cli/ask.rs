//! What a running node is asked, over HTTP: shared by the verbs that ask one.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method};
use serde_json::{Value, json};

use super::http::{Place, Sent, exchange};

/// Names who signs the certificates of nodes, for all verbs that ask one.
pub(crate) const CA_VARIABLE: &str = "TIDEGATE_CA";
/// What stands between two descriptors.
const AND: &str = "+";

/// Which request is meant, and which node is asked.
#[derive(Args, Debug)]
pub(crate) struct Asked {
    #[command(flatten)]
    named: Named,
    /// Units that it takes; 0 only looks, below 0 gives back
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    cost: i64,
    #[command(flatten)]
    node: NodeAddress,
}

/// What a request says.
#[derive(Args, Debug)]
pub(crate) struct Named {
    /// The entries of a descriptor, as key=value; a `+` begins another descriptor
    #[arg(value_name = "KEY=VALUE", required = true)]
    entries: Vec<String>,
    /// The domain [default: the node's default]
    #[arg(long)]
    domain: Option<String>,
}

/// Which node.
#[derive(Args, Debug)]
pub(crate) struct NodeAddress {
    /// The node's HTTP listener
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    node: String,
    /// Who signed the node's certificate, as PEM [default: whom this machine trusts]
    #[arg(long, value_name = "FILE", env = CA_VARIABLE, hide_env_values = true)]
    ca: Option<PathBuf>,
    /// Seconds to wait for its answer
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    timeout: u64,
}

impl Asked {
    /// Sends it to a path of the node. Gives what came back.
    pub(crate) fn send(&self, path: &str) -> io::Result<Value> {
        self.named.send(path, self.cost, &self.node)
    }
}

impl Named {
    /// Sends it, at this cost, to a path of a node. Gives what came back.
    pub(crate) fn send(&self, path: &str, cost: i64, node: &NodeAddress) -> io::Result<Value> {
        node.post(path, &self.body(cost)?)
    }

    fn body(&self, cost: i64) -> io::Result<Value> {
        let mut descriptors = Vec::new();
        for entries in self.entries.split(|entry| entry == AND) {
            let entries: io::Result<Vec<Value>> = entries
                .iter()
                .map(|entry| match entry.split_once('=') {
                    Some((key, value)) if !key.is_empty() => Ok(json!({ "key": key, "value": value })),
                    _ => Err(io::Error::other(format!("`{entry}` is no entry: write key=value"))),
                })
                .collect();
            let (hits, negative) = (cost.unsigned_abs(), cost < 0);
            descriptors.push(json!({ "entries": entries?, "hitsAddend": hits, "isNegativeHits": negative }));
        }
        let mut body = json!({ "descriptors": descriptors });
        if let Some(domain) = &self.domain {
            body["domain"] = json!(domain);
        }
        Ok(body)
    }
}

impl NodeAddress {
    fn post(&self, path: &str, body: &Value) -> io::Result<Value> {
        let place = Place::read(&self.node)?;
        let sent = Sent {
            method: Method::POST,
            path: path.into(),
            headers: vec![(CONTENT_TYPE, HeaderValue::from_static("application/json"))],
            body: body.to_string().into(),
        };
        let node = self.node.trim_start_matches("http://").trim_end_matches('/');
        let given = exchange(&place, self.ca.as_deref(), sent, Duration::from_secs(self.timeout));
        let given = given.map_err(|error| {
            let advice = "is it running, and is this its HTTP listener? (--node, `tidegate run`)";
            io::Error::other(format!("the node at {node} cannot be asked: {error}; {advice}"))
        })?;
        let answer: Value = serde_json::from_slice(&given.body).map_err(|error| {
            io::Error::other(format!("the node at {node} did not answer in JSON: {error}"))
        })?;
        match given.status {
            200..300 => Ok(answer),
            status => {
                let message = answer["error"]["message"].as_str().unwrap_or("it does not say why");
                Err(io::Error::other(format!("the node refuses to answer ({status}): {message}")))
            }
        }
    }
}
