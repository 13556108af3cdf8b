//! The calls of one connection of HTTP/2. What comes in one turn is first read as a whole, then answered call by call, then written as a
//! whole. Nearly every call is answered without a wait, and such a call never becomes a task; one that has to wait does, and is answered
//! when it can be, whatever becomes of the others.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use hyper::rt::Executor;
use tokio::task::spawn_local;

type Call = Pin<Box<dyn Future<Output = ()>>>;

/// How many calls wait to be begun. Streams that the client has reset do not count as in flight, so that a turn may bring more calls than
/// a connection may have: then they are begun within it.
const CALLS_MAX: usize = 1_024;

/// The calls that a connection has read and nobody has begun to answer.
#[derive(Clone, Default)]
pub(super) struct Calls(Rc<RefCell<Vec<Call>>>);

impl<F: Future<Output = ()> + 'static> Executor<F> for Calls {
    fn execute(&self, call: F) {
        self.0.borrow_mut().push(Box::pin(call));
        if self.0.borrow().len() >= CALLS_MAX {
            self.begin();
        }
    }
}

impl Calls {
    /// Begins them all, also those that others of them bring.
    fn begin(&self) {
        let mut calls = self.0.take();
        while !calls.is_empty() {
            for mut call in calls.drain(..) {
                // Nobody has to be woken: if it waits it becomes a task, and that asks again. A panic ends the call, not the connection.
                let mut context = Context::from_waker(Waker::noop());
                let begun = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(&mut context)));
                if matches!(begun, Ok(Poll::Pending)) {
                    spawn_local(call);
                }
            }
            calls = self.0.replace(calls); // The room stays there for the next turn.
        }
    }
}

/// A connection that answers its calls.
pub(super) struct Answering<C> {
    pub(super) connection: C,
    pub(super) calls: Calls,
}

impl<C: Future + Unpin> Future for Answering<C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<C::Output> {
        let polled = Pin::new(&mut self.connection).poll(context);
        // An answer wakes the connection, which writes in its next turn, when the others have had theirs: whoever reads what all of them
        // write is woken once. With a write at once, 64 connections with a call each cost the node a fifth more.
        self.calls.begin();
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::{pending, poll_fn, ready};

    use tokio::task::{LocalSet, yield_now};

    use super::*;

    /// Runs calls on a connection that has nothing else to do, and then whatever became a task; says after each how many are answered.
    fn answered(calls: impl FnOnce(&Calls, &Rc<Cell<usize>>)) -> [usize; 2] {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (tasks, count) = (LocalSet::new(), Rc::new(Cell::new(0)));
        let began = tasks.block_on(&runtime, async {
            let begun = Calls::default();
            calls(&begun, &count);
            let mut connection = Answering { connection: pending::<()>(), calls: begun };
            poll_fn(|context| Poll::Ready(Pin::new(&mut connection).poll(context).is_pending())).await;
            count.get()
        });
        runtime.block_on(tasks);
        [began, count.get()]
    }

    #[test]
    fn a_call_is_answered_at_once_and_one_that_waits_when_it_can_be() {
        let counts = answered(|calls, count| {
            for waits in [true, false, false] {
                let count = count.clone();
                calls.execute(async move {
                    if waits {
                        yield_now().await;
                    }
                    count.set(count.get() + 1);
                });
            }
        });
        assert_eq!(counts, [2, 3]);
    }

    #[test]
    fn a_call_that_panics_takes_no_other_along() {
        let counts = answered(|calls, count| {
            for breaks in [false, true, false] {
                let count = count.clone();
                calls.execute(async move {
                    assert!(!breaks, "broken on purpose");
                    count.set(count.get() + 1);
                });
            }
        });
        assert_eq!(counts, [2, 2]);
    }

    #[test]
    fn a_call_that_brings_another_loses_neither() {
        let counts = answered(|calls, count| {
            let (own, outer, inner) = (calls.clone(), count.clone(), count.clone());
            calls.execute(async move {
                own.execute(async move { inner.set(inner.get() + 1) });
                outer.set(outer.get() + 1);
            });
        });
        assert_eq!(counts, [2, 2]);
    }

    #[test]
    fn no_more_calls_wait_than_may() {
        let (calls, count) = (Calls::default(), Rc::new(Cell::new(0)));
        for _ in 0..CALLS_MAX + 1 {
            let count = count.clone();
            calls.execute(async move { count.set(count.get() + 1) });
        }
        assert_eq!((count.get(), calls.0.borrow().len()), (CALLS_MAX, 1));
    }

    #[test]
    fn calls_that_came_with_the_end_of_a_connection_are_answered_too() {
        let (calls, count) = (Calls::default(), Rc::new(Cell::new(0)));
        let counted = count.clone();
        calls.execute(async move { counted.set(1) });
        let mut connection = Answering { connection: ready(()), calls };
        let ended = Pin::new(&mut connection).poll(&mut Context::from_waker(Waker::noop()));
        assert!(ended.is_ready() && count.get() == 1);
    }
}
