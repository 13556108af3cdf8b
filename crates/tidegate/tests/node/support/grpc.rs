//! A client of gRPC, on the library of HTTP/2 alone: it sends what it is told, also what no client would.

use std::net::SocketAddr;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use prost::Message as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::messages::{self, Descriptor, Entry, Response};
use super::soon;

pub(crate) const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// A connection.
pub(crate) struct Grpc {
    sender: SendRequest<Bytes>,
    /// Ends with the connection, and says how.
    pub(crate) connection: JoinHandle<Result<(), h2::Error>>,
}

/// A call that was not answered with a message.
#[derive(Debug)]
pub(crate) enum Failed {
    /// It was answered with an error.
    Status(i32, String),
    /// It was not answered.
    Broken(h2::Error),
}

impl From<h2::Error> for Failed {
    fn from(error: h2::Error) -> Self {
        Self::Broken(error)
    }
}

impl Grpc {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = soon("a connection", TcpStream::connect(address)).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        Self::over(stream).await.expect("a greeting")
    }

    pub(crate) async fn over(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, h2::Error> {
        let mut builder = h2::client::Builder::new();
        // Answers that come after their call was taken back are to end a call, and not the connection.
        builder.data_frame_budget(usize::MAX);
        let (sender, connection) = soon("a greeting", builder.handshake(stream)).await?;
        Ok(Self { sender, connection: tokio::spawn(connection) })
    }

    /// What opens streams, for those who want to do the rest themselves.
    pub(crate) fn sender(&self) -> SendRequest<Bytes> {
        self.sender.clone()
    }

    /// Asks for a decision, which has to come.
    pub(crate) async fn ask(&self, request: &messages::Request) -> Response {
        self.try_ask(request, &[]).await.unwrap_or_else(|error| panic!("{error:?} to {request:?}"))
    }

    pub(crate) async fn try_ask(
        &self,
        request: &messages::Request,
        metadata: &[(&str, &str)],
    ) -> Result<Response, Failed> {
        let message = self.call(SHOULD_RATE_LIMIT, &request.encode_to_vec(), metadata).await?;
        Ok(Response::decode(message).expect("a response"))
    }

    /// Calls a method with one message.
    pub(crate) async fn call(
        &self,
        path: &str,
        message: &[u8],
        metadata: &[(&str, &str)],
    ) -> Result<Bytes, Failed> {
        self.call_framed(path, framed(message), metadata).await
    }

    /// Calls a method with these bytes, be they a message or not.
    pub(crate) async fn call_framed(
        &self,
        path: &str,
        bytes: Bytes,
        metadata: &[(&str, &str)],
    ) -> Result<Bytes, Failed> {
        soon("an answer", self.called(path, bytes, metadata)).await
    }

    async fn called(&self, path: &str, bytes: Bytes, metadata: &[(&str, &str)]) -> Result<Bytes, Failed> {
        let mut sender = self.sender.clone().ready().await?;
        let mut request = Request::post(format!("http://node{path}")).header("te", "trailers");
        request = request.header("content-type", "application/grpc");
        for (name, value) in metadata {
            request = request.header(*name, *value);
        }
        let (response, mut stream) = sender.send_request(request.body(()).expect("a request"), false)?;
        // Who is answered early is not read to the end; that is no trouble.
        let _ = stream.send_data(bytes, true);
        let (head, mut body) = response.await?.into_parts();
        assert_eq!(head.status, 200, "a call is answered with 200, whatever its status");
        let mut gathered = BytesMut::new();
        while let Some(data) = body.data().await {
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            gathered.extend_from_slice(&data);
        }
        if let Some(status) = status(&head.headers) {
            return status.map(|()| Bytes::new());
        }
        let trailers = body.trailers().await?.unwrap_or_default();
        status(&trailers).unwrap_or_else(|| panic!("no status in {trailers:?}"))?;
        assert_eq!(gathered.first(), Some(&0), "not compressed");
        let length = u32::from_be_bytes(gathered[1..5].try_into().expect("a length")) as usize;
        assert_eq!(length, gathered.len() - 5, "one message");
        Ok(gathered.split_off(5).freeze())
    }
}

fn status(headers: &HeaderMap) -> Option<Result<(), Failed>> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let code: i32 = text("grpc-status")?.parse().expect("a number");
    Some(match code {
        0 => Ok(()),
        code => Err(Failed::Status(code, text("grpc-message").unwrap_or_default().into())),
    })
}

/// A message with the prefix of gRPC.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(5 + message.len());
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).expect("a length"));
    bytes.put_slice(message);
    bytes.freeze()
}

/// A request with these descriptors.
pub(crate) fn asks(domain: &str, descriptors: impl IntoIterator<Item = Descriptor>) -> messages::Request {
    messages::Request {
        domain: domain.into(),
        descriptors: descriptors.into_iter().collect(),
        hits_addend: 0,
    }
}

/// A descriptor with these entries.
pub(crate) fn descriptor(entries: &[(&str, &str)]) -> Descriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    Descriptor { entries: entries.iter().map(entry).collect(), ..Descriptor::default() }
}
