//! What comes from the client, frame by frame.

use std::rc::Rc;

use crate::bounds::{
    BLOCK_BYTES_MAX, BLOCK_FRAMES_MAX, BLOCK_KEPT_BYTES, FRAME_BYTES_MAX, HEADS_BYTES_MAX, MISTAKES_MAX,
    RESETS_MAX, SETTINGS_MAX, STREAMS_MAX, WINDOW_MAX,
};
use crate::connection::{Block, Broken, Connection, Event, LEAVING, Leaving, broken};
use crate::frame::{self, Code, FrameHead, flag, kind, setting};
use crate::head::{Head, Outcome, Reading};
use crate::stream::{Stream, StreamId};

impl<T: Default> Connection<T> {
    pub(crate) fn take_data<'b>(
        &mut self,
        head: FrameHead,
        payload: &'b [u8],
    ) -> Result<Option<Event<'b>>, Broken> {
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

    pub(crate) fn take_headers<'b>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<Option<Event<'b>>, Broken> {
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

    pub(crate) fn take_continuation<'b>(
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
            // It came after the client had heard that nothing more is taken.
            if !end {
                self.remember_cut_short(id);
            }
            return Ok(None);
        }
        self.last_taken = id;
        let is_short = end && self.head.content_length.is_some_and(|length| length > 0);
        match outcome {
            _ if self.streams.len() >= STREAMS_MAX || self.heads_bytes > HEADS_BYTES_MAX => {
                self.refuse(id, end, Code::RefusedStream)
            }
            Outcome::Good if !is_short => {
                self.heads_bytes += self.head.bytes();
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
        let (is_endless, outcome) = (reading.is_endless(), reading.end());
        if read.is_err() {
            return unreadable(is_endless);
        }
        // If it told the decoder something, that is not what it was, and the same bytes will be read again.
        if outcome == Outcome::Good && block.len() <= BLOCK_KEPT_BYTES {
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
        let read = self.decoder.read(block, |name, value| reading.field(name, value));
        let (is_endless, outcome) = (reading.is_endless(), reading.end());
        if read.is_err() {
            return unreadable(is_endless);
        }
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

    pub(crate) fn take_priority(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Broken> {
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

    pub(crate) fn take_reset(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Broken> {
        if self.is_idle(head.stream) {
            return broken(Code::Protocol, "a reset of a call that did not begin");
        }
        if payload.len() != 4 {
            return broken(Code::FrameSize, "a reset of another length");
        }
        // An answer that is not written yet is not wanted any more.
        self.deliveries.retain(|(of, _)| *of != head.stream);
        if self.remove(head.stream).is_some() {
            self.resets += 1;
            if self.resets > RESETS_MAX {
                return broken(Code::EnhanceYourCalm, "too many calls are taken back");
            }
        }
        Ok(())
    }

    pub(crate) fn take_settings(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Broken> {
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
        let room = self.stream_room;
        for [a, b, value @ ..] in settings {
            self.set(u16::from_be_bytes([*a, *b]), u32::from_be_bytes(*value))?;
        }
        if self.stream_room > room {
            self.all_go_on()?;
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
                self.stream_room = i64::from(value);
                if self.stream_room > WINDOW_MAX {
                    return broken(Code::FlowControl, "a window beyond all bounds");
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

    /// There is more room on every call.
    fn all_go_on(&mut self) -> Result<(), Broken> {
        if self.streams.values().any(|stream| stream.room + self.stream_room > WINDOW_MAX) {
            return broken(Code::FlowControl, "a window beyond all bounds");
        }
        let waiting = self.streams.iter().filter(|(_, stream)| stream.waiting.is_some());
        let waiting: Vec<StreamId> = waiting.map(|(id, _)| *id).collect();
        waiting.into_iter().for_each(|id| self.go_on(id));
        Ok(())
    }

    pub(crate) fn take_ping(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Broken> {
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

    pub(crate) fn take_go_away(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Broken> {
        if head.stream != 0 {
            return broken(Code::Protocol, "the end of a connection, of a call");
        }
        if payload.len() < 8 {
            return broken(Code::FrameSize, "the end of a connection, too short");
        }
        self.client_leaves = true;
        Ok(())
    }

    pub(crate) fn take_window_update(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Broken> {
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

/// Headers that cannot be read, or that nobody wants to read to their end.
fn unreadable<T>(is_endless: bool) -> Result<T, Broken> {
    if is_endless {
        return broken(Code::EnhanceYourCalm, "headers without end");
    }
    broken(Code::Compression, "headers that cannot be read")
}

/// On which call another depends.
fn depends_on(priority: &[u8; 5]) -> StreamId {
    let [a, b, c, d, _] = *priority;
    u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff
}
