//! What the filter costs: the same requests with and without it, in one run. Told, and never asserted.

use tidegate_clock::Stopwatch;

use crate::envoy::Door;
use crate::figures::{are_wanted, tell};
use crate::rig::Needs;
use crate::support::Http;

#[tokio::test]
async fn the_filter_takes_some_time() {
    let Some(rig) = Needs::memory().start().await else { return };
    let rounds = if are_wanted() { 3_000 } else { 100 };
    let mut clients = [Door::Open, Door::Bare].map(|door| (rig.envoy.address(door), Vec::new()));
    let mut connections = Vec::new();
    for (address, _) in &clients {
        connections.push(Http::connect(*address).await);
    }
    // By turns, so that whatever else the machine does meets both.
    for _ in 0..rounds {
        for ((_, times), http) in clients.iter_mut().zip(&mut connections) {
            let watch = Stopwatch::start();
            let reply = http.request("GET", "/busy", &[("x-api-key", "alice")], "").await;
            times.push(watch.elapsed().as_micros() as i64);
            assert_eq!(reply.status, 200);
        }
    }
    let [with, without] = clients.map(|(_, mut times)| {
        times.sort_unstable();
        [50, 99].map(|percent| times[times.len() * percent / 100])
    });
    let figure = format!(
        "p50 {} − {} = {} µs, p99 {} − {} = {} µs",
        with[0],
        without[0],
        with[0] - without[0],
        with[1],
        without[1],
        with[1] - without[1]
    );
    tell("the_filter_takes_some_time", &figure);
}
