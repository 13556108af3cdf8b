//! The kill switch for rules that come from an xDS server, and for rules by API beside them: seen on another process, after kill -9, and
//! with the database gone.

use std::time::Duration;

use rustix::process::Signal;
use tidegate_clock::Stopwatch;
use tidegate_testbed::{Postgres, PostgresOptions};

use crate::control::Admin;
use crate::support::{Node, Setup, until};
use crate::xds::server::{XdsServer, domain, limited};
use crate::xds::{DAY, ask, setup, shop};

/// A second is promised; the machine of a test may stand still for two.
const SOON: Duration = Duration::from_secs(3);

/// Waits until a user is answered so: admitted, and by which limit.
async fn is_answered(node: &Node, user: &str, expected: (bool, Option<u32>)) {
    let (rls, watch) = (node.rls().await, Stopwatch::start());
    let what = format!("{expected:?}");
    until(&what, async || (ask(&rls, "shop", user).await == expected).then_some(())).await;
    assert!(watch.elapsed() < SOON, "{what} after {:?}", watch.elapsed());
}

async fn has_rules(node: &Node, updates: u64) {
    let accepted =
        async || (node.metric("tidegate_xds_updates_total", "accepted").await == updates).then_some(());
    until("it has the rules", accepted).await;
}

async fn is_ready(node: &Node) {
    until("ready", async || (node.http().await.get("/readyz").await.status == 200).then_some(())).await;
}

fn followed(server: &XdsServer, postgres: &Postgres) -> Setup {
    setup(server.address).set("control-enabled", "true").set("control-database", &postgres.url("postgres"))
}

#[tokio::test]
async fn a_rule_of_an_xds_server_is_turned_off_and_on_whatever_is_gone() {
    let postgres = Postgres::start(&PostgresOptions::new()).expect("PostgreSQL");
    let server = XdsServer::start().await;
    server.set("1", &[shop(1)]);
    let control =
        followed(&server, &postgres).set("node-role", "control").set("control-listen", "127.0.0.1:0");
    let control = control.start();
    let decides = followed(&server, &postgres).set("node-role", "decide");
    let mut node = decides.start();
    let admin = Admin::of(&control).await;
    for node in [&control, &node] {
        has_rules(node, 1).await;
        is_ready(node).await;
    }
    let rls = node.rls().await;
    assert_eq!(ask(&rls, "shop", "a").await, (true, Some(1)));
    assert_eq!(ask(&rls, "shop", "a").await, (false, Some(1)));

    let rules = admin.call("GET", "/admin/v1/rules", "").await.json();
    let rule = &rules["items"][0];
    assert!(rule["origin"].as_str().is_some_and(|origin| origin.starts_with("xds:shop")), "{rules}");
    let id: String = rule["id"].as_str().expect("an id").bytes().map(|byte| format!("%{byte:02X}")).collect();
    let path = format!("/admin/v1/rules/{id}");
    let there = admin.call("PUT", &path, r#"{"maxRequests": 5, "windowSeconds": 1}"#).await;
    assert_eq!(there.status, 409, "it is changed at the server: {}", there.body);
    let put = async |path: &str, body: &str| {
        let reply = admin.call("PUT", path, body).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.body);
    };

    put(&format!("{path}/state"), r#"{"state": "disabled"}"#).await;
    is_answered(&node, "a", (true, None)).await;
    put(&format!("{path}/state"), r#"{"state": "enforce"}"#).await;
    is_answered(&node, "a", (false, Some(1))).await;
    put(&format!("{path}/state"), r#"{"state": "disabled"}"#).await;
    is_answered(&node, "a", (true, None)).await;
    // Other rules of the server are in the same state.
    server.set("2", &[shop(2), domain("other", vec![limited("user", 0, DAY)])]);
    has_rules(&node, 2).await;
    has_rules(&control, 2).await;
    assert_eq!(ask(&rls, "shop", "a").await, (true, None));
    assert_eq!(ask(&rls, "other", "a").await, (false, Some(0)), "but not another's");

    // A rule by API stands beside them, and is turned off by its own id.
    let beside = r#"{"domain": "shop", "descriptors": [{"key": "user", "value": "guest", "rate_limit": {"limit": "0/1h"}}]}"#;
    put("/admin/v1/rules/guests", beside).await;
    is_answered(&node, "guest", (false, Some(0))).await;
    put("/admin/v1/rules/guests/state", r#"{"state": "disabled"}"#).await;
    is_answered(&node, "guest", (true, None)).await;

    // The server begins again, and says nothing; the database is gone. The rules of the last run come later than what is kept about them.
    is_ready(&node).await;
    node.kill();
    postgres.kill();
    let address = server.address;
    server.stop().await;
    control.signal(Signal::TERM); // It asks the server no more.
    let server = XdsServer::at(address, None).await;
    let node = decides.start();
    is_ready(&node).await;
    let rls = node.rls().await;
    assert_eq!(ask(&rls, "shop", "a").await, (true, None));
    assert_eq!(ask(&rls, "shop", "guest").await, (true, None), "a rule by API");
    assert_eq!(ask(&rls, "other", "a").await, (false, Some(0)));
    server.set("3", &[shop(3)]);
    has_rules(&node, 1).await;
    assert_eq!(ask(&rls, "shop", "a").await, (true, None));
    assert_eq!(ask(&rls, "shop", "guest").await, (true, None), "a rule by API");

    postgres.restart().expect("PostgreSQL again");
    let control =
        followed(&server, &postgres).set("node-role", "control").set("control-listen", "127.0.0.1:0");
    let control = control.start();
    has_rules(&control, 1).await;
    let admin = Admin { node: &control, token: admin.token };
    let gone = admin.call("DELETE", &format!("{path}/state"), "").await;
    assert_eq!(gone.status, 204, "{}", gone.body);
    until("the rule is back", async || (ask(&rls, "shop", "b").await.1 == Some(3)).then_some(())).await;
    assert_eq!(ask(&rls, "shop", "guest").await, (true, None), "and no other");
}
