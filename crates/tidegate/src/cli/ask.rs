//! What a running node is asked, over HTTP: shared by the verbs that ask one.

use std::io;
use std::time::Duration;

use clap::Args;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// What stands between two descriptors.
const AND: &str = "+";

/// Which request is meant, and which node is asked.
#[derive(Args, Debug)]
pub(crate) struct Asked {
    /// The entries of a descriptor, as key=value; a `+` begins another descriptor
    #[arg(value_name = "KEY=VALUE", required = true)]
    entries: Vec<String>,
    /// The domain [default: the node's default]
    #[arg(long)]
    domain: Option<String>,
    /// Units that it takes; 0 only looks, below 0 gives back
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    cost: i64,
    #[command(flatten)]
    node: NodeAddress,
}

/// Which node.
#[derive(Args, Debug)]
pub(crate) struct NodeAddress {
    /// The node's HTTP listener
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    node: String,
    /// Seconds to wait for its answer
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    timeout: u64,
}

impl Asked {
    /// Sends it to a path of the node. Gives what came back.
    pub(crate) fn send(&self, path: &str) -> io::Result<Value> {
        self.node.post(path, &self.body()?)
    }

    fn body(&self) -> io::Result<Value> {
        let mut descriptors = Vec::new();
        for entries in self.entries.split(|entry| entry == AND) {
            let entries: io::Result<Vec<Value>> = entries
                .iter()
                .map(|entry| match entry.split_once('=') {
                    Some((key, value)) if !key.is_empty() => Ok(json!({ "key": key, "value": value })),
                    _ => Err(io::Error::other(format!("`{entry}` is no entry: write key=value"))),
                })
                .collect();
            let (hits, negative) = (self.cost.unsigned_abs(), self.cost < 0);
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
        if self.node.starts_with("https://") {
            return Err(io::Error::other(
                "a node that speaks TLS cannot be asked from here yet; use curl, see docs/http.md",
            ));
        }
        let address = self.node.trim_start_matches("http://").trim_end_matches('/');
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let timeout = Duration::from_secs(self.timeout);
        let posted =
            runtime.block_on(async { tokio::time::timeout(timeout, post(address, path, body)).await });
        let (status, bytes) =
            posted.unwrap_or_else(|_| Err(io::Error::other("no answer in time"))).map_err(|error| {
                let advice = "is it running, and is this its HTTP listener? (--node, `tidegate run`)";
                io::Error::other(format!("the node at {address} cannot be asked: {error}; {advice}"))
            })?;
        let answer: Value = serde_json::from_slice(&bytes).map_err(|error| {
            io::Error::other(format!("the node at {address} did not answer in JSON: {error}"))
        })?;
        match status {
            200..300 => Ok(answer),
            _ => {
                let message = answer["error"]["message"].as_str().unwrap_or("it does not say why");
                Err(io::Error::other(format!("the node refuses to answer ({status}): {message}")))
            }
        }
    }
}

async fn post(address: &str, path: &str, body: &Value) -> io::Result<(u16, Bytes)> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header("host", address)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .map_err(io::Error::other)?;
    // It takes the sender along: the connection ends when nobody can send on it any more.
    let answer = async move {
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok((status, body.map_err(io::Error::other)?.to_bytes()))
    };
    let connection = async {
        let _ = connection.await; // What broke is told by the answer that does not come.
        std::future::pending().await
    };
    tokio::select! {
        answer = answer => answer,
        never = connection => never,
    }
}
