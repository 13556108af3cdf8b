//! What a server says to the client, and what waits until the client has room for it.

use std::rc::Rc;
use std::task::{Context, Poll};

use crate::bounds::{CONNECTION_WINDOW, CUT_SHORT_MAX, FRAME_BYTES_MAX, STREAM_WINDOW, WAITING_BYTES_MAX};
use crate::connection::{Connection, LEAVING, Leaving, THERE};
use crate::frame::{self, Code, HEAD_BYTES, PREFACE, flag, kind};
use crate::head::Head;
use crate::stream::{Delivery, Field, Stream, StreamId, Then, Waiting, WaitingThen};

impl<T: Default> Connection<T> {
    /// What is to be written to the client. What was written is to be taken out.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Has the client greeted as one does?
    pub fn is_greeted(&self) -> bool {
        self.greeted == PREFACE.len()
    }

    /// What is in the output was written: all of it.
    pub fn written(&mut self) {
        self.deliveries.drain(..).for_each(|(_, delivery)| delivery.delivered());
    }

    /// The headers of a call, and what is remembered of it; none if it is gone, or answered.
    pub fn call(&mut self, id: StreamId) -> Option<(&Rc<Head>, &mut T)> {
        let stream = self.streams.get_mut(&id)?;
        Some((stream.head.as_ref()?, &mut stream.state))
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

    pub(crate) fn release_connection(&mut self, bytes: u32) {
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
                self.deliveries.extend(delivery.map(|delivery| (id, delivery)));
                if then != Then::More {
                    self.answered(id);
                }
                true
            }
            _ if self.waiting_bytes + data.len() > WAITING_BYTES_MAX => {
                self.reset(id, Code::EnhanceYourCalm);
                false
            }
            waiting => {
                let waiting = waiting.get_or_insert_default();
                self.waiting_bytes += data.len();
                waiting.data.extend_from_slice(data);
                waiting.then = then.into();
                waiting.delivery = delivery.or(waiting.delivery.take());
                if then != Then::More {
                    self.let_go(id);
                }
                self.go_on(id);
                true
            }
        }
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
    pub(crate) fn leave_now(&mut self) {
        self.leaving = Leaving::Heard;
        self.write_go_away(self.last_taken, Code::NoError);
    }

    /// Lets go of all calls: the connection has ended.
    pub fn close(&mut self) {
        self.streams.clear();
        self.deliveries.clear();
    }

    /// Is there nothing left to say? What stands in the output is to be written all the same.
    pub fn is_over(&self) -> bool {
        (self.leaving == Leaving::Heard || self.client_leaves) && self.streams.values().all(Self::is_said)
    }

    /// Everything was said to the client; whether it has more to say does not matter.
    fn is_said(stream: &Stream<T>) -> bool {
        stream.is_answered && stream.waiting.is_none()
    }

    pub(crate) fn write_go_away(&mut self, last: StreamId, code: Code) {
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
    pub(crate) fn go_on(&mut self, id: StreamId) {
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
        self.waiting_bytes -= bytes;
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
        self.deliveries.extend(delivery.map(|delivery| (id, delivery)));
        if !matches!(then, WaitingThen::More) {
            self.answered(id);
        }
    }

    /// Everything was said to the client on a call.
    fn answered(&mut self, id: StreamId) {
        self.resets = self.resets.saturating_sub(1);
        self.mistakes = self.mistakes.saturating_sub(1);
        self.let_go(id);
        self.forget_if_over(id);
    }

    /// Nothing more is asked about a call: what it said of itself, and what its server remembers of it, is not needed any more.
    fn let_go(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.is_answered = true;
            stream.state = T::default();
            self.heads_bytes -= stream.head.take().map_or(0, |head| head.bytes());
        }
    }

    pub(crate) fn forget_if_over(&mut self, id: StreamId) {
        let is_over = self.streams.get(&id).is_some_and(|stream| stream.is_heard && Self::is_said(stream));
        if is_over {
            self.remove(id);
        }
    }

    pub(crate) fn remove(&mut self, id: StreamId) -> Option<Stream<T>> {
        let stream = self.streams.remove(&id)?;
        self.release_connection(stream.unreleased);
        self.heads_bytes -= stream.head.as_ref().map_or(0, |head| head.bytes());
        if let Some(waiting) = &stream.waiting {
            self.waiting_bytes -= waiting.data.len() - waiting.sent;
            if waiting.is_in_line {
                self.line.retain(|waits| *waits != id);
            }
        }
        Some(stream)
    }

    /// Lets the client know that nobody listens any more to a call that was answered.
    pub(crate) fn cut_short(&mut self, id: StreamId) {
        if self.streams.get(&id).is_some_and(Self::is_said) {
            self.reset(id, Code::NoError);
        }
    }

    pub(crate) fn remember_cut_short(&mut self, id: StreamId) {
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

#[cfg(test)]
mod tests {
    use super::*;

    const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

    /// A call without a body, by the numbers that every table has, and its reset.
    fn call(id: StreamId) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame::write(
            &mut bytes,
            kind::HEADERS,
            flag::END_HEADERS | flag::END_STREAM,
            id,
            &[0x83, 0x86, 0x84],
        );
        bytes
    }

    fn hear(server: &mut Connection<()>, mut bytes: &[u8]) {
        while server.next(&mut bytes).expect("nothing wrong").is_some() {}
    }

    #[test]
    fn what_is_gone_is_remembered_nowhere() {
        let mut server = Connection::<()>::new();
        hear(&mut server, GREETING);
        server.room = 1;
        let mut reset = Vec::new();
        for id in (1..8_000).step_by(2) {
            hear(&mut server, &call(id));
            server.respond(id, 200, &[], false);
            server.send(id, b"more than there is room for", Then::End, None);
            assert!(server.line.len() <= 1);
            reset.clear();
            frame::write(&mut reset, kind::RST_STREAM, 0, id, &[0; 4]);
            hear(&mut server, &reset);
        }
        assert!(server.line.is_empty() && server.streams.is_empty());
        // Those that were cut short are, for a while.
        for id in (8_001..20_000).step_by(2) {
            server.remember_cut_short(id);
        }
        assert_eq!(server.cut_short.len(), CUT_SHORT_MAX);
        assert!(server.cut_short.contains(&19_999) && !server.cut_short.contains(&8_001));
    }
}
