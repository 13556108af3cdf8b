//! What the tests have in common: the process, and clients of both protocols.

pub(crate) mod certificates; // for TLS
pub(crate) mod frames; // HTTP/2 by hand
pub(crate) mod grpc; // a client of gRPC
pub(crate) mod http; // a client of HTTP/1.1
#[path = "../../../../tidegate-server/tests/messages/mod.rs"]
pub(crate) mod messages; // of Envoy's protocol
pub(crate) mod process; // the node

use std::time::Duration;

pub(crate) use grpc::{Failed, Grpc, asks, descriptor};
pub(crate) use http::Http;
pub(crate) use process::{Node, Setup};

/// What is awaited takes milliseconds; the machine may be busy.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Waits for something that comes soon.
#[track_caller]
pub(crate) fn soon<F: Future>(what: &'static str, future: F) -> impl Future<Output = F::Output> {
    let place = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(SOON, future).await {
            Ok(output) => output,
            Err(_) => panic!("{place}: {what} did not come"),
        }
    }
}

/// Does something that is over in less than a second, or again if the machine slept meanwhile: answers tell whole seconds. Each turn has a
/// number, so that it can ask about somebody new. The last one counts, however long it took.
#[allow(dead_code, reason = "not all who use these clients look at seconds")]
pub(crate) async fn at_once<T>(mut act: impl AsyncFnMut(u32) -> T) -> T {
    const TURNS: u32 = 10;
    let mut turn = 1;
    loop {
        let watch = tidegate_clock::Stopwatch::start();
        let done = act(turn).await;
        if watch.elapsed() < Duration::from_millis(900) || turn == TURNS {
            return done;
        }
        turn += 1;
    }
}

/// Asks again and again until the answer is the one that is awaited.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let watch = tidegate_clock::Stopwatch::start();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(watch.elapsed() < SOON, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
