//! Futures of one thread: those that never wait, those that may panic, and several at the same time.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// What a future gives, if it does not wait for anything: decisions on counters in memory do not.
pub fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Something panicked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Panicked;

/// Does what may panic.
pub(crate) fn unbroken<R>(work: impl FnOnce() -> R) -> Result<R, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked)
}

/// Waits for a future that may panic at any time; it is not asked again then. It stays where it is: in this one it would be kept twice,
/// as it came and as it is waited for.
pub(crate) async fn caught<F: Future>(mut future: Pin<&mut F>) -> Result<F::Output, Panicked> {
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(polled) => polled.map(Ok),
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}

/// Waits for all of them at the same time; they are begun in their order. For a few: each that goes on asks all.
pub(crate) async fn together<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    enum Either<F: Future> {
        Waits(Pin<Box<F>>),
        Done(Option<F::Output>),
    }
    let mut all: Vec<Either<F>> = futures.into_iter().map(|future| Either::Waits(Box::pin(future))).collect();
    let all = &mut all;
    poll_fn(move |context| {
        let mut waits = false;
        for one in &mut *all {
            if let Either::Waits(future) = one {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *one = Either::Done(Some(output)),
                    Poll::Pending => waits = true,
                }
            }
        }
        let output = |one: &mut Either<F>| if let Either::Done(output) = one { output.take() } else { None };
        if waits { Poll::Pending } else { Poll::Ready(all.iter_mut().filter_map(output).collect()) }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use tokio::sync::Semaphore;

    use super::*;

    fn run<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    #[test]
    fn a_panic_after_a_wait_is_caught_too() {
        let breaks = async {
            tokio::task::yield_now().await;
            assert_eq!(1, 2, "broken on purpose");
        };
        assert_eq!(run(caught(pin!(breaks))), Err(Panicked));
        assert_eq!(run(caught(pin!(async { 5 }))), Ok(5));
    }

    #[test]
    fn all_wait_at_the_same_time_and_answers_keep_their_order() {
        let (begun, turn) = (RefCell::new(Vec::new()), Semaphore::new(0));
        let one = |number: usize| {
            let (begun, turn) = (&begun, &turn);
            async move {
                begun.borrow_mut().push(number);
                if number == 2 {
                    turn.add_permits(2); // Were they to wait for each other, nobody would come to this.
                } else {
                    turn.acquire().await.expect("open").forget();
                }
                number
            }
        };
        assert_eq!(run(together((0..3).map(one))), [0, 1, 2]);
        assert_eq!(*begun.borrow(), [0, 1, 2]);
        assert_eq!(run(together((0..0).map(one))), Vec::<usize>::new());
    }

    #[test]
    fn what_waits_is_not_there_at_once() {
        assert_eq!(at_once(async { 1 }), Some(1));
        assert_eq!(at_once(std::future::pending::<()>()), None);
    }
}
