//! The calls on one connection of gRPC. A call whose message is here as a whole, as it nearly always is, is answered as it is read, from
//! the bytes that came to the bytes that go; one that has to wait, for its message or for a store, has a place of its own.

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tidegate_core::Micros;
use tidegate_http2::{Delivery, Event, Head, StreamId, Then};
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::sleep;

use super::beside::{Beside, Uploading};
use super::grpc::{Call, Failed, Message, SHOULD_RATE_LIMIT, Told, message, message_max};
use super::together::{LookedAt, Ready, TOGETHER_MAX, Together};
use crate::net::{self, Converse};
use crate::node::Core;

/// What messages that are not whole yet may take on one thread, all together. Whoever comes when it is used up is refused unread.
const GATHERED_BYTES_MAX: usize = 32 << 20;
/// Room for an answer: most are shorter.
const ANSWER_BYTES: usize = 256;

const CONTENT_TYPE: tidegate_http2::Field<'static> = (b"content-type", b"application/grpc");
const STATUS: &[u8] = b"grpc-status";
const WELL: Then<'static> = Then::Trailers(&[(STATUS, b"0")]);

/// The way to a client.
pub(super) type Line = net::Line<Doing>;

/// What is done about a call.
#[derive(Default)]
pub enum Doing {
    /// It has just begun.
    #[default]
    Begun,
    /// Its message is here, and it will be decided with others.
    Heard,
    /// Its message is on its way.
    Gathering(Box<Gathering>),
    /// Its answer is on its way.
    Answering(Task),
    /// It is somebody else's.
    Beside(Box<Uploading>, Task),
}

/// A message that is not whole.
pub struct Gathering {
    core: Rc<Core>,
    bytes: Vec<u8>,
    /// Ends the call when the message takes too long.
    _timer: Task,
}

impl Gathering {
    /// Adds to it; says whether there is room.
    fn add(&mut self, data: &[u8]) -> bool {
        self.bytes.extend_from_slice(data);
        let all = &self.core.gathered;
        all.set(all.get() + data.len());
        all.get() <= GATHERED_BYTES_MAX
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        let all: &Cell<usize> = &self.core.gathered;
        all.set(all.get() - self.bytes.len());
    }
}

/// Something that goes on by itself, until it is dropped.
pub struct Task(AbortHandle);

impl Task {
    fn begin(work: impl Future<Output = ()> + 'static) -> Self {
        Self(spawn_local(work).abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection.
pub struct Session {
    core: Rc<Core>,
    beside: Rc<Beside>,
    /// Calls that have begun since the last pause.
    begun: Vec<StreamId>,
    /// Where answers are written.
    answer: Vec<u8>,
}

impl Session {
    pub(crate) fn new(core: Rc<Core>, beside: Rc<Beside>) -> Self {
        Self { core, beside, begun: Vec::new(), answer: Vec::with_capacity(ANSWER_BYTES) }
    }

    /// Answers calls whose messages are here.
    fn decide(&mut self, line: &Rc<Line>, calls: &mut Together<'_>) {
        let Some(now) = calls.first().map(|first| first.call.came()) else { return };
        let core = self.core.clone();
        let Some(memory) = Call::memory(&core) else {
            return calls.drain(..).for_each(|ready| decide_later(line, ready));
        };
        let (in_force, mut looked) = (core.node.rules.in_force(), LookedAt::new());
        core.look_ahead(memory, &in_force, calls, now, &mut looked);
        for (at, Ready { stream, call, message }) in calls.drain(..).enumerate() {
            self.answer.clear();
            let read = looked.get_mut(at).filter(|read| read.ahead.is_some());
            let told = call.answer_now(&mut self.answer, |call, out| match read {
                Some(read) => call.decide_read(memory, &in_force, read, message, out),
                None => call.decide_now(memory, message, out),
            });
            say(line, stream, told, &self.answer);
        }
    }

    /// The same for one alone.
    fn decide_alone(&mut self, line: &Rc<Line>, stream: StreamId, head: Rc<Head>, message: &[u8]) {
        let call = Call::new(self.core.clone(), head);
        self.decide(line, &mut std::iter::once(Ready { stream, call, message }).collect());
    }

    /// Some of a message came, or its end.
    fn gather<'b>(
        &mut self,
        line: &Rc<Line>,
        (stream, data, end): (StreamId, &'b [u8], bool),
        now: Micros,
        ready: &mut Together<'b>,
    ) {
        // Nearly always it comes as a whole.
        let whole = match message(data) {
            Ok(Message::Whole(at)) => Some(at),
            _ => None,
        };
        let called = line.with(|connection| {
            let (head, doing) = connection.call(stream)?;
            let called = match doing {
                Doing::Begun => {
                    if whole.is_some() {
                        *doing = Doing::Heard;
                    }
                    Some((head.clone(), None))
                }
                Doing::Gathering(_) => Some((head.clone(), Some(std::mem::take(doing)))),
                Doing::Heard | Doing::Answering(_) => None, // It has said enough.
                Doing::Beside(uploading, _) => {
                    uploading.add(data, end);
                    return None; // What it takes is released when it has taken it.
                }
            };
            connection.release(stream, data.len());
            called
        });
        let Some((head, doing)) = called else { return };
        let mut gathering = match doing {
            Some(Doing::Gathering(gathering)) => gathering,
            _ => {
                if let Some(at) = whole {
                    let call = Call::beside(ready.last().map(|last| &last.call), now, &self.core, head);
                    return ready.push(Ready { stream, call, message: &data[at] });
                }
                self.begin_gathering(line, stream, &head)
            }
        };
        let fits = gathering.add(data);
        let call = || Call::new(self.core.clone(), head.clone());
        let told = match message(&gathering.bytes) {
            Ok(Message::Whole(at)) => return self.decide_alone(line, stream, head, &gathering.bytes[at]),
            Ok(Message::Partly) if fits && end => call().fail(Failed::too_short()),
            Ok(Message::Partly) if fits => {
                return line.with(|connection| {
                    if let Some((_, doing)) = connection.call(stream) {
                        *doing = Doing::Gathering(gathering);
                    }
                });
            }
            Ok(Message::Partly | Message::TooLarge) => {
                self.answer.clear();
                call().refuse_unread(&mut self.answer)
            }
            Err(failed) => call().fail(failed),
        };
        say(line, stream, told, &self.answer);
    }

    fn begin_gathering(&self, line: &Rc<Line>, stream: StreamId, head: &Rc<Head>) -> Box<Gathering> {
        let (to, core, late) = (line.clone(), self.core.clone(), head.clone());
        let timer = Task::begin(async move {
            sleep(message_max(&late)).await;
            let told = Call::new(core, late).fail(Failed::too_slow());
            say_later(&to, stream, told, &[]);
        });
        Box::new(Gathering { core: self.core.clone(), bytes: Vec::new(), _timer: timer })
    }

    /// A call began.
    fn begin(&mut self, line: &Rc<Line>, stream: StreamId, end: bool) {
        let head = line.with(|connection| connection.call(stream).map(|(head, _)| head.clone()));
        let Some(head) = head else { return };
        if head.path() != SHOULD_RATE_LIMIT.as_bytes() {
            self.pass_on(line, stream, &head, end);
        } else if end {
            let told = Call::new(self.core.clone(), head).fail(Failed::too_short());
            say(line, stream, told, &[]);
        } else {
            self.begun.push(stream);
        }
    }

    /// A call for health, or for reflection.
    fn pass_on(&self, line: &Rc<Line>, stream: StreamId, head: &Head, end: bool) {
        match self.beside.begin(head, end) {
            Some((uploading, answers)) => {
                let (to, taken) = (line.clone(), uploading.taken());
                let task = Task::begin(async move { answers.pass_on(&to, stream, taken).await });
                line.with(|connection| {
                    if let Some((_, doing)) = connection.call(stream) {
                        *doing = Doing::Beside(Box::new(uploading), task);
                    }
                });
            }
            None => {
                say(line, stream, Err(Failed::unknown(head.path())), &[]);
            }
        }
    }
}

impl Converse for Session {
    type State = Doing;

    fn heard(&mut self, line: &Rc<Line>, events: &[Event<'_>]) {
        let (now, mut ready) = (self.core.node.now(), Together::new());
        for event in events {
            match *event {
                Event::Data { stream, data, end } => self.gather(line, (stream, data, end), now, &mut ready),
                Event::Head { stream, end } => self.begin(line, stream, end),
            }
            if ready.len() == TOGETHER_MAX {
                self.decide(line, &mut ready);
            }
        }
        self.decide(line, &mut ready);
    }

    /// Whoever has begun and sent nothing of its message has only so much time.
    fn paused(&mut self, line: &Rc<Line>) {
        while let Some(stream) = self.begun.pop() {
            let head = line.with(|connection| match connection.call(stream) {
                Some((head, Doing::Begun)) => Some(head.clone()),
                _ => None,
            });
            if let Some(head) = head {
                let gathering = self.begin_gathering(line, stream, &head);
                line.with(|connection| {
                    if let Some((_, doing)) = connection.call(stream) {
                        *doing = Doing::Gathering(gathering);
                    }
                });
            }
        }
    }
}

/// Answers a call when a store elsewhere has.
fn decide_later(line: &Rc<Line>, Ready { stream, call, message }: Ready<'_>) {
    let (message, answer) = (Bytes::copy_from_slice(message), Vec::with_capacity(ANSWER_BYTES));
    let mut asked = Box::pin(call.answer_later(message, answer));
    // What is remembered need not be waited for.
    match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready((told, answer)) => say(line, stream, told, &answer),
        Poll::Pending => {
            let to = line.clone();
            let task = Task::begin(async move {
                let (told, answer) = asked.await;
                say_later(&to, stream, told, &answer);
            });
            line.with(|connection| {
                if let Some((_, doing)) = connection.call(stream) {
                    *doing = Doing::Answering(task);
                }
            });
        }
    }
}

/// Says the answer to a call.
fn say(line: &Line, stream: StreamId, told: Told, answer: &[u8]) {
    match told {
        Ok((_, held)) => line.with(|connection| {
            connection.respond(stream, 200, &[CONTENT_TYPE], false);
            connection.send(stream, answer, WELL, held.map(|held| held as Box<dyn Delivery>));
        }),
        Err(failed) => {
            let (code, text) = ((failed.code as i32).to_string(), failed.text());
            let fields = [CONTENT_TYPE, (STATUS, code.as_bytes()), (b"grpc-message", text.as_bytes())];
            line.with(|connection| connection.respond(stream, 200, &fields, true));
        }
    }
}

/// The same, when nobody is listening: the line is told.
pub(super) fn say_later(line: &Line, stream: StreamId, told: Told, answer: &[u8]) {
    say(line, stream, told, answer);
    line.later(|_| ());
}
