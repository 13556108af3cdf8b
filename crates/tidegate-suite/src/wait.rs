//! Waiting for a future without a runtime.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Polls until there is an answer: at once for stores in memory, and by going round for others.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}
