//! Row 20: replies are lost after the charge.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use tidegate_core::Limit;
use tidegate_testbed::{Kind, Proxy};

use crate::support::{
    Counter, HOUR, PATIENT, ask, nothing_lives_for_ever, server, store, troubles, used, with,
};

const LIMIT: u64 = 1_000;
const REQUESTS: u64 = 700;

/// One reply of a hundred is lost, and with it all that are behind it on its connection. What was sent is never sent again, so that the
/// counter holds what was admitted, and at most what was lost besides. Nothing is admitted above the limit.
#[test]
fn row_20_a_charge_whose_reply_is_lost_is_never_sent_again() {
    let server = server(Kind::Redis);
    let proxy = Proxy::start(server.address()).unwrap_or_else(|error| panic!("{error}"));
    proxy.count_only(&["EVALSHA", "EVAL"]);
    let limit = Limit::fixed_window(LIMIT, HOUR).expect("a limit");
    let counter = Counter::of(1);
    let (admitted, lost, not_sent) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let store_before = store(&proxy.url(), Duration::from_millis(100));
    proxy.swallow_replies(100);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                with(&store_before, async |counters| {
                    for _ in 0..REQUESTS {
                        match ask(counters, &[counter.charge(&limit, 1)]).await {
                            Ok(told) => admitted.fetch_add(u64::from(told.admitted), SeqCst),
                            Err(why) if why.why.contains("not known") => lost.fetch_add(1, SeqCst),
                            Err(_) => {
                                // It is connected to seldom, and says so at once.
                                tokio::time::sleep(Duration::from_millis(2)).await;
                                not_sent.fetch_add(1, SeqCst)
                            }
                        };
                    }
                });
            });
        }
    });
    proxy.swallow_replies(0);
    let patient = store(&server.url(), PATIENT);
    let counted = with(&patient, async |counters| used(counters, counter, &limit).await);
    let [admitted, lost] = [&admitted, &lost].map(|count| count.load(SeqCst));
    println!("admitted {admitted}, lost {lost}, not sent {not_sent:?}, counted {counted}");
    assert!(lost > 0, "no reply was lost");
    assert!(
        admitted <= counted && counted <= admitted + lost,
        "{admitted} ≤ {counted} ≤ {admitted} + {lost}"
    );
    assert!(admitted <= LIMIT && counted <= LIMIT);
    let commands = proxy.counts().commands;
    let asked = admitted + lost + (2 * REQUESTS - admitted - lost - not_sent.load(SeqCst));
    assert!(commands <= asked + troubles(&store_before, "noscript"), "{commands} calls for {asked} requests");
    nothing_lives_for_ever(server.immortal_keys(&[]));
}
