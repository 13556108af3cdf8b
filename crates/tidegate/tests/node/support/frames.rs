//! HTTP/2, written frame by frame: for what no library would send.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::grpc::SHOULD_RATE_LIMIT;
use super::soon;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const ACK: u8 = 1;

const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// A frame that came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// The bytes of a frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).expect("a length").to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A field of a header block: a literal that is not indexed, both texts as they are.
pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        assert!(text.len() < 127, "a length of one byte");
        bytes.push(text.len() as u8);
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// The frames of a call for a decision.
pub(crate) fn call(stream: u32, message: &[u8]) -> Vec<u8> {
    let mut bytes = head(stream);
    bytes.extend(frame(DATA, END_STREAM, stream, &super::grpc::framed(message)));
    bytes
}

/// The same, as the clients of other libraries frame it: that nothing more comes is said by a frame of its own.
pub(crate) fn call_in_two(stream: u32, message: &[u8]) -> Vec<u8> {
    let mut bytes = head(stream);
    bytes.extend(frame(DATA, 0, stream, &super::grpc::framed(message)));
    bytes.extend(frame(DATA, END_STREAM, stream, &[]));
    bytes
}

/// The first frame of a call, after which its message is awaited.
pub(crate) fn head(stream: u32) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", SHOULD_RATE_LIMIT),
        (":authority", "node"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let block: Vec<u8> = fields.iter().flat_map(|(name, value)| field(name, value)).collect();
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// Takes a call back.
pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &CANCEL)
}

/// The numbers of a client's streams.
pub(crate) fn streams() -> impl Iterator<Item = u32> {
    (1..).step_by(2)
}

/// A connection.
pub(crate) struct Frames {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Frames {
    /// Connects and greets.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = soon("a connection", TcpStream::connect(address)).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let mut frames = Self { stream, read: Vec::new() };
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(SETTINGS, 0, 0, &[]));
        bytes.extend(frame(SETTINGS, ACK, 0, &[]));
        bytes.extend(frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes())); // For all answers of a test.
        frames.send(&bytes).await;
        frames
    }

    /// Sends bytes; says whether they could be sent.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> bool {
        soon("the socket", self.stream.write_all(bytes)).await.is_ok()
    }

    /// Sends bytes, and reads whatever comes meanwhile, so that neither side waits for the other.
    pub(crate) async fn send_and_read(&mut self, bytes: &[u8]) -> bool {
        let (mut reader, mut writer) = self.stream.split();
        let read = &mut self.read;
        let reading = async {
            let mut chunk = vec![0; 65_536];
            while let Ok(count @ 1..) = reader.read(&mut chunk).await {
                read.extend_from_slice(&chunk[..count]);
            }
        };
        tokio::select! {
            sent = writer.write_all(bytes) => sent.is_ok(),
            () = reading => false,
            () = tokio::time::sleep(super::SOON) => panic!("neither sent nor refused"),
        }
    }

    /// The next frame; none if the connection has ended. Pings are answered on the way, as by every client.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let next = self.next_frame().await?;
        if next.kind == PING && next.flags & ACK == 0 {
            self.send(&frame(PING, ACK, 0, &next.payload)).await;
        }
        Some(next)
    }

    async fn next_frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(head) = self.read.first_chunk::<9>() {
                let [a, b, c, kind, flags, stream @ ..] = *head;
                let length = u32::from_be_bytes([0, a, b, c]) as usize;
                if self.read.len() >= 9 + length {
                    let payload = self.read[9..9 + length].to_vec();
                    self.read.drain(..9 + length);
                    return Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload });
                }
            }
            let mut bytes = [0; 16_384];
            let count =
                soon("a frame", self.stream.read(&mut bytes)).await.ok().filter(|count| *count > 0)?;
            self.read.extend_from_slice(&bytes[..count]);
        }
    }

    /// Frames until one of this kind on this stream comes; none if the connection ends before.
    pub(crate) async fn find(&mut self, kind: u8, stream: u32) -> Option<Frame> {
        loop {
            let frame = self.next().await?;
            if (frame.kind, frame.stream) == (kind, stream) {
                return Some(frame);
            }
        }
    }
}
