//! One connection of HTTP/2: its bytes are brought to whoever understands them, and the answers are taken back.
//!
//! A turn writes what there is to write, reads once and answers what came; what that says is written in the next turn, when the other
//! connections of the thread have had theirs. So whoever reads what all of them write is woken once: with a write at once, 64 connections
//! with a call each cost the node a fifth more.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_http2::{Connection, Event, OUTPUT_BYTES_MAX};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::sleep;

use super::connection::{GREETING_MAX, Lifetime, grow_old};
use super::cores::Phase;

/// What is read at once.
const READ_BYTES: usize = 64 << 10;
/// A peer from whom nothing comes for so long is asked whether it is there, and gone if nothing comes to that either.
const PING_EVERY: Duration = Duration::from_secs(30);
const PONG_MAX: Duration = Duration::from_secs(10);
/// How many turns a busy connection may have before it looks at the time.
const BUSY_TURNS_MAX: u32 = 64;
/// Room for answers that a connection keeps when all are written: some hundreds, as many as come at once on a busy one.
const OUTPUT_KEPT_BYTES: usize = 16 << 10;

/// What is heard at once: eight calls, each with its head and its message. Their answers may come on top of what there is to be written.
const EVENTS_MAX: usize = 16;

thread_local! {
    /// Where all connections of a thread read: what is left of it when it was answered is nearly always nothing.
    static CAME: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Somebody who answers what a client says.
pub trait Converse: Unpin + 'static {
    /// What is remembered of each call.
    type State: Default;

    /// The client did this, one after the other. What it took back since is gone.
    fn heard(&mut self, line: &Rc<Line<Self::State>>, events: &[Event<'_>]);

    /// All that came at once was heard.
    fn paused(&mut self, line: &Rc<Line<Self::State>>);
}

/// Nobody, where only HTTP/1.1 is spoken.
#[derive(Debug)]
pub enum Nobody {}

impl Converse for Nobody {
    type State = ();

    fn heard(&mut self, _: &Rc<Line<()>>, _: &[Event<'_>]) {}

    fn paused(&mut self, _: &Rc<Line<()>>) {}
}

/// The way to a client: for whoever answers, at once or later, on the same thread.
#[derive(Debug)]
pub struct Line<T> {
    connection: RefCell<Connection<T>>,
    waker: RefCell<Option<Waker>>,
}

impl<T: Default> Line<T> {
    fn new() -> Self {
        Self { connection: RefCell::new(Connection::new()), waker: RefCell::new(None) }
    }

    /// Says something at once, while something is heard: it is written in the next turn.
    pub fn with<R>(&self, say: impl FnOnce(&mut Connection<T>) -> R) -> R {
        say(&mut self.connection.borrow_mut())
    }

    /// Says something later: there will be a turn for it.
    pub fn later<R>(&self, say: impl FnOnce(&mut Connection<T>) -> R) -> R {
        let said = self.with(say);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
        said
    }
}

/// Leads a conversation until it ends.
pub(super) async fn lead<C: Converse>(
    with: C,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    lifetime: Lifetime,
    phase: watch::Receiver<Phase>,
    read: &Rc<Cell<usize>>,
) -> Result<(), String> {
    let line = Rc::new(Line::new());
    let patience = Box::pin(lose_patience(line.clone(), lifetime, phase, read.clone()));
    let conversation = Conversation {
        with,
        stream,
        line,
        rest: Vec::new(),
        is_held_back: false,
        is_unsent: false,
        busy: 0,
        ends: None,
        patience,
    };
    conversation.await
}

struct Conversation<C: Converse, S, P> {
    with: C,
    stream: S,
    line: Rc<Line<C::State>>,
    /// What came and was not heard: the beginning of a frame, or whatever came when there was too much to say already.
    rest: Vec<u8>,
    is_held_back: bool,
    /// Some of what was written may not have been sent.
    is_unsent: bool,
    /// How many turns it has gone on without a rest.
    busy: u32,
    /// It ends when everything is written, because of this.
    ends: Option<&'static str>,
    patience: Pin<Box<P>>,
}

impl<C: Converse, S: Unpin, P> Unpin for Conversation<C, S, P> {}

impl<C, S, P> Future for Conversation<C, S, P>
where
    C: Converse,
    S: AsyncRead + AsyncWrite + Unpin,
    P: Future<Output = &'static str>,
{
    type Output = Result<(), String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.leave_address(context.waker());
        let unwritten = this.write(context).map_err(|error| error.to_string())?;
        if unwritten == 0 && (this.ends.is_some() || this.line.with(|connection| connection.is_over())) {
            if Pin::new(&mut this.stream).poll_shutdown(context).is_ready() {
                return Poll::Ready(this.ends.map_or(Ok(()), |why| Err(why.into())));
            }
            return this.patience.as_mut().poll(context).map(|why| Err(why.into()));
        }
        if unwritten < OUTPUT_BYTES_MAX && this.ends.is_none() {
            match this.read(context) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(_)) => {
                    context.waker().wake_by_ref();
                    this.busy += 1;
                    if this.busy < BUSY_TURNS_MAX {
                        return Poll::Pending;
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.to_string())),
                Poll::Pending => {}
            }
        }
        this.busy = 0;
        this.patience.as_mut().poll(context).map(|why| Err(why.into()))
    }
}

impl<C, S, P> Conversation<C, S, P>
where
    C: Converse,
    S: AsyncRead + AsyncWrite + Unpin,
{
    /// Whoever answers later knows whom to wake.
    fn leave_address(&self, waker: &Waker) {
        let mut address = self.line.waker.borrow_mut();
        if address.as_ref().is_none_or(|address| !address.will_wake(waker)) {
            *address = Some(waker.clone());
        }
    }

    /// Writes what the client takes; gives what is left.
    fn write(&mut self, context: &mut Context<'_>) -> io::Result<usize> {
        let mut connection = self.line.connection.borrow_mut();
        let output = connection.output();
        if output.is_empty() && !self.is_unsent {
            return Ok(0);
        }
        let mut written = 0;
        while written < output.len() {
            match Pin::new(&mut self.stream).poll_write(context, &output[written..]) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(bytes)) => written += bytes,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => {
                    // Somebody who reads slowly and asks for more all the time never takes everything.
                    output.drain(..written);
                    return Ok(output.len());
                }
            }
        }
        output.clear();
        output.shrink_to(OUTPUT_KEPT_BYTES);
        connection.written();
        // TLS may have taken it and not sent it.
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.is_unsent = flushed.is_pending();
        match flushed {
            Poll::Ready(flushed) => flushed.map(|()| 0),
            Poll::Pending => Ok(1),
        }
    }

    /// Reads once, and has it answered; gives how much came. What was held back is answered first.
    fn read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.is_held_back {
            self.hear_with_rest(&[]);
            return Poll::Ready(Ok(1));
        }
        CAME.with_borrow_mut(|came| {
            let mut buffer = ReadBuf::new(came);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
            if self.rest.is_empty() {
                let left = self.hear(buffer.filled());
                self.rest.extend_from_slice(left);
            } else {
                self.hear_with_rest(buffer.filled());
            }
            Poll::Ready(Ok(buffer.filled().len()))
        })
    }

    /// Has what is left and what came answered.
    fn hear_with_rest(&mut self, came: &[u8]) {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(came);
        let left = self.hear(&all).len();
        if left > 0 {
            all.drain(..all.len() - left);
            self.rest = all;
        }
    }

    /// Has what came answered; gives what is not whole, or is held back.
    fn hear<'b>(&mut self, mut bytes: &'b [u8]) -> &'b [u8] {
        self.is_held_back = false;
        let mut events: SmallVec<[Event<'b>; EVENTS_MAX]> = SmallVec::new();
        let mut goes_on = true;
        while goes_on {
            let mut connection = self.line.connection.borrow_mut();
            while goes_on && events.len() < EVENTS_MAX {
                if connection.output().len() >= OUTPUT_BYTES_MAX {
                    (self.is_held_back, goes_on) = (true, false);
                    break;
                }
                match connection.next(&mut bytes) {
                    Ok(Some(event)) => events.push(event),
                    Ok(None) => goes_on = false,
                    Err(broken) => {
                        (self.ends, goes_on) = (Some(broken.why), false);
                        bytes = &[];
                    }
                }
            }
            drop(connection);
            if !events.is_empty() {
                self.with.heard(&self.line, &events);
                events.clear();
            }
        }
        self.with.paused(&self.line);
        bytes
    }
}

impl<C: Converse, S, P> Drop for Conversation<C, S, P> {
    fn drop(&mut self) {
        self.line.with(|connection| connection.close());
    }
}

/// Waits until a connection has to end: it says nothing at all, or nobody is there any more, or it was asked to end and does not.
async fn lose_patience<T: Default>(
    line: Rc<Line<T>>,
    lifetime: Lifetime,
    mut phase: watch::Receiver<Phase>,
    read: Rc<Cell<usize>>,
) -> &'static str {
    tokio::select! {
        biased;
        _ = phase.wait_for(|phase| *phase != Phase::Serving) => {}
        () = sleep(GREETING_MAX) => {}
    }
    if *phase.borrow() == Phase::Serving {
        if !line.with(|connection| connection.is_greeted()) {
            return "it said nothing";
        }
        tokio::select! {
            biased;
            _ = phase.wait_for(|phase| *phase != Phase::Serving) => {}
            () = grow_old(lifetime.age.map(|age| age.saturating_sub(GREETING_MAX))) => {}
            () = be_forsaken(&line, &read) => return "nobody is there any more",
        }
    }
    let is_end = *phase.borrow() != Phase::Serving;
    line.later(|connection| connection.leave());
    sleep(lifetime.grace_for(is_end)).await;
    "it did not end in time"
}

/// Waits until nothing comes any more, also when it is asked for.
async fn be_forsaken<T: Default>(line: &Line<T>, read: &Cell<usize>) {
    loop {
        let before = read.get();
        sleep(PING_EVERY).await;
        if read.get() == before {
            line.later(|connection| connection.ping());
            sleep(PONG_MAX).await;
            if read.get() == before {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::task::yield_now;

    use super::*;

    const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0pingping";

    /// Answers each call with so many bytes.
    struct Says(usize);

    impl Converse for Says {
        type State = ();

        fn heard(&mut self, line: &Rc<Line<()>>, events: &[Event<'_>]) {
            for Event::Head { stream, .. } | Event::Data { stream, .. } in events {
                line.with(|connection| {
                    connection.respond(*stream, 200, &[(b"x", &vec![b'y'; self.0])], true);
                });
            }
        }

        fn paused(&mut self, _: &Rc<Line<()>>) {}
    }

    type Patient = std::future::Pending<&'static str>;

    /// A conversation with somebody who has so much room, and that one's end of it.
    fn begin(says: usize, room: usize) -> (Conversation<Says, DuplexStream, Patient>, DuplexStream) {
        let (client, stream) = duplex(room);
        let conversation = Conversation {
            with: Says(says),
            stream,
            line: Rc::new(Line::new()),
            rest: Vec::new(),
            is_held_back: false,
            is_unsent: false,
            busy: 0,
            ends: None,
            patience: Box::pin(pending()),
        };
        (conversation, client)
    }

    fn run(work: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(work);
    }

    #[derive(Default)]
    struct Alarm(AtomicBool);

    impl Wake for Alarm {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Lets it go on; says whether it wants to go on at once.
    fn turn(conversation: &mut Conversation<Says, DuplexStream, Patient>) -> bool {
        let alarm = Arc::new(Alarm::default());
        let polled = Pin::new(conversation).poll(&mut Context::from_waker(&alarm.clone().into()));
        assert!(polled.is_pending(), "it goes on");
        alarm.0.load(Ordering::Relaxed)
    }

    #[test]
    fn who_reads_slowly_and_asks_for_more_has_no_more_room() {
        run(async {
            let (mut conversation, mut client) = begin(0, 1 << 17);
            client.write_all(GREETING).await.expect("room");
            let (pings, mut slow) = (PING.repeat(3_000), [0; 30_000]);
            let (mut read, mut at) = (0, 0);
            for _ in 0..2_000 {
                yield_now().await; // The runtime lets nobody go on for ever.
                // As much as it can say; and it reads a part of what it is told.
                at += pending_or(client.write(&pings[at..])).await.unwrap_or(0);
                at %= pings.len();
                turn(&mut conversation);
                read += pending_or(client.read(&mut slow)).await.unwrap_or(0);
                let output = conversation.line.with(|connection| connection.output().len());
                assert!(output < 4 * OUTPUT_BYTES_MAX, "{output} bytes");
            }
            assert!(read > 10_000_000, "much was said meanwhile: {read}");
        });
    }

    #[test]
    fn what_makes_too_much_to_say_is_held_back_and_not_lost() {
        run(async {
            let (mut conversation, mut client) = begin(10_000, 1 << 17);
            client.write_all(GREETING).await.expect("room");
            let heads: Vec<u8> = (0..2_000_u32)
                .flat_map(|number| {
                    [&[0, 0, 3, 1, 5][..], &(2 * number + 1).to_be_bytes(), &[0x83, 0x86, 0x84]].concat()
                })
                .collect();
            client.write_all(&heads).await.expect("room");
            while turn(&mut conversation) {
                yield_now().await; // Until it can do nothing but wait: nobody reads.
            }
            let (mut said, mut bytes) = (Vec::new(), [0; 100_000]);
            for _ in 0..1_000 {
                yield_now().await;
                turn(&mut conversation);
                let output = conversation.line.with(|connection| connection.output().len());
                assert!(output < OUTPUT_BYTES_MAX + EVENTS_MAX * 11_000, "{output} bytes");
                let read = pending_or(client.read(&mut bytes)).await.unwrap_or(0);
                said.extend_from_slice(&bytes[..read]);
            }
            // All are answered, each once and in their order.
            let (mut rest, mut answered) = (&said[..], Vec::new());
            while let Some((head, behind)) = rest.split_first_chunk::<9>() {
                let [_, b, c, kind, _, stream @ ..] = *head;
                answered.extend((kind == 1).then_some(u32::from_be_bytes(stream)));
                rest = &behind[usize::from(b) * 256 + usize::from(c)..];
            }
            assert_eq!(answered, (0..2_000).map(|number| 2 * number + 1).collect::<Vec<_>>());
        });
    }

    /// What can be done without waiting.
    async fn pending_or<T>(work: impl Future<Output = io::Result<T>>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => done.ok(),
            Poll::Pending => None,
        }
    }
}
