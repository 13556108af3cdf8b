//! A connection: frames in, events out; answers in, frames out.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::bounds::{
    BLOCK_BYTES_MAX, BLOCK_FRAMES_MAX, CONNECTION_WINDOW, CUT_SHORT_MAX, FRAME_BYTES_MAX, HEADER_BYTES_MAX,
    MISTAKES_MAX, RESETS_MAX, SETTINGS_MAX, STREAM_WINDOW, STREAMS_MAX, WINDOW_DEFAULT, WINDOW_MAX,
};
use crate::encode::Encoder;
use crate::frame::{self, Code, FrameHead, HEAD_BYTES, PREFACE, flag, kind, setting};
use crate::head::{Head, Outcome, Reading};
use crate::hpack::Decoder;
use crate::stream::{Delivery, Field, Stream, StreamId, Then, Waiting, WaitingThen};

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

const fn broken<T>(code: Code, why: &'static str) -> Result<T, Broken> {
    Err(Broken { code, why })
}

/// The ping that asks whether the client has heard that the connection will end.
const LEAVING: [u8; 8] = *b"leaving!";
/// The ping that asks whether it is still there.
const THERE: [u8; 8] = *b"there?  ";

/// How far a connection is from its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Leaving {
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
    greeted: usize,
    decoder: Decoder,
    encoder: Encoder,
    /// A header block of which more is to come.
    block: Option<Block>,
    /// The headers that were read last, the bytes that they were read from, and what the decoder had been told until then: the same
    /// bytes mean the same as long as that is so.
    head: Rc<Head>,
    head_bytes: Vec<u8>,
    head_changes: Option<u64>,
    streams: HashMap<StreamId, Stream<T>, BuildHasherDefault<ByNumber>>,
    /// The last call that was begun.
    last: StreamId,
    /// Calls that were answered before the client had said everything.
    cut_short: VecDeque<StreamId>,
    /// How much more may come, and what came and was released, but not told.
    receives: u32,
    released: u32,
    /// How much more may be sent, on all calls together and on one that is new.
    room: i64,
    stream_room: i64,
    frame_bytes_max: usize,
    /// Who waits only for the connection's window.
    line: VecDeque<StreamId>,
    resets: usize,
    mistakes: usize,
    settings: usize,
    leaving: Leaving,
    client_leaves: bool,
    out: Vec<u8>,
}

#[derive(Debug)]
struct Block {
    stream: StreamId,
    end_stream: bool,
    frames: usize,
    bytes: Vec<u8>,
}

/// Streams are numbered one after the other; who can choose the numbers has a thousand of them at most.
#[derive(Default)]
struct ByNumber(u64);

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
            cut_short: VecDeque::new(),
            receives: CONNECTION_WINDOW,
            released: 0,
            room: i64::from(WINDOW_DEFAULT),
            stream_room: i64::from(WINDOW_DEFAULT),
            frame_bytes_max: FRAME_BYTES_MAX,
            line: VecDeque::new(),
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
            self.write_go_away(self.last, code);
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

/// What comes.
impl<T: Default> Connection<T> {
    fn take_data<'b>(&mut self, head: FrameHead, payload: &'b [u8]) -> Result<Option<Event<'b>>, Broken> {
        let id = head.stream;
        if self.is_idle(id) {
            return broken(Code::Protocol, "data of a call that did not begin");
        }
        let Some(data) = frame::unpadded(head, payload) else {
            return broken(Code::Protocol, "more padding than data");
        };
        let bytes = payload.len() as u32; // It is at most a frame.
        let Some(receives) = self.receives.checked_sub(bytes) else {
            return broken(Code::FlowControl, "more data than there is room for");
        };
        self.receives = receives;
        let Some(stream) = self.streams.get_mut(&id) else {
            self.release_connection(bytes);
            if !self.cut_short.contains(&id) {
                self.mistake(id, Code::StreamClosed)?;
            }
            return Ok(None);
        };
        let is_heard = head.has(flag::END_STREAM);
        let awaits = stream.awaits.map(|awaits| awaits.checked_sub(data.len() as u64));
        let fault = if stream.is_heard {
            Some(Code::StreamClosed)
        } else if stream.receives < bytes {
            Some(Code::FlowControl)
        } else if awaits.is_some_and(|left| left.is_none_or(|left| is_heard && left > 0)) {
            Some(Code::Protocol) // More than was announced, or less.
        } else {
            None
        };
        if let Some(code) = fault {
            self.release_connection(bytes);
            self.mistake(id, code)?;
            return Ok(None);
        }
        let padding = bytes - data.len() as u32;
        stream.receives -= bytes;
        stream.unreleased += data.len() as u32;
        (stream.is_heard, stream.awaits) = (is_heard, awaits.flatten());
        if stream.is_answered {
            // It was answered before it had said everything.
            self.release(id, data.len());
            if is_heard {
                self.forget_if_over(id);
            } else if !data.is_empty() {
                self.cut_short(id);
            }
            self.release_connection(padding);
            return Ok(None);
        }
        if padding > 0 {
            self.release(id, 0);
            self.release_connection(padding);
        }
        Ok((is_heard || !data.is_empty()).then_some(Event::Data { stream: id, data, end: is_heard }))
    }

    fn take_headers<'b>(&mut self, head: FrameHead, payload: &[u8]) -> Result<Option<Event<'b>>, Broken> {
        if head.stream.is_multiple_of(2) {
            return broken(Code::Protocol, "a call of a number that no client may choose");
        }
        let Some(mut block) = frame::unpadded(head, payload) else {
            return broken(Code::Protocol, "more padding than headers");
        };
        if head.has(flag::PRIORITY) {
            let Some((priority, rest)) = block.split_first_chunk::<5>() else {
                return broken(Code::FrameSize, "headers are too short");
            };
            if depends_on(priority) == head.stream {
                return broken(Code::Protocol, "a call that depends on itself");
            }
            block = rest;
        }
        let end_stream = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.take_block(head.stream, end_stream, block);
        }
        self.block = Some(Block { stream: head.stream, end_stream, frames: 1, bytes: block.to_vec() });
        Ok(None)
    }

    fn take_continuation<'b>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<Event<'b>>, Broken> {
        let Some(mut block) = self.block.take().filter(|block| block.stream == head.stream) else {
            return broken(Code::Protocol, "the rest of headers that did not begin");
        };
        block.frames += 1;
        if block.bytes.len() + payload.len() > BLOCK_BYTES_MAX || block.frames > BLOCK_FRAMES_MAX {
            return broken(Code::EnhanceYourCalm, "headers without end");
        }
        block.bytes.extend_from_slice(payload);
        if head.has(flag::END_HEADERS) {
            return self.take_block(block.stream, block.end_stream, &block.bytes);
        }
        self.block = Some(block);
        Ok(None)
    }

    /// Takes a whole header block: a call begins, or ends.
    fn take_block<'b>(&mut self, id: StreamId, end: bool, block: &[u8]) -> Result<Option<Event<'b>>, Broken> {
        if !self.is_idle(id) {
            return self.take_trailers(id, end, block);
        }
        self.last = id;
        let outcome = self.read_head(block)?;
        if self.leaving == Leaving::Heard {
            return Ok(None); // It came after the client had heard that nothing more is taken.
        }
        let is_short = end && self.head.content_length.is_some_and(|length| length > 0);
        match outcome {
            _ if self.streams.len() >= STREAMS_MAX => self.refuse(id, end, Code::RefusedStream),
            Outcome::Good if !is_short => {
                self.streams.insert(id, Stream::new(self.head.clone(), T::default(), end));
                Ok(Some(Event::Head { stream: id, end }))
            }
            Outcome::TooLarge => {
                self.streams.insert(id, Stream::new(Rc::default(), T::default(), end));
                self.respond(id, 431, &[], true);
                Ok(None)
            }
            Outcome::Good | Outcome::Malformed => self.refuse(id, end, Code::Protocol),
        }
    }

    /// Refuses a call that is about to begin. The client does not know that yet, and may say more.
    fn refuse<'b>(&mut self, id: StreamId, end: bool, code: Code) -> Result<Option<Event<'b>>, Broken> {
        if !end {
            self.remember_cut_short(id);
        }
        self.mistake(id, code)?;
        Ok(None)
    }

    /// Reads the headers of a request, unless they are those of the one before.
    fn read_head(&mut self, block: &[u8]) -> Result<Outcome, Broken> {
        if self.head_changes == Some(self.decoder.changes()) && self.head_bytes == block {
            return Ok(Outcome::Good);
        }
        if Rc::get_mut(&mut self.head).is_none() {
            self.head = Rc::default(); // A call that waits has the other.
        }
        self.head_changes = None;
        let Some(head) = Rc::get_mut(&mut self.head) else { return Ok(Outcome::Malformed) };
        let mut reading = Reading::new(head, false);
        let before = self.decoder.changes();
        let read = self.decoder.read(block, |name, value| reading.field(name, value));
        let outcome = reading.end();
        if read.is_err() {
            return broken(Code::Compression, "headers that cannot be read");
        }
        // What told the decoder something would do so again.
        if outcome == Outcome::Good && self.decoder.changes() == before {
            self.head_bytes.clear();
            self.head_bytes.extend_from_slice(block);
            self.head_changes = Some(before);
        }
        Ok(outcome)
    }

    fn take_trailers<'b>(
        &mut self,
        id: StreamId,
        end: bool,
        block: &[u8],
    ) -> Result<Option<Event<'b>>, Broken> {
        let mut trailers = Head::default(); // Nobody wants to know.
        let mut reading = Reading::new(&mut trailers, true);
        if self.decoder.read(block, |name, value| reading.field(name, value)).is_err() {
            return broken(Code::Compression, "headers that cannot be read");
        }
        let outcome = reading.end();
        let Some(stream) = self.streams.get_mut(&id) else {
            if self.cut_short.contains(&id) {
                return Ok(None);
            }
            return broken(Code::StreamClosed, "headers of a call that has ended");
        };
        let fault = match outcome {
            _ if stream.is_heard => Some(Code::StreamClosed),
            Outcome::Good if end && stream.awaits.is_none_or(|awaits| awaits == 0) => None,
            _ => Some(Code::Protocol),
        };
        if let Some(code) = fault {
            self.mistake(id, code)?;
            return Ok(None);
        }
        stream.is_heard = true;
        if stream.is_answered {
            self.forget_if_over(id);
            return Ok(None);
        }
        Ok(Some(Event::Data { stream: id, data: &[], end: true }))
    }

    fn take_priority(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Broken> {
        if head.stream == 0 {
            return broken(Code::Protocol, "a priority of no call");
        }
        // Nobody heeds it.
        match <&[u8; 5]>::try_from(payload) {
            Err(_) => self.mistake(head.stream, Code::FrameSize),
            Ok(priority) if depends_on(priority) == head.stream => self.mistake(head.stream, Code::Protocol),
            Ok(_) => Ok(()),
        }
    }

    fn take_reset(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Broken> {
        if self.is_idle(head.stream) {
            return broken(Code::Protocol, "a reset of a call that did not begin");
        }
        if payload.len() != 4 {
            return broken(Code::FrameSize, "a reset of another length");
        }
        if self.remove(head.stream).is_some() {
            self.resets += 1;
            if self.resets > RESETS_MAX {
                return broken(Code::EnhanceYourCalm, "too many calls are taken back");
            }
        }
        Ok(())
    }

    fn take_settings(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Broken> {
        if head.stream != 0 {
            return broken(Code::Protocol, "settings of a call");
        }
        let (settings, rest) = payload.as_chunks::<6>();
        let is_ack = head.has(flag::ACK);
        if !rest.is_empty() || (is_ack && !settings.is_empty()) {
            return broken(Code::FrameSize, "settings of another length");
        }
        if is_ack {
            return if self.settings == 0 {
                broken(Code::Protocol, "the first frame has no settings")
            } else {
                Ok(())
            };
        }
        self.settings += 1;
        if self.settings > SETTINGS_MAX {
            return broken(Code::EnhanceYourCalm, "settings change too often");
        }
        for [a, b, value @ ..] in settings {
            self.set(u16::from_be_bytes([*a, *b]), u32::from_be_bytes(*value))?;
        }
        frame::write(&mut self.out, kind::SETTINGS, flag::ACK, 0, &[]);
        Ok(())
    }

    fn set(&mut self, name: u16, value: u32) -> Result<(), Broken> {
        match name {
            setting::HEADER_TABLE_SIZE => self.encoder.resize(value as usize),
            setting::ENABLE_PUSH if value > 1 => {
                return broken(Code::Protocol, "a setting that is neither on nor off");
            }
            setting::INITIAL_WINDOW_SIZE => {
                let before = std::mem::replace(&mut self.stream_room, i64::from(value));
                if self.stream_room > WINDOW_MAX {
                    return broken(Code::FlowControl, "a window beyond all bounds");
                }
                if before < self.stream_room {
                    if self.streams.values().any(|stream| stream.room + self.stream_room > WINDOW_MAX) {
                        return broken(Code::FlowControl, "a window beyond all bounds");
                    }
                    let waiting = self.streams.iter().filter(|(_, stream)| stream.waiting.is_some());
                    let waiting: Vec<StreamId> = waiting.map(|(id, _)| *id).collect();
                    waiting.into_iter().for_each(|id| self.go_on(id));
                }
            }
            setting::MAX_FRAME_SIZE => {
                if !(1 << 14..1 << 24).contains(&value) {
                    return broken(Code::Protocol, "frames of a size that they cannot have");
                }
                self.frame_bytes_max = (value as usize).min(FRAME_BYTES_MAX);
            }
            _ => {}
        }
        Ok(())
    }

    fn take_ping(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Broken> {
        if head.stream != 0 {
            return broken(Code::Protocol, "a ping of a call");
        }
        let Ok(payload) = <[u8; 8]>::try_from(payload) else {
            return broken(Code::FrameSize, "a ping of another length");
        };
        if !head.has(flag::ACK) {
            frame::write(&mut self.out, kind::PING, flag::ACK, 0, &payload);
        } else if payload == LEAVING && self.leaving == Leaving::Told {
            self.leave_now();
        }
        Ok(())
    }

    fn take_go_away(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Broken> {
        if head.stream != 0 {
            return broken(Code::Protocol, "the end of a connection, of a call");
        }
        if payload.len() < 8 {
            return broken(Code::FrameSize, "the end of a connection, too short");
        }
        self.client_leaves = true;
        Ok(())
    }

    fn take_window_update(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Broken> {
        let id = head.stream;
        let Ok(more) = <[u8; 4]>::try_from(payload) else {
            return broken(Code::FrameSize, "a window of another length");
        };
        let more = i64::from(u32::from_be_bytes(more) & 0x7fff_ffff);
        if id == 0 {
            self.room += more;
            if more == 0 {
                return broken(Code::Protocol, "a window that does not grow");
            }
            if self.room > WINDOW_MAX {
                return broken(Code::FlowControl, "a window beyond all bounds");
            }
            // Each of them sends something, or leaves the line.
            while self.room > 0
                && let Some(next) = self.line.pop_front()
            {
                if let Some(waiting) = self.streams.get_mut(&next).and_then(|next| next.waiting.as_mut()) {
                    waiting.is_in_line = false;
                    self.go_on(next);
                }
            }
            return Ok(());
        }
        if self.is_idle(id) {
            return broken(Code::Protocol, "a window of a call that did not begin");
        }
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if more == 0 {
            return self.mistake(id, Code::Protocol);
        }
        stream.room += more;
        if stream.room + self.stream_room > WINDOW_MAX {
            return self.mistake(id, Code::FlowControl);
        }
        self.go_on(id);
        Ok(())
    }

    /// A call that did not begin. (What the client never numbers did not begin either.)
    fn is_idle(&self, id: StreamId) -> bool {
        id > self.last || id.is_multiple_of(2)
    }

    /// Ends a call, if it is there, because of the client's mistake. Too many end the connection.
    fn mistake(&mut self, id: StreamId, code: Code) -> Result<(), Broken> {
        self.reset(id, code);
        self.mistakes += 1;
        if self.mistakes > MISTAKES_MAX {
            return broken(Code::EnhanceYourCalm, "too many mistakes");
        }
        Ok(())
    }
}

/// What a server does.
impl<T> Connection<T> {
    /// What is to be written to the client. What was written is to be taken out.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Has the client greeted as one does?
    pub fn is_greeted(&self) -> bool {
        self.greeted == PREFACE.len()
    }

    /// The headers of a call, and what is remembered of it; none if it is gone.
    pub fn call(&mut self, id: StreamId) -> Option<(&Rc<Head>, &mut T)> {
        self.streams.get_mut(&id).map(|stream| (&stream.head, &mut stream.state))
    }

    /// How many calls have not ended.
    pub fn calls(&self) -> usize {
        self.streams.len()
    }

    /// Lets the client send so much more on a call: as much of its data is done with.
    pub fn release(&mut self, id: StreamId, bytes: usize) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(stream.unreleased);
        stream.unreleased -= bytes;
        // It is told when it is worth a frame.
        let used = STREAM_WINDOW - stream.receives - stream.unreleased;
        if !stream.is_heard && used >= STREAM_WINDOW / 2 {
            stream.receives += used;
            frame::write(&mut self.out, kind::WINDOW_UPDATE, 0, id, &used.to_be_bytes());
        }
        self.release_connection(bytes);
    }

    fn release_connection(&mut self, bytes: u32) {
        self.released += bytes;
        if self.released >= CONNECTION_WINDOW / 2 {
            let more = std::mem::take(&mut self.released);
            self.receives += more;
            frame::write(&mut self.out, kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        }
    }

    /// Begins an answer; with `end`, that is all of it.
    pub fn respond(&mut self, id: StreamId, status: u16, fields: &[Field<'_>], end: bool) {
        if self.streams.contains_key(&id) {
            self.write_fields(id, Some(status), fields, end);
            if end {
                self.answered(id);
            }
        }
    }

    /// Sends data of an answer that has begun, and what comes behind it; what the client has no room for waits. Says whether there still
    /// is such a call.
    pub fn send(
        &mut self,
        id: StreamId,
        data: &[u8],
        then: Then<'_>,
        delivery: Option<Box<dyn Delivery>>,
    ) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        let room = self.room.min(stream.room + self.stream_room);
        match &mut stream.waiting {
            None if data.len() as i64 <= room => {
                stream.room -= data.len() as i64;
                self.room -= data.len() as i64;
                if !data.is_empty() || then == Then::End {
                    write_data(&mut self.out, self.frame_bytes_max, id, data, then == Then::End);
                }
                if let Then::Trailers(fields) = then {
                    self.write_fields(id, None, fields, true);
                }
                if let Some(delivery) = delivery {
                    delivery.delivered();
                }
                if then != Then::More {
                    self.answered(id);
                }
            }
            waiting => {
                let waiting = waiting.get_or_insert_default();
                waiting.data.extend_from_slice(data);
                waiting.then = then.into();
                waiting.delivery = delivery.or(waiting.delivery.take());
                stream.is_answered = then != Then::More;
                self.go_on(id);
            }
        }
        true
    }

    /// Waits until all that was sent on a call is on its way; says whether there still is such a call.
    pub fn poll_sent(&mut self, id: StreamId, context: &mut Context<'_>) -> Poll<bool> {
        let Some(stream) = self.streams.get_mut(&id) else { return Poll::Ready(false) };
        if stream.waiting.is_none() {
            return Poll::Ready(true);
        }
        stream.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Ends a call, if it is there.
    pub fn reset(&mut self, id: StreamId, code: Code) {
        if self.remove(id).is_some_and(|stream| !stream.is_heard) {
            self.remember_cut_short(id);
        }
        frame::write(&mut self.out, kind::RST_STREAM, 0, id, &(code as u32).to_be_bytes());
    }

    /// Asks whether the client is there. Whatever comes from it is the answer.
    pub fn ping(&mut self) {
        frame::write(&mut self.out, kind::PING, 0, 0, &THERE);
    }

    /// Asks the client to end the connection. Calls that are on their way are answered.
    pub fn leave(&mut self) {
        if self.leaving == Leaving::No {
            self.leaving = Leaving::Told;
            self.write_go_away(i32::MAX as u32, Code::NoError);
            frame::write(&mut self.out, kind::PING, 0, 0, &LEAVING);
            if !self.is_greeted() {
                self.leave_now(); // It has asked nothing, and will not answer.
            }
        }
    }

    /// Takes no more calls: the client has heard that it should bring none.
    fn leave_now(&mut self) {
        self.leaving = Leaving::Heard;
        self.write_go_away(self.last, Code::NoError);
    }

    /// Lets go of all calls: the connection has ended.
    pub fn close(&mut self) {
        self.streams.clear();
    }

    /// Is there nothing left to say? What stands in the output is to be written all the same.
    pub fn is_over(&self) -> bool {
        (self.leaving == Leaving::Heard || self.client_leaves) && self.streams.values().all(Self::is_said)
    }

    /// Everything was said to the client; whether it has more to say does not matter.
    fn is_said(stream: &Stream<T>) -> bool {
        stream.is_answered && stream.waiting.is_none()
    }

    fn write_go_away(&mut self, last: StreamId, code: Code) {
        frame::write_head(&mut self.out, 8, kind::GOAWAY, 0, 0);
        self.out.extend_from_slice(&last.to_be_bytes());
        self.out.extend_from_slice(&(code as u32).to_be_bytes());
    }

    /// Writes headers, or what comes behind a body.
    fn write_fields(&mut self, id: StreamId, status: Option<u16>, fields: &[Field<'_>], end: bool) {
        let start = self.out.len();
        let flags = flag::END_HEADERS | if end { flag::END_STREAM } else { 0 };
        frame::write_head(&mut self.out, 0, kind::HEADERS, flags, id);
        self.encoder.begin(&mut self.out);
        if let Some(status) = status {
            self.encoder.status(&mut self.out, status);
        }
        for field in fields {
            // Answers are ours, and short: what would not fit a frame is left out.
            if self.out.len() - start + field.0.len() + field.1.len() + HEAD_BYTES < FRAME_BYTES_MAX {
                self.encoder.field(&mut self.out, *field);
            }
        }
        frame::end(&mut self.out, start);
    }

    /// Sends what waits, as far as there is room.
    fn go_on(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(waiting) = &mut stream.waiting else { return };
        let own_room = stream.room + self.stream_room;
        let rest = &waiting.data[waiting.sent..];
        let bytes = rest.len().min(self.room.min(own_room).max(0) as usize);
        let is_all = bytes == rest.len();
        let end = is_all && matches!(waiting.then, WaitingThen::End);
        if bytes > 0 || end {
            write_data(&mut self.out, self.frame_bytes_max, id, &rest[..bytes], end);
        }
        stream.room -= bytes as i64;
        self.room -= bytes as i64;
        waiting.sent += bytes;
        if !is_all {
            // It waits for its own window, which calls it by its name, or in the line.
            if own_room > bytes as i64 && !waiting.is_in_line {
                waiting.is_in_line = true;
                self.line.push_back(id);
            }
            return;
        }
        let Some(waiting) = stream.waiting.take() else { return };
        if let Some(waker) = stream.waker.take() {
            waker.wake();
        }
        let Waiting { then, delivery, .. } = *waiting;
        if let WaitingThen::Trailers(fields) = &then {
            let fields: Vec<Field<'_>> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
            self.write_fields(id, None, &fields, true);
        }
        if let Some(delivery) = delivery {
            delivery.delivered();
        }
        if !matches!(then, WaitingThen::More) {
            self.answered(id);
        }
    }

    /// Everything was said to the client on a call.
    fn answered(&mut self, id: StreamId) {
        self.resets = self.resets.saturating_sub(1);
        self.mistakes = self.mistakes.saturating_sub(1);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.is_answered = true;
        }
        self.forget_if_over(id);
    }

    fn forget_if_over(&mut self, id: StreamId) {
        let is_over = self.streams.get(&id).is_some_and(|stream| stream.is_heard && Self::is_said(stream));
        if is_over {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: StreamId) -> Option<Stream<T>> {
        let stream = self.streams.remove(&id)?;
        self.release_connection(stream.unreleased);
        if stream.waiting.as_ref().is_some_and(|waiting| waiting.is_in_line) {
            self.line.retain(|waits| *waits != id);
        }
        Some(stream)
    }

    /// Lets the client know that nobody listens any more to a call that was answered.
    fn cut_short(&mut self, id: StreamId) {
        if self.streams.get(&id).is_some_and(Self::is_said) {
            self.reset(id, Code::NoError);
        }
    }

    fn remember_cut_short(&mut self, id: StreamId) {
        if self.cut_short.len() == CUT_SHORT_MAX {
            self.cut_short.pop_front();
        }
        self.cut_short.push_back(id);
    }
}

/// Writes data, in as many frames as it takes.
#[inline]
fn write_data(out: &mut Vec<u8>, frame_bytes_max: usize, id: StreamId, data: &[u8], end: bool) {
    let mut rest = data;
    loop {
        let (now, behind) = rest.split_at(rest.len().min(frame_bytes_max));
        rest = behind;
        let flags = if end && rest.is_empty() { flag::END_STREAM } else { 0 };
        frame::write(out, kind::DATA, flags, id, now);
        if rest.is_empty() {
            return;
        }
    }
}

/// On which call another depends.
fn depends_on(priority: &[u8; 5]) -> StreamId {
    let [a, b, c, d, _] = *priority;
    u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff
}
