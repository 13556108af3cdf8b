//! Frames: nine bytes that say what comes, and what comes.

use crate::stream::StreamId;

pub(crate) const HEAD_BYTES: usize = 9;

/// With what every connection begins.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What kind of frame it is.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// What else is to be known of it.
pub(crate) mod flag {
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 32;
}

/// What a client or a server says of itself.
pub(crate) mod setting {
    pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
    pub(crate) const ENABLE_PUSH: u16 = 2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// Why a call or a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Code {
    /// Nothing is wrong.
    NoError = 0,
    /// The client does what the protocol forbids.
    Protocol = 1,
    /// Something broke here.
    Internal = 2,
    /// More was sent than there is a window for.
    FlowControl = 3,
    /// A frame for a call that has ended.
    StreamClosed = 5,
    /// A frame of a length that it cannot have.
    FrameSize = 6,
    /// Nothing was done: it may be tried again.
    RefusedStream = 7,
    /// A header block that means nothing.
    Compression = 9,
    /// Too much of something.
    EnhanceYourCalm = 11,
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameHead {
    pub(crate) bytes: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: StreamId,
}

impl FrameHead {
    #[inline]
    pub(crate) fn read(head: &[u8; HEAD_BYTES]) -> Self {
        let [a, b, c, kind, flags, stream @ ..] = *head;
        Self {
            bytes: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        }
    }

    #[inline]
    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Writes the head of a frame whose length is known.
#[inline]
pub(crate) fn write_head(out: &mut Vec<u8>, bytes: usize, kind: u8, flags: u8, stream: StreamId) {
    let [_, a, b, c] = (bytes as u32).to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags, d, e, f, g]);
}

/// Writes a frame.
#[inline]
pub(crate) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: StreamId, payload: &[u8]) {
    write_head(out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
}

/// Writes the length of the frame that begins there and ends where the bytes end.
#[inline]
pub(crate) fn end(out: &mut [u8], start: usize) {
    let [_, a, b, c] = ((out.len() - start - HEAD_BYTES) as u32).to_be_bytes();
    out[start..start + 3].copy_from_slice(&[a, b, c]);
}

/// The payload without what only fills it up, if it is as long as it says.
pub(crate) fn unpadded(head: FrameHead, payload: &[u8]) -> Option<&[u8]> {
    if !head.has(flag::PADDED) {
        return Some(payload);
    }
    let (&padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(padding))?)
}
