//! A client of HTTP/1.1 that sends exactly what it is told.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::process::parse;
use super::soon;

/// A connection.
pub(crate) struct Http<S = TcpStream> {
    stream: S,
    /// What was read and belongs to the next answer.
    read: Vec<u8>,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        parse(&self.body)
    }

    /// A header, by its name in lower case; empty if it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }
}

impl Http {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = soon("a connection", TcpStream::connect(address)).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        Self::over(stream)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self { stream, read: Vec::new() }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Reply {
        self.request("GET", path, &[], "").await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Reply {
        self.request("POST", path, &[], body).await
    }

    pub(crate) async fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: node\r\ncontent-length: {length}\r\n{headers}\r\n");
        self.send((head + body).as_bytes()).await;
        self.reply(method != "HEAD").await.expect("an answer")
    }

    /// Sends bytes as they are.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        // Who is refused early may find the socket closed.
        let _ = soon("the socket", self.stream.write_all(bytes)).await;
    }

    /// The next answer; none if the connection ends before.
    pub(crate) async fn reply(&mut self, has_body: bool) -> Option<Reply> {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at;
            }
            self.read_more().await?;
        };
        let head = String::from_utf8(self.read.drain(..end + 4).collect()).expect("a head");
        let mut lines = head.lines();
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_string()))
            .collect();
        let mut reply = Reply { status, headers, body: String::new() };
        let length: usize = reply.header("content-length").parse().unwrap_or(0);
        if has_body {
            while self.read.len() < length {
                self.read_more().await?;
            }
            reply.body = String::from_utf8(self.read.drain(..length).collect()).expect("a text");
        }
        Some(reply)
    }

    async fn read_more(&mut self) -> Option<()> {
        let mut bytes = [0; 16_384];
        let count = soon("an answer", self.stream.read(&mut bytes)).await.ok().filter(|count| *count > 0)?;
        self.read.extend_from_slice(&bytes[..count]);
        Some(())
    }

    /// Waits until the other side closes; gives what it still sent.
    pub(crate) async fn closed(&mut self) -> Vec<u8> {
        while self.read_more().await.is_some() {}
        std::mem::take(&mut self.read)
    }
}
