//! A connection: what is known of it, and the frames that come on it, one after the other.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use crate::bounds::{
    CONNECTION_WINDOW, FRAME_BYTES_MAX, HEADER_BYTES_MAX, STREAM_WINDOW, STREAMS_MAX, WINDOW_DEFAULT,
};
use crate::encode::Encoder;
use crate::frame::{self, Code, FrameHead, HEAD_BYTES, PREFACE, kind, setting};
use crate::head::Head;
use crate::hpack::Decoder;
use crate::stream::{Delivery, Stream, StreamId};

/// What a client did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'b> {
    /// A call began; with `end`, nothing follows.
    Head {
        /// Which.
        stream: StreamId,
        /// It has no body.
        end: bool,
    },
    /// Some of its body came. It counts against what the client may send until it is released.
    Data {
        /// Of which.
        stream: StreamId,
        /// What came.
        data: &'b [u8],
        /// That was all.
        end: bool,
    },
}

/// Why a connection ends before its time. The client is told; what stands in the output has to be written all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken {
    /// What the client is told.
    pub code: Code,
    /// What is wrong.
    pub why: &'static str,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.why)
    }
}

pub(crate) const fn broken<T>(code: Code, why: &'static str) -> Result<T, Broken> {
    Err(Broken { code, why })
}

/// The ping that asks whether the client has heard that the connection will end.
pub(crate) const LEAVING: [u8; 8] = *b"leaving!";
/// The ping that asks whether it is still there.
pub(crate) const THERE: [u8; 8] = *b"there?  ";

/// How far a connection is from its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Leaving {
    No,
    /// The client was told, and may not have heard it.
    Told,
    /// New calls are not taken.
    Heard,
}

/// A connection. `T` is what a server remembers of each call; it is dropped with it.
#[derive(Debug)]
pub struct Connection<T> {
    /// How much of the greeting has come.
    pub(crate) greeted: usize,
    pub(crate) decoder: Decoder,
    pub(crate) encoder: Encoder,
    /// A header block of which more is to come.
    pub(crate) block: Option<Block>,
    /// The headers that were read last, the bytes that they were read from, and what the decoder had been told until then: the same
    /// bytes mean the same as long as that is so.
    pub(crate) head: Rc<Head>,
    pub(crate) head_bytes: Vec<u8>,
    pub(crate) head_changes: Option<u64>,
    pub(crate) streams: HashMap<StreamId, Stream<T>, BuildHasherDefault<ByNumber>>,
    /// The last call that was begun, and the last that was taken.
    pub(crate) last: StreamId,
    pub(crate) last_taken: StreamId,
    /// What the headers of calls take that are not answered.
    pub(crate) heads_bytes: usize,
    /// Calls that were answered before the client had said everything.
    pub(crate) cut_short: VecDeque<StreamId>,
    /// How much more may come, and what came and was released, but not told.
    pub(crate) receives: u32,
    pub(crate) released: u32,
    /// How much more may be sent, on all calls together and on one that is new.
    pub(crate) room: i64,
    pub(crate) stream_room: i64,
    pub(crate) frame_bytes_max: usize,
    /// Who waits only for the connection's window.
    pub(crate) line: VecDeque<StreamId>,
    /// What all answers take that wait.
    pub(crate) waiting_bytes: usize,
    /// Who wants to know when what is in the output is written.
    pub(crate) deliveries: Vec<(StreamId, Box<dyn Delivery>)>,
    pub(crate) resets: usize,
    pub(crate) mistakes: usize,
    pub(crate) settings: usize,
    pub(crate) leaving: Leaving,
    pub(crate) client_leaves: bool,
    pub(crate) out: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) stream: StreamId,
    pub(crate) end_stream: bool,
    pub(crate) frames: usize,
    pub(crate) bytes: Vec<u8>,
}

/// Streams are numbered one after the other; who can choose the numbers has a thousand of them at most.
#[derive(Default)]
pub(crate) struct ByNumber(u64);

impl Hasher for ByNumber {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u32(&mut self, number: u32) {
        self.0 = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl<T: Default> Default for Connection<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Default> Connection<T> {
    /// A connection on which nothing was said; the server's greeting is in the output.
    pub fn new() -> Self {
        let mut out = Vec::new();
        let settings = [
            (setting::MAX_CONCURRENT_STREAMS, STREAMS_MAX as u32),
            (setting::INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            (setting::MAX_HEADER_LIST_SIZE, HEADER_BYTES_MAX as u32),
        ];
        frame::write_head(&mut out, 6 * settings.len(), kind::SETTINGS, 0, 0);
        for (name, value) in settings {
            out.extend_from_slice(&name.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
        let more = CONNECTION_WINDOW - WINDOW_DEFAULT;
        frame::write(&mut out, kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        Self {
            greeted: 0,
            decoder: Decoder::default(),
            encoder: Encoder::default(),
            block: None,
            head: Rc::default(),
            head_bytes: Vec::new(),
            head_changes: None,
            streams: HashMap::default(),
            last: 0,
            last_taken: 0,
            heads_bytes: 0,
            cut_short: VecDeque::new(),
            receives: CONNECTION_WINDOW,
            released: 0,
            room: i64::from(WINDOW_DEFAULT),
            stream_room: i64::from(WINDOW_DEFAULT),
            frame_bytes_max: FRAME_BYTES_MAX,
            line: VecDeque::new(),
            waiting_bytes: 0,
            deliveries: Vec::new(),
            resets: 0,
            mistakes: 0,
            settings: 0,
            leaving: Leaving::No,
            client_leaves: false,
            out,
        }
    }

    /// The next thing that the client did, if all of it has come; takes from the input what was read. What is left is the beginning of
    /// a frame, and has to stand before what comes next.
    pub fn next<'b>(&mut self, input: &mut &'b [u8]) -> Result<Option<Event<'b>>, Broken> {
        let event = self.read(input);
        if let Err(Broken { code, .. }) = event {
            self.write_go_away(self.last_taken, code);
        }
        event
    }

    fn read<'b>(&mut self, input: &mut &'b [u8]) -> Result<Option<Event<'b>>, Broken> {
        if self.greeted < PREFACE.len() && !self.greet(input)? {
            return Ok(None);
        }
        while let Some((head, rest)) = input.split_first_chunk::<HEAD_BYTES>() {
            let head = FrameHead::read(head);
            if head.bytes > FRAME_BYTES_MAX {
                return broken(Code::FrameSize, "a frame is too large");
            }
            let Some((payload, rest)) = rest.split_at_checked(head.bytes) else { break };
            *input = rest;
            if let Some(event) = self.frame(head, payload)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    /// Reads the greeting; says whether all of it has come.
    fn greet(&mut self, input: &mut &[u8]) -> Result<bool, Broken> {
        let expected = &PREFACE[self.greeted..];
        let bytes = expected.len().min(input.len());
        let (came, rest) = input.split_at(bytes);
        if came != &expected[..bytes] {
            return broken(Code::Protocol, "it does not begin as HTTP/2 does");
        }
        *input = rest;
        self.greeted += bytes;
        Ok(self.greeted == PREFACE.len())
    }

    #[inline]
    fn frame<'b>(&mut self, head: FrameHead, payload: &'b [u8]) -> Result<Option<Event<'b>>, Broken> {
        if self.block.is_some() && head.kind != kind::CONTINUATION {
            return broken(Code::Protocol, "a frame between the parts of headers");
        }
        if self.settings == 0 && head.kind != kind::SETTINGS {
            return broken(Code::Protocol, "the first frame has no settings");
        }
        match head.kind {
            kind::DATA => return self.take_data(head, payload),
            kind::HEADERS => return self.take_headers(head, payload),
            kind::CONTINUATION => return self.take_continuation(head, payload),
            kind::PRIORITY => self.take_priority(head, payload)?,
            kind::RST_STREAM => self.take_reset(head, payload)?,
            kind::SETTINGS => self.take_settings(head, payload)?,
            kind::PUSH_PROMISE => return broken(Code::Protocol, "a client cannot promise"),
            kind::PING => self.take_ping(head, payload)?,
            kind::GOAWAY => self.take_go_away(head, payload)?,
            kind::WINDOW_UPDATE => self.take_window_update(head, payload)?,
            _ => {} // What is unknown means nothing.
        }
        Ok(None)
    }
}
