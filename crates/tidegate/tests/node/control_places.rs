//! SQLite serves one node: a node that sees others on its counters says so, and what to do.

use tidegate_testbed::{Kind, Options, Server};

use crate::control::Kept;
use crate::support::{Node, until};

async fn ready(node: &Node) -> String {
    node.http().await.get("/readyz?verbose").await.body
}

#[tokio::test]
async fn a_node_on_sqlite_that_sees_others_says_so_once() {
    const WARNING: &str = "the control plane's database does not fit the fleet";
    let server = Server::start(Kind::Redis, &Options::new()).unwrap_or_else(|error| panic!("{error}"));
    let [first, shared] = Kept::both();
    let start = |kept: &Kept, data: &str| {
        let setup = kept.setup.clone().set("node-data", data);
        let setup = setup.set("store-url", &server.url()).set("store-timeout", "10s");
        setup.variable("TIDEGATE_DEBUG_HEARTBEAT_MS", "50").start()
    };
    let alone = start(&first, "data");
    until("it is known that it is alone", async || {
        ready(&alone).await.contains("one node shares it").then_some(())
    })
    .await;
    assert!(!ready(&alone).await.contains("SQLite serves one"));
    let other = start(&shared, "data");
    let told = until("it sees the other", async || {
        let told = ready(&alone).await;
        told.contains("degraded: 2 nodes share the counters, and SQLite serves one").then_some(told)
    })
    .await;
    assert!(told.starts_with("ok\n") && told.contains("--control-database postgres://"), "{told}");
    let third = start(&shared, "data-of-another");
    until("it sees both", async || ready(&alone).await.contains("degraded: 3 nodes").then_some(())).await;
    // They see the same, and nothing is wrong with that.
    for node in [&other, &third] {
        let saw = async || Some(ready(node).await).filter(|told| told.contains("3 nodes share it"));
        let told = until("the others see all", saw).await;
        assert!(!told.contains("SQLite"), "{told}");
    }
    drop((other, third));
    let (code, log) = alone.stop().await;
    assert_eq!((code, log.matches(WARNING).count()), (0, 1), "{log}");
    assert!(log.contains("--control-database postgres://"), "{log}");
}
