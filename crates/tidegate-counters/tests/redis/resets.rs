//! A counter that is reset is as if never touched, for those who were refused a moment before, too.

use tidegate_core::Limit;
use tidegate_counters::Counters as _;
use tidegate_testbed::{Kind, Proxy, Way};

use crate::support::{Counter, HOUR, PATIENT, ask, nothing_lives_for_ever, server, store, with};

/// Until so many commands have passed a proxy.
async fn passed(proxy: &Proxy, commands: u64) {
    let all = async {
        while proxy.counts().commands < commands {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENT, all).await.expect("they pass");
}

/// Somebody is refused, and before that is heard of, the counter is reset. That denial is not remembered.
#[test]
fn a_denial_that_is_older_than_a_reset_is_forgotten() {
    let server = server(Kind::Redis);
    let proxy = Proxy::start(server.address()).unwrap_or_else(|error| panic!("{error}"));
    proxy.count_only(&["EVALSHA", "DEL"]);
    let store = store(&proxy.url(), PATIENT);
    let limit = Limit::sliding_window(1, HOUR).expect("a limit");
    let counter = Counter::of(1);
    with(&store, async |counters| {
        let charge = [counter.charge(&limit, 1)];
        assert!(ask(counters, &charge).await.expect("it answers").admitted);
        let seen = proxy.counts().commands;
        proxy.black_hole(Way::ToClient, true);
        let reset = async {
            passed(&proxy, seen + 1).await;
            let heard = async {
                passed(&proxy, seen + 2).await;
                proxy.black_hole(Way::ToClient, false);
            };
            tokio::join!(counters.reset(counter.key, counter.tag), heard).0
        };
        let (told, was_there) = tokio::join!(ask(counters, &charge), reset);
        assert!(!told.expect("it answers").admitted);
        assert_eq!(was_there, Ok(true));
        assert!(ask(counters, &charge).await.expect("it answers").admitted, "it was reset");
        assert_eq!(store.stats().remembered_denials, 0);
    });
    nothing_lives_for_ever(server.immortal_keys(&[]));
}
