//! Rules, stores and nodes that change while requests come.

use crate::config;
use crate::envoy::Door;
use crate::figures::tell;
use crate::load::Load;
use crate::rig::Needs;
use crate::support::until;

#[tokio::test]
async fn no_request_fails_while_rules_reload_the_store_restarts_and_a_node_is_replaced() {
    let needs = Needs::redis().impatient().nodes(2).set("node-drain-delay", "5s");
    let Some(mut rig) = needs.start().await else { return };
    // Where Envoy fails closed, a call that failed is seen.
    let load = Load::start(rig.envoy.address(Door::Closed), "/busy", "alice", 8);
    load.goes_on(100).await;

    for node in &rig.nodes {
        let before = node.metric("tidegate_config_reloads_total", "").await;
        node.setup.write("rules/rules.yaml", &config::rules().replace("3/1h", "5/1h"));
        until("the rules are loaded again", async || {
            (node.metric("tidegate_config_reloads_total", "").await > before).then_some(())
        })
        .await;
    }
    load.goes_on(100).await;

    let redis = rig.redis.as_ref().expect("a store");
    redis.kill();
    let missed = async || rig.metric("ratelimit_failopen_total", "").await > 0;
    until("the store is missed", async || missed().await.then_some(())).await;
    redis.restart().unwrap_or_else(|error| panic!("{error}"));
    load.goes_on(100).await;

    for at in 0..rig.nodes.len() {
        let setup = rig.nodes[at].setup.clone();
        let old = rig.nodes.remove(at);
        let (code, log) = old.stop().await;
        assert_eq!(code, 0, "{log}");
        rig.nodes.insert(at, setup.start());
        let healthy = "cluster.tidegate.membership_healthy";
        until("Envoy knows the new node", async || (rig.envoy.stat(healthy).await == 2).then_some(())).await;
        load.goes_on(100).await;
    }

    let answers = load.finish();
    assert_eq!(answers.failed, 0, "{answers:?}");
    assert_eq!(rig.envoy.stat("cluster.upstream.ratelimit.closed.error").await, 0);
    let figure = format!(
        "0 of {} failed; {} passed without a count",
        answers.decided + answers.undecided,
        answers.undecided
    );
    tell("no_request_fails_while_rules_reload_the_store_restarts_and_a_node_is_replaced", &figure);
}
